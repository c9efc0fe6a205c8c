//! The gates of a server: each speaks one protocol at one address.
//!
//! [`listed`] is the only place that lists them. A gate over TCP is a [`TcpProtocol`](tcp::TcpProtocol): it creates
//! sessions, which get bytes and give bytes. Accepting, limits, deadlines and draining are the same for all of them
//! ([`tcp`], [`limit`], [`connection`]). A gate with another transport, or one that must own its connections,
//! implements [`Gate`] itself, as [`text`] does.

mod access_files;
mod connection;
mod deadline;
mod http;
mod limit;
mod open;
mod open_files;
mod reserved;
mod resp;
#[cfg(feature = "rls")]
mod rls;
pub(crate) mod smockron;
mod stream;
mod tcp;
#[cfg(test)]
mod tests;
mod text;
mod throttr;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tollway::config::{GateAccess, Gates};
use tracing::warn;

pub use self::access_files::{AccessFileError, AccessFileWarning, check_access_files};
pub(crate) use self::limit::ConnectionLimit;
pub use self::open::{OpenGate, OpenGatesError, PlainTextGate, open_gates, plain_text_gates};
pub use self::open_files::allow_connections;
pub(crate) use self::open_files::size_file_table;
pub use self::reserved::ReservedPorts;
use self::tcp::TcpGate;
pub use self::text::KeyFileError;
pub(crate) use self::text::Rejected;
pub(crate) use self::tls::TlsServer;
pub use self::tls::{GateTlsError, TlsFileError, TlsFileWarning, check_tls_files};
use self::tls::{HandshakeThreads, Protocols};
use crate::caller::Authenticator;
use crate::metrics::Page;
use crate::reload::Reloadable;
use crate::server::Settings;
use crate::tokens::{TokenFile, TokenFileError};
use crate::worker::Worker;

/// The number of connections per worker that wait to be accepted. The kernel has a bound of its own, usually higher.
const BACKLOG: i32 = 1024;

/// The error that a gate cannot listen at its address. It is inside of the [`io::Error`] of a server's start.
#[derive(Debug, Error)]
#[error("the {gate} gate cannot listen on {address}")]
#[non_exhaustive]
pub struct BindError {
    /// The name of the gate: `http`, `admin`, `text`, `throttr`, `resp`, `rls`, or `accounting` and `control` of
    /// Smockron.
    pub gate: &'static str,
    /// The address that was configured.
    pub address: SocketAddr,
    /// The error of the system.
    pub source: io::Error,
}

pub(crate) type GateFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Speaks one protocol at one address. All workers share it.
pub(crate) trait Gate: Send + Sync {
    /// Returns the name that metrics and logs have for this gate.
    fn name(&self) -> &'static str;

    /// Returns the address at which the gate listens; port 0 is any free port.
    fn address(&self) -> SocketAddr;

    /// Returns the transport below the protocol.
    fn transport(&self) -> Protocol {
        Protocol::TCP
    }

    /// Returns the task that serves one worker's socket until the server has drained. It is created again after a
    /// panic, so the state of the worker belongs to the task.
    fn serve(self: Arc<Self>, socket: Socket, worker: Arc<Worker>) -> io::Result<GateFuture>;

    /// Returns the limit of this gate's connections, if it has any.
    fn connection_limit(&self) -> Option<&ConnectionLimit> {
        None
    }

    /// Returns the TLS of this gate, or `None` for plain text.
    fn tls(&self) -> Option<&TlsServer> {
        None
    }

    /// Appends the metrics that are no counters of a worker.
    fn write_metrics(&self, _page: &mut Page) {}
}

/// The gates of a server, and the files that they read again when these change.
#[derive(Default)]
pub(crate) struct Listed {
    pub(crate) gates: Vec<Arc<dyn Gate>>,
    pub(crate) files: Vec<Box<dyn Reloadable>>,
    handshakes: Option<Arc<HandshakeThreads>>,
    tokens: Vec<Arc<TokenFile>>,
}

impl Listed {
    fn add(&mut self, gate: impl Gate + 'static) {
        self.gates.push(Arc::new(gate));
    }

    /// Reads the files of a gate's TLS, if it has any.
    fn tls(
        &mut self,
        gate: &'static str,
        access: &GateAccess,
        protocols: Protocols,
        settings: &Settings,
    ) -> io::Result<Option<Arc<TlsServer>>> {
        let Some(tls) = &access.tls else { return Ok(None) };
        let threads = match &self.handshakes {
            Some(threads) => threads,
            None => self.handshakes.insert(HandshakeThreads::start(settings.workers)?),
        };
        let (server, files) = TlsServer::open(gate, tls, protocols, &settings.bounds, threads)?;
        self.files.push(files);
        Ok(Some(server))
    }

    /// Returns what finds out who the clients of a gate are. A token file that several gates name is read once.
    fn authenticator(&mut self, gate: &'static str, access: &GateAccess) -> io::Result<Authenticator> {
        let tokens = access.tokens.as_deref().map(|path| self.token_file(path)).transpose();
        Ok(Authenticator::new(gate, tokens.map_err(io::Error::other)?))
    }

    fn token_file(&mut self, path: &Path) -> Result<Arc<TokenFile>, TokenFileError> {
        if let Some(opened) = self.tokens.iter().find(|file| file.path() == path) {
            return Ok(Arc::clone(opened));
        }
        let (file, reload) = TokenFile::open(path)?;
        self.tokens.push(Arc::clone(&file));
        self.files.push(Box::new(reload));
        Ok(file)
    }
}

/// Warns of gates that everybody may use, or returns them as an error if none may be open.
pub(crate) fn check_open(settings: &Settings) -> io::Result<()> {
    for open in permitted_open_gates(&settings.gates, settings.require_auth)? {
        warn!("{open}");
    }
    plain_text_gates(&settings.gates).iter().for_each(|plain| warn!("{plain}"));
    Ok(())
}

fn permitted_open_gates(gates: &Gates, require_auth: bool) -> io::Result<Vec<OpenGate>> {
    let open = open_gates(gates);
    if require_auth && !open.is_empty() { Err(io::Error::other(OpenGatesError(open))) } else { Ok(open) }
}

/// Checks who may use the gates as a server does when it starts, and that the files of certificates, tokens and keys
/// can be used. The error is the one that its start would have.
pub(crate) fn check_access(gates: &Gates, require_auth: bool) -> io::Result<()> {
    permitted_open_gates(gates, require_auth)?;
    let (_, errors) = check_access_files(gates);
    errors.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
}

/// Returns the gates that are configured. A new gate is added here.
pub(crate) fn listed(settings: &Settings) -> io::Result<Listed> {
    let Settings { gates, bounds, limiter, .. } = settings;
    let mut listed = Listed::default();
    if let Some(address) = gates.http {
        let limit = ConnectionLimit::new(&gates.http_connections).with_reserve(bounds.reserved);
        // Whoever can reach a gate on loopback is on this machine already.
        let serves_operators = gates.admin.is_none() && address.ip().is_loopback();
        let tls = listed.tls("http", &gates.http_access, &[b"http/1.1"], settings)?;
        let auth = listed.authenticator("http", &gates.http_access)?;
        let protocol =
            http::Http::new(address, &gates.http_settings, serves_operators, auth).with_tls(tls.is_some());
        listed.add(TcpGate::new("http", address, limit, protocol).with_tls(tls));
    }
    if let Some(address) = gates.admin {
        let limit = ConnectionLimit::new(&gates.admin_connections).with_reserve(bounds.reserved);
        let tls = listed.tls("admin", &gates.admin_access, &[b"http/1.1"], settings)?;
        let auth = listed.authenticator("admin", &gates.admin_access)?;
        let protocol = http::Http::admin(&gates.admin_hosts, auth).with_tls(tls.is_some());
        listed.add(TcpGate::new("admin", address, limit, protocol).with_tls(tls));
    }
    if let Some(address) = gates.text {
        let mut gate = text::TextGate::new(address, gates.trusted_networks.clone(), settings.workers);
        if let Some(hmac) = &gates.text_hmac {
            let (max, clock) = (bounds.signed_datagrams, limiter.clock());
            let (signed, key_file) = gate.with_hmac(hmac, max, clock).map_err(io::Error::other)?;
            listed.files.push(key_file);
            gate = signed;
        }
        listed.add(gate);
    }
    if let Some(address) = gates.throttr {
        let limit = ConnectionLimit::new(&gates.throttr_connections);
        let protocol = throttr::Throttr { settings: gates.throttr_settings };
        let tls = listed.tls("throttr", &gates.throttr_access, &[], settings)?;
        listed.add(TcpGate::new("throttr", address, limit, protocol).with_tls(tls));
    }
    if let Some(address) = gates.resp {
        let limit = ConnectionLimit::new(&gates.resp_connections);
        let allow_inline = gates.resp_inline.is_allowed_at(address);
        let tls = listed.tls("resp", &gates.resp_access, &[], settings)?;
        let auth = listed.authenticator("resp", &gates.resp_access)?;
        let protocol = resp::Resp { allow_inline, auth };
        listed.add(TcpGate::new("resp", address, limit, protocol).with_tls(tls));
    }
    #[cfg(feature = "rls")]
    if let Some(address) = gates.rls {
        let tls = listed.tls("rls", &gates.rls_access, &[b"h2"], settings)?;
        let auth = listed.authenticator("rls", &gates.rls_access)?;
        let limit = ConnectionLimit::new(&gates.rls_connections);
        listed.add(rls::RlsGate::new(address, limit, tls, auth));
    }
    if let Some(gate) = &gates.smockron {
        let master = smockron::Master::new(bounds, limiter, gate.statsd.as_deref())?;
        let limit = || ConnectionLimit::new(&gate.connections).with_networks(&gate.trusted_networks);
        let accounting = smockron::Accounting(Arc::clone(&master));
        listed.add(TcpGate::new(smockron::ACCOUNTING, gate.accounting, limit(), accounting));
        if let Some(address) = gate.control() {
            listed.add(TcpGate::new(smockron::CONTROL, address, limit(), smockron::Control(master)));
        }
    }
    Ok(listed)
}

/// Returns a socket for each worker, all bound to one address: the kernel spreads connections and datagrams over them.
pub(crate) fn bind(gate: &dyn Gate, workers: usize, reserved: &mut ReservedPorts) -> io::Result<Vec<Socket>> {
    let (address, transport) = (gate.address(), gate.transport());
    let explain =
        |source: io::Error| io::Error::new(source.kind(), BindError { gate: gate.name(), address, source });
    // Sockets that share a port would also share it with another server. One that does not share finds out.
    let first = match reserved.take(gate.name()) {
        Some(reserved) => reserved,
        None => {
            if address.port() != 0 {
                bind_one(address, transport, false).map_err(explain)?;
            }
            bind_one(address, transport, true).map_err(explain)?
        }
    };
    let bound = first.local_addr()?.as_socket().unwrap_or(address);
    let rest = (1..workers).map(|_| bind_one(bound, transport, true).map_err(explain));
    std::iter::once(Ok(first)).chain(rest).collect()
}

fn bind_one(address: SocketAddr, transport: Protocol, shared: bool) -> io::Result<Socket> {
    let kind = if transport == Protocol::UDP { Type::DGRAM } else { Type::STREAM };
    let socket = Socket::new(Domain::for_address(address), kind, Some(transport))?;
    // A restart can bind the port again at once. For datagrams it would let two servers have one port.
    socket.set_reuse_address(transport == Protocol::TCP)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    if transport == Protocol::TCP {
        socket.listen(BACKLOG)?;
    }
    Ok(socket)
}

//! The gates of a server: each speaks one protocol at one address.
//!
//! [`listed`] is the only place that lists them. A gate over TCP is a [`TcpProtocol`](tcp::TcpProtocol): it creates
//! sessions, which get bytes and give bytes. Accepting, limits, deadlines and draining are the same for all of them
//! ([`tcp`], [`limit`], [`connection`]). A gate with another transport, or one that must own its connections,
//! implements [`Gate`] itself, as [`text`] does.

mod connection;
mod deadline;
mod http;
mod limit;
mod resp;
#[cfg(feature = "rls")]
mod rls;
pub(crate) mod smockron;
mod tcp;
#[cfg(test)]
mod tests;
mod text;
mod throttr;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tracing::warn;

pub(crate) use self::limit::ConnectionLimit;
use self::tcp::TcpGate;
use crate::metrics::Page;
use crate::server::Settings;
use crate::worker::Worker;

/// The number of connections per worker that wait to be accepted. The kernel has a bound of its own, usually higher.
const BACKLOG: i32 = 1024;
/// The number of files that are not connections: listening sockets, what the runtimes wait with, the configuration.
const OTHER_FILES: u64 = 64;

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

    /// Appends the metrics that are no counters of a worker.
    fn write_metrics(&self, _page: &mut Page) {}
}

/// Returns the gates that are configured. A new gate is added here.
pub(crate) fn listed(settings: &Settings) -> io::Result<Vec<Arc<dyn Gate>>> {
    let Settings { gates, bounds, limiter, .. } = settings;
    let mut listed: Vec<Arc<dyn Gate>> = Vec::new();
    if let Some(address) = gates.http {
        let limit = ConnectionLimit::new(&gates.http_connections).with_reserve(bounds.reserved);
        // Whoever can reach a gate on loopback is on this machine already.
        let serves_operators = gates.admin.is_none() && address.ip().is_loopback();
        let protocol = http::Http::new(address, &gates.http_settings, serves_operators);
        listed.push(Arc::new(TcpGate::new("http", address, limit, protocol)));
    }
    if let Some(address) = gates.admin {
        let limit = ConnectionLimit::new(&gates.admin_connections).with_reserve(bounds.reserved);
        listed.push(Arc::new(TcpGate::new("admin", address, limit, http::Http::admin(&gates.admin_hosts))));
    }
    if let Some(address) = gates.text {
        listed.push(Arc::new(text::TextGate::new(address, gates.trusted_networks.clone(), settings.workers)));
    }
    if let Some(address) = gates.throttr {
        let limit = ConnectionLimit::new(&gates.throttr_connections);
        let protocol = throttr::Throttr { settings: gates.throttr_settings };
        listed.push(Arc::new(TcpGate::new("throttr", address, limit, protocol)));
    }
    if let Some(address) = gates.resp {
        let limit = ConnectionLimit::new(&gates.resp_connections);
        let allow_inline = gates.resp_inline.is_allowed_at(address);
        listed.push(Arc::new(TcpGate::new("resp", address, limit, resp::Resp { allow_inline })));
    }
    #[cfg(feature = "rls")]
    if let Some(address) = gates.rls {
        listed.push(Arc::new(rls::RlsGate::new(address, ConnectionLimit::new(&gates.rls_connections))));
    }
    if let Some(gate) = &gates.smockron {
        let master = smockron::Master::new(bounds, limiter, gate.statsd.as_deref())?;
        let limit = ConnectionLimit::new(&gate.connections);
        let accounting = smockron::Accounting(Arc::clone(&master));
        listed.push(Arc::new(TcpGate::new("accounting", gate.accounting, limit, accounting)));
        if let Some(address) = gate.control() {
            let limit = ConnectionLimit::new(&gate.connections);
            listed.push(Arc::new(TcpGate::new("control", address, limit, smockron::Control(master))));
        }
    }
    Ok(listed)
}

/// Returns a socket for each worker, all bound to one address: the kernel spreads connections and datagrams over them.
pub(crate) fn bind(gate: &dyn Gate, workers: usize) -> io::Result<Vec<Socket>> {
    let (address, transport) = (gate.address(), gate.transport());
    let explain =
        |source: io::Error| io::Error::new(source.kind(), BindError { gate: gate.name(), address, source });
    // Sockets that share a port would also share it with another server. One that does not share finds out.
    if address.port() != 0 {
        bind_one(address, transport, false).map_err(explain)?;
    }
    let first = bind_one(address, transport, true).map_err(explain)?;
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

/// Raises the open file limit of the process to what this many connections need, as far as the system allows: many
/// systems give a process 1024 files and let it ask for more. Warns if they do not fit.
pub fn allow_connections(connections: usize) {
    raise_file_limit(connections, connections);
}

/// Raises the open file limit to what `wanted` connections need, and warns if not even the `needed` ones fit.
pub(crate) fn raise_file_limit(wanted: usize, needed: usize) {
    let files = |connections| u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHER_FILES);
    let (wanted, needed) = (files(wanted), files(needed));
    let limits = getrlimit(Resource::Nofile);
    let Some(current) = limits.current.filter(|current| *current < wanted) else { return };
    let current = limits.maximum.map_or(wanted, |maximum| maximum.min(wanted)).max(current);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limits });
    if current < needed {
        warn!(
            files = current,
            needed, "the open file limit is lower than the connection limit; raise it with ulimit -n"
        );
    }
}

//! Sends a line for every request to a StatsD server, many in one datagram.
//!
//! ```text
//! request.status.DELAYED:1|c
//! request.total:1|c
//! request.delayed_by:250|ms
//! ```
//!
//! Nothing waits for it: datagrams that the system has no room for are dropped, and counted.

use std::convert::Infallible;
use std::io;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tollway_core::Nanos;
use tollway_wire::smockron::AccountingStatus;

use crate::metrics::SmockronCounters;

/// The number of bytes that fit in a packet of Ethernet, beside the headers of IPv6 and UDP.
const DATAGRAM_MAX: usize = 1_432;
/// The number of bytes that one request takes at most.
const LINES_MAX: usize = 96;
/// The interval at which a name is resolved again: its host may have moved.
const RESOLVE_EVERY: Duration = Duration::from_secs(60);

/// Sends to a StatsD server.
#[derive(Clone, Debug)]
pub(super) struct Statsd {
    socket: Arc<UdpSocket>,
    /// Ends the thread that resolves the name, when it is dropped with the last clone.
    _resolving: Arc<Sender<Infallible>>,
}

impl Statsd {
    /// Resolves the host, which need not listen yet.
    pub(super) fn find(host: &str) -> io::Result<Self> {
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot resolve statsd host \"{host}\": {error}"))
        };
        Self::connect(host).map_err(explain)
    }

    fn connect(host: &str) -> io::Result<Self> {
        let address = host.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
        let any = match address {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        socket.set_nonblocking(true)?;
        let (socket, (resolving, done)) = (Arc::new(socket), channel());
        if host.parse::<SocketAddr>().is_err() {
            let (host, socket) = (host.to_owned(), Arc::clone(&socket));
            // Resolving a name may take long, and no worker waits for it.
            thread::Builder::new()
                .name("statsd".to_owned())
                .spawn(move || resolve_again(&host, &socket, &done))?;
        }
        Ok(Self { socket, _resolving: Arc::new(resolving) })
    }

    /// Returns lines that are sent when there are many, and when they are dropped.
    pub(super) fn lines<'a>(&'a self, metrics: &'a SmockronCounters) -> Lines<'a> {
        Lines { socket: &self.socket, metrics, datagram: Vec::with_capacity(DATAGRAM_MAX), requests: 0 }
    }
}

/// Resolves the name now and then, until the server stops.
fn resolve_again(host: &str, socket: &UdpSocket, done: &Receiver<Infallible>) {
    while done.recv_timeout(RESOLVE_EVERY) == Err(RecvTimeoutError::Timeout) {
        // A name that cannot be resolved stays where it was.
        if let Ok(found) = host.to_socket_addrs() {
            redirect(socket, found);
        }
    }
}

/// Connects the socket to the first of these addresses, unless it is connected to one of them.
fn redirect(socket: &UdpSocket, found: impl Iterator<Item = SocketAddr>) {
    let Ok(now) = socket.peer_addr() else { return };
    let found: Vec<_> = found.filter(|address| address.is_ipv4() == now.is_ipv4()).collect();
    if let Some(first) = found.first()
        && !found.contains(&now)
        && let Err(error) = socket.connect(first)
    {
        tracing::warn!(%error, "statsd is unreachable at its new address");
    }
}

pub(super) struct Lines<'a> {
    socket: &'a UdpSocket,
    metrics: &'a SmockronCounters,
    datagram: Vec<u8>,
    requests: u64,
}

impl Lines<'_> {
    pub(super) fn request(&mut self, status: AccountingStatus, delayed_by: Option<Nanos>) {
        if self.datagram.len() + LINES_MAX > DATAGRAM_MAX {
            self.send();
        }
        let name = status.name();
        let written = writeln!(self.datagram, "request.status.{name}:1|c\nrequest.total:1|c");
        let delayed = delayed_by.map_or(Ok(()), |delay| {
            let millis = delay.get() / 1_000_000;
            writeln!(self.datagram, "request.delayed_by:{millis}|ms")
        });
        written.and(delayed).expect("writing to memory cannot fail");
        self.requests += 1;
    }

    fn send(&mut self) {
        // The last line needs no end.
        let lines = self.datagram.trim_ascii_end();
        if !lines.is_empty() && self.socket.send(lines).is_err() {
            self.metrics.statsd_lost.add(self.requests);
        }
        self.datagram.clear();
        self.requests = 0;
    }
}

impl Drop for Lines<'_> {
    fn drop(&mut self) {
        self.send();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statsd_that_moved_is_followed() {
        let [here, there] = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let statsd = Statsd::find(&here.local_addr().unwrap().to_string()).unwrap();
        let hears = |socket: &UdpSocket| {
            statsd.socket.send(b"x").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            assert_eq!(socket.recv(&mut [0; 10]).unwrap(), 1);
        };
        hears(&here);
        let [at, then] = [&here, &there].map(|socket| socket.local_addr().unwrap());
        let elsewhere = "[::1]:1".parse().unwrap();
        redirect(&statsd.socket, [elsewhere, then, at].into_iter());
        hears(&here);
        redirect(&statsd.socket, [elsewhere, then].into_iter());
        hears(&there);
        redirect(&statsd.socket, [elsewhere].into_iter());
        hears(&there);
    }
}

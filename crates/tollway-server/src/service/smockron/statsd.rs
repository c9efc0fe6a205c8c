//! Every request, told to a StatsD in datagrams of many lines.
//!
//! ```text
//! request.status.DELAYED:1|c
//! request.total:1|c
//! request.delayed_by:250|ms
//! ```
//!
//! Nothing waits for it: what the system has no room for is dropped, and counted.

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

/// What fits in a packet of Ethernet, with the heads of IPv6 and UDP.
const DATAGRAM_MAX: usize = 1_432;
/// The longest that is said of one request.
const LINES_MAX: usize = 96;
/// How often a name is looked up again: its host may have moved.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Where a StatsD listens.
#[derive(Clone, Debug)]
pub(crate) struct Statsd {
    socket: Arc<UdpSocket>,
    /// Dropped with the last clone, which ends the thread that looks it up.
    _at_work: Arc<Sender<Infallible>>,
}

impl Statsd {
    /// Finds the host, which need not listen yet.
    pub(crate) fn find(host: &str) -> io::Result<Self> {
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
        let (socket, (at_work, done)) = (Arc::new(socket), channel());
        if host.parse::<SocketAddr>().is_err() {
            let (host, socket) = (host.to_owned(), Arc::clone(&socket));
            // Looking up a name may take long, and no worker waits for it.
            thread::Builder::new().name("statsd".to_owned()).spawn(move || follow(&host, &socket, &done))?;
        }
        Ok(Self { socket, _at_work: Arc::new(at_work) })
    }

    /// Lines that are sent when there are many, and when they are dropped.
    pub(super) fn lines<'a>(&'a self, metrics: &'a SmockronCounters) -> Lines<'a> {
        Lines { socket: &self.socket, metrics, datagram: Vec::with_capacity(DATAGRAM_MAX), requests: 0 }
    }
}

/// Until nobody needs it any more.
fn follow(host: &str, socket: &UdpSocket, done: &Receiver<Infallible>) {
    while done.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        // A name that is not found today is where it was yesterday.
        if let Ok(found) = host.to_socket_addrs() {
            turn(socket, found);
        }
    }
}

/// Sends from now on to the first of these that the socket can reach, unless it does so already.
fn turn(socket: &UdpSocket, found: impl Iterator<Item = SocketAddr>) {
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
        turn(&statsd.socket, [elsewhere, then, at].into_iter());
        hears(&here);
        turn(&statsd.socket, [elsewhere, then].into_iter());
        hears(&there);
        turn(&statsd.socket, [elsewhere].into_iter());
        hears(&there);
    }
}

//! Every request, told to a StatsD in datagrams of many lines.
//!
//! ```text
//! request.status.DELAYED:1|c
//! request.total:1|c
//! request.delayed_by:250|ms
//! ```
//!
//! Nothing waits for it: what the system has no room for is dropped, and counted.

use std::io;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;

use tollgate_core::Nanos;
use tollgate_wire::smockron::Status;

use crate::metrics::SmockronCounters;

/// What fits in a packet of Ethernet, with the heads of IPv6 and UDP.
const DATAGRAM_MAX: usize = 1_432;
/// The longest that is said of one request.
const LINES_MAX: usize = 96;

/// Where a StatsD listens.
#[derive(Clone, Debug)]
pub(crate) struct Statsd {
    socket: Arc<UdpSocket>,
}

impl Statsd {
    /// Finds the host, which need not listen yet.
    pub(crate) fn find(host: &str) -> io::Result<Self> {
        let explain =
            |error: io::Error| io::Error::new(error.kind(), format!("no statsd at {host}: {error}"));
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
        Ok(Self { socket: Arc::new(socket) })
    }

    /// Lines that are sent when there are many, and when they are dropped.
    pub(super) fn lines<'a>(&'a self, metrics: &'a SmockronCounters) -> Lines<'a> {
        Lines { socket: &self.socket, metrics, datagram: Vec::with_capacity(DATAGRAM_MAX), requests: 0 }
    }
}

pub(super) struct Lines<'a> {
    socket: &'a UdpSocket,
    metrics: &'a SmockronCounters,
    datagram: Vec<u8>,
    requests: u64,
}

impl Lines<'_> {
    pub(super) fn request(&mut self, status: Status, delayed_by: Option<Nanos>) {
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

//! Sets TCP_NODELAY and keep-alive on every connection.

use std::io;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::bounds::{PROBE_AFTER, PROBE_AGAIN_AFTER, PROBES};

/// Small answers leave at once, and a machine that vanished is noticed.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let probes = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_AGAIN_AFTER);
    SockRef::from(stream).set_tcp_keepalive(&probes.with_retries(PROBES))
}

//! Sets TCP_NODELAY and keep-alive on every connection.

use std::io;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::bounds::{KEEPALIVE_AFTER, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES};

/// Makes small writes leave at once, and makes the system notice a host that vanished.
pub(crate) fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(stream).set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES))
}

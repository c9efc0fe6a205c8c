//! Smockron over ZeroMQ: gatekeepers say what they let through at one address, and hear whom to delay at another.
//!
//! Both are served as one whole, so that no gatekeeper can hold up another: what one says is read when it is there and entered
//! when its turn comes, what one hears goes through a mailbox of its own. ZMTP is spoken by `tollway_wire::zmtp`, which
//! believes no length that a peer announces.

mod accounting;
mod backlog;
mod control;
mod keeper;
mod peer;

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

pub(super) use accounting::account;
pub(super) use backlog::{Backlog, enter_for_ever};
pub(super) use control::control;
pub(super) use keeper::keep;
pub(super) use peer::Ears;

/// When the system asks whether a silent peer is still there, how often, and how many times it may not answer. Gatekeepers that
/// have nothing to say for hours are well; one that is gone gives its place back after two minutes.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);

/// How a conversation ended.
enum End {
    /// Both sides know.
    Closed,
    /// What came was no ZeroMQ that is spoken here.
    Broken,
    /// Half a message, and never the rest; or never what it is.
    HalfAFrame,
    /// The peer does not read.
    Stalled,
}

fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let (idle, interval, count) = KEEPALIVE;
    let probes = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(count);
    SockRef::from(stream).set_tcp_keepalive(&probes)
}

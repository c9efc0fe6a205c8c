//! Asks a server over UDP text: one datagram each way.
//!
//! ```no_run
//! # async fn ask() -> Result<(), tollway_client::ClientError> {
//! use tollway_client::text::Client;
//!
//! let client = Client::new("127.0.0.1:2000")?;
//! if client.over_limit("ws ip=192.0.2.1").await?.over() {
//!     // Reject the request.
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A limiter must not take down what it protects. After [`DEFAULT_TIMEOUT`] without a reply the caller goes on as
//! though the reply were N: [`KeyAnswer::Unanswered`] is not over the limit. `ping` finds out whether a server replies.
//! Every request has an id of its own, so a reply that comes too late, or from elsewhere, is never taken for the reply
//! to another request.

#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod codec;
mod signing;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

pub use client::{Client, IN_FLIGHT_MAX};
pub use tollway_wire::text::{CheckLimit, KeyStats, OverLimit};
#[cfg(feature = "hmac")]
pub use tollway_wire::text::{SigningKey, SigningKeys};

/// The port of an address without one. A server listens there by default.
pub const DEFAULT_PORT: u16 = 2000;

/// The time that a reply may take unless `with_timeout` sets another.
///
/// The protocol specifies it, and it is shorter than that of the other clients: a datagram that is lost is not sent
/// again, so to wait longer seldom helps.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(100);

/// The answer that a server gives to one use of a key, or of the keys of a `check_limit`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum KeyAnswer {
    /// The server replied.
    Answered(OverLimit),
    /// No reply came in time. Callers go on as though the key were under its limit.
    Unanswered,
}

impl KeyAnswer {
    /// Returns true if the server replied that the key is over its limit.
    pub const fn over(&self) -> bool {
        matches!(self, Self::Answered(OverLimit { over: true, .. }))
    }

    /// Returns the reply of the server, if there was one.
    pub const fn answered(&self) -> Option<OverLimit> {
        match self {
            Self::Answered(over_limit) => Some(*over_limit),
            Self::Unanswered => None,
        }
    }
}

/// Returns the local address to bind a socket to that is to be connected to `server`.
const fn local_address_for(server: SocketAddr) -> SocketAddr {
    match server {
        SocketAddr::V4(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        SocketAddr::V6(_) => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
    }
}

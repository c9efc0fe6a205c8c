//! Over Throttr: binary requests on one TCP connection, as many at a time as there are.
//!
//! ```no_run
//! # async fn ask() -> Result<(), tollway_client::throttr::CallError> {
//! use std::time::Duration;
//! use tollway_client::throttr::{Attribute, Change, Client};
//!
//! let client = Client::new("127.0.0.1:9000");
//! client.insert("alice", "/downloads", 100, Duration::from_secs(3600)).await?;
//! client.update("alice", "/downloads", Attribute::Quota, Change::Decrease, 1).await?;
//! if let Some(quota) = client.query("alice", "/downloads").await? {
//!     println!("{} left for {:?}", quota.left, quota.ttl());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Without a runtime, the same by [`blocking::Client`].
//!
//! Replies come in the order of the requests and carry no hint of what they answer, so a connection that has lost its
//! place is of no use to anybody: after a reply that does not fit, it is closed, and the next call opens another. No
//! request is ever sent twice, since nobody can tell whether the first was carried out.

pub mod blocking;
mod call;
mod client;
mod connection;

pub use call::{Attribute, CallError, Misunderstanding, Quota, Request};
pub use client::Client;
pub use tollway_core::algorithm::{Change, QuotaTtl, TtlUnit};
pub use tollway_wire::throttr::{ThrottrCommand, ThrottrReply};

use std::time::Duration;

/// How long a call may take unless told otherwise, connecting included.
pub const TIMEOUT: Duration = Duration::from_secs(1);

/// The longest that a call can be told to wait, so that every deadline is an instant within reach.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How many requests may wait for their replies at a time on one connection. Enough to fill any pipe, and few enough that
/// their replies fit into a socket's buffer.
pub const IN_FLIGHT_MAX: usize = 1024;

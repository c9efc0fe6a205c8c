//! Asks a server over Throttr: binary requests on one TCP connection, many at a time.
//!
//! ```no_run
//! # async fn ask() -> Result<(), tollway_client::ClientError> {
//! use std::time::Duration;
//! use tollway_client::throttr::{Change, Client, QuotaAttribute};
//!
//! let client = Client::new("127.0.0.1:9000")?;
//! let inserted = client.insert("alice", "/downloads", 100, Duration::from_secs(3600)).await?;
//! assert!(inserted.is_done(), "alice has no quota yet");
//! let taken = client.update("alice", "/downloads", QuotaAttribute::Quota, Change::Decrease, 1).await?;
//! assert!(taken.is_done(), "the quota has not expired");
//! if let Some(quota) = client.query("alice", "/downloads").await? {
//!     println!("{} left for {:?}", quota.left, quota.ttl());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Replies come in the order of the requests and do not name the command that they answer. After a reply that does not
//! fit, nothing on that connection can be trusted: it is closed, and the next call opens another. No request is sent
//! twice, because one without a reply may have been carried out.

#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod connection;
mod request;

use std::time::Duration;

pub use client::Client;
pub use request::{QuotaInfo, QuotaRequest, QuotaStatus};
pub use tollway_core::algorithm::{Change, QuotaTtl, TtlUnit};
pub use tollway_wire::throttr::{QuotaAttribute, ThrottrCommand, ThrottrReply};

/// The port of an address without one. A server listens there by default.
pub const DEFAULT_PORT: u16 = 9000;

/// The time that a call may take, connecting included, unless `with_timeout` sets another.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of requests that may wait for their replies on one connection.
///
/// It is enough to keep a connection busy, and so few that their replies fit into the buffer of a socket.
pub const IN_FLIGHT_MAX: usize = 1024;

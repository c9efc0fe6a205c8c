//! Asks a server over HTTP.
//!
//! ```no_run
//! # async fn ask() -> Result<(), tollway_client::ClientError> {
//! use tollway_client::http::{ChargeRequest, Client, RuleRequest};
//!
//! let client = Client::new("127.0.0.1:8080")?;
//! let decision = client.spend("Login", "alice", 1).await?;
//! if decision.allowed() {
//!     println!("{} left", decision.remaining);
//! }
//!
//! // Several charges are one bill: all of them are taken, or none.
//! let charges = [ChargeRequest::new("Login", "alice", 1), ChargeRequest::new("Address", "192.0.2.1", 1)];
//! let decision = client.spend_all(&charges).await?;
//! println!("decided by {}", charges[decision.charge].limit);
//!
//! // A rule is asked by its name, with a value for each of its selectors.
//! let may_upload = client.rule("upload", &[("user", "vova")]).await?.allowed();
//!
//! // A bill can have rules as well: everything is taken and counted, or nothing.
//! let rules = [RuleRequest::new("upload").with_selector("user", "vova")];
//! let may_upload = client.spend_bill(&charges, &rules).await?.allowed();
//! # Ok(())
//! # }
//! ```
//!
//! Connections are kept and reused; each carries one request at a time. No request is sent twice: one without a
//! response may have been carried out, and a spend must not be paid twice.

#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod endpoint;
#[cfg(feature = "blocking")]
mod event_stream;
mod raw_response;
mod response_reader;
mod stream;

use std::time::Duration;

pub use client::Client;
#[cfg(feature = "blocking")]
pub use event_stream::EventStream;
pub use raw_response::RawResponse;
pub use tollway_core::{ChargeRequest, Decision, Refund, RuleDecision, RuleRequest};
pub use tollway_wire::http::{
    BucketReport, BucketsPage, DECISIONS_EVENT, ExportQuery, GateState, HttpRuleRequest, ImportCounts,
    ImportQuery, InspectQuery, KeysPage, KeysQuery, LastDenial, LimitHistory, LimitState, LiveCounts,
    LiveEvent, LiveHistory, LiveLatency, LiveSnapshot, RecordQuery, RecordedIds, RecordingProgress,
    RecordingStart, ResponseError, Rfc3339, RuleExplanation, RulePart, RulePartKind, RuleResponse,
    ServerResponse, ServerSentEvent, ServerState, StateSummary, StoreNode, StoreState, SubjectKind, TopEntry,
};

/// The port of an address without one. A server listens there by default.
pub const DEFAULT_PORT: u16 = 8080;

/// The port at which the admin gate of a server listens by default: `Client::new("127.0.0.1:8082")`.
///
/// It answers `inspect`, `keys`, `export_buckets`, `import_buckets`, `explain`, `refund` and `reset`. A server without
/// an admin gate that listens on loopback answers these at its HTTP gate.
pub const ADMIN_PORT: u16 = 8082;

/// The time that a call may take, connecting included, unless `with_timeout` sets another.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of calls of one async client that may be in flight, each on its own connection. More calls wait for their
/// turn, within their timeout.
pub const CONNECTIONS_MAX: usize = crate::idle::IDLE_MAX;

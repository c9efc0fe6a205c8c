//! Clients that ask a Tollway server over HTTP, text or Throttr, and the gatekeeper, which decides by itself.
//!
//! | module | protocol | feature | what it asks |
//! |---|---|---|---|
//! | `http` | JSON over HTTP | `http` (default) | every limit and rule of the policy; refunds, several charges at once |
//! | `text` | lines of text in UDP datagrams | `text` | keys; a client waits 0.1 s, then lets the request pass |
//! | `throttr` | binary frames over TCP | `throttr` | quotas that callers make; many requests in one write |
//! | `gatekeeper` | Smockron over ZeroMQ | `gatekeeper` | nothing: it delays and rejects by what a master last published |
//!
//! Each of the first three has a `Client` for programs on tokio and, with feature `blocking`, a `blocking::Client` with
//! the same methods for programs without a runtime.
#![cfg_attr(
    all(feature = "http", feature = "blocking"),
    doc = r#"
```no_run
use tollway_client::http::blocking::Client;

let client = Client::new("127.0.0.1:8080");
let decision = client.spend("Login", "alice", 1)?;
if !decision.allowed() {
    println!("denied, retry after {:?}", decision.retry_after());
}
# Ok::<(), tollway_client::ClientError>(())
```
"#
)]
//! Every call ends: it has a timeout, and the number of pending calls is bounded. No request is sent twice, because a
//! request without a response may have been carried out.
#![forbid(unsafe_code)]

#[cfg(all(feature = "blocking", any(feature = "http", feature = "throttr")))]
mod blocking_tcp;
mod error;
#[cfg(feature = "gatekeeper")]
pub mod gatekeeper;
#[cfg(feature = "http")]
pub mod http;
#[cfg(any(feature = "http", all(feature = "blocking", any(feature = "text", feature = "throttr"))))]
mod idle;
#[cfg(feature = "text")]
pub mod text;
#[cfg(feature = "throttr")]
pub mod throttr;

use std::time::Duration;

pub use error::{ClientError, InvalidRequest, InvalidResponse, InvalidThrottrReply};
pub use tollway_core as core;
pub use tollway_wire as wire;

/// The time that a call may take, connecting included, unless `with_timeout` sets another.
///
/// The text client alone has a default of its own, `text::TEXT_TIMEOUT` of 0.1 s: its protocol specifies it.
pub const TIMEOUT: Duration = Duration::from_secs(1);

/// The longest timeout; longer ones are cut to this. Now plus the timeout must be an instant that exists.
#[cfg(any(feature = "http", feature = "text", feature = "throttr"))]
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Compiles the Rust examples of the pages.
#[cfg(all(
    doctest,
    feature = "blocking",
    feature = "gatekeeper",
    feature = "http",
    feature = "text",
    feature = "throttr"
))]
mod pages {
    #[doc = include_str!("../../../docs/gatekeeper.md")]
    struct Gatekeeper;
    #[doc = include_str!("../../../docs/http.md")]
    struct Http;
    #[doc = include_str!("../../../docs/text.md")]
    struct Text;
    #[doc = include_str!("../../../docs/throttr.md")]
    struct Throttr;
}

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
//! the same methods for programs without a runtime. All clients are alike:
//!
//! - `Client::new(address)` creates a client, and `Client::with_timeout(address, timeout)` one with another timeout.
//!   They fail if the address is not valid. Nothing is opened before the first call (a gatekeeper connects at once, in
//!   the background).
//! - An address is a host and a port, such as `127.0.0.1:8080`. Without a port it is `DEFAULT_PORT` of the module, at
//!   which a server listens by default. `address()` returns it with the port.
//! - A call takes at most `DEFAULT_TIMEOUT` of the module: 1 s, and 0.1 s for the text client.
//! - An id, a key, a consumer or a resource is any `impl AsRef<[u8]>`.
#![cfg_attr(
    all(feature = "http", feature = "blocking"),
    doc = r#"
```no_run
use tollway_client::http::blocking::Client;

let client = Client::new("127.0.0.1:8080")?;
let decision = client.spend("Login", "alice", 1)?;
if !decision.allowed() {
    println!("denied, retry after {:?}", decision.retry_after());
}
# Ok::<(), tollway_client::ClientError>(())
```
"#
)]
//!
//! Every call ends: it has a timeout, and the number of pending calls is bounded. No request is sent twice, because a
//! request without a response may have been carried out.
#![forbid(unsafe_code)]

#[cfg(any(feature = "gatekeeper", feature = "http", feature = "text", feature = "throttr"))]
mod address;
#[cfg(all(feature = "blocking", any(feature = "http", feature = "throttr")))]
mod blocking_tcp;
#[cfg(any(feature = "http", feature = "throttr"))]
mod connect;
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
#[cfg(feature = "tls")]
pub mod tls;

#[cfg(any(feature = "http", feature = "text", feature = "throttr"))]
use std::time::Duration;

pub use error::{
    ClientError, InvalidAddress, InvalidRequest, InvalidResponse, InvalidThrottrReply, InvalidToken,
};
pub use tollway_core as core;
pub use tollway_wire as wire;

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

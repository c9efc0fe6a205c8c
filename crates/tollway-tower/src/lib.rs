//! A tower layer that limits requests, by a limiter in the process, a server or a gatekeeper.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollway::Limiter;
//! use tollway_tower::{AdmissionLayer, LocalLimit};
//!
//! let limiter = Limiter::from_yaml("limits: { PerClient: { burst: 20, count: 10, period: 1s } }")?;
//! let layer = AdmissionLayer::new(LocalLimit::new(limiter, "PerClient")?).exempt_path("/healthz");
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! For each request the layer identifies the client ([`Identify`]) and decides whether it may pass ([`Admit`]). Then it
//! forwards the request, delays it or rejects it. A request that passes at once costs less than a microsecond and no
//! allocation.
//!
//! # Features
//! | feature | adds |
//! |---|---|
//! | `local` (default) | `LocalLimit` and `LocalRule`, over a limiter in this process |
//! | `remote` | `RemoteLimit`, over a server |
//! | `gatekeeper` | [`Admit`] for the gatekeeper of `tollway-client` |
//! | `redis` | `local` with limiters whose store is Redis |
//! | `axum`, `tonic` | the default identification finds the address that this server adds to a request |
//!
//! Without features the crate has the layer, [`Identify`], [`Admit`] and [`Delayed`], for sources of your own.
#![forbid(unsafe_code)]

pub mod admit;
mod delayed;
mod exempt_paths;
mod identify;
mod layer;
mod log_info;
#[cfg(any(feature = "local", feature = "remote"))]
mod rate_limit_headers;
mod rejection;
mod request_counts;
mod response_body;
mod response_future;
mod service;

#[cfg(any(feature = "local", feature = "remote"))]
pub use admit::OnFailure;
#[cfg(feature = "remote")]
pub use admit::RemoteLimit;
pub use admit::{Admit, AdmitFuture, AdmitOutcome, AdmitReply};
#[cfg(feature = "local")]
pub use admit::{LocalLimit, LocalRule};
pub use delayed::{DEFAULT_MAX_DELAYED, Delayed};
pub use identify::{
    ByAddress, ByHeader, ByHeaderOrAddress, ClientId, Identify, Network, ParseNetworkError, RequestHead,
    Unidentified,
};
#[doc(hidden)]
pub use layer::LOG_PAUSE;
pub use layer::{AdmissionLayer, DecisionEvent, OnUnidentified};
pub use log_info::{LogInfo, user_agent};
#[doc(hidden)]
pub use rejection::{Rejection, grpc_content_type};
pub use request_counts::RequestCounts;
pub use response_body::ResponseBody;
pub use response_future::ResponseFuture;
pub use service::AdmissionService;
#[cfg(any(feature = "remote", feature = "gatekeeper"))]
pub use tollway_client as client;
#[doc(hidden)]
pub use tollway_core::LogThrottle;

/// Compiles and runs the examples of the page about middleware.
#[cfg(all(doctest, feature = "local"))]
#[doc = include_str!("../../../docs/middleware.md")]
struct MiddlewarePage;

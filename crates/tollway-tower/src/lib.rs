//! A tower layer that limits: over a limiter in process, a server or a gatekeeper.
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
//! The layer finds out whose request it is ([`Identify`]), asks whether it may pass ([`Admit`]), and passes it on, delays it or
//! answers it itself. What passes at once costs less than a microsecond, and no allocation.
#![forbid(unsafe_code)]

pub mod admit;
mod delayed;
mod exempt_paths;
mod identify;
mod layer;
mod log_info;
mod rejection;
mod request_counts;
mod response_body;
mod response_future;
mod service;

pub use admit::{
    Admit, AdmitFuture, AdmitOutcome, AdmitReply, LocalLimit, LocalRule, OnFailure, RemoteLimit,
};
pub use delayed::{DEFAULT_MAX_DELAYED, Delayed};
pub use identify::{ByAddress, ByHeader, ClientId, Identify, Network, ParseNetworkError, RequestHead};
pub use layer::{AdmissionLayer, DecisionEvent, OnUnidentified};
pub use log_info::{LogInfo, user_agent};
pub use request_counts::RequestCounts;
pub use response_body::ResponseBody;
pub use response_future::ResponseFuture;
pub use service::AdmissionService;
pub use tollway_client as client;

/// Compiles and runs the examples of the page about middleware.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/middleware.md")]
struct MiddlewarePage;

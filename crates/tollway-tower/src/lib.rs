//! A tower layer that limits: over a limiter in process, a server or a gatekeeper.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollway::Limiter;
//! use tollway_tower::{AdmissionLayer, LocalLimit};
//!
//! let limiter = Limiter::from_yaml("limits: { PerClient: { burst: 20, count: 10, period: 1s } }")?;
//! let layer = AdmissionLayer::new(LocalLimit::new(limiter, "PerClient")?).skip("/healthz");
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The layer finds out whose request it is ([`Identify`]), asks whether it may pass ([`Admit`]), and passes it on, delays it or
//! answers it itself. What passes at once costs less than a microsecond, and no allocation.
#![forbid(unsafe_code)]

pub mod admit;
mod body;
mod counts;
mod delayed;
mod future;
mod identify;
mod layer;
mod log_info;
mod rejection;
mod service;
mod skip;

pub use admit::{Admission, Admit, Answer, Asked, LocalLimit, LocalRule, OnFailure, RemoteLimit};
pub use body::ResponseBody;
pub use counts::Counts;
pub use delayed::{Delayed, MAX_DELAYED};
pub use future::ResponseFuture;
pub use identify::{ByAddress, ByHeader, Head, Identifier, Identify, Network, ParseNetworkError};
pub use layer::{AdmissionLayer, Decided, Unidentified};
pub use log_info::{LogInfo, user_agent};
pub use service::AdmissionService;
pub use tollway_client as client;

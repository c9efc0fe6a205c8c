//! An HTTP reverse proxy that limits the requests to a service: the library of `tollway guard`.
//!
//! ```no_run
//! use tollway::Limiter;
//! use tollway_guard::{Guard, GuardSettings};
//! use tollway_tower::LocalLimit;
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::from_yaml("limits: { PerClient: { burst: 20, count: 10, period: 1s } }")?;
//! let limit = LocalLimit::new(limiter, "PerClient")?;
//! let settings = GuardSettings::new("127.0.0.1:8000".parse()?, "http://127.0.0.1:3000".parse()?);
//! let guard = Guard::bind(settings, limit)?;
//! println!("listening on {}", guard.address()?);
//! guard.serve(std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! `tollway-tower` identifies clients, decides and rejects. This crate connects: it accepts clients, checks that their
//! requests are unambiguous, and forwards them to the upstream over kept connections. Nobody can hold a connection
//! without making progress.
#![forbid(unsafe_code)]

mod body;
mod bounds;
mod connection;
mod guard;
mod headers;
mod metrics;
mod permits;
mod pool;
mod proxy;
mod request_check;
mod settings;
mod socket;
mod stall_timer;
mod stream_tasks;
mod timed_stream;
mod tls;
mod upstream;
mod worker;

pub use guard::{Guard, GuardError};
pub use settings::GuardSettings;
pub use tls::TlsError;
pub use upstream::{ParseUpstreamError, Upstream};

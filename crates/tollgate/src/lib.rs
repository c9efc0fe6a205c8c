//! REMEMBER: a rate limiter to embed.
//!
//! ```
//! use tollgate::Limiter;
//!
//! let limiter = Limiter::from_yaml("limits: { Login: { burst: 5, count: 5, period: 1m } }")?;
//! for attempt in 1..=6 {
//!     assert_eq!(limiter.spend("Login", "alice", 1)?.allowed(), attempt <= 5);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Limiter`] is a policy, a store and a clock, shared between threads by reference. In memory it spawns nothing and does
//! no I/O. With `store: redis://…` in its configuration the buckets are a fleet's: one thread talks to Redis, and
//! whoever asks sleeps until the answer is there, or awaits it.

pub mod clock;
pub mod config;
mod hash;
pub mod keys;
pub mod limiter;
pub mod patterns;
mod prefetch;
mod quote;
pub mod rate_limit;
pub mod store;
pub mod trace;
pub mod waiting;

pub use clock::Clock;
pub use config::Config;
pub use limiter::{Handle, Limiter};
pub use tollgate_core as core;

//! REMEMBER: a rate limiter to embed.
//!
//! ```
//! use tollgate::core::algorithm::{Algorithm, TokenBucketLimit};
//! use tollgate::{Limiter, core::{Limit, Policy}};
//!
//! let five_a_minute = Algorithm::TokenBucket(TokenBucketLimit::new(5, 5, "1m".parse()?)?);
//! let limiter = Limiter::new(Policy::new(vec![Limit::new("Login")?.with_default(five_a_minute)])?);
//! assert!(limiter.spend("Login", "alice", 1)?.allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Limiter`] is a policy, a store and a clock. It is synchronous and shared between threads by reference; it
//! spawns nothing and does no I/O.

pub mod clock;
pub mod limiter;
pub mod store;
pub mod trace;

pub use clock::Clock;
pub use limiter::Limiter;
pub use tollgate_core as core;

//! The part of Tollway that decides if one more request may pass.
//!
//! ```
//! use std::time::Duration;
//! use tollway_core::Timestamp;
//! use tollway_core::algorithm::{Bucket, TokenBucketState, TokenBucket};
//!
//! let limit = TokenBucket::new(3, 1, Duration::from_millis(100))?;
//! let mut bucket = TokenBucketState::default();
//! let now = Timestamp::EPOCH;
//! assert_eq!(bucket.charge(&limit, 3, now).remaining, 0);
//! assert_eq!(bucket.charge(&limit, 1, now).retry_after(), Some(Duration::from_millis(100)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Everything here is a value or a pure function. Nothing reads a clock, touches a socket, a file or a lock, or awaits:
//! time is an argument, so every behaviour can be replayed.
#![forbid(unsafe_code)]

pub mod algorithm;
pub mod backoff;
pub mod bill;
pub mod charge;
mod circuit_breaker;
pub mod decision;
pub mod descriptor;
pub mod domain;
pub mod error_chain;
mod former_buckets;
pub mod id;
pub mod inline_limit;
pub mod keys;
pub mod limit;
pub mod local_share;
mod log_throttle;
pub mod nearest;
pub mod network;
pub mod policy;
pub mod rate_spec;
pub mod rule;
pub mod time;
pub mod verb;

pub use algorithm::{Algorithm, IntoAlgorithm};
pub use backoff::Backoff;
pub use bill::{Bill, BillError, CHARGES_MAX, Expression, RULES_MAX};
pub use charge::{Charge, ChargeError, ChargeKind, ChargeRequest};
pub use circuit_breaker::CircuitBreaker;
pub use decision::{Decider, Decision, Refund, Verdict};
pub use domain::{Domain, DomainError, DomainRule, Logic};
pub use error_chain::ErrorChain;
pub use former_buckets::FormerBuckets;
pub use id::{IdError, IdFormat, Ipv6Prefix};
pub use inline_limit::{InlineAlgorithm, InlineLimit, InlineTokenBucket};
pub use keys::{FoundKey, KeyLimit, KeyMatcher, KeyPatterns, KeyRule, Keys};
pub use limit::{AfterCrash, FormerNumbers, Limit, LimitError, LostBuckets, OnFull, OnStoreFailure};
pub use local_share::{LocalShare, LocalShareError};
pub use log_throttle::LogThrottle;
pub use network::{Network, ParseNetworkError};
pub use policy::{Policy, PolicyError};
pub use rate_spec::{Burst, RateSpec, RateSpecError};
pub use rule::{
    KeyedRule, NamedRule, Rule, RuleBill, RuleDecision, RuleError, RuleLimit, RuleLookupError, RuleRef,
    RuleRequest,
};
pub use time::{Nanos, ParseNanosError, Timestamp};
pub use verb::Verb;

//! A rate limiter that is embedded in a program.
//!
//! ```
//! use tollway::{Limiter, TokenBucket};
//!
//! let limiter = Limiter::builder().limit("login", TokenBucket::per_minute(5)).build()?;
//! for attempt in 1..=6 {
//!     assert_eq!(limiter.spend("login", "alice", 1)?.allowed(), attempt <= 5);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Limiter`] keeps its buckets in memory: it starts no thread, does no I/O and never waits. [`AsyncLimiter`] has the
//! same calls to await, over memory or over a Redis that a fleet shares; [`AsyncLimiter::blocking`] is for threads that
//! may sleep. [`RateLimit`] puts rules on functions and blocks of code.
//!
//! # Features
//! | feature | default | adds |
//! |---|---|---|
//! | `yaml` | yes | limits from a YAML file, rules for keys ([`config`], [`keys`], [`patterns`]) |
//! | `macros` | yes | [`#[tollway::limit]`](macro@limit) on functions |
//! | `journal` | no | buckets in memory that are kept on a disk |
//! | `redis` | no | buckets in Redis or Valkey, shared by a fleet |

mod block_on;
mod cause;
pub mod clock;
#[cfg(feature = "yaml")]
pub mod config;
pub mod engine;
#[cfg(feature = "journal")]
pub mod export;
mod hash;
#[cfg(feature = "journal")]
pub mod journal;
#[cfg(feature = "yaml")]
pub mod keys;
pub mod limiter;
#[cfg(feature = "yaml")]
pub mod patterns;
mod prefetch;
#[cfg(any(feature = "yaml", feature = "redis"))]
mod quote;
pub mod rate_limit;
pub mod rates;
pub mod reports;
pub mod store;
pub mod trace;

pub use block_on::block_on;
pub use cause::Cause;
pub use clock::Clock;
#[cfg(feature = "yaml")]
pub use config::Config;
pub use limiter::{
    AsyncHandle, AsyncLimiter, BlockingHandle, BlockingLimiter, Handle, Limiter, LimiterBuilder,
    UntilReadyError,
};
// For the sketches of the server, so that `unsafe` stays in one module. Applications have no use for it.
#[doc(hidden)]
pub use prefetch::prefetch;
pub use rate_limit::RateLimit;
pub use tollway_core as core;
pub use tollway_core::algorithm::{
    FixedWindow, IntoAlgorithm, Quota, SlidingLog, SlidingWindow, SmoothedRate, TokenBucket,
};
pub use tollway_core::{ChargeError, ChargeRequest, Decision, Policy, Refund, Verdict};
/// Runs a function only when its rule allows.
///
/// ```
/// use tollway::rate_limit::RateLimitExceeded;
///
/// #[tollway::limit("user:10/5m", user = user_id)]
/// fn upload(user_id: u64, file: &[u8]) -> Result<usize, RateLimitExceeded> {
///     Ok(file.len())
/// }
///
/// for attempt in 1..=11 {
///     assert_eq!(upload(7, b"cat.png").is_ok(), attempt <= 10);
/// }
/// assert!(upload(8, b"dog.png").is_ok()); // Somebody else.
/// ```
///
/// The attribute goes on functions and methods, sync and async, that return a `Result`. A call that is denied returns
/// at once, with the function's error, which is made of a [`RateLimitExceeded`](rate_limit::RateLimitExceeded) by
/// `From`.
///
/// | argument | says |
/// |---|---|
/// | `"user:10/5m"` | the rule, which is read when the function is compiled; it comes first |
/// | `user = EXPRESSION` | what the selector's value is: any [`Selector`](rate_limit::Selector), out of the arguments or `self`. `user` alone is `user = user` |
/// | `key = "cats"` | what it is counted under, together with all that have this key. Otherwise it is the name of the function |
/// | `with = EXPRESSION` | whose rules these are: what gives a `&RateLimit`. Otherwise they are the [global](rate_limit::set_global) ones |
/// | `on_full = OnFull::Allow` | what is answered when there is no room to count somebody new. To deny is the default |
/// | `on_store_failure = OnStoreFailure::Deny` | what is answered when the store gives no answer. To allow is the default |
///
/// A selector is evaluated before the function's first line and does not move the values that it names. It may fail,
/// and then returns from the function: `user = user_of(token)?`. A selector that is `None` or empty has no value, and
/// its rates are not counted.
///
/// The key of a method is its own name without that of its type, so two methods `get` in one namespace share their
/// counts: give one of them a `key`. In memory, a call that is allowed on one rate allocates nothing, unless the value
/// of its selector is long.
///
/// # Shared keys
/// The rule of a key is given once: by the first of its functions, or before any is called, by
/// [`RuleGuard::define`](rate_limit::RuleGuard::define). The other functions name only the key. The function that is
/// called first is known only at run time, and so are the selectors; therefore the error of a function with a `key`
/// must be made of a [`RateLimitError`](rate_limit::RateLimitError), which has a denial as one of its three variants.
///
/// ```
/// use tollway::rate_limit::{RateLimitError, global};
///
/// #[tollway::limit(key = "cats", owner)]
/// async fn feed(owner: &str) -> Result<(), RateLimitError> {
///     Ok(())
/// }
///
/// struct Cat {
///     owner: String,
/// }
///
/// impl Cat {
///     #[tollway::limit(key = "cats", owner = self.owner)]
///     async fn stroke(&self) -> Result<(), RateLimitError> {
///         Ok(())
///     }
/// }
///
/// # tollway::block_on(async {
/// global().limit("owner:1/s")?.key("cats").define()?;
/// feed("vova").await?;
/// assert!(Cat { owner: "vova".to_owned() }.stroke().await.is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// # Mistakes
/// A rule that is none does not compile, nor does a selector that the rule does not name, or one that is missing:
///
/// ```compile_fail
/// #[tollway::limit("10/fortnight")]
/// fn upload() -> Result<(), tollway::rate_limit::RateLimitExceeded> { Ok(()) }
/// ```
///
/// Nor does a function whose error cannot be made of a denial:
///
/// ```compile_fail,E0277
/// #[tollway::limit("10/s")]
/// fn upload() -> Result<(), std::num::ParseIntError> { Ok(()) }
/// ```
#[cfg(feature = "macros")]
pub use tollway_macros::limit;

/// Compiles and runs the Rust examples in the README and in the page about the library.
#[cfg(all(doctest, feature = "macros", feature = "yaml"))]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/library.md")]
    struct Library;
}

//! Inline limits: the numbers come with the request, not from the policy.
//!
//! ```
//! use std::time::Duration;
//! use tollway_core::algorithm::TokenBucket;
//! use tollway_core::{InlineLimit, InlineNumbers};
//!
//! let limit = InlineLimit::new("throttle")?;
//! let numbers = InlineNumbers::new(TokenBucket::new(16, 30, Duration::from_secs(60))?);
//! let charge = limit.charge(&numbers, b"alice", 1)?;
//! assert_eq!(charge.limit().bucket_key(charge.id()).to_string(), "inline/throttle:alice");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A bucket is found by the limit and the id alone, and what it holds is read under whatever numbers the request
//! brings. So the numbers of an id may change from one request to the next. A gate makes its inline limit once, and a
//! charge of it allocates nothing.

use std::borrow::Cow;

use crate::algorithm::{Algorithm, TokenBucket};
use crate::charge::{Charge, ChargeError};
use crate::limit::{Limit, LimitError};

/// A limit that is in no policy: each request brings the numbers.
#[derive(Clone, Debug)]
pub struct InlineLimit(Limit);

/// The inline limit of requests that name none: its buckets are those of the keys of `CL.THROTTLE`.
impl Default for InlineLimit {
    fn default() -> Self {
        Self::new(Self::NAME).expect("the name is one of a limit")
    }
}

impl InlineLimit {
    /// The name of the inline limit that requests without a name use.
    pub const NAME: &str = "throttle";

    /// Makes an inline limit. Its buckets are those of `inline/NAME`, which no limit of a policy shares.
    pub fn new(name: &str) -> Result<Self, LimitError> {
        Limit::inline(name).map(Self)
    }

    /// Returns the limit as stores and counters know it.
    pub const fn limit(&self) -> &Limit {
        &self.0
    }

    /// Makes a charge of `cost` to the bucket of `id`, which may be any bytes and may be empty. A cost that could never
    /// pass is an error.
    #[inline]
    pub fn charge<'a>(
        &'a self,
        numbers: &'a InlineNumbers,
        id: &'a [u8],
        cost: u64,
    ) -> Result<Charge<'a>, ChargeError> {
        Charge::checked(&self.0, Cow::Borrowed(id), Some(&numbers.0), cost)
    }

    /// Makes a charge that is only given back. Its cost may be above what the numbers hold, because the bucket may owe
    /// more, from requests with larger numbers.
    pub fn refund<'a>(&'a self, numbers: &'a InlineNumbers, id: &'a [u8], cost: u64) -> Charge<'a> {
        Charge::unchecked(&self.0, Cow::Borrowed(id), Some(&numbers.0), cost)
    }
}

/// An algorithm with the numbers that one request brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InlineNumbers(Algorithm);

impl InlineNumbers {
    /// Makes the numbers of a request.
    pub fn new(algorithm: impl Into<Algorithm>) -> Self {
        Self(match algorithm.into() {
            Algorithm::TokenBucket(limit) => Algorithm::TokenBucket(limit.inline()),
            // The buckets of the other algorithms are found by the limit and the id in any case.
            other => other,
        })
    }

    /// Returns the algorithm with its numbers.
    pub const fn algorithm(&self) -> &Algorithm {
        &self.0
    }
}

/// The numbers of a token bucket that one request brought.
#[derive(Clone, Debug, PartialEq)]
pub struct InlineTokenBucket {
    limit: TokenBucket,
    numbers: InlineNumbers,
}

/// A token bucket has no numbers that differ from themselves.
impl Eq for InlineTokenBucket {}

impl InlineTokenBucket {
    /// Makes the numbers of a request.
    pub fn new(limit: TokenBucket) -> Self {
        Self { limit, numbers: InlineNumbers::new(limit) }
    }

    /// Returns the token bucket as the request brought it.
    pub const fn limit(&self) -> &TokenBucket {
        &self.limit
    }

    /// Returns the numbers, as a charge takes them.
    pub const fn numbers(&self) -> &InlineNumbers {
        &self.numbers
    }
}

//! Inline limits: the numbers come with the request, not from the policy.
//!
//! ```
//! use std::time::Duration;
//! use tollway_core::algorithm::TokenBucket;
//! use tollway_core::{InlineAlgorithm, InlineLimit};
//!
//! let limit = InlineLimit::default();
//! let algorithm = InlineAlgorithm::new(TokenBucket::new(16, 30, Duration::from_secs(60))?);
//! let charge = limit.charge(&algorithm, b"alice", 1)?;
//! assert_eq!(charge.limit().bucket_key(charge.id()).to_string(), "inline/throttle:alice");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A bucket is found by the limit and the id alone, and what it holds is read under whatever numbers the request
//! brings. So the numbers of an id may change from one request to the next. A gate makes its inline limit once, and a
//! charge of it allocates nothing.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use crate::algorithm::{Algorithm, TokenBucket};
use crate::charge::{Charge, ChargeError};
use crate::limit::{Limit, LimitError};

/// A limit that is in no policy: it has a name, and each request brings the algorithm and the numbers.
#[derive(Clone, Debug)]
pub struct InlineLimit(Limit);

/// The inline limit that has the name [`InlineLimit::NAME`].
impl Default for InlineLimit {
    fn default() -> Self {
        Self(Limit::inline(Self::NAME))
    }
}

impl InlineLimit {
    /// The name of the inline limit of HTTP and RESP: its buckets are those of the keys of `CL.THROTTLE`.
    pub const NAME: &str = "inline/throttle";

    /// Makes the inline limit `inline/NAME`. No limit of a policy has a slash in its name, so the two never share a
    /// bucket.
    pub fn new(name: &str) -> Result<Self, LimitError> {
        let name = format!("inline/{}", Limit::new(name)?.name());
        Ok(Self(Limit::inline(&name)))
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
        algorithm: &'a InlineAlgorithm,
        id: &'a [u8],
        cost: u64,
    ) -> Result<Charge<'a>, ChargeError> {
        Charge::checked(&self.0, Cow::Borrowed(id), Some(&algorithm.0), cost)
    }

    /// Makes a charge that is only given back. Its cost may be above what the numbers hold, because the bucket may owe
    /// more, from requests with larger numbers.
    pub fn refund<'a>(&'a self, algorithm: &'a InlineAlgorithm, id: &'a [u8], cost: u64) -> Charge<'a> {
        Charge::unchecked(&self.0, Cow::Borrowed(id), Some(&algorithm.0), cost)
    }

    /// Makes a charge of nothing that finds the token bucket of `id`, to look at it or to forget it. It has some
    /// numbers, because every charge has; only the time until the bucket is full does not depend on them.
    pub fn bucket<'a>(&'a self, id: &'a [u8]) -> Charge<'a> {
        static ANY: LazyLock<InlineAlgorithm> = LazyLock::new(|| {
            InlineAlgorithm::new(TokenBucket::new(1, 1, Duration::from_secs(1)).expect("1/s is a limit"))
        });
        self.refund(&ANY, id, 0)
    }
}

/// An algorithm with its numbers, which one request brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InlineAlgorithm(Algorithm);

impl InlineAlgorithm {
    /// Makes the algorithm of a request.
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

/// An inline algorithm that is a token bucket, as HTTP and RESP take no other.
// The token bucket is not kept a second time beside the algorithm: batches of requests are moved, and every byte
// counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InlineTokenBucket(InlineAlgorithm);

/// A token bucket has no numbers that differ from themselves.
impl Eq for InlineTokenBucket {}

impl InlineTokenBucket {
    /// Makes the token bucket of a request.
    pub fn new(token_bucket: TokenBucket) -> Self {
        Self(InlineAlgorithm::new(token_bucket))
    }

    /// Returns the token bucket with the numbers of the request.
    #[inline]
    pub fn token_bucket(&self) -> &TokenBucket {
        match &self.0.0 {
            Algorithm::TokenBucket(token_bucket) => token_bucket,
            _ => unreachable!("it is made from a token bucket"),
        }
    }

    /// Returns the algorithm, as a charge takes it.
    pub const fn algorithm(&self) -> &InlineAlgorithm {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inline_limit_is_in_no_policy_and_takes_any_id() {
        let limit = InlineLimit::new("mine").unwrap();
        assert_eq!((limit.limit().name(), limit.limit().is_inline()), ("inline/mine", true));
        assert!(InlineLimit::new("a/b").is_err());
        let numbers = InlineTokenBucket::new(TokenBucket::new(3, 1, Duration::from_secs(1)).unwrap());
        assert_eq!((numbers.token_bucket().burst(), numbers.token_bucket().is_inline()), (3, true));
        let charge = limit.charge(numbers.algorithm(), b"", 3).unwrap();
        assert_eq!((charge.id(), charge.cost()), (&b""[..], 3));
        assert!(limit.charge(numbers.algorithm(), b"", 4).is_err());
        assert_eq!(limit.refund(numbers.algorithm(), b"", 4).cost(), 4);
    }
}

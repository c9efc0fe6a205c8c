//! A charge: one bucket, and the cost that a request takes from it.

mod request;

use std::borrow::Cow;

use thiserror::Error;

use crate::algorithm::{Algorithm, TokenBucketState};
use crate::id::IdError;
use crate::limit::Limit;
use crate::nearest::did_you_mean;

pub use request::ChargeRequest;

/// The cost that one request would take from one bucket. [`Policy::charge`](crate::Policy::charge) makes it, so it is
/// valid.
#[derive(Clone, Debug)]
pub struct Charge<'a> {
    limit: &'a Limit,
    id: Cow<'a, [u8]>,
    algorithm: Option<&'a Algorithm>,
    cost: u64,
    kind: ChargeKind,
}

/// The part that a charge has in its bill.
// A whole word: a single byte beside seven of padding is moved in pieces, which stalls the processor on every charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum ChargeKind {
    /// The charge takes its cost, and it can deny the bill.
    #[default]
    Spend,
    /// The charge takes its whole cost if that fits and nothing if it does not, and it never affects the answer.
    SpendOnly,
    /// The charge can deny the bill, and it never takes anything.
    CheckOnly,
}

impl ChargeKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Spend, Self::SpendOnly, Self::CheckOnly];

    /// Returns the word for it that requests and traces use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spend => "spend",
            Self::SpendOnly => "spend_only",
            Self::CheckOnly => "check_only",
        }
    }
}

/// An error for a charge that cannot be made. None of these is a denial: the request itself is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChargeError {
    /// No limit has this name.
    #[error("limit \"{name}\" does not exist{}", did_you_mean(.nearest.as_deref()))]
    UnknownLimit {
        /// The name that was requested.
        name: String,
        /// The name of the limit that was probably meant.
        nearest: Option<String>,
        /// The names of all limits, if none of them is similar and they are few. The text of the error, which traces
        /// compare, leaves them out.
        existing: Vec<String>,
    },
    /// The inline limit, without the numbers that a request has to bring.
    #[error("limit \"{limit}\" has no numbers of its own; send them with the request")]
    NoNumbers {
        /// The name of the inline limit.
        limit: String,
    },
    /// Not an id of this limit.
    #[error("limit \"{limit}\" rejects the id")]
    Id {
        /// The name of the limit.
        limit: String,
        /// The problem that the id has.
        source: IdError,
    },
    /// More than a bucket never used could give: no waiting would help.
    #[error("limit \"{limit}\": cost {cost} is too high; one request can take at most {cost_max}")]
    CostTooHigh {
        /// The name of the limit.
        limit: String,
        /// The cost that was requested.
        cost: u64,
        /// The highest cost that can be requested.
        cost_max: u64,
    },
    /// A smoothed rate cannot be given back to.
    #[error("limit \"{limit}\": {algorithm} does not support refunds")]
    NoRefund {
        /// The name of the limit.
        limit: String,
        /// The name of its algorithm.
        algorithm: &'static str,
    },
}

impl<'a> Charge<'a> {
    /// Makes a charge against `limit`. Rejects ids and costs that could never pass.
    ///
    /// The usual limit, for ids that are any bytes and without overrides, is inlined into the caller: a charge that a
    /// call returns is copied once more, and the processor waits for what it has just written.
    #[inline]
    pub fn new(limit: &'a Limit, id: &'a [u8], cost: u64) -> Result<Self, ChargeError> {
        match limit.same_for_all_ids() {
            Some(algorithm) if !id.is_empty() && cost <= algorithm.cost_max() => {
                Ok(Self::unchecked(limit, Cow::Borrowed(id), Some(algorithm), cost))
            }
            _ => Self::respelled(limit, id, cost),
        }
    }

    /// Makes a charge with the canonical spelling of the id, under the numbers that apply to it.
    #[inline(never)]
    fn respelled(limit: &'a Limit, id: &'a [u8], cost: u64) -> Result<Self, ChargeError> {
        let id = limit
            .ids()
            .canonical(id)
            .map_err(|source| ChargeError::Id { limit: limit.name().to_owned(), source })?;
        let algorithm = limit.algorithm_for(&id);
        Self::checked(limit, id, algorithm, cost)
    }

    /// Makes a charge whose cost could pass.
    #[inline]
    pub(crate) fn checked(
        limit: &'a Limit,
        id: Cow<'a, [u8]>,
        algorithm: Option<&'a Algorithm>,
        cost: u64,
    ) -> Result<Self, ChargeError> {
        if let Some(algorithm) = algorithm
            && cost > algorithm.cost_max()
        {
            let (limit, cost_max) = (limit.name().to_owned(), algorithm.cost_max());
            return Err(ChargeError::CostTooHigh { limit, cost, cost_max });
        }
        Ok(Self::unchecked(limit, id, algorithm, cost))
    }

    /// Makes a charge of any cost.
    #[inline]
    pub(crate) const fn unchecked(
        limit: &'a Limit,
        id: Cow<'a, [u8]>,
        algorithm: Option<&'a Algorithm>,
        cost: u64,
    ) -> Self {
        Self { limit, id, algorithm, cost, kind: ChargeKind::Spend }
    }

    /// Returns the same charge with another part in its bill.
    pub fn with_kind(mut self, kind: ChargeKind) -> Self {
        self.kind = kind;
        self
    }

    /// Returns the same charge with other numbers: a share of its limit, or no limit.
    pub fn held_to<'b>(&'b self, algorithm: Option<&'b Algorithm>) -> Charge<'b> {
        Charge { limit: self.limit, id: Cow::Borrowed(&self.id), algorithm, cost: self.cost, kind: self.kind }
    }

    /// Returns the charge as a refund gives it back, or an error if its algorithm has no refunds. A check-only charge
    /// took nothing, so it gives back nothing.
    pub fn refundable(self) -> Result<Self, ChargeError> {
        match self.algorithm {
            _ if self.kind == ChargeKind::CheckOnly => Ok(Self { cost: 0, ..self }),
            Some(algorithm) if !algorithm.refunds() => {
                let (limit, algorithm) = (self.limit.name().to_owned(), algorithm.name());
                Err(ChargeError::NoRefund { limit, algorithm })
            }
            _ => Ok(self),
        }
    }

    /// Returns the limit that it is made under.
    pub const fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// Returns the id in its canonical spelling.
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// Returns the algorithm that applies to this id; `None` means no limit.
    pub const fn algorithm(&self) -> Option<&'a Algorithm> {
        self.algorithm
    }

    /// Returns the units that it would take.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the part that it has in its bill.
    pub const fn kind(&self) -> ChargeKind {
        self.kind
    }

    /// Returns the number that its bucket is found by, together with the id: that of the limit and, for a token bucket,
    /// of the emission interval that the bucket is written under.
    #[inline]
    pub const fn bucket_fingerprint(&self) -> u64 {
        let interval = match self.algorithm {
            Some(Algorithm::TokenBucket(limit)) => limit.interval_fingerprint(),
            _ => 0,
        };
        self.limit.bucket_base() ^ interval
    }

    /// Returns the token bucket that its id has left from former numbers of the limit, converted to those that hold
    /// now. `take` removes and returns the bucket that has this fingerprint, if there is one.
    pub fn take_former(
        &self,
        mut take: impl FnMut(u64) -> Option<TokenBucketState>,
    ) -> Option<TokenBucketState> {
        let Some(Algorithm::TokenBucket(now)) = self.algorithm else { return None };
        let former = self.limit.former_token_buckets(&self.id);
        let (index, mut bucket) =
            former.iter().enumerate().rev().find_map(|(index, (_, fingerprint, _))| {
                let elsewhere = *fingerprint != self.bucket_fingerprint();
                let bucket = elsewhere.then(|| take(*fingerprint)).flatten()?;
                Some((index, bucket))
            })?;
        let later = former[index + 1..].iter().map(|(limit, ..)| *limit).chain([now]);
        for ((limit, _, until), next) in former[index..].iter().zip(later) {
            bucket = bucket.converted(limit.emission_interval(), next, *until);
        }
        Some(bucket)
    }

    /// Returns true if this charge uses the same bucket as `other`.
    pub fn same_bucket(&self, other: &Self) -> bool {
        self.limit.fingerprint() == other.limit.fingerprint() && self.id == other.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_the_word_that_requests_use() {
        assert_eq!(ChargeKind::ALL.map(ChargeKind::name), ["spend", "spend_only", "check_only"]);
    }

    #[test]
    fn what_took_nothing_gives_nothing_back() {
        let limit = Limit::new("A").unwrap();
        let given_back =
            |kind| Charge::new(&limit, b"a", 3).unwrap().with_kind(kind).refundable().unwrap().cost();
        assert_eq!(ChargeKind::ALL.map(given_back), [3, 3, 0]);
    }
}

//! The state of one bucket, or of one rule, as `inspect` and `inspect_rule` return it.

use tollway_core::{Algorithm, Charge, Decision, Timestamp};

use crate::store::{BucketReading, BucketState};

/// One bucket, its limit and what a request would be answered.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[must_use]
pub struct Inspection {
    /// The readable key of the bucket, `NewOrdersPerAccount:12345678`.
    pub bucket: String,
    /// The algorithm and numbers that apply to the id; `None` if the id is unlimited, or if the limit is the inline
    /// limit, whose numbers come with each request.
    pub algorithm: Option<Algorithm>,
    /// The state of the bucket; `None` if the store holds none.
    pub state: Option<BucketState>,
    /// The decision that a request of cost 0 would get. Under the inline limit, only its `reset_after` has a meaning.
    pub decision: Decision,
    /// The decision that a request of cost 1 would get. Under the inline limit, it has no meaning.
    pub next: Decision,
    /// The time of this snapshot, by the clock of the store.
    pub at: Timestamp,
}

impl Inspection {
    pub(super) fn new(charge: &Charge<'_>, reading: BucketReading) -> Self {
        let bucket = charge.limit().bucket_key(charge.id()).to_string();
        let BucketReading { state, decision, next, at } = reading;
        let algorithm = charge.algorithm().filter(|_| !charge.limit().is_inline()).copied();
        Self { bucket, algorithm, state, decision, next, at }
    }
}

/// A snapshot that shows the state of a rule's rates.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct RuleInspection {
    /// The time of this snapshot, by the clock of the store.
    pub at: Timestamp,
    /// The moments until which each rate of the rule is reached, in their order. A moment in the past means that the
    /// rate is not reached; `u64::MAX` nanoseconds means that it stays reached for ever.
    pub reached_until: Vec<Timestamp>,
}

//! The four ways to decide, each a small memory and its transitions.
//!
//! | algorithm | remembers | good for |
//! |---|---|---|
//! | [`TokenBucketState`] | one instant | almost everything |
//! | [`SlidingLogState`] | the newest N timestamps | "no more than N in any span", to the letter |
//! | [`SmoothedRateState`] | one instant and one rate | showing the caller its rate |
//! | [`QuotaState`] | a counter and an expiry | so many, then wait for the window to end |
//!
//! A bucket that was never used is the type's default, so a store may forget a bucket whenever
//! [`Bucket::expires_at`] has passed and nobody can tell.

mod quota;
mod sliding_log;
mod smoothed_rate;
mod spec;
mod token_bucket;

use thiserror::Error;

pub use quota::{Change, Quota, QuotaCommand, QuotaOperation, QuotaOutcome, QuotaState, QuotaTtl, TtlUnit};
pub use sliding_log::{LOG_MAX, LogSummary, SlidingLog, SlidingLogState};
pub use smoothed_rate::{FORGET_AFTER_PERIODS, RateReading, SmoothedRate, SmoothedRateState};
pub use spec::{IntoAlgorithm, QuotaSpec, SlidingLogSpec, SmoothedRateSpec, TokenBucketSpec};
pub use token_bucket::{TokenBucket, TokenBucketState};

use crate::decision::{Decision, Refund};
use crate::time::{Nanos, Timestamp};

/// What one limit remembers about one id, and how it moves.
pub trait Bucket: Clone + Default {
    /// The numbers this kind of bucket is held to.
    type Limit;

    /// The decision [`charge`](Self::charge) would make, remembering nothing.
    fn check(&self, limit: &Self::Limit, cost: u64, now: Timestamp) -> Decision;

    /// Takes `cost` if it fits. A refused bucket gives exactly the answers it gave before.
    fn charge(&mut self, limit: &Self::Limit, cost: u64, now: Timestamp) -> Decision;

    /// Takes `cost`, or as much of it as fits.
    fn take(&mut self, limit: &Self::Limit, cost: u64, now: Timestamp);

    /// Gives back `cost`, or `None` where giving back has no meaning.
    fn refund(&mut self, limit: &Self::Limit, cost: u64, now: Timestamp) -> Option<Refund>;

    /// The moment from which this bucket is no different from one never used.
    fn expires_at(&self) -> Timestamp;

    /// Does it take more memory the more it remembers?
    const GROWS: bool = false;

    /// How many entries it has, of a bucket that grows.
    fn entries(&self) -> usize {
        0
    }

    /// For how many entries it has taken memory.
    fn room(&self) -> usize {
        0
    }
}

/// An algorithm and its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    /// So many at once, then one per interval.
    TokenBucket(TokenBucket),
    /// So many in any span.
    SlidingLog(SlidingLog),
    /// A decaying average rate below a limit.
    SmoothedRate(SmoothedRate),
    /// So many until the window that the first one opened ends.
    Quota(Quota),
}

impl Algorithm {
    /// The most one request may cost: what a bucket never used could give.
    pub fn cost_max(&self) -> u64 {
        match self {
            Self::TokenBucket(limit) => limit.burst(),
            Self::SlidingLog(limit) => limit.count(),
            Self::SmoothedRate(limit) => limit.cost_max(),
            Self::Quota(limit) => limit.count(),
        }
    }

    /// The span within which it grants its units again.
    pub const fn window(&self) -> Nanos {
        match self {
            Self::TokenBucket(limit) => limit.fill_time(),
            Self::SlidingLog(limit) => limit.period(),
            Self::SmoothedRate(limit) => limit.period(),
            Self::Quota(limit) => limit.period(),
        }
    }

    /// The name used in configuration.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TokenBucket(_) => "token_bucket",
            Self::SlidingLog(_) => "sliding_log",
            Self::SmoothedRate(_) => "smoothed_rate",
            Self::Quota(_) => "quota",
        }
    }

    /// Has giving back a meaning here?
    pub const fn refunds(&self) -> bool {
        !matches!(self, Self::SmoothedRate(_))
    }
}

/// Passes numbers of which none is zero, and a period that can be waited for.
fn sensible(numbers: &[(&'static str, u64)], period: Nanos) -> Result<(), NumbersError> {
    let zero = |(_, number): &&(&'static str, u64)| *number == 0;
    if let Some((field, _)) = numbers.iter().chain([&("period", period.get())]).find(zero) {
        return Err(NumbersError::Zero { field });
    }
    if period > Nanos::MAX { Err(NumbersError::PeriodTooLong) } else { Ok(()) }
}

/// Why numbers make no limit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NumbersError {
    /// A burst, count or period of zero, which nothing could ever pass.
    #[error("{field} must be above zero")]
    Zero {
        /// Which number.
        field: &'static str,
    },
    /// More per period than one per nanosecond.
    #[error("count must be at most one per nanosecond of the period, {count_max} here")]
    TooFast {
        /// The highest count this period takes.
        count_max: u64,
    },
    /// The bucket would take more than 292 years to fill.
    #[error("burst must be at most {burst_max} here, so that the bucket fills within 292 years")]
    TooSlow {
        /// The highest burst this count and period take.
        burst_max: u64,
    },
    /// More entries than a log keeps.
    #[error("count must be at most {LOG_MAX} for a sliding log; a token bucket takes any")]
    LogTooLong,
    /// A rate that is not a number within reason.
    #[error("limit must be a number above zero and at most 2^53")]
    Rate,
    /// A span beyond [`Nanos::MAX`](crate::Nanos::MAX).
    #[error("period must be at most 292 years")]
    PeriodTooLong,
}

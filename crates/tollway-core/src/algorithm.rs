//! The six algorithms that decide. Each has numbers, a small state, and functions that change the state.
//!
//! | algorithm | remembers | good for |
//! |---|---|---|
//! | [`TokenBucketState`] | one instant | almost everything |
//! | [`SlidingLogState`] | the newest N timestamps | "no more than N in any span", to the letter |
//! | [`SmoothedRateState`] | one instant and one rate | showing the caller its rate |
//! | [`QuotaState`] | a counter and an expiry | so many, then wait for the window to end |
//! | [`FixedWindowState`] | a window and a counter | so many in every minute of the clock |
//! | [`SlidingWindowState`] | a window and two counters | so many in the last minute, by an estimate |
//!
//! A bucket that was never used is the type's default, so a store may forget a bucket whenever
//! [`Bucket::expires_at`] has passed and nobody can tell.

mod fixed_window;
mod moved;
mod quota;
mod sliding_log;
mod sliding_window;
mod smoothed_rate;
mod spec;
mod token_bucket;

use thiserror::Error;

pub use fixed_window::{FixedWindow, FixedWindowState};
pub use moved::{ClockDifference, MovedState};
pub use quota::{Change, Quota, QuotaCommand, QuotaOperation, QuotaOutcome, QuotaState, QuotaTtl, TtlUnit};
pub use sliding_log::{LOG_MAX, LogSummary, SlidingLog, SlidingLogState};
pub use sliding_window::{SlidingWindow, SlidingWindowState, WINDOW_COUNT_MAX};
pub use smoothed_rate::{RateReading, SmoothedRate, SmoothedRateState};
pub use spec::{
    FixedWindowSpec, IntoAlgorithm, QuotaSpec, SlidingLogSpec, SlidingWindowSpec, SmoothedRateSpec,
    TokenBucketSpec,
};
pub use token_bucket::{TokenBucket, TokenBucketState};

use crate::decision::{Decision, Refund};
use crate::time::{Nanos, Timestamp};

/// The state that one limit keeps for one id, and its transitions.
pub trait Bucket: Clone + Default {
    /// The numbers that this kind of bucket takes.
    type Limit;

    /// Returns the decision that [`charge`](Self::charge) would make, and stores nothing.
    fn check(&self, limit: &Self::Limit, cost: u64, now: Timestamp) -> Decision;

    /// Takes `cost` if it fits. A bucket that denies gives exactly the answers it gave before.
    fn charge(&mut self, limit: &Self::Limit, cost: u64, now: Timestamp) -> Decision;

    /// Gives back `cost`, or `None` where giving back has no meaning.
    fn refund(&mut self, limit: &Self::Limit, cost: u64, now: Timestamp) -> Option<Refund>;

    /// Returns the moment from which this bucket is like one that was never used.
    fn expires_at(&self) -> Timestamp;

    /// True if the bucket takes more memory the more it stores.
    const GROWS: bool = false;

    /// Returns the number of entries in a bucket that grows.
    fn entries(&self) -> usize {
        0
    }

    /// Returns the number of entries that it has memory for.
    fn room(&self) -> usize {
        0
    }

    /// Returns the number of entries that a bucket that grows would have after [`charge`](Self::charge).
    fn entries_after(&self, _limit: &Self::Limit, _cost: u64, _now: Timestamp) -> usize {
        0
    }

    /// Drops the entries that no decision looks at any more. Every answer stays the same.
    fn trim(&mut self, _now: Timestamp) {}
}

/// One of the six algorithms with the numbers that it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    /// Allows a burst at once, then one unit per interval.
    TokenBucket(TokenBucket),
    /// Allows a count in any span of a period.
    SlidingLog(SlidingLog),
    /// Keeps a decaying average rate below a limit.
    SmoothedRate(SmoothedRate),
    /// Allows a count until the window ends that the first request opened.
    Quota(Quota),
    /// Allows a count in each window of the clock.
    FixedWindow(FixedWindow),
    /// Allows a count in the last period, by an estimate from two windows of the clock.
    SlidingWindow(SlidingWindow),
}

impl Algorithm {
    /// Returns the most that one request may cost: what an unused bucket could give.
    #[inline]
    pub fn cost_max(&self) -> u64 {
        match self {
            Self::TokenBucket(limit) => limit.burst(),
            Self::SlidingLog(limit) => limit.count(),
            Self::SmoothedRate(limit) => limit.cost_max(),
            Self::Quota(limit) => limit.count(),
            Self::FixedWindow(limit) => limit.count(),
            Self::SlidingWindow(limit) => limit.count(),
        }
    }

    /// Returns the span in which all units come back.
    pub const fn window(&self) -> Nanos {
        match self {
            Self::TokenBucket(limit) => limit.fill_time(),
            Self::SlidingLog(limit) => limit.period(),
            Self::SmoothedRate(limit) => limit.period(),
            Self::Quota(limit) => limit.period(),
            Self::FixedWindow(limit) => limit.period(),
            Self::SlidingWindow(limit) => limit.period(),
        }
    }

    /// Returns the name that configuration uses.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TokenBucket(_) => "token_bucket",
            Self::SlidingLog(_) => "sliding_log",
            Self::SmoothedRate(_) => "smoothed_rate",
            Self::Quota(_) => "quota",
            Self::FixedWindow(_) => "fixed_window",
            Self::SlidingWindow(_) => "sliding_window",
        }
    }

    /// Returns the time until one more unit is left than `decision` says. Where the decision does not tell, it is the
    /// longest that this can take: until the same request is allowed again, or until the bucket is unused.
    pub fn more_after(&self, decision: &Decision) -> Nanos {
        match self {
            Self::TokenBucket(limit) => limit.more_after(decision),
            _ if decision.retry_nanos > Nanos::ZERO => decision.retry_nanos.min(decision.reset_nanos),
            _ => decision.reset_nanos,
        }
    }

    /// Returns true if charges can be refunded.
    pub const fn refunds(&self) -> bool {
        !matches!(self, Self::SmoothedRate(_))
    }
}

/// Checks that no number is zero, and that the period is at most 292 years.
fn sensible(numbers: &[(&'static str, u64)], period: Nanos) -> Result<(), NumbersError> {
    let zero = |(_, number): &&(&'static str, u64)| *number == 0;
    if let Some((field, _)) = numbers.iter().chain([&("period", period.get())]).find(zero) {
        return Err(NumbersError::Zero { field });
    }
    if period > Nanos::MAX { Err(NumbersError::PeriodTooLong { max: "292 years" }) } else { Ok(()) }
}

/// An error for numbers that make no limit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NumbersError {
    /// A burst, count or period of zero, which nothing could ever pass.
    #[error("{field} must be above zero")]
    Zero {
        /// The name of the number that is zero.
        field: &'static str,
    },
    /// More per period than one per nanosecond.
    #[error("count must be at most {count_max} for this period, which is one per nanosecond")]
    TooFast {
        /// The highest count this period takes.
        count_max: u64,
    },
    /// The bucket would take more than 292 years to fill.
    #[error(
        "burst must be at most {burst_max} for this count and period, so that the bucket fills within 292 years"
    )]
    TooSlow {
        /// The highest burst this count and period take.
        burst_max: u64,
    },
    /// More entries than a log keeps.
    #[error("count must be at most {LOG_MAX} for a sliding log; use a token bucket for more")]
    LogTooLong,
    /// More requests than a sliding window counts.
    #[error("count must be at most {WINDOW_COUNT_MAX} for a sliding window; use a token bucket for more")]
    WindowTooLarge,
    /// An offset beyond [`Nanos::MAX`](crate::Nanos::MAX).
    #[error("offset must be at most 292 years")]
    OffsetTooLong,
    /// A rate that is not a number within reason.
    #[error("limit must be a number above zero and at most 2^53")]
    Rate,
    /// A span beyond [`Nanos::MAX`](crate::Nanos::MAX).
    #[error("period must be at most {max}")]
    PeriodTooLong {
        /// The longest period that the algorithm takes, such as `292 years`.
        max: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::decision::Verdict;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn only_logs_grow() {
        let (numbers, now) = (TokenBucket::new(5, 5, MINUTE).unwrap(), Timestamp::from_nanos(7));
        let mut bucket = TokenBucketState::default();
        assert!(bucket.charge(&numbers, 3, now).allowed());
        assert_eq!((bucket.entries(), bucket.room(), bucket.entries_after(&numbers, 1, now)), (0, 0, 0));
        let (numbers, mut log) = (SlidingLog::new(5, MINUTE).unwrap(), SlidingLogState::default());
        assert!(log.charge(&numbers, 3, now).allowed());
        assert_eq!((log.entries(), log.entries_after(&numbers, 1, now)), (3, 4));
        assert!(log.room() >= 3);
    }

    #[test]
    fn more_is_left_when_the_same_request_is_allowed_again_at_the_latest() {
        let decision =
            |retry, reset| Decision::new(Verdict::Deny, 0, Nanos::from_secs(retry), Nanos::from_secs(reset));
        for algorithm in [
            Algorithm::SlidingLog(SlidingLog::new(5, MINUTE).unwrap()),
            Algorithm::Quota(Quota::new(5, MINUTE).unwrap()),
        ] {
            assert_eq!(algorithm.more_after(&decision(3, 10)), Nanos::from_secs(3));
            assert_eq!(algorithm.more_after(&decision(20, 10)), Nanos::from_secs(10));
            assert_eq!(algorithm.more_after(&decision(0, 10)), Nanos::from_secs(10), "it fits again at once");
        }
    }

    #[test]
    fn a_counter_tells_what_was_used_or_what_is_left() {
        let (numbers, now) = (FixedWindow::new(5, MINUTE, Duration::ZERO).unwrap(), Timestamp::from_nanos(7));
        let mut window = FixedWindowState::default();
        assert!(window.charge(&numbers, 3, now).allowed());
        assert_eq!(window.used(), 3);
        let numbers = Quota::new(5, MINUTE).unwrap();
        let mut used = QuotaState::default();
        assert!(used.charge(&numbers, 3, now).allowed());
        assert_eq!(used.counter(), 3);
        assert_eq!(QuotaState::until(now, 9, used.unit()).counter(), 9);
    }

    #[test]
    fn a_state_is_kept_as_it_was() {
        let (ends_at, later, kept) =
            (Timestamp::from_nanos(1_000), Timestamp::from_nanos(9_000), Nanos::new(64));
        let window = SlidingWindowState::until(ends_at, 3, 7, kept);
        assert_eq!(SlidingWindowState::from_words(window.to_words()), window);
        assert_eq!((window.ends_at(), window.kept_after_end()), (ends_at, kept));
        assert_eq!((window.current(), window.previous()), (3, 7));
        let window = SlidingWindowState::until(ends_at, u64::MAX, u64::MAX, kept);
        assert_eq!((window.current(), window.previous()), (WINDOW_COUNT_MAX, WINDOW_COUNT_MAX));
        assert_eq!(window.kept_after_end(), kept, "no counter runs over into it");
        let rate = SmoothedRateState::measured(ends_at, 2.5, later);
        assert_eq!((rate.last(), rate.expires_at()), ((ends_at, 2.5), later));
        let window = FixedWindowState::until(ends_at, 3);
        assert_eq!((window.ends_at(), window.used()), (ends_at, 3));
    }

    #[test]
    fn a_bucket_is_kept_for_as_long_as_it_can_change_an_answer() {
        let sliding = |nanos| SlidingWindow::new(5, Duration::from_nanos(nanos)).unwrap().kept_after_end();
        assert_eq!([1, 64, 65].map(sliding), [1, 64, 128].map(Nanos::new), "the next power of two");
        let rate = SmoothedRate::new(5.0, MINUTE, false).unwrap();
        let (low, high) = (rate.forget_after(999_999.9), rate.forget_after(1e6));
        assert_eq!(high.get(), 40 * low.get(), "a million or more takes longer to fade to nothing");
    }
}

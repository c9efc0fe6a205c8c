//! The token bucket, remembered as one instant: the theoretical arrival time (TAT), when it is full again.
//!
//! ```text
//! burst 3, one per 100ms          now            full_at
//!                     ────────────┼────────────────┼──────────>
//!                                 └ 200ms owed: 1 of 3 left
//! ```
//!
//! Tokens are never counted: what is owed is a span of time, and it is paid by time passing.

use std::time::Duration;

use crate::algorithm::{Bucket, NumbersError, sensible};
use crate::decision::{Decision, Refund, Verdict};
use crate::time::{Nanos, Timestamp};

/// A bucket of `burst` tokens that gains `count` every `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    burst: u64,
    count: u64,
    period: Nanos,
    emission_interval: Nanos,
    fill_time: Nanos,
    /// The longest time until a bucket is full that is believed. It is the fill time, unless the numbers are inline.
    owed_max: Nanos,
    /// The number that stands for the emission interval in the hash of a bucket; 0 if the numbers are inline.
    fingerprint: u64,
}

impl TokenBucket {
    /// Rejects what could never work or would not fit: zeros, more than one per nanosecond, centuries to fill.
    pub fn new(burst: u64, count: u64, period: Duration) -> Result<Self, NumbersError> {
        let period = Nanos::from(period);
        sensible(&[("burst", burst), ("count", count)], period)?;
        let interval = period.get() / count;
        if interval == 0 {
            return Err(NumbersError::TooFast { count_max: period.get() });
        }
        let burst_max = Nanos::MAX.get() / interval;
        if burst > burst_max {
            return Err(NumbersError::TooSlow { burst_max });
        }
        let (emission_interval, fill_time) = (Nanos::new(interval), Nanos::new(interval * burst));
        let fingerprint = interval.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(Self { burst, count, period, emission_interval, fill_time, owed_max: fill_time, fingerprint })
    }

    /// Returns the same numbers for one request that brings them: its bucket is found whatever numbers it was written
    /// under, and is read as it is, even if it owes more than these numbers hold.
    pub(crate) const fn inline(self) -> Self {
        Self { owed_max: Nanos::FOREVER, fingerprint: 0, ..self }
    }

    /// Returns true if the numbers came with a request, so that a bucket is not tied to its emission interval.
    pub const fn is_inline(&self) -> bool {
        self.owed_max.is_forever()
    }

    /// Returns the number of tokens that a full bucket holds.
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// Returns the number of tokens that come back in a period.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the time in which `count` tokens come back.
    pub const fn period(&self) -> Nanos {
        self.period
    }

    /// Returns the time in which one token comes back.
    pub const fn emission_interval(&self) -> Nanos {
        self.emission_interval
    }

    /// Returns the time that an empty bucket takes to fill (the "burst offset" of the seed).
    pub const fn fill_time(&self) -> Nanos {
        self.fill_time
    }

    /// Returns a number that stands for the emission interval. A bucket is found by it, so that no bucket is read as
    /// though it had been written under another interval. For inline numbers it is 0.
    #[inline]
    pub(crate) const fn interval_fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the time that a burst takes at the exact rate, where the fill time is rounded to whole intervals.
    pub(crate) fn burst_span(&self) -> Nanos {
        let exact = u128::from(self.burst) * u128::from(self.period.get()) / u128::from(self.count);
        Nanos::new(u64::try_from(exact).unwrap_or(u64::MAX))
    }

    /// Returns when the next request is allowed after a burst from `oldest` to `newest`, at one per interval; `None`
    /// means now. A burst counts while its oldest entry is at most the time of a burst old, that age included.
    pub(crate) fn next_allowed_by_log(
        &self,
        oldest: Timestamp,
        newest: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let crowded = now.since(oldest) <= self.burst_span();
        crowded.then(|| now.max(newest) + self.emission_interval)
    }

    /// Returns the time until one more token is left than `decision` says. It is 0 if the bucket is full.
    pub(crate) fn more_after(&self, decision: &Decision) -> Nanos {
        let missing = self.burst.saturating_sub(decision.remaining);
        let later = self.time_for(missing.saturating_sub(1));
        // A store that counts in microseconds may be up to one of them late.
        decision.reset_nanos.saturating_sub(later).min(self.emission_interval)
    }

    const fn time_for(&self, cost: u64) -> Nanos {
        self.emission_interval.saturating_mul(cost)
    }

    const fn units_in(&self, span: Nanos) -> u64 {
        span.get() / self.emission_interval.get()
    }
}

/// One bucket's whole memory: the moment it will next be full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBucketState {
    full_at: Timestamp,
}

impl TokenBucketState {
    /// Makes a bucket that will be full at this moment.
    pub const fn full_at(full_at: Timestamp) -> Self {
        Self { full_at }
    }

    /// Returns the bucket under `limit`, if it was written under another emission interval, until `at`: the tokens that
    /// were used at that moment stay used. A part of a token counts as a whole one, as it does in `remaining`.
    #[must_use]
    pub fn converted(self, interval: Nanos, limit: &TokenBucket, at: Timestamp) -> Self {
        let used = self.full_at.since(at).get().div_ceil(interval.get().max(1));
        if used == 0 || interval == limit.emission_interval {
            return self;
        }
        Self::full_at(at + limit.time_for(used).min(limit.fill_time))
    }

    /// Returns the time until the bucket is full.
    ///
    /// A clock that stepped back, or a limit that was lowered, can leave an instant further ahead than the bucket
    /// can hold. Such a bucket is empty and no more than that: nobody waits longer than a bucket takes to fill. Under
    /// inline numbers it stays as it is, because the next request may bring larger ones again.
    fn owed(self, limit: &TokenBucket, now: Timestamp) -> Nanos {
        self.full_at.since(now).min(limit.owed_max)
    }

    /// Written even when nothing is taken: an instant too far ahead would else be too far ahead at every retry.
    fn hold_to(&mut self, limit: &TokenBucket, now: Timestamp) {
        self.full_at = self.full_at.min(now + limit.owed_max);
    }
}

impl Bucket for TokenBucketState {
    type Limit = TokenBucket;

    fn check(&self, limit: &TokenBucket, cost: u64, now: Timestamp) -> Decision {
        let mut after = *self;
        after.charge(limit, cost, now)
    }

    #[inline]
    fn charge(&mut self, limit: &TokenBucket, cost: u64, now: Timestamp) -> Decision {
        // Idle time beyond full earns nothing: a day away is one burst, not a day's worth.
        let owed = self.owed(limit, now);
        let increment = limit.time_for(cost);
        let owed_after = owed + increment;
        if owed_after > limit.fill_time {
            self.hold_to(limit, now);
            let remaining = limit.units_in(limit.fill_time.saturating_sub(owed));
            let retry = owed_after.saturating_sub(limit.fill_time);
            return Decision::new(Verdict::Deny, remaining, retry, owed);
        }
        if cost == 0 {
            self.hold_to(limit, now);
        } else {
            self.full_at = now + owed_after;
        }
        let spare = limit.fill_time.saturating_sub(owed_after);
        let retry = increment.saturating_sub(spare);
        Decision::new(Verdict::Allow, limit.units_in(spare), retry, owed_after)
    }

    fn refund(&mut self, limit: &TokenBucket, cost: u64, now: Timestamp) -> Option<Refund> {
        let owed = self.owed(limit, now);
        let owed_after = owed.saturating_sub(limit.time_for(cost));
        // A bucket that is full stays as it is: had it been full until now, a clock stepped back would find it empty.
        if owed > Nanos::ZERO {
            self.full_at = now + owed_after;
        }
        let remaining = limit.units_in(limit.fill_time.saturating_sub(owed_after));
        Some(Refund::new(owed_after < owed, remaining, owed_after))
    }

    fn expires_at(&self) -> Timestamp {
        self.full_at
    }
}

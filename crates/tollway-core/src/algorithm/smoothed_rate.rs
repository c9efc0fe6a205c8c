//! The smoothed rate: how many requests a period sees, averaged so that the past fades.
//!
//! ```text
//! x = interval / period;  a = exp(-x);  rate' = (1 - a) / x + a * rate;  over = rate' >= limit
//! ```
//!
//! Doubles by definition, and `1 - exp(-x)` rather than `expm1`: callers see these digits, and always have.

use std::time::Duration;

use crate::algorithm::{Bucket, NumbersError};
use crate::decision::{Decision, Refund, Verdict};
use crate::time::{Nanos, Timestamp};

/// The number of idle periods after which a rate is forgotten. A request that comes then reads 0.0 instead of 0.04: the
/// rate has faded by a factor of 10^10, and one request after `x` periods is a rate of `1 / x`.
const FORGET_AFTER_PERIODS: u64 = 25;
/// The rate from which on a bucket is kept [`HIGH_RATE_FACTOR`] times as long, until any rate has faded to nothing.
const HIGH_RATE: f64 = 1e6;
const HIGH_RATE_FACTOR: u64 = 40;
/// The longest period, as the error for a longer one names it.
const PERIOD_MAX: &str = "106d for smoothed_rate";
const _: () =
    assert!(Nanos::MAX.get() / (FORGET_AFTER_PERIODS * HIGH_RATE_FACTOR) / 86_400_000_000_000 == 106);

/// The highest rate limit: beyond it one request is less than a double can tell.
const RATE_MAX: f64 = 9_007_199_254_740_992.0;

/// Numbers of a smoothed rate, in requests per period, that must stay below `limit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothedRate {
    limit: f64,
    period: Nanos,
    /// The period in seconds, as a division of each request would give it.
    period_secs: f64,
    strict: bool,
    /// The idle time after which a rate below [`HIGH_RATE`] is forgotten.
    forget_after: Nanos,
}

impl SmoothedRate {
    /// Checks the numbers. `strict` counts denied requests too, so that a caller who keeps asking stays denied.
    pub fn new(limit: f64, period: Duration, strict: bool) -> Result<Self, NumbersError> {
        let period = Nanos::from(period);
        if period == Nanos::ZERO {
            return Err(NumbersError::Zero { field: "period" });
        }
        let longest = Nanos::new(Nanos::MAX.get() / HIGH_RATE_FACTOR);
        if period.saturating_mul(FORGET_AFTER_PERIODS) > longest {
            return Err(NumbersError::PeriodTooLong { max: PERIOD_MAX });
        }
        if !(limit > 0.0 && limit <= RATE_MAX) {
            return Err(NumbersError::Rate);
        }
        let periods = FORGET_AFTER_PERIODS.max(periods_until_one_fits(limit));
        let forget_after = period.saturating_mul(periods).min(longest);
        Ok(Self { limit, period, period_secs: period.as_secs_f64(), strict, forget_after })
    }

    /// Returns the rate from which on requests are denied.
    pub const fn limit(&self) -> f64 {
        self.limit
    }

    /// Returns the span that the rate is counted in.
    pub const fn period(&self) -> Nanos {
        self.period
    }

    /// Returns true if denied requests count too.
    pub const fn strict(&self) -> bool {
        self.strict
    }

    /// Returns the idle time after which a rate is forgotten, because it can no longer change an answer to one unit
    /// by 0.1. An answer to `n` units it changes by up to `n` times as much.
    pub fn forget_after(&self, rate: f64) -> Nanos {
        if rate < HIGH_RATE { self.forget_after } else { self.forget_after.saturating_mul(HIGH_RATE_FACTOR) }
    }

    /// The most one request may cost: each unit adds one to the rate.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within (0, 2^53]")]
    pub fn cost_max(&self) -> u64 {
        (self.limit as u64).max(1)
    }
}

/// The rate that a request found.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct RateReading {
    /// The rate with this request in it.
    pub rate: f64,
    /// True if the rate is the limit or more.
    pub over: bool,
}

impl RateReading {
    /// Makes a reading from a rate and whether it is over.
    #[inline]
    pub const fn new(rate: f64, over: bool) -> Self {
        Self { rate, over }
    }
}

/// The state that a smoothed rate keeps: the time and the value of the last measurement. A rate that was never measured
/// is zero since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SmoothedRateState {
    last: Timestamp,
    rate: f64,
    expires_at: Timestamp,
}

impl SmoothedRateState {
    /// Makes a rate that was measured at `last` and counts until `expires_at`.
    pub const fn measured(last: Timestamp, rate: f64, expires_at: Timestamp) -> Self {
        Self { last, rate, expires_at }
    }

    /// Returns the time and the value of the last measurement.
    pub const fn last(&self) -> (Timestamp, f64) {
        (self.last, self.rate)
    }

    /// Returns the rate that a request of `cost` would see, and stores nothing.
    pub fn measure(&self, limit: &SmoothedRate, cost: u64, now: Timestamp) -> RateReading {
        // A sweep may have dropped an expired bucket, so it counts for nothing where it is still there too.
        if self.expires_at <= now {
            return RateReading { rate: 0.0, over: 0.0 >= limit.limit };
        }
        let rate = self.rate_after(limit, cost, now.since(self.last));
        RateReading { rate, over: rate >= limit.limit }
    }

    /// Measures the rate and stores it, unless the request is over and denied requests do not count. Cost 0 stores
    /// nothing.
    pub fn update(&mut self, limit: &SmoothedRate, cost: u64, now: Timestamp) -> RateReading {
        let reading = self.measure(limit, cost, now);
        if cost > 0 && (!reading.over || limit.strict) {
            *self = Self::remember(limit, reading.rate, now);
        } else if self.last > now {
            // A clock that stepped back: the rate would not fade until the time it was measured at comes again.
            *self = Self::remember(limit, self.rate, now);
        }
        reading
    }

    fn remember(limit: &SmoothedRate, rate: f64, now: Timestamp) -> Self {
        Self { last: now, rate, expires_at: now + limit.forget_after(rate) }
    }

    fn rate_after(&self, limit: &SmoothedRate, cost: u64, idle: Nanos) -> f64 {
        // A clock that stood still or stepped back: the shortest interval there is.
        let interval = if idle == Nanos::ZERO { 1e-9 } else { idle.as_secs_f64() };
        let x = interval / limit.period_secs;
        let a = (-x).exp();
        (1.0 - a) / x * cost as f64 + a * self.rate
    }

    /// Makes the decision from a reading and the state after it.
    fn decide(
        reading: RateReading,
        after: &Self,
        limit: &SmoothedRate,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        let (verdict, remaining) = match reading.over {
            true => (Verdict::Deny, 0),
            false => (Verdict::Allow, whole_units_below(limit.limit - reading.rate)),
        };
        Decision::new(verdict, remaining, after.wait_for(limit, cost, now), after.expires_at.since(now))
    }

    /// Returns the time until a request of `cost` is not over. The rate only falls while no request comes, so a binary
    /// search finds it. The search ends where the bucket is forgotten.
    fn wait_for(&self, limit: &SmoothedRate, cost: u64, now: Timestamp) -> Nanos {
        let over_after = |wait: u64| self.measure(limit, cost, now + Nanos::new(wait)).over;
        if !over_after(0) {
            return Nanos::ZERO;
        }
        let latest = self.expires_at.since(now).get();
        let (mut over, mut fits) = (0, limit.period.get().min(latest));
        while fits < latest && over_after(fits) {
            (over, fits) = (fits, fits.saturating_mul(2).min(latest));
        }
        while fits - over > 1 {
            let middle = over + (fits - over) / 2;
            if over_after(middle) { over = middle } else { fits = middle }
        }
        Nanos::new(fits)
    }
}

/// Returns the number of idle periods after which a request of one unit is certainly below the limit, which may be far
/// below one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and `as` saturates")]
fn periods_until_one_fits(limit: f64) -> u64 {
    ((1.0 / limit).ceil() as u64).saturating_add(1)
}

/// Returns the number of requests of one unit that would all stay below the limit at this moment.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative, and `as` saturates"
)]
fn whole_units_below(room: f64) -> u64 {
    (room.ceil() - 1.0).max(0.0) as u64
}

impl Bucket for SmoothedRateState {
    type Limit = SmoothedRate;

    fn check(&self, limit: &SmoothedRate, cost: u64, now: Timestamp) -> Decision {
        let mut after = *self;
        after.charge(limit, cost, now)
    }

    fn charge(&mut self, limit: &SmoothedRate, cost: u64, now: Timestamp) -> Decision {
        let reading = self.update(limit, cost, now);
        Self::decide(reading, self, limit, cost, now)
    }

    fn refund(&mut self, _: &SmoothedRate, _: u64, _: Timestamp) -> Option<Refund> {
        None
    }

    fn expires_at(&self) -> Timestamp {
        self.expires_at
    }
}

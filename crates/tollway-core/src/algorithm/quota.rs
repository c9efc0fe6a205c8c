//! The quota: a counter that lives until it expires.
//!
//! Two users share it. A named limit opens a window with the first request and counts down in it ([`Bucket`]);
//! the Throttr protocol sets, changes and reads the two numbers directly.

mod command;

use std::time::Duration;

use crate::algorithm::{Bucket, NumbersError, sensible};
use crate::decision::{Decision, Refund, Verdict};
use crate::time::{Nanos, Timestamp};

pub use command::{Change, QuotaCommand, QuotaOperation, QuotaOutcome, QuotaTtl, TtlUnit};

/// `count` requests in a window of `period` that the first one opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    count: u64,
    period: Nanos,
}

impl Quota {
    /// Rejects zeros.
    pub fn new(count: u64, period: Duration) -> Result<Self, NumbersError> {
        let period = Nanos::from(period);
        sensible(&[("count", count)], period)?;
        Ok(Self { count, period })
    }

    /// Returns the number of units that fit in a window.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the time that a window lasts.
    pub const fn period(&self) -> Nanos {
        self.period
    }
}

/// A counter, until when it counts, and the unit its owner counts the time in.
///
/// To Throttr the counter is what is left. To a named limit it is what was used: the limit may change in the middle
/// of a window, and what is left follows from the limit as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaState {
    counter: u64,
    expires_at: Timestamp,
    unit: TtlUnit,
}

impl QuotaState {
    /// Makes a quota with this counter that expires at this moment.
    pub const fn until(expires_at: Timestamp, counter: u64, unit: TtlUnit) -> Self {
        Self { counter, expires_at, unit }
    }

    /// Returns the counter: the units left for Throttr, the units used for a named limit.
    pub const fn counter(&self) -> u64 {
        self.counter
    }

    /// The unit its owner counts the time in.
    pub const fn unit(&self) -> TtlUnit {
        self.unit
    }

    fn is_live(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }

    /// Returns the units used in the open window and the time until it ends; both are zero if no window is open.
    fn window(&self, limit: &Quota, now: Timestamp) -> (u64, Nanos) {
        if self.is_live(now) {
            // Cut: a clock that stepped back, or a period made shorter, locks nobody out for longer than a period.
            (self.counter, self.expires_at.since(now).min(limit.period))
        } else {
            (0, Nanos::ZERO)
        }
    }

    /// Written even when nothing is taken: an end too far ahead would else be too far ahead at every retry.
    fn hold_to(&mut self, limit: &Quota, now: Timestamp) {
        self.expires_at = self.expires_at.min(now + limit.period);
    }
}

impl Bucket for QuotaState {
    type Limit = Quota;

    fn check(&self, limit: &Quota, cost: u64, now: Timestamp) -> Decision {
        let mut after = *self;
        after.charge(limit, cost, now)
    }

    fn charge(&mut self, limit: &Quota, cost: u64, now: Timestamp) -> Decision {
        let (used, mut until_reset) = self.window(limit, now);
        let left = limit.count.saturating_sub(used);
        let Some(left_after) = left.checked_sub(cost) else {
            self.hold_to(limit, now);
            return Decision::new(Verdict::Deny, left, until_reset, until_reset);
        };
        if cost == 0 {
            self.hold_to(limit, now);
        } else {
            if until_reset == Nanos::ZERO {
                until_reset = limit.period;
            }
            *self = Self { counter: used + cost, expires_at: now + until_reset, unit: self.unit };
        }
        let retry = if left_after >= cost { Nanos::ZERO } else { until_reset };
        Decision::new(Verdict::Allow, left_after, retry, until_reset)
    }

    fn refund(&mut self, limit: &Quota, cost: u64, now: Timestamp) -> Option<Refund> {
        let (used, until_reset) = self.window(limit, now);
        let used_after = used.saturating_sub(cost);
        self.hold_to(limit, now);
        if self.is_live(now) {
            self.counter = used_after;
        }
        Some(Refund::new(used_after < used, limit.count.saturating_sub(used_after), until_reset))
    }

    fn expires_at(&self) -> Timestamp {
        self.expires_at
    }
}

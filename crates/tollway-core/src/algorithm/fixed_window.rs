//! The fixed window: a counter that starts again at every full minute, hour or day.
//!
//! ```text
//! count 3, period 1m      12:00              12:01              12:02
//!                         ├──▪───▪──────▪────┼─▪────────────────┤
//!                            3 used, 0 left    1 used, 2 left
//! ```
//!
//! Windows begin at multiples of the period since 1970, plus the offset, and are the same for every id. Around the end
//! of a window twice the count can pass in a short time; a [sliding window](super::SlidingWindow) smooths that.

use std::time::Duration;

use crate::algorithm::{Bucket, NumbersError, sensible};
use crate::decision::{Decision, Refund, Verdict};
use crate::time::{Nanos, Timestamp};

/// A limit that allows `count` requests in each window of `period`. Windows begin `offset` after each multiple of the
/// period since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    count: u64,
    period: Nanos,
    offset: Nanos,
}

impl FixedWindow {
    /// Rejects zeros, and periods and offsets of more than 292 years. An offset of a whole period is the same as none.
    pub fn new(count: u64, period: Duration, offset: Duration) -> Result<Self, NumbersError> {
        let (period, offset) = (Nanos::from(period), Nanos::from(offset));
        sensible(&[("count", count)], period)?;
        if offset > Nanos::MAX {
            return Err(NumbersError::OffsetTooLong);
        }
        Ok(Self { count, period, offset: Nanos::new(offset.get() % period.get()) })
    }

    /// Returns the number of units that fit in a window.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the time that a window lasts.
    pub const fn period(&self) -> Nanos {
        self.period
    }

    /// Returns the time from a multiple of the period to the begin of a window, which is less than the period.
    pub const fn offset(&self) -> Nanos {
        self.offset
    }

    /// Returns the time until the window that contains `now` ends, which is above zero.
    const fn until_end(&self, now: Timestamp) -> Nanos {
        let (period, offset) = (self.period.get(), self.offset.get());
        let since_multiple = now.as_nanos() % period;
        // Both are less than the period, which is at most 2^63: nothing here overflows.
        Nanos::new(if since_multiple < offset {
            offset - since_multiple
        } else {
            period - (since_multiple - offset)
        })
    }
}

/// The units that were used in a window, and when the window ends.
///
/// Units of a window that has not ended count in the current window. The two are the same, unless the clock stepped
/// back or the limit got another period or offset: then the units stay used, and nobody waits longer than until the
/// current window ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedWindowState {
    ends_at: Timestamp,
    used: u64,
}

impl FixedWindowState {
    /// Makes a window that ends at this moment, with so many units used.
    pub const fn until(ends_at: Timestamp, used: u64) -> Self {
        Self { ends_at, used }
    }

    /// Returns the units that were used in the window.
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Returns the moment when the window ends.
    pub const fn ends_at(&self) -> Timestamp {
        self.ends_at
    }

    fn is_live(&self, now: Timestamp) -> bool {
        now < self.ends_at
    }

    fn used_at(&self, now: Timestamp) -> u64 {
        if self.is_live(now) { self.used } else { 0 }
    }
}

impl Bucket for FixedWindowState {
    type Limit = FixedWindow;

    fn check(&self, limit: &FixedWindow, cost: u64, now: Timestamp) -> Decision {
        let mut after = *self;
        after.charge(limit, cost, now)
    }

    #[inline]
    fn charge(&mut self, limit: &FixedWindow, cost: u64, now: Timestamp) -> Decision {
        let (used, until_end) = (self.used_at(now), limit.until_end(now));
        let left = limit.count.saturating_sub(used);
        let (verdict, taken) = if cost <= left { (Verdict::Allow, cost) } else { (Verdict::Deny, 0) };
        // Written even when nothing is taken: an end too far ahead would else be too far ahead at every retry.
        if taken > 0 || self.is_live(now) {
            *self = Self { ends_at: now + until_end, used: used + taken };
        }
        let remaining = left - taken;
        let retry = if cost <= remaining { Nanos::ZERO } else { until_end };
        Decision::new(verdict, remaining, retry, until_end)
    }

    fn refund(&mut self, limit: &FixedWindow, cost: u64, now: Timestamp) -> Option<Refund> {
        let (used, until_end) = (self.used_at(now), limit.until_end(now));
        let used_after = used.saturating_sub(cost);
        if self.is_live(now) {
            *self = Self { ends_at: now + until_end, used: used_after };
        }
        Some(Refund::new(used_after < used, limit.count.saturating_sub(used_after), until_end))
    }

    fn expires_at(&self) -> Timestamp {
        if self.used == 0 { Timestamp::EPOCH } else { self.ends_at }
    }
}

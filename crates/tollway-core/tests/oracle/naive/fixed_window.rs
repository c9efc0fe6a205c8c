//! A naive model of the fixed window, which keeps the window as its two ends.

use tollway_core::algorithm::FixedWindow;
use tollway_core::{Decision, Refund, Timestamp, Verdict};

use super::{decision, refund, wide};

/// A window that has what was used in it, and its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NaiveFixedWindow {
    used: i128,
    ends_at: i128,
}

/// Returns the end of the window that contains `now`: the first `k * period + offset` after it.
pub(crate) fn window_end(period: u64, offset: u64, now: i128) -> i128 {
    let (period, offset) = (i128::from(period), i128::from(offset));
    offset + ((now - offset).div_euclid(period) + 1) * period
}

impl NaiveFixedWindow {
    pub(crate) fn spend(&mut self, limit: &FixedWindow, cost: u64, now: Timestamp) -> Decision {
        let (used, ends_at) = self.enter(limit, now);
        let (count, cost, left_of_it) = (i128::from(limit.count()), i128::from(cost), ends_at - wide(now));
        if cost > 0 && used + cost > count {
            return decision(Verdict::Deny, (count - used).max(0), left_of_it, left_of_it);
        }
        if cost > 0 {
            *self = Self { used: used + cost, ends_at };
        }
        let left = (count - used - cost).max(0);
        decision(Verdict::Allow, left, if cost <= left { 0 } else { left_of_it }, left_of_it)
    }

    pub(crate) fn refund(&mut self, limit: &FixedWindow, cost: u64, now: Timestamp) -> Refund {
        let (before, ends_at) = self.enter(limit, now);
        let after = (before - i128::from(cost)).max(0);
        if after < before {
            self.used = after;
        }
        refund(after < before, (i128::from(limit.count()) - after).max(0), ends_at - wide(now))
    }

    /// Returns what is used in the window that `now` is in, and its end. What was used in a window that has not ended
    /// is taken along into this one.
    fn enter(&mut self, limit: &FixedWindow, now: Timestamp) -> (i128, i128) {
        let ends_at = window_end(limit.period().get(), limit.offset().get(), wide(now));
        if self.ends_at <= wide(now) {
            return (0, ends_at);
        }
        self.ends_at = ends_at;
        (self.used, ends_at)
    }
}

//! A naive model of the quota, which is a counter and an expiry.

use tollway_core::algorithm::Quota;
use tollway_core::{Decision, Refund, Timestamp, Verdict};

use super::{decision, refund, wide};

/// A count that starts over when its window ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NaiveQuota {
    used: i128,
    ends_at: i128,
}

impl NaiveQuota {
    pub(crate) fn spend(&mut self, limit: &Quota, cost: u64, now: Timestamp) -> Decision {
        self.settle_down(limit, now);
        let (count, period, now) = (i128::from(limit.count()), i128::from(limit.period().get()), wide(now));
        let cost = i128::from(cost);
        let used = if now < self.ends_at { self.used } else { 0 };
        if cost > 0 && used + cost > count {
            let left = (count - used).max(0);
            return decision(Verdict::Deny, left, self.ends_at - now, self.ends_at - now);
        }
        if cost > 0 {
            let ends_at = if now < self.ends_at { self.ends_at } else { now + period };
            *self = Self { used: used + cost, ends_at };
        }
        let left = (count - used - cost).max(0);
        let until_end = (self.ends_at - now).max(0);
        let retry_after = if cost <= left { 0 } else { until_end };
        decision(Verdict::Allow, left, retry_after, until_end)
    }

    pub(crate) fn refund(&mut self, limit: &Quota, cost: u64, now: Timestamp) -> Refund {
        self.settle_down(limit, now);
        let (count, now) = (i128::from(limit.count()), wide(now));
        if now >= self.ends_at {
            return refund(false, count, 0);
        }
        let before = self.used;
        self.used = (before - i128::from(cost)).max(0);
        refund(self.used < before, (count - self.used).max(0), self.ends_at - now)
    }

    fn settle_down(&mut self, limit: &Quota, now: Timestamp) {
        self.ends_at = self.ends_at.min(wide(now) + i128::from(limit.period().get()));
    }
}

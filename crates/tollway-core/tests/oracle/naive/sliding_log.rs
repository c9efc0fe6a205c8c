//! The sliding log, counted afresh for every question.

use tollway_core::algorithm::SlidingLog;
use tollway_core::{Decision, Refund, Timestamp, Verdict};

use super::{decision, refund, wide};

/// Every entry that still counts, and a fresh look at all of them for each question.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NaiveSlidingLog {
    entries: Vec<i128>,
    forgotten_at: i128,
}

impl NaiveSlidingLog {
    pub(crate) fn spend(&mut self, limit: &SlidingLog, cost: u64, now: Timestamp) -> Decision {
        self.settle_down(limit, now);
        let (count, period, now) = (i128::from(limit.count()), i128::from(limit.period().get()), wide(now));
        let used = self.used_after(period, now, 0);
        if used + i128::from(cost) > count && cost > 0 {
            let retry_after = self.room_after(limit, cost, now);
            return decision(
                Verdict::Deny,
                (count - used).max(0),
                retry_after,
                self.reset_after(period, now),
            );
        }
        for _ in 0..cost {
            self.entries.push(now);
            self.forgotten_at = now + period;
        }
        let remaining = (count - used - i128::from(cost)).max(0);
        let retry_after = if cost == 0 { 0 } else { self.room_after(limit, cost, now) };
        decision(Verdict::Allow, remaining, retry_after, self.reset_after(period, now))
    }

    pub(crate) fn refund(&mut self, limit: &SlidingLog, cost: u64, now: Timestamp) -> Refund {
        self.settle_down(limit, now);
        let before = self.entries.len();
        for _ in 0..cost {
            if self.entries.pop().is_none() {
                break;
            }
        }
        self.settle_down(limit, now);
        let (count, period, now) = (i128::from(limit.count()), i128::from(limit.period().get()), wide(now));
        let remaining = (count - self.entries.len() as i128).max(0);
        refund(self.entries.len() < before, remaining, self.reset_after(period, now))
    }

    /// Drops entries that are too old. An entry in the future, left by a clock that stepped back, becomes one made now.
    fn settle_down(&mut self, limit: &SlidingLog, now: Timestamp) {
        let (period, now) = (i128::from(limit.period().get()), wide(now));
        if now >= self.forgotten_at {
            self.entries.clear();
        }
        self.entries.retain(|entry| now - entry < period);
        self.entries.iter_mut().for_each(|entry| *entry = now.min(*entry));
        self.forgotten_at = self.entries.last().map_or(0, |newest| newest + period);
    }

    fn used_after(&self, period: i128, now: i128, wait: i128) -> i128 {
        self.entries.iter().filter(|entry| now + wait - **entry < period).count() as i128
    }

    /// Room comes when an entry goes, so those are the moments to look at.
    fn room_after(&self, limit: &SlidingLog, cost: u64, now: i128) -> i128 {
        let (count, period) = (i128::from(limit.count()), i128::from(limit.period().get()));
        let fits = |wait: i128| self.used_after(period, now, wait) + i128::from(cost) <= count;
        let mut goes: Vec<i128> = self.entries.iter().map(|entry| entry + period - now).collect();
        goes.dedup();
        [0].into_iter().chain(goes).find(|wait| fits(*wait)).expect("an empty log has room")
    }

    fn reset_after(&self, period: i128, now: i128) -> i128 {
        self.entries.last().map_or(0, |newest| newest + period - now)
    }
}

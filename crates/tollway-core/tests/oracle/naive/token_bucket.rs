//! A naive model that follows the formulas of the token bucket.

use tollway_core::algorithm::TokenBucket;
use tollway_core::{Decision, Refund, Timestamp, Verdict};

use super::{decision, refund, wide};

/// A bucket of a key-value limit that follows the formulas of its protocol.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NaiveTokenBucket {
    tat: i128,
}

impl NaiveTokenBucket {
    pub(crate) fn spend(&mut self, limit: &TokenBucket, cost: u64, now: Timestamp) -> Decision {
        let (emission_interval, burst_offset) = Self::spans(limit);
        let now = wide(now);
        let inc = emission_interval * i128::from(cost);
        let tat = self.tat_at(limit, now);
        let new = tat + inc;
        let d = now - (new - burst_offset);
        if d < 0 {
            // Inline numbers may be too small for what the bucket owes.
            let remaining = (now - (tat - burst_offset)).max(0) / emission_interval;
            return decision(Verdict::Deny, remaining, -d, tat - now);
        }
        if cost > 0 {
            self.tat = new;
        }
        let retry_after = if d < inc { inc - d } else { 0 };
        decision(Verdict::Allow, d / emission_interval, retry_after, new - now)
    }

    pub(crate) fn refund(&mut self, limit: &TokenBucket, cost: u64, now: Timestamp) -> Refund {
        let (emission_interval, burst_offset) = Self::spans(limit);
        let now = wide(now);
        let tat = self.tat_at(limit, now);
        let inc = emission_interval * i128::from(cost);
        let mut refunded = false;
        if now <= self.tat {
            let new = (tat - inc).max(now);
            refunded = new != tat;
            self.tat = new;
        }
        let tat = self.tat.max(now);
        refund(refunded, (now - (tat - burst_offset)).max(0) / emission_interval, tat - now)
    }

    /// The numbers change at `now`: as many tokens stay used as were, and a part of one counts whole.
    pub(crate) fn change(&mut self, from: &TokenBucket, to: &TokenBucket, now: Timestamp) {
        let ((before, _), (after, burst_offset)) = (Self::spans(from), Self::spans(to));
        let owed = (self.tat - wide(now)).max(0);
        let used = owed / before + i128::from(owed % before > 0);
        if used > 0 && before != after {
            self.tat = wide(now) + (used * after).min(burst_offset);
        }
    }

    fn tat_at(&mut self, limit: &TokenBucket, now: i128) -> i128 {
        let (_, burst_offset) = Self::spans(limit);
        if !limit.is_inline() {
            self.tat = self.tat.min(now + burst_offset);
        }
        self.tat.max(now)
    }

    fn spans(limit: &TokenBucket) -> (i128, i128) {
        let emission_interval = i128::from(limit.period().get()) / i128::from(limit.count());
        (emission_interval, emission_interval * i128::from(limit.burst()))
    }
}

//! Answers to rules: allow or deny, and how long to wait.

use std::time::Duration;

use crate::decision::{Decision, Verdict};
use crate::time::{Nanos, Timestamp};

/// A decision of a rule: what a caller gets back. A rule has no bucket, so there is no `remaining`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a decision that is not looked at limits nothing"]
#[non_exhaustive]
pub struct RuleDecision {
    /// Says if the request is allowed, and on what ground.
    pub verdict: Verdict,
    /// The time until it would be allowed if nobody else came; [`Nanos::FOREVER`] if no passing of time would allow it.
    pub retry_nanos: Nanos,
    /// True if the store gave no answer, so that the rule's `on_store_failure` decided.
    pub degraded: bool,
}

impl RuleDecision {
    /// The decision that lets a request pass.
    pub const ALLOW: Self = Self::new(Verdict::Allow, Nanos::ZERO);

    /// Makes a decision by a store that answered.
    #[inline]
    pub const fn new(verdict: Verdict, retry: Nanos) -> Self {
        Self { verdict, retry_nanos: retry, degraded: false }
    }

    /// Returns the decision of a rule that [limits until](super::Rule::limits_until) this moment.
    #[inline]
    pub fn until(moment: Timestamp, now: Timestamp) -> Self {
        if moment <= now {
            return Self::ALLOW;
        }
        let for_ever = moment.as_nanos() == u64::MAX;
        Self::new(Verdict::Deny, if for_ever { Nanos::FOREVER } else { moment.since(now) })
    }

    /// Returns true if the request may pass.
    #[inline]
    #[must_use]
    pub const fn allowed(&self) -> bool {
        self.verdict.allowed()
    }

    /// Returns the time until it would be allowed if nobody else came; `None` if no passing of time would allow it.
    #[inline]
    pub const fn retry_after(&self) -> Option<Duration> {
        if self.retry_nanos.is_forever() { None } else { Some(self.retry_nanos.as_duration()) }
    }

    /// Returns the same decision with another verdict.
    #[inline]
    pub const fn with_verdict(mut self, verdict: Verdict) -> Self {
        self.verdict = verdict;
        self
    }

    /// Returns the same decision, marked as made without an answer of the store.
    #[inline]
    pub const fn with_degraded(mut self) -> Self {
        self.degraded = true;
        self
    }
}

/// Converts the decision of a rule to that of the bill which it is a part of. A rule has no bucket, so `remaining` is
/// the maximum and there is nothing to reset.
impl From<RuleDecision> for Decision {
    fn from(RuleDecision { verdict, retry_nanos, degraded }: RuleDecision) -> Self {
        Self { degraded, ..Self::new(verdict, u64::MAX, retry_nanos, Nanos::ZERO) }
    }
}

/// Converts the decision of a bill to that of the rule which decided it.
impl From<Decision> for RuleDecision {
    fn from(Decision { verdict, retry_nanos, degraded, .. }: Decision) -> Self {
        Self { verdict, retry_nanos, degraded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_denies_until_the_moment_comes() {
        let [now, later] = [5, 8].map(Timestamp::from_nanos);
        for (moment, allowed, retry_after) in [
            (Timestamp::EPOCH, true, Some(0)),
            (now, true, Some(0)),
            (later, false, Some(3)),
            (Timestamp::from_nanos(u64::MAX), false, None),
        ] {
            let decision = RuleDecision::until(moment, now);
            assert_eq!((decision.allowed(), decision.degraded), (allowed, false), "{moment}");
            assert_eq!(decision.retry_after(), retry_after.map(Duration::from_nanos), "{moment}");
        }
    }

    #[test]
    fn the_decision_of_a_rule_is_that_of_its_bill_and_back() {
        let rule = RuleDecision::new(Verdict::Deny, Nanos::new(3)).with_degraded();
        let rule = rule.with_verdict(Verdict::DenyUnreachable);
        let bill = Decision::from(rule);
        assert_eq!(
            (bill.verdict, bill.retry_nanos, bill.degraded),
            (Verdict::DenyUnreachable, Nanos::new(3), true)
        );
        assert_eq!((bill.remaining, bill.reset_nanos), (u64::MAX, Nanos::ZERO));
        assert_eq!(RuleDecision::from(bill), rule);
    }
}

//! What is decided by a rule.

use crate::decision::Verdict;
use crate::time::{Nanos, Timestamp};

/// Allow or deny, by a rule. A rule has no bucket, so there is nothing of which some could remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleDecision {
    /// Allowed or not, and on what ground.
    pub verdict: Verdict,
    /// How long until it would be allowed, if nobody else came; [`Nanos::FOREVER`] if no passing of time lifts it.
    pub retry_after: Nanos,
    /// Did the store give no answer, so that this is what the rule's limit says to do then?
    pub degraded: bool,
}

impl RuleDecision {
    /// It may pass.
    pub const ALLOW: Self = Self { verdict: Verdict::Allow, retry_after: Nanos::ZERO, degraded: false };

    /// The ruling of a rule that [limits until](super::Rule::limits_until) this moment.
    #[inline]
    pub fn until(moment: Timestamp, now: Timestamp) -> Self {
        if moment <= now {
            return Self::ALLOW;
        }
        let for_ever = moment.as_nanos() == u64::MAX;
        let retry_after = if for_ever { Nanos::FOREVER } else { moment.since(now) };
        Self { verdict: Verdict::Deny, retry_after, degraded: false }
    }

    /// May the request pass?
    pub const fn allowed(&self) -> bool {
        self.verdict.allowed()
    }
}

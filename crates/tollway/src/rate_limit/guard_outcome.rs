//! The two answers of a rule guard: a permit to run, or an error that describes the denial.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollway_core::{KeyedRule, Nanos, Rule, RuleDecision, Verdict};

/// A permit, which proves that a rule allowed some code to run.
///
/// It holds no resource, and nothing happens when it is dropped. Only this crate can make one. So a function that takes
/// a permit as an argument cannot be called without resolving a rule first.
#[derive(Debug)]
pub struct RunPermit {
    decision: RuleDecision,
}

/// A rule denied some code: it did not run and was not counted.
///
/// The message names the key and the rule, but not the values of selectors: those are names or addresses of people, and
/// errors end up in logs.
#[must_use]
#[derive(Clone, PartialEq, Eq)]
pub struct RateLimitExceeded {
    rule: Arc<KeyedRule>,
    decision: RuleDecision,
}

impl RunPermit {
    #[inline]
    pub(super) fn from_decision(
        decision: RuleDecision,
        rule: &Arc<KeyedRule>,
    ) -> Result<Self, RateLimitExceeded> {
        match decision.allowed() {
            true => Ok(Self { decision }),
            false => Err(RateLimitExceeded { rule: Arc::clone(rule), decision }),
        }
    }

    /// Returns the decision that allowed the code to run.
    pub const fn decision(&self) -> RuleDecision {
        self.decision
    }
}

impl RateLimitExceeded {
    /// Returns the time until the code would be allowed, if nothing else is counted meanwhile. `None` means that
    /// waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision.retry_after()
    }

    /// Returns whether the store failed, so that the answer is the limit's `on_store_failure`.
    pub const fn degraded(&self) -> bool {
        self.decision.degraded
    }

    /// Returns the decision that denied the code.
    pub const fn decision(&self) -> RuleDecision {
        self.decision
    }

    /// Returns the key that the code is counted under, or the name of the function.
    pub fn key(&self) -> &str {
        self.rule.key()
    }

    /// Returns the rule that denied the code.
    pub fn rule(&self) -> &Rule {
        self.rule.limit().rule()
    }
}

impl std::error::Error for RateLimitExceeded {}

impl fmt::Display for RateLimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.decision.verdict {
            Verdict::DenyFull => "the store is full",
            Verdict::DenyUnreachable => "the store did not answer",
            _ => "rate limit exceeded",
        };
        match self.key() {
            "" => write!(f, "{why}: {}", self.rule())?,
            key => write!(f, "{why}: {key}, {}", self.rule())?,
        }
        match self.decision.retry_nanos {
            never if never.is_forever() => f.write_str("; waiting does not help"),
            // Rounded up: a caller that waits for the time in the message must not come too early.
            retry_after => {
                write!(f, "; retry after {}", Nanos::from_millis(retry_after.get().div_ceil(1_000_000)))
            }
        }
    }
}

/// Writes a short form, which is what a failed `unwrap` prints. The derived form would print the parsed rule.
impl fmt::Debug for RateLimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitExceeded")
            .field("key", &self.key())
            .field("rule", &self.rule().to_string())
            .field("retry_after", &self.retry_after())
            .field("degraded", &self.degraded())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tollway_core::RuleLimit;

    use super::*;

    #[test]
    fn a_denial_says_of_what_and_until_when() {
        let (soon, never) = (Nanos::new(1_499_000_001), Nanos::FOREVER);
        for (verdict, retry_after, key, said) in [
            (Verdict::Deny, soon, "login", "rate limit exceeded: login, user:10/5m; retry after 1.5s"),
            (Verdict::Deny, soon, "", "rate limit exceeded: user:10/5m; retry after 1.5s"),
            (Verdict::Deny, never, "login", "rate limit exceeded: login, user:10/5m; waiting does not help"),
            (Verdict::DenyFull, soon, "login", "the store is full: login, user:10/5m; retry after 1.5s"),
            (
                Verdict::DenyUnreachable,
                soon,
                "login",
                "the store did not answer: login, user:10/5m; retry after 1.5s",
            ),
        ] {
            let limit = RuleLimit::new("user:10/5m".parse().unwrap());
            let rule = Arc::new(KeyedRule::new(limit, "", key));
            let denied =
                RunPermit::from_decision(RuleDecision::new(verdict, retry_after), &rule).unwrap_err();
            assert_eq!(denied.to_string(), said);
            assert_eq!(denied.retry_after(), (retry_after == soon).then_some(soon.into()));
        }
    }
}

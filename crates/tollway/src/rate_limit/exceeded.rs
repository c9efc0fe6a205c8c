//! The two answers: a pass, or what a denial says.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollway_core::{KeyedRule, Nanos, Rule, RuleDecision, Verdict};

/// Leave to run. It holds nothing and nothing happens when it is dropped; but nobody else can make one, so a function that
/// takes it is one that cannot be called without asking.
#[derive(Debug)]
pub struct Pass {
    ruling: RuleDecision,
}

/// A request over its limit, which did not run and was logged nowhere.
///
/// It names the key and the rule, but not the selectors' values: those are somebody's name or address, and errors end
/// in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct RateLimitExceeded {
    rule: Arc<KeyedRule>,
    ruling: RuleDecision,
}

impl Pass {
    #[inline]
    pub(super) fn by(ruling: RuleDecision, rule: &Arc<KeyedRule>) -> Result<Self, RateLimitExceeded> {
        match ruling.allowed() {
            true => Ok(Self { ruling }),
            false => Err(RateLimitExceeded { rule: Arc::clone(rule), ruling }),
        }
    }

    /// On what ground it was given.
    pub const fn ruling(&self) -> RuleDecision {
        self.ruling
    }
}

impl RateLimitExceeded {
    /// How long until it would be allowed, if nobody else came; `None` if no passing of time lifts it.
    pub fn retry_after(&self) -> Option<Duration> {
        self.ruling.retry_after()
    }

    /// Did the store give no answer, so that this is what the limit says to do then?
    pub const fn degraded(&self) -> bool {
        self.ruling.degraded
    }

    /// What was decided, and on what ground.
    pub const fn ruling(&self) -> RuleDecision {
        self.ruling
    }

    /// What it is counted under: a key, or the name of a function.
    pub fn key(&self) -> &str {
        self.rule.key()
    }

    /// The rule that denied it.
    pub fn rule(&self) -> &Rule {
        self.rule.limit().rule()
    }
}

impl std::error::Error for RateLimitExceeded {}

impl fmt::Display for RateLimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.ruling.verdict {
            Verdict::DenyFull => "no room to count one more",
            Verdict::DenyAway => "the store that counts gives no answer",
            _ => "rate limit exceeded",
        };
        match self.key() {
            "" => write!(f, "{why}: {}", self.rule())?,
            key => write!(f, "{why}: {key}, {}", self.rule())?,
        }
        match self.ruling.retry_nanos {
            never if never.is_forever() => f.write_str("; waiting does not help"),
            // For people, and rounded up: who waits that long is not early.
            retry_after => {
                write!(f, "; retry after {}", Nanos::from_millis(retry_after.get().div_ceil(1_000_000)))
            }
        }
    }
}

/// What a failed `unwrap` prints: short, unlike the rule.
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
            (
                Verdict::DenyFull,
                soon,
                "login",
                "no room to count one more: login, user:10/5m; retry after 1.5s",
            ),
            (
                Verdict::DenyAway,
                soon,
                "login",
                "the store that counts gives no answer: login, user:10/5m; retry after 1.5s",
            ),
        ] {
            let limit = RuleLimit::new("user:10/5m".parse().unwrap());
            let rule = Arc::new(KeyedRule::new(limit, "", key));
            let denied = Pass::by(RuleDecision::new(verdict, retry_after), &rule).unwrap_err();
            assert_eq!(denied.to_string(), said);
            assert_eq!(denied.retry_after(), (retry_after == soon).then_some(soon.into()));
        }
    }
}

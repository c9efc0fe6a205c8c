//! Applies rules to functions and blocks of code, which run only if their rule allows it.
//!
//! ```
//! use tollway::rate_limit::{RateLimit, RateLimitError};
//!
//! let shop = RateLimit::in_memory().with_namespace("shop");
//! let login = shop.limit("user:2/5m")?.key("login").selector("user", "vova");
//! let mut sessions = 0;
//! for _ in 0..3 {
//!     match login.run(|| sessions += 1) {
//!         Ok(()) => println!("welcome"),
//!         Err(RateLimitError::Exceeded(denied)) => println!("wait {:?}", denied.retry_after()),
//!         Err(mistake) => return Err(mistake.into()),
//!     }
//! }
//! assert_eq!(sessions, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A rule is parsed where it is defined, and resolved each time the code is reached. Code that is denied does not run,
//! and a denial is not counted. Code that is allowed is counted before it runs, whether or not it then succeeds.
//!
//! [`#[tollway::limit]`](macro@crate::limit) does the same for a whole function, and reports most mistakes when the
//! program is compiled.

mod call_site;
mod global;
mod guard_outcome;
mod limited_function;
mod registry;
mod rule_guard;
mod selector;

use std::fmt;
use std::sync::Arc;

use tollway_core::{KeyedRule, Policy, Rule, RuleBill, RuleError};

#[doc(hidden)]
pub use self::call_site::CallSite;
use self::call_site::CallSiteRules;
pub use self::global::{GlobalAlreadySet, global, set_global};
pub use self::guard_outcome::{RateLimitExceeded, RunPermit};
pub use self::limited_function::LimitedFunction;
pub use self::registry::{RuleKeyError, RuleRegistry};
pub use self::rule_guard::{RateLimitError, RuleGuard, SelectorError};
pub use self::selector::{FromFunction, FromValue, IntoSelector, Selector, SelectorValue};
use crate::engine::BlockingEngine;
use crate::limiter::{AsyncLimiter, Limiter};

/// A namespace of rules that are resolved by a limiter. Clones share their rules and counts.
///
/// Functions that are not async are limited by calls that may block: over Redis the calling thread sleeps until the
/// answer is there. Async functions await it.
#[derive(Clone)]
pub struct RateLimit {
    limiter: AsyncLimiter,
    blocking: BlockingEngine,
    rules: Arc<NamespaceRules>,
}

struct NamespaceRules {
    registry: RuleRegistry,
    call_sites: CallSiteRules,
}

impl RateLimit {
    /// Returns a rate limit in the empty namespace, which counts in the store of this limiter. The limiter's own limits
    /// do not apply.
    pub fn new(limiter: impl Into<AsyncLimiter>) -> Self {
        Self::over(limiter.into(), "")
    }

    /// Returns a rate limit that counts in the memory of this process, by the machine's clock.
    pub fn in_memory() -> Self {
        Self::new(Limiter::new(Policy::default()))
    }

    /// Returns an empty namespace over the same limiter. The namespace is part of the name of every log, so that
    /// programs which share a store do not share counts by accident.
    pub fn with_namespace(&self, namespace: &str) -> Self {
        Self::over(self.limiter.clone(), namespace)
    }

    /// Returns a guard with this rule: a text such as `"user:10/5m"`, or a [`Rule`].
    pub fn limit(&self, rule: impl IntoRule) -> Result<RuleGuard<'static>, RuleError> {
        Ok(RuleGuard::from_rule(self.clone(), rule.into_rule()?))
    }

    /// Returns a guard with the rule that was defined under this key before.
    pub fn key(&self, key: &str) -> Result<RuleGuard<'static>, RuleKeyError> {
        Ok(RuleGuard::from_registered(self.clone(), self.registry().define(key, None)?))
    }

    /// Returns the limiter that decides.
    pub fn limiter(&self) -> &AsyncLimiter {
        &self.limiter
    }

    fn over(limiter: AsyncLimiter, namespace: &str) -> Self {
        let rules =
            NamespaceRules { registry: RuleRegistry::new(namespace), call_sites: CallSiteRules::default() };
        Self { blocking: limiter.engine().blocking(), limiter, rules: Arc::new(rules) }
    }

    fn registry(&self) -> &RuleRegistry {
        &self.rules.registry
    }

    #[inline]
    fn ask(&self, rule: &Arc<KeyedRule>, bill: &RuleBill<'_>) -> Result<RunPermit, RateLimitExceeded> {
        RunPermit::from_decision(self.blocking.resolve(bill), rule)
    }

    #[inline]
    async fn ask_async(
        &self,
        rule: &Arc<KeyedRule>,
        bill: &RuleBill<'_>,
    ) -> Result<RunPermit, RateLimitExceeded> {
        RunPermit::from_decision(self.limiter.engine().resolve(bill).await, rule)
    }
}

/// Writes the namespace only: the rules and the limiter would fill pages.
impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("namespace", &self.registry().namespace()).finish_non_exhaustive()
    }
}

/// A type that can be converted into a rule.
pub trait IntoRule {
    /// Returns the rule, or the error with the position of the mistake.
    fn into_rule(self) -> Result<Rule, RuleError>;
}

impl IntoRule for Rule {
    fn into_rule(self) -> Result<Rule, RuleError> {
        Ok(self)
    }
}

impl IntoRule for &str {
    fn into_rule(self) -> Result<Rule, RuleError> {
        self.parse()
    }
}

impl IntoRule for String {
    fn into_rule(self) -> Result<Rule, RuleError> {
        self.parse()
    }
}

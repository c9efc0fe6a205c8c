//! Rules on functions and blocks of code.
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
//! A rule is read where it is defined, and asked each time the code is reached. Code that is denied does not run, and a
//! denial is logged nowhere. Code that was allowed is logged before it runs: what it comes to changes nothing.
//!
//! [`#[tollway::limit]`](macro@crate::limit) says the same about a whole function, and finds most mistakes when it is compiled.

mod call_site;
mod exceeded;
mod function;
mod global;
mod registry;
mod rule_guard;
mod selector;

use std::sync::Arc;

use tollway_core::{KeyedRule, Policy, Rule, RuleBill, RuleError};

#[doc(hidden)]
pub use self::call_site::CallSite;
use self::call_site::Sites;
pub use self::exceeded::{Pass, RateLimitExceeded};
pub use self::function::LimitedFunction;
pub use self::global::{GlobalAlreadySet, global, set_global};
pub use self::registry::{RuleKeyError, RuleRegistry};
pub use self::rule_guard::{RateLimitError, RuleGuard, SelectorError};
pub use self::selector::{ByCall, ByValue, IntoSelector, Selector, SelectorValue};
use crate::engine::BlockingEngine;
use crate::limiter::{AsyncLimiter, Limiter};

/// A namespace of rules over a limiter. Clones are the same one.
///
/// Functions that are not async are limited by calls that may block: over Redis the calling thread sleeps until the answer
/// is there. Async functions await it.
#[derive(Clone)]
pub struct RateLimit {
    limiter: AsyncLimiter,
    blocking: BlockingEngine,
    rules: Arc<Rules>,
}

struct Rules {
    registry: RuleRegistry,
    sites: Sites,
}

impl RateLimit {
    /// Over this limiter, whose store has the logs, in the empty namespace. None of the limiter's own limits is asked.
    pub fn new(limiter: impl Into<AsyncLimiter>) -> Self {
        Self::over(limiter.into(), "")
    }

    /// In this process's memory, by the machine's clock.
    pub fn in_memory() -> Self {
        Self::new(Limiter::new(Policy::default()))
    }

    /// Another namespace over the same limiter, with no rules yet. It is part of the name of every log, so that programs
    /// which share a store do not share counts by accident.
    pub fn with_namespace(&self, namespace: &str) -> Self {
        Self::over(self.limiter.clone(), namespace)
    }

    /// A limit by this rule: a text such as `"user:10/5m"`, or a [`Rule`].
    pub fn limit(&self, rule: impl IntoRule) -> Result<RuleGuard<'static>, RuleError> {
        Ok(RuleGuard::by_rule(self.clone(), rule.into_rule()?))
    }

    /// A limit by the rule that was given under this key before.
    pub fn key(&self, key: &str) -> Result<RuleGuard<'static>, RuleKeyError> {
        Ok(RuleGuard::given(self.clone(), self.registry().define(key, None)?))
    }

    /// What decides.
    pub fn limiter(&self) -> &AsyncLimiter {
        &self.limiter
    }

    fn over(limiter: AsyncLimiter, namespace: &str) -> Self {
        let rules = Rules { registry: RuleRegistry::new(namespace), sites: Sites::default() };
        Self { blocking: limiter.engine().blocking(), limiter, rules: Arc::new(rules) }
    }

    fn registry(&self) -> &RuleRegistry {
        &self.rules.registry
    }

    #[inline]
    fn ask(&self, rule: &Arc<KeyedRule>, bill: &RuleBill<'_>) -> Result<Pass, RateLimitExceeded> {
        Pass::by(self.blocking.resolve(bill), rule)
    }

    #[inline]
    async fn ask_async(&self, rule: &Arc<KeyedRule>, bill: &RuleBill<'_>) -> Result<Pass, RateLimitExceeded> {
        Pass::by(self.limiter.engine().resolve(bill).await, rule)
    }
}

/// What a rule can be given as.
pub trait IntoRule {
    /// The rule, or what is wrong with it and where.
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

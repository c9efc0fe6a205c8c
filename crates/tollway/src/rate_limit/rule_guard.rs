//! A rule under a key, and where the values of its selectors come from.
//!
//! ```
//! # tollway::block_on(async {
//! use tollway::rate_limit::RateLimit;
//!
//! fn user() -> Option<String> {
//!     Some("vova".to_owned())
//! }
//!
//! let limits = RateLimit::in_memory();
//! let upload = limits.limit("And('user:10/5m', '100/s')")?.key("upload").selector("user", user);
//! upload.enter_async().await?; // Who is denied leaves here.
//!
//! let fetch = upload.wrap(async |page: u32| format!("page {page}"))?;
//! assert_eq!(fetch.call_async(7).await?, "page 7");
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! A block has no name, nor has a closure: without a key they are all counted together, under the empty one.

use std::sync::{Arc, OnceLock};

use thiserror::Error;
use tollway_core::{KeyedRule, OnFull, OnStoreFailure, Rule, RuleBill, RuleLimit};

use super::selector::SelectorSource;
use super::{
    IntoSelector, LimitedFunction, Pass, RateLimit, RateLimitExceeded, RuleKeyError, Selector, SelectorValue,
};

/// A limit for a block or a function. Made once it can be asked often, and from many threads.
pub struct RuleGuard<'a> {
    rate_limit: RateLimit,
    rules: Rules,
    selectors: Vec<(Box<str>, SelectorSource<'a>)>,
    rest: Option<Box<Supply<'a>>>,
}

/// Where the values of several selectors come from, by their names.
type Supply<'a> = dyn Fn(&str) -> Option<SelectorValue<'static>> + Send + Sync + 'a;

enum Rules {
    /// Given here. Whether the key had some already turns out when the first request comes.
    New {
        limit: RuleLimit,
        key: Option<Box<str>>,
        entered: OnceLock<Arc<KeyedRule>>,
    },
    Given(Arc<KeyedRule>),
}

/// Why something did not run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RateLimitError {
    /// It is over its limit.
    #[error(transparent)]
    Exceeded(#[from] RateLimitExceeded),
    /// Its key has no rules, or others.
    #[error(transparent)]
    Key(#[from] RuleKeyError),
    /// Nothing was said of one of its selectors.
    #[error(transparent)]
    Selector(#[from] SelectorError),
}

/// A rule names a selector that nobody supplies. One that has no value now is no error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the rule {rule} needs the selector {selector:?}, and nothing supplies it here")]
pub struct SelectorError {
    /// The selector.
    pub selector: String,
    /// The rule, in canonical form.
    pub rule: String,
}

impl<'a> RuleGuard<'a> {
    pub(super) fn by_rule(rate_limit: RateLimit, rule: Rule) -> Self {
        let rules = Rules::new(RuleLimit::new(rule), None);
        Self { rate_limit, rules, selectors: Vec::new(), rest: None }
    }

    pub(super) fn given(rate_limit: RateLimit, rule: Arc<KeyedRule>) -> Self {
        Self { rate_limit, rules: Rules::Given(rule), selectors: Vec::new(), rest: None }
    }

    /// Counted under this key, by whoever names it: others need not repeat the rule ([`RateLimit::key`]).
    pub fn key(mut self, key: &str) -> Self {
        self.rules = Rules::new(self.rules.limit().clone(), Some(key.into()));
        self
    }

    /// Where the value of a selector comes from: a value, or a function that is called for one at each request.
    pub fn selector<By>(mut self, name: &str, value: impl IntoSelector<'a, By>) -> Self {
        self.selectors.push((name.into(), value.into_source()));
        self
    }

    /// Where the values of all other selectors come from, by their names. `None` is for a name that it does not know, which is
    /// an error; a value that is `None` or empty is no value.
    pub fn selectors<V: Selector>(mut self, supply: impl Fn(&str) -> Option<V> + Send + Sync + 'a) -> Self {
        self.rest = Some(Box::new(move |name| Some(supply(name)?.value().into_owned())));
        self
    }

    /// With this for new identifiers when there is no room for them. To deny is the default.
    pub fn on_full(mut self, on_full: OnFull) -> Self {
        self.rules = match self.rules {
            Rules::New { limit, key, .. } => Rules::new(limit.with_on_full(on_full), key),
            Rules::Given(rule) => Rules::Given(Arc::new(KeyedRule::clone(&rule).with_on_full(on_full))),
        };
        self
    }

    /// With this for when the store gives no answer. To allow is the default.
    pub fn on_store_failure(mut self, then: OnStoreFailure) -> Self {
        self.rules = match self.rules {
            Rules::New { limit, key, .. } => Rules::new(limit.with_on_store_failure(then), key),
            Rules::Given(rule) => Rules::Given(Arc::new(KeyedRule::clone(&rule).with_on_store_failure(then))),
        };
        self
    }

    /// Gives the rule to the key now, which must have none yet. For keys that are used in several places: whichever is
    /// reached first, the rule is there.
    pub fn define(mut self) -> Result<Self, RuleKeyError> {
        if let Rules::New { limit, key, entered } = self.rules {
            let registry = self.rate_limit.registry();
            self.rules = Rules::Given(match (entered.into_inner(), key) {
                (Some(rule), _) => rule,
                (None, Some(key)) => registry.define(&key, Some(limit))?,
                (None, None) => registry.unnamed("", limit),
            });
        }
        Ok(self)
    }

    /// Asks whether the code that follows may run: `limit.enter()?`.
    pub fn enter(&self) -> Result<Pass, RateLimitError> {
        let rule = self.rule()?;
        Ok(self.rate_limit.ask(rule, &self.bill(rule)?)?)
    }

    /// The same, awaited instead of slept for.
    pub async fn enter_async(&self) -> Result<Pass, RateLimitError> {
        let rule = self.rule()?;
        Ok(self.rate_limit.ask_async(rule, &self.bill(rule)?).await?)
    }

    /// Runs `code`, if it may run.
    pub fn run<R>(&self, code: impl FnOnce() -> R) -> Result<R, RateLimitError> {
        self.enter()?;
        Ok(code())
    }

    /// Awaits `code`, if it may run. A future that is denied is dropped without ever having been polled.
    pub async fn run_async<R>(&self, code: impl Future<Output = R>) -> Result<R, RateLimitError> {
        self.enter_async().await?;
        Ok(code.await)
    }

    /// The same function, which runs only when it may. It is counted under the limit's key, which must have no rule yet.
    pub fn wrap<F>(self, function: F) -> Result<LimitedFunction<'a, F>, RuleKeyError> {
        Ok(LimitedFunction::new(self.define()?, function))
    }

    /// The rule, known to the registry from the first request on.
    fn rule(&self) -> Result<&Arc<KeyedRule>, RuleKeyError> {
        let (limit, key, entered) = match &self.rules {
            Rules::New { limit, key, entered } => (limit, key, entered),
            Rules::Given(rule) => return Ok(rule),
        };
        if let Some(rule) = entered.get() {
            return Ok(rule);
        }
        let registry = self.rate_limit.registry();
        let rule = match key {
            Some(key) => registry.enter(key, Some(limit.clone()))?,
            None => registry.unnamed("", limit.clone()),
        };
        Ok(entered.get_or_init(|| rule))
    }

    fn bill<'r>(&self, rule: &'r KeyedRule) -> Result<RuleBill<'r>, SelectorError> {
        rule.bill(|selector| {
            let known = self.selectors.iter().find(|(name, _)| **name == *selector);
            let value = known.map(|(_, source)| source.value());
            let value = value.or_else(|| self.rest.as_ref()?(selector));
            value.map(Some).ok_or_else(|| SelectorError::new(selector, rule))
        })
    }
}

impl Rules {
    fn new(limit: RuleLimit, key: Option<Box<str>>) -> Self {
        Self::New { limit, key, entered: OnceLock::new() }
    }

    fn limit(&self) -> &RuleLimit {
        match self {
            Self::New { limit, .. } => limit,
            Self::Given(rule) => rule.limit(),
        }
    }
}

impl SelectorError {
    pub(super) fn new(selector: &str, rule: &KeyedRule) -> Self {
        Self { selector: selector.to_owned(), rule: rule.limit().rule().to_string() }
    }
}

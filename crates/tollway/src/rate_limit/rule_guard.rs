//! Guards a block or a function with a rule, its key, and the sources of its selectors' values.
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
//! Blocks and closures have no names: without a key they are all counted together, under the empty key.

use std::fmt;
use std::sync::{Arc, OnceLock};

use thiserror::Error;
use tollway_core::rule::{RuleStep, RuleValues};
use tollway_core::{KeyedRule, OnFull, OnStoreFailure, Rule, RuleBill, RuleLimit};

use super::selector::SelectorSource;
use super::{
    IntoSelector, LimitedFunction, RateLimit, RateLimitExceeded, RuleKeyError, RunPermit, Selector,
    SelectorValue,
};
use crate::block_on;
use crate::engine::Engine;

/// A guard that decides whether a block or a function may run. It is made once and can be used by many threads.
#[must_use = "a guard limits nothing until `enter`, `run` or `wrap` is called"]
pub struct RuleGuard<'a> {
    rate_limit: RateLimit,
    rule: GuardRule,
    selectors: Vec<(Box<str>, SelectorSource<'a>)>,
    lookup: Option<Box<SelectorLookup<'a>>>,
}

/// A function that supplies the value of a selector by its name.
type SelectorLookup<'a> = dyn Fn(&str) -> Option<SelectorValue<'static>> + Send + Sync + 'a;

enum GuardRule {
    /// A rule that was given to this guard. It is registered when the guard is first used, which may fail.
    Unregistered {
        limit: RuleLimit,
        key: Option<Box<str>>,
        registered: OnceLock<Arc<KeyedRule>>,
    },
    Registered(Arc<KeyedRule>),
}

/// The reason for which some code did not run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RateLimitError {
    /// The rule denied it.
    #[error(transparent)]
    Exceeded(#[from] RateLimitExceeded),
    /// The key has no rule, or another one.
    #[error(transparent)]
    Key(#[from] RuleKeyError),
    /// A selector of the rule is not supplied.
    #[error(transparent)]
    Selector(#[from] SelectorError),
}

/// A selector of the rule is not supplied at all. (A selector that is supplied but has no value is not an error.)
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("rule \"{rule}\" needs a value for selector {selector:?}, but the call has none")]
#[non_exhaustive]
pub struct SelectorError {
    /// The selector that is not supplied.
    pub selector: String,
    /// The rule that needs it, in canonical form.
    pub rule: String,
}

impl<'a> RuleGuard<'a> {
    pub(super) fn from_rule(rate_limit: RateLimit, rule: Rule) -> Self {
        let rule = GuardRule::new(RuleLimit::new(rule), None);
        Self { rate_limit, rule, selectors: Vec::new(), lookup: None }
    }

    pub(super) fn from_registered(rate_limit: RateLimit, rule: Arc<KeyedRule>) -> Self {
        Self { rate_limit, rule: GuardRule::Registered(rule), selectors: Vec::new(), lookup: None }
    }

    /// Sets the key that the code is counted under. Other code can use the same rule and counts by this key
    /// ([`RateLimit::key`]).
    pub fn key(mut self, key: &str) -> Self {
        self.rule = GuardRule::new(self.rule.limit().clone(), Some(key.into()));
        self
    }

    /// Supplies a selector with a value, or with a function that is called for a value at each request that needs it: a
    /// request that other parts of the rule deny already does not. Its `retry_after` is then that of the parts that
    /// were looked at.
    pub fn selector<Origin>(mut self, name: &str, value: impl IntoSelector<'a, Origin>) -> Self {
        self.selectors.push((name.into(), value.into_source()));
        self
    }

    /// Supplies all other selectors with a function that gets their names. If it returns `None`, the selector is not
    /// supplied, which is an error; a value that is itself `None` or empty counts as no value.
    pub fn selectors<V: Selector>(mut self, supply: impl Fn(&str) -> Option<V> + Send + Sync + 'a) -> Self {
        self.lookup = Some(Box::new(move |name| Some(supply(name)?.value().into_owned())));
        self
    }

    /// Sets the answer for new identifiers when the store is full (default: deny).
    pub fn on_full(mut self, on_full: OnFull) -> Self {
        self.rule = match self.rule {
            GuardRule::Unregistered { limit, key, .. } => GuardRule::new(limit.with_on_full(on_full), key),
            GuardRule::Registered(rule) => {
                GuardRule::Registered(Arc::new(KeyedRule::clone(&rule).with_on_full(on_full)))
            }
        };
        self
    }

    /// Sets the answer when the store fails (default: allow).
    pub fn on_store_failure(mut self, then: OnStoreFailure) -> Self {
        self.rule = match self.rule {
            GuardRule::Unregistered { limit, key, .. } => {
                GuardRule::new(limit.with_on_store_failure(then), key)
            }
            GuardRule::Registered(rule) => {
                GuardRule::Registered(Arc::new(KeyedRule::clone(&rule).with_on_store_failure(then)))
            }
        };
        self
    }

    /// Registers the rule under its key now; the key must not have one yet. Use it for keys that are used in several
    /// places: the rule is then there, whichever place is reached first.
    pub fn define(self) -> Result<(), RuleKeyError> {
        self.registered().map(drop)
    }

    fn registered(mut self) -> Result<Self, RuleKeyError> {
        if let GuardRule::Unregistered { limit, key, registered } = self.rule {
            let registry = self.rate_limit.registry();
            self.rule = GuardRule::Registered(match (registered.into_inner(), key) {
                (Some(rule), _) => rule,
                (None, Some(key)) => registry.define(&key, Some(limit))?,
                (None, None) => registry.unregistered("", limit),
            });
        }
        Ok(self)
    }

    /// Resolves the rule, and returns a permit if the code that follows is allowed to run: `limit.enter()?`.
    pub fn enter(&self) -> Result<RunPermit, RateLimitError> {
        let rule = self.rule()?;
        if self.asks_in_steps(rule) {
            return block_on(self.enter_in_steps(rule, self.rate_limit.blocking.engine()));
        }
        Ok(self.rate_limit.ask(rule, &self.bill(rule)?)?)
    }

    /// Resolves the rule like [`enter`](Self::enter), and awaits the store instead of blocking the thread.
    pub async fn enter_async(&self) -> Result<RunPermit, RateLimitError> {
        let rule = self.rule()?;
        if self.asks_in_steps(rule) {
            return self.enter_in_steps(rule, self.rate_limit.limiter.engine()).await;
        }
        Ok(self.rate_limit.ask_async(rule, &self.bill(rule)?).await?)
    }

    /// Calls the functions of selectors one by one, as far as the rule needs their values.
    async fn enter_in_steps(
        &self,
        rule: &Arc<KeyedRule>,
        engine: &Engine,
    ) -> Result<RunPermit, RateLimitError> {
        let mut values = self.known_values(rule)?;
        let decision = loop {
            match values.step(rule) {
                RuleStep::Ask { log, selector } => values.answer(log, Some(self.value(selector, rule)?)),
                RuleStep::Look => match engine.inspect_rule(&values.bill(rule)).await {
                    Ok(seen) => values.looked(seen.at, seen.reached_until),
                    // Without an answer of the store the rule's `on_store_failure` decides, which needs all values.
                    Err(_) => values.ask_all(),
                },
                RuleStep::Deny(decision) => break decision,
                RuleStep::Resolve => break engine.resolve(&values.bill(rule)).await,
            }
        };
        Ok(RunPermit::from_decision(decision, rule)?)
    }

    /// Runs `code`, if the rule allows it.
    pub fn run<R>(&self, code: impl FnOnce() -> R) -> Result<R, RateLimitError> {
        self.enter()?;
        Ok(code())
    }

    /// Awaits `code`, if the rule allows it. A future that is denied is dropped without being polled.
    pub async fn run_async<R>(&self, code: impl Future<Output = R>) -> Result<R, RateLimitError> {
        self.enter_async().await?;
        Ok(code.await)
    }

    /// Wraps a function, so that it runs only if the rule allows it. The key must not have a rule yet.
    pub fn wrap<F>(self, function: F) -> Result<LimitedFunction<'a, F>, RuleKeyError> {
        Ok(LimitedFunction::new(self.registered()?, function))
    }

    /// Returns the rule, and registers it if this is its first use.
    fn rule(&self) -> Result<&Arc<KeyedRule>, RuleKeyError> {
        let (limit, key, registered) = match &self.rule {
            GuardRule::Unregistered { limit, key, registered } => (limit, key, registered),
            GuardRule::Registered(rule) => return Ok(rule),
        };
        if let Some(rule) = registered.get() {
            return Ok(rule);
        }
        let registry = self.rate_limit.registry();
        let rule = match key {
            Some(key) => registry.enter(key, Some(limit.clone()))?,
            None => registry.unregistered("", limit.clone()),
        };
        Ok(registered.get_or_init(|| rule))
    }

    fn bill<'r>(&self, rule: &'r KeyedRule) -> Result<RuleBill<'r>, SelectorError> {
        rule.bill(|selector| self.value(selector, rule).map(Some))
    }

    /// Returns whether a selector's function may not have to be called. Otherwise every value is needed, and the store
    /// is asked once.
    fn asks_in_steps(&self, rule: &KeyedRule) -> bool {
        let calls = self.lookup.is_some() || self.selectors.iter().any(|(_, source)| source.is_function());
        calls && rule.limit().rule().logs().len() > 1
    }

    /// Returns the values that need no call. A selector that nothing supplies is an error, even if it is not needed.
    fn known_values<'s>(&'s self, rule: &KeyedRule) -> Result<RuleValues<SelectorValue<'s>>, SelectorError> {
        let mut missing = None;
        let values = RuleValues::new(rule, |selector| match self.source(selector) {
            Some(source) => (!source.is_function()).then(|| Some(source.value())),
            None => {
                if self.lookup.is_none() {
                    missing.get_or_insert_with(|| SelectorError::new(selector, rule));
                }
                None
            }
        });
        missing.map_or(Ok(values), Err)
    }

    fn value(&self, selector: &str, rule: &KeyedRule) -> Result<SelectorValue<'_>, SelectorError> {
        let value = self.source(selector).map(SelectorSource::value);
        let value = value.or_else(|| self.lookup.as_ref()?(selector));
        value.ok_or_else(|| SelectorError::new(selector, rule))
    }

    fn source(&self, selector: &str) -> Option<&SelectorSource<'a>> {
        self.selectors.iter().find(|(name, _)| **name == *selector).map(|(_, source)| source)
    }
}

/// Writes the rule and the names of its selectors. Their values are left out: they are names or addresses of people.
impl fmt::Debug for RuleGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let selectors: Vec<_> = self.selectors.iter().map(|(name, _)| name).collect();
        f.debug_struct("RuleGuard")
            .field("rate_limit", &self.rate_limit)
            .field("rule", &self.rule.limit().rule().to_string())
            .field("selectors", &selectors)
            .finish_non_exhaustive()
    }
}

impl GuardRule {
    fn new(limit: RuleLimit, key: Option<Box<str>>) -> Self {
        Self::Unregistered { limit, key, registered: OnceLock::new() }
    }

    fn limit(&self) -> &RuleLimit {
        match self {
            Self::Unregistered { limit, .. } => limit,
            Self::Registered(rule) => rule.limit(),
        }
    }
}

impl SelectorError {
    pub(super) fn new(selector: &str, rule: &KeyedRule) -> Self {
        Self { selector: selector.to_owned(), rule: rule.limit().rule().to_string() }
    }
}

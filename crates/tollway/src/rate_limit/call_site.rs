//! The code behind `#[tollway::limit]`: one static for each function, which caches the function's rule.
//!
//! The rule is in the program as text. It is parsed when the function is first called in a namespace. Most programs
//! have one namespace, and its rule is found without a lock.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tollway_core::{KeyedRule, OnFull, OnStoreFailure, RuleBill, RuleLimit};

use super::{
    RateLimit, RateLimitError, RateLimitExceeded, RuleKeyError, RuleRegistry, RunPermit, SelectorError,
    SelectorValue,
};

/// The static that the macro puts into a function. It is not meant to be used by hand.
#[derive(Debug)]
pub struct CallSite {
    /// The key that the function is counted under, or the name of the function.
    name: &'static str,
    rule: Option<&'static str>,
    on_full: Option<OnFull>,
    on_store_failure: Option<OnStoreFailure>,
    /// The number of the namespace in which the function was called first, and its rule there.
    first: OnceLock<(u64, Arc<KeyedRule>)>,
}

/// The rules of all call sites that were used in one namespace. Their number is bounded by the functions in the
/// program.
pub(super) struct CallSiteRules {
    /// A number that is never used again, unlike an address: a new namespace could be allocated where an old one was.
    number: u64,
    rules: Mutex<HashMap<usize, Arc<KeyedRule>>>,
}

/// A rule that is borrowed from the cache of the call site, or owned.
type CachedRule = Cow<'static, Arc<KeyedRule>>;

impl CallSite {
    /// Returns a call site that is counted under this name. Without a rule, the key must have been defined before.
    pub const fn new(name: &'static str, rule: Option<&'static str>) -> Self {
        Self { name, rule, on_full: None, on_store_failure: None, first: OnceLock::new() }
    }

    /// Sets the answer for new identifiers when the store is full.
    pub const fn with_on_full(mut self, on_full: OnFull) -> Self {
        self.on_full = Some(on_full);
        self
    }

    /// Sets the answer when the store fails.
    pub const fn with_on_store_failure(mut self, on_store_failure: OnStoreFailure) -> Self {
        self.on_store_failure = Some(on_store_failure);
        self
    }

    /// Returns the rule of a function that has no key.
    #[inline]
    pub fn own_rule(&'static self, rate_limit: &RateLimit) -> CachedRule {
        let Ok(found) = self.find::<Infallible>(rate_limit, |registry| {
            let limit = self.limit().expect("without a key the macro asks for a rule");
            Ok(registry.unregistered(self.name, limit))
        });
        found
    }

    /// Returns the rule of a function that has a key.
    #[inline]
    pub fn shared_rule(&'static self, rate_limit: &RateLimit) -> Result<CachedRule, RateLimitError> {
        Ok(self.find::<RuleKeyError>(rate_limit, |registry| registry.define(self.name, self.limit()))?)
    }

    /// Returns the bill for a rule whose selectors were checked by the macro.
    #[inline]
    pub fn own_bill<'r>(rule: &'r KeyedRule, values: &[(&str, SelectorValue<'_>)]) -> RuleBill<'r> {
        Self::bill(rule, values).expect("the macro compared the selectors with the rule")
    }

    /// Returns the bill for a rule that the macro did not see: a selector may be missing.
    #[inline]
    pub fn shared_bill<'r>(
        rule: &'r KeyedRule,
        values: &[(&str, SelectorValue<'_>)],
    ) -> Result<RuleBill<'r>, RateLimitError> {
        Ok(Self::bill(rule, values)?)
    }

    /// Resolves the rule, and returns a permit if the function is allowed to run.
    #[inline]
    pub fn ask(
        rate_limit: &RateLimit,
        rule: &Arc<KeyedRule>,
        bill: &RuleBill<'_>,
    ) -> Result<RunPermit, RateLimitExceeded> {
        rate_limit.ask(rule, bill)
    }

    /// Resolves the rule like [`ask`](Self::ask), and awaits the store instead of blocking the thread.
    #[inline]
    pub async fn ask_async(
        rate_limit: &RateLimit,
        rule: &Arc<KeyedRule>,
        bill: &RuleBill<'_>,
    ) -> Result<RunPermit, RateLimitExceeded> {
        rate_limit.ask_async(rule, bill).await
    }

    #[inline]
    fn find<E>(
        &'static self,
        rate_limit: &RateLimit,
        define: impl FnOnce(&RuleRegistry) -> Result<Arc<KeyedRule>, E>,
    ) -> Result<CachedRule, E> {
        match self.first.get() {
            Some((number, rule)) if *number == rate_limit.rules.call_sites.number => Ok(Cow::Borrowed(rule)),
            _ => self.look_up(rate_limit, define),
        }
    }

    #[cold]
    fn look_up<E>(
        &'static self,
        rate_limit: &RateLimit,
        define: impl FnOnce(&RuleRegistry) -> Result<Arc<KeyedRule>, E>,
    ) -> Result<CachedRule, E> {
        let call_sites = &rate_limit.rules.call_sites;
        // Locked until the rule is defined. Otherwise two threads that call the function first would both define its
        // key, and one of them would fail with `DefinedTwice`.
        let mut rules = call_sites.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let place = ptr::from_ref(self).addr();
        let rule = match rules.get(&place) {
            Some(rule) => Arc::clone(rule),
            None => {
                let rule = self.with_own_answers(define(rate_limit.registry())?);
                rules.insert(place, Arc::clone(&rule));
                rule
            }
        };
        let _ = self.first.set((call_sites.number, Arc::clone(&rule)));
        Ok(Cow::Owned(rule))
    }

    fn limit(&self) -> Option<RuleLimit> {
        Some(RuleLimit::new(self.rule?.parse().expect("the macro read the rule")))
    }

    /// Applies the `on_full` and `on_store_failure` of this call site, even if the rule was defined elsewhere.
    fn with_own_answers(&self, mut rule: Arc<KeyedRule>) -> Arc<KeyedRule> {
        if let Some(on_full) = self.on_full {
            rule = Arc::new(KeyedRule::clone(&rule).with_on_full(on_full));
        }
        if let Some(on_store_failure) = self.on_store_failure {
            rule = Arc::new(KeyedRule::clone(&rule).with_on_store_failure(on_store_failure));
        }
        rule
    }

    #[inline]
    fn bill<'r>(
        rule: &'r KeyedRule,
        values: &[(&str, SelectorValue<'_>)],
    ) -> Result<RuleBill<'r>, SelectorError> {
        rule.bill(|selector| match values.iter().find(|(name, _)| *name == selector) {
            Some((_, value)) => Ok(Some(value)),
            None => Err(SelectorError::new(selector, rule)),
        })
    }
}

impl Default for CallSiteRules {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), rules: Mutex::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(rule: &KeyedRule) -> String {
        CallSite::own_bill(rule, &[]).identifiers()[0].as_deref().unwrap().to_owned()
    }

    #[test]
    fn each_namespace_has_a_rule_of_its_own() {
        static SITE: CallSite = CallSite::new("do_stuff", Some("10/s"));
        let [one, other] = ["one", "other"].map(|name| RateLimit::in_memory().with_namespace(name));
        for _ in 0..2 {
            assert_eq!(name(&SITE.own_rule(&one)), "one:do_stuff");
            assert_eq!(name(&SITE.own_rule(&other)), "other:do_stuff");
        }
        assert!(matches!(SITE.own_rule(&one), Cow::Borrowed(_)), "the first is found without a lock");
    }

    #[test]
    fn a_site_defines_its_key_once_however_many_threads_come_first() {
        static SITE: CallSite = CallSite::new("cats", Some("10/s"));
        static OTHER: CallSite = CallSite::new("cats", Some("10/s"));
        static WITHOUT: CallSite = CallSite::new("cats", None);
        let limits = RateLimit::in_memory();
        let not_yet = RuleKeyError::NotDefined { key: "cats".to_owned() };
        assert_eq!(WITHOUT.shared_rule(&limits).unwrap_err(), not_yet.into());
        std::thread::scope(|scope| {
            let call = || SITE.shared_rule(&limits).map(|rule| name(&rule));
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(call)).collect();
            threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), Ok(":cats".to_owned())));
        });
        assert_eq!(name(&WITHOUT.shared_rule(&limits).unwrap()), ":cats");
        let twice = RuleKeyError::DefinedTwice { key: "cats".to_owned() };
        assert_eq!(OTHER.shared_rule(&limits).unwrap_err(), twice.into());
    }

    #[test]
    fn a_site_answers_in_its_own_way() {
        static FIRST: CallSite = CallSite::new("cats", Some("10/s"));
        static STRICT: CallSite = CallSite::new("cats", None)
            .with_on_full(OnFull::Allow)
            .with_on_store_failure(OnStoreFailure::Deny);
        let limits = RateLimit::in_memory();
        let answers = |rule: CachedRule| (rule.limit().on_full(), rule.limit().on_store_failure());
        let first = FIRST.shared_rule(&limits).unwrap();
        assert_eq!(answers(first), (OnFull::Deny, OnStoreFailure::Allow));
        let strict = STRICT.shared_rule(&limits).unwrap();
        assert_eq!(answers(strict), (OnFull::Allow, OnStoreFailure::Deny));
    }
}

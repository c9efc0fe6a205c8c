//! The registry of the rules in one namespace: finds a rule by the key that it was defined under.
//!
//! ```
//! use tollway::core::RuleLimit;
//! use tollway::rate_limit::RuleRegistry;
//!
//! let shop = RuleRegistry::new("shop");
//! let cats = shop.define("cats", Some(RuleLimit::new("10/s".parse()?)))?;
//! assert_eq!(shop.define("cats", None)?, cats); // The rules given before.
//! assert!(shop.define("cats", Some(RuleLimit::new("20/s".parse()?))).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A function is defined once, but a block of code is entered again and again. So a second definition of a key is a
//! mistake in a function, while in a block it is the same block again, if the rule is the same.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError, RwLock};

use thiserror::Error;
use tollway_core::{KeyedRule, RuleLimit};

/// A map that finds the rules of a namespace by key. Keys are literals in programs, so their number is bounded.
#[derive(Debug, Default)]
pub struct RuleRegistry {
    namespace: Box<str>,
    rules: RwLock<HashMap<Box<str>, Arc<KeyedRule>>>,
}

/// A key that has no rule yet, or has one already.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleKeyError {
    /// The key has a rule already.
    #[error("key {key:?} already has rules; give them once, then use the key alone")]
    DefinedTwice {
        /// The key that was looked up.
        key: String,
    },
    /// The key has no rule yet.
    #[error("key {key:?} has no rules yet; give them where it is first used")]
    NotDefined {
        /// The key that was looked up.
        key: String,
    },
}

impl RuleRegistry {
    /// Returns an empty registry for this namespace, whose name may be empty.
    pub fn new(namespace: &str) -> Self {
        Self { namespace: namespace.into(), rules: RwLock::default() }
    }

    /// Returns the namespace. It is part of the name of every log, so that two programs can share a store.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the rule of a key, for a function. With a `limit`, the key must be new; without one, it must be defined.
    pub fn define(&self, key: &str, limit: Option<RuleLimit>) -> Result<Arc<KeyedRule>, RuleKeyError> {
        match limit {
            None => self.registered(key),
            Some(limit) => self.register(key, limit, |_| false),
        }
    }

    /// Returns the rule of a key, for a block, which is entered again and again. With a `limit`, the key must be new or
    /// have the same rule; without one, it must be defined.
    pub fn enter(&self, key: &str, limit: Option<RuleLimit>) -> Result<Arc<KeyedRule>, RuleKeyError> {
        let Some(limit) = limit else { return self.registered(key) };
        match self.registered(key) {
            Ok(before) if *before.limit() == limit => Ok(before),
            _ => self.register(key, limit.clone(), |before| *before.limit() == limit),
        }
    }

    /// Returns a rule that is counted under this name and not registered: the name of a function, or the empty key of
    /// blocks. Rules with the same name share their counts.
    pub fn unregistered(&self, name: &str, limit: RuleLimit) -> Arc<KeyedRule> {
        Arc::new(KeyedRule::new(limit, &self.namespace, name))
    }

    fn registered(&self, key: &str) -> Result<Arc<KeyedRule>, RuleKeyError> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.get(key).cloned().ok_or_else(|| RuleKeyError::NotDefined { key: key.to_owned() })
    }

    fn register(
        &self,
        key: &str,
        limit: RuleLimit,
        fits: impl Fn(&KeyedRule) -> bool,
    ) -> Result<Arc<KeyedRule>, RuleKeyError> {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        match rules.entry(key.into()) {
            Entry::Occupied(before) if fits(before.get()) => Ok(Arc::clone(before.get())),
            Entry::Occupied(_) => Err(RuleKeyError::DefinedTwice { key: key.to_owned() }),
            Entry::Vacant(place) => Ok(Arc::clone(place.insert(self.unregistered(key, limit)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Option<RuleLimit> {
        Some(RuleLimit::new(text.parse().unwrap()))
    }

    fn twice(key: &str) -> RuleKeyError {
        RuleKeyError::DefinedTwice { key: key.to_owned() }
    }

    fn not_yet(key: &str) -> RuleKeyError {
        RuleKeyError::NotDefined { key: key.to_owned() }
    }

    #[test]
    fn a_function_gives_the_rules_of_a_key_once() {
        let registry = RuleRegistry::new("shop");
        assert_eq!(registry.define("cats", None), Err(not_yet("cats")));
        let cats = registry.define("cats", rules("user:10/s")).unwrap();
        for again in ["user:10/s", "5/s"] {
            assert_eq!(registry.define("cats", rules(again)), Err(twice("cats")));
        }
        assert!(Arc::ptr_eq(&cats, &registry.define("cats", None).unwrap()));
        assert_eq!(registry.define("dogs", None), Err(not_yet("dogs")));
    }

    #[test]
    fn a_block_may_give_the_same_rules_again() {
        let registry = RuleRegistry::new("");
        assert_eq!(registry.enter("login", None), Err(not_yet("login")));
        let login = registry.enter("login", rules("100/24h")).unwrap();
        for again in [rules("100/24h"), rules("100/d"), None] {
            assert!(Arc::ptr_eq(&login, &registry.enter("login", again).unwrap()));
        }
        assert_eq!(registry.enter("login", rules("100/h")), Err(twice("login")));
        assert_eq!(registry.define("login", rules("100/d")), Err(twice("login")));
        assert!(Arc::ptr_eq(&login, &registry.define("login", None).unwrap()));
    }

    #[test]
    fn what_is_counted_under_a_name_is_not_remembered() {
        let registry = RuleRegistry::new("shop");
        let [one, other] = ["1/s", "2/s"].map(|rate| registry.unregistered("do_stuff", rules(rate).unwrap()));
        let name = |rule: &KeyedRule| {
            let bill = rule.bill(|_| Ok::<_, ()>(None::<&str>)).unwrap();
            bill.identifiers()[0].as_deref().map(str::to_owned)
        };
        assert_eq!((name(&one), name(&other)), (Some("shop:do_stuff".into()), Some("shop:do_stuff".into())));
        assert_eq!(registry.define("do_stuff", None), Err(not_yet("do_stuff")));
    }

    #[test]
    fn of_many_threads_one_defines_a_key() {
        let registry = RuleRegistry::new("");
        let defined = std::thread::scope(|scope| {
            let define = |_| scope.spawn(|| registry.define("cats", rules("1/s")).is_ok());
            let threads: Vec<_> = (0..8).map(define).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|ok| *ok).count()
        });
        assert_eq!(defined, 1);
    }
}

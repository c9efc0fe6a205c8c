//! A rule under a key, whose logs have names: what is asked when a request comes.
//!
//! ```
//! use tollway_core::rule::{KeyedRule, RuleLimit};
//!
//! let upload = KeyedRule::new(RuleLimit::new("And('10/s', 'user:100/h')".parse()?), "shop", "upload");
//! let bill = upload.bill(|_selector| Ok::<_, ()>(Some("vova"))).unwrap();
//! let names: Vec<_> = bill.identifiers().iter().flatten().collect();
//! assert_eq!(names, ["shop:upload", "shop:upload:user:vova"]);
//! # Ok::<(), tollway_core::RuleError>(())
//! ```
//!
//! An empty part leaves its colon: `:upload` has no namespace. So no two names collide, whatever they contain.

use std::borrow::Cow;

use super::{LogName, Rule};
use crate::limit::{OnFull, OnStoreFailure};
use crate::local_share::LocalShare;

/// A rule, and the answers that are given when the store is full or unreachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLimit {
    rule: Rule,
    on_full: OnFull,
    on_store_failure: OnStoreFailure,
}

/// A rule that is counted under a key, with the names of its logs up to the values of selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedRule {
    limit: RuleLimit,
    key: Box<str>,
    /// One for each log of the rule: all of its name, or as much as comes before the value.
    stems: Box<[Box<str>]>,
}

/// The bill of one request under a rule: it adds an entry to each of these logs.
#[derive(Clone, Debug)]
pub struct RuleBill<'a> {
    limit: Cow<'a, RuleLimit>,
    identifiers: Identifiers<'a>,
}

/// The name of a log; `None` where the selector has no value.
pub type RuleLogName<'a> = Option<LogName<'a>>;

/// One of them is by far the most common, and needs no memory.
#[derive(Clone, Debug)]
enum Identifiers<'a> {
    One([RuleLogName<'a>; 1]),
    Several(Vec<RuleLogName<'a>>),
}

impl RuleLimit {
    /// Makes a rule that denies when the store is full, and allows when it is unreachable.
    pub fn new(rule: Rule) -> Self {
        Self { rule, on_full: OnFull::default(), on_store_failure: OnStoreFailure::default() }
    }

    /// Sets the answer to new identifiers when the store has no room for them (default: deny).
    pub fn with_on_full(mut self, on_full: OnFull) -> Self {
        self.on_full = on_full;
        self
    }

    /// Sets the answer when the store gives none (default: allow).
    pub fn with_on_store_failure(mut self, on_store_failure: OnStoreFailure) -> Self {
        self.on_store_failure = on_store_failure;
        self
    }

    /// Returns the rule itself.
    pub const fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Returns the answer to a new identifier when the store has no room for it.
    pub const fn on_full(&self) -> OnFull {
        self.on_full
    }

    /// Returns the answer that replaces the store's when it gives none.
    pub const fn on_store_failure(&self) -> OnStoreFailure {
        self.on_store_failure
    }
}

impl KeyedRule {
    /// Makes a rule that is counted under these names. Both may be empty.
    pub fn new(limit: RuleLimit, namespace: &str, key: &str) -> Self {
        let stem = |selector: Option<&str>| {
            let mut stem = LogName::starting("");
            stem.escape(namespace.as_bytes());
            stem.push(b":");
            stem.escape(key.as_bytes());
            if let Some(selector) = selector {
                stem.push(b":");
                stem.escape(selector.as_bytes());
                stem.push(b":");
            }
            Box::from(&*stem)
        };
        let stems = limit.rule.logs().iter().map(|log| stem(log.selector())).collect();
        Self { limit, key: key.into(), stems }
    }

    /// Sets the answer to new identifiers when the store has no room for them (default: deny).
    pub fn with_on_full(mut self, on_full: OnFull) -> Self {
        self.limit.on_full = on_full;
        self
    }

    /// Sets the answer when the store gives none (default: allow).
    pub fn with_on_store_failure(mut self, on_store_failure: OnStoreFailure) -> Self {
        self.limit.on_store_failure = on_store_failure;
        self
    }

    /// Returns the rule with its answers for a full or unreachable store.
    pub const fn limit(&self) -> &RuleLimit {
        &self.limit
    }

    /// Returns the key that it is counted under, within its namespace.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Makes the bill of a request whose selectors have these values. `None` and an empty value are no value. An error
    /// of `value` is returned.
    #[inline]
    pub fn bill<V: AsRef<[u8]>, E>(
        &self,
        mut value: impl FnMut(&str) -> Result<Option<V>, E>,
    ) -> Result<RuleBill<'_>, E> {
        let mut identifier = |index: usize| -> Result<RuleLogName<'_>, E> {
            let stem = &*self.stems[index];
            let Some(selector) = self.limit.rule.logs()[index].selector() else {
                return Ok(Some(LogName::whole(stem)));
            };
            let named = |value: V| {
                let mut name = LogName::starting(stem);
                name.escape(value.as_ref());
                name
            };
            Ok(value(selector)?.filter(|value| !value.as_ref().is_empty()).map(named))
        };
        let identifiers = match self.stems.len() {
            1 => Identifiers::One([identifier(0)?]),
            many => Identifiers::Several((0..many).map(identifier).collect::<Result<_, _>>()?),
        };
        Ok(RuleBill { limit: Cow::Borrowed(&self.limit), identifiers })
    }
}

impl RuleBill<'_> {
    /// Returns the rule that decides it.
    pub fn limit(&self) -> &RuleLimit {
        &self.limit
    }

    /// Returns the names of the rule's logs, in their order.
    pub fn identifiers(&self) -> &[RuleLogName<'_>] {
        match &self.identifiers {
            Identifiers::One(one) => one,
            Identifiers::Several(several) => several,
        }
    }

    /// Returns the same bill with this share of every count. A count that would be zero becomes one, unless it was
    /// zero.
    pub fn share(&self, share: LocalShare) -> Self {
        let limit = RuleLimit { rule: self.limit.rule.share(share), ..*self.limit };
        Self { limit: Cow::Owned(limit), identifiers: self.identifiers.clone() }
    }

    /// Returns a bill that never limits and logs nothing, in place of this one.
    pub fn unlimited(&self) -> RuleBill<'static> {
        let limit = RuleLimit { rule: Rule::unlimited(), ..*self.limit };
        RuleBill { limit: Cow::Owned(limit), identifiers: Identifiers::Several(Vec::new()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rule: &str, namespace: &str, key: &str, value: Option<&str>) -> Vec<String> {
        let rule = KeyedRule::new(RuleLimit::new(rule.parse().unwrap()), namespace, key);
        let bill = rule.bill(|_| Ok::<_, ()>(value)).unwrap();
        bill.identifiers().iter().map(|name| name.as_deref().unwrap_or("(none)").to_owned()).collect()
    }

    #[test]
    fn every_part_has_its_place() {
        assert_eq!(names("1/s", "shop", "cats", None), ["shop:cats"]);
        assert_eq!(names("1/s", "", "cats", None), [":cats"]);
        assert_eq!(names("1/s", "", "", None), [":"]);
        assert_eq!(names("Or('1/s', 'u:1/s')", "", "", Some("x")), [":", "::u:x"]);
        assert_eq!(names("u:1/s", "", "cats", Some("a:b{c}%\n")), [":cats:u:a%3Ab%7Bc%7D%25%0A"]);
        let rule = KeyedRule::new(RuleLimit::new("1/s".parse().unwrap()), "shop", "a:b");
        assert_eq!(rule.key(), "a:b", "as it was given");
    }

    #[test]
    fn no_value_is_no_log_and_zero_is_a_value() {
        assert_eq!(names("Or('1/s', 'u:1/s')", "", "k", None), [":k", "(none)"]);
        assert_eq!(names("u:1/s", "", "k", Some("")), ["(none)"]);
        assert_eq!(names("u:1/s", "", "k", Some("0")), [":k:u:0"]);
    }

    #[test]
    fn no_two_logs_share_a_name() {
        let parts = ["", "a", ":", "a:", ":a", "%3A", "%", "a:a"];
        let mut seen = std::collections::HashMap::new();
        for (namespace, key) in parts.into_iter().flat_map(|one| parts.map(|other| (one, other))) {
            let plain = names("1/s", namespace, key, None).remove(0);
            assert_eq!(seen.insert(plain, (namespace, key, "")), None);
            for value in parts.into_iter().filter(|value| !value.is_empty()) {
                let name = names("a:1/s", namespace, key, Some(value)).remove(0);
                assert_eq!(seen.insert(name, (namespace, key, value)), None);
            }
        }
    }

    #[test]
    fn who_cannot_say_is_heard() {
        let rule = KeyedRule::new(RuleLimit::new("Or('1/s', 'user:1/s')".parse().unwrap()), "", "");
        let missing = |selector: &str| Err::<Option<&str>, _>(selector.to_owned());
        assert_eq!(rule.bill(missing).map(|_| ()), Err("user".to_owned()));
    }
}

//! Keys of the text protocol, and the rules that find the limit of a key.
//!
//! ```text
//! ws ip=132.185.0.7  ── rewritten ──>  ws cust=bbc  ── first rule that matches ──>  200 in 10s
//! ```
//!
//! A key does not name a limit: it is matched. Matching takes regular expressions, which the core does not have, so its
//! user supplies a [`KeyMatcher`].

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::algorithm::SmoothedRate;
use crate::limit::{OnFull, OnStoreFailure};

/// Rewrites keys, and finds the first rule that matches.
pub trait KeyMatcher: fmt::Debug + Send + Sync {
    /// The key that stands for `key` in rules, buckets, statistics and replies.
    fn rewrite<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]>;

    /// The place of the first rule that matches a rewritten key.
    fn first_match(&self, rewritten: &[u8]) -> Option<usize>;

    /// The patterns as they were written, for those who write a configuration with them; `None` if there are none.
    fn patterns(&self) -> Option<KeyPatterns<'_>> {
        None
    }
}

/// The regular expressions of a [`KeyMatcher`], as they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPatterns<'a> {
    /// The pattern and the replacement of each rewrite, in the order in which they apply.
    pub rewrites: Vec<(&'a str, &'a str)>,
    /// The pattern of each rule, in the order in which they are tried.
    pub rules: Vec<&'a str>,
}

/// The rules that a policy has for keys, in order.
#[derive(Clone, Debug)]
pub struct Keys {
    matcher: Arc<dyn KeyMatcher>,
    rules: Vec<KeyRule>,
}

/// One rule: the limit that applies to the keys that it matches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyRule {
    /// The limit that applies to the keys.
    pub limit: KeyLimit,
    /// True if statistics of these keys are wanted.
    pub stats: bool,
}

/// The limit that applies to a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyLimit {
    /// A smoothed rate of its own.
    Rate {
        /// The numbers that the rate takes.
        limit: SmoothedRate,
        /// The answer to a new key when there is no room for it.
        on_full: OnFull,
        /// The answer when the store gives none.
        on_store_failure: OnStoreFailure,
    },
    /// Nothing: it is never over.
    Never,
    /// A named limit, under which the key is the id.
    Use {
        /// The limit's place in [`Policy::limits`](crate::Policy::limits).
        limit: usize,
    },
}

/// A key that was looked up.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct FoundKey<'k> {
    /// The key as rewritten.
    pub key: Cow<'k, [u8]>,
    /// The place of its rule; `None` if none matches.
    pub rule: Option<usize>,
}

impl Keys {
    /// These rules, found by this matcher.
    pub fn new(matcher: Arc<dyn KeyMatcher>, rules: Vec<KeyRule>) -> Self {
        Self { matcher, rules }
    }

    /// The rules in the order they are tried.
    pub fn rules(&self) -> &[KeyRule] {
        &self.rules
    }

    /// The patterns of the rules as they were written; `None` if they were made by a matcher without patterns.
    pub fn patterns(&self) -> Option<KeyPatterns<'_>> {
        self.matcher.patterns()
    }

    /// Rewrites a key and finds its rule.
    pub fn find<'k>(&self, key: &'k [u8]) -> FoundKey<'k> {
        let key = self.matcher.rewrite(key);
        let rule = self.matcher.first_match(&key).filter(|rule| *rule < self.rules.len());
        FoundKey { key, rule }
    }
}

/// No rules: every key goes unmatched.
impl Default for Keys {
    fn default() -> Self {
        #[derive(Debug)]
        struct NoRules;
        impl KeyMatcher for NoRules {
            fn rewrite<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
                Cow::Borrowed(key)
            }

            fn first_match(&self, _: &[u8]) -> Option<usize> {
                None
            }

            fn patterns(&self) -> Option<KeyPatterns<'_>> {
                Some(KeyPatterns::default())
            }
        }
        Self::new(Arc::new(NoRules), Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts `ip=` before a key, and finds the rule that a digit at the end names.
    #[derive(Debug)]
    struct ByLastDigit;

    impl KeyMatcher for ByLastDigit {
        fn rewrite<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
            Cow::Owned([b"ip=", key].concat())
        }

        fn first_match(&self, rewritten: &[u8]) -> Option<usize> {
            assert!(rewritten.starts_with(b"ip="), "the rewritten key is matched");
            char::from(*rewritten.last()?).to_digit(10).map(|digit| digit as usize)
        }
    }

    #[test]
    fn a_key_is_rewritten_and_then_matched_with_the_rules_that_there_are() {
        let never = KeyRule { limit: KeyLimit::Never, stats: true };
        let keys = Keys::new(Arc::new(ByLastDigit), vec![never; 2]);
        for (key, rule) in [("a0", Some(0)), ("a1", Some(1)), ("a2", None), ("a", None)] {
            let found = keys.find(key.as_bytes());
            assert_eq!((&*found.key, found.rule), (format!("ip={key}").as_bytes(), rule));
        }
        assert_eq!((keys.rules(), keys.patterns()), (&[never; 2][..], None));
    }

    #[test]
    fn without_rules_no_key_matches() {
        let keys = Keys::default();
        assert_eq!(keys.find(b"a"), FoundKey { key: Cow::Borrowed(b"a"), rule: None });
        assert_eq!(keys.patterns(), Some(KeyPatterns::default()));
    }
}

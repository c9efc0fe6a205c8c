//! Finds the rule of a key, and remembers it: a key seen before runs no pattern again.
//!
//! ```
//! use tollway::Limiter;
//! use tollway::keys::KeyRuleCache;
//!
//! let limiter = Limiter::from_yaml("keys: [{ match: '^ws ', limit: 22, period: 20s }]")?;
//! let (mut finder, hash) = (KeyRuleCache::new(), limiter.hash_key(b"ws global"));
//! assert_eq!(finder.find(limiter.policy().keys(), b"ws global", hash).rule, Some(0));
//! # Ok::<(), tollway::config::ConfigErrors>(())
//! ```
//!
//! One thread's own, for one policy: whoever has another policy in hand takes another finder. Keys themselves are not
//! kept, only 96 bits that stand for each, and the results of rewriting, which are few.

mod sets;

use std::collections::HashMap;
use std::sync::Arc;

use tollway_core::{FoundKey, Keys};

use self::sets::{Sets, Tag};
use crate::rates::KeyHash;

/// The most results of rewriting that are kept. Many keys become one: a range of addresses, one customer.
const REWRITTEN_MAX: usize = 1 << 16;

/// A key as rewritten, and the place of its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<'k> {
    /// The key that counts.
    pub key: RewrittenKey<'k>,
    /// The place of its rule; `None` if none matches.
    pub rule: Option<usize>,
}

/// A key after rewriting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RewrittenKey<'k> {
    /// As it was.
    Same(&'k [u8]),
    /// Another, kept by the finder.
    Other(Arc<[u8]>),
}

impl AsRef<[u8]> for RewrittenKey<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Same(key) => key,
            Self::Other(key) => key,
        }
    }
}

/// What was found for the keys seen so far.
#[derive(Debug)]
pub struct KeyRuleCache {
    sets: Sets,
    others: Vec<(Arc<[u8]>, Option<usize>)>,
    by_text: HashMap<Arc<[u8]>, u32>,
}

impl KeyRuleCache {
    /// Has seen nothing.
    pub fn new() -> Self {
        Self { sets: Sets::new(), others: Vec::new(), by_text: HashMap::new() }
    }

    /// Has what is known of a key fetched from memory while others are looked up.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.sets.prefetch(Tag::of(hash.0));
    }

    /// Finds the rule of a key that the limiter hashed.
    #[inline]
    pub fn find<'k>(&mut self, keys: &Keys, key: &'k [u8], hash: KeyHash) -> Found<'k> {
        match self.sets.get(Tag::of(hash.0)).map(Remembered::decode) {
            Some(Remembered::Rule(rule)) => Found { key: RewrittenKey::Same(key), rule },
            Some(Remembered::Other(index)) => {
                let (other, rule) = &self.others[index];
                Found { key: RewrittenKey::Other(Arc::clone(other)), rule: *rule }
            }
            None => self.find_new(keys, key, hash),
        }
    }

    #[cold]
    fn find_new<'k>(&mut self, keys: &Keys, key: &'k [u8], hash: KeyHash) -> Found<'k> {
        let FoundKey { key: rewritten, rule } = keys.find(key);
        if *rewritten == *key {
            self.remember(hash, Remembered::Rule(rule));
            return Found { key: RewrittenKey::Same(key), rule };
        }
        let other: Arc<[u8]> = rewritten.into_owned().into();
        let index = self.by_text.get(&other).copied().or_else(|| self.keep(&other, rule));
        if let Some(index) = index {
            self.remember(hash, Remembered::Other(index as usize));
        }
        Found { key: RewrittenKey::Other(other), rule }
    }

    /// Keeps a result of rewriting, if there is room.
    fn keep(&mut self, other: &Arc<[u8]>, rule: Option<usize>) -> Option<u32> {
        let index = u32::try_from(self.others.len()).ok().filter(|_| self.others.len() < REWRITTEN_MAX)?;
        self.others.push((Arc::clone(other), rule));
        self.by_text.insert(Arc::clone(other), index);
        Some(index)
    }

    fn remember(&mut self, hash: KeyHash, remembered: Remembered) {
        if let Some(code) = remembered.encode() {
            self.sets.insert(Tag::of(hash.0), code);
        }
    }
}

impl Default for KeyRuleCache {
    fn default() -> Self {
        Self::new()
    }
}

/// What is remembered of one key, in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remembered {
    /// It is not rewritten, and has this rule or none.
    Rule(Option<usize>),
    /// It is rewritten to this one of the kept results.
    Other(usize),
}

impl Remembered {
    const OTHER: u32 = 1 << 31;

    fn encode(self) -> Option<u32> {
        let (number, mark) = match self {
            Self::Rule(rule) => (rule.map_or(0, |rule| rule + 1), 0),
            Self::Other(index) => (index, Self::OTHER),
        };
        u32::try_from(number).ok().filter(|number| *number < Self::OTHER).map(|number| number | mark)
    }

    fn decode(code: u32) -> Self {
        let number = (code & !Self::OTHER) as usize;
        if code & Self::OTHER == 0 { Self::Rule(number.checked_sub(1)) } else { Self::Other(number) }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tollway_core::{KeyLimit, KeyMatcher, KeyRule};

    use super::*;
    use crate::hash::HashKey;

    /// `shout` is rewritten to `SHOUT`; keys that start with `a` have rule 0, with `S` rule 1.
    #[derive(Debug, Default)]
    struct Counting(AtomicUsize);

    impl KeyMatcher for Counting {
        fn rewrite<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
            if key.starts_with(b"shout") { Cow::Owned(b"SHOUT".to_vec()) } else { Cow::Borrowed(key) }
        }

        fn first_match(&self, key: &[u8]) -> Option<usize> {
            self.0.fetch_add(1, Ordering::Relaxed);
            match key.first() {
                Some(b'a') => Some(0),
                Some(b'S') => Some(1),
                _ => None,
            }
        }
    }

    #[test]
    fn a_key_seen_before_is_not_matched_again() {
        let matcher = Arc::new(Counting::default());
        let rule = KeyRule { limit: KeyLimit::Never, stats: false };
        let keys = Keys::new(Arc::clone(&matcher) as Arc<dyn KeyMatcher>, vec![rule; 2]);
        let (mut finder, hash_key) = (KeyRuleCache::new(), HashKey::random());
        let asked: Vec<String> =
            (0..3_000).map(|number| format!("{}{number}", ["a", "b", "shout"][number % 3])).collect();
        for round in 0..5 {
            let before = matcher.0.load(Ordering::Relaxed);
            for (number, key) in asked.iter().enumerate() {
                let found = finder.find(&keys, key.as_bytes(), KeyHash(hash_key.hash_of(0, key.as_bytes())));
                assert_eq!(found.rule, [Some(0), None, Some(1)][number % 3]);
                let expected = if number % 3 == 2 { "SHOUT" } else { key };
                assert_eq!(found.key.as_ref(), expected.as_bytes());
            }
            let matched = matcher.0.load(Ordering::Relaxed) - before;
            // The first rounds find that room has become more; then only those that share full sets are missed.
            assert!(round < 3 || matched <= asked.len() / 50, "{matched} were matched in round {round}");
        }
        assert_eq!(finder.others.len(), 1, "one result of rewriting is kept once");
    }

    #[test]
    fn whatever_is_remembered_is_read_back() {
        for remembered in [
            Remembered::Rule(None),
            Remembered::Rule(Some(0)),
            Remembered::Rule(Some(9_999)),
            Remembered::Other(0),
            Remembered::Other(REWRITTEN_MAX),
        ] {
            assert_eq!(remembered.encode().map(Remembered::decode), Some(remembered));
        }
        assert_eq!(Remembered::Rule(Some(1 << 31)).encode(), None);
    }
}

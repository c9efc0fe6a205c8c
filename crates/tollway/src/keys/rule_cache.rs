//! Caches which rule applies to a key, so that the patterns run only once for each key.
//!
//! Each thread has a cache of its own (there is no lock), and each policy needs a new one: after a reload, entries
//! would name rules of the old policy. Keys are not kept, only 96 bits of the hash of each, and the results of
//! rewriting.

use std::collections::HashMap;
use std::sync::Arc;

use tollway_core::{FoundKey, Keys};

use super::set_cache::{KeyTag, SetCache};
use super::{KeyRuleMatch, RewrittenKey};
use crate::hash::BucketHash;

/// The most results of rewriting that are kept. They are few: rewriting maps many keys to one, such as a range of
/// addresses to a customer.
const REWRITTEN_MAX: usize = 1 << 16;

/// A cache of the rules that apply to keys. It belongs to one thread and one policy.
#[derive(Debug)]
pub(super) struct KeyRuleCache {
    sets: SetCache,
    rewritten: Vec<(Arc<[u8]>, Option<usize>)>,
    rewritten_index: HashMap<Arc<[u8]>, u32>,
}

impl KeyRuleCache {
    /// Returns an empty cache.
    pub(super) fn new() -> Self {
        Self { sets: SetCache::new(), rewritten: Vec::new(), rewritten_index: HashMap::new() }
    }

    /// Starts to fetch the entry of a key from memory, while other keys are looked up.
    #[inline]
    pub(super) fn prefetch(&self, hash: BucketHash) {
        self.sets.prefetch(KeyTag::of(hash));
    }

    /// Finds the rule of a key, which has this hash.
    #[inline]
    pub(super) fn find<'k>(&mut self, keys: &Keys, key: &'k [u8], hash: BucketHash) -> KeyRuleMatch<'k> {
        match self.sets.get(KeyTag::of(hash)).map(CacheEntry::decode) {
            Some(CacheEntry::Rule(rule)) => KeyRuleMatch { key: RewrittenKey::Unchanged(key), rule },
            Some(CacheEntry::Rewritten(index)) => {
                let (other, rule) = &self.rewritten[index];
                KeyRuleMatch { key: RewrittenKey::Rewritten(Arc::clone(other)), rule: *rule }
            }
            None => self.find_new(keys, key, hash),
        }
    }

    #[cold]
    fn find_new<'k>(&mut self, keys: &Keys, key: &'k [u8], hash: BucketHash) -> KeyRuleMatch<'k> {
        let FoundKey { key: rewritten, rule, .. } = keys.find(key);
        if *rewritten == *key {
            self.remember(hash, CacheEntry::Rule(rule));
            return KeyRuleMatch { key: RewrittenKey::Unchanged(key), rule };
        }
        let other: Arc<[u8]> = rewritten.into_owned().into();
        let index = self.rewritten_index.get(&other).copied().or_else(|| self.keep_rewritten(&other, rule));
        if let Some(index) = index {
            self.remember(hash, CacheEntry::Rewritten(index as usize));
        }
        KeyRuleMatch { key: RewrittenKey::Rewritten(other), rule }
    }

    /// Keeps a result of rewriting and returns its index, or `None` if there are too many.
    fn keep_rewritten(&mut self, other: &Arc<[u8]>, rule: Option<usize>) -> Option<u32> {
        let index =
            u32::try_from(self.rewritten.len()).ok().filter(|_| self.rewritten.len() < REWRITTEN_MAX)?;
        self.rewritten.push((Arc::clone(other), rule));
        self.rewritten_index.insert(Arc::clone(other), index);
        Some(index)
    }

    fn remember(&mut self, hash: BucketHash, remembered: CacheEntry) {
        if let Some(code) = remembered.encode() {
            self.sets.insert(KeyTag::of(hash), code);
        }
    }
}

/// The cached answer for one key. It is stored in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheEntry {
    /// The key is not rewritten, and has this rule or none.
    Rule(Option<usize>),
    /// The key is rewritten to the result with this index.
    Rewritten(usize),
}

impl CacheEntry {
    const REWRITTEN: u32 = 1 << 31;

    fn encode(self) -> Option<u32> {
        let (number, mark) = match self {
            Self::Rule(rule) => (rule.map_or(0, |rule| rule + 1), 0),
            Self::Rewritten(index) => (index, Self::REWRITTEN),
        };
        u32::try_from(number).ok().filter(|number| *number < Self::REWRITTEN).map(|number| number | mark)
    }

    fn decode(code: u32) -> Self {
        let number = (code & !Self::REWRITTEN) as usize;
        if code & Self::REWRITTEN == 0 { Self::Rule(number.checked_sub(1)) } else { Self::Rewritten(number) }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tollway_core::{KeyLimit, KeyMatcher, KeyRule};

    use super::*;
    use crate::hash::HashKey;

    /// Counts how often it matches. `shout` is rewritten to `SHOUT`; keys with `a` have rule 0, with `S` rule 1.
    #[derive(Debug, Default)]
    struct CountingMatcher(AtomicUsize);

    impl KeyMatcher for CountingMatcher {
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
        let matcher = Arc::new(CountingMatcher::default());
        let rule = KeyRule { limit: KeyLimit::Never, stats: false };
        let keys = Keys::new(Arc::clone(&matcher) as Arc<dyn KeyMatcher>, vec![rule; 2]);
        let (mut cache, hash_key) = (KeyRuleCache::new(), HashKey::random());
        let asked: Vec<String> =
            (0..3_000).map(|number| format!("{}{number}", ["a", "b", "shout"][number % 3])).collect();
        for round in 0..5 {
            let before = matcher.0.load(Ordering::Relaxed);
            for (number, key) in asked.iter().enumerate() {
                let found = cache.find(&keys, key.as_bytes(), hash_key.hash_of(0, key.as_bytes()));
                assert_eq!(found.rule, [Some(0), None, Some(1)][number % 3]);
                let expected = if number % 3 == 2 { "SHOUT" } else { key };
                assert_eq!(found.key.as_ref(), expected.as_bytes());
            }
            let matched = matcher.0.load(Ordering::Relaxed) - before;
            // In the first rounds the cache grows and loses entries; later, only keys that share a full set miss.
            assert!(round < 3 || matched <= asked.len() / 50, "{matched} were matched in round {round}");
        }
        assert_eq!(cache.rewritten.len(), 1, "one result of rewriting is kept once");
    }

    #[test]
    fn whatever_is_remembered_is_read_back() {
        for remembered in [
            CacheEntry::Rule(None),
            CacheEntry::Rule(Some(0)),
            CacheEntry::Rule(Some(9_999)),
            CacheEntry::Rewritten(0),
            CacheEntry::Rewritten(REWRITTEN_MAX),
        ] {
            assert_eq!(remembered.encode().map(CacheEntry::decode), Some(remembered));
        }
        assert_eq!(CacheEntry::Rule(Some(1 << 31)).encode(), None);
    }
}

//! Decides keys, as the text gate sends them: finds the rule of each key, and makes one use of it.
//!
//! ```
//! use tollway::Limiter;
//! use tollway::keys::{KeyLimiter, KeyOutcome};
//!
//! let limiter = Limiter::from_yaml("keys: [{ match: '^ws ', limit: 1, period: 20s }]")?;
//! let mut keys = KeyLimiter::new(limiter.engine().clone());
//! let (policy, mut over) = (limiter.policy(), Vec::new());
//! tollway::block_on(keys.decide(&policy, &["ws a", "ws a", "other"], |uses| {
//!     over.extend(uses.map(|used| matches!(used.outcome, KeyOutcome::Rate { reading, .. } if reading.over)));
//! }));
//! assert_eq!(over, [false, true, false]);
//! # Ok::<(), tollway::config::ConfigErrors>(())
//! ```

mod rule_cache;
mod set_cache;

use std::future::poll_fn;
use std::pin::pin;
use std::slice;
use std::sync::Arc;
use std::task::Poll;

use arrayvec::ArrayVec;
use tollway_core::algorithm::{RateReading, SmoothedRate};
use tollway_core::{Algorithm, Bill, Charge, Decision, KeyLimit, KeyRule, Policy};

use self::rule_cache::KeyRuleCache;
use crate::engine::Engine;
use crate::hash::BucketHash;
use crate::rates::RateUpdate;

/// The number of keys that are looked up together, so that their cache misses overlap.
const BATCH: usize = 64;

/// Decides keys for one thread. It caches the rule of each key, as long as the policy stays the same.
#[derive(Debug)]
pub struct KeyLimiter {
    engine: Engine,
    rules: CachedRules,
}

/// The rules that were found, and buffers.
#[derive(Debug)]
struct CachedRules {
    /// The policy that `cache` is about.
    policy: Arc<Policy>,
    cache: KeyRuleCache,
    /// Kept between calls, to save their allocations.
    readings: Vec<RateReading>,
    decisions: Vec<Decision>,
}

/// One use of a key, and its outcome.
#[derive(Clone, Copy, Debug)]
#[must_use]
#[non_exhaustive]
pub struct KeyUse<'a> {
    /// The key that is counted, as rewritten.
    pub key: &'a [u8],
    /// The rule that applies to it; `None` if no rule matches.
    pub rule: Option<&'a KeyRule>,
    /// The outcome by that rule.
    pub outcome: KeyOutcome<'a>,
}

/// The outcome of one use of a key.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub enum KeyOutcome<'a> {
    /// The key is never over: no rule matches it, its rule says so, or the named limit does not take it for an id.
    Never,
    /// A rate was measured: the key's own, or that of a named limit.
    Rate {
        /// The numbers that apply to the key.
        limit: &'a SmoothedRate,
        /// The rate after this use, and whether it is over.
        reading: RateReading,
    },
    /// A named limit of another kind decided.
    Decision {
        /// The numbers that apply to the key; `None` means no limit.
        algorithm: Option<&'a Algorithm>,
        /// The decision about a cost of 1.
        decision: &'a Decision,
    },
}

/// A key after rewriting, and the rule that applies to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct KeyRuleMatch<'k> {
    /// The key that is counted.
    pub key: RewrittenKey<'k>,
    /// The index of its rule; `None` if no rule matches.
    pub rule: Option<usize>,
}

/// A key after rewriting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RewrittenKey<'k> {
    /// The key that was given: no rewrite matched.
    Unchanged(&'k [u8]),
    /// The result of rewriting, shared with the cache.
    Rewritten(Arc<[u8]>),
}

impl AsRef<[u8]> for RewrittenKey<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Unchanged(key) => key,
            Self::Rewritten(key) => key,
        }
    }
}

/// A key that was looked up, with the hash of the key as rewritten.
#[derive(Debug)]
struct HashedKey<'k, 'p> {
    key: RewrittenKey<'k>,
    rule: Option<&'p KeyRule>,
    hash: BucketHash,
}

impl HashedKey<'_, '_> {
    /// Returns the place of the named limit that the key is an id of.
    fn named_limit(&self) -> Option<usize> {
        match self.rule {
            Some(KeyRule { limit: KeyLimit::Use { limit }, .. }) => Some(*limit),
            _ => None,
        }
    }
}

impl KeyLimiter {
    /// Makes a limiter of keys that asks this engine.
    pub fn new(engine: Engine) -> Self {
        let (policy, cache) = (engine.policy(), KeyRuleCache::new());
        let rules = CachedRules { policy, cache, readings: Vec::new(), decisions: Vec::new() };
        Self { engine, rules }
    }

    /// Finds the rule of a key, and what the key is rewritten to. Counts nothing.
    pub fn find<'k>(&mut self, policy: &Arc<Policy>, key: &'k [u8]) -> KeyRuleMatch<'k> {
        self.rules.hold_to(policy);
        let hash = self.engine.memory().hash_key(key);
        self.rules.cache.find(policy.keys(), key, hash)
    }

    /// Makes one use of each key, and passes the outcomes to `answer`, in order. All that must be waited for is asked
    /// for at once, up to 64 keys together, and `answer` is called once for those.
    pub async fn decide(
        &mut self,
        policy: &Arc<Policy>,
        keys: &[impl AsRef<[u8]>],
        answer: impl FnMut(KeyUses<'_>),
    ) {
        self.decide_by(None, policy, keys, answer).await;
    }

    /// Makes one use of each key as [`decide`](Self::decide) does, by the clock of a view of its engine
    /// ([`Engine::with_clock`]) if there is one.
    pub async fn decide_by(
        &mut self,
        view: Option<&Engine>,
        policy: &Arc<Policy>,
        keys: &[impl AsRef<[u8]>],
        answer: impl FnMut(KeyUses<'_>),
    ) {
        self.rules.decide(view.unwrap_or(&self.engine), policy, keys, answer).await;
    }
}

impl CachedRules {
    async fn decide(
        &mut self,
        engine: &Engine,
        policy: &Arc<Policy>,
        keys: &[impl AsRef<[u8]>],
        mut answer: impl FnMut(KeyUses<'_>),
    ) {
        self.hold_to(policy);
        let rules = policy.keys().rules();
        for keys in keys.chunks(BATCH) {
            let memory = engine.memory();
            let hashes: ArrayVec<BucketHash, BATCH> =
                keys.iter().map(|key| memory.hash_key(key.as_ref())).collect();
            // Two short loops: the shorter, the more of its pages the processor looks for at the same time.
            hashes.iter().for_each(|hash| self.cache.prefetch(*hash));
            hashes.iter().for_each(|hash| memory.prefetch_rate(*hash));
            let mut found: ArrayVec<HashedKey<'_, '_>, BATCH> = ArrayVec::new();
            let mut has_named = false;
            for (key, hash) in keys.iter().zip(&hashes) {
                let KeyRuleMatch { key, rule } = self.cache.find(policy.keys(), key.as_ref(), *hash);
                let hash = match &key {
                    RewrittenKey::Unchanged(_) => *hash,
                    RewrittenKey::Rewritten(other) => memory.hash_key(other),
                };
                let found_key = HashedKey { key, rule: rule.map(|rule| &rules[rule]), hash };
                has_named |= found_key.named_limit().is_some();
                found.push(found_key);
            }
            if has_named {
                self.use_named(engine, policy, &found, &mut answer).await;
            } else {
                self.use_rates(engine, &found, &mut answer).await;
            }
        }
    }

    /// Drops the cache if it is about another policy.
    fn hold_to(&mut self, policy: &Arc<Policy>) {
        if !Arc::ptr_eq(&self.policy, policy) {
            self.policy = Arc::clone(policy);
            self.cache = KeyRuleCache::new();
        }
    }

    /// Makes one use of each key, none of which is an id of a named limit.
    async fn use_rates(
        &mut self,
        engine: &Engine,
        keys: &[HashedKey<'_, '_>],
        answer: &mut impl FnMut(KeyUses<'_>),
    ) {
        let mut updates: ArrayVec<RateUpdate<'_>, BATCH> = ArrayVec::new();
        updates.extend(keys.iter().filter_map(rate_update));
        self.readings.clear();
        engine.update_rates(&updates, &mut self.readings).await;
        answer(KeyUses {
            keys: keys.iter(),
            readings: self.readings.iter(),
            decisions: [].iter(),
            charges: [].iter(),
        });
    }

    /// Makes one use of each key, some of which are ids of named limits.
    async fn use_named(
        &mut self,
        engine: &Engine,
        policy: &Policy,
        keys: &[HashedKey<'_, '_>],
        answer: &mut impl FnMut(KeyUses<'_>),
    ) {
        // In the order of the keys that use a named limit; `None` for a key that the limit does not take for an id.
        let mut charges: ArrayVec<Option<Charge<'_>>, BATCH> = ArrayVec::new();
        for key in keys {
            if let Some(limit) = key.named_limit() {
                charges.push(Charge::new(&policy.limits()[limit], key.key.as_ref(), 1).ok());
            }
        }
        let (mut updates, mut bills) =
            (ArrayVec::<RateUpdate<'_>, BATCH>::new(), ArrayVec::<Bill<'_>, BATCH>::new());
        let mut charge = charges.iter();
        for key in keys {
            if key.named_limit().is_none() {
                updates.extend(rate_update(key));
            } else if let Some(charge) = charge.next().and_then(Option::as_ref) {
                match RateUpdate::of_charge(charge) {
                    Some(update) => updates.push(update),
                    None => bills.push(Bill::one(charge)),
                }
            }
        }
        let Self { readings, decisions, .. } = self;
        readings.clear();
        decisions.clear();
        let updating = engine.update_rates(&updates, readings);
        if bills.is_empty() {
            updating.await;
        } else {
            both(updating, engine.settle_into(&bills, decisions)).await;
        }
        answer(KeyUses {
            keys: keys.iter(),
            readings: readings.iter(),
            decisions: decisions.iter(),
            charges: charges.iter(),
        });
    }
}

/// Returns the update of the rate that a key has of its own, if it has one.
#[inline]
fn rate_update<'a>(key: &'a HashedKey<'_, '_>) -> Option<RateUpdate<'a>> {
    let KeyLimit::Rate { limit, on_full, on_store_failure } = &key.rule?.limit else { return None };
    let update = RateUpdate::of_key(key.key.as_ref(), limit, *on_full, *on_store_failure);
    Some(RateUpdate { hash: Some(key.hash), ..update })
}

/// The uses of keys that were decided together, in order.
#[derive(Debug)]
pub struct KeyUses<'a> {
    keys: slice::Iter<'a, HashedKey<'a, 'a>>,
    readings: slice::Iter<'a, RateReading>,
    decisions: slice::Iter<'a, Decision>,
    charges: slice::Iter<'a, Option<Charge<'a>>>,
}

impl<'a> Iterator for KeyUses<'a> {
    type Item = KeyUse<'a>;

    #[inline]
    fn next(&mut self) -> Option<KeyUse<'a>> {
        let HashedKey { key, rule, .. } = self.keys.next()?;
        let outcome = match rule.map(|rule| &rule.limit) {
            Some(KeyLimit::Rate { limit, .. }) => rate(limit, self.readings.next()),
            Some(KeyLimit::Use { .. }) => self.named_outcome(),
            Some(KeyLimit::Never) | None => KeyOutcome::Never,
        };
        Some(KeyUse { key: key.as_ref(), rule: *rule, outcome })
    }
}

impl<'a> KeyUses<'a> {
    /// Returns the outcome of the next key that is an id of a named limit.
    fn named_outcome(&mut self) -> KeyOutcome<'a> {
        let Some(charge) = self.charges.next().and_then(Option::as_ref) else { return KeyOutcome::Never };
        match charge.algorithm() {
            Some(Algorithm::SmoothedRate(limit)) => rate(limit, self.readings.next()),
            algorithm => {
                let decision = self.decisions.next().expect("every bill is answered");
                KeyOutcome::Decision { algorithm, decision }
            }
        }
    }
}

#[inline]
fn rate<'a>(limit: &'a SmoothedRate, reading: Option<&RateReading>) -> KeyOutcome<'a> {
    KeyOutcome::Rate { limit, reading: *reading.expect("every update is answered") }
}

/// Waits for two futures at the same time. Over Redis their calls then leave in one round.
async fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut one_ready, mut other_ready) = (false, false);
    poll_fn(|context| {
        one_ready = one_ready || one.as_mut().poll(context).is_ready();
        other_ready = other_ready || other.as_mut().poll(context).is_ready();
        if one_ready && other_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

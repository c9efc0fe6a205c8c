//! The memory store: keeps buckets in the memory of this process.
//!
//! ```text
//! (limit, id) ─ keyed hash ─┬─ shard: which one     a lock and a table for each algorithm
//!                           └─ tag:   where in it   8 bytes of tag, 8 of token bucket
//! ```
//!
//! A whole batch is hashed and prefetched before its first bucket is touched, so that up to 64 cache misses overlap
//! instead of following each other. Expired buckets are dropped by an incremental sweep: every new bucket pays for a
//! few slots of it. A live bucket is never dropped, because that would let a client reset its own limit by flooding the
//! store with ids. When the store is full, the shards in which something may have expired are swept; if that frees
//! nothing, the new id gets its limit's `on_full` answer.

mod bills;
mod capacity;
#[cfg(feature = "journal")]
mod changes;
#[cfg(not(feature = "journal"))]
#[path = "memory/no_changes.rs"]
mod changes;
mod chunk_pool;
mod former;
#[cfg(feature = "journal")]
mod journaled;
mod locked_buckets;
#[cfg(feature = "journal")]
mod moved;
mod rates;
mod reports;
mod rules;
mod shard;
mod slot;
mod slots;
mod table;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use arrayvec::ArrayVec;
use thiserror::Error;
use tollway_core::algorithm::{
    FixedWindowState, LOG_MAX, QuotaCommand, QuotaOutcome, QuotaState, SlidingWindowState, TokenBucketState,
};
use tollway_core::{
    Algorithm, Bill, CHARGES_MAX, Charge, ChargeError, Decision, FormerBuckets, Limit, Nanos, OnFull, Refund,
    Timestamp, Verdict,
};

#[cfg(feature = "journal")]
pub(crate) use self::moved::{MemoryImport, NamedPlace, PlaceForm, places};

use self::capacity::{BucketCount, BucketPlaces, Capacity};
#[cfg(feature = "journal")]
pub(crate) use self::journaled::Loader;
use self::shard::{HasTable, Shards, with_bucket_type};
use self::table::StoreFull;
use crate::hash::{BucketHash, HashKey};
use crate::store::{BucketReading, BucketState};

/// The largest number of buckets that is kept by default: a quarter of a gigabyte of token buckets.
pub const MAX_BUCKETS: usize = 10_000_000;

/// The log entries that are allowed for each bucket, on average: as much memory again as the bucket itself takes.
const ENTRIES_PER_BUCKET: usize = 4;
/// The smallest bound on log entries, for stores with few buckets: sixteen megabytes.
const ENTRIES_MIN: usize = 1 << 21;
/// The share of all log entries that one log can have: a sixteenth. Otherwise a few ids, or one under a rule with a
/// large count, would leave no entries to the others.
const LOG_SHARE: usize = 16;
/// The longest log of a limit, which one request can fill. Even in a small store it is only half of the share of a log,
/// so that sixteen such requests leave half of the entries to others.
const LIMIT_LOG_MAX: usize = 65_536;
const _: () = assert!(LIMIT_LOG_MAX as u64 == LOG_MAX && ENTRIES_MIN / LOG_SHARE == 2 * LIMIT_LOG_MAX);

/// The number of buckets that a shard is meant for. Growing a table of this size takes some tens of microseconds,
/// during which the shard is locked.
const SHARD_BUCKETS: usize = 16_384;
const SHARDS_MIN: usize = 16;
const SHARDS_MAX: usize = 8_192;

/// The number of charges that are hashed and prefetched before the first of them is settled.
const PREFETCH_BATCH: usize = 64;

/// The number of slots that are swept for every [`INSERTS_PER_SWEEP`] new buckets. With these numbers the whole store
/// is swept once while it grows by an eighth.
const SWEEP_SLOTS: usize = 256;
const INSERTS_PER_SWEEP: usize = 32;
/// The number of slots after which no further shard is swept for one request when the store is full. It takes some tens
/// of microseconds, as one shard of a large store does.
const FULL_SWEEP_SLOTS: usize = 16_384;
/// The most slots that are swept under one lock, which takes about a microsecond.
const SWEEP_SLOTS_PER_LOCK: usize = 256;

/// The fingerprint of Throttr's pairs, which have no limit. A limit whose fingerprint happened to be the same would
/// share their buckets; the chance is as small as for two limits.
const PAIR_FINGERPRINT: u64 = u64::from_le_bytes(*b"the pair");

/// The `retry_after` for a new id when the store is full: by then a sweep may have dropped some buckets.
const FULL_RETRY_AFTER: Nanos = Nanos::from_secs(1);

/// The bounds that a memory store keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBounds {
    /// The largest number of buckets.
    pub max_buckets: usize,
    /// The largest number of buckets that clients can make at will, without a configured limit: quotas of Throttr, keys
    /// of the text gate, and inline limits. `None` is half of all.
    pub max_client_buckets: Option<usize>,
}

impl MemoryBounds {
    /// Returns the bounds if clients cannot make more buckets than there are.
    pub fn checked(self) -> Result<Self, BoundsError> {
        match self.max_client_buckets {
            Some(max_client_buckets) if max_client_buckets > self.max_buckets => {
                Err(BoundsError { max_client_buckets, max_buckets: self.max_buckets })
            }
            _ => Ok(self),
        }
    }

    /// Returns the largest number of buckets that clients can make. It is at least one unless it was set to zero.
    fn client_share(&self) -> usize {
        self.max_client_buckets.unwrap_or(self.max_buckets.div_ceil(2)).min(self.max_buckets)
    }
}

impl Default for MemoryBounds {
    fn default() -> Self {
        Self::from(MAX_BUCKETS)
    }
}

impl From<usize> for MemoryBounds {
    fn from(max_buckets: usize) -> Self {
        Self { max_buckets, max_client_buckets: None }
    }
}

/// The error of bounds that allow clients more buckets than the store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("max_client_buckets must be at most max_buckets, which is {max_buckets}, not {max_client_buckets}")]
#[non_exhaustive]
pub struct BoundsError {
    /// The number of buckets that clients could make.
    pub max_client_buckets: usize,
    /// The number of all buckets.
    pub max_buckets: usize,
}

/// A store that keeps buckets in the memory of this process.
#[derive(Debug)]
pub struct Memory {
    shards: Shards,
    key: HashKey,
    /// The numbers that the key was made of.
    #[cfg(feature = "journal")]
    key_seeds: [u64; 2],
    places: BucketPlaces,
    /// The number of log entries that memory is taken for, with its bound.
    entries: Capacity,
    /// The largest number of entries in one log.
    log_entries_max: usize,
    /// The shard that is swept next. The number only grows; it is masked to the number of shards.
    sweep_shard: AtomicUsize,
    /// The shard that a full store looks at first. By turns, so that shards with buckets that are used again and again
    /// cannot keep it from the others.
    full_sweep_shard: AtomicUsize,
    /// The token buckets that sweeps keep although they have expired.
    former: RwLock<FormerBuckets>,
    sweeps: AtomicU64,
    swept: AtomicU64,
    refused_full: AtomicU64,
}

/// Counters that describe what the store holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct MemoryStats {
    /// The number of buckets that the store holds now.
    pub buckets: usize,
    /// The largest number of buckets that the store can hold.
    pub max_buckets: usize,
    /// The number of buckets that clients made without a configured limit.
    pub client_buckets: usize,
    /// The largest number of buckets that clients can make.
    pub max_client_buckets: usize,
    /// The number of sweeps, each of which covered a part of the store.
    pub sweeps: u64,
    /// The number of expired buckets that sweeps have dropped.
    pub swept: u64,
    /// The number of requests with a new id that were refused because the store was full.
    pub refused_full: u64,
}

impl Memory {
    /// Returns an empty store within these bounds. A number alone is the most buckets that it holds.
    pub fn new(bounds: impl Into<MemoryBounds>) -> Self {
        Self::keyed(bounds.into(), HashKey::random_seeds(), None)
    }

    /// Returns an empty store that hashes with a known key, so that a simulated history can be repeated.
    #[cfg(feature = "simulation")]
    pub fn with_known_hashes(bounds: impl Into<MemoryBounds>, key_seeds: [u64; 2]) -> Self {
        Self::keyed(bounds.into(), key_seeds, None)
    }

    /// Returns an empty store whose key is made of these numbers, with this number of shards or as many as are useful.
    fn keyed(bounds: MemoryBounds, key_seeds: [u64; 2], shards: Option<usize>) -> Self {
        let max_buckets = bounds.max_buckets;
        let entries_max = max_buckets.saturating_mul(ENTRIES_PER_BUCKET).max(ENTRIES_MIN);
        let useful = || (max_buckets / SHARD_BUCKETS).next_power_of_two().clamp(SHARDS_MIN, SHARDS_MAX);
        let shards = shards.unwrap_or_else(useful);
        let mean = max_buckets / shards;
        // Enough for a shard that is eight standard deviations above the mean, at two thirds full.
        let slots = (mean + 8 * mean.isqrt() + 16) * 3 / 2;
        Self {
            shards: Shards::new(shards, slots),
            key: HashKey::new(key_seeds),
            #[cfg(feature = "journal")]
            key_seeds,
            places: BucketPlaces::new(bounds),
            entries: Capacity::new(entries_max),
            // A power of two, because logs double: none has memory for more than it may have.
            log_entries_max: 1 << (entries_max / LOG_SHARE).ilog2(),
            sweep_shard: AtomicUsize::new(0),
            full_sweep_shard: AtomicUsize::new(0),
            former: RwLock::default(),
            sweeps: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            refused_full: AtomicU64::new(0),
        }
    }

    /// Settles a bill of one charge. The clock is read while the bucket is being fetched from memory.
    #[inline]
    pub fn charge(&self, charge: &Charge<'_>, now: impl FnOnce() -> Timestamp) -> Decision {
        match Bill::one(charge).single() {
            Some(charge) => {
                let hash = self.key.hash(charge);
                self.prefetch(charge, hash);
                self.settle_single(charge, hash, now())
            }
            None => self.decide_locked(&Bill::one(charge), now(), true),
        }
    }

    /// Settles one bill: all its charges are taken or none, in one atomic step. The clock is read while its buckets are
    /// being fetched from memory.
    pub fn settle_one(&self, bill: &Bill<'_>, now: impl FnOnce() -> Timestamp) -> Decision {
        let mut hashes = ArrayVec::<BucketHash, CHARGES_MAX>::new();
        for (charge, hash) in bill.charges().iter().zip(self.key.hash_each(bill.charges())) {
            self.prefetch(charge, hash);
            hashes.push(hash);
        }
        self.settle_prefetched(bill, &hashes, now())
    }

    /// Settles each bill on its own, and appends its decision. All charges of a bill are taken or none, in one atomic
    /// step.
    pub fn settle(&self, bills: &[Bill<'_>], now: Timestamp, decisions: &mut Vec<Decision>) {
        decisions.reserve(bills.len());
        let mut hashes = ArrayVec::<BucketHash, { PREFETCH_BATCH + CHARGES_MAX }>::new();
        let mut rest = bills;
        while !rest.is_empty() {
            hashes.clear();
            let mut count = 0;
            for bill in rest.iter().take(PREFETCH_BATCH) {
                if hashes.len() >= PREFETCH_BATCH {
                    break;
                }
                for (charge, hash) in bill.charges().iter().zip(self.key.hash_each(bill.charges())) {
                    self.prefetch(charge, hash);
                    self.shards.prefetch_lock(hash);
                    hashes.push(hash);
                }
                count += 1;
            }
            let (batch, later) = rest.split_at(count);
            rest = later;
            let mut hashes = &hashes[..];
            for bill in batch {
                let (own, others) = hashes.split_at(bill.charges().len());
                hashes = others;
                decisions.push(self.settle_prefetched(bill, own, now));
            }
        }
    }

    /// Settles a bill whose charges have these hashes.
    #[inline(always)] // A call for each bill of a batch would cost a tenth of a decision.
    fn settle_prefetched(&self, bill: &Bill<'_>, hashes: &[BucketHash], now: Timestamp) -> Decision {
        match (bill.single(), hashes, bill.rules()) {
            (Some(charge), [hash], _) => self.settle_single(charge, *hash, now),
            (None, [], [rule]) => self.resolve(rule, || now).into(),
            _ => self.settle_hashed(bill, hashes, now),
        }
    }

    /// Spends `cost` for one id. The clock is read while the bucket is being fetched from memory.
    ///
    /// The usual limits, a token bucket or a window for ids that are any bytes, need no [`Charge`].
    #[inline]
    pub fn spend(
        &self,
        limit: &Limit,
        id: &[u8],
        cost: u64,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<Decision, ChargeError> {
        match limit.same_for_all_ids() {
            Some(Algorithm::TokenBucket(numbers)) if cost <= numbers.burst() && !id.is_empty() => {
                let fingerprint = limit.bucket_fingerprint(numbers);
                Ok(self.spend_prefetched::<TokenBucketState>(limit, fingerprint, numbers, id, cost, now))
            }
            Some(Algorithm::FixedWindow(numbers)) if cost <= numbers.count() && !id.is_empty() => {
                Ok(self.spend_window::<FixedWindowState>(limit, numbers, id, cost, now))
            }
            Some(Algorithm::SlidingWindow(numbers)) if cost <= numbers.count() && !id.is_empty() => {
                Ok(self.spend_window::<SlidingWindowState>(limit, numbers, id, cost, now))
            }
            _ => Ok(self.charge(&Charge::new(limit, id, cost)?, now)),
        }
    }

    #[inline(never)]
    fn spend_window<B: HasTable>(
        &self,
        limit: &Limit,
        numbers: &B::Limit,
        id: &[u8],
        cost: u64,
        now: impl FnOnce() -> Timestamp,
    ) -> Decision {
        self.spend_prefetched::<B>(limit, limit.bucket_base(), numbers, id, cost, now)
    }

    #[inline]
    fn spend_prefetched<B: HasTable>(
        &self,
        limit: &Limit,
        fingerprint: u64,
        numbers: &B::Limit,
        id: &[u8],
        cost: u64,
        now: impl FnOnce() -> Timestamp,
    ) -> Decision {
        let hash = self.key.hash_marked(fingerprint, id, limit.is_inline());
        // The slot of a hot bucket is out of date, so it is not fetched.
        if !self.shards.hot(self.shards.number(hash)).is(hash.tag().to_word()) {
            self.shards.prefetch_bucket::<B>(hash);
        }
        let now = now();
        match self.settle_existing::<B>(numbers, cost, hash, now) {
            Some(decision) => decision,
            None => self.spend_new::<B>(limit, numbers, id, cost, hash, now),
        }
    }

    #[cold]
    fn spend_new<B: HasTable>(
        &self,
        limit: &Limit,
        numbers: &B::Limit,
        id: &[u8],
        cost: u64,
        hash: BucketHash,
        now: Timestamp,
    ) -> Decision {
        match Charge::new(limit, id, cost) {
            Ok(charge) => self.settle_new::<B>(&charge, numbers, hash, now),
            Err(_) => Decision::UNLIMITED,
        }
    }

    /// Spends `cost` for each id under one limit, and appends the decisions. An id or a cost that the limit rejects
    /// refuses the whole batch, before anything is taken.
    pub fn spend_many(
        &self,
        limit: &Limit,
        ids: &[impl AsRef<[u8]>],
        cost: u64,
        now: impl FnOnce() -> Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), ChargeError> {
        match limit.same_for_all_ids() {
            Some(Algorithm::TokenBucket(numbers)) if cost <= numbers.burst() => {
                let fingerprint = limit.bucket_fingerprint(numbers);
                self.spend_each::<TokenBucketState>(limit, fingerprint, numbers, ids, cost, now, decisions)
            }
            Some(Algorithm::FixedWindow(numbers)) if cost <= numbers.count() => {
                let fingerprint = limit.bucket_base();
                self.spend_each::<FixedWindowState>(limit, fingerprint, numbers, ids, cost, now, decisions)
            }
            Some(Algorithm::SlidingWindow(numbers)) if cost <= numbers.count() => {
                let fingerprint = limit.bucket_base();
                self.spend_each::<SlidingWindowState>(limit, fingerprint, numbers, ids, cost, now, decisions)
            }
            _ => {
                let charges = ids
                    .iter()
                    .map(|id| Charge::new(limit, id.as_ref(), cost))
                    .collect::<Result<Vec<_>, _>>()?;
                let bills: Vec<_> = charges.iter().map(Bill::one).collect();
                self.settle(&bills, now(), decisions);
                Ok(())
            }
        }
    }

    /// Spends `cost` for each id, with all buckets fetched before. An empty id is refused.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one call, which a struct would only name again"
    )]
    fn spend_each<B: HasTable>(
        &self,
        limit: &Limit,
        fingerprint: u64,
        numbers: &B::Limit,
        ids: &[impl AsRef<[u8]>],
        cost: u64,
        now: impl FnOnce() -> Timestamp,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), ChargeError> {
        if let Some(rejected) = ids.iter().find(|id| id.as_ref().is_empty()) {
            Charge::new(limit, rejected.as_ref(), cost)?;
        }
        let now = now();
        decisions.reserve(ids.len());
        self.for_each_prefetched(
            ids,
            |id| self.key.hash_marked(fingerprint, id.as_ref(), limit.is_inline()),
            // Each arm pushes: a decision in which both join would be copied from the stack.
            |id, hash| match self.settle_existing::<B>(numbers, cost, hash, now) {
                Some(decision) => decisions.push(decision),
                None => decisions.push(self.spend_new::<B>(limit, numbers, id.as_ref(), cost, hash, now)),
            },
            |_, hash| self.shards.prefetch_bucket::<B>(hash),
        );
        Ok(())
    }

    /// Starts to fetch the bucket of a charge. Nearly every limit is a token bucket: one comparison finds that out,
    /// where the jump table of a match over all algorithms made a single decision a fifth slower.
    #[inline]
    fn prefetch(&self, charge: &Charge<'_>, hash: BucketHash) {
        match charge.algorithm() {
            Some(Algorithm::TokenBucket(_)) => self.shards.prefetch_bucket::<TokenBucketState>(hash),
            Some(algorithm) => self.prefetch_other(algorithm, hash),
            None => {}
        }
    }

    #[inline(never)]
    fn prefetch_other(&self, algorithm: &Algorithm, hash: BucketHash) {
        with_bucket_type!(algorithm, |B, _limit| self.shards.prefetch_bucket::<B>(hash));
    }

    /// Runs each command in turn, and appends its outcome.
    pub fn run_quota_commands(
        &self,
        commands: &[QuotaCommand<'_>],
        now: Timestamp,
        outcomes: &mut Vec<QuotaOutcome>,
    ) {
        self.for_each_prefetched(
            commands,
            |command| self.key.hash_client_made(PAIR_FINGERPRINT, command.pair),
            |command, hash| {
                let apply = |quota: &mut QuotaState| quota.apply(command.operation, command.ttl_max, now);
                let done = self.change(hash, no_entries, now, apply);
                outcomes.push(done.unwrap_or_else(|StoreFull| {
                    self.refused_full.fetch_add(1, Ordering::Relaxed);
                    QuotaOutcome::Failed
                }));
            },
            |_, hash| self.shards.prefetch_bucket::<QuotaState>(hash),
        );
    }

    /// Returns the cost of a charge to its bucket.
    pub fn refund(&self, charge: &Charge<'_>, now: Timestamp) -> Refund {
        let Some(algorithm) = charge.algorithm() else { return Refund::UNLIMITED };
        let hash = self.key.hash(charge);
        let mut tables = self.shards.lock(self.shards.number(hash));
        self.carry_over(&mut tables, charge, hash, now);
        let refund = with_bucket_type!(algorithm, |B, limit| B::table_mut(&mut tables).refund(
            hash.tag(),
            limit,
            charge.cost(),
            now
        ));
        self.shards.publish_next_expiry(self.shards.number(hash), &tables);
        refund.unwrap_or(Refund::UNLIMITED)
    }

    /// Removes the bucket of a charge.
    pub fn reset(&self, charge: &Charge<'_>) {
        let Some(algorithm) = charge.algorithm() else { return };
        let hash = self.key.hash(charge);
        let mut tables = self.shards.lock(self.shards.number(hash));
        self.carry_over(&mut tables, charge, hash, Timestamp::EPOCH);
        let removed = with_bucket_type!(algorithm, |B, _limit| {
            let table = B::table_mut(&mut tables);
            let removed = table.remove(hash.tag());
            self.entries.count(table.take_entry_delta());
            removed
        });
        if removed {
            self.places.give_back(BucketCount::one(hash.tag()));
        }
    }

    /// Reads the bucket of a charge under one lock.
    pub fn inspect(&self, charge: &Charge<'_>, now: Timestamp) -> BucketReading {
        let Some(algorithm) = charge.algorithm() else { return BucketReading::unlimited(now) };
        let hash = self.key.hash(charge);
        let mut slots_left = FULL_SWEEP_SLOTS;
        let has_free = || self.places.has_free(BucketCount::one(hash.tag()));
        let has_place = self.make_room(has_free, &mut slots_left, now);
        let mut tables = self.shards.lock(self.shards.number(hash));
        self.carry_over(&mut tables, charge, hash, now);
        with_bucket_type!(algorithm, |B, limit| {
            let bucket = B::table(&tables).get(hash.tag());
            let full = (bucket.is_none() && !has_place).then(|| full_decision(charge));
            read_bucket::<B>(bucket, limit, full, now)
        })
    }

    /// Drops the expired buckets among the next `slots` slots, at most once around the whole store. Returns the number
    /// of dropped buckets.
    pub fn sweep(&self, slots: usize, now: Timestamp) -> usize {
        // One more than there are: the first shard may have been swept from its middle on.
        let (mut looked_at, mut dropped, mut shards_left) = (0, 0, self.shards.len() + 1);
        let former = self.former.read().unwrap_or_else(PoisonError::into_inner);
        while looked_at < slots && shards_left > 0 {
            let at = self.sweep_shard.load(Ordering::Relaxed);
            let number = at & (self.shards.len() - 1);
            let (swept, finished) =
                self.shards.sweep(number, (slots - looked_at).min(SWEEP_SLOTS_PER_LOCK), now, &former);
            if finished {
                // Two concurrent sweeps may both move on and skip a shard, which is then swept in the next round.
                self.sweep_shard.store(at.wrapping_add(1), Ordering::Relaxed);
                shards_left -= 1;
            }
            // At least one, so that a store of empty shards cannot keep the loop busy.
            looked_at += swept.looked_at.max(1);
            dropped += swept.dropped.total();
            self.entries.count(swept.entry_delta);
            self.places.give_back(swept.dropped);
        }
        self.count_swept(dropped);
        dropped
    }

    /// Sets the expired token buckets that sweeps keep, for a policy that is about to replace another. A full store
    /// drops them before it refuses a new id.
    pub fn keep_former(&self, former: FormerBuckets) {
        *self.former.write().unwrap_or_else(PoisonError::into_inner) = former;
    }

    /// Returns counters that describe what the store holds and has done.
    pub fn stats(&self) -> MemoryStats {
        MemoryStats {
            buckets: self.places.all().taken(),
            max_buckets: self.places.all().max(),
            client_buckets: self.places.client_made().taken(),
            max_client_buckets: self.places.client_made().max(),
            sweeps: self.sweeps.load(Ordering::Relaxed),
            swept: self.swept.load(Ordering::Relaxed),
            refused_full: self.refused_full.load(Ordering::Relaxed),
        }
    }

    /// Hashes and prefetches a batch in chunks, and runs `work` on each item of a chunk.
    #[inline]
    fn for_each_prefetched<T>(
        &self,
        batch: &[T],
        hash_of: impl Fn(&T) -> BucketHash,
        mut work: impl FnMut(&T, BucketHash),
        prefetch: impl Fn(&T, BucketHash),
    ) {
        let mut hashes = [BucketHash::NONE; PREFETCH_BATCH];
        for batch in batch.chunks(PREFETCH_BATCH) {
            for (hash, one) in hashes.iter_mut().zip(batch) {
                *hash = hash_of(one);
                prefetch(one, *hash);
                self.shards.prefetch_lock(*hash);
            }
            for (hash, one) in hashes.iter().zip(batch) {
                work(one, *hash);
            }
        }
    }

    /// Settles a bill of one charge under one lock at most. This is the fast path, which nearly every request takes.
    #[inline]
    fn settle_single(&self, charge: &Charge<'_>, hash: BucketHash, now: Timestamp) -> Decision {
        match charge.algorithm() {
            None => Decision::UNLIMITED,
            Some(Algorithm::TokenBucket(limit)) => {
                match self.settle_existing::<TokenBucketState>(limit, charge.cost(), hash, now) {
                    Some(decision) => decision,
                    None => self.settle_new::<TokenBucketState>(charge, limit, hash, now),
                }
            }
            Some(algorithm) => self.settle_other(charge, algorithm, hash, now),
        }
    }

    #[inline(never)]
    fn settle_other(
        &self,
        charge: &Charge<'_>,
        algorithm: &Algorithm,
        hash: BucketHash,
        now: Timestamp,
    ) -> Decision {
        with_bucket_type!(algorithm, |B, limit| self.settle_in::<B>(charge, limit, hash, now))
    }

    #[inline]
    fn settle_in<B: HasTable>(
        &self,
        charge: &Charge<'_>,
        limit: &B::Limit,
        hash: BucketHash,
        now: Timestamp,
    ) -> Decision {
        if B::GROWS {
            if charge.limit().looks_further() {
                self.carry_over(&mut self.shards.lock(self.shards.number(hash)), charge, hash, now);
            }
            let settle = |bucket: &mut B| {
                former::spend_if_lost(charge, bucket, limit, now).charge(limit, charge.cost(), now)
            };
            return self
                .change(hash, |bucket: &B| bucket.entries_after(limit, charge.cost(), now), now, settle)
                .unwrap_or_else(|StoreFull| self.refuse_full(charge));
        }
        match self.settle_existing::<B>(limit, charge.cost(), hash, now) {
            Some(decision) => decision,
            None => self.settle_new::<B>(charge, limit, hash, now),
        }
    }

    /// Settles a charge of a bucket that does not grow. Returns `None` if there is no such bucket.
    ///
    /// No call that returns a decision may be on the usual path, here and in the callers: the decision is then in
    /// registers until it is at its place. The verdict and `degraded` are one byte each. A copy from the stack would
    /// read a whole word that has just been written in parts, for which the processor waits until it is in the cache (a
    /// store-forwarding stall).
    #[inline(always)]
    fn settle_existing<B: HasTable>(
        &self,
        limit: &B::Limit,
        cost: u64,
        hash: BucketHash,
        now: Timestamp,
    ) -> Option<Decision> {
        let number = self.shards.number(hash);
        let (hot, tag) = (self.shards.hot(number), hash.tag());
        if hot.is(tag.to_word()) {
            while let Some(read) = hot.read(tag.to_word(), B::TABLE_INDEX, B::WORDS)
                && let Some(mut bucket) = B::from_hot(read.words)
            {
                let decision = bucket.charge(limit, cost, now);
                let words = bucket.to_hot().unwrap_or(read.words);
                if words == read.words || hot.replace(read, words, B::WORDS) {
                    return Some(decision);
                }
            }
        }
        let mut tables = self.shards.lock(number);
        let at = B::table(&tables).find(tag).ok()?;
        let decision = B::table_mut(&mut tables).change_found(at, |bucket| bucket.charge(limit, cost, now));
        if tables.is_used_again(tag) {
            self.shards.keep_hot::<B>(number, &mut tables, tag, at);
        }
        Some(decision)
    }

    /// Settles a charge whose bucket was not there a moment ago.
    #[cold]
    fn settle_new<B: HasTable>(
        &self,
        charge: &Charge<'_>,
        limit: &B::Limit,
        hash: BucketHash,
        now: Timestamp,
    ) -> Decision {
        let settle = |bucket: &mut B| {
            former::spend_if_lost(charge, bucket, limit, now).charge(limit, charge.cost(), now)
        };
        if charge.limit().looks_further() {
            let mut tables = self.shards.lock(self.shards.number(hash));
            self.carry_over(&mut tables, charge, hash, now);
        }
        self.change_new(hash, now, settle).unwrap_or_else(|StoreFull| self.refuse_full(charge))
    }

    /// Changes one bucket, after which a log has `entries_after` entries. If it does not exist, it is inserted, unless
    /// the change leaves it empty or the store is full.
    #[inline]
    fn change<B: HasTable, T>(
        &self,
        hash: BucketHash,
        entries_after: impl Fn(&B) -> usize,
        now: Timestamp,
        change: impl Fn(&mut B) -> T,
    ) -> Result<T, StoreFull> {
        let number = self.shards.number(hash);
        let mut slots_left = FULL_SWEEP_SLOTS;
        loop {
            let mut tables = self.shards.lock(number);
            let table = B::table_mut(&mut tables);
            let next_expiry = table.next_expiry();
            let entries_full = B::GROWS && self.entries.is_full();
            let changed = table.change_existing(hash.tag(), |bucket| {
                self.has_entries_for(bucket, entries_full, &entries_after, now).then(|| change(bucket))
            });
            if B::GROWS {
                self.entries.count(table.take_entry_delta());
            }
            if table.next_expiry() < next_expiry {
                self.shards.publish_next_expiry(number, &tables);
            }
            drop(tables);
            match changed {
                Some(Some(outcome)) => return Ok(outcome),
                Some(None)
                    if entries_full && self.make_room(|| !self.entries.is_full(), &mut slots_left, now) => {}
                Some(None) => return Err(StoreFull),
                None => return self.change_new(hash, now, change),
            }
        }
    }

    /// Returns whether a log may have as many entries as a change leaves it: within the share of one log, and within
    /// the memory that it has if all entries are taken. Entries that count for nobody are dropped first.
    #[inline]
    fn has_entries_for<B: HasTable>(
        &self,
        bucket: &mut B,
        entries_full: bool,
        entries_after: impl Fn(&B) -> usize,
        now: Timestamp,
    ) -> bool {
        // No change adds more entries than a limit can have.
        if !B::GROWS || !entries_full && bucket.entries() <= self.log_entries_max - LIMIT_LOG_MAX {
            return true;
        }
        let fits = |bucket: &B| {
            let bound =
                if entries_full { bucket.room().min(self.log_entries_max) } else { self.log_entries_max };
            entries_after(bucket) <= bound
        };
        fits(bucket) || {
            bucket.trim(now);
            fits(bucket)
        }
    }

    #[cold]
    fn change_new<B: HasTable, T>(
        &self,
        hash: BucketHash,
        now: Timestamp,
        change: impl Fn(&mut B) -> T,
    ) -> Result<T, StoreFull> {
        let number = self.shards.number(hash);
        let has_entries = || !B::GROWS || !self.entries.is_full();
        let has_free = || has_entries() && self.places.has_free(BucketCount::one(hash.tag()));
        let mut slots_left = FULL_SWEEP_SLOTS;
        loop {
            let mut place = None;
            let room = || {
                place = if has_entries() { self.places.take(hash.tag()) } else { None };
                place.is_some()
            };
            let mut tables = self.shards.lock(number);
            let outcome = B::table_mut(&mut tables).change_or_insert(hash.tag(), now, room, &change);
            self.entries.count(B::table_mut(&mut tables).take_entry_delta());
            self.shards.publish_location::<B>(number, &mut tables);
            drop(tables);
            if let Some(taken) = place {
                self.sweep_after_insert(taken, now);
            }
            if outcome.is_ok() || !self.make_room(has_free, &mut slots_left, now) {
                return outcome;
            }
        }
    }

    /// Sweeps shards in which a bucket may have expired, until `has_room` returns true. Returns whether it does.
    ///
    /// So a request is refused only while no bucket has expired, with two exceptions. Once [`FULL_SWEEP_SLOTS`] slots
    /// were looked at for one request, no further shard is swept for it: where ids are used again and again, a shard
    /// may be looked at without anything to drop. The next request goes on with the next shard, so an expired bucket is
    /// dropped at the latest when each shard had its turn. And a bucket that expires earlier than it was going to,
    /// because the clock ran back or its limit got smaller numbers, is dropped when the sweep gets to it, which every
    /// refusal carries on.
    ///
    /// No lock may be held.
    fn make_room(&self, has_room: impl Fn() -> bool, slots_left: &mut usize, now: Timestamp) -> bool {
        if has_room() {
            // Whoever comes back because others took what was freed comes back a limited number of times.
            *slots_left = slots_left.saturating_sub(1);
            return *slots_left > 0;
        }
        let first = self.full_sweep_shard.load(Ordering::Relaxed);
        for at in first..first.saturating_add(self.shards.len()) {
            let number = at & (self.shards.len() - 1);
            if !self.shards.is_due(number, now) {
                continue;
            }
            if *slots_left == 0 || has_room() {
                break;
            }
            let swept = self.shards.sweep_whole(number, now);
            self.full_sweep_shard.store(number + 1, Ordering::Relaxed);
            self.entries.count(swept.entry_delta);
            self.places.give_back(swept.dropped);
            self.count_swept(swept.dropped.total());
            *slots_left = slots_left.saturating_sub(swept.looked_at);
        }
        has_room() || (self.sweep(SWEEP_SLOTS, now) > 0 && has_room())
    }

    fn count_swept(&self, dropped: usize) {
        self.sweeps.fetch_add(1, Ordering::Relaxed);
        self.swept.fetch_add(dropped as u64, Ordering::Relaxed);
    }

    /// Sweeps a part of the store after every few new buckets, so that the store never grows faster than it is swept.
    fn sweep_after_insert(&self, taken: usize, now: Timestamp) {
        if taken.is_multiple_of(INSERTS_PER_SWEEP) {
            self.sweep(SWEEP_SLOTS, now);
        }
    }

    fn refuse_full(&self, charge: &Charge<'_>) -> Decision {
        self.refused_full.fetch_add(1, Ordering::Relaxed);
        full_decision(charge)
    }
}

/// Returns the number of entries after a change of a bucket that has none.
fn no_entries<B>(_: &B) -> usize {
    0
}

/// Returns a reading of a bucket. `full` is the answer to the next request if the store has no place for the bucket.
fn read_bucket<B: HasTable>(
    bucket: Option<B::Ref<'_>>,
    limit: &B::Limit,
    full: Option<Decision>,
    now: Timestamp,
) -> BucketReading
where
    BucketState: for<'b> From<&'b B>,
{
    let unused = B::default();
    let check = |cost| bucket.as_deref().unwrap_or(&unused).check(limit, cost, now);
    BucketReading {
        state: BucketState::live(bucket.as_deref(), now),
        decision: check(0),
        next: full.unwrap_or_else(|| check(1)),
        at: now,
    }
}

fn full_decision(charge: &Charge<'_>) -> Decision {
    let (verdict, retry_after) = match charge.limit().on_full() {
        OnFull::Allow => (Verdict::AllowFull, Nanos::ZERO),
        OnFull::Deny => (Verdict::DenyFull, FULL_RETRY_AFTER),
    };
    Decision::new(verdict, 0, retry_after, retry_after)
}

//! Buckets in this process's memory.
//!
//! ```text
//! (limit, id) ─ keyed 128-bit hash ─┬─ low bits:  which shard   a lock and a table for each algorithm
//!                                   └─ high bits: where in it   16 bytes of hash, 8 of token bucket
//! ```
//!
//! A batch is hashed and prefetched whole before its first bucket is touched, so that the memory of sixty requests is
//! on its way at once. A bucket that says nothing any more is dropped by a sweep that new buckets pay for, a few slots
//! each. A bucket that still says something is never dropped: when all places are taken, it is the new id that gets
//! its limit's `on_full` answer.

mod capacity;
mod locked_bill;
mod reports;
mod rules;
mod shard;
mod shard_guards;
mod table;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tollway_core::algorithm::{
    QuotaCommand, QuotaOutcome, QuotaState, RateReading, SlidingLogState, SmoothedRateState, TokenBucketState,
};
use tollway_core::bill::CHARGES_MAX;
use tollway_core::{Algorithm, Bill, Charge, Decision, Nanos, OnFull, Refund, Timestamp, Verdict};

use self::capacity::Capacity;
use self::locked_bill::LockedBill;
use self::shard::{HasTable, Shards, with_table};
use self::table::NoRoom;
use crate::hash::{BucketHash, HashKey};
use crate::rates::{KeyHash, RateUpdate};
use crate::store::BucketState;

/// How many buckets are kept unless configured otherwise: a third of a gigabyte of token buckets.
pub const MAX_BUCKETS: usize = 10_000_000;

/// Logs take memory for this many entries for each bucket that there may be: as much again as a bucket takes.
const ENTRIES_PER_BUCKET: usize = 4;
/// But for no fewer than this many in all: eight megabytes.
const ENTRIES_MIN: usize = 1 << 20;

/// How many buckets a shard is meant for at most. Growing a table this long takes some tens of microseconds.
const SHARD_BUCKETS: usize = 16_384;
const SHARDS_MIN: usize = 16;
const SHARDS_MAX: usize = 8_192;

/// How many charges are hashed and prefetched before the first of them is settled.
const BATCH: usize = 64;

/// A sweep of this many slots comes with every [`INSERTS_PER_SWEEP`] new buckets: while the store grows by an eighth, all
/// of it is swept once.
const SWEEP_SLOTS: usize = 256;
const INSERTS_PER_SWEEP: usize = 32;
/// How many slots are swept for a new id that finds no room, before it is told so.
const FULL_SWEEP_SLOTS: usize = 1_024;
/// The most slots that are swept under one lock: a microsecond's worth.
const SWEEP_STRETCH: usize = 256;

/// What keys and Throttr's pairs have for the fingerprint of a limit. A name that came out as one of these would share
/// their buckets: the chance is that of two names sharing theirs.
const KEYS: u64 = u64::from_le_bytes(*b"text key");
const PAIRS: u64 = u64::from_le_bytes(*b"the pair");

/// What a new id is told to wait when there is no room: by then a sweep may have made some.
const FULL_RETRY_AFTER: Nanos = Nanos::from_secs(1);

/// The memory store.
#[derive(Debug)]
pub struct Memory {
    shards: Shards,
    key: HashKey,
    capacity: Capacity,
    /// For how many entries logs take memory.
    entries: Capacity,
    /// The shard the sweep is in, counted on without end.
    sweeping: AtomicUsize,
    sweeps: AtomicU64,
    swept: AtomicU64,
    refused_full: AtomicU64,
}

/// What the store holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Buckets held now.
    pub buckets: usize,
    /// The most that may be held.
    pub max_buckets: usize,
    /// How often a stretch of the store was swept.
    pub sweeps: u64,
    /// Buckets dropped because they had nothing to say any more.
    pub swept: u64,
    /// New ids that found no room.
    pub refused_full: u64,
}

impl Memory {
    /// A store of at most this many buckets.
    pub fn new(max_buckets: usize) -> Self {
        let shards = (max_buckets / SHARD_BUCKETS).next_power_of_two().clamp(SHARDS_MIN, SHARDS_MAX);
        let mean = max_buckets / shards;
        // Eight standard deviations above the mean, at two thirds full. No more than a few shards' worth, whatever the
        // bound: address space is not free either, and a table that outgrows it moves once.
        let reserve = (mean + 8 * mean.isqrt() + 16).min(2 * SHARD_BUCKETS) * 3 / 2;
        Self {
            shards: Shards::new(shards, reserve),
            key: HashKey::random(),
            capacity: Capacity::new(max_buckets),
            entries: Capacity::new(max_buckets.saturating_mul(ENTRIES_PER_BUCKET).max(ENTRIES_MIN)),
            sweeping: AtomicUsize::new(0),
            sweeps: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            refused_full: AtomicU64::new(0),
        }
    }

    /// Settles a bill of one charge. The time is asked for while the bucket is on its way from memory.
    #[inline]
    pub fn charge(&self, charge: &Charge<'_>, now: impl FnOnce() -> Timestamp) -> Decision {
        match Bill::one(charge).single() {
            Some(charge) => {
                let hash = self.key.hash(charge);
                self.shards.prefetch_bucket::<TokenBucketState>(hash);
                self.settle_single(charge, hash, now())
            }
            None => self.settle_whole(&Bill::one(charge), now()),
        }
    }

    /// Settles each bill on its own: all its charges or none, in one step no other caller can split. Appends a decision each.
    pub fn settle(&self, bills: &[Bill<'_>], now: Timestamp, decisions: &mut Vec<Decision>) {
        decisions.reserve(bills.len());
        self.each_of(
            bills,
            |bill| self.key.hash(&bill.charges()[0]),
            |bill, hash| {
                decisions.push(match bill.single() {
                    Some(charge) => self.settle_single(charge, hash, now),
                    None => self.settle_whole(bill, now),
                });
            },
            Shards::prefetch_bucket::<TokenBucketState>,
        );
    }

    /// The decisions that [`settle`](Self::settle) would make, remembering nothing.
    pub fn check(&self, bills: &[Bill<'_>], now: Timestamp, decisions: &mut Vec<Decision>) {
        decisions.extend(bills.iter().map(|bill| {
            let mut locked = LockedBill::new(self, bill);
            let answers: Vec<_> = (0..bill.charges().len())
                .map(|index| {
                    if locked.needs_room(index) && self.capacity.is_full() {
                        full_answer(&bill.charges()[index])
                    } else {
                        locked.check(index, now)
                    }
                })
                .collect();
            bill.answer(&answers)
        }));
    }

    /// What stands for a key.
    #[inline]
    pub fn hash_key(&self, key: &[u8]) -> KeyHash {
        KeyHash(self.key.hash_of(KEYS, key))
    }

    /// Has the bucket of a key fetched from memory.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.shards.prefetch_bucket::<SmoothedRateState>(hash.0);
        self.shards.prefetch_lock(hash.0);
    }

    /// What stands for the id of a charge under its limit.
    pub fn hash_charge(&self, charge: &Charge<'_>) -> KeyHash {
        KeyHash(self.key.hash(charge))
    }

    /// Measures each rate with one more request in it. Appends a measure each.
    pub fn update_rates(&self, updates: &[RateUpdate<'_>], now: Timestamp, readings: &mut Vec<RateReading>) {
        readings.extend(updates.iter().map(|RateUpdate { hash, limit, on_full, .. }| {
            let measured =
                self.change(hash.0, now, |bucket: &mut SmoothedRateState| bucket.update(limit, 1, now));
            measured.unwrap_or_else(|NoRoom| {
                self.refused_full.fetch_add(1, Ordering::Relaxed);
                RateReading::new(0.0, *on_full == OnFull::Deny)
            })
        }));
    }

    /// Does what each order says, one after another. Appends an outcome each.
    pub fn run_quota_commands(
        &self,
        commands: &[QuotaCommand<'_>],
        now: Timestamp,
        outcomes: &mut Vec<QuotaOutcome>,
    ) {
        self.each_of(
            commands,
            |order| self.key.hash_of(PAIRS, order.pair),
            |order, hash| {
                let done = self.change(hash, now, |quota: &mut QuotaState| quota.apply(order.operation, now));
                outcomes.push(done.unwrap_or_else(|NoRoom| {
                    self.refused_full.fetch_add(1, Ordering::Relaxed);
                    QuotaOutcome::Failed
                }));
            },
            Shards::prefetch_bucket::<QuotaState>,
        );
    }

    /// Gives back what a charge took.
    pub fn refund(&self, charge: &Charge<'_>, now: Timestamp) -> Refund {
        let Some(algorithm) = charge.algorithm() else { return Refund::UNLIMITED };
        let hash = self.key.hash(charge);
        let mut tables = self.shards.lock(self.shards.number(hash));
        with_table!(tables, algorithm, |table, limit| table.refund(hash, limit, charge.cost(), now))
            .unwrap_or(Refund::UNLIMITED)
    }

    /// Forgets the bucket of a charge.
    pub fn reset(&self, charge: &Charge<'_>) {
        let Some(algorithm) = charge.algorithm() else { return };
        let hash = self.key.hash(charge);
        let mut tables = self.shards.lock(self.shards.number(hash));
        let removed = with_table!(tables, algorithm, |table, _limit| {
            let removed = table.remove(hash);
            self.entries.count(table.tell_growth());
            removed
        });
        if removed {
            self.capacity.give_back(1);
        }
    }

    /// What the bucket of a charge remembers, if it has anything to say.
    pub fn inspect(&self, charge: &Charge<'_>, now: Timestamp) -> Option<BucketState> {
        let algorithm = charge.algorithm()?;
        let hash = self.key.hash(charge);
        let mut tables = self.shards.lock(self.shards.number(hash));
        with_table!(tables, algorithm, |table, _limit| BucketState::live(table.get(hash), now))
    }

    /// Drops what is silent among the next `slots` slots, or once round the whole store if it has fewer. Returns how many
    /// buckets it dropped.
    pub fn sweep(&self, slots: usize, now: Timestamp) -> usize {
        // One more than there are: the first may be taken up in its middle.
        let (mut looked_at, mut dropped, mut shards_left) = (0, 0, self.shards.len() + 1);
        while looked_at < slots && shards_left > 0 {
            let at = self.sweeping.load(Ordering::Relaxed);
            let number = at & (self.shards.len() - 1);
            let (swept, finished) = self.shards.sweep(number, (slots - looked_at).min(SWEEP_STRETCH), now);
            if finished {
                // Two sweeps at once may both move on; the shard left out has its turn in the next round.
                self.sweeping.store(at.wrapping_add(1), Ordering::Relaxed);
                shards_left -= 1;
            }
            // At least one: an empty table is a look as well.
            looked_at += swept.looked_at.max(1);
            dropped += swept.dropped;
            self.entries.count(swept.growth);
        }
        self.sweeps.fetch_add(1, Ordering::Relaxed);
        if dropped > 0 {
            self.capacity.give_back(dropped);
            self.swept.fetch_add(dropped as u64, Ordering::Relaxed);
        }
        dropped
    }

    /// What the store holds and has done.
    pub fn stats(&self) -> MemoryStats {
        MemoryStats {
            buckets: self.capacity.taken(),
            max_buckets: self.capacity.max(),
            sweeps: self.sweeps.load(Ordering::Relaxed),
            swept: self.swept.load(Ordering::Relaxed),
            refused_full: self.refused_full.load(Ordering::Relaxed),
        }
    }

    /// Hashes and prefetches a batch, then does the work on each.
    #[inline]
    fn each_of<T>(
        &self,
        batch: &[T],
        hash_of: impl Fn(&T) -> BucketHash,
        mut work: impl FnMut(&T, BucketHash),
        prefetch: impl Fn(&Shards, BucketHash),
    ) {
        let mut hashes = [BucketHash::NONE; BATCH];
        for batch in batch.chunks(BATCH) {
            for (hash, one) in hashes.iter_mut().zip(batch) {
                *hash = hash_of(one);
                prefetch(&self.shards, *hash);
                self.shards.prefetch_lock(*hash);
            }
            for (hash, one) in hashes.iter().zip(batch) {
                work(one, *hash);
            }
        }
    }

    /// The short way, for nearly every request there is: one charge, one lock, a bucket that is there.
    #[inline]
    fn settle_single(&self, charge: &Charge<'_>, hash: BucketHash, now: Timestamp) -> Decision {
        let Some(algorithm) = charge.algorithm() else { return Decision::UNLIMITED };
        match algorithm {
            Algorithm::TokenBucket(limit) => self.settle_in::<TokenBucketState>(charge, limit, hash, now),
            Algorithm::SlidingLog(limit) => self.settle_in::<SlidingLogState>(charge, limit, hash, now),
            Algorithm::SmoothedRate(limit) => self.settle_in::<SmoothedRateState>(charge, limit, hash, now),
            Algorithm::Quota(limit) => self.settle_in::<QuotaState>(charge, limit, hash, now),
        }
    }

    #[inline]
    fn settle_in<B: HasTable>(
        &self,
        charge: &Charge<'_>,
        limit: &B::Limit,
        hash: BucketHash,
        now: Timestamp,
    ) -> Decision {
        let settle = |bucket: &mut B| bucket.charge(limit, charge.cost(), now);
        if B::GROWS {
            return self.change(hash, now, settle).unwrap_or_else(|NoRoom| self.refuse_full(charge));
        }
        // As `change` does it, but what is decided is written where it belongs: moving it out of a `Result` is a tenth of all
        // instructions of a decision.
        let mut tables = self.shards.lock(self.shards.number(hash));
        if let Some(bucket) = B::table(&mut tables).get_mut(hash) {
            return settle(bucket);
        }
        drop(tables);
        self.change_new(hash, now, settle).unwrap_or_else(|NoRoom| self.refuse_full(charge))
    }

    /// Changes one bucket. One not there yet is made, if there is something to remember and room for it.
    #[inline]
    fn change<B: HasTable, T>(
        &self,
        hash: BucketHash,
        now: Timestamp,
        change: impl Fn(&mut B) -> T,
    ) -> Result<T, NoRoom> {
        let mut tables = self.shards.lock(self.shards.number(hash));
        let table = B::table(&mut tables);
        if B::GROWS && self.entries.is_full() && table.outgrows(hash, &change) {
            drop(tables);
            self.sweep(FULL_SWEEP_SLOTS, now);
            return Err(NoRoom);
        }
        let changed = table.alter(hash, &change);
        if B::GROWS {
            self.entries.count(table.tell_growth());
        }
        drop(tables);
        match changed {
            Some(outcome) => Ok(outcome),
            None => self.change_new(hash, now, change),
        }
    }

    #[cold]
    fn change_new<B: HasTable, T>(
        &self,
        hash: BucketHash,
        now: Timestamp,
        change: impl Fn(&mut B) -> T,
    ) -> Result<T, NoRoom> {
        let number = self.shards.number(hash);
        let mut place = None;
        let room = || {
            place = self.capacity.take();
            place.is_some()
        };
        let mut tables = self.shards.lock(number);
        let outcome = B::table(&mut tables).change(hash, now, room, &change);
        self.entries.count(B::table(&mut tables).tell_growth());
        self.shards.note_place::<B>(number, &mut tables);
        drop(tables);
        if let Some(taken) = place {
            self.pay_for_place(taken, now);
        }
        match outcome {
            Err(NoRoom) if self.sweep(FULL_SWEEP_SLOTS, now) > 0 => self.change_new(hash, now, change),
            outcome => outcome,
        }
    }

    /// A place for one more bucket, swept free if need be.
    fn take_place(&self, now: Timestamp) -> bool {
        self.capacity.take().is_some()
            || (self.sweep(FULL_SWEEP_SLOTS, now) > 0 && self.capacity.take().is_some())
    }

    /// Whoever takes a place sweeps a little: the store never grows faster than it is swept.
    fn pay_for_place(&self, taken: usize, now: Timestamp) {
        if taken.is_multiple_of(INSERTS_PER_SWEEP) {
            self.sweep(SWEEP_SLOTS, now);
        }
    }

    fn refuse_full(&self, charge: &Charge<'_>) -> Decision {
        self.refused_full.fetch_add(1, Ordering::Relaxed);
        full_answer(charge)
    }

    /// The long way: every shard of the bill is locked before the first bucket is looked at.
    fn settle_whole(&self, bill: &Bill<'_>, now: Timestamp) -> Decision {
        let mut locked = LockedBill::new(self, bill);
        let mut answers = [Decision::UNLIMITED; CHARGES_MAX];
        let mut places = 0;
        let entries_full = self.entries.is_full();
        for (index, charge) in bill.charges().iter().enumerate() {
            answers[index] = if entries_full && locked.outgrows(index, now) {
                self.refuse_full(charge)
            } else if !locked.needs_room(index) {
                locked.check(index, now)
            } else if self.take_place(now) {
                places += 1;
                locked.check(index, now)
            } else {
                self.refuse_full(charge)
            };
        }
        let answers = &answers[..bill.charges().len()];
        let answer = bill.answer(answers);
        let used = locked.commit(answers, answer.allowed(), now);
        drop(locked);
        self.capacity.give_back(places - used);
        if used > 0 {
            self.sweep(SWEEP_SLOTS, now);
        }
        answer
    }
}

fn full_answer(charge: &Charge<'_>) -> Decision {
    let (verdict, retry_after) = match charge.limit().on_full() {
        OnFull::Allow => (Verdict::AllowFull, Nanos::ZERO),
        OnFull::Deny => (Verdict::DenyFull, FULL_RETRY_AFTER),
    };
    Decision::new(verdict, 0, retry_after, retry_after)
}

//! Locks all buckets of one decision at once, so that it is made and stored as a whole.
//!
//! Every decision about several buckets takes the same steps, whether charges or rules have them:
//!
//! ```text
//! lock      the shards of all buckets, in their order
//! ask       get, or a change that is only tried: nothing is stored yet
//! decide    by the core, from all answers
//! reserve   capacity for what the decision would insert
//! commit    change
//! ```
//!
//! Without capacity the locks are released, expired buckets are swept, and everything is done again. If that frees too
//! little, the answer of the last attempt is `on_full`.

use smallvec::SmallVec;
use tollway_core::{Charge, Decision, Timestamp};

use super::capacity::BucketCount;
use super::shard::{HasTable, Tables, TablesGuard};
use super::{FULL_SWEEP_SLOTS, INSERTS_PER_SWEEP, Memory, SWEEP_SLOTS};
use crate::hash::BucketHash;

/// The buckets of one decision, with the locks of their shards.
pub(super) struct LockedBuckets<'a> {
    store: &'a Memory,
    /// The locks, in the order of the shards. They are always taken in this order: two threads that need the same
    /// shards cannot deadlock.
    guards: SmallVec<[(usize, TablesGuard<'a>); USUAL_LOCKS]>,
    entries_full: bool,
    /// False if the decision is made again after a sweep in case that the store lacks capacity for it.
    is_last_attempt: bool,
    /// The buckets that the store had no capacity for, and whether it had none for log entries.
    lacked: BucketCount,
    lacked_entries: bool,
    /// The buckets that capacity was reserved for and that are not inserted yet.
    reserved: BucketCount,
    /// True if one of the places that were taken was the one that pays for a sweep.
    sweeps: bool,
}

/// The locks of most bills, which take no memory. More are rare: a bill of several ids, or of rules.
const USUAL_LOCKS: usize = 4;

/// The place of a bucket that exists, until a bucket is inserted or removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct BucketPlace {
    guard: usize,
    slot: usize,
}

impl Memory {
    /// Locks the shards of all these buckets, and runs `decide` while nobody else can change one of them. It is run
    /// again, after a sweep, if it left [`LockedBuckets::is_retried`] true; it must not have changed anything then.
    pub(super) fn with_locked<D>(
        &self,
        hashes: impl Iterator<Item = BucketHash> + Clone,
        now: Timestamp,
        mut decide: impl FnMut(&mut LockedBuckets<'_>) -> D,
    ) -> D {
        let (mut slots_left, mut is_last_attempt) = (FULL_SWEEP_SLOTS, false);
        loop {
            let mut locked = LockedBuckets::lock(self, hashes.clone());
            locked.is_last_attempt = is_last_attempt;
            let decision = decide(&mut locked);
            let LockedBuckets { reserved, sweeps, lacked, lacked_entries, .. } = locked;
            let is_retried = locked.is_retried();
            drop(locked);
            self.places.give_back(reserved);
            if sweeps {
                self.sweep(SWEEP_SLOTS, now);
            }
            if !is_retried {
                return decision;
            }
            let has_room = || {
                (lacked.total() == 0 || self.places.has_free(reserved + lacked))
                    && !(lacked_entries && self.entries.is_full())
            };
            is_last_attempt = !self.make_room(has_room, &mut slots_left, now);
        }
    }
}

impl<'a> LockedBuckets<'a> {
    pub(super) fn lock(store: &'a Memory, hashes: impl Iterator<Item = BucketHash>) -> Self {
        let mut numbers: SmallVec<[usize; 2 * USUAL_LOCKS]> =
            hashes.map(|hash| store.shards.number(hash)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let guards = numbers.into_iter().map(|number| (number, store.shards.lock(number))).collect();
        Self {
            store,
            guards,
            entries_full: store.entries.is_full(),
            is_last_attempt: true,
            lacked: BucketCount::default(),
            lacked_entries: false,
            reserved: BucketCount::default(),
            sweeps: false,
        }
    }

    /// Returns whether the store lacks capacity and the decision will be made again after a sweep. Nothing may be
    /// changed or counted until then.
    pub(super) fn is_retried(&self) -> bool {
        !self.is_last_attempt && (self.lacked.total() > 0 || self.lacked_entries)
    }

    /// Moves the bucket of a charge to `hash` if it was written under former numbers of its limit.
    pub(super) fn carry_over(&mut self, charge: &Charge<'_>, hash: BucketHash, now: Timestamp) {
        let place = self.place(hash);
        self.store.carry_over(&mut self.guards[place].1, charge, hash, now);
    }

    /// Returns the bucket of `hash`, if there is one.
    pub(super) fn get<B: HasTable>(&self, hash: BucketHash) -> Option<B::Ref<'_>> {
        B::table(&self.guards[self.place(hash)].1).get(hash.tag())
    }

    /// Returns the place of a bucket, if it exists.
    pub(super) fn find<B: HasTable>(&self, hash: BucketHash) -> Option<BucketPlace> {
        let guard = self.place(hash);
        let slot = B::table(&self.guards[guard].1).find(hash.tag()).ok()?;
        Some(BucketPlace { guard, slot })
    }

    /// Returns the decision about a charge of `cost` to the bucket at this place, and stores nothing.
    pub(super) fn check_at<B: HasTable>(
        &self,
        place: BucketPlace,
        limit: &B::Limit,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        match B::table(&self.guards[place.guard].1).get_at(place.slot) {
            Some(bucket) => bucket.check(limit, cost, now),
            None => B::default().check(limit, cost, now),
        }
    }

    /// Changes the bucket at this place.
    pub(super) fn change_at<B: HasTable>(&mut self, place: BucketPlace, change: impl FnOnce(&mut B)) {
        B::table_mut(&mut self.guards[place.guard].1).change_found(place.slot, change);
    }

    /// Returns the decision about a charge of `cost`, and stores nothing.
    pub(super) fn check<B: HasTable>(
        &self,
        hash: BucketHash,
        limit: &B::Limit,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        match self.get::<B>(hash) {
            Some(bucket) => bucket.check(limit, cost, now),
            None => B::default().check(limit, cost, now),
        }
    }

    /// Returns whether the store has room for a change: for the bucket if it is new, and for the entries that a log has
    /// after it.
    pub(super) fn has_room<B: HasTable>(
        &mut self,
        hash: BucketHash,
        entries_after: impl Fn(&B) -> usize,
        now: Timestamp,
    ) -> bool {
        let has_free = |locked: &mut Self| locked.store.places.has_free(BucketCount::one(hash.tag()));
        self.find_room(hash, entries_after, now, has_free)
    }

    /// Reserves the room that a change needs. Returns whether there is any.
    pub(super) fn reserve<B: HasTable>(
        &mut self,
        hash: BucketHash,
        entries_after: impl Fn(&B) -> usize,
        now: Timestamp,
    ) -> bool {
        self.find_room(hash, entries_after, now, |locked| {
            let Some(taken) = locked.store.places.take(hash.tag()) else { return false };
            locked.reserved += BucketCount::one(hash.tag());
            locked.sweeps |= taken.is_multiple_of(INSERTS_PER_SWEEP);
            true
        })
    }

    /// Notes that there was no room for a new bucket. Returns false.
    pub(super) fn lack_room<B: HasTable>(&mut self, hash: BucketHash) -> bool {
        if B::GROWS && self.entries_full {
            self.lacked_entries = true;
        } else {
            self.lacked += BucketCount::one(hash.tag());
        }
        false
    }

    fn find_room<B: HasTable>(
        &mut self,
        hash: BucketHash,
        entries_after: impl Fn(&B) -> usize,
        now: Timestamp,
        place_for_new: impl FnOnce(&mut Self) -> bool,
    ) -> bool {
        let (place, store, entries_full) = (self.place(hash), self.store, self.entries_full);
        let has_entries = B::table_mut(&mut self.guards[place].1).change_existing(hash.tag(), |bucket| {
            store.has_entries_for(bucket, entries_full, entries_after, now)
        });
        if !has_entries.unwrap_or(!B::GROWS || !entries_full) {
            // A log that has its share is refused at once: a sweep would not help it.
            self.lacked_entries |= entries_full;
            return false;
        }
        let has_place = has_entries.is_some() || place_for_new(self);
        if !has_place {
            self.lacked += BucketCount::one(hash.tag());
        }
        has_place
    }

    /// Changes a bucket. A new one is inserted if room was reserved for it, and if the change does not leave it empty.
    pub(super) fn change<B: HasTable>(
        &mut self,
        hash: BucketHash,
        now: Timestamp,
        change: impl FnOnce(&mut B),
    ) {
        let place = self.place(hash);
        let Self { store, guards, reserved, .. } = self;
        let (number, tables): (_, &mut Tables) = (guards[place].0, &mut guards[place].1);
        let room = || reserved.take(hash.tag());
        // A bucket without room is not kept. Only a check can meet one, which stores nothing that counts.
        let _ = B::table_mut(tables).change_or_insert(hash.tag(), now, room, change);
        if B::GROWS {
            store.entries.count(B::table_mut(tables).take_entry_delta());
        }
        store.shards.publish_location::<B>(number, tables);
    }

    fn place(&self, hash: BucketHash) -> usize {
        let number = self.store.shards.number(hash);
        self.guards.partition_point(|(locked, _)| *locked < number)
    }
}

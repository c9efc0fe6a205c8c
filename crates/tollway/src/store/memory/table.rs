//! One shard's buckets of one algorithm: open addressing, in the order of their hashes.
//!
//! ```text
//! home    0    1    2    3    4    5    6    7   (overflow)
//!       [ 03 | 19 | 1f |  . | 8a | 8b | 90 |  . |  .  ]      every slot at its home or in the run behind it
//! ```
//!
//! Because a greater hash never has an earlier home, keeping a run sorted costs nothing and pays three times: a missing
//! hash is known to be missing at the first greater one, growing is two straight passes over the same memory, and a
//! table may grow by any factor rather than by two. It grows by an eighth, so that it is always two thirds to three
//! quarters full: 32 to 36 bytes a token bucket.

use tollway_core::algorithm::Bucket;
use tollway_core::{Decision, Refund, Timestamp};

use crate::hash::BucketHash;

/// Homes of the smallest table.
const HOMES_MIN: usize = 4;
/// Slots behind the last home to begin with; more are added when a run needs them.
const OVERFLOW: usize = 8;
/// How many slots from its home on nineteen in twenty hashes are found in.
pub(super) const NEAR: usize = 4;
/// From this many homes on, a table takes the address space for all it may ever hold, and grows in place.
const RESERVE_FROM: usize = 64;

/// A slot that stands empty has the hash [`BucketHash::NONE`] and a bucket never used.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot<B> {
    hash: BucketHash,
    bucket: B,
}

impl<B: Bucket> Slot<B> {
    fn is_empty(&self) -> bool {
        self.hash == BucketHash::NONE
    }

    fn is_silent(&self, now: Timestamp) -> bool {
        self.bucket.expires_at() <= now
    }
}

#[derive(Debug)]
pub(super) struct Table<B> {
    /// Sorted runs. The last slot is always empty, so every search ends.
    slots: Vec<Slot<B>>,
    homes: usize,
    len: usize,
    reserve: usize,
    /// For how many entries its buckets have taken memory, and for how many when this was last told.
    room: usize,
    room_told: usize,
}

/// What a sweep came to.
#[derive(Debug)]
pub(super) struct SweepResult {
    /// How many slots it looked at.
    pub(super) looked_at: usize,
    /// How many buckets it dropped.
    pub(super) dropped: usize,
    /// Where to go on; `None` at the end of the table.
    pub(super) next: Option<usize>,
    /// What the memory of buckets came to.
    pub(super) growth: Growth,
}

/// Memory that buckets have taken, and given back, in entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Growth {
    pub(super) taken: usize,
    pub(super) given_back: usize,
}

/// Why there is no bucket to charge: there was none, and no room for one more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

impl<B: Bucket> Table<B> {
    /// An empty table that is meant to hold up to `reserve` buckets. It takes no memory until it is used.
    pub(super) fn new(reserve: usize) -> Self {
        Self { slots: Vec::new(), homes: 0, len: 0, reserve, room: 0, room_told: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the slots are, and among how many homes: what a prefetch needs to know.
    pub(super) fn place(&self) -> (*const Slot<B>, usize) {
        (self.slots.as_ptr(), self.homes)
    }

    pub(super) fn contains(&self, hash: BucketHash) -> bool {
        self.find(hash).is_ok()
    }

    pub(super) fn check(&self, hash: BucketHash, limit: &B::Limit, cost: u64, now: Timestamp) -> Decision {
        match self.find(hash) {
            Ok(at) => self.slots[at].bucket.check(limit, cost, now),
            Err(_) => B::default().check(limit, cost, now),
        }
    }

    pub(super) fn get(&self, hash: BucketHash) -> Option<&B> {
        self.find(hash).ok().map(|at| &self.slots[at].bucket)
    }

    /// The bucket, if there is one, of a kind that does not grow.
    #[inline]
    pub(super) fn get_mut(&mut self, hash: BucketHash) -> Option<&mut B> {
        debug_assert!(!B::GROWS, "what it grows by would not be counted");
        match self.find(hash) {
            Ok(at) => Some(&mut self.slots[at].bucket),
            Err(_) => None,
        }
    }

    /// Changes the bucket, if there is one.
    #[inline]
    pub(super) fn alter<T>(&mut self, hash: BucketHash, change: impl FnOnce(&mut B) -> T) -> Option<T> {
        match self.find(hash) {
            Ok(at) => Some(self.alter_at(at, change)),
            Err(_) => None,
        }
    }

    /// Would this change make the bucket outgrow the memory it has taken?
    pub(super) fn outgrows<T>(&self, hash: BucketHash, change: impl FnOnce(&mut B) -> T) -> bool {
        let bucket = self.get(hash);
        let mut changed = bucket.cloned().unwrap_or_default();
        change(&mut changed);
        changed.entries() > bucket.map_or(0, B::room)
    }

    /// For how many more entries, or how many fewer, its buckets take memory than when this was last asked.
    #[inline]
    pub(super) fn tell_growth(&mut self) -> Growth {
        let growth = Growth { taken: self.room, given_back: self.room_told };
        self.room_told = self.room;
        growth
    }

    /// Changes the bucket. One not there yet is made if there is something to remember and `room` can be had.
    pub(super) fn change<T>(
        &mut self,
        hash: BucketHash,
        now: Timestamp,
        room: impl FnOnce() -> bool,
        change: impl FnOnce(&mut B) -> T,
    ) -> Result<T, NoRoom> {
        match self.find(hash) {
            Ok(at) => Ok(self.alter_at(at, change)),
            Err(at) => {
                let mut bucket = B::default();
                let outcome = change(&mut bucket);
                if bucket.expires_at() > now {
                    if !room() {
                        return Err(NoRoom);
                    }
                    self.room += bucket.room();
                    self.insert(at, Slot { hash, bucket });
                }
                Ok(outcome)
            }
        }
    }

    pub(super) fn refund(
        &mut self,
        hash: BucketHash,
        limit: &B::Limit,
        cost: u64,
        now: Timestamp,
    ) -> Option<Refund> {
        match self.find(hash) {
            Ok(at) => self.alter_at(at, |bucket| bucket.refund(limit, cost, now)),
            Err(_) => B::default().refund(limit, cost, now),
        }
    }

    /// Forgets a bucket; false if there was none.
    pub(super) fn remove(&mut self, hash: BucketHash) -> bool {
        let found = self.find(hash);
        if let Ok(at) = found {
            self.remove_at(at);
        }
        found.is_ok()
    }

    /// Drops what is silent among the next `slots` slots from `start`.
    pub(super) fn sweep(&mut self, start: usize, slots: usize, now: Timestamp) -> SweepResult {
        let (mut at, mut dropped) = (start, 0);
        for looked_at in 0..slots {
            match self.slots.get(at) {
                None => {
                    self.shrink();
                    return SweepResult { looked_at, dropped, next: None, growth: self.tell_growth() };
                }
                Some(slot) if !slot.is_empty() && slot.is_silent(now) => {
                    // What follows moves up into this slot: look at it again.
                    self.remove_at(at);
                    dropped += 1;
                }
                Some(_) => at += 1,
            }
        }
        SweepResult { looked_at: slots, dropped, next: Some(at), growth: self.tell_growth() }
    }

    #[inline]
    fn alter_at<T>(&mut self, at: usize, change: impl FnOnce(&mut B) -> T) -> T {
        let bucket = &mut self.slots[at].bucket;
        let before = bucket.room();
        let outcome = change(bucket);
        self.room = self.room - before + bucket.room();
        outcome
    }

    /// Where `hash` is, or where it would have to be put.
    #[inline]
    fn find(&self, hash: BucketHash) -> Result<usize, usize> {
        let home = hash.home(self.homes);
        if let Some(first) = self.slots.get(home..).and_then(<[_]>::first_chunk::<NEAR>) {
            // All compared, and one branch that is nearly always taken: guessing where in a run the hash is would go wrong
            // half of the time, and every wrong guess waits for memory before the next request can be begun.
            let same = |(place, slot): (usize, &Slot<B>)| u32::from(slot.hash.is(hash)) << place;
            let found = first.iter().enumerate().map(same).fold(0, |found, place| found | place);
            if found != 0 {
                return Ok(home + found.trailing_zeros() as usize);
            }
        }
        self.find_far(home, hash)
    }

    #[cold]
    fn find_far(&self, home: usize, hash: BucketHash) -> Result<usize, usize> {
        for (at, slot) in self.slots.iter().enumerate().skip(home) {
            if slot.hash == hash {
                return Ok(at);
            }
            if slot.is_empty() || slot.hash > hash {
                return Err(at);
            }
        }
        Err(home)
    }

    fn insert(&mut self, at: usize, slot: Slot<B>) {
        let at = if self.is_crowded() {
            self.grow();
            self.find(slot.hash).unwrap_or_else(|at| at)
        } else {
            at
        };
        let run = self.slots[at..].iter().take_while(|slot| !slot.is_empty()).count();
        if at + run + 1 == self.slots.len() {
            self.slots.push(Slot::default());
        }
        self.slots[at..=at + run].rotate_right(1);
        self.slots[at] = slot;
        self.len += 1;
    }

    fn remove_at(&mut self, at: usize) {
        self.room -= self.slots[at].bucket.room();
        // Whatever stands away from its home moves one closer, up to the first gap or the first at home.
        let follows =
            |(index, slot): &(usize, &Slot<B>)| !slot.is_empty() && slot.hash.home(self.homes) < *index;
        let run = self.slots.iter().enumerate().skip(at + 1).take_while(follows).count();
        self.slots[at..=at + run].rotate_left(1);
        self.slots[at + run] = Slot::default();
        self.len -= 1;
    }

    /// Three quarters full: beyond it runs grow long. An eighth more homes leave it two thirds full.
    fn is_crowded(&self) -> bool {
        self.len >= self.homes - self.homes / 4
    }

    fn grow(&mut self) {
        self.homes = (self.homes + self.homes / 8).max(self.homes + HOMES_MIN);
        if self.homes >= RESERVE_FROM && self.slots.capacity() < self.reserve {
            self.slots.reserve_exact(self.reserve - self.slots.len());
        }
        let slots = self.homes + OVERFLOW;
        if slots > self.slots.len() {
            self.slots.resize_with(slots, Slot::default);
        }
        self.spread();
    }

    /// Puts every slot where it belongs among the homes there are now, in the memory they are in.
    fn spread(&mut self) {
        let mut packed = self.slots.len();
        for at in (0..self.slots.len()).rev() {
            if !self.slots[at].is_empty() {
                packed -= 1;
                self.slots.swap(at, packed);
            }
        }
        let (mut at, mut free) = (packed, 0);
        while at < self.slots.len() {
            free = free.max(self.slots[at].hash.home(self.homes));
            // Every later slot still needs a place behind this one: make one more where the last run is too long.
            if free > at {
                self.slots.insert(at, Slot::default());
            } else {
                self.slots.swap(at, free);
                free += 1;
            }
            at += 1;
        }
        if self.slots.last().is_none_or(|slot| !slot.is_empty()) {
            self.slots.push(Slot::default());
        }
    }

    /// Gives memory back once three quarters of it stand empty.
    fn shrink(&mut self) {
        if self.homes > RESERVE_FROM && self.len < self.homes / 4 {
            let kept = std::mem::take(&mut self.slots).into_iter().filter(|slot| !slot.is_empty());
            let homes = self.len + self.len / 2 + HOMES_MIN;
            let mut slots = Vec::with_capacity(homes + OVERFLOW);
            slots.extend(kept);
            slots.resize_with(slots.len().max(homes + OVERFLOW), Slot::default);
            (self.slots, self.homes) = (slots, homes);
            self.spread();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tollway_core::Nanos;
    use tollway_core::algorithm::{TokenBucket, TokenBucketState};
    use tollway_testbed::Random;

    use super::*;

    fn limit() -> TokenBucket {
        TokenBucket::new(10, 1, Nanos::new(100)).unwrap()
    }

    /// Hashes that crowd into few homes, some of them equal in their high half.
    fn hash(random: &mut Random, spread: u32) -> BucketHash {
        BucketHash::of(random.below(400) << spread, random.below(3))
    }

    fn assert_sound(table: &Table<TokenBucketState>) {
        let taken: Vec<_> = table.slots.iter().enumerate().filter(|(_, slot)| !slot.is_empty()).collect();
        assert_eq!(taken.len(), table.len);
        assert!(taken.is_sorted_by(|a, b| a.1.hash < b.1.hash), "out of order");
        assert!(table.slots.last().is_none_or(Slot::is_empty), "nothing ends a search");
        for (at, slot) in taken {
            let home = slot.hash.home(table.homes);
            assert!(
                home <= at && table.slots[home..at].iter().all(|slot| !slot.is_empty()),
                "a gap before {at}"
            );
        }
    }

    #[test]
    fn it_remembers_what_a_sorted_map_remembers() {
        for spread in [0, 40, 55] {
            let mut random = Random::new(u64::from(spread) + 1);
            let mut table = Table::<TokenBucketState>::new(1_000);
            let mut model: BTreeMap<BucketHash, TokenBucketState> = BTreeMap::new();
            for step in 0..20_000_u64 {
                let now = Timestamp::from_nanos(step);
                let hash = hash(&mut random, spread);
                match random.below(10) {
                    0 => assert_eq!(table.remove(hash), model.remove(&hash).is_some()),
                    1 => {
                        let dropped = table.sweep(0, usize::MAX, now).dropped;
                        let before = model.len();
                        model.retain(|_, bucket| bucket.expires_at() > now);
                        assert_eq!(dropped, before - model.len());
                    }
                    2 => {
                        let full =
                            table.change(hash, now, || false, |bucket| bucket.charge(&limit(), 1, now));
                        assert_eq!(full.is_err(), !model.contains_key(&hash));
                        if let Some(bucket) = model.get_mut(&hash) {
                            assert_eq!(full, Ok(bucket.charge(&limit(), 1, now)));
                        }
                    }
                    _ => {
                        let expected = model.entry(hash).or_default().charge(&limit(), 1, now);
                        let decision =
                            table.change(hash, now, || true, |bucket| bucket.charge(&limit(), 1, now));
                        assert_eq!(decision, Ok(expected));
                    }
                }
                assert_eq!(table.contains(hash), model.contains_key(&hash));
                assert_sound(&table);
            }
        }
    }

    #[test]
    fn a_table_swept_empty_gives_its_memory_back() {
        let mut random = Random::new(7);
        let mut table = Table::<TokenBucketState>::new(100_000);
        for _ in 0..50_000 {
            let hash = BucketHash::of(random.any(), random.any());
            let charge = |bucket: &mut TokenBucketState| bucket.charge(&limit(), 1, Timestamp::EPOCH);
            assert!(table.change(hash, Timestamp::EPOCH, || true, charge).is_ok());
        }
        assert_sound(&table);
        table.sweep(0, usize::MAX, Timestamp::from_nanos(1_000));
        assert!(table.len == 0 && table.slots.capacity() < 1_000, "{} slots", table.slots.capacity());
    }
}

//! The hash table of one shard and one algorithm: open addressing, with the slots sorted by hash.
//!
//! ```text
//! home    0    1    2    3    4    5    6    7   (overflow)
//!       [ 03 | 19 | 1f |  . | 8a | 8b | 90 |  . |  .  ]      every slot at its home or in the run behind it
//! ```
//!
//! A greater hash never has an earlier home, so runs are sorted without extra work. This pays three times. A search for
//! a missing hash ends at the first greater one. Growing is two linear passes over the same memory. And a table can
//! grow by any factor, not only by two: it grows by an eighth, so it is always two thirds to three quarters full, which
//! is 32 to 36 bytes a token bucket. Tables of windows are four fifths to six sevenths full: 37 to 40 bytes a window.

use tollway_core::algorithm::Bucket;
use tollway_core::{Refund, Timestamp};

use super::capacity::BucketCount;
use crate::hash::BucketHash;

/// The number of homes that the smallest table has.
const HOMES_MIN: usize = 4;
/// The number of slots after the last home at first. More are added when a run needs them.
const OVERFLOW: usize = 8;
/// The number of slots, from its home on, in which 95 % of hashes are found.
pub(super) const NEAR_SLOTS: usize = 4;
/// From this number of homes on, a table reserves address space for its final size, so that it can grow in place.
const RESERVE_FROM: usize = 64;

/// A slot that holds a bucket or is empty. An empty slot has the hash [`BucketHash::NONE`] and a default bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot<B> {
    hash: BucketHash,
    bucket: B,
}

impl<B: Bucket> Slot<B> {
    fn is_empty(&self) -> bool {
        self.hash == BucketHash::NONE
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        self.bucket.expires_at() <= now
    }
}

#[derive(Debug)]
pub(super) struct Table<B> {
    /// The slots, sorted by hash with gaps between runs. The last slot is always empty, so that every search ends.
    slots: Vec<Slot<B>>,
    homes: usize,
    len: usize,
    reserve: usize,
    /// The moment before which no bucket of the table expires. It is exact after a sweep of the whole table; then
    /// buckets that are used again may expire later.
    next_expiry: Timestamp,
    /// The number of log entries that its buckets have memory for, now and when it was last reported.
    room: usize,
    room_reported: usize,
}

/// The result that a sweep of some slots had.
#[derive(Debug, Default)]
pub(super) struct SweepResult {
    /// The number of slots that were looked at.
    pub(super) looked_at: usize,
    /// The buckets that were dropped.
    pub(super) dropped: BucketCount,
    /// The slot at which the next sweep starts; `None` at the end of the table.
    pub(super) next: Option<usize>,
    /// The change in the log entries that buckets have memory for.
    pub(super) entry_delta: EntryDelta,
}

impl SweepResult {
    /// Adds what a sweep of another table did.
    pub(super) fn add(&mut self, other: &Self) {
        self.looked_at += other.looked_at;
        self.dropped += other.dropped;
        self.entry_delta.taken += other.entry_delta.taken;
        self.entry_delta.released += other.entry_delta.released;
    }
}

/// The log entries that buckets have taken and released memory for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EntryDelta {
    pub(super) taken: usize,
    pub(super) released: usize,
}

/// The error for a bucket that does not exist and cannot be inserted because the store is full.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StoreFull;

impl<B: Bucket> Table<B> {
    /// One home in this many is free when the table grows. Tables of windows are denser: at three quarters a window
    /// would take 46 bytes instead of 39. Among a million ids, one decision at a time, that costs more than longer runs
    /// do; 64 at a time, which are prefetched, it costs less.
    const HOMES_PER_FREE: usize = if !B::GROWS && size_of::<Slot<B>>() == 32 { 7 } else { 4 };

    /// Returns an empty table that can grow to `reserve` slots in place. It takes no memory until it is used.
    pub(super) fn new(reserve: usize) -> Self {
        Self {
            slots: Vec::new(),
            homes: 0,
            len: 0,
            reserve,
            next_expiry: Timestamp::MAX,
            room: 0,
            room_reported: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the moment before which no bucket expires. Only [`get_mut`](Self::get_mut) can make a bucket expire
    /// earlier without its being noticed: it does so after the clock ran back or a limit got smaller numbers.
    #[inline]
    pub(super) fn next_expiry(&self) -> Timestamp {
        self.next_expiry
    }

    /// Returns the address of the slots and the number of homes, which a prefetch needs.
    pub(super) fn location(&self) -> (*const Slot<B>, usize) {
        (self.slots.as_ptr(), self.homes)
    }

    pub(super) fn get(&self, hash: BucketHash) -> Option<&B> {
        self.find(hash).ok().map(|at| &self.slots[at].bucket)
    }

    /// Returns the bucket, if there is one. Buckets that grow must be changed through the methods that count their
    /// memory.
    #[inline]
    pub(super) fn get_mut(&mut self, hash: BucketHash) -> Option<&mut B> {
        debug_assert!(!B::GROWS, "what it grows by would not be counted");
        match self.find(hash) {
            Ok(at) => Some(&mut self.slots[at].bucket),
            Err(_) => None,
        }
    }

    /// Changes the bucket, if there is one, and counts its memory.
    #[inline]
    pub(super) fn change_existing<T>(
        &mut self,
        hash: BucketHash,
        change: impl FnOnce(&mut B) -> T,
    ) -> Option<T> {
        match self.find(hash) {
            Ok(at) => Some(self.change_at(at, change)),
            Err(_) => None,
        }
    }

    /// Returns the change in log entries since the last call.
    #[inline]
    pub(super) fn take_entry_delta(&mut self) -> EntryDelta {
        let entry_delta = EntryDelta { taken: self.room, released: self.room_reported };
        self.room_reported = self.room;
        entry_delta
    }

    /// Changes the bucket. If it does not exist, it is inserted, unless the change leaves it expired or `room` returns
    /// false.
    pub(super) fn change_or_insert<T>(
        &mut self,
        hash: BucketHash,
        now: Timestamp,
        room: impl FnOnce() -> bool,
        change: impl FnOnce(&mut B) -> T,
    ) -> Result<T, StoreFull> {
        match self.find(hash) {
            Ok(at) => Ok(self.change_at(at, change)),
            Err(at) => {
                let mut bucket = B::default();
                let outcome = change(&mut bucket);
                if bucket.expires_at() > now {
                    if !room() {
                        return Err(StoreFull);
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
            Ok(at) => self.change_at(at, |bucket| bucket.refund(limit, cost, now)),
            Err(_) => B::default().refund(limit, cost, now),
        }
    }

    /// Removes a bucket, and returns whether there was one.
    pub(super) fn remove(&mut self, hash: BucketHash) -> bool {
        let found = self.find(hash);
        if let Ok(at) = found {
            self.remove_at(at);
        }
        found.is_ok()
    }

    /// Drops the expired buckets among the next `slots` slots from `start` on.
    pub(super) fn sweep(&mut self, start: usize, slots: usize, now: Timestamp) -> SweepResult {
        let (mut at, mut dropped, mut next_expiry) = (start, BucketCount::default(), Timestamp::MAX);
        for looked_at in 0..slots {
            match self.slots.get(at) {
                None => {
                    self.shrink();
                    if start == 0 {
                        self.next_expiry = next_expiry;
                    }
                    return SweepResult {
                        looked_at,
                        dropped,
                        next: None,
                        entry_delta: self.take_entry_delta(),
                    };
                }
                Some(slot) if !slot.is_empty() && slot.is_expired(now) => {
                    // The slots that follow move up by one, so this slot is looked at again.
                    dropped += BucketCount::one(slot.hash);
                    self.remove_at(at);
                }
                Some(slot) => {
                    if !slot.is_empty() {
                        next_expiry = next_expiry.min(slot.bucket.expires_at());
                    }
                    at += 1;
                }
            }
        }
        SweepResult { looked_at: slots, dropped, next: Some(at), entry_delta: self.take_entry_delta() }
    }

    /// Drops all expired buckets, if there may be any.
    pub(super) fn sweep_if_due(&mut self, now: Timestamp) -> SweepResult {
        if self.next_expiry <= now { self.sweep(0, usize::MAX, now) } else { SweepResult::default() }
    }

    #[inline]
    fn change_at<T>(&mut self, at: usize, change: impl FnOnce(&mut B) -> T) -> T {
        let bucket = &mut self.slots[at].bucket;
        let before = bucket.room();
        let outcome = change(bucket);
        self.room = self.room - before + bucket.room();
        self.next_expiry = self.next_expiry.min(bucket.expires_at());
        outcome
    }

    /// Returns the index of `hash`, or the index at which it would be inserted as an error.
    #[inline]
    fn find(&self, hash: BucketHash) -> Result<usize, usize> {
        let home = hash.home(self.homes);
        if let Some(first) = self.slots.get(home..).and_then(<[_]>::first_chunk::<NEAR_SLOTS>) {
            // All four slots are compared, with one branch that is nearly always taken. A loop that stops at the match
            // would be mispredicted half of the time, and a misprediction waits for memory before the next request
            // starts.
            let same = |(place, slot): (usize, &Slot<B>)| u32::from(slot.hash.equals(hash)) << place;
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
        let at = if self.must_grow() {
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
        self.next_expiry = self.next_expiry.min(slot.bucket.expires_at());
        self.slots[at] = slot;
        self.len += 1;
    }

    fn remove_at(&mut self, at: usize) {
        self.room -= self.slots[at].bucket.room();
        // The slots that are not at their home move one closer, up to the first gap or the first slot at its home.
        let follows =
            |(index, slot): &(usize, &Slot<B>)| !slot.is_empty() && slot.hash.home(self.homes) < *index;
        let run = self.slots.iter().enumerate().skip(at + 1).take_while(follows).count();
        self.slots[at..=at + run].rotate_left(1);
        self.slots[at + run] = Slot::default();
        self.len -= 1;
    }

    /// Returns whether so few homes are free that runs get long. It then grows by half as many homes as are free: what
    /// was three quarters full is two thirds full.
    fn must_grow(&self) -> bool {
        self.len >= self.homes - self.homes / Self::HOMES_PER_FREE
    }

    fn grow(&mut self) {
        let more = (self.homes / (2 * Self::HOMES_PER_FREE)).max(HOMES_MIN);
        self.homes += more;
        if self.homes >= RESERVE_FROM && self.slots.capacity() < self.reserve {
            self.slots.reserve_exact(self.reserve - self.slots.len());
        }
        let slots = self.homes + OVERFLOW;
        if slots > self.slots.len() {
            self.slots.resize_with(slots, Slot::default);
        }
        self.redistribute();
    }

    /// Moves every slot to its place among the current homes, within the same memory.
    fn redistribute(&mut self) {
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
            // Every later slot still needs a place after this one: one slot is added where the last run is too long.
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

    /// Releases memory once three quarters of the homes are empty.
    fn shrink(&mut self) {
        if self.homes > RESERVE_FROM && self.len < self.homes / 4 {
            let kept = std::mem::take(&mut self.slots).into_iter().filter(|slot| !slot.is_empty());
            let homes = self.len + self.len / 2 + HOMES_MIN;
            let mut slots = Vec::with_capacity(homes + OVERFLOW);
            slots.extend(kept);
            slots.resize_with(slots.len().max(homes + OVERFLOW), Slot::default);
            (self.slots, self.homes) = (slots, homes);
            self.redistribute();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use tollway_core::algorithm::{
        FixedWindow, FixedWindowState, SlidingWindowState, TokenBucket, TokenBucketState,
    };
    use tollway_testbed::Random;

    use super::*;

    fn limit() -> TokenBucket {
        TokenBucket::new(10, 1, Duration::from_nanos(100)).unwrap()
    }

    /// Returns a hash that falls into few homes; some hashes have the same high half, and some are made by clients.
    fn hash(random: &mut Random, spread: u32) -> BucketHash {
        BucketHash::of(random.below(400) << spread, random.below(3) << 62)
    }

    fn assert_sound<B: Bucket>(table: &Table<B>) {
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
    fn slots_are_as_small_as_the_pages_say() {
        assert_eq!(size_of::<Slot<TokenBucketState>>(), 24);
        assert_eq!(size_of::<Slot<FixedWindowState>>(), 32);
        assert_eq!(size_of::<Slot<SlidingWindowState>>(), 32);
    }

    #[test]
    fn it_remembers_what_a_sorted_map_remembers() {
        remembers::<TokenBucketState>(&limit());
        let window = FixedWindow::new(10, Duration::from_nanos(1_000), Duration::ZERO).unwrap();
        remembers::<FixedWindowState>(&window);
    }

    fn remembers<B: Bucket>(limit: &B::Limit) {
        for spread in [0, 40, 55] {
            let mut random = Random::new(u64::from(spread) + 1);
            let mut table = Table::<B>::new(1_000);
            let mut model: BTreeMap<BucketHash, B> = BTreeMap::new();
            for step in 0..20_000_u64 {
                let now = Timestamp::from_nanos(step);
                let hash = hash(&mut random, spread);
                match random.below(10) {
                    0 => assert_eq!(table.remove(hash), model.remove(&hash).is_some()),
                    1 => {
                        let dropped = table.sweep(0, usize::MAX, now).dropped;
                        let mut expired = BucketCount::default();
                        for (hash, _) in model.extract_if(.., |_, bucket| bucket.expires_at() <= now) {
                            expired += BucketCount::one(hash);
                        }
                        assert_eq!(dropped, expired);
                    }
                    2 => {
                        let full = table.change_or_insert(
                            hash,
                            now,
                            || false,
                            |bucket| bucket.charge(limit, 1, now),
                        );
                        assert_eq!(full.is_err(), !model.contains_key(&hash));
                        if let Some(bucket) = model.get_mut(&hash) {
                            assert_eq!(full, Ok(bucket.charge(limit, 1, now)));
                        }
                    }
                    _ => {
                        let expected = model.entry(hash).or_default().charge(limit, 1, now);
                        let decision =
                            table.change_or_insert(hash, now, || true, |bucket| bucket.charge(limit, 1, now));
                        assert_eq!(decision, Ok(expected));
                    }
                }
                assert_eq!(table.get(hash).is_some(), model.contains_key(&hash));
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
            assert!(table.change_or_insert(hash, Timestamp::EPOCH, || true, charge).is_ok());
        }
        assert_sound(&table);
        table.sweep(0, usize::MAX, Timestamp::from_nanos(1_000));
        assert!(table.len == 0 && table.slots.capacity() < 1_000, "{} slots", table.slots.capacity());
    }
}

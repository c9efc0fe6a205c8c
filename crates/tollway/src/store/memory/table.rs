//! The hash table of one shard and one algorithm: open addressing, with the slots sorted by tag.
//!
//! ```text
//! home            0                   1                   2             (overflow)
//!       [ 03 | 19 | 1f |  . | 8a | 8b | 90 | 91 | 92 | c4 | c9 |  . |  .  ]     behind its home's first slot or in it
//! ```
//!
//! A home is a group of four slots: for token buckets it is one cache line, and four buckets of five are found in it. A
//! greater tag never has an earlier home, so runs are sorted without extra work. This pays three times. A search for a
//! missing tag ends at the first greater one. Growing is two linear passes over the same memory. And a table can grow
//! by any factor, not only by two: it grows by an eighth, so it is always two thirds to three quarters full.

#[cfg(feature = "journal")]
mod load;

use tollway_core::{Nanos, Refund, Timestamp};

use super::capacity::BucketCount;
use super::changes::Changes;
use super::slot::StoredBucket;
use super::slots::Slots;
use crate::hash::Tag;

/// The number of slots in a home.
pub(super) const GROUP: usize = 4;
/// The number of slots after the last home at first. More are added when a run needs them.
const OVERFLOW: usize = 8;
/// One slot of the homes in this many is free when the table grows. It then grows by half as many slots as are free.
const SLOTS_PER_FREE: usize = 4;
/// A table with at most this number of homes does not shrink.
const HOMES_KEPT: usize = 16;

/// The time after which an expired bucket that is marked as changed is looked at again: a journal has taken the mark
/// off by then.
const MARKED_FOR: Nanos = Nanos::from_millis(50);

#[derive(Debug)]
#[repr(C)]
pub(super) struct Table<B: StoredBucket> {
    homes: usize,
    /// The slots, sorted by tag with gaps between runs. The last slot is always empty, so that every search ends.
    slots: Slots<B>,
    /// The changes since a journal last looked.
    changes: Changes<B>,
    len: usize,
    /// True if slots or homes were added or removed since the last [`take_moved`](Self::take_moved).
    moved: bool,
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

impl<B: StoredBucket> Table<B> {
    /// Returns an empty table. It takes no memory until it is used.
    pub(super) const fn new() -> Self {
        Self {
            slots: Slots::new(),
            homes: 0,
            len: 0,
            moved: false,
            next_expiry: Timestamp::MAX,
            room: 0,
            room_reported: 0,
            changes: Changes::new(),
        }
    }

    /// Returns the list of the changes since a journal last looked.
    #[cfg(feature = "journal")]
    pub(super) const fn changes(&mut self) -> &mut Changes<B> {
        &mut self.changes
    }

    /// Takes the mark off a bucket, and returns the bucket, if there is one.
    #[cfg(feature = "journal")]
    pub(super) fn unmark(&mut self, tag: Tag) -> Option<B::Ref<'_>> {
        let at = self.find(tag).ok()?;
        B::set_tag(self.slots.at_mut(at), tag.unmarked());
        Some(B::read(self.slots.at(at)))
    }

    /// Returns up to `count` buckets in the order of their tags, from the first one behind `after` on.
    #[cfg(feature = "journal")]
    pub(super) fn buckets_after(&self, after: Tag, count: usize) -> impl Iterator<Item = (Tag, B::Ref<'_>)> {
        // An empty slot has no tag either, so nothing is to be found then.
        let start = if after.is_none() { 0 } else { self.find(after).map_or_else(|at| at, |at| at + 1) };
        let slots = (start..self.slots.len()).map(|at| self.slots.at(at));
        let buckets = slots.map(|slot| (B::tag(slot), B::read(slot))).filter(|(tag, _)| !tag.is_none());
        buckets.map(|(tag, bucket)| (tag.unmarked(), bucket)).take(count)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the moment before which no bucket expires. Only [`change_found`](Self::change_found) can make a bucket
    /// expire earlier without its being noticed: it does so after the clock ran back or a limit got smaller numbers.
    #[inline]
    pub(super) fn next_expiry(&self) -> Timestamp {
        self.next_expiry
    }

    /// Returns whether the location has changed since the last call.
    #[inline]
    pub(super) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Returns the number of homes and the addresses of the memory, which a prefetch needs.
    pub(super) fn location(&self) -> (usize, impl Iterator<Item = *const B::Slot>) {
        (self.homes, self.slots.addresses())
    }

    pub(super) fn get(&self, tag: Tag) -> Option<B::Ref<'_>> {
        self.find(tag).ok().map(|at| B::read(self.slots.at(at)))
    }

    /// Returns the bucket of a slot; `None` if the slot does not exist.
    pub(super) fn get_at(&self, at: usize) -> Option<B::Ref<'_>> {
        self.slots.get(at).map(B::read)
    }

    /// Stores a bucket in the slot of an older state of it.
    pub(super) fn store_at(&mut self, at: usize, bucket: B) {
        self.change_at(at, |stored| *stored = bucket);
    }

    /// Changes a bucket that [`find`](Self::find) has found. Buckets that grow must be changed through the methods that
    /// count their memory.
    #[inline(always)]
    pub(super) fn change_found<T>(&mut self, at: usize, change: impl FnOnce(&mut B) -> T) -> T {
        debug_assert!(!B::GROWS, "what it grows by would not be counted");
        let changes = &mut self.changes;
        B::change(self.slots.at_mut(at), change, |slot| changes.add(slot))
    }

    /// Changes the bucket, if there is one, and counts its memory.
    #[inline]
    pub(super) fn change_existing<T>(&mut self, tag: Tag, change: impl FnOnce(&mut B) -> T) -> Option<T> {
        match self.find(tag) {
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
        tag: Tag,
        now: Timestamp,
        room: impl FnOnce() -> bool,
        change: impl FnOnce(&mut B) -> T,
    ) -> Result<T, StoreFull> {
        match self.find(tag) {
            Ok(at) => Ok(self.change_at(at, change)),
            Err(at) => {
                let mut bucket = B::default();
                let outcome = change(&mut bucket);
                if bucket.expires_at() > now {
                    if !room() {
                        return Err(StoreFull);
                    }
                    self.room += bucket.room();
                    self.insert(at, tag, bucket);
                }
                Ok(outcome)
            }
        }
    }

    pub(super) fn refund(&mut self, tag: Tag, limit: &B::Limit, cost: u64, now: Timestamp) -> Option<Refund> {
        match self.find(tag) {
            Ok(at) => self.change_at(at, |bucket| bucket.refund(limit, cost, now)),
            Err(_) => B::default().refund(limit, cost, now),
        }
    }

    /// Removes a bucket, and returns whether there was one.
    pub(super) fn remove(&mut self, tag: Tag) -> bool {
        let found = self.find(tag);
        if let Ok(at) = found {
            self.remove_at(at);
            self.changes.add_removed(tag);
        }
        found.is_ok()
    }

    /// Drops the buckets among the next `slots` slots from `start` on that have expired, and that `dropped_at` does not
    /// keep any longer.
    pub(super) fn sweep(
        &mut self,
        start: usize,
        slots: usize,
        now: Timestamp,
        dropped_at: impl Fn(Timestamp) -> Timestamp,
    ) -> SweepResult {
        let (mut at, mut dropped, mut next_expiry) = (start, BucketCount::default(), Timestamp::MAX);
        for looked_at in 0..slots {
            let Some(slot) = self.slots.get(at) else {
                self.shrink();
                if start == 0 {
                    self.next_expiry = next_expiry;
                }
                let entry_delta = self.take_entry_delta();
                return SweepResult { looked_at, dropped, next: None, entry_delta };
            };
            let tag = B::tag(slot);
            if tag.is_none() {
                at += 1;
                continue;
            }
            let expires_at = B::read(slot).expires_at();
            if tag.is_marked() && expires_at <= now {
                // The journal may have an earlier state that expires later: it must get this one first.
                next_expiry = next_expiry.min(now + MARKED_FOR);
                at += 1;
            } else if expires_at <= now && dropped_at(expires_at) <= now {
                // The slots that follow move up by one, so this slot is looked at again.
                dropped += BucketCount::one(tag);
                self.remove_at(at);
            } else {
                // Also of a bucket that is kept: a full store drops it, to make room.
                next_expiry = next_expiry.min(expires_at);
                at += 1;
            }
        }
        SweepResult { looked_at: slots, dropped, next: Some(at), entry_delta: self.take_entry_delta() }
    }

    /// Drops all expired buckets, if there may be any.
    pub(super) fn sweep_if_due(&mut self, now: Timestamp) -> SweepResult {
        if self.next_expiry > now {
            return SweepResult::default();
        }
        self.sweep(0, usize::MAX, now, |expires_at| expires_at)
    }

    #[inline]
    fn change_at<T>(&mut self, at: usize, change: impl FnOnce(&mut B) -> T) -> T {
        let (room, next_expiry) = (&mut self.room, &mut self.next_expiry);
        let changes = &mut self.changes;
        let change = |bucket: &mut B| {
            let before = bucket.room();
            let outcome = change(bucket);
            *room = *room - before + bucket.room();
            *next_expiry = (*next_expiry).min(bucket.expires_at());
            outcome
        };
        B::change(self.slots.at_mut(at), change, |slot| changes.add(slot))
    }

    /// Returns the index of `tag`, or the index at which it would be inserted as an error.
    #[inline(always)]
    pub(super) fn find(&self, tag: Tag) -> Result<usize, usize> {
        let home = tag.home(self.homes) * GROUP;
        match self.slots.group(home).and_then(|group| place_in::<B>(group, tag)) {
            Some(place) => Ok(home + place),
            None => self.find_far(home, tag),
        }
    }

    #[inline(never)]
    fn find_far(&self, home: usize, tag: Tag) -> Result<usize, usize> {
        let mut at = home;
        while let Some(slot) = self.slots.get(at) {
            let there = B::tag(slot);
            if there.is_same(tag) {
                return Ok(at);
            }
            if there.is_none() || there > tag {
                return Err(at);
            }
            at += 1;
        }
        Err(at)
    }

    fn tag_at(&self, at: usize) -> Tag {
        self.slots.get(at).map_or(Tag::NONE, B::tag)
    }

    fn insert(&mut self, at: usize, tag: Tag, bucket: B) {
        let at = if self.must_grow() {
            self.grow();
            self.find(tag).unwrap_or_else(|at| at)
        } else {
            at
        };
        let mut end = at;
        while !self.tag_at(end).is_none() {
            end += 1;
        }
        if end + 1 == self.slots.len() {
            self.add_slot();
        }
        for free in (at..end).rev() {
            self.slots.swap(free, free + 1);
        }
        self.next_expiry = self.next_expiry.min(bucket.expires_at());
        let slot = self.slots.at_mut(at);
        *slot = bucket.slot(tag);
        self.changes.add(slot);
        self.len += 1;
    }

    fn remove_at(&mut self, mut at: usize) {
        self.room -= B::read(self.slots.at(at)).room();
        *self.slots.at_mut(at) = B::Slot::default();
        // The slots that are not the first of their home move one closer, up to the first gap.
        loop {
            let next = self.tag_at(at + 1);
            if next.is_none() || next.home(self.homes) * GROUP > at {
                break;
            }
            self.slots.swap(at, at + 1);
            at += 1;
        }
        self.len -= 1;
    }

    /// Returns whether so few slots are free that runs get long. It then grows by half as many slots as are free: what
    /// was three quarters full is two thirds full.
    fn must_grow(&self) -> bool {
        let slots = self.homes * GROUP;
        self.len >= slots - slots / SLOTS_PER_FREE
    }

    fn grow(&mut self) {
        self.homes += (self.homes / (2 * SLOTS_PER_FREE)).max(1);
        let slots = self.homes * GROUP + OVERFLOW;
        if slots > self.slots.len() {
            self.slots.grow_to(slots);
        }
        self.moved = true;
        self.redistribute();
    }

    fn add_slot(&mut self) {
        self.slots.grow_to(self.slots.len() + 1);
        self.moved = true;
    }

    /// Moves every slot to its place among the current homes, within the same memory.
    fn redistribute(&mut self) {
        let mut packed = self.slots.len();
        for at in (0..self.slots.len()).rev() {
            if !self.tag_at(at).is_none() {
                packed -= 1;
                self.slots.swap(at, packed);
            }
        }
        let (mut at, mut free) = (packed, 0);
        while at < self.slots.len() {
            free = free.max(self.tag_at(at).home(self.homes) * GROUP);
            // Every later slot still needs a place after this one: one slot is added where the last run is too long.
            if free > at {
                self.add_slot();
                for last in (at..self.slots.len() - 1).rev() {
                    self.slots.swap(last, last + 1);
                }
            } else {
                self.slots.swap(at, free);
                free += 1;
            }
            at += 1;
        }
        if !self.tag_at(self.slots.len().saturating_sub(1)).is_none() {
            self.add_slot();
        }
    }

    /// Releases memory once three quarters of the slots are empty.
    fn shrink(&mut self) {
        if self.homes <= HOMES_KEPT || self.len >= self.homes * GROUP / 4 {
            return;
        }
        let mut packed = 0;
        for at in 0..self.slots.len() {
            if !self.tag_at(at).is_none() {
                self.slots.swap(at, packed);
                packed += 1;
            }
        }
        self.homes = (self.len + self.len / 2).div_ceil(GROUP).max(1);
        self.slots.shrink_to(self.homes * GROUP + OVERFLOW);
        self.moved = true;
        self.redistribute();
    }
}

/// Returns the place that a tag has in a home, if it is there.
///
/// All four slots are compared, with one branch that is taken four times of five. A loop that stops at the match would
/// be mispredicted half of the time, and a misprediction waits for memory before the next request starts.
#[inline]
fn place_in<B: StoredBucket>(group: &[B::Slot; GROUP], tag: Tag) -> Option<usize> {
    let same = |(place, slot): (usize, &B::Slot)| u32::from(B::tag(slot).is_same(tag)) << place;
    let found = group.iter().enumerate().map(same).fold(0, |found, place| found | place);
    // Masked, so that the compiler sees that it is within the group.
    if found == 0 { None } else { Some(found.trailing_zeros() as usize % GROUP) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use tollway_core::algorithm::{
        Bucket, FixedWindow, FixedWindowState, Quota, QuotaState, SlidingLog, SlidingLogState, TokenBucket,
        TokenBucketState,
    };
    use tollway_testbed::Random;

    use super::*;
    use crate::hash::BucketHash;

    fn limit() -> TokenBucket {
        TokenBucket::new(10, 1, Duration::from_nanos(100)).unwrap()
    }

    /// Returns one of so many tags, which fall into few homes if `spread` is small. Some are made by clients.
    fn tag(random: &mut Random, tags: u64, spread: u32) -> Tag {
        BucketHash::of(random.below(tags) << spread | random.below(2) << 1, 0).tag()
    }

    fn assert_sound<B: StoredBucket>(table: &Table<B>) {
        let tags: Vec<_> = (0..table.slots.len()).map(|at| table.tag_at(at)).collect();
        let taken: Vec<_> = tags.iter().enumerate().filter(|(_, tag)| !tag.is_none()).collect();
        assert_eq!(taken.len(), table.len);
        assert!(taken.is_sorted_by(|a, b| a.1 < b.1), "out of order");
        assert!(tags.last().is_none_or(|tag| tag.is_none()), "nothing ends a search");
        let mut gap = None;
        for (at, tag) in tags.iter().enumerate() {
            if tag.is_none() {
                gap = Some(at);
                continue;
            }
            let home = tag.home(table.homes) * GROUP;
            assert!(home <= at && gap.is_none_or(|gap| gap < home), "a gap before {at}");
        }
    }

    #[test]
    fn it_remembers_what_a_sorted_map_remembers() {
        let window = FixedWindow::new(10, Duration::from_nanos(1_000), Duration::ZERO).unwrap();
        let quota = Quota::new(10, Duration::from_nanos(1_000)).unwrap();
        let log = SlidingLog::new(3, Duration::from_nanos(700)).unwrap();
        for spread in [2, 40, 55] {
            remembers::<TokenBucketState>(&limit(), 400, spread, 11);
            remembers::<FixedWindowState>(&window, 400, spread, 11);
            remembers::<QuotaState>(&quota, 400, spread, 11);
            remembers::<SlidingLogState>(&log, 400, spread, 11);
        }
    }

    #[test]
    fn it_remembers_across_chunks() {
        let limit = TokenBucket::new(10, 1, Duration::from_nanos(4_000)).unwrap();
        let window = FixedWindow::new(10, Duration::from_nanos(9_000), Duration::ZERO).unwrap();
        // In the last one all of the tags have one home, the first or the last: one run crosses every chunk.
        for (tags, spread) in [(4_000, 52), (4_000, 40), (900, 2)] {
            remembers::<TokenBucketState>(&limit, tags, spread, 500);
            remembers::<FixedWindowState>(&window, tags, spread, 500);
        }
    }

    const STEPS: u64 = if cfg!(miri) { 100 } else { 3_000 };

    fn remembers<B: StoredBucket>(limit: &B::Limit, tags: u64, spread: u32, steps_per_look: u64) {
        let mut random = Random::new(u64::from(spread) + tags);
        let mut table = Table::<B>::new();
        let mut model: BTreeMap<Tag, B> = BTreeMap::new();
        for step in 0..STEPS {
            let now = Timestamp::from_nanos(step);
            let tag = tag(&mut random, tags, spread);
            match random.below(40) {
                0..4 => assert_eq!(table.remove(tag), model.remove(&tag).is_some()),
                4 => {
                    let dropped = table.sweep(0, usize::MAX, now, |expires_at| expires_at).dropped;
                    let mut expired = BucketCount::default();
                    for (tag, _) in model.extract_if(.., |_, bucket| bucket.expires_at() <= now) {
                        expired += BucketCount::one(tag);
                    }
                    assert_eq!(dropped, expired);
                }
                5..9 => {
                    let charge = |bucket: &mut B| bucket.charge(limit, 1, now);
                    let full = table.change_or_insert(tag, now, || false, charge);
                    assert_eq!(full.is_err(), !model.contains_key(&tag));
                    if let Some(bucket) = model.get_mut(&tag) {
                        assert_eq!(full, Ok(bucket.charge(limit, 1, now)));
                    }
                }
                _ => {
                    let expected = model.entry(tag).or_default().charge(limit, 1, now);
                    let charge = |bucket: &mut B| bucket.charge(limit, 1, now);
                    assert_eq!(table.change_or_insert(tag, now, || true, charge), Ok(expected));
                }
            }
            assert_eq!(table.get(tag).is_some(), model.contains_key(&tag));
            if step.is_multiple_of(steps_per_look) {
                assert_sound(&table);
            }
        }
        for (tag, bucket) in &model {
            let now = Timestamp::from_nanos(STEPS);
            assert_eq!(
                table.get(*tag).map(|stored| stored.check(limit, 1, now)),
                Some(bucket.check(limit, 1, now))
            );
        }
    }

    #[test]
    fn a_denied_request_does_not_write() {
        let (mut table, limit, now) = (Table::<TokenBucketState>::new(), limit(), Timestamp::from_nanos(50));
        let tag = BucketHash::of(1 << 40, 0).tag();
        assert!(table.change_or_insert(tag, now, || true, |bucket| bucket.charge(&limit, 10, now)).is_ok());
        let at = table.find(tag).unwrap();
        let before = *table.slots.at(at);
        let denied = table.change_found(at, |bucket| bucket.charge(&limit, 1, now));
        assert!(!denied.allowed() && *table.slots.at(at) == before);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes a thousand times as long")]
    fn a_table_swept_empty_gives_its_memory_back() {
        let mut random = Random::new(7);
        let mut table = Table::<TokenBucketState>::new();
        for _ in 0..50_000 {
            let tag = BucketHash::of(random.any(), random.any()).tag();
            let charge = |bucket: &mut TokenBucketState| bucket.charge(&limit(), 1, Timestamp::EPOCH);
            assert!(table.change_or_insert(tag, Timestamp::EPOCH, || true, charge).is_ok());
        }
        assert_sound(&table);
        assert!(table.take_moved() && table.location().1.count() > 100);
        table.sweep(0, usize::MAX, Timestamp::from_nanos(1_000), |expires_at| expires_at);
        assert!(table.len == 0 && table.slots.len() < 1_000, "{} slots", table.slots.len());
        assert!(table.take_moved() && table.location().1.count() == 1);
    }
}

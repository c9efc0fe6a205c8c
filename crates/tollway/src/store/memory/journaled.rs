//! Passes buckets of the memory store to a journal, and takes them back from it.

use std::num::NonZero;
use std::ops::Range;
use std::thread;

use tollway_core::{FormerBuckets, Timestamp};

use super::capacity::BucketCount;
use super::changes::{LastChanges, removed};
use super::shard::{HasTable, Shards, SlotLists};
use super::{Memory, MemoryBounds};
use crate::hash::{HashKey, Tag};
use crate::journal::{
    AnyState, BlockEncoder, BucketVisitor, HashIdentity, JournalState, with_kind, with_state,
};
use crate::reports::{KnownDelays, PublishedDelay};

/// The number of changed logs that are encoded under one lock.
const LOGS_PER_LOCK: usize = 32;
/// The number of buckets of a snapshot that are encoded under one lock, which takes about a microsecond.
const ALL_PER_LOCK: usize = 128;
/// The capacity up to which an emptied list goes back to a table: more is left only after a disk was slow.
const LIST_MAX: usize = 4_096;
/// The most threads that put buckets into tables at start: with more, the memory is the limit.
const LOAD_THREADS_MAX: usize = 8;
/// The number of buckets below which a thread is not worth its start.
const BUCKETS_PER_THREAD: usize = 50_000;

impl Memory {
    /// Returns an empty store that finds buckets by the same numbers as the one that a journal is from.
    pub(crate) fn journaled(bounds: MemoryBounds, identity: Option<HashIdentity>) -> Self {
        let seeds = identity.map_or_else(HashKey::random_seeds, |identity| identity.key);
        Self::keyed(bounds, seeds, identity.map(|identity| 1 << identity.shard_bits))
    }

    /// Returns the numbers by which its buckets are found.
    pub(crate) fn identity(&self) -> HashIdentity {
        let shard_bits = u8::try_from(self.shards.len().ilog2()).unwrap_or(u8::MAX);
        HashIdentity { key: self.key_seeds, shard_bits }
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Begins to keep lists of changes, or ends them.
    pub(crate) fn set_journaled(&self, journaled: bool) {
        for number in 0..self.shards.len() {
            self.shards.lock(number).set_journaled(journaled);
        }
    }

    /// Encodes all buckets of these shards that have changed since the last call.
    pub(crate) fn collect_changed(&self, shards: Range<usize>, out: &mut BlockEncoder) {
        let (mut changes, mut last) = (SlotLists::default(), LastChanges::default());
        for number in shards {
            self.shards.lock(number).swap_changes(&mut changes);
            self.shards.encode_changes(number, &mut changes, &mut last, out);
        }
    }

    /// Encodes all buckets of a shard.
    pub(crate) fn collect_all(&self, shard: usize, out: &mut BlockEncoder) {
        self.shards.collect_all(shard, out);
    }
}

impl Shards {
    /// Encodes the changes of one table. The list is empty afterwards, and keeps its memory for the next one.
    pub(super) fn encode_changes_of<B: HasTable + JournalState>(
        &self,
        number: usize,
        changes: &mut Vec<B::Slot>,
        last: &mut LastChanges,
        out: &mut BlockEncoder,
    ) {
        if changes.is_empty() {
            return;
        }
        last.keep_if_worth::<B>(changes);
        if B::GROWS {
            self.encode_logs::<B>(number, changes, out);
        } else {
            for slot in changes.iter() {
                match B::tag(slot) {
                    tag if tag.is_marked() => out.removed::<B>(number, tag.unmarked().to_word()),
                    tag => out.bucket(number, tag.to_word(), &*B::read(slot)),
                }
            }
        }
        changes.clear();
        changes.shrink_to(LIST_MAX);
    }

    /// Encodes logs as they are now, and takes their marks off.
    fn encode_logs<B: HasTable + JournalState>(
        &self,
        number: usize,
        changes: &[B::Slot],
        out: &mut BlockEncoder,
    ) {
        for some in changes.chunks(LOGS_PER_LOCK) {
            let mut tables = self.lock(number);
            for slot in some {
                let tag = B::tag(slot).unmarked();
                match B::table_mut(&mut tables).unmark(tag) {
                    Some(log) => out.bucket(number, tag.to_word(), &*log),
                    None => out.removed::<B>(number, tag.to_word()),
                }
            }
        }
    }

    /// Encodes all buckets of one table, a few under each lock. It goes on behind the last tag, wherever that is then.
    pub(super) fn collect_all_in<B: HasTable + JournalState>(&self, number: usize, out: &mut BlockEncoder) {
        let mut after = Tag::NONE;
        loop {
            let mut count = 0;
            for (tag, bucket) in B::table(&self.lock(number)).buckets_after(after, ALL_PER_LOCK) {
                out.bucket(number, tag.to_word(), &*bucket);
                (after, count) = (tag, count + 1);
            }
            if count < ALL_PER_LOCK {
                return;
            }
        }
    }
}

/// Collects the buckets of a journal by shard, in the order in which they were written, and the delays.
pub(crate) struct Loader {
    shards: Vec<SlotLists>,
    delays: KnownDelays,
    /// Memory for the name of a delay.
    name: Vec<u8>,
    delays_without_place: usize,
}

impl Loader {
    pub(crate) fn new(memory: &Memory) -> Self {
        let shards = (0..memory.shards.len()).map(|_| SlotLists::default()).collect();
        Self { shards, delays: KnownDelays::default(), name: Vec::new(), delays_without_place: 0 }
    }

    /// Takes the delays, and the number of those that there was no place for.
    pub(crate) fn take_delays(&mut self) -> (KnownDelays, usize) {
        (std::mem::take(&mut self.delays), self.delays_without_place)
    }

    /// Puts the last state of each bucket into a store that is empty, unless the bucket has expired and `former` does
    /// not keep it. Returns the number of buckets that there was no place for.
    ///
    /// Nothing expired is loaded, so that it cannot take the place of a live bucket.
    pub(crate) fn finish(mut self, memory: &Memory, former: &FormerBuckets, now: Timestamp) -> usize {
        let buckets: usize = self.shards.iter().map(SlotLists::len).sum();
        let cores = thread::available_parallelism().map_or(1, NonZero::get).min(LOAD_THREADS_MAX);
        let threads = (buckets / BUCKETS_PER_THREAD).clamp(1, cores);
        let per_thread = self.shards.len().div_ceil(threads);
        thread::scope(|scope| {
            let load = |(part, lists): (usize, &mut [SlotLists])| {
                lists
                    .iter_mut()
                    .enumerate()
                    .map(|(at, lists)| {
                        let mut shard = LoadedShard {
                            memory,
                            number: part * per_thread + at,
                            former,
                            now,
                            without_place: 0,
                        };
                        lists.load_into(&mut shard);
                        shard.without_place
                    })
                    .sum::<usize>()
            };
            let mut parts = self.shards.chunks_mut(per_thread).enumerate();
            let first = parts.next();
            let others: Vec<_> = parts.map(|part| scope.spawn(move || load(part))).collect();
            let first = first.map_or(0, load);
            others.into_iter().map(|thread| thread.join().unwrap_or_default()).sum::<usize>() + first
        })
    }

    /// Returns the lists of a shard, and the tag, if a bucket of the store can have it.
    fn place(&mut self, shard: usize, tag: u64) -> Option<(&mut SlotLists, Tag)> {
        let tag = Tag::from_word(tag);
        self.shards.get_mut(shard).filter(|_| tag.is_valid()).map(|lists| (lists, tag))
    }
}

impl BucketVisitor for Loader {
    #[inline]
    fn bucket(&mut self, shard: usize, tag: u64, state: AnyState) {
        fn add<B: HasTable>(lists: &mut SlotLists, tag: Tag, state: B) {
            B::list_mut(lists).push(state.slot(tag));
        }
        if let Some((lists, tag)) = self.place(shard, tag) {
            with_state!(state, |state| add(lists, tag, state));
        }
    }

    fn removed(&mut self, shard: usize, tag: u64, kind: u8) {
        if let Some((lists, tag)) = self.place(shard, tag) {
            with_kind!(kind, |B| B::list_mut(lists).push(removed::<B>(tag)));
        }
    }

    fn delay(&mut self, delay: &PublishedDelay<'_>, written_at: Timestamp) {
        let now = written_at.as_nanos() / 1_000_000;
        let has_place = self.delays.restore(delay, now, &mut self.name);
        self.delays_without_place += usize::from(!has_place);
    }
}

/// A shard that gets its buckets.
pub(super) struct LoadedShard<'a> {
    memory: &'a Memory,
    number: usize,
    former: &'a FormerBuckets,
    now: Timestamp,
    without_place: usize,
}

impl LoadedShard<'_> {
    /// Puts the last states of a list into their table.
    pub(super) fn load<B: HasTable>(&mut self, mut slots: Vec<B::Slot>) {
        if slots.is_empty() {
            return;
        }
        // Stable, so that later states stay behind earlier ones. A snapshot is sorted already.
        slots.sort_by_key(|slot| B::tag(slot).unmarked());
        slots.dedup_by(|later, earlier| {
            let is_same = B::tag(later).is_same(B::tag(earlier));
            if is_same {
                std::mem::swap(later, earlier);
            }
            is_same
        });
        slots.retain(|slot| !B::tag(slot).is_marked() && self.is_needed(B::read(slot).expires_at()));
        let wanted =
            slots.iter().fold(BucketCount::default(), |sum, slot| sum + BucketCount::one(B::tag(slot)));
        let mut taken = self.memory.places.take_up_to(wanted);
        if taken != wanted {
            self.without_place += wanted.total() - taken.total();
            slots.retain(|slot| taken.take(B::tag(slot)));
        }
        let Memory { shards, entries, .. } = self.memory;
        let mut tables = shards.lock(self.number);
        B::table_mut(&mut tables).load(slots);
        entries.count(B::table_mut(&mut tables).take_entry_delta());
        shards.publish_location::<B>(self.number, &mut tables);
    }

    fn is_needed(&self, expires_at: Timestamp) -> bool {
        expires_at > self.now || self.former.dropped_at(expires_at) > self.now
    }
}

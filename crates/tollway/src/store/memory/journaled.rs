//! Passes buckets of the memory store to a journal, and takes them back from it.

use tollway_core::Timestamp;
use tracing::warn;

use super::capacity::BucketCount;
use super::shard::{HasTable, Shards};
use super::{Memory, MemoryBounds};
use crate::hash::{HashKey, Tag};
use crate::journal::{
    AnyState, BlockEncoder, BucketVisitor, HashIdentity, JournalState, with_kind, with_state,
};

/// The number of changed buckets that are encoded under one lock, which takes about a microsecond.
const CHANGED_PER_LOCK: usize = 32;
/// The number of buckets of a snapshot that are encoded under one lock.
const ALL_PER_LOCK: usize = 128;

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

    /// Returns a visitor that puts buckets into this store.
    pub(crate) const fn loader(&self) -> Loader<'_> {
        Loader { memory: self, without_place: 0 }
    }

    /// Begins to keep lists of the buckets that change, or ends them.
    pub(crate) fn set_journaled(&self, journaled: bool) {
        for number in 0..self.shards.len() {
            self.shards.lock(number).set_journaled(journaled);
        }
    }

    /// Encodes all buckets that have changed since the last call.
    pub(crate) fn collect_changed(&self, out: &mut BlockEncoder) {
        let mut tags = Vec::new();
        for number in 0..self.shards.len() {
            let has_changes = self.shards.lock(number).have_changes();
            if has_changes {
                self.shards.collect_changed(number, out, &mut tags);
            }
        }
    }

    /// Encodes all buckets of a shard.
    pub(crate) fn collect_all(&self, shard: usize, out: &mut BlockEncoder) {
        self.shards.collect_all(shard, out);
    }
}

impl Shards {
    /// Encodes the changed buckets of one table. `tags` is empty before and after, and keeps its memory.
    pub(super) fn collect_changed_in<B: HasTable + JournalState>(
        &self,
        number: usize,
        out: &mut BlockEncoder,
        tags: &mut Vec<Tag>,
    ) {
        B::table_mut(&mut self.lock(number)).changes().swap(tags);
        for some in tags.chunks(CHANGED_PER_LOCK) {
            some.iter().for_each(|tag| self.prefetch_tag::<B>(number, *tag));
            let mut tables = self.lock(number);
            let table = B::table_mut(&mut tables);
            for tag in some {
                match table.unmark(*tag) {
                    Some(bucket) => out.bucket(number, tag.to_word(), &*bucket),
                    None => out.removed::<B>(number, tag.to_word()),
                }
            }
        }
        tags.clear();
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

/// Puts the buckets of a journal into a store.
#[derive(Debug)]
pub(crate) struct Loader<'a> {
    memory: &'a Memory,
    without_place: u64,
}

impl Loader<'_> {
    /// Ends the loading: from now on the store keeps lists of what changes.
    pub(crate) fn finish(self) {
        if self.without_place > 0 {
            let count = self.without_place;
            warn!("{count} buckets of the journal are dropped, because max_buckets was made smaller");
        }
        self.memory.set_journaled(true);
    }

    /// Puts a bucket into its table, over the one that is there. A state that has expired stays away.
    fn load<B: HasTable>(&mut self, number: usize, tag: Tag, state: B) {
        let Memory { shards, places, entries, .. } = self.memory;
        let mut tables = shards.lock(number);
        let put = |bucket: &mut B| *bucket = state;
        let room = || places.take(tag).is_some();
        let loaded = B::table_mut(&mut tables).change_or_insert(tag, Timestamp::EPOCH, room, put);
        self.without_place += u64::from(loaded.is_err());
        entries.count(B::table_mut(&mut tables).take_entry_delta());
        shards.publish_location::<B>(number, &mut tables);
    }

    fn remove<B: HasTable>(&self, number: usize, tag: Tag) {
        let Memory { shards, places, entries, .. } = self.memory;
        let mut tables = shards.lock(number);
        if B::table_mut(&mut tables).remove(tag) {
            places.give_back(BucketCount::one(tag));
        }
        entries.count(B::table_mut(&mut tables).take_entry_delta());
        shards.publish_location::<B>(number, &mut tables);
    }

    /// Returns the tag, if a bucket of this store can have it in this shard.
    fn valid(&self, number: usize, tag: u64) -> Option<Tag> {
        let tag = Tag::from_word(tag);
        (number < self.memory.shards.len() && tag.is_valid()).then_some(tag)
    }
}

impl BucketVisitor for Loader<'_> {
    fn bucket(&mut self, shard: usize, tag: u64, state: AnyState) {
        if let Some(tag) = self.valid(shard, tag) {
            with_state!(state, |state| self.load(shard, tag, state));
        }
    }

    fn removed(&mut self, shard: usize, tag: u64, kind: u8) {
        if let Some(tag) = self.valid(shard, tag) {
            with_kind!(kind, |B| self.remove::<B>(shard, tag));
        }
    }
}

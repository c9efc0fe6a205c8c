//! Locks several shards at once, in an order that cannot deadlock.

use tollway_core::algorithm::SlidingLogState;

use super::shard::{Shards, Tables, TablesGuard};
use crate::hash::BucketHash;

/// The locks of all shards that hold some buckets. They are always taken in the order of the shards: two threads that
/// need the same shards cannot deadlock.
pub(super) struct ShardGuards<'a> {
    shards: &'a Shards,
    guards: Vec<(usize, TablesGuard<'a>)>,
}

impl<'a> ShardGuards<'a> {
    pub(super) fn lock(shards: &'a Shards, hashes: impl Iterator<Item = BucketHash>) -> Self {
        let mut numbers: Vec<usize> = hashes.map(|hash| shards.number(hash)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Self { shards, guards: numbers.into_iter().map(|number| (number, shards.lock(number))).collect() }
    }

    /// Returns the tables of the shard of `hash`, which must be one of the locked shards.
    pub(super) fn tables(&mut self, hash: BucketHash) -> &mut Tables {
        let place = self.place(hash);
        &mut self.guards[place].1
    }

    /// Returns the log of `hash`, if there is one.
    pub(super) fn log(&self, hash: BucketHash) -> Option<&SlidingLogState> {
        self.guards[self.place(hash)].1.sliding_logs.get(hash)
    }

    /// Returns whether this change would make the log of `hash` outgrow its memory.
    pub(super) fn outgrows(&self, hash: BucketHash, change: impl FnOnce(&mut SlidingLogState)) -> bool {
        self.guards[self.place(hash)].1.sliding_logs.outgrows(hash, change)
    }

    fn place(&self, hash: BucketHash) -> usize {
        let number = self.shards.number(hash);
        self.guards.partition_point(|(locked, _)| *locked < number)
    }

    /// Updates the published locations of the tables of `hash`, after buckets were inserted.
    pub(super) fn publish_locations(&mut self, hash: BucketHash) {
        let shards = self.shards;
        shards.publish_locations(shards.number(hash), self.tables(hash));
    }
}

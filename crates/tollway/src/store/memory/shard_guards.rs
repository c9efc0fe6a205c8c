//! Several shards, locked at once.

use tollway_core::algorithm::SlidingLogState;

use super::shard::{Guard, Shards, Tables};
use crate::hash::BucketHash;

/// The locks of all shards that some buckets are in, taken in the order of the shards: two who want the same ones never
/// wait for each other.
pub(super) struct ShardGuards<'a> {
    shards: &'a Shards,
    guards: Vec<(usize, Guard<'a>)>,
}

impl<'a> ShardGuards<'a> {
    pub(super) fn lock(shards: &'a Shards, hashes: impl Iterator<Item = BucketHash>) -> Self {
        let mut numbers: Vec<usize> = hashes.map(|hash| shards.number(hash)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Self { shards, guards: numbers.into_iter().map(|number| (number, shards.lock(number))).collect() }
    }

    /// The tables that the bucket of `hash` is in, which must be of a shard that was asked for.
    pub(super) fn tables(&mut self, hash: BucketHash) -> &mut Tables {
        let place = self.place(hash);
        &mut self.guards[place].1
    }

    /// The log of `hash`, if there is one.
    pub(super) fn log(&self, hash: BucketHash) -> Option<&SlidingLogState> {
        self.guards[self.place(hash)].1.sliding_logs.get(hash)
    }

    /// Would this change make the log of `hash` outgrow the memory it has taken?
    pub(super) fn outgrows(&self, hash: BucketHash, change: impl FnOnce(&mut SlidingLogState)) -> bool {
        self.guards[self.place(hash)].1.sliding_logs.outgrows(hash, change)
    }

    fn place(&self, hash: BucketHash) -> usize {
        let number = self.shards.number(hash);
        self.guards.partition_point(|(locked, _)| *locked < number)
    }

    /// Says where buckets are now, after some were made in the shard of `hash`.
    pub(super) fn note_places(&mut self, hash: BucketHash) {
        let shards = self.shards;
        shards.note_places(shards.number(hash), self.tables(hash));
    }
}

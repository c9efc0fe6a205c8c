//! Drives a journal as its threads do, but only when it is told to: for the simulator, in one thread.

use std::collections::VecDeque;
use std::io;

use tollway_core::{LostBuckets, Timestamp};

use super::format::{BlockEncoder, FileKind, Header, Stamp};
use super::simulated_disk::SimulatedDisk;
use super::writer::{BucketSource, Journal, JournalStats, SnapshotJob, SyncJob};

/// A journal on a simulated disk, with the jobs that its second thread would have.
#[derive(Debug)]
pub(crate) struct JournalDriver {
    journal: Journal<SimulatedDisk>,
    /// The syncs that are under way, in their order. A log that replaces another one may begin its own meanwhile.
    syncs: VecDeque<SyncJob<SimulatedDisk>>,
    snapshot: Option<SnapshotJob<SimulatedDisk>>,
}

impl JournalDriver {
    pub(crate) fn new(mut journal: Journal<SimulatedDisk>, logs_beyond_snapshot: u64) -> Self {
        journal.set_logs_beyond_snapshot(logs_beyond_snapshot);
        Self { journal, syncs: VecDeque::new(), snapshot: None }
    }

    /// Takes a round, and begins the jobs that are due. Returns whether a sync and a snapshot were begun.
    pub(crate) fn round(&mut self, source: &impl BucketSource, stamp: Stamp) -> (bool, bool) {
        self.journal.round(source, stamp);
        let sync = self.journal.sync_due(stamp.clock);
        let snapshot = self.journal.snapshot_due(stamp);
        let begun = (sync.is_some(), snapshot.is_some());
        self.syncs.extend(sync);
        self.snapshot = self.snapshot.take().or(snapshot);
        begun
    }

    /// Ends the sync that was begun first.
    pub(crate) fn end_sync(&mut self, stamp: Stamp) {
        if let Some(job) = self.syncs.pop_front() {
            self.journal.on_synced(job.run(), stamp);
        }
    }

    /// Takes one step of the snapshot that is under way. Returns true if there is another.
    pub(crate) fn step_snapshot(&mut self, source: &impl BucketSource, stamp: Stamp) -> bool {
        let Some(job) = &mut self.snapshot else { return false };
        let Some(done) = job.step(source) else { return true };
        self.snapshot = None;
        self.journal.on_snapshot(done, stamp);
        false
    }

    /// Ends the process in an orderly way.
    pub(crate) fn close(mut self, source: &impl BucketSource, stamp: Stamp) -> io::Result<()> {
        while !self.syncs.is_empty() {
            self.end_sync(stamp);
        }
        // The logs have everything that would be in it.
        drop(self.snapshot);
        self.journal.close(source, stamp)
    }

    /// Takes the changes of a round, and forgets them. The simulator plants it as a bug.
    pub(crate) fn lose_round(source: &impl BucketSource) {
        let lost = LostBuckets { epoch: 0, at: Timestamp::EPOCH };
        let header = Header {
            kind: FileKind::Log,
            shard_bits: 0,
            hash_key: [0; 2],
            boot_id: [0; 16],
            file_id: 0,
            generation: 0,
            created: Stamp::default(),
            lost,
        };
        let mut nowhere = BlockEncoder::new(&header, Stamp::default());
        source.collect_changed(0..source.shards(), &mut nowhere);
    }

    pub(crate) fn stats(&self) -> JournalStats {
        self.journal.stats().lock().clone()
    }
}

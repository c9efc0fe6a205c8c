//! An engine whose memory is kept in a journal.

use std::sync::Arc;

use thiserror::Error;
use tollway_core::Policy;

use super::{Engine, Parts};
use crate::clock::Clock;
use crate::journal::{
    BlockEncoder, BucketSource, Directory, JournalError, JournalSettings, JournalStart, JournalStats,
    JournalThread,
};
use crate::store::memory::{Memory, MemoryBounds};

/// The journal of an engine.
#[derive(Debug)]
pub(super) struct EngineJournal(JournalThread<Directory>);

/// The error of an engine whose journal cannot be opened.
#[derive(Clone, Debug, Error)]
#[error("cannot open the journal in {}", dir.display())]
#[non_exhaustive]
pub struct JournalOpenError {
    /// The directory of the journal.
    pub dir: std::path::PathBuf,
    /// The reason.
    pub source: JournalError,
}

impl Engine {
    /// Creates an engine over memory that is kept in a journal. Its buckets are those that were kept before, and its
    /// clock goes on from where the journal ends. The journal is closed with the last clone of the engine, or by
    /// [`close_journal`](Self::close_journal).
    pub fn with_journal(
        policy: Policy,
        bounds: impl Into<MemoryBounds>,
        settings: &JournalSettings,
        clock: Clock,
    ) -> Result<Self, JournalOpenError> {
        let failed = |source| JournalOpenError { dir: settings.dir.clone(), source };
        let start = JournalStart::open(settings).map_err(failed)?;
        let memory = Memory::journaled(bounds.into(), start.identity());
        let mut loader = memory.loader();
        let (journal, clock, lost) = start.read(memory.identity(), &mut loader, clock).map_err(failed)?;
        loader.finish();
        let parts = Arc::new(Parts::new(policy, memory, Some(lost)));
        let thread = JournalThread::start(journal, Arc::clone(&parts), clock.clone());
        let thread = thread.map_err(|error| failed(JournalError::Directory(Arc::new(error))))?;
        Ok(Self { parts, redis: None, clock, journal: Some(Arc::new(EngineJournal(thread))) })
    }

    /// Returns figures about the journal, or `None` without one.
    pub fn journal_stats(&self) -> Option<JournalStats> {
        self.journal.as_ref().map(|journal| journal.0.stats())
    }

    /// Keeps all changes, waits until they are on the disk, and ends the journal. Later changes are not kept.
    pub fn close_journal(&self) {
        if let Some(journal) = &self.journal {
            journal.0.close();
        }
    }
}

impl BucketSource for Parts {
    fn shards(&self) -> usize {
        self.memory.shards()
    }

    fn collect_changed(&self, out: &mut BlockEncoder) {
        self.memory.collect_changed(out);
    }

    fn collect_all(&self, shard: usize, out: &mut BlockEncoder) {
        self.memory.collect_all(shard, out);
    }

    fn stop_collecting(&self) {
        self.memory.set_journaled(false);
    }
}

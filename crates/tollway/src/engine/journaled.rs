//! An engine whose memory is kept in a journal.

use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;
use tollway_core::Policy;
use tracing::warn;

use super::current_policy::CurrentPolicy;
use super::{Engine, Parts};
use crate::clock::Clock;
use crate::export::ExportHeader;
use crate::journal::{
    BlockEncoder, BucketSource, Directory, Disk, Journal, JournalError, JournalSettings, JournalStart,
    JournalStats, JournalSync, JournalThread, Loaded, Machine, encode_numbers,
};
use crate::store::memory::{Loader, Memory, MemoryBounds};

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
        Self::open_journal(policy, bounds.into(), settings, clock, None)
    }

    /// Creates an engine over memory that is kept in a journal, for the buckets of an export. A directory without a
    /// journal gets one that finds them.
    pub fn with_journal_for(
        policy: Policy,
        bounds: impl Into<MemoryBounds>,
        settings: &JournalSettings,
        clock: Clock,
        export: &ExportHeader,
    ) -> Result<Self, JournalOpenError> {
        Self::open_journal(policy, bounds.into(), settings, clock, Some(export))
    }

    fn open_journal(
        policy: Policy,
        bounds: MemoryBounds,
        settings: &JournalSettings,
        clock: Clock,
        export: Option<&ExportHeader>,
    ) -> Result<Self, JournalOpenError> {
        let failed = |source| JournalOpenError { dir: settings.dir.clone(), source };
        let start = JournalStart::open(settings).map_err(failed)?;
        let found = start.identity();
        let memory = Memory::journaled(bounds, found.or_else(|| export?.identity));
        let adjust = |mut loaded: Loaded| {
            // Not before the start that buckets may have been lost at, and not after it either: what was written until
            // then does not count under a limit that is strict.
            if let Some(export) = export {
                loaded.lost = export.lost_after(found.map(|_| loaded.lost), loaded.began());
            }
            loaded
        };
        let (journal, parts, clock) =
            load(policy, memory, start, clock, Machine::current(), adjust).map_err(failed)?;
        let thread = JournalThread::start(journal, Arc::clone(&parts), clock.clone());
        let thread = thread.map_err(|error| failed(JournalError::Directory(Arc::new(error))))?;
        let is_awaited = settings.sync == JournalSync::Always;
        Ok(Self { parts, redis: None, clock, journal: Some(Arc::new(EngineJournal(thread))), is_awaited })
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

    /// Waits until everything that was decided so far is on the disk.
    #[cold]
    pub(super) async fn committed(&self) {
        if let Some(journal) = &self.journal {
            journal.0.committed().await;
        }
    }
}

/// Loads a journal into a store that is empty, and begins to write it. `change` may change what was loaded beside the
/// buckets.
pub(super) fn load<D: Disk>(
    policy: Policy,
    memory: Memory,
    start: JournalStart<D>,
    clock: Clock,
    machine: Machine,
    change: impl FnOnce(Loaded) -> Loaded,
) -> Result<(Journal<D>, Arc<Parts>, Clock), JournalError> {
    let mut loader = Loader::new(&memory);
    let mut loaded = change(start.load(&mut loader, clock, machine)?);
    let now = loaded.began();
    let (clock, lost, mut numbers) = (loaded.clock.clone(), loaded.lost, std::mem::take(&mut loaded.numbers));
    let journal = start.begin(memory.identity(), loaded);
    let policy = policy.after_loss(lost).following(|limit| numbers.remove(limit), now);
    let (delays, delays_without_place) = loader.take_delays();
    if delays_without_place > 0 {
        warn!("{delays_without_place} delays of the journal are dropped, because there is no place for more");
    }
    delays.retain(now.as_nanos() / 1_000_000, |domain| policy.domain(domain).is_some());
    delays.set_journaled(true);
    let without_place = loader.finish(&memory, &policy.former_buckets(), now);
    if without_place > 0 {
        warn!("{without_place} buckets of the journal are dropped, because max_buckets was made smaller");
    }
    memory.set_journaled(true);
    memory.keep_former(policy.former_buckets());
    let delays = Some(Arc::new(delays));
    let parts = Parts { policy: CurrentPolicy::new(policy), memory, lost: Some(lost), delays };
    Ok((journal, Arc::new(parts), clock))
}

impl BucketSource for Parts {
    fn shards(&self) -> usize {
        self.memory.shards()
    }

    fn collect_changed(&self, shards: Range<usize>, out: &mut BlockEncoder) {
        self.memory.collect_changed(shards, out);
    }

    fn collect_all(&self, shard: usize, out: &mut BlockEncoder) {
        self.memory.collect_all(shard, out);
    }

    fn collect_changed_delays(&self, out: &mut BlockEncoder) {
        if let Some(delays) = &self.delays {
            delays.take_changes(|delay| out.delay(&delay));
        }
    }

    fn collect_all_delays(&self, part: usize, out: &mut BlockEncoder) -> bool {
        // Those that are over by now are not read again, whoever reads this.
        self.delays
            .as_ref()
            .is_some_and(|delays| delays.for_each_in(part, u64::MAX, 0, |delay| out.delay(&delay)))
    }

    fn numbers_version(&self) -> u64 {
        self.policy.generation() + 1
    }

    fn numbers(&self) -> Vec<u8> {
        let policy = self.policy.load_full();
        encode_numbers(&policy, policy.since())
    }

    fn stop_collecting(&self) {
        self.memory.set_journaled(false);
        if let Some(delays) = &self.delays {
            delays.set_journaled(false);
        }
    }
}

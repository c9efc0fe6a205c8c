//! Exports the buckets of an engine's memory, and imports those of an export into it.

use std::sync::Arc;

use tollway_core::{FormerBuckets, LostBuckets, Policy, Timestamp};

use super::journaled::JournalOpenError;
use super::{Engine, Parts};
use crate::clock::Clock;
use crate::export::{
    Batch, ExportError, ExportHeader, ExportWriter, ExportedBucket, ImportError, ImportReport, ImportSettings,
};
use crate::journal::{JournalSettings, JournalStart, Machine};
use crate::store::memory::{Loader, Memory, MemoryBounds, MemoryImport};

/// The number of buckets from which a page ends, with the shard that it has reached. Copying and encoding as many takes
/// about a millisecond.
const PAGE_BUCKETS: usize = 8_192;

impl Engine {
    /// Returns a page of the live buckets in memory: an export by itself, of some shards from `from` on. The first page
    /// begins at 0, and [`ExportReader::next_page`](crate::export::ExportReader::next_page) says where the next one
    /// does. No lock is held for more than some microseconds, and decisions go on meanwhile.
    pub fn export_page(&self, from: u64) -> Result<Vec<u8>, ImportError> {
        if self.is_shared() {
            return Err(ImportError::Shared);
        }
        let source = MemorySource { memory: &self.parts.memory, lost: self.lost(), clock: &self.clock };
        let (batch, next) = source.page(from);
        let mut writer = ExportWriter::new(Vec::new(), &source.header()).map_err(in_memory)?;
        writer.write(&batch).map_err(in_memory)?;
        Ok(writer.finish_page(next.unwrap_or(0)).map_err(in_memory)?.1)
    }

    /// Takes the buckets of a batch into memory. Where there is a bucket already, the result is as strict as both.
    ///
    /// [`Batch::restate`] must have been called just before. Buckets without names are refused unless this engine finds
    /// them by the same hashes.
    pub fn import(
        &self,
        header: &ExportHeader,
        batch: &Batch,
        settings: ImportSettings,
    ) -> Result<ImportReport, ImportError> {
        if self.is_shared() {
            return Err(ImportError::Shared);
        }
        let memory = &self.parts.memory;
        if let Some(identity) = header.identity {
            if identity != memory.identity() {
                return Err(ImportError::OtherKey);
            }
            if header.lost.epoch != self.lost().epoch {
                return Err(ImportError::OtherCrashes);
            }
        }
        let now = self.clock.now();
        let difference = batch.difference(now, settings.any_clock)?;
        let import = MemoryImport { difference, now, dry_run: settings.dry_run };
        let (mut report, policy) = (ImportReport::default(), self.policy());
        for bucket in &batch.buckets {
            match bucket {
                ExportedBucket::Hashed { .. } if header.has_names() => report.unnamed += 1,
                ExportedBucket::Hashed { shard, tag, state } => {
                    memory.import_hashed((*shard, *tag), state, &import, &mut report);
                }
                ExportedBucket::Named { name, state } => {
                    memory.import_named(name, state, &policy, &import, &mut report);
                }
            }
        }
        Ok(report)
    }

    /// Returns an engine over memory that finds the buckets of an export, and keeps nothing: for a dry run.
    pub fn with_memory_for(
        policy: Policy,
        bounds: impl Into<MemoryBounds>,
        clock: Clock,
        export: &ExportHeader,
    ) -> Self {
        Self::of_memory(policy, Memory::journaled(bounds.into(), export.identity), export.lost, clock)
    }

    fn of_memory(policy: Policy, memory: Memory, lost: LostBuckets, clock: Clock) -> Self {
        let parts = Arc::new(Parts::new(policy, memory, Some(lost)));
        Self { parts, redis: None, clock, journal: None, is_awaited: false }
    }

    fn lost(&self) -> LostBuckets {
        self.parts.lost.unwrap_or(LostBuckets { epoch: 0, at: Timestamp::EPOCH })
    }
}

/// A vector takes whatever is written to it.
fn in_memory(_: ExportError) -> ImportError {
    unreachable!("writing to memory does not fail")
}

/// The buckets of a memory store, to be exported.
struct MemorySource<'a> {
    memory: &'a Memory,
    lost: LostBuckets,
    clock: &'a Clock,
}

impl MemorySource<'_> {
    fn header(&self) -> ExportHeader {
        let identity = Some(self.memory.identity());
        ExportHeader { identity, lost: self.lost, created: self.clock.wall() }
    }

    /// Returns the buckets of some shards, and the shard after them.
    fn page(&self, from: u64) -> (Batch, Option<u64>) {
        let shards = self.memory.shards() as u64;
        // The clock first: whatever happens before the wall clock is read makes the import stricter.
        let clock = self.clock.now();
        let mut batch = Batch { clock, wall: self.clock.wall(), buckets: Vec::new() };
        let mut shard = from;
        while shard < shards && batch.buckets.len() < PAGE_BUCKETS {
            let number = usize::try_from(shard).unwrap_or(usize::MAX);
            self.memory.export_shard(number, clock, &mut |bucket| batch.buckets.push(bucket));
            shard += 1;
        }
        (batch, Some(shard).filter(|shard| *shard < shards))
    }
}

/// The buckets of a journal that no server uses, to be exported. The files are not changed.
#[derive(Debug)]
pub struct JournalExport {
    memory: Memory,
    lost: LostBuckets,
    clock: Clock,
    bounds: MemoryBounds,
    /// True if the directory has the files of a journal.
    has_files: bool,
    /// The number of buckets that did not fit.
    without_place: usize,
}

impl JournalExport {
    /// Reads the journal in a directory, which must not be in use. Time goes on as for a server that starts now.
    pub fn open(
        settings: &JournalSettings,
        bounds: impl Into<MemoryBounds>,
        clock: Clock,
    ) -> Result<Self, JournalOpenError> {
        let failed = |source| JournalOpenError { dir: settings.dir.clone(), source };
        let start = JournalStart::open(settings).map_err(failed)?;
        let bounds = bounds.into();
        let memory = Memory::journaled(bounds, start.identity());
        let mut loader = Loader::new(&memory);
        let loaded = start.load(&mut loader, clock, Machine::current()).map_err(failed)?;
        let without_place = loader.finish(&memory, &FormerBuckets::default(), loaded.began());
        let has_files = start.identity().is_some();
        Ok(Self { memory, lost: loaded.lost, clock: loaded.clock, bounds, has_files, without_place })
    }

    /// Returns the header of the export.
    pub fn header(&self) -> ExportHeader {
        self.source().header()
    }

    /// Returns the number of buckets in the journal that did not fit into the bounds.
    pub const fn without_place(&self) -> usize {
        self.without_place
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.memory.stats().buckets
    }

    /// Returns an engine that has these buckets, and keeps nothing: for a dry run of an import into the directory.
    pub fn into_engine(self, policy: Policy, export: &ExportHeader) -> Engine {
        let lost = export.lost_after(self.has_files.then_some(self.lost), self.clock.now());
        let memory = match self.has_files {
            true => self.memory,
            false => Memory::journaled(self.bounds, export.identity),
        };
        Engine::of_memory(policy, memory, lost, self.clock)
    }

    /// Returns the live buckets of some shards from `from` on, and where the next batch begins, if there is one.
    pub fn batch(&self, from: u64) -> (Batch, Option<u64>) {
        self.source().page(from)
    }

    fn source(&self) -> MemorySource<'_> {
        MemorySource { memory: &self.memory, lost: self.lost, clock: &self.clock }
    }
}

/// Returns the policy by which the buckets of an export were found.
pub(crate) fn policy_of(policy: Policy, header: &ExportHeader) -> Policy {
    policy.after_loss(header.lost)
}

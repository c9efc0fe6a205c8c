//! Writes a journal: appends what changed in each round, and replaces the logs by a snapshot when they get long.
//!
//! ```text
//! 07.snapshot  07.log  08.log                     read at start, in this order
//! 07.snapshot  07.log  08.log  09.log  09.snapshot.part      the next snapshot is being written
//! 09.snapshot  09.log                             it is complete; the files before it are removed
//! ```
//!
//! Every state is a whole one, so it does not matter if a bucket is in a snapshot with a later state than in the log
//! beside it: the log has the later state too, at its end.
//!
//! Nothing here waits for the disk, except in [`Journal::close`]: syncs and snapshots are jobs for another thread.
//! After any error the log is left as it is and never used again. A new log is begun, and since changes may be missing
//! before it, a snapshot too; when that is complete, everything is kept again.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use tollway_core::{LostBuckets, Nanos, Timestamp};
use tracing::{info, warn};

use super::disk::{Disk, DiskFile};
use super::format::{BlockEncoder, FileKind, Header, Stamp};
use super::recovery::{FileName, Recovered};

/// The length that the logs may have beyond that of the last snapshot before another one is made. A server that changes
/// millions of buckets a second appends as much in one to four seconds: with less, it would write one snapshot after
/// another, and with more, a start would take longer. Tests have short logs.
const LOGS_BEYOND_SNAPSHOT: u64 = if cfg!(test) { 512 } else { 128 << 20 };
/// The number of logs that are kept without a snapshot: every start begins another one.
const LOGS_MAX: usize = 16;
/// The bytes of a snapshot that are written at a time. It takes a fraction of a millisecond, so that a decision that
/// waits for the core waits no longer.
const SNAPSHOT_STEP: usize = 128 << 10;
/// The pause after an error before the disk is tried again.
const RETRY_AFTER: Nanos = Nanos::from_secs(1);

/// The buckets that a journal keeps.
pub(crate) trait BucketSource {
    /// Returns the number of shards.
    fn shards(&self) -> usize;

    /// Adds all buckets of these shards that have changed since the last call.
    fn collect_changed(&self, shards: Range<usize>, out: &mut BlockEncoder);

    /// Adds all buckets of a shard.
    fn collect_all(&self, shard: usize, out: &mut BlockEncoder);

    /// Adds all delays that have changed since the last call.
    fn collect_changed_delays(&self, out: &mut BlockEncoder);

    /// Adds all delays of one part. Returns false if there is no such part.
    fn collect_all_delays(&self, part: usize, out: &mut BlockEncoder) -> bool;

    /// Returns a number that changes with the numbers of limits, and at the start is another one than 0.
    fn numbers_version(&self) -> u64;

    /// Returns the [numbers of limits](super::numbers), encoded.
    fn numbers(&self) -> Vec<u8>;

    /// Ends the collection of changes: nobody asks for them any more.
    fn stop_collecting(&self);
}

/// The numbers that all files of a journal have in their headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) hash_key: [u64; 2],
    pub(crate) shard_bits: u8,
    pub(crate) boot_id: [u8; 16],
    pub(crate) lost: LostBuckets,
}

/// Figures about a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct JournalStats {
    /// The time since when changes are not kept, because the disk fails.
    pub failing_since: Option<Timestamp>,
    /// The time up to which all changes are kept, in the files if not yet on the disk.
    pub kept_until: Timestamp,
    /// The last error of the disk.
    pub last_error: Option<String>,
    /// The number of times that the disk failed.
    pub failures: u64,
    /// The number of states of buckets that were appended to logs.
    pub buckets_written: u64,
    /// The number of bytes that were appended to logs.
    pub bytes_written: u64,
    /// The number of times that a log was synced.
    pub syncs: u64,
    /// The time that the last sync took.
    pub last_sync: Duration,
    /// The number of snapshots that were completed.
    pub snapshots: u64,
    /// The length of the logs since the last snapshot.
    pub log_bytes: u64,
    /// The length of the last snapshot.
    pub snapshot_bytes: u64,
}

/// The figures about a journal, which its owner reads while it is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedStats(Arc<Mutex<JournalStats>>);

impl SharedStats {
    pub(crate) fn lock(&self) -> MutexGuard<'_, JournalStats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A journal that is being written.
#[derive(Debug)]
pub(crate) struct Journal<D: Disk> {
    disk: D,
    lock: Option<D::Lock>,
    identity: Identity,
    /// The time between two syncs; `None` if the logs are not synced.
    sync_every: Option<Nanos>,
    generation: u64,
    log: Option<OpenLog<D::File>>,
    encoder: BlockEncoder,
    /// The version of the numbers of limits that the log has; 0 if it has none.
    numbers_version: u64,
    /// The logs before the open one that the last snapshot does not have, and their length.
    earlier_logs: usize,
    earlier_bytes: u64,
    snapshot_bytes: u64,
    /// The length that the logs may have beyond that of the last snapshot.
    logs_beyond_snapshot: u64,
    snapshot_runs: bool,
    /// True if changes are missing in the files.
    needs_snapshot: bool,
    retry_at: Timestamp,
    /// The time up to which all changes are kept.
    kept_until: Timestamp,
    /// The time at which the last sync began, of whichever log: another log does not put the next sync off.
    synced_at: Timestamp,
    stats: SharedStats,
}

#[derive(Debug)]
struct OpenLog<F> {
    file: F,
    generation: u64,
    bytes: u64,
    /// The log before this one, until it is synced.
    previous: Option<F>,
    has_unsynced: bool,
    sync_runs: bool,
    /// True if its name is on the disk.
    is_named: bool,
}

/// A sync of logs, to be run by a thread that may wait.
#[derive(Debug)]
pub(crate) struct SyncJob<D: Disk> {
    disk: D,
    files: Vec<D::File>,
    /// True if the name of a file is to be synced too.
    with_names: bool,
    generation: u64,
    started: Timestamp,
}

/// The result of a [`SyncJob`].
#[derive(Debug)]
pub(crate) struct SyncDone {
    generation: u64,
    started: Timestamp,
    took: Duration,
    result: io::Result<()>,
}

impl<D: Disk> SyncJob<D> {
    pub(crate) fn run(self) -> SyncDone {
        let Self { disk, files, with_names, generation, started } = self;
        let began = Instant::now();
        let names = || if with_names { disk.sync_directory() } else { Ok(()) };
        let result = files.iter().try_for_each(DiskFile::sync).and_then(|()| names());
        SyncDone { generation, started, took: began.elapsed(), result }
    }
}

impl<D: Disk> Journal<D> {
    /// Locks the directory. Then nobody else writes to its files, and they can be read.
    pub(crate) fn lock(disk: &D) -> io::Result<Option<D::Lock>> {
        match disk.lock() {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(error),
            // A disk that is full or read-only has no place for the lock. It may have one later.
            Err(_) => Ok(None),
        }
    }

    /// Begins to write after what was recovered. If the disk fails, it is tried again later.
    pub(crate) fn begin(
        disk: D,
        lock: Option<D::Lock>,
        identity: Identity,
        recovered: &Recovered,
        sync_every: Option<Nanos>,
        stamp: Stamp,
    ) -> Self {
        let header = header(&identity, FileKind::Log, recovered.generation, stamp);
        let mut journal = Self {
            disk,
            lock,
            identity,
            sync_every,
            generation: recovered.generation,
            log: None,
            encoder: BlockEncoder::new(&header, stamp),
            numbers_version: 0,
            earlier_logs: recovered.logs,
            earlier_bytes: recovered.log_bytes,
            snapshot_bytes: recovered.snapshot_bytes,
            logs_beyond_snapshot: LOGS_BEYOND_SNAPSHOT,
            snapshot_runs: false,
            // What the process before had not synced can be read, and may be gone after a power loss: nobody knows
            // which files that is about, least of all after a sync that failed. So all of it is written again.
            needs_snapshot: recovered.last.is_some() && !recovered.is_clean,
            retry_at: stamp.clock,
            kept_until: stamp.clock,
            synced_at: stamp.clock,
            stats: SharedStats::default(),
        };
        journal.begin_log_or_fail(stamp);
        // Before the first decision: without the name of the new log, the files would look as if the process before had
        // been the last one, and had closed them.
        journal.sync(stamp);
        if journal.log.is_none() {
            let _ = journal.disk.sync_directory();
        }
        journal
    }

    pub(crate) fn stats(&self) -> SharedStats {
        self.stats.clone()
    }

    /// Sets the length that the logs may have beyond that of the last snapshot.
    #[cfg(feature = "simulation")]
    pub(crate) fn set_logs_beyond_snapshot(&mut self, bytes: u64) {
        self.logs_beyond_snapshot = bytes;
    }

    /// Appends what has changed since the last round.
    pub(crate) fn round(&mut self, source: &impl BucketSource, stamp: Stamp) {
        self.append_changes(source, 0..source.shards(), stamp);
        self.end_round(stamp.clock);
    }

    /// Appends what has changed in some shards: a part of a round.
    pub(crate) fn append_changes(&mut self, source: &impl BucketSource, shards: Range<usize>, stamp: Stamp) {
        if self.log.is_none() && stamp.clock >= self.retry_at {
            self.begin_log_or_fail(stamp);
        }
        self.encoder.set_time(stamp);
        // Before the buckets that are written under them.
        self.encode_changed_numbers(source);
        // Once in a round.
        if shards.start == 0 {
            source.collect_changed_delays(&mut self.encoder);
        }
        source.collect_changed(shards, &mut self.encoder);
        // Limits that were changed meanwhile may already have buckets under their new numbers.
        self.encode_changed_numbers(source);
        self.append(stamp);
    }

    fn encode_changed_numbers(&mut self, source: &impl BucketSource) {
        let version = source.numbers_version();
        if version != self.numbers_version {
            self.numbers_version = version;
            self.encoder.numbers(&source.numbers());
        }
    }

    fn append(&mut self, stamp: Stamp) {
        let (buckets, len) = (self.encoder.take_buckets(), self.encoder.len() as u64);
        let Some(log) = &mut self.log else {
            // Dropped: the snapshot that follows when the disk is back has these buckets.
            return self.encoder.take(|_| ());
        };
        if len == 0 {
            return;
        }
        let appended = self.encoder.take(|bytes| log.file.append(bytes));
        (log.bytes, log.has_unsynced) = (log.bytes + len, true);
        if let Err(error) = appended {
            return self.fail("cannot be written", &error, stamp);
        }
        let mut stats = self.stats.lock();
        stats.buckets_written += buckets;
        stats.bytes_written += len;
        stats.log_bytes = self.earlier_bytes + log.bytes;
    }

    /// Notes that the changes up to this time were appended, in all shards.
    pub(crate) fn end_round(&mut self, began: Timestamp) {
        if self.log.is_none() {
            return;
        }
        self.kept_until = began;
        if !self.needs_snapshot {
            self.stats.lock().kept_until = began;
        }
    }

    /// Returns the sync that is due, if one is.
    pub(crate) fn sync_due(&mut self, now: Timestamp) -> Option<SyncJob<D>> {
        let every = self.sync_every?;
        if self.log.as_ref()?.sync_runs || now.since(self.synced_at) < every {
            return None;
        }
        self.sync_job(now)
    }

    /// Waits until everything that was appended is on the disk.
    pub(crate) fn sync(&mut self, stamp: Stamp) {
        if let Some(job) = self.sync_job(stamp.clock) {
            let done = job.run();
            self.on_synced(done, stamp);
        }
    }

    fn sync_job(&mut self, now: Timestamp) -> Option<SyncJob<D>> {
        let log = self.log.as_mut().filter(|log| log.has_unsynced)?;
        // An error here is not one of the disk, and is tried again in the next round.
        let mut files = vec![log.file.duplicate().ok()?];
        files.extend(log.previous.take());
        (log.has_unsynced, log.sync_runs) = (false, true);
        let (with_names, generation) = (!log.is_named, log.generation);
        Some(SyncJob { disk: self.disk.clone(), files, with_names, generation, started: now })
    }

    pub(crate) fn on_synced(&mut self, done: SyncDone, stamp: Stamp) {
        let Some(log) = &mut self.log else { return };
        // A log that was replaced meanwhile is about to be synced again, together with the one that replaced it. If it
        // has failed, that must not happen.
        if let Err(error) = done.result {
            return self.fail("cannot be synced", &error, stamp);
        }
        if log.generation == done.generation {
            (log.sync_runs, log.is_named) = (false, true);
        }
        self.synced_at = self.synced_at.max(done.started);
        let mut stats = self.stats.lock();
        (stats.syncs, stats.last_sync) = (stats.syncs + 1, done.took);
    }

    /// Returns the snapshot that is due, if one is. It is complete if it has the buckets as they are from now on.
    pub(crate) fn snapshot_due(&mut self, stamp: Stamp) -> Option<SnapshotJob<D>> {
        let log = self.log.as_ref()?;
        let long = self.earlier_bytes + log.bytes > self.snapshot_bytes + self.logs_beyond_snapshot;
        let is_due = self.needs_snapshot || long || self.earlier_logs >= LOGS_MAX;
        if self.snapshot_runs || !is_due || stamp.clock < self.retry_at {
            return None;
        }
        // A log that was begun after an error has nothing before it to be replaced.
        if !self.needs_snapshot {
            self.begin_log_or_fail(stamp);
        }
        let generation = self.log.as_ref()?.generation;
        self.snapshot_runs = true;
        Some(SnapshotJob::new(self.disk.clone(), &self.identity, generation, stamp))
    }

    pub(crate) fn on_snapshot(&mut self, done: SnapshotDone, stamp: Stamp) {
        self.snapshot_runs = false;
        let bytes = match done.result {
            Ok(bytes) => bytes,
            Err(error) => return self.fail_snapshot(&error, stamp),
        };
        self.snapshot_bytes = bytes;
        let mut stats = self.stats.lock();
        (stats.snapshot_bytes, stats.snapshots) = (bytes, stats.snapshots + 1);
        // If the log failed meanwhile, changes since then are missing in this snapshot too.
        if let Some(log) = self.log.as_ref().filter(|log| log.generation == done.generation) {
            (self.earlier_logs, self.earlier_bytes) = (0, 0);
            stats.log_bytes = log.bytes;
            self.needs_snapshot = false;
            if stats.failing_since.take().is_some() {
                info!("the disk of the journal works again, and all changes are kept");
            }
        }
    }

    /// Keeps everything, and marks the journal as complete. It waits for the disk.
    pub(crate) fn close(mut self, source: &impl BucketSource, stamp: Stamp) -> io::Result<()> {
        // Once more at once, whenever the last attempt was.
        self.retry_at = self.retry_at.min(stamp.clock);
        self.round(source, stamp);
        if self.needs_snapshot {
            self.snapshot_runs = false;
            if let Some(job) = self.snapshot_due(stamp) {
                self.on_snapshot(job.run(source), stamp);
            }
        }
        // Without the snapshot, changes from before this log are missing: the next start must not take it for complete.
        if self.needs_snapshot {
            return Err(self.last_error());
        }
        let Some(log) = &mut self.log else { return Err(self.last_error()) };
        // Everything before the block that says so: the system may write that one first, and lose its power.
        log.previous.iter().try_for_each(DiskFile::sync)?;
        log.file.sync()?;
        self.disk.sync_directory()?;
        self.encoder.end();
        self.encoder.take(|bytes| log.file.append(bytes))?;
        log.file.sync()
    }

    fn last_error(&self) -> io::Error {
        io::Error::other(self.stats.lock().last_error.clone().unwrap_or_default())
    }

    fn begin_log_or_fail(&mut self, stamp: Stamp) {
        if let Err(error) = self.begin_log(stamp) {
            self.fail("cannot be begun", &error, stamp);
        }
    }

    /// Begins another log. The one before it is synced together with it.
    fn begin_log(&mut self, stamp: Stamp) -> io::Result<()> {
        if self.lock.is_none() {
            self.lock = Some(self.disk.lock()?);
        }
        let generation = self.generation + 1;
        let name = FileName::log(generation).to_string();
        let header = header(&self.identity, FileKind::Log, generation, stamp);
        let mut file = self.disk.create(&name)?;
        let bytes = header.encode();
        // If that fails, the file stays: a log without a header says that the one before it is not the last.
        file.append(&bytes)?;
        self.generation = generation;
        let previous = self.log.take().map(|log| {
            self.earlier_logs += 1;
            self.earlier_bytes += log.bytes;
            log.file
        });
        self.encoder = BlockEncoder::new(&header, stamp);
        self.numbers_version = 0;
        self.log = Some(OpenLog {
            file,
            generation,
            bytes: bytes.len() as u64,
            previous,
            has_unsynced: true,
            sync_runs: false,
            is_named: false,
        });
        Ok(())
    }

    fn fail(&mut self, what: &str, error: &io::Error, stamp: Stamp) {
        if let Some(log) = self.log.take() {
            self.earlier_logs += 1;
            self.earlier_bytes += log.bytes;
        }
        self.needs_snapshot = true;
        self.note_failure("log", what, error, stamp);
    }

    fn fail_snapshot(&mut self, error: &io::Error, stamp: Stamp) {
        self.note_failure("snapshot", "cannot be written", error, stamp);
    }

    fn note_failure(&mut self, file: &str, what: &str, error: &io::Error, stamp: Stamp) {
        self.retry_at = stamp.clock + RETRY_AFTER;
        let mut stats = self.stats.lock();
        let text = format!("the {file} of the journal {what}: {error}");
        // Once for each reason, not once for each attempt.
        if stats.last_error.as_ref() != Some(&text) || stats.failing_since.is_none() {
            warn!("{text}; decisions go on, and the disk is tried again every second");
        }
        stats.failures += 1;
        stats.last_error = Some(text);
        if self.needs_snapshot {
            stats.failing_since.get_or_insert(self.kept_until);
        }
    }
}

/// A snapshot that is being written, in steps, by a thread that may wait.
#[derive(Debug)]
pub(crate) struct SnapshotJob<D: Disk> {
    disk: D,
    generation: u64,
    header: Header,
    encoder: BlockEncoder,
    file: Option<D::File>,
    shard: usize,
    /// The part of the delays that comes next, after all shards.
    delays: usize,
    bytes: u64,
}

/// The result of a [`SnapshotJob`]: the length of the snapshot, or an error.
#[derive(Debug)]
pub(crate) struct SnapshotDone {
    generation: u64,
    result: io::Result<u64>,
}

impl<D: Disk> SnapshotJob<D> {
    fn new(disk: D, identity: &Identity, generation: u64, stamp: Stamp) -> Self {
        let header = header(identity, FileKind::Snapshot, generation, stamp);
        let encoder = BlockEncoder::new(&header, stamp);
        Self { disk, generation, header, encoder, file: None, shard: 0, delays: 0, bytes: 0 }
    }

    /// Runs all steps.
    pub(crate) fn run(mut self, source: &impl BucketSource) -> SnapshotDone {
        loop {
            if let Some(done) = self.step(source) {
                return done;
            }
        }
    }

    /// Writes a part of the snapshot. Returns the result when it is complete or has failed.
    pub(crate) fn step(&mut self, source: &impl BucketSource) -> Option<SnapshotDone> {
        let result = match self.write_some(source) {
            Ok(false) => return None,
            Ok(true) => self.complete(),
            Err(error) => Err(error),
        };
        if result.is_err() {
            let _ = self.disk.remove(&FileName::part(self.generation).to_string());
        }
        Some(SnapshotDone { generation: self.generation, result: result.map(|()| self.bytes) })
    }

    /// Returns true if the last bucket and the last delay are written.
    fn write_some(&mut self, source: &impl BucketSource) -> io::Result<bool> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = self.file.insert(self.disk.create(&FileName::part(self.generation).to_string())?);
                file.append(&self.header.encode())?;
                self.bytes = self.header.encode().len() as u64;
                file
            }
        };
        while self.shard < source.shards() && self.encoder.len() < SNAPSHOT_STEP {
            source.collect_all(self.shard, &mut self.encoder);
            self.shard += 1;
        }
        let mut is_last = false;
        while self.shard == source.shards() && !is_last && self.encoder.len() < SNAPSHOT_STEP {
            is_last = !source.collect_all_delays(self.delays, &mut self.encoder);
            self.delays += 1;
        }
        if is_last {
            // At the end: a bucket may have been moved to numbers that its limit got meanwhile. The log has them too,
            // but after a power loss it may lack what it has had since the last sync.
            self.encoder.numbers(&source.numbers());
            self.encoder.end();
        }
        self.encoder.take(|bytes| {
            self.bytes += bytes.len() as u64;
            file.append(bytes)
        })?;
        Ok(is_last)
    }

    fn complete(&mut self) -> io::Result<()> {
        self.file.take().map_or(Ok(()), |file| file.sync())?;
        let (part, name) = (FileName::part(self.generation), FileName::snapshot(self.generation));
        self.disk.rename(&part.to_string(), &name.to_string())?;
        self.disk.sync_directory()?;
        // The snapshot is complete without this. Files that cannot be removed now are removed after the next one.
        for old in self.disk.list().unwrap_or_default() {
            if FileName::parse(&old).is_some_and(|file| file.generation < self.generation) {
                let _ = self.disk.remove(&old);
            }
        }
        Ok(())
    }
}

fn header(identity: &Identity, kind: FileKind, generation: u64, stamp: Stamp) -> Header {
    let Identity { hash_key, shard_bits, boot_id, lost } = *identity;
    // Different for each file of each journal, and the same for the same seed of a simulation.
    let seed = hash_key[0] ^ hash_key[1].rotate_left(1) ^ u64::from(kind == FileKind::Snapshot);
    let file_id = rapidhash_v3_seeded(&generation.to_le_bytes(), &RapidSecrets::seed(seed));
    Header { kind, shard_bits, hash_key, boot_id, file_id, generation, created: stamp, lost }
}

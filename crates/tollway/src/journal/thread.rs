//! The threads of a journal: one appends what has changed, in rounds, and one waits for the disk.
//!
//! They are two, because a sync can take as long as the disk likes. Meanwhile the rounds go on: what was appended is
//! safe from the end of the process, if not from that of the machine.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tollway_core::Timestamp;
use tracing::warn;

use super::commits::Commits;
use super::disk::Disk;
use super::format::Stamp;
use super::writer::{
    BucketSource, Journal, JournalStats, SharedStats, SnapshotDone, SnapshotJob, SyncDone, SyncJob,
};
use crate::clock::{Clock, boot_time};

/// The time of a round, after which every shard was looked at. A change waits for the next look at its shard: with all
/// that can hold the thread up, less than 100 ms, the most that is lost if the process is killed.
const ROUND: Duration = Duration::from_millis(40);
/// The parts of a round while much changes. On a core that a worker needs too, a whole round at once would hold up its
/// answers for some milliseconds.
const PARTS: u32 = 16;
/// The number of changes in a round from which on the next one has several parts. Waking up so often costs more than
/// fewer changes do.
const CHANGES_FOR_PARTS: u64 = 2_000;

/// The pause after each step of a snapshot, in times that the step took: a snapshot uses a sixth of a core at most.
const PAUSE_AFTER_STEP: u32 = 5;

/// The priority that the thread that writes snapshots gives up: a snapshot can wait, a decision cannot.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// The threads of a journal, which run until it is closed.
#[derive(Debug)]
pub(crate) struct JournalThread<D: Disk> {
    events: Sender<Event>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stats: SharedStats,
    commits: Arc<Commits>,
    // The thread has the disk.
    _disk: std::marker::PhantomData<fn() -> D>,
}

enum Event {
    /// Somebody waits until all changes so far are on the disk.
    Commit,
    Synced(SyncDone),
    Snapshot(SnapshotDone),
    Close,
}

enum Job<D: Disk> {
    Sync(SyncJob<D>),
    Snapshot(Box<SnapshotJob<D>>),
}

impl<D: Disk> JournalThread<D>
where
    D::Lock: 'static,
{
    pub(crate) fn start<S: BucketSource + Send + Sync + 'static>(
        journal: Journal<D>,
        source: Arc<S>,
        clock: Clock,
    ) -> io::Result<Self> {
        let stats = journal.stats();
        let (events, received) = mpsc::channel();
        let commits = Arc::new(Commits::default());
        let ending = || ThreadEnd {
            stats: stats.clone(),
            clock: clock.clone(),
            source: Arc::clone(&source),
            commits: Arc::clone(&commits),
        };
        let (jobs, disk_thread) = start_disk_thread(ending(), events.clone())?;
        let ending = ending();
        let rounds = Rounds {
            journal,
            stats: stats.clone(),
            written: 0,
            source,
            clock,
            received,
            jobs,
            disk_thread,
            commits: Arc::clone(&commits),
        };
        let run = move || {
            // Dropped last, also after a panic.
            let ending = ending;
            rounds.run();
            ending.source.stop_collecting();
            ending.commits.close();
        };
        let thread = thread::Builder::new().name("tollway-journal".to_owned()).spawn(run)?;
        Ok(Self { events, thread: Mutex::new(Some(thread)), stats, commits, _disk: std::marker::PhantomData })
    }
}

impl<D: Disk> JournalThread<D> {
    pub(crate) fn stats(&self) -> JournalStats {
        self.stats.lock().clone()
    }

    /// Waits until all changes so far are on the disk.
    pub(crate) async fn committed(&self) {
        self.commits.wait(|| _ = self.events.send(Event::Commit)).await;
    }

    /// Keeps everything that has changed, and ends the threads. Later calls do nothing.
    pub(crate) fn close(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = self.events.send(Event::Close);
            let _ = thread.join();
        }
    }
}

impl<D: Disk> Drop for JournalThread<D> {
    fn drop(&mut self) {
        self.close();
    }
}

/// The end of a thread of the journal. If it panics, nothing more is kept, and the stats say so from then on.
struct ThreadEnd<S: BucketSource> {
    stats: SharedStats,
    clock: Clock,
    source: Arc<S>,
    commits: Arc<Commits>,
}

impl<S: BucketSource> Drop for ThreadEnd<S> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.source.stop_collecting();
            self.commits.close();
            let mut stats = self.stats.lock();
            stats.failures += 1;
            stats.failing_since.get_or_insert_with(|| self.clock.now());
            stats.last_error = Some("a thread of the journal panicked; restart the server".to_owned());
        }
    }
}

/// A place in a round.
#[derive(Clone, Copy)]
struct Round {
    parts: u32,
    /// The next part.
    part: u32,
    began: Timestamp,
}

struct Rounds<D: Disk, S> {
    journal: Journal<D>,
    stats: SharedStats,
    /// The number of buckets that were written before this round.
    written: u64,
    source: Arc<S>,
    clock: Clock,
    received: Receiver<Event>,
    jobs: Sender<Job<D>>,
    disk_thread: JoinHandle<()>,
    commits: Arc<Commits>,
}

impl<D: Disk, S: BucketSource> Rounds<D, S> {
    fn run(mut self) {
        let mut round = Round { parts: 1, part: 0, began: self.stamp().clock };
        let mut next_part = Instant::now() + ROUND;
        loop {
            let event = self.received.recv_timeout(next_part.saturating_duration_since(Instant::now()));
            let stamp = self.stamp();
            match event {
                Ok(Event::Synced(done)) => self.journal.on_synced(done, stamp),
                Ok(Event::Snapshot(done)) => self.journal.on_snapshot(done, stamp),
                Ok(Event::Close) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(Event::Commit) => {
                    self.commit(stamp);
                    self.start_jobs(stamp);
                }
                Err(RecvTimeoutError::Timeout) => {
                    round = self.take_part(round, stamp);
                    // By the clock, and not after a pause: a thread that gets its core late takes the next parts at
                    // once, so that the round is not longer. What it missed for longer than a round is not made up for.
                    let now = Instant::now();
                    next_part += ROUND / round.parts;
                    if next_part + ROUND < now {
                        next_part = now;
                    }
                    self.start_jobs(stamp);
                }
            }
        }
        self.close();
    }

    /// Syncs all changes, for those that wait. If the disk fails, they do not wait for it: decisions go on, and the
    /// stats say that nothing is kept.
    fn commit(&mut self, stamp: Stamp) {
        let upto = self.commits.begin();
        self.journal.round(&*self.source, stamp);
        self.journal.sync(stamp);
        self.commits.end(upto);
    }

    /// Takes one part of a round, and returns the next one.
    fn take_part(&mut self, mut round: Round, stamp: Stamp) -> Round {
        if round.part == 0 {
            round.began = stamp.clock;
        }
        let per_part = self.source.shards().div_ceil(round.parts as usize);
        let first = per_part * round.part as usize;
        let shards = first..(first + per_part).min(self.source.shards());
        self.journal.append_changes(&*self.source, shards, stamp);
        round.part += 1;
        if round.part < round.parts {
            return round;
        }
        self.journal.end_round(round.began);
        let written = self.stats.lock().buckets_written;
        let changes = written - std::mem::replace(&mut self.written, written);
        Round { parts: if changes < CHANGES_FOR_PARTS { 1 } else { PARTS }, part: 0, began: stamp.clock }
    }

    fn stamp(&self) -> Stamp {
        Stamp { clock: self.clock.now(), boot: boot_time() }
    }

    /// Sends what is due to the thread that waits for the disk. At most one sync and one snapshot are under way.
    fn start_jobs(&mut self, stamp: Stamp) {
        let sync = self.journal.sync_due(stamp.clock).map(Job::Sync);
        let snapshot = self.journal.snapshot_due(stamp).map(|job| Job::Snapshot(Box::new(job)));
        for job in sync.into_iter().chain(snapshot) {
            // The thread only ends before this one if it has panicked, and then the stats say so.
            let _ = self.jobs.send(job);
        }
    }

    fn close(mut self) {
        // The thread drops a snapshot that it has begun; the logs have everything that would be in it.
        let stamp = self.stamp();
        drop(self.jobs);
        if self.disk_thread.join().is_err() {
            // It panicked, and since then changes are missing: the files must not end as if they were complete.
            return;
        }
        for event in self.received.try_iter() {
            match event {
                Event::Synced(done) => self.journal.on_synced(done, stamp),
                Event::Snapshot(done) => self.journal.on_snapshot(done, stamp),
                Event::Commit | Event::Close => {}
            }
        }
        if let Err(error) = self.journal.close(&*self.source, stamp) {
            warn!(
                "the journal was not closed: {error}; the last changes may be missing after the next start"
            );
        }
    }
}

fn start_disk_thread<D: Disk, S: BucketSource + Send + Sync + 'static>(
    ending: ThreadEnd<S>,
    events: Sender<Event>,
) -> io::Result<(Sender<Job<D>>, JoinHandle<()>)> {
    let (jobs, received) = mpsc::channel();
    let run = move || {
        // Dropped last, also after a panic.
        let ending = ending;
        #[cfg(target_os = "linux")]
        let _ = rustix::process::nice(NICE);
        run_jobs(&*ending.source, &received, &events);
    };
    let thread = thread::Builder::new().name("tollway-disk".to_owned()).spawn(run)?;
    Ok((jobs, thread))
}

/// Runs jobs until there can be no more. Syncs come before the next step of a snapshot.
fn run_jobs<D: Disk, S: BucketSource>(source: &S, jobs: &Receiver<Job<D>>, events: &Sender<Event>) {
    let mut snapshot: Option<Box<SnapshotJob<D>>> = None;
    let mut pause = Duration::ZERO;
    loop {
        let job = match &snapshot {
            None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(_) => jobs.recv_timeout(pause),
        };
        let event = match job {
            Ok(Job::Sync(sync)) => Some(Event::Synced(sync.run())),
            Ok(Job::Snapshot(job)) => {
                snapshot = Some(job);
                None
            }
            Err(RecvTimeoutError::Timeout) => {
                let began = Instant::now();
                let done = snapshot.as_mut().and_then(|job| job.step(source));
                pause = began.elapsed() * PAUSE_AFTER_STEP;
                done.map(|done| {
                    snapshot = None;
                    Event::Snapshot(done)
                })
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if event.is_some_and(|event| events.send(event).is_err()) {
            return;
        }
    }
}

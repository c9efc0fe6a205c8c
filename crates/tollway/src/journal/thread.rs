//! The threads of a journal: one appends what has changed, in rounds, and one waits for the disk.
//!
//! They are two, because a sync can take as long as the disk likes. Meanwhile the rounds go on: what was appended is
//! safe from the end of the process, if not from that of the machine.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::warn;

use super::disk::Disk;
use super::format::Stamp;
use super::writer::{
    BucketSource, Journal, JournalStats, SharedStats, SnapshotDone, SnapshotJob, SyncDone, SyncJob,
};
use crate::clock::{Clock, boot_time};

/// The time between two rounds. A change waits for the next round, and that for the end of the one before: all of it
/// takes less than 100 ms, the most that is lost if the process is killed.
const ROUND: Duration = Duration::from_millis(40);

/// The priority that the thread that writes snapshots gives up: a snapshot can wait, a decision cannot.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// The threads of a journal, which run until it is closed.
#[derive(Debug)]
pub(crate) struct JournalThread<D: Disk> {
    events: Sender<Event>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stats: SharedStats,
    // The thread has the disk.
    _disk: std::marker::PhantomData<fn() -> D>,
}

enum Event {
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
        let (jobs, disk_thread) = start_disk_thread(Arc::clone(&source), events.clone())?;
        let ending = ThreadEnd { stats: stats.clone(), clock: clock.clone(), source: Arc::clone(&source) };
        let rounds = Rounds { journal, source, clock, received, jobs, disk_thread };
        let run = move || {
            // Dropped last, also after a panic.
            let _ending = ending;
            rounds.run();
        };
        let thread = thread::Builder::new().name("tollway-journal".to_owned()).spawn(run)?;
        Ok(Self { events, thread: Mutex::new(Some(thread)), stats, _disk: std::marker::PhantomData })
    }
}

impl<D: Disk> JournalThread<D> {
    pub(crate) fn stats(&self) -> JournalStats {
        self.stats.lock().clone()
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

/// Ends the collection of changes with the thread that asks for them. If the thread panics, the stats say so.
struct ThreadEnd<S: BucketSource> {
    stats: SharedStats,
    clock: Clock,
    source: Arc<S>,
}

impl<S: BucketSource> Drop for ThreadEnd<S> {
    fn drop(&mut self) {
        self.source.stop_collecting();
        if thread::panicking() {
            let mut stats = self.stats.lock();
            stats.failures += 1;
            stats.failing_since.get_or_insert_with(|| self.clock.now());
            stats.last_error = Some("the thread of the journal panicked; restart the server".to_owned());
        }
    }
}

struct Rounds<D: Disk, S> {
    journal: Journal<D>,
    source: Arc<S>,
    clock: Clock,
    received: Receiver<Event>,
    jobs: Sender<Job<D>>,
    disk_thread: JoinHandle<()>,
}

impl<D: Disk, S: BucketSource> Rounds<D, S> {
    fn run(mut self) {
        let mut next_round = Instant::now() + ROUND;
        loop {
            let event = self.received.recv_timeout(next_round.saturating_duration_since(Instant::now()));
            let stamp = self.stamp();
            match event {
                Ok(Event::Synced(done)) => self.journal.on_synced(done, stamp),
                Ok(Event::Snapshot(done)) => self.journal.on_snapshot(done, stamp),
                Ok(Event::Close) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    next_round = Instant::now() + ROUND;
                    self.journal.round(&*self.source, stamp);
                    self.start_jobs(stamp);
                }
            }
        }
        self.close();
    }

    fn stamp(&self) -> Stamp {
        Stamp { clock: self.clock.now(), boot: boot_time() }
    }

    /// Sends what is due to the thread that waits for the disk. At most one sync and one snapshot are under way.
    fn start_jobs(&mut self, stamp: Stamp) {
        let sync = self.journal.sync_due(stamp.clock).map(Job::Sync);
        let snapshot = self.journal.snapshot_due(stamp).map(|job| Job::Snapshot(Box::new(job)));
        for job in sync.into_iter().chain(snapshot) {
            // The thread only ends if it has panicked, and then the stats say so.
            let _ = self.jobs.send(job);
        }
    }

    fn close(mut self) {
        // The thread drops a snapshot that it has begun; the logs have everything that would be in it.
        let stamp = self.stamp();
        drop(self.jobs);
        let _ = self.disk_thread.join();
        for event in self.received.try_iter() {
            match event {
                Event::Synced(done) => self.journal.on_synced(done, stamp),
                Event::Snapshot(done) => self.journal.on_snapshot(done, stamp),
                Event::Close => {}
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
    source: Arc<S>,
    events: Sender<Event>,
) -> io::Result<(Sender<Job<D>>, JoinHandle<()>)> {
    let (jobs, received) = mpsc::channel();
    let run = move || {
        #[cfg(target_os = "linux")]
        let _ = rustix::process::nice(NICE);
        run_jobs(&*source, &received, &events);
    };
    let thread = thread::Builder::new().name("tollway-disk".to_owned()).spawn(run)?;
    Ok((jobs, thread))
}

/// Runs jobs until there can be no more. Syncs come before the next step of a snapshot.
fn run_jobs<D: Disk, S: BucketSource>(source: &S, jobs: &Receiver<Job<D>>, events: &Sender<Event>) {
    let mut snapshot: Option<Box<SnapshotJob<D>>> = None;
    loop {
        let job = match &snapshot {
            None => jobs.recv().map_err(|_| TryRecvError::Disconnected),
            Some(_) => jobs.try_recv(),
        };
        let event = match job {
            Ok(Job::Sync(sync)) => Some(Event::Synced(sync.run())),
            Ok(Job::Snapshot(job)) => {
                snapshot = Some(job);
                None
            }
            Err(TryRecvError::Empty) => {
                let done = snapshot.as_mut().and_then(|job| job.step(source));
                done.map(|done| {
                    snapshot = None;
                    Event::Snapshot(done)
                })
            }
            Err(TryRecvError::Disconnected) => return,
        };
        if event.is_some_and(|event| events.send(event).is_err()) {
            return;
        }
    }
}

//! Shows who is busy: the ids that are denied or spend most, the last denials, and the rates of the last minutes.
//!
//! ```text
//! decisions of a worker ──> WorkerWatch: sketches, last denials ──┐
//!                           (one for each worker, locked once a batch)├──> GET /v1/top, GET /v1/live
//! counters of metrics.rs ──> Sampler, once a second: History ─────┘
//! ```
//!
//! Each worker has a lock of its own, which is contended only while somebody reads: the counts are copied under it, and
//! merged without it. Time comes from the sampler, ten times a second: a decision reads no clock for being watched.

mod denials;
mod feed;
mod generations;
mod history;
mod sampler;
mod sketch;
mod subjects;
mod top;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollway::config::{ShowIds, WatchSettings};
use tollway::engine::Engine;
use tollway_core::Nanos;
use tollway_wire::http::{LastDenial, SubjectKind, TopBy, TopEntry, TopReport};

use self::denials::{Denial, LAST, LastDenials};
pub(crate) use self::feed::{LiveFeed, LiveWatcher};
use self::generations::{Generations, KEPT, SECONDS, oldest_shown};
pub(crate) use self::sampler::Sampler;
pub(crate) use self::sketch::Subject;
use self::sketch::{ShortId, Sketch, SketchKey};
pub(crate) use self::subjects::{KEYS, Subjects, kind_of_limit};
use self::top::{Entry, Merged, merge};

/// The bytes that watching may take on each worker.
const WORKER_MAX: usize = 1 << 20;
const _: () = assert!(2 * KEPT * Sketch::SIZE + LastDenials::SIZE <= WORKER_MAX);

/// The digits of a hash that stand for an id.
const HASH_DIGITS: u32 = 12;

/// Watches all workers of a server.
#[derive(Debug)]
pub(crate) struct Watch {
    settings: WatchSettings,
    key: SketchKey,
    /// Another key than that of the sketches: hashes that are shown must not help to choose ids that share a set.
    shown_key: SketchKey,
    subjects: Subjects,
    started: Instant,
    /// The time when it started, in seconds since 1970.
    started_at: f64,
    /// Milliseconds since it started, as of the last tick.
    millis: AtomicU64,
    workers: Vec<Mutex<WorkerWatch>>,
}

/// Watches one worker. It is aligned so that two workers never share a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct WorkerWatch {
    denied: Generations,
    spent: Generations,
    last: LastDenials,
}

impl WorkerWatch {
    const fn of(&self, by: TopBy) -> &Generations {
        match by {
            TopBy::Denied => &self.denied,
            TopBy::Spent => &self.spent,
        }
    }
}

/// Records the decisions of one batch. It holds the lock of the worker's watch.
pub(crate) struct Recorder<'w> {
    watch: &'w Watch,
    worker: MutexGuard<'w, WorkerWatch>,
    millis: u64,
    generation: u64,
}

impl Watch {
    pub(crate) fn new(settings: WatchSettings, workers: usize) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            settings,
            key: SketchKey::random(),
            shown_key: SketchKey::random(),
            subjects: Subjects::default(),
            started: Instant::now(),
            started_at: since_1970.as_secs_f64(),
            millis: AtomicU64::new(0),
            workers: (0..workers).map(|_| Mutex::default()).collect(),
        }
    }

    pub(crate) const fn settings(&self) -> &WatchSettings {
        &self.settings
    }

    pub(crate) const fn subjects(&self) -> &Subjects {
        &self.subjects
    }

    /// Returns a recorder for the decisions of a worker, or `None` if nothing is watched. Drop it before awaiting.
    #[inline]
    pub(crate) fn recorder(&self, worker: usize) -> Option<Recorder<'_>> {
        if !self.settings.is_on {
            return None;
        }
        let millis = self.millis.load(Ordering::Relaxed);
        let worker = self.lock(worker)?;
        Some(Recorder { watch: self, worker, millis, generation: generation(millis) })
    }

    /// Sets the time that decisions are recorded at.
    fn tick(&self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.started);
        self.millis.store(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the ids that were denied or spent most, of one name or of all.
    pub(crate) async fn top(&self, by: TopBy, name: Option<&str>, n: usize, engine: &Engine) -> TopReport {
        let (mut report, ids) = self.counted(by, name, n);
        for (entry, id) in report.top.iter_mut().zip(&ids) {
            entry.retry_after = retry_after(engine, entry, id).await;
        }
        report
    }

    /// Returns a list without the times that the store knows, and its ids.
    fn counted(&self, by: TopBy, name: Option<&str>, n: usize) -> (TopReport, Vec<ShortId>) {
        let millis = self.millis.load(Ordering::Relaxed);
        let generation = generation(millis);
        let wanted = name.map(|name| self.subjects.named(name));
        let counts: Vec<_> = self
            .each_worker()
            .flat_map(|worker| worker.of(by).counts(generation).collect::<Vec<_>>())
            .collect();
        let is_wanted = |subject| wanted.as_ref().is_none_or(|wanted| wanted.contains(&subject));
        let Merged { total, is_exact, top } = merge(&counts, is_wanted);
        let listed = top.iter().filter_map(|entry| self.entry(by, generation, entry));
        let (top, ids) = listed.take(n).unzip();
        let window = millis.saturating_sub(oldest_shown(generation) * SECONDS * 1_000);
        let window = Duration::from_millis(window).as_secs_f64();
        (TopReport { by, window, total, exact: is_exact, top }, ids)
    }

    /// Returns one line of a list; `None` if the id lost its place since it was counted.
    fn entry(&self, by: TopBy, generation: u64, entry: &Entry) -> Option<(TopEntry, ShortId)> {
        let find = |worker: MutexGuard<'_, WorkerWatch>| worker.of(by).id(generation, entry.hash).copied();
        let id = self.each_worker().find_map(find)?;
        let (kind, name) = self.subjects.name(entry.subject)?;
        let shown = TopEntry {
            limit: name.to_string(),
            kind,
            id: self.shown_id(entry.subject, &id),
            count_min: entry.bounds.min,
            count_max: entry.bounds.max,
            retry_after: None,
        };
        Some((shown, id))
    }

    /// Returns the last denials of all workers, newest first.
    pub(crate) fn last_denials(&self) -> Vec<LastDenial> {
        let mut last: Vec<_> = self.each_worker().flat_map(|worker| worker.last.to_vec()).collect();
        last.sort_by_key(|denial| std::cmp::Reverse(denial.at));
        last.truncate(LAST);
        last.iter().filter_map(|denial| self.last_denial(denial)).collect()
    }

    fn last_denial(&self, denial: &Denial) -> Option<LastDenial> {
        let (kind, name) = self.subjects.name(denial.subject)?;
        Some(LastDenial {
            at: self.started_at + Duration::from_millis(denial.at).as_secs_f64(),
            gate: denial.gate.to_owned(),
            limit: name.to_string(),
            kind,
            id: self.shown_id(denial.subject, &denial.id),
            cost: denial.cost,
            retry_after: denial.retry.filter(|retry| !retry.is_forever()).map(Nanos::as_secs_f64),
        })
    }

    /// Returns an id as the configuration says.
    fn shown_id(&self, subject: Subject, id: &ShortId) -> Option<String> {
        match self.settings.show_ids {
            ShowIds::Plain => Some(id.to_string()),
            ShowIds::Hashed => {
                let bits = self.shown_key.hash(subject, id.bytes()).bits() >> (u64::BITS - 4 * HASH_DIGITS);
                Some(format!("#{bits:0width$x}", width = HASH_DIGITS as usize))
            }
            ShowIds::Off => None,
        }
    }

    fn each_worker(&self) -> impl Iterator<Item = MutexGuard<'_, WorkerWatch>> {
        (0..self.workers.len()).filter_map(|index| self.lock(index))
    }

    fn lock(&self, worker: usize) -> Option<MutexGuard<'_, WorkerWatch>> {
        // What is counted stays true if a task panicked while it counted.
        Some(self.workers.get(worker)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Recorder<'_> {
    /// Records a request that was denied.
    #[inline]
    pub(crate) fn denied(
        &mut self,
        gate: &'static str,
        subject: Subject,
        id: &[u8],
        cost: u64,
        retry: Option<Nanos>,
    ) {
        let hash = self.watch.key.hash(subject, id);
        self.worker.denied.add(self.generation, hash, subject, id, 1);
        self.worker.last.push(self.millis, gate, subject, id, cost, retry);
    }

    /// Records the cost of a request that was allowed.
    #[inline]
    pub(crate) fn spent(&mut self, subject: Subject, id: &[u8], cost: u64) {
        let hash = self.watch.key.hash(subject, id);
        self.worker.spent.add(self.generation, hash, subject, id, cost);
    }
}

const fn generation(millis: u64) -> u64 {
    millis / (SECONDS * 1_000)
}

/// Returns the seconds until a request of cost 1 would be allowed, read from the store now.
async fn retry_after(engine: &Engine, entry: &TopEntry, id: &ShortId) -> Option<f64> {
    if id.is_cut() || !matches!(entry.kind, SubjectKind::Limit | SubjectKind::Descriptor) {
        return None;
    }
    let next = engine.inspect(&entry.limit, id.bytes()).await.ok()?.next;
    let retry = if next.allowed() { Nanos::ZERO } else { next.retry_nanos };
    (!retry.is_forever()).then(|| retry.as_secs_f64())
}

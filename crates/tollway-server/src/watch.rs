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

mod decision_sampler;
mod denials;
mod feed;
mod generations;
mod history;
mod numbers;
mod sampler;
mod sketch;
mod subjects;
mod top;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use tollway::config::{ShowIds, WatchSettings};
use tollway::engine::Engine;
use tollway_core::{Bill, Charge, Nanos, Policy};
use tollway_wire::http::{LastDenial, SubjectKind, TopBy, TopEntry, TopReport};

use self::decision_sampler::{DecisionSampler, ONE_BY_ONE};
use self::denials::{Denial, LAST, LastDenials};
pub(crate) use self::feed::{LiveFeed, LiveWatcher};
use self::generations::{Generations, SECONDS, oldest_shown};
use self::numbers::numbers_of_id;
pub(crate) use self::sampler::Sampler;
pub(crate) use self::sketch::Subject;
use self::sketch::{Added, EscapedId, ShortId, SketchKey};
pub(crate) use self::subjects::{KEYS, Subjects, kind_of_limit};
use self::top::{Entry, Merged, merge};

/// The bytes that watching may take on each worker.
const WORKER_MAX: usize = 1 << 20;
const _: () = assert!(2 * Generations::SIZE + LastDenials::SIZE <= WORKER_MAX);

/// The digits of a hash that stand for an id.
const HASH_DIGITS: u32 = 12;

/// Watches all workers of a server.
#[derive(Debug)]
pub(crate) struct Watch {
    settings: WatchSettings,
    key: SketchKey,
    /// The key of the hashes that are shown. It is one of SipHash: the hash of the sketches is quicker, but whoever
    /// sees its results could find its key, and then try ids until one has the hash that is shown.
    shown_key: RandomState,
    subjects: Subjects,
    started: Instant,
    /// Milliseconds since it started, as of the last tick.
    millis: AtomicU64,
    workers: Vec<Mutex<WorkerWatch>>,
}

/// Watches one worker. It is aligned so that two workers never share a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct WorkerWatch {
    /// The tick of the last batch, in milliseconds since the start.
    tick: u64,
    denied: WatchedCounts,
    spent: WatchedCounts,
    last: LastDenials,
}

/// The counts of one worker for one list, and what chooses the decisions that are counted.
#[derive(Debug)]
struct WatchedCounts {
    sampler: DecisionSampler,
    generations: Generations,
}

impl Default for WatchedCounts {
    /// Seeds the sampler at random. Each has a seed of its own: the samples of workers are added up, so they must not
    /// depend on each other.
    fn default() -> Self {
        let sampler = DecisionSampler::new(RandomState::new().hash_one("sampler"));
        Self { sampler, generations: Generations::default() }
    }
}

impl WatchedCounts {
    /// Adds amounts to the counts of ids.
    #[inline(never)]
    fn add_all(&mut self, generation: u64, pending: &mut PendingCounts<'_>) {
        self.generations.add_all(generation, pending);
        pending.clear();
    }

    /// Adds what is pending, and what was sampled and skipped.
    #[inline]
    fn finish(&mut self, generation: u64, pending: &mut PendingCounts<'_>) {
        if !pending.is_empty() {
            self.add_all(generation, pending);
        }
        if self.sampler.has_units() {
            self.generations.add_units(generation, self.sampler.take_units());
        }
    }
}

impl WorkerWatch {
    const fn of(&self, by: TopBy) -> &Generations {
        match by {
            TopBy::Denied => &self.denied.generations,
            TopBy::Spent => &self.spent.generations,
        }
    }

    #[cold]
    fn start_tick(&mut self, millis: u64) {
        self.tick = millis;
        self.denied.sampler.start_tick(ONE_BY_ONE);
        self.spent.sampler.start_tick(ONE_BY_ONE);
        self.last.start_tick();
    }
}

/// Records the decisions of one batch, at the latest when it is dropped. It holds the lock of the worker's watch.
///
/// The cells of a million ids are not in the nearest cache: a decision that waited for its own took as long as the rest
/// of its watching. So a few decisions are kept until the cells of all of them are on their way.
pub(crate) struct Recorder<'w> {
    watch: &'w Watch,
    worker: MutexGuard<'w, WorkerWatch>,
    millis: u64,
    generation: u64,
    denied: PendingCounts<'w>,
    spent: PendingCounts<'w>,
}

/// The number of decisions whose cells are fetched at the same time.
const PENDING: usize = 16;

/// The amounts that are to be added to the counts of ids.
type PendingCounts<'w> = ArrayVec<Added<'w>, PENDING>;

impl Watch {
    pub(crate) fn new(settings: WatchSettings, workers: usize) -> Self {
        Self {
            settings,
            key: SketchKey::random(),
            shown_key: RandomState::new(),
            subjects: Subjects::default(),
            started: Instant::now(),
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
        let mut worker = self.lock(worker)?;
        if worker.tick != millis {
            worker.start_tick(millis);
        }
        let (generation, denied, spent) = (generation(millis), ArrayVec::new(), ArrayVec::new());
        Some(Recorder { watch: self, worker, millis, generation, denied, spent })
    }

    /// Sets the time that decisions are recorded at.
    fn tick(&self, now: Instant) {
        self.millis.store(u64::try_from(self.uptime(now).as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the time since it started.
    fn uptime(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Returns the ids that were denied or spent most, of one name or of all.
    pub(crate) async fn top(&self, by: TopBy, name: Option<&str>, n: usize, engine: &Engine) -> TopReport {
        let (mut report, ids) = self.counted(by, name, n, &engine.policy());
        add_retry_after(engine, &mut report.top, &ids).await;
        report
    }

    /// Returns a list without the times that the store knows, and its ids.
    fn counted(&self, by: TopBy, name: Option<&str>, n: usize, policy: &Policy) -> (TopReport, Vec<ShortId>) {
        let millis = self.millis.load(Ordering::Relaxed);
        let generation = generation(millis);
        let wanted = name.map(|name| self.subjects.named(name));
        let counts: Vec<_> = self
            .each_worker()
            .flat_map(|worker| worker.of(by).counts(generation).collect::<Vec<_>>())
            .collect();
        let is_wanted = |subject| wanted.as_ref().is_none_or(|wanted| wanted.contains(&subject));
        let Merged { total, is_exact, top } = merge(&counts, is_wanted);
        let listed = top.iter().filter_map(|entry| self.entry(by, generation, entry, policy));
        let (top, ids) = listed.take(n).unzip();
        let window = millis.saturating_sub(oldest_shown(generation) * SECONDS * 1_000);
        let window = Duration::from_millis(window).as_secs_f64();
        (TopReport { by, window, total: Some(total), exact: Some(is_exact), top }, ids)
    }

    /// Returns one line of a list; `None` if the id lost its place since it was counted.
    fn entry(
        &self,
        by: TopBy,
        generation: u64,
        entry: &Entry,
        policy: &Policy,
    ) -> Option<(TopEntry, ShortId)> {
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
            numbers: numbers_of_id(policy, kind, &name, &id, self.settings.show_ids),
        };
        Some((shown, id))
    }

    /// Returns the last denials of all workers, newest first. `started_at` is the time when this started, in seconds
    /// since 1970, by the clock of now: that clock may have been set since.
    fn last_denials(&self, started_at: f64, policy: &Policy) -> Vec<LastDenial> {
        let mut last: Vec<_> = self.each_worker().flat_map(|worker| worker.last.to_vec()).collect();
        // A stable sort: those of one tick and one worker stay in their order, which is newest first.
        last.sort_by_key(|denial| std::cmp::Reverse(denial.at));
        last.truncate(LAST);
        last.iter().filter_map(|denial| self.last_denial(denial, started_at, policy)).collect()
    }

    fn last_denial(&self, denial: &Denial, started_at: f64, policy: &Policy) -> Option<LastDenial> {
        let (kind, name) = self.subjects.name(denial.subject)?;
        Some(LastDenial {
            at: started_at + Duration::from_millis(denial.at).as_secs_f64(),
            gate: denial.gate.to_owned(),
            limit: name.to_string(),
            kind,
            id: self.shown_id(denial.subject, &denial.id),
            cost: denial.cost,
            retry_after: denial.retry.filter(|retry| !retry.is_forever()).map(Nanos::as_secs_f64),
            numbers: numbers_of_id(policy, kind, &name, &denial.id, self.settings.show_ids),
        })
    }

    /// Returns the id of a bucket as the configuration says. It is not cut.
    pub(crate) fn show(&self, limit: &str, id: &[u8]) -> Option<String> {
        self.show_subject(self.subjects.number(kind_of_limit(limit), limit), id)
    }

    /// Returns an id of a limit, a rule or a domain as the configuration says. It is not cut: two ids with the same
    /// start would look alike.
    pub(crate) fn show_subject(&self, subject: Subject, id: &[u8]) -> Option<String> {
        match self.settings.show_ids {
            ShowIds::Plain => Some(EscapedId(id).to_string()),
            ShowIds::Hashed => Some(self.hashed_id(subject, id)),
            ShowIds::Off => None,
        }
    }

    /// Returns an id of a list, of which only the start is kept, as the configuration says.
    fn shown_id(&self, subject: Subject, id: &ShortId) -> Option<String> {
        match self.settings.show_ids {
            ShowIds::Plain => Some(id.to_string()),
            ShowIds::Hashed => Some(self.hashed_id(subject, id.bytes())),
            ShowIds::Off => None,
        }
    }

    fn hashed_id(&self, subject: Subject, id: &[u8]) -> String {
        let bits = self.shown_key.hash_one((subject, id)) >> (u64::BITS - 4 * HASH_DIGITS);
        format!("#{bits:0width$x}", width = HASH_DIGITS as usize)
    }

    fn each_worker(&self) -> impl Iterator<Item = MutexGuard<'_, WorkerWatch>> {
        (0..self.workers.len()).filter_map(|index| self.lock(index))
    }

    fn lock(&self, worker: usize) -> Option<MutexGuard<'_, WorkerWatch>> {
        // What is counted stays true if a task panicked while it counted.
        Some(self.workers.get(worker)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<'w> Recorder<'w> {
    /// Records a request that was denied.
    #[inline]
    pub(crate) fn denied(
        &mut self,
        gate: &'static str,
        subject: Subject,
        id: &'w [u8],
        cost: u64,
        retry: Option<Nanos>,
    ) {
        if !self.worker.last.is_full() {
            self.worker.last.push(self.millis, gate, subject, id, cost, retry);
        }
        if !self.worker.denied.sampler.skips(1) {
            self.count_denied(subject, id);
        }
    }

    /// Records the cost of a request that was allowed.
    #[inline]
    pub(crate) fn spent(&mut self, subject: Subject, id: &'w [u8], cost: u64) {
        if !self.worker.spent.sampler.skips(cost) {
            self.count_spent(subject, id, cost);
        }
    }

    // Not inlined, as the next one: otherwise the callers are too large to be inlined, and then a decision that is
    // skipped takes three times as long.
    #[inline(never)]
    fn count_denied(&mut self, subject: Subject, id: &'w [u8]) {
        let (hash, counts) = (self.watch.key.hash(subject, id), &mut self.worker.denied);
        counts.generations.prefetch(hash);
        self.denied.push(Added { hash, subject, id, amount: counts.sampler.amount(1) });
        if self.denied.is_full() {
            counts.add_all(self.generation, &mut self.denied);
        }
    }

    #[inline(never)]
    fn count_spent(&mut self, subject: Subject, id: &'w [u8], cost: u64) {
        let (hash, counts) = (self.watch.key.hash(subject, id), &mut self.worker.spent);
        counts.generations.prefetch(hash);
        self.spent.push(Added { hash, subject, id, amount: counts.sampler.amount(cost) });
        if self.spent.is_full() {
            counts.add_all(self.generation, &mut self.spent);
        }
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        let WorkerWatch { denied, spent, .. } = &mut *self.worker;
        denied.finish(self.generation, &mut self.denied);
        spent.finish(self.generation, &mut self.spent);
    }
}

const fn generation(millis: u64) -> u64 {
    millis / (SECONDS * 1_000)
}

/// Adds the seconds until a request of cost 1 would be allowed, read from the store now. All ids are asked for in one
/// call: one after another, a slow store would hold up the next snapshot.
async fn add_retry_after(engine: &Engine, entries: &mut [TopEntry], ids: &[ShortId]) {
    let policy = engine.policy();
    let charges: Vec<(usize, Charge<'_>)> = entries
        .iter()
        .zip(ids)
        .enumerate()
        .filter_map(|(place, (entry, id))| Some((place, charge_of_one(&policy, entry, id)?)))
        .collect();
    if charges.is_empty() {
        return;
    }
    let bills: Vec<_> = charges.iter().map(|(_, charge)| Bill::one(charge)).collect();
    let decisions = engine.check_bills(&bills).await;
    for ((place, _), decision) in charges.iter().zip(decisions) {
        let retry = if decision.allowed() { Nanos::ZERO } else { decision.retry_nanos };
        // What is decided without the store says nothing about the bucket.
        let is_known = !decision.degraded && !retry.is_forever();
        entries[*place].retry_after = is_known.then(|| retry.as_secs_f64());
    }
}

/// Returns a charge of cost 1 for an id; `None` if it has no bucket, or if the bucket cannot be found.
fn charge_of_one<'a>(policy: &'a Policy, entry: &TopEntry, id: &'a ShortId) -> Option<Charge<'a>> {
    let has_bucket = matches!(entry.kind, SubjectKind::Limit | SubjectKind::Descriptor);
    if id.is_cut() || !has_bucket {
        return None;
    }
    policy.charge(&entry.limit, id.bytes(), 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_denials_are_newest_first_also_within_a_tick() {
        let watch = Watch::new(WatchSettings::DEFAULT, 2);
        let deny = |worker, id: &str| {
            let mut recorder = watch.recorder(worker).unwrap();
            recorder.denied("http", watch.subjects.number(SubjectKind::Limit, "a"), id.as_bytes(), 1, None);
        };
        (0..LAST).for_each(|id| deny(0, &format!("first {id}")));
        watch.tick(watch.started + Duration::from_millis(100));
        deny(1, "x");
        deny(1, "y");
        deny(0, "z");
        let ids: Vec<_> = watch
            .last_denials(0.0, &Policy::default())
            .into_iter()
            .map(|denial| denial.id.unwrap())
            .collect();
        assert_eq!(ids[..5], ["z", "y", "x", "first 99", "first 98"]);
        assert_eq!(ids.len(), LAST);
        let at = |started_at| watch.last_denials(started_at, &Policy::default())[0].at;
        assert_eq!((at(1_000.0), at(4_600.0)), (1_000.1, 4_600.1), "the clock was set by an hour");
    }

    /// Lists keep the start of an id only. The audit log and spans have it as a whole.
    #[test]
    fn ids_with_the_same_start_are_told_apart() {
        let [one, other] = ["1", "2"].map(|end| "x".repeat(200) + end);
        for (show_ids, is_plain) in [(ShowIds::Plain, true), (ShowIds::Hashed, false)] {
            let watch = Watch::new(WatchSettings { is_on: true, show_ids }, 1);
            let shown = |id: &str| watch.show("a", id.as_bytes()).unwrap();
            assert_ne!(shown(&one), shown(&other));
            assert_eq!(shown(&one) == one, is_plain);
            // A short id is the same in all places.
            let subject = watch.subjects.number(SubjectKind::Limit, "a");
            watch.recorder(0).unwrap().denied("http", subject, b"alice", 1, None);
            assert_eq!(watch.last_denials(0.0, &Policy::default()).remove(0).id, Some(shown("alice")));
        }
    }

    #[test]
    fn ids_are_shown_without_ambiguity() {
        let shown = |show_ids, id: &[u8]| {
            let watch = Watch::new(WatchSettings { is_on: true, show_ids }, 1);
            let subject = watch.subjects.number(SubjectKind::Limit, "a");
            watch.recorder(0).unwrap().denied("http", subject, id, 1, None);
            watch.last_denials(0.0, &Policy::default()).remove(0).id
        };
        let plain = |id: &[u8]| shown(ShowIds::Plain, id).unwrap();
        assert_eq!(plain(b"a b"), "a b");
        assert_eq!((plain(b"\xff"), plain(b"\\xff")), ("\\xff".to_owned(), "\\\\xff".to_owned()));
        assert_eq!(plain(&[b'x'; 200]), format!("{}…", "x".repeat(96)));
        let hashed = shown(ShowIds::Hashed, b"a").unwrap();
        assert_eq!(hashed.len(), 13, "{hashed}");
        assert!(
            hashed.starts_with('#') && hashed[1..].bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{hashed}"
        );
        assert_eq!(shown(ShowIds::Off, b"a"), None);
    }
}

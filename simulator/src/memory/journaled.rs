//! One process whose memory is kept in a journal, on a disk that fails: it is stopped, killed, and loses its power.
//!
//! A copy of the oracle is kept for each round of the journal. After a crash, the process must be as one of these
//! copies is, and not as one from which a change is missing that is older than the journal may lose. The ledger goes on
//! with what that copy knows, so nobody gets more than what was lost, and under a strict limit nobody gets anything.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::mem;
use std::ops::Range;

use tollway::block_on;
use tollway::clock::Clock;
use tollway::core::{Bill, ChargeKind, Decision, Nanos, RuleRequest, Timestamp, Verb};
use tollway::engine::{Engine, SimulatedJournal, VerbAnswer};
use tollway::journal::{Faults, Machine, SimulatedDisk};
use tollway_testbed::Random;

use super::MemoryProcess;
use crate::history::{Entry, History};
use crate::oracle::{self, Ledger, Line, Model, RULE_PERIOD};
use crate::plant::Plant;
use crate::requests::{LIMITS, LimitName, MARKER, Numbers, RULE, id_bytes};
use crate::schedule::{START, Schedule};

const PLACE: &str = "journal";

/// The limits whose ids start empty after a crash.
const STRICT: &[LimitName] = &["closed", "local"];

/// The time of a round of the journal.
const ROUND: Nanos = Nanos::from_millis(40);
/// The time between two syncs.
const SYNC_EVERY: Nanos = Nanos::from_secs(1);
/// The longest time that a sync takes.
const SYNC_MAX: Nanos = Nanos::from_millis(300);
/// The age from which on a change may not be lost by a process that is killed, as `docs/journal.md` says.
const KILL_LOSES: Nanos = Nanos::from_millis(100);
/// The time whose decisions a power loss may take: that between two syncs, a round, and one sync.
const POWER_LOSES: Nanos = Nanos::from_millis(1_000 + 100 + 300);
/// The time after the disk works again in which everything must be kept again: an attempt a second, and a snapshot.
const RECOVERY: Nanos = Nanos::from_secs(3);
/// The time for which rounds go on while nothing changes: until everything is synced.
const ACTIVE: Nanos = Nanos::from_secs(4);
/// The longest time for which a disk fails.
const FAULT_MAX: u64 = 15_000_000_000;

/// An event that happens to the process with a journal.
#[derive(Debug)]
pub(crate) enum JournaledEvent {
    /// A client asks, or something ends the process.
    Step,
    /// The journal looks for changes.
    Round(u64),
    /// A sync ends.
    Synced(u64),
    /// A snapshot goes on.
    Snapshot(u64),
    /// The disk works again.
    Repaired,
    /// The process is started again.
    Start,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Stopped,
    Killed,
    PowerLost,
}

/// The oracle as it was at one time.
#[derive(Debug)]
struct Copy {
    /// The place of its numbers in the versions of the process.
    version: usize,
    model: Model,
    ledger: Ledger,
    /// The number that it has in the process, as an amount that is used.
    marker: u64,
    /// The time of the next change, or `None` if there was none.
    outdated: Option<Timestamp>,
}

/// The oracle of one copy, as a process has it that was started again.
#[derive(Debug)]
struct Candidate {
    /// The place of the copy.
    at: usize,
    model: Model,
    ledger: Ledger,
}

/// The oracle of a process whose buckets are of different copies, and its differences to all of them.
type Parts = (Model, Ledger, Vec<String>);

/// A process that has its buckets in memory, and a journal.
#[derive(Debug)]
pub(crate) struct JournaledProcess {
    process: MemoryProcess,
    /// The journal, while the process runs.
    journal: Option<SimulatedJournal>,
    disk: SimulatedDisk,
    /// The number of starts, so that events of a process that has ended do nothing.
    run: u64,
    machine: Machine,
    machine_started: Timestamp,
    /// The wall clock minus the time of the world, and the same for the clock of the process.
    wall_ahead: Nanos,
    clock_ahead: i128,
    copies: VecDeque<Copy>,
    /// All numbers that the limits had, each with the time of the process from which on they did.
    versions: Vec<(Timestamp, Numbers)>,
    /// The number of the last copy.
    marker: u64,
    /// The time of the first change since the last copy.
    changed: Option<Timestamp>,
    active_until: Timestamp,
    round_planned: bool,
    is_broken: bool,
    /// The times up to which a kill and a power loss may not take anything, although the disk has failed since.
    frozen: Option<(Timestamp, Timestamp)>,
    /// The time since when everything is kept again, after such a failure.
    healthy_since: Option<Timestamp>,
    /// The time up to which a power loss may not take anything after a kill, until there is a snapshot.
    killed: Option<Timestamp>,
    /// The time of the last orderly end: nothing from before it may be lost.
    closed: Timestamp,
    /// The time by which a repaired disk must be used again.
    must_recover: Option<Timestamp>,
    ending: Ending,
    /// The time up to which nothing may be lost by the end of the last process.
    kept: Timestamp,
    /// The time of the process from which on it is known again what the rule counts.
    rules_from: Timestamp,
}

impl JournaledProcess {
    /// Starts a process on an empty disk.
    pub(crate) fn start(
        random: &mut Random,
        schedule: &mut Schedule<impl From<JournaledEvent>>,
        plant: Option<Plant>,
    ) -> Self {
        let mut process = MemoryProcess::start(random, plant);
        (process.is_crowded, process.ids, process.max_buckets) = (false, 12, 10_000);
        process.place = PLACE;
        process.numbers = process.numbers.with_strict(STRICT).with_marker();
        let machine = Machine { boot_id: [1; 16], boot: 0 };
        schedule.after(Nanos::ZERO, JournaledEvent::Start.into());
        let disk = SimulatedDisk::default();
        disk.set_faults(Faults { lies: plant == Some(Plant::SkipsSyncs), ..Faults::default() });
        Self {
            process,
            journal: None,
            disk,
            run: 0,
            machine,
            machine_started: START,
            wall_ahead: Nanos::ZERO,
            clock_ahead: 0,
            copies: VecDeque::new(),
            versions: Vec::new(),
            marker: 0,
            changed: None,
            active_until: START,
            round_planned: false,
            is_broken: false,
            frozen: None,
            healthy_since: None,
            killed: None,
            closed: Timestamp::EPOCH,
            must_recover: None,
            // The first start of all is one after which everything may be missing.
            ending: Ending::PowerLost,
            kept: Timestamp::EPOCH,
            rules_from: Timestamp::EPOCH,
        }
    }

    /// Handles an event.
    pub(crate) fn on_event(
        &mut self,
        event: JournaledEvent,
        random: &mut Random,
        schedule: &mut Schedule<impl From<JournaledEvent>>,
        history: &mut History,
    ) {
        let now = schedule.now();
        self.process.clock.set(self.clock_at(now));
        let boot = now.since(self.machine_started).get();
        match event {
            JournaledEvent::Step => {
                self.step(random, schedule, history);
                schedule.after(pause(random), JournaledEvent::Step.into());
            }
            JournaledEvent::Round(run) if run == self.run => self.round(boot, random, schedule, history),
            JournaledEvent::Synced(run) if run == self.run => {
                if let Some(journal) = &mut self.journal {
                    journal.end_sync(boot);
                }
            }
            JournaledEvent::Snapshot(run) if run == self.run => {
                self.step_snapshot(boot, random, schedule, history);
            }
            JournaledEvent::Repaired => self.repair(schedule),
            JournaledEvent::Start => {
                self.start_process(random, now, history);
                self.plan_round(schedule);
                if self.run == 1 {
                    schedule.after(pause(random), JournaledEvent::Step.into());
                }
            }
            _ => {}
        }
        self.watch(now, history);
    }

    fn step(
        &mut self,
        random: &mut Random,
        schedule: &mut Schedule<impl From<JournaledEvent>>,
        history: &mut History,
    ) {
        let now = schedule.now();
        if self.journal.is_none() {
            return;
        }
        match random.below(200) {
            0 | 1 => self.end(Ending::Stopped, random, schedule, history),
            2 | 3 => self.end(Ending::Killed, random, schedule, history),
            4 | 5 => self.end(Ending::PowerLost, random, schedule, history),
            6 if !self.is_broken => self.break_disk(random, schedule, history),
            7..=10 => self.reload(now, random, history),
            11 | 12 => {
                let _ = self.process.engine.sweep(1_000);
            }
            _ => self.request(now, random, history),
        }
        self.plan_round(schedule);
    }

    /// Lets rounds go on, if they do not.
    fn plan_round(&mut self, schedule: &mut Schedule<impl From<JournaledEvent>>) {
        self.active_until = schedule.now() + ACTIVE;
        if self.journal.is_some() && !mem::replace(&mut self.round_planned, true) {
            schedule.after(ROUND, JournaledEvent::Round(self.run).into());
        }
    }

    fn round(
        &mut self,
        boot: u64,
        random: &mut Random,
        schedule: &mut Schedule<impl From<JournaledEvent>>,
        history: &mut History,
    ) {
        self.copy();
        let Some(journal) = &mut self.journal else { return };
        if self.process.plant == Some(Plant::LosesRounds) && random.one_in(20) {
            journal.lose_round();
        }
        let (sync, snapshot) = journal.round(boot);
        if sync {
            let takes = Nanos::new(random.magnitude(SYNC_MAX.get()));
            schedule.after(takes, JournaledEvent::Synced(self.run).into());
        }
        if snapshot {
            history.count("snapshots of the journal");
            schedule.after(snapshot_pause(random), JournaledEvent::Snapshot(self.run).into());
        }
        let is_failing = journal.stats().failing_since.is_some() || self.is_broken;
        if is_failing || self.active_until > schedule.now() {
            schedule.after(ROUND, JournaledEvent::Round(self.run).into());
        } else {
            self.round_planned = false;
        }
        self.forget_copies(schedule.now());
    }

    /// Lets a snapshot go on. Limits are changed meanwhile, and the power is lost when it is complete, more often than
    /// at other times: what is in it and what is in the log beside it are of different moments.
    fn step_snapshot(
        &mut self,
        boot: u64,
        random: &mut Random,
        schedule: &mut Schedule<impl From<JournaledEvent>>,
        history: &mut History,
    ) {
        if random.one_in(4) {
            self.reload(schedule.now(), random, history);
            self.request(schedule.now(), random, history);
            self.plan_round(schedule);
        }
        self.copy();
        let Some(journal) = &mut self.journal else { return };
        if journal.step_snapshot(boot) {
            schedule.after(snapshot_pause(random), JournaledEvent::Snapshot(self.run).into());
        } else if random.one_in(8) {
            self.end(Ending::PowerLost, random, schedule, history);
        }
    }

    fn reload(&mut self, now: Timestamp, random: &mut Random, history: &mut History) {
        self.changed.get_or_insert(now);
        self.process.reload(random, history);
        self.note_numbers();
    }

    fn request(&mut self, now: Timestamp, random: &mut Random, history: &mut History) {
        self.changed.get_or_insert(now);
        self.process.has_rules = self.process.clock.now() >= self.rules_from;
        self.process.request(random, history);
    }

    /// Notes that the limits may have other numbers from now on.
    fn note_numbers(&mut self) {
        let numbers = &self.process.numbers;
        if self.versions.last().is_none_or(|(_, last)| last != numbers) {
            self.versions.push((self.process.clock.now(), numbers.clone()));
        }
    }

    /// Keeps a copy of the oracle, if something has changed since the last one.
    fn copy(&mut self) {
        let Some(changed) = self.changed.take() else { return };
        if let Some(last) = self.copies.back_mut() {
            last.outdated = Some(changed);
        }
        let (model, ledger) = (self.process.model.clone(), self.process.ledger.clone());
        let version = self.versions.len() - 1;
        if self.run > 1 || !self.copies.is_empty() {
            self.marker += 1;
        }
        let policy = self.process.engine.policy();
        let charge = policy.charge(MARKER, b"m", 1.min(self.marker)).expect("a valid charge");
        let _ = block_on(self.process.engine.settle(&[Bill::one(&charge)]));
        self.copies.push_back(Copy { version, model, ledger, marker: self.marker, outdated: None });
    }

    /// Forgets copies that no crash may go back to.
    fn forget_copies(&mut self, now: Timestamp) {
        let kept = self.kept_until(Ending::PowerLost, now).min(self.kept_until(Ending::Killed, now));
        self.copies.retain(|copy| copy.outdated.is_none_or(|outdated| outdated > kept));
    }

    /// Returns the time up to which nothing may be lost.
    fn kept_until(&self, ending: Ending, now: Timestamp) -> Timestamp {
        let back = |by: Nanos| Timestamp::from_nanos(now.as_nanos().saturating_sub(by.get()));
        let kept = match (ending, self.frozen) {
            (Ending::Stopped, _) => now,
            (Ending::Killed, Some((kill, _))) if self.healthy_since.is_none() => {
                // The journal says up to when everything is kept, also while the disk fails.
                let said = self.journal.as_ref().map_or(0, |journal| {
                    i128::from(journal.stats().kept_until.as_nanos()) - self.clock_ahead
                });
                kill.max(Timestamp::from_nanos(u64::try_from(said).unwrap_or(0)))
            }
            (Ending::Killed, _) => back(KILL_LOSES),
            (Ending::PowerLost, _) if self.killed.is_some() => self.killed.unwrap_or_default(),
            (Ending::PowerLost, Some((_, power))) => power,
            (Ending::PowerLost, None) => back(POWER_LOSES),
        };
        kept.max(self.closed)
    }

    fn break_disk(
        &mut self,
        random: &mut Random,
        schedule: &mut Schedule<impl From<JournaledEvent>>,
        history: &mut History,
    ) {
        let usual = Faults { lies: self.process.plant == Some(Plant::SkipsSyncs), ..Faults::default() };
        let (what, faults) = match random.below(3) {
            0 => {
                let room = usize::try_from(random.magnitude(5_000)).expect("a small number");
                ("disk full", Faults { room: Some(room), ..usual })
            }
            1 => ("disk fails", Faults { writes: Some(ErrorKind::Other), ..usual }),
            _ => ("disk fails to sync", Faults { syncs: Some(ErrorKind::Other), ..usual }),
        };
        let now = schedule.now();
        self.freeze(now);
        self.disk.set_faults(faults);
        (self.is_broken, self.must_recover) = (true, None);
        let takes = Nanos::new(random.magnitude(FAULT_MAX));
        schedule.after(takes, JournaledEvent::Repaired.into());
        history.record(Entry { place: PLACE, what, numbers: [takes.get(), 0, 0, 0], ..Entry::default() });
    }

    /// From now on nothing more is surely kept.
    fn freeze(&mut self, now: Timestamp) {
        self.frozen = Some((self.kept_until(Ending::Killed, now), self.kept_until(Ending::PowerLost, now)));
        self.healthy_since = None;
    }

    fn repair(&mut self, schedule: &mut Schedule<impl From<JournaledEvent>>) {
        let lies = self.process.plant == Some(Plant::SkipsSyncs);
        self.disk.set_faults(Faults { lies, ..Faults::default() });
        self.is_broken = false;
        if self.journal.is_some() {
            self.must_recover = Some(schedule.now() + RECOVERY);
            self.plan_round(schedule);
        }
    }

    /// Checks that a disk which works again is used again.
    fn watch(&mut self, now: Timestamp, history: &mut History) {
        let Some(journal) = self.journal.as_ref().filter(|_| !self.is_broken) else { return };
        // Nearly always nothing is awaited, and to read the figures of a journal takes long.
        if self.frozen.is_none() && self.killed.is_none() && self.must_recover.is_none() {
            return;
        }
        let stats = journal.stats();
        if stats.failing_since.is_some() {
            self.healthy_since = None;
            if self.must_recover.is_some_and(|until| until < now) {
                history.violated(format!("the disk works again, and the journal does not: {stats:?}"));
            }
            return;
        }
        self.must_recover = None;
        if stats.snapshots > 0
            && let Some(power) = self.killed
        {
            self.frozen = Some((self.kept_until(Ending::Killed, now), power));
            (self.killed, self.healthy_since) = (None, Some(now));
        }
        // The next sync has the rest.
        if self.frozen.is_some() && now >= *self.healthy_since.get_or_insert(now) + POWER_LOSES {
            (self.frozen, self.healthy_since) = (None, None);
        }
    }

    /// Ends the process, and plans its next start.
    fn end(
        &mut self,
        mut ending: Ending,
        random: &mut Random,
        schedule: &mut Schedule<impl From<JournaledEvent>>,
        history: &mut History,
    ) {
        let now = schedule.now();
        let mut kept = self.kept_until(ending, now);
        let what = match ending {
            Ending::Stopped => "stop",
            Ending::Killed => "kill",
            Ending::PowerLost => "power loss",
        };
        history.record(Entry { place: PLACE, what, ..Entry::default() });
        let journal = self.journal.take().expect("the process runs");
        if ending == Ending::Stopped {
            let is_failing = self.is_broken || journal.stats().failing_since.is_some();
            let killed_kept = self.kept_until(Ending::Killed, now);
            self.copy();
            match journal.close(now.since(self.machine_started).get()) {
                Ok(()) => {
                    // What changes at this very moment does so after the next start.
                    self.closed = Timestamp::from_nanos(now.as_nanos() - 1);
                    (self.frozen, self.healthy_since, self.killed) = (None, None, None);
                    // A disk that will be full is not full yet: what the next process decides may find no room.
                    if self.is_broken {
                        self.freeze(now);
                    }
                }
                Err(error) if !is_failing => {
                    history.violated(format!("the journal cannot be closed: {error}"));
                }
                // What was lost is said, and the next start counts as one after a crash.
                Err(_) => {
                    ending = Ending::Killed;
                    self.freeze(now);
                    kept = killed_kept;
                }
            }
        }
        if ending == Ending::Killed {
            self.killed = Some(self.kept_until(Ending::PowerLost, now));
        }
        (self.ending, self.kept) = (ending, kept);
        let loses_power = ending == Ending::PowerLost || (ending == Ending::Stopped && random.one_in(2));
        if loses_power {
            self.lose_power(random, now);
        }
        if ending != Ending::Stopped && self.process.plant == Some(Plant::DropsLastBlock) {
            self.disk.drop_last_block();
        }
        self.run += 1;
        let long = random.magnitude(100_000_000_000);
        let pause = random.pick(&[0, 10_000_000, long]);
        schedule.after(Nanos::new(pause), JournaledEvent::Start.into());
    }

    fn lose_power(&mut self, random: &mut Random, now: Timestamp) {
        // Nothing of what was not synced, all of it, or a part.
        let disk = self.disk.after_power_loss(|unsynced| {
            let most = u64::try_from(unsynced).expect("a small number");
            let part = random.between(0, most);
            let kept = random.pick(&[0, most, part]);
            usize::try_from(kept).expect("a small number")
        });
        self.disk = disk;
        // What is there now is on the disk.
        (self.is_broken, self.frozen, self.healthy_since, self.killed) = (false, None, None, None);
        let lies = self.process.plant == Some(Plant::SkipsSyncs);
        self.disk.set_faults(Faults { lies, ..Faults::default() });
        self.machine.boot_id[0] = self.machine.boot_id[0].wrapping_add(1).max(1);
        self.machine_started = now;
        self.wall_ahead = self.wall_ahead + Nanos::from_secs(random.pick(&[0, 0, 0, 5, 3_600]));
    }

    /// Starts the process: it must be as one of the copies is.
    fn start_process(&mut self, random: &mut Random, now: Timestamp, history: &mut History) {
        self.run += 1;
        let except = if random.one_in(2) { &LIMITS[..] } else { STRICT };
        let numbers = self.process.numbers.changed(random, except);
        let plain: &'static [LimitName] =
            if self.process.plant == Some(Plant::ForgetsStrict) { &[] } else { STRICT };
        let clock = Clock::simulated(now + self.wall_ahead);
        let before = self.clock_at(now);
        self.machine.boot = now.since(self.machine_started).get();
        let started = Engine::with_simulated_journal(
            numbers.clone().with_strict(plain).policy(),
            self.process.max_buckets,
            self.process.hash_key,
            &self.disk,
            SYNC_EVERY,
            clock.clone(),
            self.machine,
        );
        let (engine, journal) = match started {
            Ok(started) => started,
            Err(error) => return history.violated(format!("the journal cannot be read: {error}")),
        };
        (self.process.engine, self.process.clock, self.journal) = (engine, clock, Some(journal));
        let began = self.process.clock.now();
        self.clock_ahead = i128::from(began.as_nanos()) - i128::from(now.as_nanos());
        let is_first = self.copies.is_empty();
        if !is_first && self.ending != Ending::PowerLost && self.machine_started < now && began < before {
            history.violated(format!("time ran back from {before} to {began}"));
        }
        if is_first {
            self.process.numbers = numbers.clone();
            self.note_numbers();
            self.changed = Some(now);
            self.copy();
        }
        if self.ending != Ending::Stopped {
            self.process.strict = Some((STRICT, began));
        }
        self.find_copy(&numbers, began, now, history);
        self.process.numbers = numbers;
        self.note_numbers();
        self.changed = Some(now);
        self.copy();
        self.round_planned = false;
        history.record(Entry { place: PLACE, what: "start", ..Entry::default() });
    }

    /// Returns the number of the last copy that the process knows.
    fn marker_found(&self) -> u64 {
        let policy = self.process.engine.policy();
        let charge = policy.charge(MARKER, b"m", 0).expect("a valid charge");
        let found = block_on(self.process.engine.check_bills(&[Bill::one(&charge)]));
        (u64::MAX >> 1) - found[0].remaining
    }

    /// Returns the oracles of these copies, the newest first, as a process has them that starts with these numbers and
    /// knows the numbers up to this version from the process before.
    ///
    /// It may know newer ones than the copy has: they are written before the buckets that are written under them. It
    /// never knows older ones, which would not find a bucket that was moved.
    fn candidates(
        &self,
        copies: Range<usize>,
        version: usize,
        began: Timestamp,
        numbers: &Numbers,
    ) -> Vec<Candidate> {
        let known = copies.rev().filter(|at| self.copies[*at].version <= version);
        known.map(|at| self.started_from(at, version, began, numbers)).collect()
    }

    fn started_from(&self, at: usize, version: usize, began: Timestamp, numbers: &Numbers) -> Candidate {
        let copy = &self.copies[at];
        let (mut model, mut ledger) = (copy.model.clone(), copy.ledger.clone());
        let now = [(began, numbers.clone())];
        let versions = self.versions[copy.version..=version].iter().chain(&now);
        for ((_, old), (since, new)) in versions.clone().zip(versions.skip(1)) {
            for limit in LIMITS.into_iter().filter(|limit| old.of(limit) != new.of(limit)) {
                model.change(limit, old.of(limit), new.of(limit), *since);
                ledger.change(limit, new.of(limit), *since);
            }
        }
        if self.ending != Ending::Stopped {
            for limit in STRICT {
                (0..self.process.ids).for_each(|id| model.empty(&line(limit, id, 0, numbers), began));
            }
        }
        // A crash gives nothing under a strict limit, whatever was lost.
        for limit in STRICT {
            (0..self.process.ids).for_each(|id| ledger.adopt(&self.process.ledger, (limit, id)));
        }
        Candidate { at, model, ledger }
    }

    /// Finds the copy that the process is like, and goes on with it.
    fn find_copy(&mut self, numbers: &Numbers, began: Timestamp, now: Timestamp, history: &mut History) {
        let answers = self.answers(numbers);
        let copies = self.copies_allowed();
        let marker = self.marker_found();
        let place = copies.clone().rev().find(|at| self.copies[*at].marker == marker);
        if place.is_none() {
            let [oldest, newest] = [copies.start, copies.end - 1].map(|at| self.copies[at].marker);
            let ending = self.ending;
            history.violated(format!("after {ending:?}, copy {marker} is found, not {oldest} to {newest}"));
        }
        self.marker = marker;
        let version = self.copies[place.unwrap_or(copies.end - 1)].version;
        let newest = self.copies[copies.end - 1].version;
        let candidates = self.candidates(copies.clone(), version, began, numbers);
        let is_whole = |candidate: &&Candidate| {
            Some(candidate.at) == place && answers.iter().all(|answer| answer.is_of(&candidate.model, began))
        };
        let begin_anew: Vec<Line> = if let Some(whole) = candidates.iter().find(is_whole) {
            history.count(if whole.at + 1 == copies.end {
                "found as it was"
            } else {
                "found as it was before"
            });
            // A snapshot may also have newer numbers than the copy, and buckets that were written under them.
            let newer = (version + 1..=newest)
                .flat_map(|version| self.candidates(copies.clone(), version, began, numbers));
            let newer: Vec<_> = newer.collect();
            let others: Vec<_> = candidates.iter().chain(&newer).collect();
            (self.process.model, self.process.ledger) = (whole.model.clone(), whole.ledger.clone());
            self.copies.truncate(whole.at + 1);
            self.versions.truncate(version + 1);
            self.not_known(whole, &others, &answers, began)
        } else {
            history.count("found in parts");
            let mut found = (version..=newest).map(|version| {
                let candidates = self.candidates(copies.clone(), version, began, numbers);
                (version, self.find_each(&candidates, place, &answers, began))
            });
            let first = found.next().expect("a version");
            let is_like = |(_, (_, _, differences)): &(usize, Parts)| differences.is_empty();
            let (version, (model, ledger, differences)) =
                if is_like(&first) { first } else { found.find(is_like).unwrap_or(first) };
            differences.into_iter().for_each(|what| history.violated(what));
            (self.process.model, self.process.ledger) = (model, ledger);
            self.copies.retain(|copy| copy.version <= version);
            self.versions.truncate(version + 1);
            self.rules_from = began + RULE_PERIOD;
            // Under which numbers each bucket was written is not known: all begin anew.
            lines_of(&answers).collect()
        };
        let policy = self.process.engine.policy();
        begin_anew.iter().for_each(|line| self.process.reset(line, &policy, history));
        // The questions have moved every bucket to the numbers that its limit has now.
        for line in lines_of(&answers) {
            let _ = self.process.model.check(&[line], None, began);
            self.process.ledger.touch((line.limit, line.id), &line.algorithm, began);
        }
        // A process that is killed before its first round finds the same again, also if it was in parts.
        self.copies.range_mut(place.unwrap_or_default()..).for_each(|copy| copy.outdated = Some(now));
    }

    /// Returns the copies that a process may be like: the older ones are for a power loss that may follow.
    fn copies_allowed(&self) -> Range<usize> {
        let last = self.copies.len() - 1;
        let is_allowed = |copy: &Copy| copy.outdated.is_none_or(|outdated| outdated > self.kept);
        let first = match self.ending {
            Ending::Stopped => last,
            _ => self.copies.iter().position(is_allowed).unwrap_or(last),
        };
        first..last + 1
    }

    /// Returns the buckets of which it is not known what they are, because that of another copy gives the same answers.
    /// If there are gaps in the log, or a snapshot is newer than what is left of it, any of them may be there.
    fn not_known(
        &mut self,
        found: &Candidate,
        candidates: &[&Candidate],
        answers: &[Answer],
        began: Timestamp,
    ) -> Vec<Line> {
        if candidates.iter().any(|other| !other.model.has_logs_of(&found.model, began)) {
            self.rules_from = began + RULE_PERIOD;
        }
        let is_other = |line: &Line, other: &Candidate| {
            let mut of_bucket = answers.iter().filter(|answer| answer.is_about(line.limit, line.id));
            !other.model.has_bucket_of(&found.model, line.limit, line.id)
                && of_bucket.all(|answer| answer.is_of(&other.model, began))
        };
        lines_of(answers).filter(|line| candidates.iter().any(|other| is_other(line, other))).collect()
    }

    /// Finds a copy for each bucket: a snapshot may be newer than what is left of the log beside it. Returns what is
    /// found, and the buckets that are in no copy.
    fn find_each(
        &self,
        candidates: &[Candidate],
        place: Option<usize>,
        answers: &[Answer],
        began: Timestamp,
    ) -> Parts {
        let start = candidates.iter().find(|candidate| Some(candidate.at) == place).unwrap_or(&candidates[0]);
        let (mut model, mut ledger, mut differences) =
            (start.model.clone(), start.ledger.clone(), Vec::new());
        for id in 0..self.process.ids {
            for limit in LIMITS {
                let of_bucket = || answers.iter().filter(|answer| answer.is_about(limit, id));
                let is_like =
                    |candidate: &&Candidate| of_bucket().all(|answer| answer.is_of(&candidate.model, began));
                if let Some(found) = candidates.iter().find(is_like) {
                    model.adopt(&found.model, limit, id);
                    ledger.adopt(&found.ledger, (limit, id));
                } else {
                    let (found, copies): (Vec<_>, _) = (of_bucket().collect(), candidates.len());
                    differences.push(format!(
                        "after {:?}, {limit}:{id} is as it was in none of {copies} copies: {found:?}",
                        self.ending
                    ));
                }
            }
        }
        let of_rules = || answers.iter().filter(|answer| answer.line.is_none());
        let is_like = |candidate: &&Candidate| of_rules().all(|answer| answer.is_of(&candidate.model, began));
        match candidates.iter().find(is_like) {
            Some(found) => {
                (0..3).map(Some).chain([None]).for_each(|user| model.adopt_log(&found.model, user));
            }
            None => {
                differences
                    .push(format!("after {:?}, the logs of a rule are as they never were", self.ending));
            }
        }
        (model, ledger, differences)
    }

    /// Asks the process about everything.
    fn answers(&self, numbers: &Numbers) -> Vec<Answer> {
        let (engine, mut answers) = (&self.process.engine, Vec::new());
        let policy = engine.policy();
        for id in 0..self.process.ids {
            for limit in LIMITS {
                let bytes = id_bytes(id);
                let costs = 0..=numbers.of(limit).cost_max().min(20);
                let charge = |cost| policy.charge(limit, &bytes, cost).expect("a valid charge");
                let charges: Vec<_> = costs.clone().map(charge).collect();
                let bills: Vec<_> = charges.iter().map(Bill::one).collect();
                let found = block_on(engine.check_bills(&bills));
                let lines = costs.map(|cost| Some(line(limit, id, cost, numbers)));
                answers.extend(lines.zip(found).map(|(line, found)| Answer { line, user: None, found }));
            }
        }
        for user in 0..3 {
            let bytes = id_bytes(user);
            let rules = [RuleRequest::new(RULE).with_selector("user", &bytes)];
            let found =
                block_on(engine.perform(&policy, Verb::Check, &[], &rules)).expect("a rule of the policy");
            let VerbAnswer::Decision(_, found) = found else { continue };
            answers.push(Answer { line: None, user: Some(user), found });
        }
        answers
    }

    /// Returns the time of the process's clock.
    fn clock_at(&self, now: Timestamp) -> Timestamp {
        let at = i128::from(now.as_nanos()) + self.clock_ahead;
        Timestamp::from_nanos(u64::try_from(at).expect("a time after 1970"))
    }
}

/// Holds the answer of a process about one bucket, or about the rule of one user.
#[derive(Clone, Debug)]
struct Answer {
    line: Option<Line>,
    user: Option<u64>,
    found: Decision,
}

impl Answer {
    fn is_about(&self, limit: LimitName, id: u64) -> bool {
        self.line.as_ref().is_some_and(|line| (line.limit, line.id) == (limit, id))
    }

    fn is_of(&self, model: &Model, now: Timestamp) -> bool {
        match &self.line {
            Some(line) => oracle::same(&model.peek(line, now), &self.found, &[*line], None),
            None => model.peek_rule(self.user, now) == self.found,
        }
    }
}

/// Returns a line for each bucket that was asked about, which costs nothing.
fn lines_of(answers: &[Answer]) -> impl Iterator<Item = Line> {
    answers.iter().filter_map(|answer| answer.line).filter(|line| line.cost == 0)
}

fn line(limit: LimitName, id: u64, cost: u64, numbers: &Numbers) -> Line {
    Line { limit, id, algorithm: *numbers.of(limit), cost, kind: ChargeKind::Spend }
}

/// Returns the time until the next step: mostly a moment, sometimes minutes.
fn pause(random: &mut Random) -> Nanos {
    match random.below(16) {
        0..=9 => Nanos::new(random.magnitude(200_000_000)),
        10..=14 => Nanos::new(random.below(4_000_000_000)),
        _ => Nanos::new(random.below(300_000_000_000)),
    }
}

/// Returns the time until the next step of a snapshot, which waits for a sync that is under way.
fn snapshot_pause(random: &mut Random) -> Nanos {
    Nanos::from_millis(1) + Nanos::new(random.magnitude(SYNC_MAX.get()))
}

//! A master and three gatekeepers: they decide by themselves, and tell each other over a network that may fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollway::block_on;
use tollway::clock::Clock;
use tollway::core::{Domain, DomainRule, Logic, Nanos, Policy, Timestamp};
use tollway::engine::Engine;
use tollway::reports::Report;
use tollway::store::memory::Memory;
use tollway_client::gatekeeper::{AdmissionDecision, Gatekeeper, SimulatedLink, SimulatedTime, Wait};
use tollway_testbed::Random;
use tollway_wire::smockron::{AccountingMessage, AccountingStatus, ControlMessage};
use tollway_wire::zmtp;

use crate::history::{Entry, History};
use crate::plant::Plant;
use crate::requests::{Id, id_bytes};
use crate::schedule::{START, Schedule};

const PLACE: &str = "fleet";

/// The number of gatekeepers.
const GATEKEEPERS: usize = 3;

/// The identifier that never asks faster than the rate, and is never delayed.
const CALM: Id = 0;

/// The requests that may pass beyond `burst + rate * d`: some that passed before the first delay arrived, and some that
/// used the same slot at several gatekeepers, which later ones pay for.
const SLACK: i128 = 4 * GATEKEEPERS as i128;

/// The longest wait of a request, which is the default of gatekeepers.
const MAX_DELAY: Nanos = Nanos::from_secs(5);

/// The time after a failure until the limits must hold again: waits that began before it are over, and so is a burst.
const RECOVERY: Nanos = Nanos::from_secs(15);

/// An event that happens among the master and the gatekeepers.
#[derive(Debug)]
pub(crate) enum FleetEvent {
    /// A client asks a gatekeeper, or something fails.
    Step,
    /// Reports reach the master.
    Reported(Vec<u8>),
    /// Delays reach a gatekeeper.
    Published(usize, Vec<u8>),
    /// A waiting request asks again.
    Check(u64),
    /// A gatekeeper has its connections back.
    Reconnected(usize),
}

/// A master that has gatekeepers, and their clients.
pub(crate) struct Fleet {
    engine: Engine,
    clock: Clock,
    interval: Nanos,
    burst: i128,
    gatekeepers: Vec<(Gatekeeper, SimulatedLink)>,
    connected: [bool; GATEKEEPERS],
    time: Arc<SimulatedTime>,
    waits: BTreeMap<u64, (Wait, Id, Timestamp, usize)>,
    next_wait: u64,
    /// The delays that the master has published, for gatekeepers that reconnect.
    published: BTreeMap<Vec<u8>, u64>,
    /// The requests that have passed of each identifier and have not leaked yet, in nanoseconds of the rate, and when.
    passed: BTreeMap<Id, (i128, Timestamp)>,
    disturbed_until: Timestamp,
    calm_again: Timestamp,
    busy: (Id, u64),
    plant: Option<Plant>,
}

impl Fleet {
    pub(crate) fn start(
        random: &mut Random,
        schedule: &mut Schedule<impl From<FleetEvent>>,
        plant: Option<Plant>,
    ) -> Self {
        let (per_second, burst) = (random.pick(&[1, 2, 4]), random.pick(&[2, 5, 10]));
        let logic = random.pick(&[Logic::Window, Logic::Gcra]);
        let rate = format!("{per_second}/s").parse().expect("a rate");
        let rule = DomainRule::new(rate, burst.to_string().parse().expect("a burst")).expect("a rule");
        let domain = Domain::new("web", vec![rule], logic).expect("a domain");
        let policy = Policy::default().with_domains(vec![domain]).expect("one domain");
        let (clock, time) = (Clock::simulated(START), Arc::new(SimulatedTime::default()));
        time.set(START, START);
        let gatekeepers: Vec<_> = (0..GATEKEEPERS).map(|_| Gatekeeper::simulated("web", &time)).collect();
        gatekeepers.iter().for_each(|(_, link)| link.connect());
        schedule.after(Nanos::ZERO, FleetEvent::Step.into());
        Self {
            engine: Engine::with(policy, Memory::with_known_hashes(1_000, [1, 2]), clock.clone()),
            clock,
            interval: Nanos::new(1_000_000_000 / per_second),
            burst: i128::from(burst),
            gatekeepers,
            connected: [true; GATEKEEPERS],
            time,
            waits: BTreeMap::new(),
            next_wait: 0,
            published: BTreeMap::new(),
            passed: BTreeMap::new(),
            disturbed_until: START,
            calm_again: START,
            busy: (1, 0),
            plant,
        }
    }

    /// Handles an event.
    pub(crate) fn on_event(
        &mut self,
        event: FleetEvent,
        random: &mut Random,
        schedule: &mut Schedule<impl From<FleetEvent>>,
        history: &mut History,
    ) {
        self.clock.set(schedule.now());
        self.time.set(schedule.now(), schedule.now());
        match event {
            FleetEvent::Step => self.step(random, schedule, history),
            FleetEvent::Reported(bytes) => self.reported(&bytes, random, schedule),
            FleetEvent::Published(gatekeeper, bytes) => {
                if self.connected[gatekeeper] {
                    self.gatekeepers[gatekeeper].1.receive(&bytes);
                }
            }
            FleetEvent::Check(number) => {
                if let Some((wait, id, arrived, gatekeeper)) = self.waits.remove(&number) {
                    self.decided(wait.check(), id, arrived, gatekeeper, schedule, history);
                }
            }
            FleetEvent::Reconnected(gatekeeper) => {
                self.connected[gatekeeper] = true;
                self.gatekeepers[gatekeeper].1.connect();
                let bytes = self.encoded(self.published.iter());
                schedule.after(delay(random), FleetEvent::Published(gatekeeper, bytes).into());
            }
        }
        self.send_reports(random, schedule);
    }

    /// Returns the time until the next step: a busy client asks quickly, and then nobody does for a while.
    pub(crate) fn pause(&mut self, random: &mut Random) -> Nanos {
        if self.busy.1 == 0 {
            self.busy = (random.between(1, 3), random.between(1, 60));
            return Nanos::new(random.below(3_000_000_000_000));
        }
        self.busy.1 -= 1;
        Nanos::from_millis(random.between(20, 400))
    }

    fn step(
        &mut self,
        random: &mut Random,
        schedule: &mut Schedule<impl From<FleetEvent>>,
        history: &mut History,
    ) {
        if random.one_in(300) {
            self.disconnect(random, schedule, history);
        }
        let gatekeeper = usize::try_from(random.below(GATEKEEPERS as u64)).expect("an index");
        self.gatekeepers[gatekeeper].1.sweep();
        let now = schedule.now();
        let mut id = self.busy.0;
        if now >= self.calm_again && random.one_in(4) {
            // A whole burst later, so that no rounding matters.
            self.calm_again = now + self.interval + Nanos::from_millis(50);
            id = CALM;
        }
        let decision = self.gatekeepers[gatekeeper].0.decide(id_bytes(id), b"");
        self.decided(decision, id, now, gatekeeper, schedule, history);
    }

    /// Cuts one gatekeeper off, or all: what is on its way is lost.
    fn disconnect(
        &mut self,
        random: &mut Random,
        schedule: &mut Schedule<impl From<FleetEvent>>,
        history: &mut History,
    ) {
        let all = random.one_in(3);
        let chosen = usize::try_from(random.below(GATEKEEPERS as u64)).expect("an index");
        let outage = Nanos::new(random.magnitude(20_000_000_000));
        for gatekeeper in (0..GATEKEEPERS).filter(|gatekeeper| all || *gatekeeper == chosen) {
            if std::mem::replace(&mut self.connected[gatekeeper], false) {
                self.gatekeepers[gatekeeper].1.disconnect();
                schedule.after(outage, FleetEvent::Reconnected(gatekeeper).into());
            }
        }
        self.disturbed_until = self.disturbed_until.max(schedule.now() + outage + RECOVERY);
        let what = if all { "master unreachable" } else { "gatekeeper cut off" };
        history.record(Entry { place: PLACE, what, numbers: [outage.get(), 0, 0, 0], ..Entry::default() });
    }

    fn decided(
        &mut self,
        decision: AdmissionDecision,
        id: Id,
        arrived: Timestamp,
        gatekeeper: usize,
        schedule: &mut Schedule<impl From<FleetEvent>>,
        history: &mut History,
    ) {
        let now = schedule.now();
        let waited = now.since(arrived);
        let outcome = match decision {
            AdmissionDecision::Pass => {
                self.pass(id, now, history);
                if waited > MAX_DELAY + Nanos::from_millis(1) {
                    history.violated(format!("a request of {id} waited {} s", waited.as_secs_f64()));
                }
                "pass"
            }
            AdmissionDecision::Wait(wait) => {
                self.next_wait += 1;
                let due = wait.until_steady().since(now);
                self.waits.insert(self.next_wait, (wait, id, arrived, gatekeeper));
                // A queued request may get its slot, or be rejected, before its time.
                let soon = due.min(Nanos::from_millis(50)).max(Nanos::new(1_000));
                schedule.after(soon, FleetEvent::Check(self.next_wait).into());
                if waited > Nanos::ZERO {
                    return;
                }
                "wait"
            }
            AdmissionDecision::Reject { retry_after, .. } => {
                let until = Nanos::new(u64::try_from(retry_after.as_nanos()).unwrap_or(u64::MAX)) + waited;
                if until <= MAX_DELAY {
                    history.violated(format!(
                        "{id} was rejected, although it could wait {} s",
                        until.as_secs_f64()
                    ));
                }
                "reject"
            }
            _ => "unknown",
        };
        if id == CALM && outcome != "pass" {
            history.violated(format!("a client within its rate must {outcome}"));
        }
        history.count("decisions");
        let numbers = [id, waited.get(), gatekeeper as u64, 0];
        history.record(Entry {
            place: PLACE,
            what: "admission",
            limit: "web",
            numbers,
            outcome,
            ..Entry::default()
        });
    }

    /// Counts a request that passed, against `burst + rate * d` and some that nobody could know of yet.
    fn pass(&mut self, id: Id, now: Timestamp, history: &mut History) {
        let interval = i128::from(self.interval.get());
        let (level, at) = self.passed.entry(id).or_insert((0, now));
        *level = (*level - i128::from(now.since(*at).get())).max(0) + interval;
        *at = now;
        if self.disturbed_until > now {
            *level = 0;
        } else if *level > (self.burst + SLACK) * interval {
            let too_many = *level / interval - self.burst;
            history.violated(format!("{too_many} requests of {id} passed beyond its rate and its burst"));
        }
    }

    fn send_reports(&mut self, random: &mut Random, schedule: &mut Schedule<impl From<FleetEvent>>) {
        for (gatekeeper, (_, link)) in self.gatekeepers.iter().enumerate() {
            let reports = if self.connected[gatekeeper] { link.take_reports() } else { Vec::new() };
            if !reports.is_empty() {
                schedule.after(delay(random), FleetEvent::Reported(reports).into());
            }
        }
    }

    /// The master records what it is told, and tells every gatekeeper which clients have to wait.
    fn reported(
        &mut self,
        bytes: &[u8],
        random: &mut Random,
        schedule: &mut Schedule<impl From<FleetEvent>>,
    ) {
        let policy = self.engine.policy();
        let domain = policy.domain(b"web").expect("the domain");
        let messages = zmtp::messages(bytes).filter_map(|frames| AccountingMessage::decode(frames).ok());
        let messages: Vec<_> = messages.collect();
        let report = |message: &AccountingMessage<'_>| match message.status {
            AccountingStatus::Accepted { received: at } | AccountingStatus::Delayed { until: at, .. } => {
                Some(at)
            }
            AccountingStatus::Rejected { .. } => None,
        };
        let reports = messages.iter().filter_map(|message| {
            let at = Timestamp::EPOCH + Nanos::from_millis(report(message)?);
            Some(Report { domain, identifier: message.identifier, at })
        });
        let reports: Vec<_> = reports.collect();
        let mut next_allowed = Vec::new();
        block_on(self.engine.record_reports(&reports, &mut next_allowed));
        let mut published = Vec::new();
        for (report, next_allowed) in reports.iter().zip(next_allowed) {
            let Some(next_allowed) = next_allowed else { continue };
            if self.plant == Some(Plant::ForgetsDelays) {
                continue;
            }
            let until = next_allowed.as_nanos().div_ceil(1_000_000);
            self.published.insert(report.identifier.to_vec(), until);
            published.push((report.identifier.to_vec(), until));
        }
        let bytes = self.encoded(published.iter().map(|(identifier, until)| (identifier, until)));
        if !bytes.is_empty() {
            for gatekeeper in 0..GATEKEEPERS {
                schedule.after(delay(random), FleetEvent::Published(gatekeeper, bytes.clone()).into());
            }
        }
    }

    fn encoded<'a>(&self, delays: impl Iterator<Item = (&'a Vec<u8>, &'a u64)>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (identifier, delay_until) in delays {
            let message = ControlMessage { domain: b"web", identifier, delay_until: *delay_until };
            message.encode(&mut bytes);
        }
        bytes
    }
}

/// Returns the time that a message takes.
fn delay(random: &mut Random) -> Nanos {
    Nanos::new(random.between(100_000, 3_000_000))
}

//! One process whose buckets are in its memory: the engine of the product, and the oracle beside it.

mod journaled;

use std::sync::Arc;

use tollway::block_on;
use tollway::clock::Clock;
use tollway::core::{Bill, Decision, Nanos, Policy, Refund, Timestamp, Verb, Verdict};
use tollway::engine::Engine;
use tollway::store::memory::Memory;
use tollway_testbed::Random;

pub(crate) use self::journaled::{JournaledEvent, JournaledProcess};
use crate::history::{Entry, History};
use crate::oracle::{self, Ledger, Line, Model, Sharing};
use crate::plant::Plant;
use crate::requests::{LIMITS, LimitName, Numbers, Request, id_bytes};
use crate::schedule::{START, Schedule};

const PLACE: &str = "memory";

/// A process that has its buckets in memory.
#[derive(Debug)]
pub(crate) struct MemoryProcess {
    engine: Engine,
    clock: Clock,
    numbers: Numbers,
    model: Model,
    ledger: Ledger,
    ids: u64,
    max_buckets: usize,
    is_crowded: bool,
    /// True if requests may have a rule.
    has_rules: bool,
    /// The numbers that its buckets are hashed with. Which expired buckets a sweep drops first depends on them.
    hash_key: [u64; 2],
    plant: Option<Plant>,
    place: &'static str,
    /// The time of a crash since which ids of these limits are empty, if they have no bucket.
    strict: Option<(&'static [LimitName], Timestamp)>,
}

impl MemoryProcess {
    /// Starts a process. One in three has room for a few ids only.
    pub(crate) fn start(random: &mut Random, plant: Option<Plant>) -> Self {
        let is_crowded = random.one_in(3);
        let (ids, max_buckets) = if is_crowded { (200, random.pick(&[20, 60])) } else { (12, 100_000) };
        let (clock, numbers) = (Clock::simulated(START), Numbers::any(random));
        // Of a copy: the numbers that follow, and so the histories of kept seeds, stay the same.
        let hash_key = [(); 2].map({
            let mut copy = random.clone();
            move |()| copy.any()
        });
        let memory = Memory::with_known_hashes(max_buckets, hash_key);
        let engine = Engine::with(numbers.policy(), memory, clock.clone());
        let (model, ledger) = (Model::new(Sharing::Own), Ledger::default());
        Self {
            engine,
            clock,
            numbers,
            model,
            ledger,
            ids,
            max_buckets,
            is_crowded,
            has_rules: !is_crowded,
            hash_key,
            plant,
            place: PLACE,
            strict: None,
        }
    }

    /// Takes one step: mostly a request, now and then a reload, a sweep or a crash.
    pub(crate) fn step<E>(&mut self, random: &mut Random, schedule: &Schedule<E>, history: &mut History) {
        self.clock.set(schedule.now());
        match random.below(400) {
            0..=3 => self.reload(random, history),
            4..=6 => {
                let _ = self.engine.sweep(1_000);
                history.record(Entry { place: self.place, what: "sweep", ..Entry::default() });
            }
            7 => {
                // Decisions are made by a clock that does not step.
                let wall = START + Nanos::new(random.magnitude(2_000_000_000_000_000_000));
                self.clock.set_wall(wall);
                history.record(Entry { place: self.place, what: "wall clock step", ..Entry::default() });
            }
            8 if random.one_in(3) => self.crash(history),
            9 | 10 if self.is_crowded => {
                for _ in 0..100 {
                    self.request(random, history);
                }
            }
            _ => self.request(random, history),
        }
    }

    fn reload(&mut self, random: &mut Random, history: &mut History) {
        let except = self.strict.map_or(&[][..], |(limits, _)| limits);
        let changed = self.numbers.changed(random, except);
        self.engine.reload(changed.policy());
        if self.plant == Some(Plant::DropsFormer) {
            self.engine.drop_former();
        }
        for limit in LIMITS {
            let (old, new) = (self.numbers.of(limit), changed.of(limit));
            if old != new {
                self.model.change(limit, old, new, self.clock.now());
                self.ledger.change(limit, new, self.clock.now());
            }
        }
        self.numbers = changed;
        history.record(Entry { place: self.place, what: "reload", ..Entry::default() });
    }

    /// Starts the process again, with nothing in its memory.
    fn crash(&mut self, history: &mut History) {
        let memory = Memory::with_known_hashes(self.max_buckets, self.hash_key);
        self.engine = Engine::with(self.numbers.policy(), memory, self.clock.clone());
        self.model.clear();
        self.ledger.crashed();
        history.record(Entry { place: self.place, what: "crash", ..Entry::default() });
    }

    fn request(&mut self, random: &mut Random, history: &mut History) {
        let request = Request::any(random, &self.numbers, self.ids, self.has_rules);
        let policy = self.engine.policy();
        if self.is_crowded {
            request.lines.iter().for_each(|line| self.find_out_if_dropped(line, &policy, history));
        }
        match request.verb {
            Verb::Spend => self.spend(&request, &policy, history),
            Verb::Check => {
                let user = request.user();
                let charges = request.charges();
                let rules = request.rules(&user);
                let Ok(answer) = block_on(self.engine.perform(&policy, Verb::Check, &charges, &rules)) else {
                    return history.violated(format!("a check is an error: {request:?}"));
                };
                let tollway::engine::VerbAnswer::Decision(_, found) = answer else { return };
                self.judge(&request, &found, None, history);
            }
            Verb::Refund => self.refund(&request.lines[0], &policy, history),
            Verb::Reset => self.reset(&request.lines[0], &policy, history),
        }
    }

    /// Asks about a bucket that a full store may have dropped to make room, because it was going to be full by now
    /// under the numbers that its limit had before a reload. Then its id may get up to one burst more, once for the
    /// change.
    fn find_out_if_dropped(&mut self, line: &Line, policy: &Policy, history: &mut History) {
        let (line, now) = (Line { cost: 0, ..*line }, self.clock.now());
        if !self.model.may_be_dropped(&line, now) {
            return;
        }
        let id = id_bytes(line.id);
        let charge = policy.charge(line.limit, &id, 0).expect("a valid charge");
        let found = block_on(self.engine.check_bills(&[Bill::one(&charge)]));
        let kept = self.model.peek(&line, now);
        if found != [kept] {
            self.model.reset(line.limit, line.id);
            self.ledger.reset((line.limit, line.id));
            history.count("dropped after a reload");
            let full = self.model.peek(&line, now);
            let is_full = |decision: &Decision| {
                matches!(decision.verdict, Verdict::AllowFull | Verdict::DenyFull) || *decision == full
            };
            if !found.iter().all(is_full) {
                history.violated(format!("{line:?} is neither kept ({kept:?}) nor dropped: {found:?}"));
            }
        }
    }

    fn spend(&mut self, request: &Request, policy: &Arc<Policy>, history: &mut History) {
        let (mut found, mut each) = self.settle(request, policy);
        if self.plant == Some(Plant::EvictsWhenFull) && found.verdict == Verdict::DenyFull {
            self.evict_other(request, policy);
            (found, each) = self.settle(request, policy);
        }
        if self.plant == Some(Plant::DenialsCost) && found.verdict == Verdict::Deny && request.lines.len() > 1
        {
            let first = Request { verb: Verb::Spend, lines: vec![request.lines[0]], rule: None };
            let _ = self.settle(&first, policy);
        }
        self.judge(request, &found, Some(&each), history);
    }

    fn settle(&self, request: &Request, policy: &Policy) -> (Decision, Vec<Decision>) {
        let (charges, user) = (request.charges(), request.user());
        let charges = charges.iter().map(|charge| policy.charge_request(charge).expect("a valid charge"));
        let charges: Vec<_> = charges.collect();
        let rules = request.rules(&user);
        let found: Vec<_> = rules.iter().map(|rule| rule.find(policy).expect("the rule")).collect();
        let bills = rules.iter().zip(&found).map(|(rule, found)| rule.bill(found).expect("its selector"));
        let bills: Vec<_> = bills.collect();
        let bill = Bill::with_rules(&charges, &bills).expect("different buckets");
        let mut each = Vec::new();
        let decision = block_on(self.engine.settle_each(&bill, &mut each));
        (decision, each)
    }

    /// Compares a decision with that of the oracle, and with the grants before it.
    fn judge(
        &mut self,
        request: &Request,
        found: &Decision,
        each: Option<&[Decision]>,
        history: &mut History,
    ) {
        let now = self.clock.now();
        record(self.place, request, found, history);
        let is_full = |verdict| matches!(verdict, Verdict::AllowFull | Verdict::DenyFull);
        let unremembered: Vec<bool> =
            each.unwrap_or_default().iter().map(|decision| is_full(decision.verdict)).collect();
        let full = is_full(found.verdict) || unremembered.contains(&true);
        if full {
            self.judge_full(request, found, &unremembered, history);
        }
        let decided = full.then_some(found.allowed());
        let expected = match each {
            Some(_) => self.model.settle(&request.lines, request.rule, now, &unremembered, decided),
            None => self.model.check(&request.lines, request.rule, now),
        };
        // A check does not tell which of its charges a full store would not remember.
        let may_be_full = || self.model.occupied_max(now) + request.lines.len() > self.max_buckets;
        let is_judged = !(full || each.is_none() && may_be_full());
        if is_judged && !oracle::same(&expected, found, &request.lines, request.rule) {
            history.violated(format!("{request:?}: expected {expected:?}, found {found:?}"));
        }
        for (index, line) in request.lines.iter().enumerate() {
            let (key, algorithm) = ((line.limit, line.id), &line.algorithm);
            match each.and_then(|each| each.get(index)) {
                // A bucket that denies is not left with more used than it can hold.
                Some(one) if one.verdict == Verdict::Deny => self.ledger.touch(key, algorithm, now),
                _ => self.ledger.carry_over(key, algorithm, now),
            }
        }
        if each.is_some() && found.allowed() {
            for (index, line) in request.lines.iter().enumerate() {
                let fitted =
                    each.and_then(|each| each.get(index)).is_none_or(|one| one.verdict == Verdict::Allow);
                if fitted && line.kind != tollway::core::ChargeKind::CheckOnly {
                    let granted = self.ledger.grant((line.limit, line.id), &line.algorithm, line.cost, now);
                    granted.unwrap_or_else(|what| history.violated(what));
                }
            }
        }
    }

    /// A full store turns away new ids only, and only if it is full.
    fn judge_full(&self, request: &Request, found: &Decision, unremembered: &[bool], history: &mut History) {
        history.count("full");
        let now = self.clock.now();
        let occupied = self.model.occupied_max(now);
        // A bill needs a place for each of its buckets at once.
        if occupied + request.lines.len() <= self.max_buckets {
            history.violated(format!("full with {occupied} buckets of {}: {request:?}", self.max_buckets));
        }
        let refused = request.lines.iter().zip(unremembered).filter(|(_, full)| **full);
        for (line, _) in refused {
            if self.model.is_used(line, now) {
                history.violated(format!("an id with a bucket is turned away: {line:?}, {found:?}"));
            }
        }
    }

    fn refund(&mut self, line: &Line, policy: &Policy, history: &mut History) {
        let (now, id) = (self.clock.now(), id_bytes(line.id));
        if let Some((limits, crashed)) = self.strict
            && limits.contains(&line.limit)
            && now < crashed + line.algorithm.window()
        {
            // With a refund, a bucket could be full before the time in which ids without one are empty is over.
            return;
        }
        let charge = policy.charge(line.limit, &id, line.cost).expect("a valid charge");
        if self.plant == Some(Plant::RefundsTwice) {
            let _ = block_on(self.engine.refund_charges(&[charge]));
        }
        let charge = policy.charge(line.limit, &id, line.cost).expect("a valid charge");
        let found = block_on(self.engine.refund_charges(&[charge])).expect("memory answers");
        let expected = self.model.refund(line, now);
        record_refund(self.place, line, &found, history);
        if expected != found {
            history.violated(format!("refund of {line:?}: expected {expected:?}, found {found:?}"));
        }
        self.ledger.refund((line.limit, line.id), &line.algorithm, line.cost, now);
    }

    fn reset(&mut self, line: &Line, policy: &Policy, history: &mut History) {
        let id = id_bytes(line.id);
        let charge = policy.bucket(line.limit, &id).expect("a limit of the policy");
        block_on(self.engine.reset_charges(&[charge])).expect("memory answers");
        self.model.reset(line.limit, line.id);
        self.ledger.reset((line.limit, line.id));
        if let Some((limits, crashed)) = self.strict
            && limits.contains(&line.limit)
        {
            // A reset does not shorten the time in which an id without a bucket is empty.
            self.model.empty(line, crashed);
        }
        history.record(Entry { place: self.place, what: "reset", limit: line.limit, ..Entry::default() });
    }

    /// Forgets a bucket of another id, as a store must not.
    fn evict_other(&self, request: &Request, policy: &Policy) {
        for id in 0..self.ids {
            let bytes = id_bytes(id);
            for limit in LIMITS {
                let line = Line { limit, id, algorithm: *self.numbers.of(limit), ..request.lines[0] };
                if self.model.is_used(&line, self.clock.now()) {
                    let charge = policy.bucket(limit, &bytes).expect("a limit of the policy");
                    let _ = block_on(self.engine.reset_charges(&[charge]));
                    return;
                }
            }
        }
    }
}

fn record(place: &'static str, request: &Request, found: &Decision, history: &mut History) {
    let first = request.lines.first();
    let (limit, id, cost) = first.map_or(("rule", 0, 0), |line| (line.limit, line.id, line.cost));
    history.count("decisions");
    history.record(Entry {
        place,
        what: request.name(),
        limit,
        numbers: [id, cost, found.remaining, found.retry_nanos.get()],
        outcome: outcome(found),
        ..Entry::default()
    });
}

fn record_refund(place: &'static str, line: &Line, found: &Refund, history: &mut History) {
    history.record(Entry {
        place,
        what: "refund",
        limit: line.limit,
        numbers: [line.id, line.cost, found.remaining, found.reset_nanos.get()],
        outcome: if found.refunded { "ok" } else { "full" },
        ..Entry::default()
    });
}

/// Returns the word for a decision.
pub(crate) fn outcome(decision: &Decision) -> &'static str {
    match decision.verdict {
        Verdict::Allow => "allow",
        Verdict::Deny => "deny",
        Verdict::Unlimited => "unlimited",
        Verdict::AllowFull => "allow full",
        Verdict::DenyFull => "deny full",
        Verdict::AllowUnreachable => "allow unreachable",
        Verdict::DenyUnreachable => "deny unreachable",
    }
}

//! Makes random policies, and random requests under them.

use std::time::Duration;

use tollway::core::algorithm::{FixedWindow, Quota, SlidingLog, SlidingWindow, SmoothedRate, TokenBucket};
use tollway::core::{
    AfterCrash, Algorithm, ChargeKind, ChargeRequest, Limit, LocalShare, NamedRule, OnFull, OnStoreFailure,
    Policy, RuleLimit, RuleRequest, Verb,
};
use tollway_testbed::Random;

use crate::oracle::{AskedRule, Line};

/// The name that identifies a limit.
pub(crate) type LimitName = &'static str;

/// The number that stands for an id.
pub(crate) type Id = u64;

/// The limits of every policy. `open`, `closed` and `local` differ in what happens while a shared store is unreachable;
/// the numbers of `local` never change, so that the share of a process does not either.
pub(crate) const LIMITS: [LimitName; 9] =
    ["open", "slow", "closed", "local", "log", "rate", "quota", "fixed", "sliding"];

/// The name of the limit that marks copies of the oracle.
pub(crate) const MARKER: LimitName = "marker";

/// The name of the only rule.
pub(crate) const RULE: &str = "upload";

/// The numbers that all limits have at one time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Numbers {
    algorithms: [Algorithm; LIMITS.len()],
    on_full: OnFull,
    /// The limits whose ids start empty after a crash.
    strict: &'static [LimitName],
    /// True if there is a limit that counts copies of the oracle.
    is_marked: bool,
}

/// A request, with the numbers of the process that makes it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The verb that is asked.
    pub(crate) verb: Verb,
    /// The charges.
    pub(crate) lines: Vec<Line>,
    /// The user of the rule, if the rule is a part of the bill.
    pub(crate) rule: AskedRule,
}

impl Numbers {
    /// Makes random numbers.
    pub(crate) fn any(random: &mut Random) -> Self {
        let on_full = if random.one_in(2) { OnFull::Deny } else { OnFull::Allow };
        let algorithms = LIMITS.map(|name| any_algorithm(name, random).expect("numbers that work"));
        Self { algorithms, on_full, strict: &[], is_marked: false }
    }

    /// Returns the same numbers, but some limits are strict about crashes.
    pub(crate) fn with_strict(self, strict: &'static [LimitName]) -> Self {
        Self { strict, ..self }
    }

    /// Returns the same numbers, with a limit that counts copies of the oracle.
    pub(crate) fn with_marker(self) -> Self {
        Self { is_marked: true, ..self }
    }

    /// Returns the numbers with those of one limit raised or lowered, unless it is an exception. The algorithm stays.
    pub(crate) fn changed(&self, random: &mut Random, except: &[LimitName]) -> Self {
        let mut changed = self.clone();
        let limit = usize::try_from(random.below(LIMITS.len() as u64)).expect("an index");
        if except.contains(&LIMITS[limit]) {
            return changed;
        }
        changed.algorithms[limit] = any_algorithm(LIMITS[limit], random).expect("numbers that work");
        changed
    }

    /// Returns the algorithm of a limit.
    pub(crate) fn of(&self, limit: LimitName) -> &Algorithm {
        let place = LIMITS.iter().position(|name| *name == limit);
        &self.algorithms[place.expect("a limit of the policy")]
    }

    /// Makes the policy.
    pub(crate) fn policy(&self) -> Policy {
        let limits = LIMITS.iter().zip(self.algorithms).map(|(name, algorithm)| {
            let limit = Limit::new(name).expect("a name").with_default(algorithm).with_on_full(self.on_full);
            let is_strict = self.strict.contains(name);
            let limit =
                limit.with_after_crash(if is_strict { AfterCrash::Strict } else { AfterCrash::Lenient });
            limit.with_on_store_failure(on_store_failure(name))
        });
        // It counts the copies of the oracle, so that it is known which one a process is like that was started again.
        let marker = Quota::new(u64::MAX >> 1, Duration::from_secs(1_000 * 86_400)).expect("a valid quota");
        let marker = Limit::new(MARKER).expect("a name").with_default(Algorithm::Quota(marker));
        let limits = limits.chain(self.is_marked.then_some(marker));
        let rule = RuleLimit::new("Or('user:3/10s', '12/m')".parse().expect("a rule"));
        let rule = NamedRule::new(RULE, rule).expect("a name");
        let policy = Policy::new(limits.collect()).expect("different limits");
        policy.with_rules(vec![rule]).expect("one rule")
    }
}

/// Returns what happens to requests under a limit while the store gives no answer.
pub(crate) fn on_store_failure(limit: LimitName) -> OnStoreFailure {
    match limit {
        "closed" => OnStoreFailure::Deny,
        "local" => OnStoreFailure::Local(LocalShare::new(1, 2).expect("a share")),
        _ => OnStoreFailure::Allow,
    }
}

fn any_algorithm(name: LimitName, random: &mut Random) -> Option<Algorithm> {
    let seconds = random.pick(&[1, 1, 2, 7, 10, 60, 60, 600, 3_600]);
    let period = Duration::from_secs(seconds);
    let count = random.pick(&[1, 2, 3, 5, 8, 20]);
    Some(match name {
        "open" | "closed" => {
            let burst = random.pick(&[1, 2, 4, 10, 25]);
            Algorithm::TokenBucket(TokenBucket::new(burst, count, period).ok()?)
        }
        "slow" => {
            let (burst, count) = (random.between(1, 40), random.between(1, 40));
            let period = Duration::from_nanos(random.between(1, 7_200) * 1_234_567_891);
            Algorithm::TokenBucket(TokenBucket::new(burst, count, period).ok()?)
        }
        "local" => Algorithm::TokenBucket(TokenBucket::new(6, 3, Duration::from_secs(4)).ok()?),
        "log" => Algorithm::SlidingLog(SlidingLog::new(count, period).ok()?),
        "rate" => {
            let limit = random.between(2, 30) as f64;
            Algorithm::SmoothedRate(SmoothedRate::new(limit, period, random.one_in(2)).ok()?)
        }
        "quota" => Algorithm::Quota(Quota::new(count, period).ok()?),
        "fixed" => {
            let offset = Duration::from_millis(random.below(seconds * 1_000));
            Algorithm::FixedWindow(FixedWindow::new(count, period, offset).ok()?)
        }
        _ => Algorithm::SlidingWindow(SlidingWindow::new(count, period).ok()?),
    })
}

impl Request {
    /// Makes a random request: mostly one spend, sometimes a bill of several charges or one with a rule.
    pub(crate) fn any(random: &mut Random, numbers: &Numbers, ids: u64, with_rules: bool) -> Self {
        let verb = match random.below(20) {
            0 | 1 => Verb::Check,
            2 | 3 => Verb::Refund,
            4 if random.one_in(3) => Verb::Reset,
            _ => Verb::Spend,
        };
        let has_rule = with_rules && verb.has_rules() && random.one_in(6);
        let several = verb.has_rules() && random.one_in(4);
        let wanted = if several { random.between(2, 4) } else { u64::from(!has_rule || random.one_in(2)) };
        let mut lines: Vec<Line> = Vec::new();
        for _ in 0..wanted {
            let mut line = any_line(random, numbers, ids);
            let alone = wanted == 1 && !has_rule;
            // What a process decides by itself is decided alone, so that its own memory can be predicted.
            if line.limit == "local" && !alone {
                line = Line { limit: "open", algorithm: *numbers.of("open"), cost: 1, ..line };
            }
            if verb == Verb::Refund && !line.algorithm.refunds() {
                line = Line { limit: "quota", algorithm: *numbers.of("quota"), cost: 1, ..line };
            }
            if !alone && random.one_in(6) {
                line.kind = random.pick(&[ChargeKind::SpendOnly, ChargeKind::CheckOnly]);
            }
            if !lines.iter().any(|other| (other.limit, other.id) == (line.limit, line.id)) {
                lines.push(line);
            }
        }
        let rule = has_rule.then(|| random.below(ids.min(3)));
        Self { verb, lines, rule }
    }

    /// Returns the charges as a caller writes them.
    pub(crate) fn charges(&self) -> Vec<ChargeRequest<'static>> {
        let charge = |line: &Line| {
            let id = id_bytes(line.id);
            ChargeRequest::new(line.limit, &id, line.cost).with_kind(line.kind).into_owned()
        };
        self.lines.iter().map(charge).collect()
    }

    /// Returns the rules as a caller writes them, with the value of the selector, which must be kept.
    pub(crate) fn rules<'a>(&self, user: &'a [u8]) -> Vec<RuleRequest<'a>> {
        self.rule.map(|_| RuleRequest::new(RULE).with_selector("user", user)).into_iter().collect()
    }

    /// Returns the bytes of the rule's user.
    pub(crate) fn user(&self) -> Vec<u8> {
        self.rule.map(id_bytes).unwrap_or_default()
    }

    /// Returns the name of the verb.
    pub(crate) fn name(&self) -> &'static str {
        match (self.verb, self.lines.len()) {
            (Verb::Spend, 1) if self.rule.is_none() => "spend",
            (Verb::Spend, _) => "bill",
            (Verb::Check, _) => "check",
            (Verb::Refund, _) => "refund",
            (Verb::Reset, _) => "reset",
        }
    }
}

fn any_line(random: &mut Random, numbers: &Numbers, ids: u64) -> Line {
    let limit = random.pick(&LIMITS);
    let algorithm = *numbers.of(limit);
    let cost_max = algorithm.cost_max();
    let any = random.between(1, cost_max.min(50));
    let cost = random.pick(&[1, 1, 1, 1, 2.min(cost_max), any, cost_max.min(50)]);
    // Few ids are busy, and many come now and then.
    let id = if random.one_in(3) { random.below(ids) } else { random.below(ids.min(4)) };
    Line { limit, id, algorithm, cost, kind: ChargeKind::Spend }
}

/// Returns the bytes of an id.
pub(crate) fn id_bytes(id: Id) -> Vec<u8> {
    format!("u{id}").into_bytes()
}

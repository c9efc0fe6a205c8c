//! The text protocol's commands, a batch of datagrams at a time.

use std::sync::Arc;

use arrayvec::ArrayVec;
use tollgate::keys::{Finder, Found, KeyHash};
use tollgate_core::algorithm::{Measure, SmoothedRateLimit};
use tollgate_core::{
    Algorithm, Charge, Decision, KeyLimit, KeyRule, Keys, Knock, Limit, Nanos, Policy, Verdict,
};
use tollgate_wire::text::{CheckKey, CheckLimit, Command, OverLimit, Reply, decode};
use tracing::{debug, warn};

use super::{InForce, Service};
use crate::occasion::Occasion;
use crate::stats::{KeyStats, Stats};

/// How many datagrams are looked up together.
const BATCH: usize = 64;

/// The answer about a key that is never over, and about one that no rule matches.
const NEVER: OverLimit = OverLimit { over: false, rate: 0.0, limit: 1.0, period: 1 };

/// One worker's way from datagrams to replies.
pub(crate) struct TextService {
    service: Arc<Service>,
    stats: Arc<Stats>,
    /// Which of the workers this is, to whom the statistics belong.
    worker: usize,
    policy: Arc<Policy>,
    finder: Finder,
    measures: Vec<Measure>,
    /// The keys of a `check_limit`, one after another.
    composed: Vec<u8>,
    unmatched: Occasion,
}

/// A datagram that was understood.
struct Heard<'d, P> {
    from: P,
    id: Option<&'d [u8]>,
    command: Command<'d>,
    hash: Option<KeyHash>,
}

/// What is known of a key before it is answered: its rule, and its rate if it has one of its own.
struct Known<'d> {
    found: Found<'d>,
    measure: Option<Measure>,
}

impl TextService {
    pub(crate) fn new(service: Arc<Service>, stats: Arc<Stats>, worker: usize) -> Self {
        let policy = service.limiter.policy();
        Self {
            service,
            stats,
            worker,
            policy,
            finder: Finder::new(),
            measures: Vec::with_capacity(BATCH),
            composed: Vec::new(),
            unmatched: Occasion::default(),
        }
    }

    /// Answers datagrams that arrived together. `reply` is handed who asked, the id to echo and the answer; who is not
    /// understood gets none.
    pub(crate) fn answer<'d, P: Copy>(
        &mut self,
        mut datagrams: impl Iterator<Item = (P, &'d [u8])>,
        mut reply: impl FnMut(P, Option<&[u8]>, &Reply<'_>),
    ) {
        let in_force = self.service.in_force();
        self.hold_to(&in_force);
        loop {
            let mut received = 0;
            let mut heard: ArrayVec<Heard<'d, P>, BATCH> = ArrayVec::new();
            for (from, datagram) in datagrams.by_ref().take(BATCH) {
                received += 1;
                if let Some(message) = decode(datagram) {
                    let hash = match &message.command {
                        Command::OverLimit { key } => Some(self.finder.hash(key)),
                        _ => None,
                    };
                    heard.push(Heard { from, id: message.id, command: message.command, hash });
                }
            }
            if received == 0 {
                return;
            }
            let metrics = &self.service.metrics.text;
            metrics.datagrams.add(received);
            metrics.silent.add(received - heard.len() as u64);
            self.answer_batch(&in_force, &heard, &mut reply);
        }
    }

    /// A finder knows the rules of one policy.
    fn hold_to(&mut self, in_force: &InForce) {
        if !Arc::ptr_eq(&self.policy, &in_force.policy) {
            self.policy = Arc::clone(&in_force.policy);
            self.finder = Finder::new();
        }
    }

    fn answer_batch<P: Copy>(
        &mut self,
        in_force: &InForce,
        heard: &[Heard<'_, P>],
        reply: &mut impl FnMut(P, Option<&[u8]>, &Reply<'_>),
    ) {
        let keys = in_force.policy.keys();
        let mut known: ArrayVec<Known<'_>, BATCH> = ArrayVec::new();
        for heard in heard {
            if let (Command::OverLimit { key }, Some(hash)) = (&heard.command, heard.hash) {
                known.push(Known { found: self.finder.find_hashed(keys, key, hash), measure: None });
            }
        }
        self.measure(keys.rules(), &mut known);
        let mut known = known.iter();
        for Heard { from, id, command, .. } in heard {
            let mut answer = |answer: &Reply<'_>| reply(*from, *id, answer);
            match command {
                Command::OverLimit { .. } => {
                    if let Some(known) = known.next() {
                        answer(&Reply::OverLimit(self.settle(in_force, known)));
                    }
                }
                Command::CheckLimit(check) => self.check_limit(in_force, check, answer),
                Command::GetStats { key } => self.get_stats(in_force, key, answer),
                Command::GetSize => {
                    answer(&Reply::Size { keys: self.service.limiter.census().buckets as u64 });
                }
                Command::Ping => answer(&Reply::Pong),
            }
        }
    }

    /// Measures all keys that have a rate of their own, in one call.
    fn measure(&mut self, rules: &[KeyRule], known: &mut [Known<'_>]) {
        let mut knocks: ArrayVec<Knock<'_>, BATCH> = ArrayVec::new();
        knocks.extend(known.iter().filter_map(|known| knock(rules, &known.found)));
        self.measures.clear();
        self.service.limiter.knock(&knocks, &mut self.measures);
        drop(knocks);
        let mut measures = self.measures.iter();
        for known in known {
            if knock(rules, &known.found).is_some() {
                known.measure = measures.next().copied();
            }
        }
    }

    /// The answer about a key, counted.
    fn settle(&mut self, in_force: &InForce, known: &Known<'_>) -> OverLimit {
        let key = known.found.key.as_ref();
        let Some(rule) = known.found.rule.map(|rule| in_force.policy.keys().rules()[rule]) else {
            self.note_unmatched(key);
            return NEVER;
        };
        let answer = match (rule.limit, known.measure) {
            (KeyLimit::Rate { limit, .. }, Some(measure)) => measured(&limit, measure),
            (KeyLimit::Use { limit }, _) => self.use_limit(in_force, &in_force.policy.limits()[limit], key),
            _ => NEVER,
        };
        let metrics = &self.service.metrics.text;
        if answer.over {
            metrics.over.one()
        } else {
            metrics.not_over.one()
        }
        if rule.stats {
            self.stats.record(self.worker, key, &answer, self.service.limiter.clock().now());
        }
        answer
    }

    #[cold]
    fn note_unmatched(&mut self, key: &[u8]) {
        self.service.metrics.text.unmatched.one();
        if let Some(keys) = self.unmatched.now() {
            warn!(keys, "keys that no rule matches are never over; a last rule for `.*` says what you want");
            debug!(key = %key.escape_ascii(), "the latest key that no rule matches");
        }
    }

    /// A key under a named limit is its id. One that the limit does not take is never over.
    fn use_limit(&mut self, in_force: &InForce, limit: &Limit, key: &[u8]) -> OverLimit {
        let Ok(charge) = Charge::new(limit, key, 1) else { return NEVER };
        let (verdict, answer) = match charge.algorithm() {
            Some(Algorithm::SmoothedRate(rate)) => {
                let (fingerprint, on_full) = (limit.fingerprint(), limit.on_full());
                let knock = Knock { fingerprint, key: charge.id(), limit: rate, on_full };
                self.measures.clear();
                self.service.limiter.knock(&[knock], &mut self.measures);
                let answer = measured(rate, self.measures[0]);
                (if answer.over { Verdict::Deny } else { Verdict::Allow }, answer)
            }
            algorithm => {
                let decision = self.service.limiter.charge(&charge);
                (decision.verdict, algorithm.map_or(NEVER, |algorithm| used(algorithm, &decision)))
            }
        };
        in_force.of(&charge).spent(verdict);
        answer
    }

    /// Tries the keys one after another, and stops after the first that is over.
    fn check_limit(&mut self, in_force: &InForce, check: &CheckLimit<'_>, answer: impl FnOnce(&Reply<'_>)) {
        let mut composed = std::mem::take(&mut self.composed);
        composed.clear();
        let places = CheckKey::ALL.map(|which| {
            let start = composed.len();
            check.put_key(which, &mut composed);
            start..composed.len()
        });
        let keys = in_force.policy.keys();
        let found = places.map(|place| self.finder.find(keys, &composed[place]));
        let mut tried: ArrayVec<OverLimit, { CheckKey::ALL.len() }> = ArrayVec::new();
        for found in &found {
            let mut known = [Known { found: found.clone(), measure: None }];
            self.measure(keys.rules(), &mut known);
            let settled = self.settle(in_force, &known[0]);
            tried.push(settled);
            if settled.over {
                break;
            }
        }
        answer(&Reply::CheckLimit { keys: found.each_ref().map(|found| found.key.as_ref()), tried: &tried });
        drop(found);
        self.composed = composed;
    }

    fn get_stats(&mut self, in_force: &InForce, key: &[u8], answer: impl FnOnce(&Reply<'_>)) {
        let found = self.finder.find(in_force.policy.keys(), key);
        let key = found.key.as_ref();
        let KeyStats { n_req, n_over, last_max_rate } =
            self.stats.of(key, self.service.limiter.clock().now());
        answer(&Reply::Stats { n_req, n_over, last_max_rate, key });
    }
}

/// One more request for a key that has a rate of its own.
fn knock<'a>(rules: &'a [KeyRule], found: &'a Found<'_>) -> Option<Knock<'a>> {
    match &rules[found.rule?].limit {
        KeyLimit::Rate { limit, on_full } => {
            let (fingerprint, key) = (Keys::FINGERPRINT, found.key.as_ref());
            Some(Knock { fingerprint, key, limit, on_full: *on_full })
        }
        _ => None,
    }
}

fn measured(limit: &SmoothedRateLimit, measure: Measure) -> OverLimit {
    let Measure { rate, over } = measure;
    OverLimit { over, rate, limit: limit.limit(), period: whole_seconds(limit.period()) }
}

/// A decision in the words of this protocol: the rate is what is used of what there is.
fn used(algorithm: &Algorithm, decision: &Decision) -> OverLimit {
    let limit = algorithm.cost_max();
    OverLimit {
        over: !decision.allowed(),
        rate: limit.saturating_sub(decision.remaining) as f64,
        limit: limit as f64,
        period: whole_seconds(algorithm.window()),
    }
}

const fn whole_seconds(span: Nanos) -> u64 {
    span.get() / 1_000_000_000
}

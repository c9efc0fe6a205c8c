//! The text protocol's commands, a batch of datagrams at a time.

use std::sync::Arc;

use arrayvec::ArrayVec;
use tollgate::keys::{Finder, Found, KeyHash, Knock, Rated, Rewritten};
use tollgate_core::algorithm::{Measure, SmoothedRateLimit};
use tollgate_core::{Algorithm, Charge, Decision, KeyLimit, KeyRule, Keys, Limit, Nanos, Policy, Verdict};
use tollgate_wire::text::{CheckKey, CheckLimit, Command, Message, OverLimit, Reply, decode};
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

/// Somebody who asks whether a key is over its limit.
struct Asked<'d, P> {
    from: P,
    id: Option<&'d [u8]>,
    key: &'d [u8],
    hash: KeyHash,
}

/// What is known of a key before it is answered: its rule, and its rate if it has one of its own.
struct Known<'d> {
    found: Found<'d>,
    /// Of the key as rewritten.
    hash: KeyHash,
    measure: Option<Measure>,
}

/// What a batch came to, counted once for all of it.
#[derive(Default)]
struct Counts {
    over: u64,
    not_over: u64,
    unmatched: u64,
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

    /// Answers datagrams that arrived together, in order. `reply` is handed who asked, the id to echo and the answer; who
    /// is not understood gets none.
    pub(crate) fn answer<'d, P: Copy>(
        &mut self,
        datagrams: impl Iterator<Item = (P, &'d [u8])>,
        mut reply: impl FnMut(P, Option<&[u8]>, &Reply<'_>),
    ) {
        let in_force = self.service.in_force();
        self.hold_to(&in_force);
        let (mut received, mut silent) = (0, 0);
        let mut asked: ArrayVec<Asked<'d, P>, BATCH> = ArrayVec::new();
        for (from, datagram) in datagrams {
            received += 1;
            let Some(Message { id, command }) = decode(datagram) else {
                silent += 1;
                continue;
            };
            if let Command::OverLimit { key } = command {
                asked.push(Asked { from, id, key, hash: self.service.limiter.hash_key(key) });
                if !asked.is_full() {
                    continue;
                }
            }
            self.over_limit(&in_force, &mut asked, &mut reply);
            let mut answer = |answer: &Reply<'_>| reply(from, id, answer);
            match command {
                Command::OverLimit { .. } => {}
                Command::CheckLimit(check) => self.check_limit(&in_force, &check, answer),
                Command::GetStats { key } => self.get_stats(&in_force, key, answer),
                Command::GetSize => self.get_size(answer),
                Command::Ping => answer(&Reply::Pong),
            }
        }
        self.over_limit(&in_force, &mut asked, &mut reply);
        self.service.metrics.text.datagrams.add(received);
        self.service.metrics.text.silent.add(silent);
    }

    /// A finder knows the rules of one policy.
    fn hold_to(&mut self, in_force: &InForce) {
        if !Arc::ptr_eq(&self.policy, &in_force.policy) {
            self.policy = Arc::clone(&in_force.policy);
            self.finder = Finder::new();
        }
    }

    /// Makes one use of each key and forgets who asked: all of them are found, then all are measured, then all are answered.
    fn over_limit<P: Copy>(
        &mut self,
        in_force: &InForce,
        asked: &mut ArrayVec<Asked<'_, P>, BATCH>,
        reply: &mut impl FnMut(P, Option<&[u8]>, &Reply<'_>),
    ) {
        if asked.is_empty() {
            return;
        }
        // Two short loops: the shorter, the more of its pages the processor looks for at the same time.
        asked.iter().for_each(|asked| self.finder.prefetch(asked.hash));
        asked.iter().for_each(|asked| self.service.limiter.prefetch(asked.hash));
        let keys = in_force.policy.keys();
        let mut known: ArrayVec<Known<'_>, BATCH> = ArrayVec::new();
        for Asked { key, hash, .. } in asked.iter() {
            known.push(self.find(keys, key, *hash));
        }
        self.measure(keys.rules(), &mut known);
        let mut counts = Counts::default();
        for (Asked { from, id, .. }, known) in asked.iter().zip(&known) {
            let answer = self.settle(in_force, known, &mut counts);
            reply(*from, *id, &Reply::OverLimit(answer));
        }
        self.count(&counts);
        drop(known);
        asked.clear();
    }

    #[inline]
    fn find<'d>(&mut self, keys: &Keys, key: &'d [u8], hash: KeyHash) -> Known<'d> {
        let found = self.finder.find(keys, key, hash);
        let hash = match &found.key {
            Rewritten::Same(_) => hash,
            Rewritten::Other(other) => self.service.limiter.hash_key(other),
        };
        Known { found, hash, measure: None }
    }

    /// Measures all keys that have a rate of their own, in one call.
    fn measure(&mut self, rules: &[KeyRule], known: &mut [Known<'_>]) {
        let mut knocks: ArrayVec<Knock<'_>, BATCH> = ArrayVec::new();
        knocks.extend(known.iter().filter_map(|known| knock(rules, known)));
        self.measures.clear();
        self.service.limiter.knock(&knocks, &mut self.measures);
        drop(knocks);
        let mut measures = self.measures.iter();
        for known in known {
            if knock(rules, known).is_some() {
                known.measure = measures.next().copied();
            }
        }
    }

    /// The answer about a key, counted.
    fn settle(&mut self, in_force: &InForce, known: &Known<'_>, counts: &mut Counts) -> OverLimit {
        let key = known.found.key.as_ref();
        let Some(rule) = known.found.rule.map(|rule| &in_force.policy.keys().rules()[rule]) else {
            counts.unmatched += 1;
            self.note_unmatched(key);
            return NEVER;
        };
        let answer = match (&rule.limit, known.measure) {
            (KeyLimit::Rate { limit, .. }, Some(measure)) => measured(limit, measure),
            (KeyLimit::Use { limit }, _) => self.use_limit(in_force, &in_force.policy.limits()[*limit], key),
            _ => NEVER,
        };
        counts.over += u64::from(answer.over);
        counts.not_over += u64::from(!answer.over);
        if rule.stats {
            self.stats.record(self.worker, key, &answer, self.service.limiter.clock().now());
        }
        answer
    }

    fn count(&self, counts: &Counts) {
        let metrics = &self.service.metrics.text;
        metrics.over.add(counts.over);
        metrics.not_over.add(counts.not_over);
        metrics.unmatched.add(counts.unmatched);
    }

    #[cold]
    fn note_unmatched(&mut self, key: &[u8]) {
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
                let hash = self.service.limiter.hash_charge(&charge);
                let knock = Knock {
                    bucket: Rated::Id { limit, id: charge.id() },
                    hash,
                    limit: rate,
                    on_full: limit.on_full(),
                    on_store_failure: limit.on_store_failure(),
                };
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
        let mut known = places.map(|place| {
            let key = &composed[place];
            self.find(keys, key, self.service.limiter.hash_key(key))
        });
        let mut tried: ArrayVec<OverLimit, { CheckKey::ALL.len() }> = ArrayVec::new();
        let mut counts = Counts::default();
        for known in &mut known {
            self.measure(keys.rules(), std::slice::from_mut(known));
            let settled = self.settle(in_force, known, &mut counts);
            tried.push(settled);
            if settled.over {
                break;
            }
        }
        self.count(&counts);
        answer(&Reply::CheckLimit {
            keys: known.each_ref().map(|known| known.found.key.as_ref()),
            tried: &tried,
        });
        drop(known);
        self.composed = composed;
    }

    fn get_size(&self, answer: impl FnOnce(&Reply<'_>)) {
        answer(&Reply::Size { keys: self.service.limiter.census().buckets as u64 });
    }

    fn get_stats(&mut self, in_force: &InForce, key: &[u8], answer: impl FnOnce(&Reply<'_>)) {
        let known = self.find(in_force.policy.keys(), key, self.service.limiter.hash_key(key));
        let key = known.found.key.as_ref();
        let KeyStats { n_req, n_over, last_max_rate } =
            self.stats.of(key, self.service.limiter.clock().now());
        answer(&Reply::Stats { n_req, n_over, last_max_rate, key });
    }
}

/// One more request for a key that has a rate of its own.
fn knock<'a>(rules: &'a [KeyRule], known: &'a Known<'_>) -> Option<Knock<'a>> {
    match &rules[known.found.rule?].limit {
        KeyLimit::Rate { limit, on_full, on_store_failure } => Some(Knock {
            bucket: Rated::Key(known.found.key.as_ref()),
            hash: known.hash,
            limit,
            on_full: *on_full,
            on_store_failure: *on_store_failure,
        }),
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

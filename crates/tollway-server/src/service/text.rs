//! The text protocol's commands, a batch of datagrams at a time.

use std::sync::Arc;

use arrayvec::ArrayVec;
use tollway::keys::{KeyRuleCache, KeyRuleMatch, RewrittenKey};
use tollway::rates::{KeyHash, RateSubject, RateUpdate};
use tollway_core::algorithm::{RateReading, SmoothedRate};
use tollway_core::{Algorithm, Bill, Charge, Decision, KeyLimit, Keys, Nanos, Policy, Verdict};
use tollway_wire::text::{CheckKey, CheckLimit, OverLimit, TextCommand, TextReply, TextRequest, decode};
use tracing::{debug, warn};

use super::{InForce, Service};
use crate::log_throttle::LogThrottle;
use crate::stats::Stats;

/// How many datagrams are looked up together.
const BATCH: usize = 64;

/// The answer about a key that is never over, and about one that no rule matches.
const NEVER: OverLimit = OverLimit::new(false, 0.0, 1.0, 1);

/// One worker's way from datagrams to replies.
pub(crate) struct TextService {
    service: Arc<Service>,
    stats: Arc<Stats>,
    /// Which of the workers this is, to whom the statistics belong.
    worker: usize,
    policy: Arc<Policy>,
    finder: KeyRuleCache,
    readings: Vec<RateReading>,
    decisions: Vec<Decision>,
    /// The keys of a `check_limit`, one after another.
    composed: Vec<u8>,
    unmatched: LogThrottle,
}

/// Somebody who asks whether a key is over its limit.
struct Asked<'d, P> {
    from: P,
    id: Option<&'d [u8]>,
    key: &'d [u8],
    hash: KeyHash,
}

/// What is known of a key before it is used: its rule.
struct Known<'d> {
    found: KeyRuleMatch<'d>,
    /// Of the key as rewritten.
    hash: KeyHash,
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
            finder: KeyRuleCache::new(),
            readings: Vec::with_capacity(BATCH),
            decisions: Vec::new(),
            composed: Vec::new(),
            unmatched: LogThrottle::default(),
        }
    }

    /// Answers datagrams that arrived together, in order. `reply` is handed who asked, the id to echo and the answer; who
    /// is not understood gets none.
    pub(crate) async fn answer<'d, P: Copy>(
        &mut self,
        datagrams: impl Iterator<Item = (P, &'d [u8])>,
        mut reply: impl FnMut(P, Option<&[u8]>, &TextReply<'_>),
    ) {
        let in_force = self.service.in_force();
        self.hold_to(&in_force);
        let (mut received, mut silent) = (0, 0);
        let mut asked: ArrayVec<Asked<'d, P>, BATCH> = ArrayVec::new();
        for (from, datagram) in datagrams {
            received += 1;
            let Some(TextRequest { id, command }) = decode(datagram) else {
                silent += 1;
                continue;
            };
            if let TextCommand::OverLimit { key } = command {
                asked.push(Asked { from, id, key, hash: self.service.limiter.hash_key(key) });
                if !asked.is_full() {
                    continue;
                }
            }
            self.over_limit(&in_force, &mut asked, &mut reply).await;
            let mut answer = |answer: &TextReply<'_>| reply(from, id, answer);
            match command {
                TextCommand::OverLimit { .. } => {}
                TextCommand::CheckLimit(check) => self.check_limit(&in_force, &check, answer).await,
                TextCommand::GetStats { key } => self.get_stats(&in_force, key, answer),
                TextCommand::GetSize => answer(&TextReply::Size { keys: self.service.limiter.size().await }),
                TextCommand::Ping => answer(&TextReply::Pong),
            }
        }
        self.over_limit(&in_force, &mut asked, &mut reply).await;
        self.service.metrics.text.datagrams.add(received);
        self.service.metrics.text.silent.add(silent);
    }

    /// A finder knows the rules of one policy.
    fn hold_to(&mut self, in_force: &InForce) {
        if !Arc::ptr_eq(&self.policy, &in_force.policy) {
            self.policy = Arc::clone(&in_force.policy);
            self.finder = KeyRuleCache::new();
        }
    }

    /// Makes one use of each key and forgets who asked: all of them are found, then all are used, then all are answered.
    async fn over_limit<P: Copy>(
        &mut self,
        in_force: &InForce,
        asked: &mut ArrayVec<Asked<'_, P>, BATCH>,
        reply: &mut impl FnMut(P, Option<&[u8]>, &TextReply<'_>),
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
        let mut askers = asked.iter();
        let answer = |answer| {
            let Asked { from, id, .. } = askers.next().expect("every key was asked for");
            reply(*from, *id, &TextReply::OverLimit(answer));
        };
        self.use_keys(in_force, &known, answer).await;
        drop(known);
        asked.clear();
    }

    #[inline]
    fn find<'d>(&mut self, keys: &Keys, key: &'d [u8], hash: KeyHash) -> Known<'d> {
        let found = self.finder.find(keys, key, hash);
        let hash = match &found.key {
            RewrittenKey::Unchanged(_) => hash,
            RewrittenKey::Rewritten(other) => self.service.limiter.hash_key(other),
        };
        Known { found, hash }
    }

    /// Makes one use of each key, counted, and says what came of it. What must be waited for is asked for in one go.
    async fn use_keys(&mut self, in_force: &InForce, known: &[Known<'_>], answer: impl FnMut(OverLimit)) {
        let rules = in_force.policy.keys().rules();
        let mut charges: ArrayVec<(usize, Charge<'_>), BATCH> = ArrayVec::new();
        let mut updates: ArrayVec<RateUpdate<'_>, BATCH> = ArrayVec::new();
        for (index, known) in known.iter().enumerate() {
            match known.found.rule.map(|rule| &rules[rule].limit) {
                Some(KeyLimit::Rate { limit, on_full, on_store_failure }) => updates.push(RateUpdate {
                    bucket: RateSubject::Key(known.found.key.as_ref()),
                    hash: known.hash,
                    limit,
                    on_full: *on_full,
                    on_store_failure: *on_store_failure,
                }),
                Some(KeyLimit::Use { limit }) => {
                    let limit = &in_force.policy.limits()[*limit];
                    // A key that the limit does not take for an id is never over.
                    let charge = Charge::new(limit, known.found.key.as_ref(), 1).ok();
                    charges.extend(charge.map(|charge| (index, charge)));
                }
                Some(KeyLimit::Never) | None => {}
            }
        }
        let rated = updates.len();
        let mut bills: ArrayVec<Bill<'_>, BATCH> = ArrayVec::new();
        for (_, charge) in &charges {
            match self.knock_under(charge) {
                Some(knock) => updates.push(knock),
                None => bills.push(Bill::one(charge)),
            }
        }
        let mut readings = std::mem::take(&mut self.readings);
        let mut decisions = std::mem::take(&mut self.decisions);
        readings.clear();
        decisions.clear();
        let limiter = &self.service.limiter;
        let knocking = limiter.update_rates(&updates, &mut readings);
        if bills.is_empty() {
            knocking.await;
        } else {
            tokio::join!(knocking, limiter.settle_into(&bills, &mut decisions));
        }
        drop((updates, bills));
        let (rates, others) = readings.split_at(rated);
        let under_limits = under_limits(in_force, &charges, others, &decisions);
        self.answer_each(in_force, known, rates, &under_limits, answer);
        (self.readings, self.decisions) = (readings, decisions);
    }

    /// A limit that is a smoothed rate is measured: its callers want to see the rate.
    fn knock_under<'a>(&self, charge: &'a Charge<'_>) -> Option<RateUpdate<'a>> {
        let Some(Algorithm::SmoothedRate(rate)) = charge.algorithm() else { return None };
        let limit = charge.limit();
        Some(RateUpdate {
            bucket: RateSubject::Id(charge),
            hash: self.service.limiter.hash_charge(charge),
            limit: rate,
            on_full: limit.on_full(),
            on_store_failure: limit.on_store_failure(),
        })
    }

    /// The answer about each key, counted.
    #[inline]
    fn answer_each(
        &mut self,
        in_force: &InForce,
        known: &[Known<'_>],
        rates: &[RateReading],
        under_limits: &[(usize, OverLimit)],
        mut answer: impl FnMut(OverLimit),
    ) {
        let mut counts = Counts::default();
        let (mut rates, mut under_limits) = (rates.iter(), under_limits.iter().peekable());
        for (index, known) in known.iter().enumerate() {
            let key = known.found.key.as_ref();
            let Some(rule) = known.found.rule.map(|rule| &in_force.policy.keys().rules()[rule]) else {
                counts.unmatched += 1;
                self.note_unmatched(key);
                answer(NEVER);
                continue;
            };
            let answered = match &rule.limit {
                KeyLimit::Rate { limit, .. } => measured(limit, rates.next()),
                KeyLimit::Use { .. } => {
                    under_limits.next_if(|(of, _)| *of == index).map_or(NEVER, |(_, answer)| *answer)
                }
                KeyLimit::Never => NEVER,
            };
            counts.over += u64::from(answered.over);
            counts.not_over += u64::from(!answered.over);
            if rule.stats {
                self.stats.record(self.worker, key, &answered, self.service.limiter.clock().now());
            }
            answer(answered);
        }
        self.count(&counts);
    }

    fn count(&self, counts: &Counts) {
        let metrics = &self.service.metrics.text;
        metrics.over.add(counts.over);
        metrics.not_over.add(counts.not_over);
        metrics.unmatched.add(counts.unmatched);
    }

    #[cold]
    fn note_unmatched(&mut self, key: &[u8]) {
        if let Some(keys) = self.unmatched.log_now() {
            warn!(
                keys,
                "some keys match no rule and are never over the limit; add a last rule that matches \".*\""
            );
            debug!(key = %key.escape_ascii(), "the latest key that matches no rule");
        }
    }

    /// Tries the keys one after another, and stops after the first that is over.
    async fn check_limit(
        &mut self,
        in_force: &InForce,
        check: &CheckLimit<'_>,
        answer: impl FnOnce(&TextReply<'_>),
    ) {
        let mut composed = std::mem::take(&mut self.composed);
        composed.clear();
        let places = CheckKey::ALL.map(|which| {
            let start = composed.len();
            check.put_key(which, &mut composed);
            start..composed.len()
        });
        let sent = places.map(|place| &composed[place]);
        let keys = in_force.policy.keys();
        let known = sent.map(|key| self.find(keys, key, self.service.limiter.hash_key(key)));
        let mut tried: ArrayVec<OverLimit, { CheckKey::ALL.len() }> = ArrayVec::new();
        for known in &known {
            self.use_keys(in_force, std::slice::from_ref(known), |answer| tried.push(answer)).await;
            if tried.last().is_some_and(|answer| answer.over) {
                break;
            }
        }
        answer(&TextReply::CheckLimit { keys: sent, tried: &tried });
        drop(known);
        self.composed = composed;
    }

    fn get_stats(&mut self, in_force: &InForce, key: &[u8], answer: impl FnOnce(&TextReply<'_>)) {
        let known = self.find(in_force.policy.keys(), key, self.service.limiter.hash_key(key));
        let key = known.found.key.as_ref();
        let stats = self.stats.of(key, self.service.limiter.clock().now());
        answer(&TextReply::Stats { stats, key });
    }
}

/// The answers about keys that are ids under named limits, each with its place in the batch, and counted.
fn under_limits(
    in_force: &InForce,
    charges: &[(usize, Charge<'_>)],
    rates: &[RateReading],
    decisions: &[Decision],
) -> ArrayVec<(usize, OverLimit), BATCH> {
    let (mut rates, mut decisions) = (rates.iter(), decisions.iter());
    let mut answers = ArrayVec::new();
    for (index, charge) in charges {
        let counters = in_force.of(charge);
        let answer = match charge.algorithm() {
            Some(Algorithm::SmoothedRate(limit)) => {
                let answer = measured(limit, rates.next());
                counters.measured(if answer.over { Verdict::Deny } else { Verdict::Allow });
                answer
            }
            algorithm => {
                let decision = decisions.next().expect("every bill is answered");
                counters.spent(decision);
                algorithm.map_or(NEVER, |algorithm| used(algorithm, decision))
            }
        };
        answers.push((*index, answer));
    }
    answers
}

#[inline]
fn measured(limit: &SmoothedRate, measure: Option<&RateReading>) -> OverLimit {
    let RateReading { rate, over, .. } = *measure.expect("every knock is answered");
    OverLimit::new(over, rate, limit.limit(), whole_seconds(limit.period()))
}

/// A decision in the words of this protocol: the rate is what is used of what there is.
fn used(algorithm: &Algorithm, decision: &Decision) -> OverLimit {
    let limit = algorithm.cost_max();
    let rate = limit.saturating_sub(decision.remaining) as f64;
    OverLimit::new(!decision.allowed(), rate, limit as f64, whole_seconds(algorithm.window()))
}

const fn whole_seconds(span: Nanos) -> u64 {
    span.get() / 1_000_000_000
}

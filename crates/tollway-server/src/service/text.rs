//! Answers the commands of the text protocol, a batch of datagrams at a time.

use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use tollway::engine::Engine;
use tollway::keys::{KeyLimiter, KeyOutcome, KeyRuleMatch, KeyUse, KeyUses};
use tollway_core::algorithm::{RateReading, SmoothedRate};
use tollway_core::{Algorithm, Decision, KeyLimit, LogThrottle, Nanos};
use tollway_wire::text::{
    CheckKey, CheckLimit, DATAGRAM_MAX, OverLimit, TextCommand, TextReply, TextRequest, decode, encode,
};
use tracing::{debug, warn};

use super::{CountedPolicy, Service};
use crate::bounds::LOG_PAUSE;
use crate::metrics::TextCounters;
use crate::stats::Stats;
use crate::tap::{KeyBucket, RecordedKey};

/// The number of datagrams that are decided together.
const BATCH: usize = 64;

/// The answer about a key that is never over, and about one that no rule matches.
const NEVER: OverLimit = OverLimit::new(false, 0.0, 1.0, 1);

/// Answers the datagrams of one worker's text gate.
pub(crate) struct TextService {
    service: Arc<Service>,
    stats: Arc<Stats>,
    /// The index of the worker that the statistics are recorded for.
    worker: usize,
    keys: KeyLimiter,
    /// The keys of a `check_limit`, one after another.
    composed: Vec<u8>,
    unmatched: LogThrottle,
}

/// A client that asks whether a key is over its limit.
struct Asked<'d, P> {
    from: P,
    id: Option<&'d [u8]>,
    key: &'d [u8],
}

impl<P> AsRef<[u8]> for Asked<'_, P> {
    fn as_ref(&self) -> &[u8] {
        self.key
    }
}

/// A request as it was sent.
struct SentRequest<'d> {
    id: Option<&'d [u8]>,
    datagram: &'d [u8],
}

/// The answers about the keys of a `check_limit` that were tried.
type Tried = ArrayVec<OverLimit, { CheckKey::ALL.len() }>;

/// The answers of a batch, counted once for all of it.
#[derive(Default)]
struct Counts {
    over: u64,
    not_over: u64,
    over_by_name: u64,
    not_over_by_name: u64,
    unmatched: u64,
}

impl TextService {
    pub(crate) fn new(service: Arc<Service>, stats: Arc<Stats>, worker: usize) -> Self {
        let keys = KeyLimiter::new(Engine::clone(&service.limiter));
        Self {
            service,
            stats,
            worker,
            keys,
            composed: Vec::new(),
            unmatched: LogThrottle::new(LOG_PAUSE, Instant::now()),
        }
    }

    /// Answers datagrams that arrived together, in order. `reply` is handed who asked, the id to echo and the answer; a
    /// datagram that is no request gets none.
    pub(crate) async fn answer<'d, P: Copy>(
        &mut self,
        datagrams: impl Iterator<Item = (P, &'d [u8])>,
        mut reply: impl FnMut(P, Option<&[u8]>, &TextReply<'_>),
    ) {
        let policy = self.service.policy();
        let (mut received, mut silent) = (0, 0);
        let mut asked: ArrayVec<Asked<'d, P>, BATCH> = ArrayVec::new();
        for (from, datagram) in datagrams {
            received += 1;
            let Some(TextRequest { id, command }) = decode(datagram) else {
                silent += 1;
                continue;
            };
            if let TextCommand::OverLimit { key } = command {
                asked.push(Asked { from, id, key });
                if !asked.is_full() {
                    continue;
                }
            }
            self.over_limit(&policy, &mut asked, &mut reply).await;
            let mut answer = |answer: &TextReply<'_>| reply(from, id, answer);
            match command {
                TextCommand::OverLimit { .. } => {}
                TextCommand::CheckLimit(check) => {
                    let request = SentRequest { id, datagram };
                    self.check_limit(&policy, &request, &check, answer).await;
                }
                TextCommand::GetStats { key } => self.get_stats(&policy, key, answer),
                TextCommand::GetSize => answer(&TextReply::Size { keys: self.service.limiter.size().await }),
                TextCommand::Ping => answer(&TextReply::Pong),
            }
        }
        self.over_limit(&policy, &mut asked, &mut reply).await;
        self.service.metrics.text.datagrams.add(received);
        self.service.metrics.text.silent.add(silent);
    }

    /// Makes one use of each key, replies to those who asked, and forgets them.
    async fn over_limit<P: Copy>(
        &mut self,
        policy: &CountedPolicy,
        asked: &mut ArrayVec<Asked<'_, P>, BATCH>,
        reply: &mut impl FnMut(P, Option<&[u8]>, &TextReply<'_>),
    ) {
        if asked.is_empty() {
            return;
        }
        let mut askers = asked.iter();
        let mut answer = |answer| {
            let Asked { from, id, .. } = askers.next().expect("every key was asked for");
            reply(*from, *id, &TextReply::OverLimit(answer));
        };
        match self.recorded_keys(policy, asked) {
            None => self.use_keys(None, policy, asked, |_, answered| answer(answered)).await,
            // On the heap, so that a batch that is not recorded is small.
            Some(found) => {
                let answers = Box::pin(self.record_over_limit(policy, asked, &found)).await;
                answers.into_iter().for_each(answer);
            }
        }
        asked.clear();
    }

    /// Makes and records one use of each key, and returns the answers.
    async fn record_over_limit<P>(
        &mut self,
        policy: &CountedPolicy,
        asked: &[Asked<'_, P>],
        found: &[KeyRuleMatch<'_>],
    ) -> Vec<OverLimit> {
        let service = Arc::clone(&self.service);
        let use_keys = async |engine: &Engine| {
            let mut uses = Vec::with_capacity(asked.len());
            let answer = |used: &KeyUse<'_>, answered| uses.push((answered, is_by_store(used)));
            self.use_keys(Some(engine), policy, asked, answer).await;
            uses
        };
        let uses = service.decide(use_keys, |tap, uses| {
            for ((Asked { id, key, .. }, found), (answer, is_by_store)) in asked.iter().zip(found).zip(uses) {
                let (mut request, mut reply) = (Vec::new(), Vec::new());
                TextRequest { id: *id, command: TextCommand::OverLimit { key } }.encode(&mut request);
                encode(*id, &TextReply::OverLimit(*answer), &mut reply);
                let bucket = KeyBucket::new(policy.policy(), found);
                let used = RecordedKey { key, bucket, answer: *answer };
                tap.text(policy.policy(), &request, &[used], is_by_store.then_some(&*reply));
            }
        });
        uses.await.into_iter().map(|(answered, _)| answered).collect()
    }

    /// Returns the rules of these keys if a use of one of them is recorded. While nobody records, it only reads a
    /// number.
    #[inline]
    fn recorded_keys<'k>(
        &mut self,
        policy: &CountedPolicy,
        keys: &'k [impl AsRef<[u8]>],
    ) -> Option<Vec<KeyRuleMatch<'k>>> {
        let Self { service, keys: limiter, .. } = self;
        let sample = service.tap.sample()?;
        let policy = policy.policy();
        let found: Vec<_> = keys.iter().map(|key| limiter.find(policy, key.as_ref())).collect();
        found.iter().any(|found| sample.has(KeyBucket::new(policy, found).id())).then_some(found)
    }

    /// Makes one use of each key, counts it, and passes on the uses and their answers in order. The engine decides, or
    /// a view of it.
    async fn use_keys(
        &mut self,
        view: Option<&Engine>,
        policy: &CountedPolicy,
        keys: &[impl AsRef<[u8]>],
        mut answer: impl FnMut(&KeyUse<'_>, OverLimit),
    ) {
        let Self { service, stats, worker, keys: limiter, unmatched, .. } = self;
        let mut counts = Counts::default();
        let began = service.began();
        let answer = |uses: KeyUses<'_>| {
            let mut decided = service.decided("text", policy).with_spans(service.span_recorder(began, None));
            for used in uses {
                let answered = over_limit(&used.outcome);
                decided.key(&used, &answered);
                counts.add(&used, &answered);
                match used.rule {
                    Some(rule) if rule.stats => {
                        stats.record(*worker, used.key, &answered, service.limiter.clock().now());
                    }
                    Some(_) => {}
                    None => note_unmatched(unmatched, used.key),
                }
                answer(&used, answered);
            }
        };
        limiter.decide_by(view, policy.policy(), keys, answer).await;
        counts.add_to(&service.metrics.text);
    }

    /// Tries the keys one after another, and stops after the first that is over.
    async fn check_limit(
        &mut self,
        policy: &CountedPolicy,
        request: &SentRequest<'_>,
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
        let mut tried = Tried::new();
        match self.recorded_keys(policy, &sent) {
            None => _ = self.try_keys(None, policy, sent, &mut tried).await,
            Some(found) => {
                Box::pin(self.record_check_limit(policy, request, sent, &found, &mut tried)).await;
            }
        }
        answer(&TextReply::CheckLimit { keys: sent, tried: &tried });
        self.composed = composed;
    }

    /// Tries the keys, and records the request.
    async fn record_check_limit(
        &mut self,
        policy: &CountedPolicy,
        request: &SentRequest<'_>,
        sent: [&[u8]; 3],
        found: &[KeyRuleMatch<'_>],
        tried: &mut Tried,
    ) {
        let service = Arc::clone(&self.service);
        let try_keys = async |engine: &Engine| {
            let is_by_store = self.try_keys(Some(engine), policy, sent, tried).await;
            (tried, is_by_store)
        };
        service
            .decide(try_keys, |tap, (tried, is_by_store)| {
                let (datagram, mut reply) = (request.datagram, Vec::new());
                encode(request.id, &TextReply::CheckLimit { keys: sent, tried }, &mut reply);
                let keys: ArrayVec<_, { CheckKey::ALL.len() }> = (sent.iter().zip(found).zip(&**tried))
                    .map(|((key, found), answer)| {
                        let bucket = KeyBucket::new(policy.policy(), found);
                        RecordedKey { key, bucket, answer: *answer }
                    })
                    .collect();
                // What is longer was not read.
                let datagram = &datagram[..datagram.len().min(DATAGRAM_MAX)];
                tap.text(policy.policy(), datagram, &keys, is_by_store.then_some(&*reply));
            })
            .await;
    }

    /// Makes one use of each key until one is over. Returns whether the store decided all of them.
    async fn try_keys(
        &mut self,
        view: Option<&Engine>,
        policy: &CountedPolicy,
        keys: [&[u8]; 3],
        tried: &mut Tried,
    ) -> bool {
        let mut all_by_store = true;
        for key in keys {
            let answer = |used: &KeyUse<'_>, answered| {
                all_by_store &= is_by_store(used);
                tried.push(answered);
            };
            self.use_keys(view, policy, &[key], answer).await;
            if tried.last().is_some_and(|answer| answer.over) {
                break;
            }
        }
        all_by_store
    }

    fn get_stats(&mut self, policy: &CountedPolicy, key: &[u8], answer: impl FnOnce(&TextReply<'_>)) {
        let found = self.keys.find(policy.policy(), key);
        let key = found.key.as_ref();
        let stats = self.stats.of(key, self.service.limiter.clock().now());
        answer(&TextReply::Stats { stats, key });
    }
}

impl Counts {
    fn add(&mut self, used: &KeyUse<'_>, answered: &OverLimit) {
        let Some(rule) = used.rule else {
            self.unmatched += 1;
            return;
        };
        self.over += u64::from(answered.over);
        self.not_over += u64::from(!answered.over);
        if let KeyLimit::Use { .. } = rule.limit {
            self.over_by_name += u64::from(answered.over);
            self.not_over_by_name += u64::from(!answered.over);
        }
    }

    fn add_to(&self, counters: &TextCounters) {
        counters.over.add(self.over);
        counters.not_over.add(self.not_over);
        counters.over_by_name.add(self.over_by_name);
        counters.not_over_by_name.add(self.not_over_by_name);
        counters.unmatched.add(self.unmatched);
    }
}

#[cold]
fn note_unmatched(unmatched: &LogThrottle, key: &[u8]) {
    if let Some(held_back) = unmatched.allow(Instant::now()) {
        warn!(
            held_back,
            "some keys match no rule and are never over the limit; add a last rule that matches \".*\""
        );
        debug!(key = %key.escape_ascii(), "the latest key that matches no rule");
    }
}

/// Returns whether the store decided a use of a key. A rate does not say so.
const fn is_by_store(used: &KeyUse<'_>) -> bool {
    match &used.outcome {
        KeyOutcome::Decision { decision, .. } => !decision.degraded,
        KeyOutcome::Never | KeyOutcome::Rate { .. } => true,
    }
}

/// Returns the outcome of one use of a key in the words of this protocol.
#[inline]
fn over_limit(outcome: &KeyOutcome<'_>) -> OverLimit {
    match outcome {
        KeyOutcome::Never | KeyOutcome::Decision { algorithm: None, .. } => NEVER,
        KeyOutcome::Rate { limit, reading } => measured(limit, reading),
        KeyOutcome::Decision { algorithm: Some(algorithm), decision } => used(algorithm, decision),
    }
}

#[inline]
fn measured(limit: &SmoothedRate, reading: &RateReading) -> OverLimit {
    OverLimit::new(reading.over, reading.rate, limit.limit(), whole_seconds(limit.period()))
}

/// Returns a decision in the words of this protocol: the rate is what is used of what there is.
fn used(algorithm: &Algorithm, decision: &Decision) -> OverLimit {
    let limit = algorithm.cost_max();
    let rate = limit.saturating_sub(decision.remaining) as f64;
    OverLimit::new(!decision.allowed(), rate, limit as f64, whole_seconds(algorithm.window()))
}

const fn whole_seconds(span: Nanos) -> u64 {
    span.get() / 1_000_000_000
}

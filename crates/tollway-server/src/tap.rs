//! Records live decisions as lines of a trace, for those who asked for them (`GET /v1/live?all`).
//!
//! ```text
//! decision ──> Tap: is its id in a sample? ──> Recording: a bounded queue of lines ──> TapWatcher ──> the connection
//! ```
//!
//! While nobody records, a batch of decisions reads one number and does nothing else. While somebody does, requests
//! whose ids are in the sample are decided one after another, under one lock, at a time that is read under it. So a
//! replay of the lines makes the same decisions in the same order, whatever worker made them.
//!
//! A sample is a part of the ids, and not of the decisions: a bucket whose every other request was left out would
//! answer differently. An id that is in a sample has all of its requests in the trace.

mod inline_command;
mod recording;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tollway::Clock;
use tollway::config::ShowIds;
use tollway::engine::{Engine, VerbAnswer};
use tollway::keys::KeyRuleMatch;
use tollway_core::descriptor::{DescriptorBill, DescriptorOutcome, RateLimitRequest};
use tollway_core::{Charge, Decision, KeyLimit, Policy, RuleDecision, RuleRef, RuleRequest, Timestamp, Verb};
use tollway_wire::http::{RecordQuery, RecordedIds, RecordingStart};
use tollway_wire::text::OverLimit;
use tollway_wire::throttr::{ThrottrReply, ThrottrRequest};

use self::recording::Recording;

/// Records the decisions of all workers.
#[derive(Debug)]
pub(crate) struct Tap {
    /// The decisions about one of this many ids are recorded; 0 while nobody records.
    sample: AtomicU64,
    /// Chooses the ids. All recordings share it, so that a small sample is a part of a larger one.
    key: RandomState,
    /// The number of decisions, since the start, that no trace can have.
    skipped: AtomicU64,
    limiter: Arc<Engine>,
    state: Mutex<TapState>,
}

#[derive(Debug)]
struct TapState {
    /// The places of recorders. Their number never changes.
    recordings: Box<[Option<Recording>]>,
    /// A view of the engine whose time is set before each decision; `None` if the store is shared.
    engine: Option<Engine>,
    /// The time of the decisions that are recorded now. It never runs back.
    at: Timestamp,
    /// The time of the last line.
    last_line: Timestamp,
    /// The policy of the last decision that was recorded.
    policy: Arc<Policy>,
}

/// The ids that are recorded at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample<'t> {
    key: &'t RandomState,
    divisor: u64,
}

impl Sample<'_> {
    /// Returns whether the requests of an id are recorded.
    pub(crate) fn has(&self, id: &[u8]) -> bool {
        // Divisors are powers of two: what the larger one divides, the smaller one divides as well.
        self.key.hash_one(id).is_multiple_of(self.divisor)
    }

    /// Returns whether the requests for a rule are recorded. A rule has one log for everybody, so all requests under
    /// one key are in the sample, or none.
    pub(crate) fn has_rule(&self, rule: &RuleRequest<'_>) -> bool {
        self.has(rule_key(rule).as_bytes())
    }

    /// Returns whether the requests with the same descriptors are recorded, for those that lead to no bucket.
    pub(crate) fn has_request(&self, request: &RateLimitRequest<'_>) -> bool {
        let entries: Vec<_> = request.descriptors.iter().map(|descriptor| &descriptor.entries).collect();
        self.key.hash_one((&*request.domain, entries)).is_multiple_of(self.divisor)
    }

    /// Returns whether a request to Envoy's service is recorded, at least in part.
    pub(crate) fn has_bill(&self, request: &RateLimitRequest<'_>, bill: &DescriptorBill<'_>) -> bool {
        let mut ids = bill.bucket_ids().flatten().peekable();
        if ids.peek().is_none() { self.has_request(request) } else { ids.any(|id| self.has(id)) }
    }
}

/// One use of a key by a request of the text protocol.
#[derive(Clone, Debug)]
pub(crate) struct RecordedKey<'a> {
    /// The key as it was sent.
    pub(crate) key: &'a [u8],
    pub(crate) bucket: KeyBucket<'a>,
    pub(crate) answer: OverLimit,
}

/// The bucket that a use of a key changes.
#[derive(Clone, Debug)]
pub(crate) enum KeyBucket<'a> {
    /// That of the key itself, as rewritten.
    Own(&'a [u8]),
    /// That of a named limit, whose id the key is.
    Named(Charge<'a>),
}

impl<'a> KeyBucket<'a> {
    /// Returns the bucket of a key whose rule was found.
    pub(crate) fn new(policy: &'a Policy, found: &'a KeyRuleMatch<'_>) -> Self {
        let key = found.key.as_ref();
        let charge = match found.rule.map(|rule| &policy.keys().rules()[rule].limit) {
            Some(KeyLimit::Use { limit }) => Charge::new(&policy.limits()[*limit], key, 1).ok(),
            Some(KeyLimit::Rate { .. } | KeyLimit::Never) | None => None,
        };
        charge.map_or(Self::Own(key), Self::Named)
    }

    /// Returns the id that says whether the bucket is in a sample.
    pub(crate) fn id(&self) -> &[u8] {
        match self {
            Self::Own(key) => key,
            Self::Named(charge) => charge.id(),
        }
    }
}

/// Returns the key that a rule is counted under.
fn rule_key<'r>(rule: &'r RuleRequest<'_>) -> &'r str {
    match (&rule.key, &rule.rule) {
        (Some(key), _) => key,
        (None, RuleRef::Named(name)) => name,
        (None, RuleRef::Written(_)) => "",
    }
}

/// Makes and records the decisions of one request or one batch. It holds a lock: drop it before awaiting.
pub(crate) struct TapGuard<'t> {
    key: &'t RandomState,
    state: MutexGuard<'t, TapState>,
}

impl Tap {
    /// Creates one that at most this many clients can record with.
    pub(crate) fn new(limiter: Arc<Engine>, max_recorders: usize) -> Self {
        let state = TapState {
            recordings: (0..max_recorders).map(|_| None).collect(),
            engine: limiter.with_clock(Clock::manual(Timestamp::EPOCH)),
            at: Timestamp::EPOCH,
            last_line: Timestamp::EPOCH,
            policy: limiter.policy(),
        };
        let (sample, key, skipped) = (AtomicU64::new(0), RandomState::new(), AtomicU64::new(0));
        Self { sample, key, skipped, limiter, state: Mutex::new(state) }
    }

    /// Returns the ids that are recorded, or `None` while nobody records.
    #[inline]
    pub(crate) fn sample(&self) -> Option<Sample<'_>> {
        let divisor = self.sample.load(Ordering::Relaxed);
        (divisor > 0).then_some(Sample { key: &self.key, divisor })
    }

    /// Counts decisions that no trace can have.
    pub(crate) fn skip(&self, decisions: u64) {
        self.skipped.fetch_add(decisions, Ordering::Relaxed);
    }

    /// Starts to record at the present time.
    pub(crate) fn begin(&self) -> TapGuard<'_> {
        let mut state = self.state();
        state.at = state.at.max(self.limiter.clock().now());
        if let Some(engine) = &state.engine {
            engine.clock().set(state.at);
        }
        TapGuard { key: &self.key, state }
    }

    /// Returns how many clients may record at once.
    pub(crate) fn max(&self) -> usize {
        self.state().recordings.len()
    }

    /// Returns whether one more client may record.
    pub(crate) fn has_place(&self) -> bool {
        self.state().recordings.iter().any(Option::is_none)
    }

    /// Adds a recorder, and appends its first events. Returns `None` if there are enough already.
    pub(crate) fn join(
        self: &Arc<Self>,
        query: &RecordQuery,
        show_ids: ShowIds,
        output: &mut Vec<u8>,
    ) -> Option<TapWatcher> {
        let ids = if show_ids == ShowIds::Plain { query.ids } else { RecordedIds::Hashed };
        let policy = self.limiter.policy();
        let TapGuard { mut state, .. } = self.begin();
        let place = state.recordings.iter().position(Option::is_none)?;
        state.policy = Arc::clone(&policy);
        state.last_line = state.at;
        let skipped = self.skipped.load(Ordering::Relaxed);
        let mut recording = Recording::new(query.sample, ids, &policy, state.at, skipped);
        let has_policy = recording.reload(&policy, state.at);
        let start = RecordingStart {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sample: query.sample,
            ids,
            store: if self.limiter.is_shared() { "redis" } else { "memory" }.to_owned(),
            buckets: self.limiter.stats().buckets as u64,
            has_policy,
        };
        start.put_event(output);
        state.recordings[place] = Some(recording);
        self.set_sample(&state);
        Some(TapWatcher { tap: Arc::clone(self), place })
    }

    /// Wakes those who wait for lines. It is called ten times a second, so that a decision wakes nobody.
    pub(crate) fn tick(&self) {
        if self.sample().is_none() {
            return;
        }
        let mut state = self.state();
        let waiting: Vec<Waker> = state.recordings.iter_mut().flatten().filter_map(Recording::tick).collect();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn set_sample(&self, state: &TapState) {
        let smallest = state.recordings.iter().flatten().map(Recording::divisor).min();
        self.sample.store(smallest.unwrap_or(0), Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, TapState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TapGuard<'_> {
    /// Returns the engine that decides at the time of this guard, or `None` if the store is shared: then the decision
    /// is made before the guard.
    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.state.engine.as_ref()
    }

    /// Records the answer to a verb.
    pub(crate) fn answer(
        &mut self,
        policy: &Arc<Policy>,
        verb: Verb,
        answer: &VerbAnswer<'_>,
        rules: &[RuleRequest<'_>],
    ) {
        self.each(policy, |recording, key, at| recording.answer(at, key, verb, answer, rules));
    }

    /// Records the decision about one charge, which is a bill.
    pub(crate) fn spend(&mut self, policy: &Arc<Policy>, charge: &Charge<'_>, decision: &Decision) {
        self.each(policy, |recording, key, at| recording.spend(at, key, charge, decision));
    }

    /// Records the decision of a rule.
    pub(crate) fn rule(&mut self, policy: &Arc<Policy>, request: &RuleRequest<'_>, decision: &RuleDecision) {
        self.each(policy, |recording, key, at| recording.rule(at, key, request, decision));
    }

    /// Records a Throttr request and its reply.
    pub(crate) fn throttr(
        &mut self,
        policy: &Arc<Policy>,
        request: &ThrottrRequest<'_>,
        reply: &ThrottrReply,
    ) {
        self.each(policy, |recording, key, at| recording.throttr(at, key, request, reply));
    }

    /// Records a request of the text protocol, with the keys that it used, and its reply if the store decided it.
    pub(crate) fn text(
        &mut self,
        policy: &Arc<Policy>,
        request: &[u8],
        keys: &[RecordedKey<'_>],
        reply: Option<&[u8]>,
    ) {
        self.each(policy, |recording, key, at| recording.text(at, key, request, keys, reply));
    }

    /// Records a request to Envoy's rate limit service and its reply if the store decided it.
    pub(crate) fn rls(
        &mut self,
        policy: &Arc<Policy>,
        request: &RateLimitRequest<'_>,
        bill: &DescriptorBill<'_>,
        outcome: &DescriptorOutcome,
        reply: Option<&str>,
    ) {
        self.each(policy, |recording, key, at| recording.rls(at, key, request, bill, outcome, reply));
    }

    fn each(&mut self, policy: &Arc<Policy>, record: impl Fn(&mut Recording, &RandomState, Timestamp)) {
        let TapState { recordings, at, last_line, policy: last, .. } = &mut *self.state;
        let is_new = !Arc::ptr_eq(policy, last);
        // What was used is converted to new numbers at the time of the reload, and not at that of the next request.
        let reloaded_at = policy.since().clamp(*last_line, *at);
        for recording in recordings.iter_mut().flatten() {
            if is_new {
                recording.reload(policy, reloaded_at);
            }
            record(recording, self.key, *at);
        }
        *last_line = *at;
        if is_new {
            *last = Arc::clone(policy);
        }
    }
}

/// One client that records. Its place is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct TapWatcher {
    tap: Arc<Tap>,
    place: usize,
}

impl TapWatcher {
    /// Appends lines that were recorded, or wakes the task when there are some.
    pub(crate) fn poll_take(&mut self, context: &mut Context<'_>, output: &mut Vec<u8>) -> Poll<()> {
        let skipped = self.tap.skipped.load(Ordering::Relaxed);
        let mut state = self.tap.state();
        let recording = state.recordings[self.place].as_mut();
        recording.map_or(Poll::Pending, |recording| recording.poll_take(context, skipped, output))
    }
}

impl Drop for TapWatcher {
    fn drop(&mut self) {
        let mut state = self.tap.state();
        state.recordings[self.place] = None;
        self.tap.set_sample(&state);
    }
}

//! One recording: turns decisions into lines of a trace, and keeps them in a bounded queue until they are sent.

use std::borrow::Cow;
use std::fmt::{Display, Write};
use std::hash::{BuildHasher, RandomState};
use std::task::{Context, Poll, Waker};

use tollway::config::{WrittenIds, policy_text};
use tollway::engine::VerbAnswer;
use tollway::trace::{LINE_MAX, LimitRequest, TraceReply, TraceRequest};
use tollway_core::descriptor::{
    DescriptorBill, DescriptorOutcome, DescriptorTree, RateLimitRequest, RateUnit, RequestDescriptor,
};
use tollway_core::{
    Algorithm, Charge, ChargeKind, ChargeRequest, Decision, Nanos, Policy, Refund, RuleDecision, RuleRequest,
    Timestamp, Verb,
};
use tollway_wire::http::{RecordedIds, RecordingProgress, put_trace_lines};
use tollway_wire::rls;
use tollway_wire::text::{self, TextCommand, TextReply, TextRequest};
use tollway_wire::throttr::{self, ThrottrReply, ThrottrRequest};

use super::inline_command::InlineCommand;
use super::{KeyBucket, RecordedKey, Sample, rule_key};

/// The bytes of lines that may wait for one client: a tenth of a second of a million decisions a second. Lines above it
/// are missed, and counted.
const QUEUE_MAX: usize = 16 << 20;
/// The bytes of lines that are sent at once.
const PUSH_MAX: usize = 256 << 10;
/// The number of ticks from one report of progress to the next: a second.
const PROGRESS_TICKS: u32 = 10;
/// The digits of a hash that stands for an id.
const HASH_DIGITS: usize = 16;

/// The lines that one client gets.
#[derive(Debug)]
pub(super) struct Recording {
    divisor: u64,
    /// The key that ids are hashed with, if they are. It is a new one for each recording, and never leaves the process.
    hash: Option<RandomState>,
    /// The time that times count from.
    base: Timestamp,
    queue: Vec<u8>,
    /// The number of bytes at the start of the queue that were sent.
    sent: usize,
    /// The decisions for which there was no room, since the last report of progress.
    missed: u64,
    /// The decisions that this trace cannot have, or of which it cannot have a part.
    skipped: u64,
    /// The number of skipped decisions of all gates when this recording began.
    skipped_before: u64,
    ticks: u32,
    waker: Option<Waker>,
}

impl Recording {
    pub(super) fn new(
        divisor: u64,
        ids: RecordedIds,
        policy: &Policy,
        at: Timestamp,
        skipped_before: u64,
    ) -> Self {
        Self {
            divisor,
            hash: (ids == RecordedIds::Hashed).then(RandomState::new),
            base: base(policy, ids, at),
            queue: Vec::new(),
            sent: 0,
            missed: 0,
            skipped: 0,
            skipped_before,
            ticks: 0,
            waker: None,
        }
    }

    pub(super) const fn divisor(&self) -> u64 {
        self.divisor
    }

    /// Records that another policy applies from now on. Returns false if no line can have it.
    pub(super) fn reload(&mut self, policy: &Policy, at: Timestamp) -> bool {
        let text = match &self.hash {
            None => policy_text(policy, &WrittenIds::Plain),
            Some(key) => policy_text(policy, &WrittenIds::Hashed(&|id| hashed(key, id))),
        };
        let Some(text) = text else { return false };
        self.push(at, &TraceRequest::Reload(text), Some(&TraceReply::Reloaded))
    }

    /// Records the answer to a verb.
    pub(super) fn answer(
        &mut self,
        at: Timestamp,
        key: &RandomState,
        verb: Verb,
        answer: &VerbAnswer<'_>,
        rules: &[RuleRequest<'_>],
    ) {
        let (charges, reply) = match answer {
            VerbAnswer::Decision(charges, decision) => (charges, ReplyOf::Decision(*decision)),
            VerbAnswer::Refund(charges, refund) => (charges, ReplyOf::Refund(*refund)),
            VerbAnswer::Reset(charges) => (charges, ReplyOf::Reset),
        };
        let sample = Sample { key, divisor: self.divisor };
        let kept: Vec<_> = charges.iter().filter(|charge| sample.has(charge.id())).collect();
        let kept_rules: Vec<_> = rules.iter().filter(|rule| sample.has_rule(rule)).collect();
        if kept.is_empty() && kept_rules.is_empty() {
            return;
        }
        let is_whole = kept.len() == charges.len() && kept_rules.len() == rules.len();
        let put = self.put_answer(at, verb, reply, &kept, &kept_rules, is_whole);
        self.count(put);
    }

    /// Records the decision about one charge, which is a bill.
    pub(super) fn spend(
        &mut self,
        at: Timestamp,
        key: &RandomState,
        charge: &Charge<'_>,
        decision: &Decision,
    ) {
        if !(Sample { key, divisor: self.divisor }).has(charge.id()) {
            return;
        }
        let put = self.put_answer(at, Verb::Spend, ReplyOf::Decision(*decision), &[charge], &[], true);
        self.count(put);
    }

    /// Adds the lines of an answer: one with the reply if it can have everything, and otherwise one without a reply for
    /// each part that changed a bucket. The charges and rules are those in the sample; `is_whole` says that these are
    /// all.
    fn put_answer(
        &mut self,
        at: Timestamp,
        verb: Verb,
        reply: ReplyOf,
        charges: &[&Charge<'_>],
        rules: &[&RuleRequest<'_>],
        is_whole: bool,
    ) -> Result<(), Loss> {
        let decision = if let ReplyOf::Decision(decision) = &reply { Some(decision) } else { None };
        if decision.is_some_and(|decision| decision.degraded) {
            return Err(Loss::Skipped);
        }
        if is_whole && charges.iter().all(|charge| self.has_name_and_numbers(charge)) {
            return self.put_limit(at, verb, charges, rules, Some(reply));
        }
        if is_whole
            && let ([charge], []) = (charges, rules)
            && charge.limit().is_inline()
            // No command looks whether a cost would pass, or has a reply that does not tell whether it passed.
            && (decision.is_none() || verb == Verb::Spend && charge.kind() == ChargeKind::Spend)
        {
            return self.put_inline(at, charge, reply, true);
        }
        // Left out of a sample without being counted, as other ids are. A whole one is missing for its kind.
        let nothing_taken = if is_whole { Err(Loss::Skipped) } else { Ok(()) };
        if decision.is_some_and(|decision| verb != Verb::Spend || !decision.allowed()) {
            return nothing_taken;
        }
        let taking = charges.iter().copied().filter(|charge| charge.kind() != ChargeKind::CheckOnly);
        let (named, others): (Vec<_>, Vec<_>) = taking.partition(|charge| self.has_name_and_numbers(charge));
        if named.is_empty() && others.is_empty() && rules.is_empty() {
            return nothing_taken;
        }
        let mut put = Ok(());
        for charge in others {
            let is_inline = charge.limit().is_inline();
            put = put.max(if is_inline {
                self.put_inline(at, charge, reply, false)
            } else {
                Err(Loss::Skipped)
            });
        }
        if !named.is_empty() || !rules.is_empty() {
            put = put.max(self.put_limit(at, verb, &named, rules, None));
        }
        put
    }

    /// Adds a line with charges under limits of the policy, and with rules.
    fn put_limit(
        &mut self,
        at: Timestamp,
        verb: Verb,
        charges: &[&Charge<'_>],
        rules: &[&RuleRequest<'_>],
        reply: Option<ReplyOf>,
    ) -> Result<(), Loss> {
        let request = LimitRequest {
            verb,
            charges: charges.iter().map(|charge| self.charge_request(charge)).collect(),
            rules: rules.iter().map(|rule| self.rule_request(rule)).collect(),
        };
        let reply = reply.map(|reply| match reply {
            ReplyOf::Decision(decision) => TraceReply::decision(&request, decision),
            ReplyOf::Refund(Refund::UNLIMITED) => TraceReply::UnlimitedRefund,
            ReplyOf::Refund(refund) => TraceReply::Refund(refund),
            ReplyOf::Reset => TraceReply::Reset,
        });
        self.put(at, &TraceRequest::Limit(request), reply.as_ref())
    }

    /// Adds the command that does to the bucket of an inline limit what the request did.
    fn put_inline(
        &mut self,
        at: Timestamp,
        charge: &Charge<'_>,
        reply: ReplyOf,
        has_reply: bool,
    ) -> Result<(), Loss> {
        let id = self.id(charge.id());
        let command = match reply {
            ReplyOf::Decision(_) => InlineCommand::spend(charge, &id),
            ReplyOf::Refund(_) => InlineCommand::refund(charge, &id),
            ReplyOf::Reset => InlineCommand::reset(&id),
        };
        let command = command.ok_or(Loss::Skipped)?;
        let reply = match reply {
            ReplyOf::Decision(decision) if has_reply => command.decision_reply(&decision),
            ReplyOf::Refund(refund) if has_reply => command.refund_reply(&refund),
            _ => None,
        };
        self.put(at, &command.into_request(), reply.as_ref())
    }

    /// Records a Throttr request and its reply.
    pub(super) fn throttr(
        &mut self,
        at: Timestamp,
        key: &RandomState,
        request: &ThrottrRequest<'_>,
        reply: &ThrottrReply,
    ) {
        if !(Sample { key, divisor: self.divisor }).has(request.key.bytes()) {
            return;
        }
        let (mut bytes, mut answer) = (Vec::new(), Vec::new());
        let (consumer, resource) = (self.id(request.key.consumer()), self.id(request.key.resource()));
        throttr::encode_request(request.id, &request.command, &consumer, &resource, &mut bytes)
            .expect("an id of a request fits into one, and a hash is shorter");
        throttr::encode(request.id, reply, &mut answer);
        self.push(at, &TraceRequest::Throttr(bytes), Some(&TraceReply::Throttr(answer)));
    }

    /// Records a request of the text protocol and its reply: as it was sent if all keys that it used are in the sample,
    /// and otherwise the use of each key that is. `reply` is `None` if the store did not decide.
    pub(super) fn text(
        &mut self,
        at: Timestamp,
        key: &RandomState,
        request: &[u8],
        keys: &[RecordedKey<'_>],
        reply: Option<&[u8]>,
    ) {
        let sample = Sample { key, divisor: self.divisor };
        let kept: Vec<_> = keys.iter().filter(|used| sample.has(used.bucket.id())).collect();
        if kept.is_empty() {
            return;
        }
        let Some(reply) = reply else {
            self.skipped += 1;
            return;
        };
        let mut put = Ok(());
        if self.hash.is_some() {
            for used in kept {
                put = put.max(self.put_hashed_key(at, used));
            }
        } else if kept.len() == keys.len() {
            put = self.put_text(at, request.to_vec(), reply.to_vec());
        } else {
            for RecordedKey { key, answer, .. } in kept {
                let (mut request, mut reply) = (Vec::new(), Vec::new());
                TextRequest { id: None, command: TextCommand::OverLimit { key } }.encode(&mut request);
                text::encode(None, &TextReply::OverLimit(*answer), &mut reply);
                put = put.max(self.put_text(at, request, reply));
            }
        }
        self.count(put);
    }

    /// Adds the use of a key whose hash is written: what it took from the bucket of a named limit, which others use as
    /// well. A pattern of the configuration would not match the hash of a key in a replay, so other uses are skipped.
    fn put_hashed_key(&mut self, at: Timestamp, used: &RecordedKey<'_>) -> Result<(), Loss> {
        match &used.bucket {
            KeyBucket::Named(charge) if self.has_name_and_numbers(charge) => {
                self.put_limit(at, Verb::Spend, &[charge], &[], None)
            }
            _ => Err(Loss::Skipped),
        }
    }

    fn put_text(&mut self, at: Timestamp, request: Vec<u8>, reply: Vec<u8>) -> Result<(), Loss> {
        self.put(at, &TraceRequest::Text(request), Some(&TraceReply::Text(Some(reply))))
    }

    /// Records a request to Envoy's rate limit service: with its reply if all its buckets are in the sample, and
    /// otherwise without one, with the descriptors that changed a bucket in the sample. `reply` is `None` if the
    /// store did not decide.
    pub(super) fn rls(
        &mut self,
        at: Timestamp,
        key: &RandomState,
        request: &RateLimitRequest<'_>,
        bill: &DescriptorBill<'_>,
        outcome: &DescriptorOutcome,
        reply: Option<&str>,
    ) {
        let sample = Sample { key, divisor: self.divisor };
        let kept: Vec<_> = bill.bucket_ids().map(|id| id.map(|id| sample.has(id))).collect();
        let is_whole = !kept.contains(&Some(false));
        let is_in = if kept.iter().all(Option::is_none) {
            sample.has_request(request)
        } else {
            kept.contains(&Some(true))
        };
        if !is_in {
            return;
        }
        // With hashed ids, the descriptors would match nothing in a replay.
        let Some(reply) = reply.filter(|_| self.hash.is_none()) else {
            self.skipped += 1;
            return;
        };
        let put = if is_whole {
            let reply = TraceReply::Rls(reply.to_owned());
            self.put(at, &TraceRequest::Rls(request_json(request)), Some(&reply))
        } else {
            let changes = kept.iter().zip(bill.changes(outcome));
            let descriptors = request.descriptors.iter().zip(changes);
            let kept: Vec<RequestDescriptor<'_>> = descriptors
                .filter(|(_, (is_kept, changes))| **is_kept == Some(true) && *changes)
                .map(|(descriptor, _)| descriptor.clone())
                .collect();
            if kept.is_empty() {
                return;
            }
            let part = RateLimitRequest { descriptors: kept, ..request.clone() };
            self.put(at, &TraceRequest::Rls(request_json(&part)), None)
        };
        self.count(put);
    }

    /// Records the decision of a rule.
    pub(super) fn rule(
        &mut self,
        at: Timestamp,
        key: &RandomState,
        request: &RuleRequest<'_>,
        decision: &RuleDecision,
    ) {
        if !(Sample { key, divisor: self.divisor }).has_rule(request) {
            return;
        }
        if decision.degraded {
            self.skipped += 1;
            return;
        }
        let request = TraceRequest::Rule(self.rule_request(request));
        self.push(at, &request, Some(&TraceReply::RuleDecision(*decision)));
    }

    /// Returns whether a line of a limit can have a charge.
    fn has_name_and_numbers(&self, charge: &Charge<'_>) -> bool {
        !charge.limit().is_inline() && !self.has_lost_numbers(charge)
    }

    /// Returns whether the hash of an id hides which numbers it has: those of its account, which is a part of the id.
    fn has_lost_numbers(&self, charge: &Charge<'_>) -> bool {
        let limit = charge.limit();
        self.hash.is_some()
            && charge.algorithm() != limit.default_algorithm()
            && !limit.overrides().any(|(id, _)| id == charge.id())
    }

    fn charge_request(&self, charge: &Charge<'_>) -> ChargeRequest<'static> {
        let id = self.id(charge.id());
        ChargeRequest::new(charge.limit().name(), &id, charge.cost()).with_kind(charge.kind()).into_owned()
    }

    fn rule_request(&self, rule: &RuleRequest<'_>) -> RuleRequest<'static> {
        let text = |bytes: Cow<'_, [u8]>| String::from_utf8_lossy(&bytes).into_owned();
        let selectors = rule.selectors.iter().map(|(name, value)| {
            // An empty value is none.
            let value = if value.is_empty() { Vec::new() } else { self.id(value).into_owned() };
            (name.clone().into_owned().into(), value.into())
        });
        RuleRequest {
            rule: rule.rule.clone(),
            key: rule.key.as_ref().map(|_| text(self.id(rule_key(rule).as_bytes())).into()),
            selectors: selectors.collect(),
        }
    }

    /// Returns an id as it is written.
    fn id<'i>(&self, id: &'i [u8]) -> Cow<'i, [u8]> {
        match &self.hash {
            None => Cow::Borrowed(id),
            Some(key) => Cow::Owned(hashed(key, id).into_bytes()),
        }
    }

    /// Adds the one line of a decision. Returns false if it is not in the trace, which is counted.
    fn push(&mut self, at: Timestamp, request: &dyn Display, reply: Option<&TraceReply>) -> bool {
        let put = self.put(at, request, reply);
        self.count(put);
        put.is_ok()
    }

    /// Adds a line.
    fn put(&mut self, at: Timestamp, request: &dyn Display, reply: Option<&TraceReply>) -> Result<(), Loss> {
        let mut line = String::with_capacity(128);
        // Writing to a string cannot fail.
        let _ = write!(line, "{}  {request}", Nanos::new(at.as_nanos().saturating_sub(self.base.as_nanos())));
        let _ = reply.map_or(Ok(()), |reply| write!(line, "  => {reply}"));
        if line.len() > LINE_MAX {
            return Err(Loss::Skipped);
        }
        if self.queue.len() + line.len() >= QUEUE_MAX {
            return Err(Loss::Missed);
        }
        self.queue.extend_from_slice(line.as_bytes());
        self.queue.push(b'\n');
        Ok(())
    }

    /// Counts a decision that is not in the trace, or not all of it.
    fn count(&mut self, put: Result<(), Loss>) {
        match put {
            Ok(()) => {}
            Err(Loss::Skipped) => self.skipped += 1,
            Err(Loss::Missed) => self.missed += 1,
        }
    }

    /// Counts a tick, and returns the task that waits.
    pub(super) fn tick(&mut self) -> Option<Waker> {
        self.ticks += 1;
        let is_due = self.sent < self.queue.len() || self.ticks >= PROGRESS_TICKS;
        if is_due { self.waker.take() } else { None }
    }

    /// Appends the next lines, or what else there is to report. `skipped` counts the decisions of all gates that no
    /// trace can have.
    pub(super) fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        skipped: u64,
        output: &mut Vec<u8>,
    ) -> Poll<()> {
        let waiting = &self.queue[self.sent..];
        if !waiting.is_empty() {
            let len = waiting.len().min(PUSH_MAX);
            // Lines are shorter than what is sent at once, so there is an end of one.
            let end = waiting[..len].iter().rposition(|byte| *byte == b'\n').map_or(len, |end| end + 1);
            put_trace_lines(&waiting[..end], output);
            self.sent += end;
            // Not each time: what follows would be moved again and again.
            if self.sent * 2 >= self.queue.len() {
                self.queue.drain(..self.sent);
                self.sent = 0;
            }
            return Poll::Ready(());
        }
        if self.missed > 0 || self.ticks >= PROGRESS_TICKS {
            self.ticks = 0;
            let missed = std::mem::take(&mut self.missed);
            let skipped = self.skipped + (skipped - self.skipped_before);
            RecordingProgress { missed, skipped }.put_event(output);
            return Poll::Ready(());
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The reply to a request, before it is written in the format of a line.
#[derive(Clone, Copy)]
enum ReplyOf {
    Decision(Decision),
    Refund(Refund),
    Reset,
}

/// The reason why a decision is not in the trace, or not all of it. It is counted once for a decision, so the last of
/// these is taken if its lines have several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    /// No line can have it.
    Skipped,
    /// There was no room.
    Missed,
}

fn request_json(request: &RateLimitRequest<'_>) -> String {
    let mut json = Vec::new();
    rls::put_trace_request(&mut json, request);
    String::from_utf8(json).expect("it is ASCII")
}

fn hashed(key: &RandomState, id: &[u8]) -> String {
    format!("#{:0HASH_DIGITS$x}", key.hash_one(id))
}

/// Returns the time that the times of a recording count from: its start, or, if a limit has windows of the clock, an
/// earlier time at which all of their windows began. Otherwise windows would end at other times in a replay. A request
/// to Envoy's service may bring numbers with a unit that no limit has, so all units count if descriptors are recorded.
fn base(policy: &Policy, ids: RecordedIds, at: Timestamp) -> Timestamp {
    let has_descriptors = ids == RecordedIds::Plain && !policy.descriptors().is_empty();
    let limits = policy.limits().iter().filter(|limit| has_descriptors || !limit.name().contains('/'));
    let algorithms = limits.flat_map(|limit| {
        limit.default_algorithm().into_iter().chain(limit.overrides().map(|(_, algorithm)| algorithm))
    });
    let periods = algorithms.filter_map(|algorithm| match algorithm {
        Algorithm::FixedWindow(limit) => Some(limit.period()),
        Algorithm::SlidingWindow(limit) => Some(limit.period()),
        _ => None,
    });
    let tree = Some(policy.descriptors()).filter(|_| has_descriptors);
    let periods = periods.chain(tree.into_iter().flat_map(unit_spans));
    let common = periods.map(Nanos::get).try_fold(1, least_common_multiple);
    // Times from 1970 on are right for all windows.
    common.map_or(Timestamp::EPOCH, |common| Timestamp::from_nanos(at.as_nanos() / common * common))
}

/// Returns the units that a request to Envoy's service may count in. A limit of zero has no numbers, only its unit.
fn unit_spans(tree: &DescriptorTree) -> impl Iterator<Item = Nanos> {
    let listed = tree.domains().flat_map(|domain| tree.list(domain));
    let of_limits = listed.filter_map(|descriptor| Some(descriptor.shown?.rate?.1));
    RateUnit::NAMED.into_iter().chain(of_limits).map(RateUnit::span)
}

/// Returns the smallest number that both divide; `None` if it is too large.
fn least_common_multiple(a: u64, b: u64) -> Option<u64> {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor.max(1)).checked_mul(b)
}

#[cfg(test)]
mod tests {
    use tollway::Config;

    use super::*;

    fn recording(policy: &Policy, at: Timestamp) -> Recording {
        Recording::new(1, RecordedIds::Plain, policy, at, 5)
    }

    #[test]
    fn lines_without_room_are_missed_and_reported_in_their_place() {
        let mut recording = recording(&Policy::default(), Timestamp::EPOCH);
        let request = "limit  spend A:".to_owned() + &"x".repeat(10_000);
        let mut kept = 0;
        while recording.push(Timestamp::EPOCH, &request, None) {
            kept += 1;
        }
        assert!(!recording.push(Timestamp::EPOCH, &request, None));
        assert!(recording.queue.len() <= QUEUE_MAX);
        let (mut output, context) = (Vec::new(), &mut Context::from_waker(Waker::noop()));
        while recording.poll_take(context, 7, &mut output).is_ready() {}
        let text = String::from_utf8(output).unwrap();
        assert_eq!(text.matches("data: 0s  limit  spend A:").count(), kept);
        assert!(
            text.ends_with("\n\nevent: progress\ndata: {\"missed\":2,\"skipped\":2}\n\n"),
            "{:.200}",
            text
        );
        assert!(recording.push(Timestamp::EPOCH, &request, None) && recording.queue.len() < 20_000);
        let too_long = "x".repeat(LINE_MAX);
        assert!(!recording.push(Timestamp::EPOCH, &too_long, None) && recording.skipped == 1);
    }

    #[test]
    fn times_count_from_the_start_or_from_where_all_windows_began() {
        let at = Timestamp::from_nanos(1_700_000_000_123_456_789);
        for (limits, expected) in [
            ("A: { rate: 1/s }", at.as_nanos()),
            ("A: { algorithm: fixed_window, count: 1, period: 7s }", 1_699_999_994_000_000_000),
            (
                "A: { algorithm: fixed_window, count: 1, period: 1m }, \
                 B: { algorithm: sliding_window, count: 1, period: 45s }",
                1_699_999_920_000_000_000,
            ),
            (
                "A: { algorithm: fixed_window, count: 1, period: 1000000007ns }, \
                 B: { algorithm: fixed_window, count: 1, period: 99999999977ns }",
                0,
            ),
            // 15,330 days are the least that all units of Envoy divide, and 42 days fit into them.
            (
                "A: { rate: 1/s } }\nenvoy: [{ domain: shop, descriptors: [{ key: a, rate_limit: { unit: 42d, \
                 requests_per_unit: 0 } }] }]\nrules: {",
                15_330 * 86_400 * 1_000_000_000,
            ),
        ] {
            let config = Config::parse(&format!("limits: {{ {limits} }}"), "policy.yaml").unwrap();
            let base = recording(&config.policy, at).base.as_nanos();
            assert_eq!(base, expected, "{limits}");
        }
    }
}

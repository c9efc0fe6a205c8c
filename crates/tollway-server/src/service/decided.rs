//! Records what was decided, in one place: in the counters, in the decision log, in the worker's watch and in spans.
//!
//! ```text
//! let mut decided = service.decided("resp", policy);     locks the watch, once for a batch
//! decided.spend(charge, decision);                       for each decision
//! decided.finish();                                      adds what was tallied
//! ```

use std::time::SystemTime;

use tollway::engine::VerbAnswer;
use tollway::keys::{KeyOutcome, KeyUse};
use tollway_core::descriptor::{DescriptorBill, DescriptorOutcome};
use tollway_core::{
    Charge, ChargeKind, Decider, Decision, KeyLimit, Nanos, OnStoreFailure, RuleDecision, RuleRequest, Verb,
    Verdict,
};
use tollway_wire::http::TraceParent;
use tollway_wire::smockron::{AccountingMessage, AccountingStatus};
use tollway_wire::text::OverLimit;

use super::counted_policy::Counted;
use super::{CountedPolicy, Service};
use crate::decision_log;
use crate::metrics::{DomainCounters, LimitCounters, SpendTally, WorkerMetrics};
use crate::spans::{Sampled, SpanDecision, Spans};
use crate::tap::Tap;
use crate::watch::{Recorder, Subject, Watch};

/// Records the decisions of one batch. It holds a lock, so it is made after the last thing that is awaited.
pub(super) struct Decided<'a> {
    gate: &'static str,
    policy: &'a CountedPolicy,
    metrics: &'a WorkerMetrics,
    watch: Option<Recorder<'a>>,
    spans: Option<SpanRecorder<'a>>,
    logs: bool,
    /// Set while somebody records.
    tap: Option<&'a Tap>,
    /// The decisions of inline limits, which are one counter for all clients.
    inline: SpendTally,
}

impl Service {
    pub(super) fn decided<'a>(&'a self, gate: &'static str, policy: &'a CountedPolicy) -> Decided<'a> {
        let (watch, logs) = (self.watch.recorder(self.worker), decision_log::is_on());
        let tap = self.tap.sample().map(|_| &*self.tap);
        let (metrics, inline) = (&*self.metrics, SpendTally::default());
        Decided { gate, policy, metrics, watch, spans: None, logs, tap, inline }
    }

    /// Returns the recorder of spans for decisions that began at a time, for a client whose request belongs to a span.
    pub(super) fn span_recorder(
        &self,
        began: Option<SystemTime>,
        parent: Option<TraceParent>,
    ) -> Option<SpanRecorder<'_>> {
        let (spans, began) = (self.spans.as_deref()?, began?);
        Some(SpanRecorder { spans, watch: &self.watch, worker: self.worker, began, parent })
    }

    /// Returns the time, at which decisions begin, if they have spans.
    #[inline]
    pub(super) fn began(&self) -> Option<SystemTime> {
        self.spans.as_ref().map(|_| SystemTime::now())
    }
}

/// Records the spans of one batch's decisions.
pub(super) struct SpanRecorder<'a> {
    spans: &'a Spans,
    watch: &'a Watch,
    worker: usize,
    began: SystemTime,
    parent: Option<TraceParent>,
}

/// A decision without the id that it is about.
struct Outcome {
    verb: Verb,
    cost: u64,
    allowed: bool,
    remaining: Option<u64>,
    retry_after: Option<Nanos>,
    degraded: bool,
}

impl Outcome {
    fn of(verb: Verb, cost: u64, decision: &Decision) -> Self {
        Self {
            verb,
            cost,
            allowed: decision.allowed(),
            remaining: Some(decision.remaining),
            retry_after: Some(decision.retry_nanos),
            degraded: decision.degraded,
        }
    }

    fn of_rule(verb: Verb, decision: &RuleDecision) -> Self {
        Self {
            verb,
            cost: 1,
            allowed: decision.allowed(),
            remaining: None,
            retry_after: Some(decision.retry_nanos),
            degraded: decision.degraded,
        }
    }
}

impl SpanRecorder<'_> {
    /// Records the span of a decision, if the decision is in the sample.
    #[inline]
    fn record(&self, gate: &'static str, subject: Subject, id: &[u8], outcome: impl FnOnce() -> Outcome) {
        if let Some(sampled) = self.spans.sample(self.worker, self.parent) {
            self.record_sampled(sampled, gate, subject, id, outcome());
        }
    }

    #[cold]
    fn record_sampled(
        &self,
        sampled: Sampled,
        gate: &'static str,
        subject: Subject,
        id: &[u8],
        outcome: Outcome,
    ) {
        let Some((_, limit)) = self.watch.subjects().name(subject) else { return };
        let Outcome { verb, cost, allowed, remaining, retry_after, degraded } = outcome;
        let (verb, id) = (verb.name(), self.watch.show_subject(subject, id));
        let decided = SpanDecision { gate, verb, limit, id, cost, allowed, remaining, retry_after, degraded };
        self.spans.record(sampled, self.began, decided);
    }
}

impl<'a> Decided<'a> {
    /// Records spans as well.
    pub(super) fn with_spans(self, spans: Option<SpanRecorder<'a>>) -> Self {
        Self { spans, ..self }
    }
}

impl<'a> Decided<'a> {
    /// Records the answer to a verb. An allowed request counts for each limit and rule that could have denied it, a
    /// denied one for the limit or rule that decided. Checks of rules are not counted. `rule_ids` has the
    /// [`rule_id`](super::rules::rule_id) of each rule.
    pub(super) fn answer(
        &mut self,
        verb: Verb,
        answer: &'a VerbAnswer<'_>,
        rules: &'a [RuleRequest<'_>],
        rule_ids: &'a [Vec<u8>],
    ) {
        match answer {
            VerbAnswer::Decision(charges, decision) => self.bill(verb, charges, (rules, rule_ids), decision),
            VerbAnswer::Refund(charges, _) => {
                charges.iter().for_each(|charge| self.policy.counters(charge).counters.refunded());
            }
            VerbAnswer::Reset(charges) => {
                charges.iter().for_each(|charge| self.policy.counters(charge).counters.reset());
            }
        }
    }

    /// Records the decision about a bill.
    fn bill(
        &mut self,
        verb: Verb,
        charges: &'a [Charge<'_>],
        (rules, rule_ids): (&'a [RuleRequest<'_>], &'a [Vec<u8>]),
        decision: &Decision,
    ) {
        if self.logs {
            decision_log::bill(self.gate, verb, charges, rules, decision);
        }
        if self.spans.is_some() {
            self.bill_span(verb, charges, (rules, rule_ids), decision);
        }
        match (charges, rules) {
            ([charge], []) if charge.kind() != ChargeKind::SpendOnly => {
                self.count_only_charge(verb, charge, decision);
            }
            ([], [request]) => {
                if verb == Verb::Spend {
                    self.count_rule(request.rule.text(), &rule_ids[0], &RuleDecision::from(*decision));
                }
            }
            _ => {
                let rules = (rules, rule_ids);
                if verb == Verb::Spend {
                    self.metrics.bills.count(decision.verdict, decision.degraded);
                }
                if decision.allowed() {
                    self.count_allowed_parts(verb, charges, rules, decision);
                } else {
                    self.count_denying_part(verb, charges, rules, decision);
                }
            }
        }
    }

    /// Counts the decision about a bill that has only this charge.
    fn count_only_charge(&mut self, verb: Verb, charge: &'a Charge<'_>, decision: &Decision) {
        let Counted { counters, subject } = self.policy.counters(charge);
        if verb != Verb::Spend {
            return counters.checked(decision.verdict, decision.degraded);
        }
        counters.spent(decision);
        if !decision.allowed() || charge.kind() == ChargeKind::Spend {
            self.watch_charge(*subject, charge, decision);
        }
    }

    /// Counts an allowed bill for each limit and rule that could have denied it. A spend-only charge could not, and
    /// whether it fitted is not known here.
    fn count_allowed_parts(
        &mut self,
        verb: Verb,
        charges: &'a [Charge<'_>],
        (rules, rule_ids): (&'a [RuleRequest<'_>], &'a [Vec<u8>]),
        decision: &Decision,
    ) {
        let is_degraded = decision.degraded;
        for (index, charge) in charges.iter().enumerate() {
            let could_deny = |charge: &Charge<'_>| charge.kind() != ChargeKind::SpendOnly;
            let Counted { counters, subject } = self.policy.counters(charge);
            // Two ids of one limit are one request of it.
            let is_of_limit = |other: &Charge<'_>| {
                could_deny(other) && std::ptr::eq(&**counters, &*self.policy.counters(other).counters)
            };
            if could_deny(charge) && !charges[..index].iter().any(is_of_limit) {
                let verdict = match charges.get(decision.charge).is_some_and(is_of_limit) {
                    true => decision.verdict,
                    false => verdict_of_charge(charge, decision),
                };
                match verb {
                    Verb::Spend => counters.spent_in_bill(verdict, is_degraded),
                    _ => counters.checked(verdict, is_degraded),
                }
            }
            if verb == Verb::Spend && charge.kind() == ChargeKind::Spend {
                self.watch_charge(*subject, charge, decision);
            }
        }
        if verb != Verb::Spend {
            return;
        }
        for (index, (request, id)) in rules.iter().zip(rule_ids).enumerate() {
            let name = request.rule.text();
            let Some(Counted { counters, subject }) = self.policy.rule(name) else { continue };
            let is_of_rule = |other: &RuleRequest<'_>| other.rule.text() == name;
            if !rules[..index].iter().any(is_of_rule) {
                let decider = decision.charge.checked_sub(charges.len()).and_then(|index| rules.get(index));
                let verdict = match decider.is_some_and(is_of_rule) {
                    true => decision.verdict,
                    false => self.verdict_of_rule(name, decision),
                };
                counters.decided_in_bill(verdict, is_degraded);
            }
            self.watch_spent(*subject, id, 1);
        }
    }

    /// Counts a denied bill for the limit or the rule that decided. The others took nothing and denied nothing.
    fn count_denying_part(
        &mut self,
        verb: Verb,
        charges: &'a [Charge<'_>],
        (rules, rule_ids): (&'a [RuleRequest<'_>], &'a [Vec<u8>]),
        decision: &Decision,
    ) {
        let (verdict, is_degraded) = (decision.verdict, decision.degraded);
        match (decision.decider(charges), verb) {
            (Decider::Charge(charge), Verb::Spend) => {
                let Counted { counters, subject } = self.policy.counters(charge);
                counters.spent_in_bill(verdict, is_degraded);
                self.watch_charge(*subject, charge, decision);
            }
            (Decider::Charge(charge), _) => {
                self.policy.counters(charge).counters.checked(verdict, is_degraded);
            }
            (Decider::Rule(index), Verb::Spend) => {
                let name = rules[index].rule.text();
                let Some(Counted { counters, subject }) = self.policy.rule(name) else { return };
                counters.decided_in_bill(verdict, is_degraded);
                self.watch_denied(*subject, &rule_ids[index], 1, Some(decision.retry_nanos));
            }
            (Decider::Rule(_), _) => {}
        }
    }

    /// Returns the verdict of a rule of an allowed bill that did not decide it.
    fn verdict_of_rule(&self, name: &str, decision: &Decision) -> Verdict {
        let rule = self.policy.policy().rule(name);
        match rule.map(|rule| rule.limit().on_store_failure()) {
            Some(on_store_failure) => allowed_verdict(on_store_failure, decision),
            None => Verdict::Allow,
        }
    }

    /// Records the span of a bill, with the limit or the rule that decided it.
    fn bill_span(
        &self,
        verb: Verb,
        charges: &[Charge<'_>],
        (rules, rule_ids): (&[RuleRequest<'_>], &[Vec<u8>]),
        decision: &Decision,
    ) {
        match decision.decider(charges) {
            Decider::Charge(charge) => {
                let Counted { subject, .. } = self.policy.counters(charge);
                self.span(*subject, charge.id(), || Outcome::of(verb, charge.cost(), decision));
            }
            Decider::Rule(index) => {
                let name = rules[index].rule.text();
                self.rule_span(verb, name, &rule_ids[index], &RuleDecision::from(*decision));
            }
        }
    }

    fn rule_span(&self, verb: Verb, name: &str, id: &[u8], decision: &RuleDecision) {
        if let Some(Counted { subject, .. }) = self.policy.rule(name) {
            self.span(*subject, id, || Outcome::of_rule(verb, decision));
        }
    }

    #[inline]
    fn span(&self, subject: Subject, id: &[u8], outcome: impl FnOnce() -> Outcome) {
        if let Some(spans) = &self.spans {
            spans.record(self.gate, subject, id, outcome);
        }
    }

    /// Records the decision about one charge, which is a bill.
    #[inline]
    pub(super) fn spend(&mut self, charge: &'a Charge<'_>, decision: &Decision) {
        if self.logs {
            decision_log::bill(self.gate, Verb::Spend, std::slice::from_ref(charge), &[], decision);
        }
        let Counted { counters, subject } = self.policy.counters(charge);
        if charge.limit().is_inline() {
            self.inline.add(decision);
        } else {
            counters.spent(decision);
        }
        self.span(*subject, charge.id(), || Outcome::of(Verb::Spend, charge.cost(), decision));
        self.watch_charge(*subject, charge, decision);
    }

    /// Records the decisions about the charges of a request to Envoy's service.
    pub(super) fn descriptors(
        &mut self,
        bill: &DescriptorBill<'_>,
        charges: &'a [Charge<'_>],
        outcome: &DescriptorOutcome,
    ) {
        let decision = &outcome.decision;
        if let Some((charge, hits)) = charges.iter().zip(bill.hits()).nth(decision.charge) {
            if self.logs {
                decision_log::charge(self.gate, Verb::Spend, (charge, hits), (charges.len(), 0), decision);
            }
            if let Some(Counted { subject, .. }) = self.policy.descriptor_counters(charge.limit()) {
                self.span(*subject, charge.id(), || Outcome::of(Verb::Spend, hits, decision));
            }
        }
        // One descriptor is the whole request, unless it is in shadow mode and the request is allowed all the same.
        let is_alone = matches!(&*outcome.charges, [only] if only.allowed() == decision.allowed());
        if !charges.is_empty() && !is_alone {
            self.metrics.bills.count(decision.verdict, decision.degraded);
        }
        let decided = charges.iter().zip(bill.hits()).zip(&outcome.charges);
        for (((charge, hits), of_charge), metric) in decided.zip(bill.metrics()) {
            // A charge that a denied bill did not take is neither allowed nor denied.
            if !decision.allowed() && of_charge.allowed() {
                continue;
            }
            self.descriptor(charge, hits, of_charge, is_alone);
            if let Some(descriptor) = metric {
                self.metrics.descriptors.count(charge.limit().name(), descriptor, of_charge);
            }
        }
    }

    /// Counts what a request to Envoy's service gave back.
    pub(super) fn refunded(&self, charge: &Charge<'_>) {
        if let Some(Counted { counters, .. }) = self.policy.descriptor_counters(charge.limit()) {
            counters.refunded();
        }
    }

    fn descriptor(&mut self, charge: &'a Charge<'_>, hits: u64, decision: &Decision, is_alone: bool) {
        let Some(Counted { counters, subject }) = self.policy.descriptor_counters(charge.limit()) else {
            return;
        };
        if is_alone {
            counters.spent(decision);
        } else {
            counters.spent_in_bill(decision.verdict, decision.degraded);
        }
        self.watch_cost(*subject, charge.id(), hits, decision);
    }

    /// Records the decision of a rule about the request that has this [`rule_id`](super::rules::rule_id).
    pub(super) fn rule(&mut self, name: &str, key: Option<&str>, id: &'a [u8], decision: &RuleDecision) {
        if self.logs {
            decision_log::rule(self.gate, name, key, decision);
        }
        if self.spans.is_some() {
            self.rule_span(Verb::Spend, name, id, decision);
        }
        self.count_rule(name, id, decision);
    }

    fn count_rule(&mut self, name: &str, id: &'a [u8], decision: &RuleDecision) {
        let Some(Counted { counters, subject }) = self.policy.rule(name) else { return };
        counters.decided(decision);
        if decision.allowed() {
            self.watch_spent(*subject, id, 1);
        } else {
            self.watch_denied(*subject, id, 1, Some(decision.retry_nanos));
        }
    }

    /// Records one use of a key, and how it was answered.
    pub(super) fn key(&mut self, used: &KeyUse<'a>, answered: &OverLimit) {
        if self.logs {
            decision_log::key(self.gate, used.key, answered);
        }
        let Some(rule) = used.rule else { return };
        let subject = match rule.limit {
            KeyLimit::Never => return,
            KeyLimit::Rate { .. } => self.policy.keys(),
            KeyLimit::Use { limit } => {
                let Counted { counters, subject } = self.policy.limit(limit);
                count_use(counters, &used.outcome);
                *subject
            }
        };
        if matches!(used.outcome, KeyOutcome::Never) {
            // The named limit does not take the key for an id.
            return;
        }
        self.span(subject, used.key, || key_outcome(&used.outcome, answered));
        if answered.over {
            let retry = match used.outcome {
                KeyOutcome::Decision { decision, .. } => Some(decision.retry_nanos),
                KeyOutcome::Never | KeyOutcome::Rate { .. } => None,
            };
            self.watch_denied(subject, used.key, 1, retry);
        } else {
            self.watch_spent(subject, used.key, 1);
        }
    }

    /// Records a request that a gatekeeper reported. `delayed_by` is how long it was delayed.
    pub(super) fn report(
        &mut self,
        domain: &Counted<DomainCounters>,
        message: &AccountingMessage<'a>,
        delayed_by: Option<Nanos>,
    ) {
        self.skip_in_recordings(1);
        domain.counters.requested(message.status);
        match message.status {
            AccountingStatus::Accepted { .. } => self.watch_spent(domain.subject, message.identifier, 1),
            AccountingStatus::Delayed { .. } | AccountingStatus::Rejected { .. } => {
                self.watch_denied(domain.subject, message.identifier, 1, delayed_by);
            }
        }
    }

    /// Adds what was tallied to the counters.
    pub(super) fn finish(self) {
        self.policy.inline_limit().counters.spent_all(&self.inline);
    }

    /// Counts decisions that no trace can have, if somebody records.
    fn skip_in_recordings(&self, decisions: u64) {
        if let Some(tap) = self.tap {
            tap.skip(decisions);
        }
    }

    /// Records what a charge spent, or that it was denied.
    #[inline]
    fn watch_charge(&mut self, subject: Subject, charge: &'a Charge<'_>, decision: &Decision) {
        self.watch_cost(subject, charge.id(), charge.cost(), decision);
    }

    #[inline]
    fn watch_cost(&mut self, subject: Subject, id: &'a [u8], cost: u64, decision: &Decision) {
        if decision.allowed() {
            self.watch_spent(subject, id, cost);
        } else {
            self.watch_denied(subject, id, cost, Some(decision.retry_nanos));
        }
    }

    #[inline]
    fn watch_spent(&mut self, subject: Subject, id: &'a [u8], cost: u64) {
        if let Some(watch) = &mut self.watch {
            watch.spent(subject, id, cost);
        }
    }

    #[inline]
    fn watch_denied(&mut self, subject: Subject, id: &'a [u8], cost: u64, retry: Option<Nanos>) {
        if let Some(watch) = &mut self.watch {
            watch.denied(self.gate, subject, id, cost, retry);
        }
    }
}

/// Returns the verdict of a charge of an allowed bill that did not decide it. A store does not answer with it.
fn verdict_of_charge(charge: &Charge<'_>, decision: &Decision) -> Verdict {
    match charge.algorithm() {
        None => Verdict::Unlimited,
        Some(_) => allowed_verdict(charge.limit().on_store_failure(), decision),
    }
}

/// Returns the verdict of a part of an allowed bill that did not decide it.
const fn allowed_verdict(on_store_failure: OnStoreFailure, decision: &Decision) -> Verdict {
    match on_store_failure {
        OnStoreFailure::Allow if decision.degraded => Verdict::AllowUnreachable,
        _ => Verdict::Allow,
    }
}

/// Returns the outcome of one use of a key. A rate has no units that are left, and no time to wait for.
fn key_outcome(outcome: &KeyOutcome<'_>, answered: &OverLimit) -> Outcome {
    match outcome {
        KeyOutcome::Decision { decision, .. } => Outcome::of(Verb::Spend, 1, decision),
        KeyOutcome::Never | KeyOutcome::Rate { .. } => Outcome {
            verb: Verb::Spend,
            cost: 1,
            allowed: !answered.over,
            remaining: None,
            retry_after: None,
            degraded: false,
        },
    }
}

/// Counts the use of a key that is an id under a named limit.
fn count_use(counters: &LimitCounters, outcome: &KeyOutcome<'_>) {
    match outcome {
        KeyOutcome::Never => {}
        KeyOutcome::Rate { reading, .. } => {
            counters.measured(if reading.over { Verdict::Deny } else { Verdict::Allow });
        }
        KeyOutcome::Decision { decision, .. } => counters.spent(decision),
    }
}

//! Records what was decided, in one place: in the counters, in the decision log and in the worker's watch.
//!
//! ```text
//! let mut decided = service.decided("resp", policy);     locks the watch, once for a batch
//! decided.spend(charge, decision);                       for each decision
//! decided.finish();                                      adds what was tallied
//! ```

use tollway::engine::VerbAnswer;
use tollway::keys::{KeyOutcome, KeyUse};
use tollway_core::descriptor::{DescriptorBill, DescriptorOutcome};
use tollway_core::{
    Charge, ChargeKind, Decider, Decision, KeyLimit, Nanos, RuleDecision, RuleRequest, Verb, Verdict,
};
use tollway_wire::smockron::{AccountingMessage, AccountingStatus};
use tollway_wire::text::OverLimit;

use super::counted_policy::Counted;
use super::{CountedPolicy, Service};
use crate::decision_log;
use crate::metrics::{DomainCounters, LimitCounters, SpendTally, WorkerMetrics};
use crate::tap::Tap;
use crate::watch::{Recorder, Subject};

/// Records the decisions of one batch. It holds a lock, so it is made after the last thing that is awaited.
pub(super) struct Decided<'a> {
    gate: &'static str,
    policy: &'a CountedPolicy,
    metrics: &'a WorkerMetrics,
    watch: Option<Recorder<'a>>,
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
        Decided { gate, policy, metrics: &self.metrics, watch, logs, tap, inline: SpendTally::default() }
    }
}

impl Decided<'_> {
    /// Records the answer to a verb. A decision counts for the limit or the rule that made it. Checks of rules are not
    /// counted.
    pub(super) fn answer(&mut self, verb: Verb, answer: &VerbAnswer<'_>, rules: &[RuleRequest<'_>]) {
        match answer {
            VerbAnswer::Decision(charges, decision) => self.bill(verb, charges, rules, decision),
            VerbAnswer::Refund(charges, _) => {
                charges.iter().for_each(|charge| self.policy.counters(charge).counters.refunded());
            }
            VerbAnswer::Reset(charges) => {
                charges.iter().for_each(|charge| self.policy.counters(charge).counters.reset());
            }
        }
    }

    /// Records the decision about a bill.
    fn bill(&mut self, verb: Verb, charges: &[Charge<'_>], rules: &[RuleRequest<'_>], decision: &Decision) {
        if self.logs {
            decision_log::bill(self.gate, verb, charges, rules, decision);
        }
        if charges.iter().any(|charge| charge.limit().is_inline()) {
            self.skip_in_recordings(1);
        }
        match (decision.decider(charges), verb) {
            (Decider::Charge(charge), Verb::Spend) => {
                let Counted { counters, subject } = self.policy.counters(charge);
                counters.spent(decision);
                if !decision.allowed() {
                    self.watch_charge(*subject, charge, decision);
                }
            }
            (Decider::Charge(charge), _) => self.policy.counters(charge).counters.checked(decision),
            (Decider::Rule(index), Verb::Spend) => {
                let RuleRequest { rule, key, .. } = &rules[index];
                self.count_rule(rule.text(), key.as_deref(), &RuleDecision::from(*decision));
            }
            (Decider::Rule(_), _) => {}
        }
        if decision.allowed() && verb == Verb::Spend {
            // Whether a spend-only charge fitted is not known here.
            let took = |charge: &&Charge<'_>| charge.kind() == ChargeKind::Spend;
            for charge in charges.iter().filter(took) {
                self.watch_charge(self.policy.counters(charge).subject, charge, decision);
            }
        }
    }

    /// Records the decision about one charge, which is a bill.
    #[inline]
    pub(super) fn spend(&mut self, charge: &Charge<'_>, decision: &Decision) {
        if self.logs {
            decision_log::bill(self.gate, Verb::Spend, std::slice::from_ref(charge), &[], decision);
        }
        let Counted { counters, subject } = self.policy.counters(charge);
        if charge.limit().is_inline() {
            self.inline.add(decision);
        } else {
            counters.spent(decision);
        }
        self.watch_charge(*subject, charge, decision);
    }

    /// Records the decisions about the charges of a request to Envoy's service.
    pub(super) fn descriptors(
        &mut self,
        bill: &DescriptorBill<'_>,
        charges: &[Charge<'_>],
        outcome: &DescriptorOutcome,
    ) {
        let decision = &outcome.decision;
        self.skip_in_recordings(1);
        if self.logs && decision.charge < charges.len() {
            decision_log::bill(self.gate, Verb::Spend, charges, &[], decision);
        }
        for ((charge, of_charge), metric) in charges.iter().zip(&outcome.charges).zip(bill.metrics()) {
            // A charge that a denied bill did not take is neither allowed nor denied.
            if !decision.allowed() && of_charge.allowed() {
                continue;
            }
            self.descriptor(charge, of_charge);
            if let Some(descriptor) = metric {
                self.metrics.descriptors.count(charge.limit().name(), descriptor, of_charge);
            }
        }
    }

    fn descriptor(&mut self, charge: &Charge<'_>, decision: &Decision) {
        let Some(Counted { counters, subject }) = self.policy.descriptor_counters(charge.limit()) else {
            return;
        };
        counters.spent(decision);
        self.watch_charge(*subject, charge, decision);
    }

    /// Records the decision of a rule.
    pub(super) fn rule(&mut self, name: &str, key: Option<&str>, decision: &RuleDecision) {
        if self.logs {
            decision_log::rule(self.gate, name, key, decision);
        }
        self.count_rule(name, key, decision);
    }

    fn count_rule(&mut self, name: &str, key: Option<&str>, decision: &RuleDecision) {
        let Some(Counted { counters, subject }) = self.policy.rule(name) else { return };
        counters.decided(decision);
        let id = key.unwrap_or_default().as_bytes();
        if decision.allowed() {
            self.watch_spent(*subject, id, 1);
        } else {
            self.watch_denied(*subject, id, 1, Some(decision.retry_nanos));
        }
    }

    /// Records one use of a key, and how it was answered.
    pub(super) fn key(&mut self, used: &KeyUse<'_>, answered: &OverLimit) {
        if self.logs {
            decision_log::key(self.gate, used.key, answered);
        }
        let Some(rule) = used.rule else { return };
        self.skip_in_recordings(1);
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
        message: &AccountingMessage<'_>,
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
        self.skip_in_recordings(self.inline.count());
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
    fn watch_charge(&mut self, subject: Subject, charge: &Charge<'_>, decision: &Decision) {
        if decision.allowed() {
            self.watch_spent(subject, charge.id(), charge.cost());
        } else {
            self.watch_denied(subject, charge.id(), charge.cost(), Some(decision.retry_nanos));
        }
    }

    #[inline]
    fn watch_spent(&mut self, subject: Subject, id: &[u8], cost: u64) {
        if let Some(watch) = &mut self.watch {
            watch.spent(subject, id, cost);
        }
    }

    #[inline]
    fn watch_denied(&mut self, subject: Subject, id: &[u8], cost: u64, retry: Option<Nanos>) {
        if let Some(watch) = &mut self.watch {
            watch.denied(self.gate, subject, id, cost, retry);
        }
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

//! Counts what the server does, for `/metrics`.
//!
//! Each worker counts for itself, so that two cores never wait for one counter; a scrape adds them up. Counters belong
//! to the name of a limit or a rule and outlive the policy that named it, so a reload never sets one back. An id is
//! never a label: there are as many ids as clients care to invent. Only descriptors of Envoy that ask for it are
//! counted by the values of requests, up to a bound ([`DescriptorSeries`]).

mod descriptors;
mod histogram;
mod process;
mod rates;
mod smockron;
mod text;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tollway_core::{Decision, RuleDecision, Verdict};
use tollway_wire::http::HttpStatus;

use crate::caller::AccessDenied;
use crate::gate::Rejected;
use crate::spans::SpanCounters;

pub(crate) use descriptors::DescriptorSeries;
pub(crate) use histogram::{Latencies, Waits};
pub(crate) use rates::{DecisionCounts, GateRequests, LATENCY_BUCKETS};
pub(crate) use smockron::{DomainCounters, Malformed, SmockronCounters};
pub(crate) use text::{Page, encode};

/// Holds the counters of one process.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) workers: Vec<Arc<WorkerMetrics>>,
    descriptors: Arc<DescriptorSeries>,
    pub(crate) reloads_ok: Counter,
    pub(crate) reloads_failed: Counter,
    pub(crate) spans: SpanCounters,
}

/// Holds the counters of one worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerMetrics {
    limits: Mutex<BTreeMap<Box<str>, Arc<LimitCounters>>>,
    rules: Mutex<BTreeMap<Box<str>, Arc<RuleCounters>>>,
    /// The requests that were bills of several charges and rules, each once. The counters of limits and rules have such
    /// a request several times, so the sum of those is no number of requests.
    pub(crate) bills: DecisionCounters,
    /// The time from a complete request to its answer.
    pub(crate) latency: Latencies,
    /// The responses of the HTTP gate, by the first digit of their status.
    responses: [Counter; 6],
    /// The responses of the admin gate, in the same way.
    admin_responses: [Counter; 6],
    pub(crate) cut_idle: Counter,
    pub(crate) cut_head: Counter,
    pub(crate) cut_body: Counter,
    pub(crate) cut_frame: Counter,
    pub(crate) cut_write: Counter,
    pub(crate) text: TextCounters,
    pub(crate) throttr: ThrottrCounters,
    pub(crate) resp: RespCounters,
    pub(crate) smockron: SmockronCounters,
    pub(crate) rls: RlsCounters,
    pub(crate) access: AccessCounters,
    /// The counters of all workers for values of descriptors.
    pub(crate) descriptors: Arc<DescriptorSeries>,
}

/// Counts the datagrams of the text gate.
#[derive(Debug, Default)]
pub(crate) struct TextCounters {
    pub(crate) datagrams: Counter,
    /// The datagrams that were no request.
    pub(crate) silent: Counter,
    /// Datagrams from outside the trusted networks.
    pub(crate) untrusted: Counter,
    /// Datagrams that a gate with keys rejected, by reason.
    pub(crate) rejected: [Counter; Rejected::ALL.len()],
    pub(crate) over: Counter,
    pub(crate) not_over: Counter,
    /// The answers, of both, that a limit with a name made. It counts them too.
    pub(crate) over_by_name: Counter,
    pub(crate) not_over_by_name: Counter,
    /// The keys that no rule matched.
    pub(crate) unmatched: Counter,
    pub(crate) receive_errors: Counter,
    pub(crate) send_errors: Counter,
}

/// Counts the requests of the Throttr gate.
#[derive(Debug, Default)]
pub(crate) struct ThrottrCounters {
    pub(crate) done: Counter,
    pub(crate) failed: Counter,
    /// The connections that were closed because their bytes were no request.
    pub(crate) unknown_type: Counter,
}

/// Counts the commands of the RESP gate.
#[derive(Debug, Default)]
pub(crate) struct RespCounters {
    pub(crate) commands: Counter,
    /// The commands, of the above, whose reply was an error.
    pub(crate) errors: Counter,
    /// The connections that were closed because their bytes were no command.
    pub(crate) broken: Counter,
}

/// Counts the requests to Envoy's rate limit service.
#[derive(Debug, Default)]
pub(crate) struct RlsCounters {
    pub(crate) ok: Counter,
    pub(crate) over_limit: Counter,
    /// The messages that were no request.
    pub(crate) invalid: Counter,
    /// The requests that were not decided, because the store gave no answer.
    pub(crate) unavailable: Counter,
}

impl RlsCounters {
    fn requests(&self) -> u64 {
        let Self { ok, over_limit, invalid, unavailable } = self;
        [ok, over_limit, invalid, unavailable].into_iter().map(Counter::get).sum()
    }
}

/// Counts the requests of clients that may not make them.
#[derive(Debug, Default)]
pub(crate) struct AccessCounters {
    no_token: Counter,
    unknown_token: Counter,
    missing_scope: Counter,
    /// The token is for other limits, or not for all.
    other_limits: Counter,
}

impl AccessCounters {
    pub(crate) fn denied(&self, denied: &AccessDenied) {
        let counter = match denied {
            AccessDenied::NoToken => &self.no_token,
            AccessDenied::UnknownToken => &self.unknown_token,
            AccessDenied::MissingScope(_) => &self.missing_scope,
            AccessDenied::OtherLimits(_) | AccessDenied::AllLimits => &self.other_limits,
        };
        counter.one();
    }
}

/// Counts decisions by their verdicts.
#[derive(Debug, Default)]
pub(crate) struct DecisionCounters {
    verdicts: [Counter; OUTCOMES.len()],
    /// The decisions, of the above, that were made without the store.
    degraded: Counter,
}

impl DecisionCounters {
    pub(crate) fn count(&self, verdict: Verdict, is_degraded: bool) {
        self.verdicts[outcome(verdict)].one();
        self.degraded.add(u64::from(is_degraded));
    }
}

/// Counts the decisions of one limit on one worker.
#[derive(Debug, Default)]
pub(crate) struct LimitCounters {
    /// The spends of this limit alone.
    spends: [Counter; OUTCOMES.len()],
    /// The spends that were a part of a bill. The request is also in [`WorkerMetrics::bills`].
    in_bills: DecisionCounters,
    checks: [Counter; OUTCOMES.len()],
    refunds: Counter,
    resets: Counter,
    /// The spends of this limit alone that were decided without the store.
    degraded: Counter,
    /// The checks that were decided without the store.
    degraded_checks: Counter,
}

/// The decisions of one limit in a batch, which are counted together: a shared counter costs as much as a decision.
#[derive(Debug, Default)]
pub(crate) struct SpendTally {
    spends: [u64; OUTCOMES.len()],
    degraded: u64,
}

impl SpendTally {
    #[inline]
    pub(crate) fn add(&mut self, decision: &Decision) {
        self.spends[outcome(decision.verdict)] += 1;
        self.degraded += u64::from(decision.degraded);
    }
}

/// Counts the decisions of one rule on one worker.
#[derive(Debug, Default)]
pub(crate) struct RuleCounters {
    /// The decisions of this rule alone.
    alone: DecisionCounters,
    /// The decisions that were a part of a bill. The request is also in [`WorkerMetrics::bills`].
    in_bills: DecisionCounters,
}

/// All verdicts, each with its name as a label.
const OUTCOMES: [(Verdict, &str); 7] = [
    (Verdict::Allow, "allow"),
    (Verdict::Deny, "deny"),
    (Verdict::Unlimited, "unlimited"),
    (Verdict::AllowFull, "allow_full"),
    (Verdict::DenyFull, "deny_full"),
    (Verdict::AllowUnreachable, "allow_unreachable"),
    (Verdict::DenyUnreachable, "deny_unreachable"),
];

/// A counter that only goes up.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Metrics {
    pub(crate) fn new(workers: usize) -> Self {
        let descriptors = Arc::<DescriptorSeries>::default();
        let worker =
            |_| Arc::new(WorkerMetrics { descriptors: Arc::clone(&descriptors), ..WorkerMetrics::default() });
        Self {
            workers: (0..workers).map(worker).collect(),
            descriptors: Arc::clone(&descriptors),
            ..Self::default()
        }
    }
}

impl WorkerMetrics {
    /// Returns the counters of the limit of this name, the same before and after a reload.
    pub(crate) fn limit(&self, name: &str) -> Arc<LimitCounters> {
        let mut limits = self.limits.lock().expect("nobody panics while counting");
        Arc::clone(limits.entry(name.into()).or_default())
    }

    /// Returns the counters of the rule of this name, the same before and after a reload.
    pub(crate) fn rule(&self, name: &str) -> Arc<RuleCounters> {
        let mut rules = self.rules.lock().expect("nobody panics while counting");
        Arc::clone(rules.entry(name.into()).or_default())
    }

    /// Counts a response of the HTTP gate, or of the admin gate.
    pub(crate) fn responded(&self, is_admin: bool, status: HttpStatus) {
        let responses = if is_admin { &self.admin_responses } else { &self.responses };
        responses[usize::from(status.code() / 100).min(responses.len() - 1)].one();
    }
}

impl LimitCounters {
    pub(crate) fn spent(&self, decision: &Decision) {
        self.measured(decision.verdict);
        self.degraded.add(u64::from(decision.degraded));
    }

    /// Counts the decisions of a batch.
    pub(crate) fn spent_all(&self, tally: &SpendTally) {
        for (counter, count) in self.spends.iter().zip(tally.spends).filter(|(_, count)| *count > 0) {
            counter.add(count);
        }
        self.degraded.add(tally.degraded);
    }

    /// Counts the part of a bill. Its request is counted in [`WorkerMetrics::bills`].
    pub(crate) fn spent_in_bill(&self, verdict: Verdict, is_degraded: bool) {
        self.in_bills.count(verdict, is_degraded);
    }

    /// Counts a measured rate, which is a spend without a decision.
    pub(crate) fn measured(&self, verdict: Verdict) {
        self.spends[outcome(verdict)].one();
    }

    pub(crate) fn checked(&self, verdict: Verdict, is_degraded: bool) {
        self.checks[outcome(verdict)].one();
        self.degraded_checks.add(u64::from(is_degraded));
    }

    pub(crate) fn refunded(&self) {
        self.refunds.one();
    }

    pub(crate) fn reset(&self) {
        self.resets.one();
    }
}

impl RuleCounters {
    pub(crate) fn decided(&self, decision: &RuleDecision) {
        self.alone.count(decision.verdict, decision.degraded);
    }

    /// Counts the part of a bill. Its request is counted in [`WorkerMetrics::bills`].
    pub(crate) fn decided_in_bill(&self, verdict: Verdict, is_degraded: bool) {
        self.in_bills.count(verdict, is_degraded);
    }
}

/// Returns the index of a verdict in [`OUTCOMES`].
const fn outcome(verdict: Verdict) -> usize {
    match verdict {
        Verdict::Allow => 0,
        Verdict::Deny => 1,
        Verdict::Unlimited => 2,
        Verdict::AllowFull => 3,
        Verdict::DenyFull => 4,
        Verdict::AllowUnreachable => 5,
        Verdict::DenyUnreachable => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_has_its_place() {
        for (index, (verdict, _)) in OUTCOMES.into_iter().enumerate() {
            assert_eq!(outcome(verdict), index);
        }
    }
}

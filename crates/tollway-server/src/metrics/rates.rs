//! Sums the counters up for the sampler, which computes rates from them.

use std::collections::BTreeMap;

use tollway_wire::http::{LiveCounts, SubjectKind};

use super::histogram::BUCKETS;
use super::{Counter, DecisionCounters, LimitCounters, Metrics, OUTCOMES, RuleCounters, WorkerMetrics};
use crate::gate::smockron::ACCOUNTING;
use crate::watch::{KEYS, kind_of_limit};

/// The number of buckets in the histogram of answers.
pub(crate) const LATENCY_BUCKETS: usize = BUCKETS;

/// The requests since the start.
#[derive(Debug, Default)]
pub(crate) struct DecisionCounts {
    /// All requests, each once.
    pub(crate) totals: LiveCounts,
    /// The requests of each limit, rule and domain. A bill is one for each of its parts.
    pub(crate) by_name: BTreeMap<(SubjectKind, Box<str>), LiveCounts>,
}

/// The requests of each gate.
#[derive(Clone, Debug, Default)]
pub(crate) struct GateRequests(BTreeMap<&'static str, u64>);

impl GateRequests {
    /// Returns the requests of one gate; `None` if they are not counted.
    pub(crate) fn of(&self, gate: &str) -> Option<u64> {
        self.0.get(gate).copied()
    }

    /// Returns what came after `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self(self.0.iter().map(|(gate, now)| (*gate, now - before.of(gate).unwrap_or(0))).collect())
    }
}

impl Metrics {
    /// Returns the requests that limits, rules and domains have decided since the start. Checks are not among them.
    pub(crate) fn decisions(&self) -> DecisionCounts {
        let mut decisions = DecisionCounts::default();
        let DecisionCounts { totals, by_name } = &mut decisions;
        for worker in &self.workers {
            worker.add_decisions(&mut |kind, name, counts| {
                let Requests { alone, in_bills } = counts;
                add(totals, &alone);
                let of_name = by_name.entry((kind, name.into())).or_default();
                add(of_name, &alone);
                add(of_name, &in_bills);
            });
            add(totals, &worker.bills.counts());
        }
        decisions
    }

    /// Returns the number of answers of the HTTP gate and of Envoy's service in each bucket of their histogram.
    pub(crate) fn latency(&self) -> [u64; LATENCY_BUCKETS] {
        let mut counts = [0; LATENCY_BUCKETS];
        for worker in &self.workers {
            counts.iter_mut().zip(worker.latency.counts()).for_each(|(sum, count)| *sum += count);
        }
        counts
    }

    /// Returns the requests of each gate since the start.
    pub(crate) fn gate_requests(&self) -> GateRequests {
        let sum =
            |of: &dyn Fn(&WorkerMetrics) -> u64| self.workers.iter().map(|worker| of(worker)).sum::<u64>();
        GateRequests(BTreeMap::from([
            ("http", sum(&|worker| worker.responses.iter().map(Counter::get).sum())),
            ("admin", sum(&|worker| worker.admin_responses.iter().map(Counter::get).sum())),
            ("text", sum(&|worker| worker.text.datagrams.get())),
            ("throttr", sum(&|worker| worker.throttr.done.get() + worker.throttr.failed.get())),
            ("resp", sum(&|worker| worker.resp.commands.get())),
            ("rls", sum(&|worker| worker.rls.requests())),
            (ACCOUNTING, sum(&|worker| worker.smockron.requests())),
        ]))
    }
}

/// The requests of one limit, rule or domain.
#[derive(Default)]
struct Requests {
    alone: LiveCounts,
    /// Those that were a part of a bill, which is counted as a request elsewhere.
    in_bills: LiveCounts,
}

impl Requests {
    fn alone(alone: LiveCounts) -> Self {
        Self { alone, ..Self::default() }
    }
}

impl WorkerMetrics {
    fn add_decisions(&self, add: &mut impl FnMut(SubjectKind, &str, Requests)) {
        for (name, limit) in self.limits.lock().expect("nobody panics while counting").iter() {
            add(kind_of_limit(name), name, limit.requests());
        }
        for (name, rule) in self.rules.lock().expect("nobody panics while counting").iter() {
            add(SubjectKind::Rule, name, rule.requests());
        }
        for (name, domain) in self.smockron.domains.lock().expect("nobody panics while counting").iter() {
            let denied = domain.delayed.get() + domain.rejected.get();
            let counts = LiveCounts { allowed: domain.accepted.get(), denied, degraded: 0 };
            add(SubjectKind::Domain, name, Requests::alone(counts));
        }
        // The named ones are read first: they never exceed what is counted after them.
        let (over_by_name, not_over_by_name) =
            (self.text.over_by_name.get(), self.text.not_over_by_name.get());
        let counts = LiveCounts {
            allowed: self.text.not_over.get().saturating_sub(not_over_by_name),
            denied: self.text.over.get().saturating_sub(over_by_name),
            degraded: 0,
        };
        add(SubjectKind::Key, KEYS, Requests::alone(counts));
    }
}

impl LimitCounters {
    fn requests(&self) -> Requests {
        Requests { alone: counts(&self.spends, &self.degraded), in_bills: self.in_bills.counts() }
    }
}

impl RuleCounters {
    fn requests(&self) -> Requests {
        Requests { alone: self.alone.counts(), in_bills: self.in_bills.counts() }
    }
}

impl DecisionCounters {
    fn counts(&self) -> LiveCounts {
        counts(&self.verdicts, &self.degraded)
    }
}

fn add(sum: &mut LiveCounts, counts: &LiveCounts) {
    sum.allowed += counts.allowed;
    sum.denied += counts.denied;
    sum.degraded += counts.degraded;
}

fn counts(decisions: &[Counter; OUTCOMES.len()], degraded: &Counter) -> LiveCounts {
    let mut counts = LiveCounts { degraded: degraded.get(), ..LiveCounts::default() };
    for (counter, (verdict, _)) in decisions.iter().zip(OUTCOMES) {
        let sum = if verdict.allowed() { &mut counts.allowed } else { &mut counts.denied };
        *sum += counter.get();
    }
    counts
}

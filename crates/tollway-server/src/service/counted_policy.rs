//! Pairs a policy with the counters of one worker.

use std::sync::Arc;

use tollway::engine::VerbAnswer;
use tollway_core::{Charge, Decider, Domain, Limit, Policy, RuleDecision, RuleRequest, Verb};

use crate::metrics::{DomainCounters, LimitCounters, RuleCounters, WorkerMetrics};

/// Pairs the policy of an engine with one worker's counters of its limits, rules and domains, each in the order of
/// the policy.
pub(crate) struct CountedPolicy {
    policy: Arc<Policy>,
    limits: Vec<Arc<LimitCounters>>,
    inline_limit: Arc<LimitCounters>,
    /// The counters of descriptors that bring numbers of their own.
    descriptor_overrides: Option<Arc<LimitCounters>>,
    rules: Vec<Arc<RuleCounters>>,
    domains: Vec<Arc<DomainCounters>>,
}

impl CountedPolicy {
    pub(super) fn new(policy: Arc<Policy>, metrics: &WorkerMetrics) -> Self {
        let limits = policy.limits().iter().map(|limit| metrics.limit(limit.name())).collect();
        let inline_limit = metrics.limit(policy.inline_limit().limit().name());
        let overrides = policy.descriptors().overrides();
        let descriptor_overrides = overrides.map(|overrides| metrics.limit(overrides.limit().name()));
        let rules = policy.rules().iter().map(|rule| metrics.rule(rule.name())).collect();
        let domains = policy.domains().iter().map(|domain| metrics.smockron.domain(domain.name())).collect();
        Self { policy, limits, inline_limit, descriptor_overrides, rules, domains }
    }

    pub(crate) const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Returns the counters of the limit at this place in the policy.
    pub(super) fn limit_counters(&self, index: usize) -> &LimitCounters {
        &self.limits[index]
    }

    /// Returns the counters of the limit of a descriptor.
    pub(super) fn descriptor_counters(&self, limit: &Limit) -> Option<&LimitCounters> {
        if limit.is_inline() {
            return self.descriptor_overrides.as_deref();
        }
        Some(self.limit_counters(limit.index()))
    }

    /// Counts the decision of the rule that has this name.
    pub(super) fn count_rule(&self, name: &str, decision: &RuleDecision) {
        if let Some(index) = self.policy.rule_index(name) {
            self.rules[index].decided(decision);
        }
    }

    /// Returns the domain that has this name, and its counters.
    pub(super) fn domain(&self, name: &[u8]) -> Option<(&Domain, &DomainCounters)> {
        let index = self.policy.domain_index(name)?;
        Some((&self.policy.domains()[index], &self.domains[index]))
    }

    /// Counts the answer to a verb. A decision counts for the limit or the rule that made it. Checks of rules are not
    /// counted.
    pub(super) fn count(&self, verb: Verb, answer: &VerbAnswer<'_>, rules: &[RuleRequest<'_>]) {
        let counters = |charge: &Charge<'_>| match charge.limit() {
            limit if limit.is_inline() => &self.inline_limit,
            limit => self.limit_counters(limit.index()),
        };
        match answer {
            VerbAnswer::Decision(charges, decision) => match (decision.decider(charges), verb) {
                (Decider::Charge(charge), Verb::Spend) => counters(charge).spent(decision),
                (Decider::Charge(charge), _) => counters(charge).checked(decision),
                (Decider::Rule(index), Verb::Spend) => {
                    self.count_rule(rules[index].rule.text(), &RuleDecision::from(*decision));
                }
                (Decider::Rule(_), _) => {}
            },
            VerbAnswer::Refund(charges, _) => charges.iter().for_each(|charge| counters(charge).refunded()),
            VerbAnswer::Reset(charges) => charges.iter().for_each(|charge| counters(charge).reset()),
        }
    }
}

//! Pairs a policy with the counters of one worker.

use std::sync::Arc;

use tollway_core::{Charge, Domain, Limit, Policy};
use tollway_wire::http::SubjectKind;

use crate::metrics::{DomainCounters, LimitCounters, RuleCounters, WorkerMetrics};
use crate::watch::{KEYS, Subject, Subjects, kind_of_limit};

/// Pairs the policy of an engine with one worker's counters of its limits, rules and domains, each in the order of
/// the policy.
pub(crate) struct CountedPolicy {
    policy: Arc<Policy>,
    limits: Vec<Counted<LimitCounters>>,
    inline_limit: Counted<LimitCounters>,
    /// The counters of descriptors that bring numbers of their own.
    descriptor_overrides: Option<Counted<LimitCounters>>,
    rules: Vec<Counted<RuleCounters>>,
    domains: Vec<Counted<DomainCounters>>,
    /// The rates of keys, which have no names.
    keys: Subject,
}

/// The counters of a limit, a rule or a domain, and the number under which its ids are watched.
pub(super) struct Counted<T> {
    pub(super) counters: Arc<T>,
    pub(super) subject: Subject,
}

impl CountedPolicy {
    pub(super) fn new(policy: Arc<Policy>, metrics: &WorkerMetrics, subjects: &Subjects) -> Self {
        let limit = |limit: &Limit| Counted {
            counters: metrics.limit(limit.name()),
            subject: subjects.number(kind_of_limit(limit.name()), limit.name()),
        };
        let limits = policy.limits().iter().map(limit).collect();
        let inline_limit = limit(policy.inline_limit().limit());
        let overrides = policy.descriptors().overrides();
        let descriptor_overrides = overrides.map(|overrides| limit(overrides.limit()));
        let rules = policy.rules().iter().map(|rule| Counted {
            counters: metrics.rule(rule.name()),
            subject: subjects.number(SubjectKind::Rule, rule.name()),
        });
        let domains = policy.domains().iter().map(|domain| Counted {
            counters: metrics.smockron.domain(domain.name()),
            subject: subjects.number(SubjectKind::Domain, domain.name()),
        });
        let (rules, domains) = (rules.collect(), domains.collect());
        let keys = subjects.number(SubjectKind::Key, KEYS);
        Self { policy, limits, inline_limit, descriptor_overrides, rules, domains, keys }
    }

    pub(crate) const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Returns the counters of the limit at this place in the policy.
    pub(super) fn limit(&self, index: usize) -> &Counted<LimitCounters> {
        &self.limits[index]
    }

    pub(super) const fn inline_limit(&self) -> &Counted<LimitCounters> {
        &self.inline_limit
    }

    /// Returns the counters of the limit of a charge.
    #[inline]
    pub(super) fn counters(&self, charge: &Charge<'_>) -> &Counted<LimitCounters> {
        match charge.limit() {
            limit if limit.is_inline() => &self.inline_limit,
            limit => self.limit(limit.index()),
        }
    }

    /// Returns the counters of the limit of a descriptor.
    pub(super) fn descriptor_counters(&self, limit: &Limit) -> Option<&Counted<LimitCounters>> {
        if limit.is_inline() {
            return self.descriptor_overrides.as_ref();
        }
        Some(self.limit(limit.index()))
    }

    /// Returns the counters of the rule that has this name.
    pub(super) fn rule(&self, name: &str) -> Option<&Counted<RuleCounters>> {
        self.policy.rule_index(name).map(|index| &self.rules[index])
    }

    /// Returns the domain that has this name, and its counters.
    pub(super) fn domain(&self, name: &[u8]) -> Option<(&Domain, &Counted<DomainCounters>)> {
        let index = self.policy.domain_index(name)?;
        Some((&self.policy.domains()[index], &self.domains[index]))
    }

    /// Returns the number under which the rates of keys are watched.
    pub(super) const fn keys(&self) -> Subject {
        self.keys
    }
}

//! From what is asked to what is answered, and counted on the way.
//!
//! The one place that turns commands into bills, whatever protocol they came by. It awaits the limiter and nothing else.

mod look;
mod rules;
mod smockron;
mod text;
mod throttr;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use thiserror::Error;
use tollway::engine::Engine;
use tollway::store::StoreError;
use tollway_core::{
    Bill, BillError, Charge, ChargeError, Decision, Domain, Policy, Refund, RuleLookupError, Verb,
};
use tollway_wire::http::{ChargeRequest, HttpCommand};

pub(crate) use self::smockron::{SmockronService, control_message};
pub(crate) use self::text::TextService;
pub(crate) use self::throttr::ThrottrService;
use crate::metrics::{DomainCounters, LimitCounters, RuleCounters, WorkerMetrics};

/// One worker's way to the limiter.
pub(crate) struct Service {
    limiter: Arc<Engine>,
    metrics: Arc<WorkerMetrics>,
    in_force: ArcSwap<InForce>,
}

/// A policy and the counters of its limits, rules and domains.
pub(crate) struct InForce {
    policy: Arc<Policy>,
    /// By the limits' fingerprints, in order.
    counters: Vec<(u64, Arc<LimitCounters>)>,
    rules: HashMap<Box<str>, Arc<RuleCounters>>,
    /// By the domains' names, with their places in the policy.
    domains: HashMap<Box<[u8]>, (usize, Arc<DomainCounters>)>,
}

/// What a command came to.
pub(crate) enum Reply<'a> {
    Decision(Charges<'a>, Decision),
    Refund(Charges<'a>, Refund),
    Reset,
}

/// One charge, as nearly always, or several. One needs no allocation.
pub(crate) enum Charges<'a> {
    One(Charge<'a>),
    Many(Vec<Charge<'a>>),
}

/// Why a command came to nothing.
#[derive(Debug, Error)]
pub(crate) enum CallError {
    #[error(transparent)]
    Charge(#[from] ChargeError),
    #[error(transparent)]
    Bill(#[from] BillError),
    #[error(transparent)]
    Rule(#[from] RuleLookupError),
    /// The store gave no answer, and nothing can be answered in its place.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Service {
    pub(crate) fn new(limiter: Arc<Engine>, metrics: Arc<WorkerMetrics>) -> Self {
        let in_force = ArcSwap::from_pointee(InForce::new(limiter.policy(), &metrics));
        Self { limiter, metrics, in_force }
    }

    /// The policy for the requests in hand. Taken once for all that arrived together.
    pub(crate) fn in_force(&self) -> Arc<InForce> {
        let policy = self.limiter.policy();
        let known = self.in_force.load();
        if Arc::ptr_eq(&known.policy, &policy) {
            return Arc::clone(&known);
        }
        let fresh = Arc::new(InForce::new(policy, &self.metrics));
        self.in_force.store(Arc::clone(&fresh));
        fresh
    }

    /// Does what `command` says.
    pub(crate) async fn call<'a>(
        &self,
        in_force: &'a InForce,
        command: &'a HttpCommand<'_>,
    ) -> Result<Reply<'a>, CallError> {
        match command.verb {
            Verb::Spend => {
                let (charges, decision) = self.spend(in_force, command).await?;
                Ok(Reply::Decision(charges, decision))
            }
            Verb::Check => self.check(in_force, command).await,
            Verb::Refund => self.refund(in_force, command).await,
            Verb::Reset => self.reset(in_force, command).await,
        }
    }

    /// Takes the charges of `command`, all of them or none.
    pub(crate) async fn spend<'a>(
        &self,
        in_force: &'a InForce,
        command: &'a HttpCommand<'_>,
    ) -> Result<(Charges<'a>, Decision), CallError> {
        let charges = in_force.charges(command)?;
        let decision = match &charges {
            Charges::One(charge) => self.limiter.charge(charge).await,
            Charges::Many(charges) => self.limiter.settle(&[Bill::new(charges)?]).await[0],
        };
        in_force.of(&charges[decision.charge]).spent(&decision);
        Ok((charges, decision))
    }

    async fn check<'a>(
        &self,
        in_force: &'a InForce,
        command: &'a HttpCommand<'_>,
    ) -> Result<Reply<'a>, CallError> {
        let charges = in_force.charges(command)?;
        let decision = self.limiter.check_bills(&[Bill::new(&charges)?]).await[0];
        in_force.of(&charges[decision.charge]).checked(&decision);
        Ok(Reply::Decision(charges, decision))
    }

    async fn refund<'a>(
        &self,
        in_force: &'a InForce,
        command: &'a HttpCommand<'_>,
    ) -> Result<Reply<'a>, CallError> {
        let charges = in_force.charges(command)?;
        Bill::new(&charges)?; // The same bucket twice would be given back twice.
        let refund = self.limiter.refund_charges(&charges).await?;
        charges.iter().for_each(|charge| in_force.of(charge).refunded());
        Ok(Reply::Refund(charges, refund))
    }

    async fn reset<'a>(
        &self,
        in_force: &'a InForce,
        command: &'a HttpCommand<'_>,
    ) -> Result<Reply<'a>, CallError> {
        let charges = in_force.charges(command)?;
        Bill::new(&charges)?;
        self.limiter.reset_charges(&charges).await?;
        charges.iter().for_each(|charge| in_force.of(charge).reset());
        Ok(Reply::Reset)
    }
}

impl InForce {
    fn new(policy: Arc<Policy>, metrics: &WorkerMetrics) -> Self {
        let of_limit = |limit: &tollway_core::Limit| (limit.fingerprint(), metrics.limit(limit.name()));
        let mut counters: Vec<_> = policy.limits().iter().map(of_limit).collect();
        counters.sort_unstable_by_key(|(fingerprint, _)| *fingerprint);
        let of_rule = |rule: &tollway_core::NamedRule| (rule.name().into(), metrics.rule(rule.name()));
        let rules = policy.rules().iter().map(of_rule).collect();
        let domains = policy.domains().iter().enumerate().map(|(index, domain)| {
            (domain.name().as_bytes().into(), (index, metrics.smockron.domain(domain.name())))
        });
        let domains = domains.collect();
        Self { policy, counters, rules, domains }
    }

    fn charges<'a>(&'a self, command: &'a HttpCommand<'_>) -> Result<Charges<'a>, ChargeError> {
        match command.charges() {
            [ask] => self.charge(command.verb, ask).map(Charges::One),
            asks => asks
                .iter()
                .map(|ask| self.charge(command.verb, ask))
                .collect::<Result<_, _>>()
                .map(Charges::Many),
        }
    }

    fn charge<'a>(&'a self, verb: Verb, ask: &'a ChargeRequest<'_>) -> Result<Charge<'a>, ChargeError> {
        let charge = self.policy.charge(&ask.limit, &ask.id, ask.cost)?.with_kind(ask.kind);
        if verb == Verb::Refund { charge.refundable() } else { Ok(charge) }
    }

    fn domain(&self, name: &[u8]) -> Option<(&Domain, &DomainCounters)> {
        let (index, counters) = self.domains.get(name)?;
        Some((&self.policy.domains()[*index], counters))
    }

    fn of_rule(&self, name: &str) -> &RuleCounters {
        self.rules.get(name).expect("the rule is of this policy, and so are the counters")
    }

    fn of(&self, charge: &Charge<'_>) -> &LimitCounters {
        let fingerprint = charge.limit().fingerprint();
        let index = self.counters.binary_search_by_key(&fingerprint, |(fingerprint, _)| *fingerprint);
        &self.counters[index.expect("the charge is of this policy, and so are the counters")].1
    }
}

impl<'a> Deref for Charges<'a> {
    type Target = [Charge<'a>];

    fn deref(&self) -> &[Charge<'a>] {
        match self {
            Self::One(charge) => std::slice::from_ref(charge),
            Self::Many(charges) => charges,
        }
    }
}

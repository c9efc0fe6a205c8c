//! A view of the engine for threads that may sleep until Redis has answered.

use tollway_core::algorithm::{QuotaCommand, QuotaOutcome, RateReading};
use tollway_core::{
    Bill, Charge, ChargeRequest, Decision, Policy, Refund, RuleBill, RuleDecision, RuleRequest, Timestamp,
    Verb,
};

use super::{Engine, RuleInspection, VerbAnswer};
use crate::block_on::block_on;
use crate::limiter::LimiterError;
use crate::rates::RateUpdate;
use crate::reports::Report;
use crate::store::StoreError;

/// Offers the engine's calls to threads without a runtime. In memory none of them waits; over Redis each may put the
/// calling thread to sleep, for the store's deadline at most.
///
/// Inside an async task, that would stop all other tasks of the thread: await the calls of [`Engine`] there.
#[derive(Clone, Debug)]
pub struct BlockingEngine(Engine);

impl BlockingEngine {
    pub(super) fn new(engine: &Engine) -> Self {
        // A thread that sleeps until the answer comes may as well read it from the socket itself: being woken by the
        // store's own thread takes longer than Redis does.
        let redis = engine.redis.as_ref().map(|redis| redis.for_blocking_callers());
        Self(Engine { redis, ..engine.clone() })
    }

    /// Returns the engine whose calls may block the thread that polls them. It must not get out of this crate.
    pub(crate) const fn engine(&self) -> &Engine {
        &self.0
    }

    /// Performs a verb on the charges and the rules that are requested, under a policy that the caller holds. A refund
    /// and a reset have no rules.
    pub fn perform<'a>(
        &self,
        policy: &'a Policy,
        verb: Verb,
        requests: &'a [ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<VerbAnswer<'a>, LimiterError> {
        block_on(self.0.perform(policy, verb, requests, rules))
    }

    /// Settles a bill of one charge.
    #[inline]
    pub fn charge(&self, charge: &Charge<'_>) -> Decision {
        self.0.charge_now(charge).unwrap_or_else(|| block_on(self.0.charge(charge)))
    }

    /// Settles each bill on its own, all of it or nothing. The decisions come in the order of the bills.
    #[must_use]
    pub fn settle(&self, bills: &[Bill<'_>]) -> Vec<Decision> {
        block_on(self.0.settle(bills))
    }

    /// Returns the decisions that [`settle`](Self::settle) would make. Takes nothing.
    #[must_use]
    pub fn check_bills(&self, bills: &[Bill<'_>]) -> Vec<Decision> {
        block_on(self.0.check_bills(bills))
    }

    /// Adds one request to each rate, in order, and appends a reading for each.
    pub fn update_rates(&self, updates: &[RateUpdate<'_>], readings: &mut Vec<RateReading>) {
        block_on(self.0.update_rates(updates, readings));
    }

    /// Runs quota commands one after another, and appends an outcome for each.
    pub fn run_quota_commands(&self, commands: &[QuotaCommand<'_>], outcomes: &mut Vec<QuotaOutcome>) {
        block_on(self.0.run_quota_commands(commands, outcomes));
    }

    /// Decides by a rule. A request that is allowed is entered in the rule's logs.
    #[inline]
    pub fn resolve(&self, bill: &RuleBill<'_>) -> RuleDecision {
        self.0.resolve_now(bill).unwrap_or_else(|| block_on(self.0.resolve(bill)))
    }

    /// Returns the time until which each rate of a rule is reached. Changes nothing.
    pub fn inspect_rule(&self, bill: &RuleBill<'_>) -> Result<RuleInspection, StoreError> {
        block_on(self.0.inspect_rule(bill))
    }

    /// Records reports of gatekeepers, in order. Appends the time from which each identifier's next request is allowed;
    /// `None` is now.
    pub fn record_reports(&self, reports: &[Report<'_>], next_allowed_at: &mut Vec<Option<Timestamp>>) {
        block_on(self.0.record_reports(reports, next_allowed_at));
    }

    /// Gives back each of the charges, and returns what all refunds come to.
    pub fn refund_charges(&self, charges: &[Charge<'_>]) -> Result<Refund, StoreError> {
        block_on(self.0.refund_charges(charges))
    }

    /// Forgets the buckets of the charges.
    pub fn reset_charges(&self, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        block_on(self.0.reset_charges(charges))
    }
}

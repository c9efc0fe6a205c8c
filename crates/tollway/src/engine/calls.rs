//! The engine's calls: settle bills, update rates, run quota commands, resolve rules, record reports.

use tollway_core::algorithm::{QuotaCommand, QuotaOutcome, RateReading};
use tollway_core::{
    Bill, Charge, ChargeError, Decision, Domain, Limit, Refund, RuleBill, RuleDecision, Timestamp,
};

use super::{Engine, Inspection, RuleInspection, failure};
use crate::limiter::LimiterError;
use crate::rates::RateUpdate;
use crate::reports::{Delays, Report};
use crate::store::{BucketPage, StoreError};

impl Engine {
    /// Settles a bill of one charge.
    #[inline]
    pub async fn charge(&self, charge: &Charge<'_>) -> Decision {
        match &self.redis {
            None => self.kept(self.charge_in_memory(charge)).await,
            Some(_) => self.settle_one(&Bill::one(charge)).await,
        }
    }

    /// Settles one bill, all of it or nothing.
    #[inline]
    pub async fn settle_one(&self, bill: &Bill<'_>) -> Decision {
        match &self.redis {
            None => self.kept(self.parts.memory.settle_one(bill, || self.clock.now())).await,
            Some(_) => self.settle(std::slice::from_ref(bill)).await[0],
        }
    }

    /// Returns an answer when what it decided is kept.
    #[inline]
    async fn kept<T>(&self, answer: T) -> T {
        self.until_kept().await;
        answer
    }

    /// Settles a bill of one charge at once, or returns `None` if its answer [is awaited](Self::is_awaited).
    #[inline]
    #[must_use]
    pub fn charge_now(&self, charge: &Charge<'_>) -> Option<Decision> {
        (!self.is_awaited()).then(|| self.charge_in_memory(charge))
    }

    /// Spends by name at once, or returns `None` if its answer [is awaited](Self::is_awaited).
    ///
    /// Cheaper than [`policy`](Self::policy) and [`charge_now`](Self::charge_now): it only borrows the policy, where a
    /// counted reference to it would be one cache line that all threads write to.
    #[must_use]
    #[inline]
    pub fn spend_now(&self, limit: &str, id: &[u8], cost: u64) -> Option<Result<Decision, ChargeError>> {
        if self.is_awaited() {
            return None;
        }
        Some(self.current_policy().charge(limit, id, cost).map(|charge| self.charge_in_memory(&charge)))
    }

    #[inline]
    pub(crate) fn charge_in_memory(&self, charge: &Charge<'_>) -> Decision {
        self.parts.memory.charge(charge, || self.clock.now())
    }

    #[inline]
    pub(crate) fn spend_in_memory(
        &self,
        limit: &Limit,
        id: &[u8],
        cost: u64,
    ) -> Result<Decision, ChargeError> {
        self.parts.memory.spend(limit, id, cost, || self.clock.now())
    }

    #[inline]
    pub(crate) fn spend_many_in_memory(
        &self,
        limit: &Limit,
        ids: &[impl AsRef<[u8]>],
        cost: u64,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), ChargeError> {
        self.parts.memory.spend_many(limit, ids, cost, || self.clock.now(), decisions)
    }

    /// Settles each bill on its own, all of it or nothing. The decisions come in the order of the bills.
    #[must_use]
    pub async fn settle(&self, bills: &[Bill<'_>]) -> Vec<Decision> {
        let mut decisions = Vec::with_capacity(bills.len());
        self.settle_into(bills, &mut decisions).await;
        decisions
    }

    /// Settles each bill as [`settle`](Self::settle) does, and appends the decisions to a vector that the caller
    /// reuses.
    #[inline]
    pub async fn settle_into(&self, bills: &[Bill<'_>], decisions: &mut Vec<Decision>) {
        let Some(redis) = &self.redis else {
            self.parts.memory.settle(bills, self.clock.now(), decisions);
            return self.until_kept().await;
        };
        let answers = redis.settle(bills, self.clock.manual_time()).await;
        let answers = bills.iter().zip(answers);
        let failed = |bill| failure::settle(bill, &self.parts.memory, self.clock.now());
        decisions.extend(answers.map(|(bill, answer)| answer.unwrap_or_else(|_| failed(bill))));
    }

    /// Settles one bill, and appends the decision about each of its charges. If the bill is denied, they show what is
    /// left of the charges that would have fitted.
    pub async fn settle_each(&self, bill: &Bill<'_>, each: &mut Vec<Decision>) -> Decision {
        let Some(redis) = &self.redis else {
            let decision = self.parts.memory.settle_each(bill, self.clock.now(), each);
            return self.kept(decision).await;
        };
        match redis.settle_each(bill, self.clock.manual_time()).await {
            Ok((decision, decided)) => {
                each.extend(decided);
                decision
            }
            Err(_) => failure::settle_each(bill, &self.parts.memory, self.clock.now(), each),
        }
    }

    /// Returns the decisions that [`settle`](Self::settle) would make. Takes nothing.
    #[must_use]
    pub async fn check_bills(&self, bills: &[Bill<'_>]) -> Vec<Decision> {
        let Some(redis) = &self.redis else { return self.check_in_memory(bills) };
        let answers = redis.check(bills, self.clock.manual_time()).await;
        let answers = bills.iter().zip(answers);
        let failed = |bill| failure::check(bill, &self.parts.memory, self.clock.now());
        answers.map(|(bill, answer)| answer.unwrap_or_else(|_| failed(bill))).collect()
    }

    pub(crate) fn check_in_memory(&self, bills: &[Bill<'_>]) -> Vec<Decision> {
        let mut decisions = Vec::with_capacity(bills.len());
        self.parts.memory.check(bills, self.clock.now(), &mut decisions);
        decisions
    }

    /// Adds one request to each rate, in order, and appends a reading for each.
    #[inline]
    pub async fn update_rates(&self, updates: &[RateUpdate<'_>], readings: &mut Vec<RateReading>) {
        let Some(redis) = &self.redis else {
            self.parts.memory.update_rates(updates, self.clock.now(), readings);
            return self.until_kept().await;
        };
        let answers = redis.update_rates(updates, self.clock.manual_time()).await;
        let failed = |update| failure::update_rate(update, &self.parts.memory, self.clock.now());
        let answers = updates.iter().zip(answers);
        readings.extend(answers.map(|(update, answer)| answer.unwrap_or_else(|_| failed(update))));
    }

    /// Runs quota commands one after another, and appends an outcome for each. A command that the store did not answer
    /// has failed.
    #[inline]
    pub async fn run_quota_commands(&self, commands: &[QuotaCommand<'_>], outcomes: &mut Vec<QuotaOutcome>) {
        let Some(redis) = &self.redis else {
            self.parts.memory.run_quota_commands(commands, self.clock.now(), outcomes);
            return self.until_kept().await;
        };
        let answers = redis.run_quota_commands(commands, self.clock.manual_time()).await;
        outcomes.extend(answers.into_iter().map(|answer| answer.unwrap_or(QuotaOutcome::Failed)));
    }

    /// Decides by a rule. A request that is allowed is entered in the rule's logs.
    #[inline]
    pub async fn resolve(&self, bill: &RuleBill<'_>) -> RuleDecision {
        let Some(redis) = &self.redis else { return self.kept(self.resolve_in_memory(bill)).await };
        let answer = redis.resolve(bill, self.clock.manual_time()).await;
        answer.unwrap_or_else(|_| failure::resolve(bill, &self.parts.memory, self.clock.now()))
    }

    /// Decides by a rule at once, or returns `None` if its answer [is awaited](Self::is_awaited).
    #[inline]
    #[must_use]
    pub fn resolve_now(&self, bill: &RuleBill<'_>) -> Option<RuleDecision> {
        (!self.is_awaited()).then(|| self.resolve_in_memory(bill))
    }

    /// Returns the number of requests that a rule would still allow at once; `None` if nothing limits them, or if the
    /// store is shared, which does not count them.
    #[must_use]
    pub fn remaining_now(&self, bill: &RuleBill<'_>) -> Option<usize> {
        if self.is_shared() { None } else { self.parts.memory.remaining(bill, self.clock.now()) }
    }

    #[inline]
    fn resolve_in_memory(&self, bill: &RuleBill<'_>) -> RuleDecision {
        self.parts.memory.resolve(bill, || self.clock.now())
    }

    /// Records reports of gatekeepers, in order. Appends the time from which each identifier's next request is allowed;
    /// `None` is now. Where the store gives no answer, nobody is delayed.
    #[inline]
    pub async fn record_reports(&self, reports: &[Report<'_>], next_allowed_at: &mut Vec<Option<Timestamp>>) {
        let Some(redis) = &self.redis else {
            self.parts.memory.record_reports(reports, self.clock.now(), next_allowed_at);
            return self.until_kept().await;
        };
        let answers = redis.record_reports(reports, self.clock.manual_time()).await;
        next_allowed_at.extend(answers.into_iter().map(|answer| answer.unwrap_or_default()));
    }

    /// Returns a page of a domain's identifiers that are delayed now, from where an earlier page ended. The memory
    /// store keeps no identifiers, so there the page is empty.
    pub async fn delays(&self, domain: &Domain, from: u64, count: usize) -> Result<Delays, StoreError> {
        match &self.redis {
            None => Ok(Delays::default()),
            Some(redis) => redis.delays(domain, from, count, self.clock.manual_time()).await,
        }
    }

    /// Returns the time until which each rate of a rule is reached. Changes nothing.
    pub async fn inspect_rule(&self, bill: &RuleBill<'_>) -> Result<RuleInspection, StoreError> {
        match &self.redis {
            None => {
                Ok(RuleInspection { at: self.clock.now(), reached_until: self.parts.memory.examine(bill) })
            }
            Some(redis) => redis.examine(bill, self.clock.manual_time()).await,
        }
    }

    /// Gives back each of the charges, and returns what all refunds come to.
    pub async fn refund_charges(&self, charges: &[Charge<'_>]) -> Result<Refund, StoreError> {
        let Some(redis) = &self.redis else { return Ok(self.kept(self.refund_in_memory(charges)).await) };
        let refunds = redis.refund(charges, self.clock.manual_time()).await;
        let in_all = refunds.into_iter().reduce(|one, other| Ok(one?.and(other?)));
        in_all.unwrap_or(Ok(Refund::UNLIMITED))
    }

    pub(crate) fn refund_in_memory(&self, charges: &[Charge<'_>]) -> Refund {
        let now = self.clock.now();
        let refunds = charges.iter().map(|charge| self.parts.memory.refund(charge, now));
        refunds.reduce(Refund::and).unwrap_or(Refund::UNLIMITED)
    }

    /// Forgets the buckets of the charges.
    pub async fn reset_charges(&self, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        match &self.redis {
            None => {
                self.reset_in_memory(charges);
                self.kept(Ok(())).await
            }
            Some(redis) => {
                charges.iter().for_each(|charge| failure::reset(charge, &self.parts.memory));
                redis.reset(charges).await
            }
        }
    }

    pub(crate) fn reset_in_memory(&self, charges: &[Charge<'_>]) {
        charges.iter().for_each(|charge| self.parts.memory.reset(charge));
    }

    /// Returns the state of the bucket of `id` under `limit`. Changes nothing.
    pub async fn inspect(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<Inspection, LimiterError> {
        let policy = self.policy();
        let charge = policy.bucket(limit, id.as_ref())?;
        let Some(redis) = &self.redis else { return Ok(self.inspect_in_memory(&charge)) };
        let reading = redis.inspect(&charge, self.clock.manual_time()).await?;
        Ok(Inspection::new(&charge, reading))
    }

    pub(crate) fn inspect_in_memory(&self, charge: &Charge<'_>) -> Inspection {
        Inspection::new(charge, self.parts.memory.inspect(charge, self.clock.now()))
    }

    /// Returns a page of the buckets that exist, of one limit or of all, from where an earlier page ended. Returns
    /// `None` in memory, which keeps no ids.
    pub async fn keys(
        &self,
        limit: Option<&str>,
        from: u64,
        count: usize,
    ) -> Result<Option<BucketPage>, LimiterError> {
        let policy = self.policy();
        let limit = limit.map(|name| policy.bucket_limit(name)).transpose()?;
        let Some(redis) = &self.redis else { return Ok(None) };
        Ok(Some(redis.scan(limit, from, count).await?))
    }

    /// Returns the number of buckets in the store, or 0 if a shared store gives no answer.
    pub async fn size(&self) -> u64 {
        match &self.redis {
            None => self.parts.memory.stats().buckets as u64,
            Some(redis) => redis.size().await.unwrap_or_default(),
        }
    }
}

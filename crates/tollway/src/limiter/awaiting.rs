//! The same questions, for who must not sleep.
//!
//! ```
//! # tollway::block_on(async {
//! let limiter = tollway::Limiter::from_yaml("limits: { Login: { burst: 5, count: 5, period: 1m } }")?;
//! assert!(limiter.spend_async("Login", "alice", 1).await?.allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! Any runtime will do, or none: what a shared store answers comes from a thread of its own. In memory these are ready at
//! once. Dropping one that is under way takes nothing back: the store may have been asked already.

use tollway_core::algorithm::{QuotaCommand, QuotaOutcome, RateReading};
use tollway_core::{
    Algorithm, Bill, Charge, ChargeError, Decision, Domain, Refund, RuleBill, RuleDecision, Timestamp,
};

use super::{AskError, Limiter, failure};
use crate::keys::RateUpdate;
use crate::reports::{Delays, Report};
use crate::store::BucketState;
use crate::store::redis::{Page, StoreError};

/// One bucket, for whoever wants to look.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// Its readable key, `NewOrdersPerAccount:12345678`.
    pub bucket: String,
    /// What the id is held to; `None` is no limit at all.
    pub algorithm: Option<Algorithm>,
    /// What is remembered of it; `None` if nothing.
    pub held: Option<BucketState>,
    /// What a request of no cost would be answered.
    pub decision: Decision,
    /// When this was so, by the clock of the store.
    pub at: Timestamp,
}

/// A rule's rates, for whoever wants to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleInspection {
    /// When this was so, by the clock of the store.
    pub at: Timestamp,
    /// Until when each rate of the rule is reached, in their order. A moment that has passed is one at which it is not;
    /// `u64::MAX` nanoseconds is for ever.
    pub reached_until: Vec<Timestamp>,
}

impl Limiter {
    /// Takes `cost` from the bucket of `id` under `limit`, if it fits.
    pub async fn spend_async(
        &self,
        limit: &str,
        id: impl AsRef<[u8]>,
        cost: u64,
    ) -> Result<Decision, ChargeError> {
        let policy = self.policy();
        Ok(self.charge_async(&policy.charge(limit, id.as_ref(), cost)?).await)
    }

    /// The decision [`spend_async`](Self::spend_async) would make, taking nothing.
    pub async fn check_async(
        &self,
        limit: &str,
        id: impl AsRef<[u8]>,
        cost: u64,
    ) -> Result<Decision, ChargeError> {
        let policy = self.policy();
        let charge = policy.charge(limit, id.as_ref(), cost)?;
        Ok(self.check_bills_async(&[Bill::one(&charge)]).await[0])
    }

    /// Gives back `cost`, up to a full bucket.
    pub async fn refund_async(
        &self,
        limit: &str,
        id: impl AsRef<[u8]>,
        cost: u64,
    ) -> Result<Refund, AskError> {
        let policy = self.policy();
        let charge = policy.charge(limit, id.as_ref(), cost)?.refundable()?;
        Ok(self.refund_charges_async(std::slice::from_ref(&charge)).await?)
    }

    /// Forgets the bucket of `id` under `limit`.
    pub async fn reset_async(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<(), AskError> {
        let policy = self.policy();
        Ok(self.reset_charges_async(&[policy.charge(limit, id.as_ref(), 0)?]).await?)
    }

    /// Settles a bill of one charge.
    #[inline]
    pub async fn charge_async(&self, charge: &Charge<'_>) -> Decision {
        match &self.shared {
            None => self.memory.charge(charge, || self.clock.now()),
            Some(_) => self.settle_async(&[Bill::one(charge)]).await[0],
        }
    }

    /// Settles each bill on its own, all of it or nothing. The decisions come in the order of the bills.
    pub async fn settle_async(&self, bills: &[Bill<'_>]) -> Vec<Decision> {
        let mut decisions = Vec::with_capacity(bills.len());
        self.settle_into(bills, &mut decisions).await;
        decisions
    }

    /// The same, for who has room for the decisions already. Appends one each.
    #[inline]
    pub async fn settle_into(&self, bills: &[Bill<'_>], decisions: &mut Vec<Decision>) {
        let Some(redis) = &self.shared else {
            return self.memory.settle(bills, self.clock.now(), decisions);
        };
        let answers = redis.settle(bills, self.clock.manual_time()).await;
        let answers = bills.iter().zip(answers);
        let failed = |bill| failure::settle(bill, &self.memory, self.clock.now());
        decisions.extend(answers.map(|(bill, answer)| answer.unwrap_or_else(|_| failed(bill))));
    }

    /// The decisions [`settle_async`](Self::settle_async) would make, taking nothing.
    pub async fn check_bills_async(&self, bills: &[Bill<'_>]) -> Vec<Decision> {
        let Some(redis) = &self.shared else {
            let mut decisions = Vec::with_capacity(bills.len());
            self.memory.check(bills, self.clock.now(), &mut decisions);
            return decisions;
        };
        let answers = redis.check(bills, self.clock.manual_time()).await;
        let answers = bills.iter().zip(answers);
        let failed = |bill| failure::check(bill, &self.memory, self.clock.now());
        answers.map(|(bill, answer)| answer.unwrap_or_else(|_| failed(bill))).collect()
    }

    /// Measures each rate with one more request in it, in order. Appends a measure each.
    #[inline]
    pub async fn update_rates_async(&self, updates: &[RateUpdate<'_>], readings: &mut Vec<RateReading>) {
        let Some(redis) = &self.shared else {
            return self.memory.update_rates(updates, self.clock.now(), readings);
        };
        let answers = redis.update_rates(updates, self.clock.manual_time()).await;
        for (update, answer) in updates.iter().zip(answers) {
            readings.push(
                answer.unwrap_or_else(|_| failure::update_rate(update, &self.memory, self.clock.now())),
            );
        }
    }

    /// Does what each order says, one after another. Appends an outcome each. Where the store gives no answer, it failed.
    #[inline]
    pub async fn run_quota_commands_async(
        &self,
        commands: &[QuotaCommand<'_>],
        outcomes: &mut Vec<QuotaOutcome>,
    ) {
        let Some(redis) = &self.shared else {
            return self.memory.run_quota_commands(commands, self.clock.now(), outcomes);
        };
        let answers = redis.run_quota_commands(commands, self.clock.manual_time()).await;
        outcomes.extend(answers.into_iter().map(|answer| answer.unwrap_or(QuotaOutcome::Failed)));
    }

    /// Is the limit of a rule reached? If not, the request is entered in its logs.
    #[inline]
    pub async fn resolve_async(&self, bill: &RuleBill<'_>) -> RuleDecision {
        let Some(redis) = &self.shared else { return self.memory.resolve(bill, || self.clock.now()) };
        let answer = redis.resolve(bill, self.clock.manual_time()).await;
        answer.unwrap_or_else(|_| failure::resolve(bill, &self.memory, self.clock.now()))
    }

    /// Enters what gatekeepers report, in order. Appends from when on the next request of each identifier is next_allowed_at; `None`
    /// is now. Where the store gives no answer nobody is delayed.
    #[inline]
    pub async fn record_reports_async(
        &self,
        reports: &[Report<'_>],
        next_allowed_at: &mut Vec<Option<Timestamp>>,
    ) {
        let Some(redis) = &self.shared else {
            return self.memory.record_reports(reports, self.clock.now(), next_allowed_at);
        };
        let answers = redis.record_reports(reports, self.clock.manual_time()).await;
        next_allowed_at.extend(answers.into_iter().map(|answer| answer.unwrap_or_default()));
    }

    /// Some of those of a domain who are still to wait, from where an earlier page ended. None in memory, which keeps no
    /// names.
    pub async fn delays_async(&self, domain: &Domain, from: u64, count: usize) -> Result<Delays, StoreError> {
        match &self.shared {
            None => Ok(Delays::default()),
            Some(redis) => redis.delays(domain, from, count, self.clock.manual_time()).await,
        }
    }

    /// Until when each rate of a rule is reached, and changes nothing.
    pub async fn examine_async(&self, bill: &RuleBill<'_>) -> Result<RuleInspection, StoreError> {
        match &self.shared {
            None => Ok(RuleInspection { at: self.clock.now(), reached_until: self.memory.examine(bill) }),
            Some(redis) => redis.examine(bill, self.clock.manual_time()).await,
        }
    }

    /// Gives back each of the charges, and says what it came to in all.
    pub async fn refund_charges_async(&self, charges: &[Charge<'_>]) -> Result<Refund, StoreError> {
        let refunds = match &self.shared {
            None => {
                let now = self.clock.now();
                charges.iter().map(|charge| Ok(self.memory.refund(charge, now))).collect()
            }
            Some(redis) => redis.refund(charges, self.clock.manual_time()).await,
        };
        let in_all = refunds.into_iter().reduce(|one, other| Ok(one?.and(other?)));
        in_all.unwrap_or(Ok(Refund::UNLIMITED))
    }

    /// Forgets the buckets of the charges.
    pub async fn reset_charges_async(&self, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        // What was decided while the store was away, too.
        charges.iter().for_each(|charge| self.memory.reset(charge));
        match &self.shared {
            None => Ok(()),
            Some(redis) => redis.reset(charges).await,
        }
    }

    /// Looks at the bucket of `id` under `limit`, and changes nothing.
    pub async fn inspect_async(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<Inspection, AskError> {
        let policy = self.policy();
        let charge = policy.charge(limit, id.as_ref(), 0)?;
        let (held, at) = match &self.shared {
            None => {
                let now = self.clock.now();
                (self.memory.inspect(&charge, now), now)
            }
            Some(redis) => redis.inspect(&charge, self.clock.manual_time()).await?,
        };
        let decision = self.check_bills_async(&[Bill::one(&charge)]).await[0];
        Ok(Inspection {
            bucket: charge.limit().bucket_key(charge.id()).to_string(),
            algorithm: charge.algorithm().copied(),
            held,
            decision,
            at,
        })
    }

    /// Some of the buckets there are, of one limit or of all, from where an earlier page ended. `None` in memory, which
    /// keeps no ids.
    pub async fn keys_async(
        &self,
        limit: Option<&str>,
        from: u64,
        count: usize,
    ) -> Result<Option<Page>, AskError> {
        let policy = self.policy();
        let limit = limit
            .map(|name| policy.limit(name).ok_or_else(|| ChargeError::UnknownLimit { name: name.to_owned() }))
            .transpose()?;
        let Some(redis) = &self.shared else { return Ok(None) };
        Ok(Some(redis.scan(limit, from, count).await?))
    }

    /// How many buckets the store holds. A store that gives no answer holds none that we know of.
    pub async fn size_async(&self) -> u64 {
        match &self.shared {
            None => self.memory.stats().buckets as u64,
            Some(redis) => redis.size().await.unwrap_or_default(),
        }
    }
}

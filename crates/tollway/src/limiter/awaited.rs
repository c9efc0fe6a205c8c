//! [`AsyncLimiter`]: the limiter whose calls are awaited, over memory or Redis.

use std::sync::Arc;
use std::time::Duration;

use tollway_core::{Bill, ChargeError, ChargeRequest, Decision, Policy, Refund, RuleRequest, Verb};

use super::until_ready::{UntilReadyError, until_ready};
use super::{AsyncHandle, BlockingLimiter, Limiter, LimiterError};
use crate::clock::Clock;
#[cfg(feature = "yaml")]
use crate::config::{Config, ConfigErrors};
use crate::engine::{Engine, Inspection};
use crate::store::{Health, Store};

/// A rate limiter that works over any store. Every call is awaited, on any runtime or on none.
///
/// ```
/// use tollway::AsyncLimiter;
///
/// # tollway::block_on(async {
/// let limiter = AsyncLimiter::from_yaml("limits: { Login: { burst: 5, count: 5, period: 1m } }")?;
/// assert!(limiter.spend("Login", "alice", 1).await?.allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// With `store: redis://…` in the configuration (and the feature `redis`) the buckets are a fleet's. In memory every
/// call is ready at once. Dropping a call that has begun takes nothing back: Redis may have been asked already.
#[derive(Clone, Debug)]
pub struct AsyncLimiter {
    engine: Engine,
}

impl From<Limiter> for AsyncLimiter {
    fn from(limiter: Limiter) -> Self {
        Self { engine: limiter.engine }
    }
}

impl From<Engine> for AsyncLimiter {
    fn from(engine: Engine) -> Self {
        Self { engine }
    }
}

impl AsyncLimiter {
    /// Creates a limiter from the text of a configuration file. Does not wait for Redis, which may be started later.
    #[cfg(feature = "yaml")]
    pub fn from_yaml(text: &str) -> Result<Self, ConfigErrors> {
        let config = Config::parse(text, "yaml")?;
        Self::open(config, Clock::monotonic())
            .map_err(|error| ConfigErrors::whole_file("yaml", "the store cannot be opened").caused_by(error))
    }

    /// Creates a limiter with the policy and the store of a configuration.
    #[cfg(feature = "yaml")]
    pub fn open(config: Config, clock: Clock) -> std::io::Result<Self> {
        Ok(Self { engine: Engine::open(config, clock)? })
    }

    /// Creates a limiter from its parts. Redis decides by its own clock, unless `clock` is a manual one.
    pub fn with(policy: Policy, store: impl Into<Store>, clock: Clock) -> Self {
        Self { engine: Engine::with(policy, store, clock) }
    }

    /// Takes `cost` from the bucket of `id` under `limit`, if it fits.
    ///
    /// If the store gives no answer, the limit's `on_store_failure` decides, and the decision is marked `degraded`.
    pub async fn spend(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        let policy = self.engine.policy();
        let charge = policy.charge(limit, id.as_ref(), cost)?;
        Ok(self.engine.charge(&charge).await)
    }

    /// Returns the decision that [`spend`](Self::spend) would make. Takes nothing.
    pub async fn check(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        let policy = self.engine.policy();
        let charge = policy.charge(limit, id.as_ref(), cost)?;
        Ok(self.engine.check_bills(&[Bill::one(&charge)]).await[0])
    }

    /// Gives back `cost` to the bucket of `id` under `limit`, up to a full bucket.
    pub async fn refund(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Refund, LimiterError> {
        let policy = self.engine.policy();
        let charge = policy.charge(limit, id.as_ref(), cost)?.refundable()?;
        Ok(self.engine.refund_charges(std::slice::from_ref(&charge)).await?)
    }

    /// Forgets the bucket of `id` under `limit`.
    pub async fn reset(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<(), LimiterError> {
        let policy = self.engine.policy();
        Ok(self.engine.reset_charges(&[policy.bucket(limit, id.as_ref())?]).await?)
    }

    /// Takes all the charges, or none of them if one does not fit. The decision's `charge` is the index of the charge
    /// that decided.
    pub async fn spend_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Decision, LimiterError> {
        Ok(self.engine.spend(&self.engine.policy(), charges).await?.1)
    }

    /// Returns the decision that [`spend_all`](Self::spend_all) would make. Takes nothing.
    pub async fn check_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Decision, LimiterError> {
        Ok(self.engine.check(&self.engine.policy(), charges).await?.1)
    }

    /// Takes all the charges and enters the request in the logs of all the rules, or does nothing if one of them
    /// denies. [`Decision::decider`] tells which decided.
    pub async fn spend_bill(
        &self,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<Decision, LimiterError> {
        Ok(self.engine.decide(&self.engine.policy(), Verb::Spend, charges, rules).await?.1)
    }

    /// Returns the decision that [`spend_bill`](Self::spend_bill) would make. Changes nothing.
    pub async fn check_bill(
        &self,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<Decision, LimiterError> {
        Ok(self.engine.decide(&self.engine.policy(), Verb::Check, charges, rules).await?.1)
    }

    /// Gives back what [`spend_all`](Self::spend_all) took, and returns what all refunds come to.
    pub async fn refund_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Refund, LimiterError> {
        Ok(self.engine.refund(&self.engine.policy(), charges).await?.1)
    }

    /// Forgets the buckets of the charges.
    pub async fn reset_all(&self, charges: &[ChargeRequest<'_>]) -> Result<(), LimiterError> {
        self.engine.reset(&self.engine.policy(), charges).await.map(drop)
    }

    /// Waits until `cost` fits, and takes it, on any runtime. Gives up as soon as it is known that the wait would be
    /// longer than `timeout`; the time that Redis takes for each answer comes on top.
    ///
    /// Returns an error as soon as it is known that the cost cannot fit in time; nothing is taken then. Callers that
    /// wait for one bucket do not queue: whichever asks first after the bucket has refilled gets the cost.
    pub async fn until_ready(
        &self,
        limit: &str,
        id: impl AsRef<[u8]>,
        cost: u64,
        timeout: Duration,
    ) -> Result<Decision, UntilReadyError> {
        let id = id.as_ref();
        until_ready(timeout, || self.spend(limit, id, cost)).await
    }

    /// Looks up a limit once, for code that always asks under the same one.
    pub fn handle(&self, limit: &str) -> Result<AsyncHandle, ChargeError> {
        AsyncHandle::new(self.clone(), self.engine(), limit)
    }

    /// Returns the state of the bucket of `id` under `limit`. Changes nothing.
    pub async fn inspect(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<Inspection, LimiterError> {
        self.engine.inspect(limit, id).await
    }

    /// Returns a view of this limiter for threads without a runtime. Its calls may put the calling thread to sleep.
    pub fn blocking(&self) -> BlockingLimiter {
        BlockingLimiter::new(self)
    }

    /// Returns the current policy. A reload does not change a policy that a caller holds.
    pub fn policy(&self) -> Arc<Policy> {
        self.engine.policy()
    }

    /// Replaces the policy from the next request on. Buckets stay.
    pub fn reload(&self, policy: Policy) {
        self.engine.reload(policy);
    }

    /// Returns the state of the shared store's nodes, or `None` in memory.
    pub fn health(&self) -> Option<Health> {
        self.engine.health()
    }

    /// Returns the engine that this limiter is made of, for batches.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }
}

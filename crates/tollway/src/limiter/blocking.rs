//! Defines [`BlockingLimiter`], a view of an [`AsyncLimiter`] for threads without a runtime.

use std::sync::Arc;
use std::time::Duration;

use tollway_core::{ChargeError, ChargeRequest, Decision, Policy, Refund, RuleRequest};

use super::until_ready::UntilReadyError;
use super::{AsyncLimiter, BlockingHandle, LimiterError};
use crate::block_on::block_on;
use crate::engine::{BlockingEngine, Inspection};
use crate::store::Health;

/// Offers the calls of an [`AsyncLimiter`] to threads without a runtime: over Redis each may put the calling thread to
/// sleep, for the store's deadline at most.
///
/// ```
/// use tollway::AsyncLimiter;
///
/// let limiter = AsyncLimiter::from_yaml("limits: { Login: { burst: 5, count: 5, period: 1m } }")?.blocking();
/// assert!(limiter.spend("Login", "alice", 1)?.allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Inside an async task, that would stop all other tasks of the thread: await the calls of [`AsyncLimiter`] there.
#[derive(Clone, Debug)]
pub struct BlockingLimiter {
    engine: BlockingEngine,
    /// Polled by this thread alone, so its calls may use the thread's own connection.
    limiter: AsyncLimiter,
}

impl BlockingLimiter {
    pub(super) fn new(limiter: &AsyncLimiter) -> Self {
        let engine = limiter.engine().blocking();
        let limiter = AsyncLimiter::from(engine.engine().clone());
        Self { engine, limiter }
    }

    /// Takes `cost` from the bucket of `id` under `limit`, if it fits.
    pub fn spend(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        let policy = self.limiter.engine().current_policy();
        Ok(self.engine.charge(&policy.charge(limit, id.as_ref(), cost)?))
    }

    /// Returns the decision that [`spend`](Self::spend) would make. Takes nothing.
    pub fn check(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        block_on(self.limiter.check(limit, id, cost))
    }

    /// Gives back `cost` to the bucket of `id` under `limit`, up to a full bucket.
    pub fn refund(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Refund, LimiterError> {
        block_on(self.limiter.refund(limit, id, cost))
    }

    /// Forgets the bucket of `id` under `limit`.
    pub fn reset(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<(), LimiterError> {
        block_on(self.limiter.reset(limit, id))
    }

    /// Takes all the charges, or none of them if one does not fit. The decision's `charge` is the index of the charge
    /// that decided.
    pub fn spend_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Decision, LimiterError> {
        block_on(self.limiter.spend_all(charges))
    }

    /// Returns the decision that [`spend_all`](Self::spend_all) would make. Takes nothing.
    pub fn check_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Decision, LimiterError> {
        block_on(self.limiter.check_all(charges))
    }

    /// Takes all the charges and enters the request in the logs of all the rules, or does nothing if one of them
    /// denies. [`Decision::decider`] tells which decided.
    pub fn spend_bill(
        &self,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<Decision, LimiterError> {
        block_on(self.limiter.spend_bill(charges, rules))
    }

    /// Returns the decision that [`spend_bill`](Self::spend_bill) would make. Changes nothing.
    pub fn check_bill(
        &self,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<Decision, LimiterError> {
        block_on(self.limiter.check_bill(charges, rules))
    }

    /// Gives back what [`spend_all`](Self::spend_all) took, and returns what all refunds come to.
    pub fn refund_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Refund, LimiterError> {
        block_on(self.limiter.refund_all(charges))
    }

    /// Forgets the buckets of the charges.
    pub fn reset_all(&self, charges: &[ChargeRequest<'_>]) -> Result<(), LimiterError> {
        block_on(self.limiter.reset_all(charges))
    }

    /// Waits until `cost` fits, and takes it. Gives up as soon as it is known that the wait would be longer than
    /// `timeout`; the time that Redis takes for each answer comes on top.
    pub fn until_ready(
        &self,
        limit: &str,
        id: impl AsRef<[u8]>,
        cost: u64,
        timeout: Duration,
    ) -> Result<Decision, UntilReadyError> {
        block_on(self.limiter.until_ready(limit, id, cost, timeout))
    }

    /// Looks up a limit once, for code that always asks under the same one.
    pub fn handle(&self, limit: &str) -> Result<BlockingHandle, ChargeError> {
        BlockingHandle::new(self.clone(), self.limiter.engine(), limit)
    }

    /// Returns the state of the bucket of `id` under `limit`. Changes nothing.
    pub fn inspect(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<Inspection, LimiterError> {
        block_on(self.limiter.inspect(limit, id))
    }

    /// Returns the current policy. A reload does not change a policy that a caller holds.
    pub fn policy(&self) -> Arc<Policy> {
        self.limiter.policy()
    }

    /// Replaces the policy from the next request on. Buckets stay.
    pub fn reload(&self, policy: Policy) {
        self.limiter.reload(policy);
    }

    /// Returns the state of the shared store's nodes, or `None` in memory.
    pub fn health(&self) -> Option<Health> {
        self.limiter.health()
    }

    /// Returns the engine that this limiter is made of, for batches.
    pub const fn engine(&self) -> &BlockingEngine {
        &self.engine
    }
}

//! The limiters that applications embed: [`Limiter`] in memory, [`AsyncLimiter`] over any store.
//!
//! | type | store | a call |
//! |---|---|---|
//! | [`Limiter`] | memory | returns at once, and never waits |
//! | [`AsyncLimiter`] | memory or Redis | is awaited |
//! | [`BlockingLimiter`] | memory or Redis | may put its thread to sleep until Redis has answered |
//!
//! All three have the same calls to spend, check, refund and reset. A handle ([`Handle`], [`AsyncHandle`],
//! [`BlockingHandle`]) is one limit of a limiter, looked up once.

mod awaited;
mod blocking;
mod builder;
mod handle;
mod until_ready;

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tollway_core::{
    Bill, BillError, ChargeError, ChargeRequest, Decision, Policy, Refund, RuleLookupError, RuleRequest, Verb,
};

pub use self::awaited::AsyncLimiter;
pub use self::blocking::BlockingLimiter;
pub use self::builder::{BuildError, LimiterBuilder};
pub use self::handle::{AsyncHandle, BlockingHandle, Handle};
pub use self::until_ready::UntilReadyError;
use crate::block_on::block_on;
#[cfg(feature = "yaml")]
use crate::config::{Config, ConfigErrors, StoreUrl};
use crate::engine::{Engine, Inspection};
use crate::store::StoreError;
use crate::store::memory::MemoryStats;

/// A rate limiter in this process's memory. No call waits, and none does I/O.
///
/// ```
/// use tollway::{Limiter, TokenBucket};
///
/// let limiter = Limiter::builder().limit("login", TokenBucket::per_minute(5).burst(10)).build()?;
/// assert!(limiter.spend("login", "alice", 10)?.allowed());
/// let denied = limiter.spend("login", "alice", 1)?;
/// assert!(!denied.allowed());
/// assert!(denied.retry_after().is_some_and(|wait| wait.as_secs() <= 12));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Clones share the buckets. All calls take `&self`, so any number of threads may use one limiter.
#[derive(Clone, Debug)]
pub struct Limiter {
    engine: Engine,
}

/// The error of a call that could not be carried out. A denial is a [`Decision`], not an error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LimiterError {
    /// A charge was not valid: an unknown limit, an id of the wrong format, or a cost that can never fit.
    #[error(transparent)]
    Charge(#[from] ChargeError),
    /// The charges and rules do not make a bill: there are none, too many, or two charges of one bucket.
    #[error(transparent)]
    Bill(#[from] BillError),
    /// A rule could not be asked: it does not exist, is not valid, or lacks the value of a selector.
    #[error(transparent)]
    Rule(#[from] RuleLookupError),
    /// The store gave no answer. The call may have been carried out all the same.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Limiter {
    /// Returns a builder, for limits that stand in code.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::default()
    }

    /// Creates a limiter with this policy and the machine's clock.
    pub fn new(policy: Policy) -> Self {
        Self { engine: Engine::new(policy) }
    }

    /// Creates a limiter from the text of a configuration file.
    ///
    /// A file with `store: redis://…` is an error here: its limiter is an [`AsyncLimiter`].
    #[cfg(feature = "yaml")]
    pub fn from_yaml(text: &str) -> Result<Self, ConfigErrors> {
        let config = Config::parse(text, "yaml")?;
        match &config.store {
            StoreUrl::Memory => {}
            #[cfg(feature = "redis")]
            StoreUrl::Redis(_) => {
                let problem =
                    "a Limiter keeps its buckets in memory; open this configuration with AsyncLimiter";
                return Err(ConfigErrors::whole_file("yaml", problem));
            }
        }
        let store = crate::store::memory::Memory::new(config.memory_bounds);
        Ok(Self::with(config.policy, store, crate::Clock::monotonic()))
    }

    /// Creates a limiter from its parts, for tests and traces that set the clock.
    pub fn with(policy: Policy, memory: crate::store::memory::Memory, clock: crate::Clock) -> Self {
        Self { engine: Engine::with(policy, memory, clock) }
    }

    /// Takes `cost` from the bucket of `id` under `limit`, if it fits.
    #[inline]
    pub fn spend(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        Ok(self.engine.charge_in_memory(&self.engine.current_policy().charge(limit, id.as_ref(), cost)?))
    }

    /// Returns the decision that [`spend`](Self::spend) would make. Takes nothing.
    pub fn check(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        let policy = self.engine.current_policy();
        let charge = policy.charge(limit, id.as_ref(), cost)?;
        Ok(self.engine.check_in_memory(&[Bill::one(&charge)])[0])
    }

    /// Gives back `cost` to the bucket of `id` under `limit`, up to a full bucket.
    pub fn refund(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Refund, ChargeError> {
        let policy = self.engine.current_policy();
        let charge = policy.charge(limit, id.as_ref(), cost)?.refundable()?;
        Ok(self.engine.refund_in_memory(std::slice::from_ref(&charge)))
    }

    /// Forgets the bucket of `id` under `limit`.
    pub fn reset(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<(), ChargeError> {
        let policy = self.engine.current_policy();
        self.engine.reset_in_memory(&[policy.bucket(limit, id.as_ref())?]);
        Ok(())
    }

    /// Takes all the charges, or none of them if one does not fit. The decision's `charge` is the index of the charge
    /// that decided.
    ///
    /// ```
    /// use tollway::core::ChargeRequest;
    /// use tollway::{Limiter, TokenBucket};
    ///
    /// let limiter = Limiter::builder()
    ///     .limit("account", TokenBucket::per_hour(100))
    ///     .limit("address", TokenBucket::per_minute(1))
    ///     .build()?;
    /// let login = [ChargeRequest::new("account", "alice", 1), ChargeRequest::new("address", "192.0.2.1", 1)];
    /// assert!(limiter.spend_all(&login)?.allowed());
    /// assert_eq!(limiter.spend_all(&login)?.charge, 1); // The address denies, and the account pays nothing.
    /// assert_eq!(limiter.check("account", "alice", 0)?.remaining, 99);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spend_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Decision, LimiterError> {
        block_on(self.engine.spend_in_place(&self.engine.current_policy(), charges))
    }

    /// Returns the decision that [`spend_all`](Self::spend_all) would make. Takes nothing.
    pub fn check_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Decision, LimiterError> {
        Ok(block_on(self.engine.check(&self.engine.current_policy(), charges))?.1)
    }

    /// Takes all the charges and enters the request in the logs of all the rules, or does nothing if one of them
    /// denies.
    ///
    /// ```
    /// use tollway::Limiter;
    /// use tollway::core::{ChargeRequest, Decider, RuleRequest};
    ///
    /// let limiter = Limiter::from_yaml("
    ///     limits: { bytes: { burst: 1000, count: 1000, period: 1m } }
    ///     rules: { upload: 'user:2/m' }
    /// ")?;
    /// let charges = [ChargeRequest::new("bytes", "alice", 300)];
    /// let rules = [RuleRequest::new("upload").with_selector("user", "alice")];
    /// assert_eq!(limiter.spend_bill(&charges, &rules)?.remaining, 700);
    /// assert_eq!(limiter.spend_bill(&charges, &rules)?.remaining, 400);
    /// let denied = limiter.spend_bill(&charges, &rules)?; // The rule denies, and no byte is taken.
    /// assert_eq!((denied.allowed(), denied.decider(&charges)), (false, Decider::Rule(0)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spend_bill(
        &self,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<Decision, LimiterError> {
        Ok(block_on(self.engine.decide(&self.engine.current_policy(), Verb::Spend, charges, rules))?.1)
    }

    /// Returns the decision that [`spend_bill`](Self::spend_bill) would make. Changes nothing.
    pub fn check_bill(
        &self,
        charges: &[ChargeRequest<'_>],
        rules: &[RuleRequest<'_>],
    ) -> Result<Decision, LimiterError> {
        Ok(block_on(self.engine.decide(&self.engine.current_policy(), Verb::Check, charges, rules))?.1)
    }

    /// Gives back what [`spend_all`](Self::spend_all) took, and returns what all refunds come to.
    pub fn refund_all(&self, charges: &[ChargeRequest<'_>]) -> Result<Refund, LimiterError> {
        Ok(block_on(self.engine.refund(&self.engine.current_policy(), charges))?.1)
    }

    /// Forgets the buckets of the charges.
    pub fn reset_all(&self, charges: &[ChargeRequest<'_>]) -> Result<(), LimiterError> {
        block_on(self.engine.reset(&self.engine.current_policy(), charges)).map(drop)
    }

    /// Waits until `cost` fits, and takes it: on any runtime, for at most `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollway::{Limiter, TokenBucket};
    ///
    /// # tollway::block_on(async {
    /// let limiter = Limiter::builder().limit("mail", TokenBucket::per_second(100).burst(1)).build()?;
    /// for _ in 0..3 {
    ///     // At once, after 10 ms, after 20 ms.
    ///     let _allowed = limiter.until_ready("mail", "alice", 1, Duration::from_secs(1)).await?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
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
        until_ready::until_ready(timeout, || std::future::ready(self.spend(limit, id, cost))).await
    }

    /// Looks up a limit once, for code that always asks under the same one.
    pub fn handle(&self, limit: &str) -> Result<Handle, ChargeError> {
        Handle::new(self.clone(), &self.engine, limit)
    }

    /// Returns the state of the bucket of `id` under `limit`. Changes nothing.
    pub fn inspect(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<Inspection, ChargeError> {
        let policy = self.engine.current_policy();
        Ok(self.engine.inspect_in_memory(&policy.bucket(limit, id.as_ref())?))
    }

    /// Returns the current policy. A reload does not change a policy that a caller holds.
    pub fn policy(&self) -> Arc<Policy> {
        self.engine.policy()
    }

    /// Replaces the policy from the next request on. Buckets stay.
    pub fn reload(&self, policy: Policy) {
        self.engine.reload(policy);
    }

    /// Returns how many buckets there are, and what the store has done.
    pub fn stats(&self) -> MemoryStats {
        self.engine.stats()
    }

    /// Drops expired buckets from the next `slots` slots of the store, and returns how many it dropped.
    ///
    /// New buckets pay for such sweeps themselves. A timer that calls this frees memory while no requests come.
    pub fn sweep(&self, slots: usize) -> usize {
        self.engine.sweep(slots)
    }

    /// Returns the engine that this limiter is made of, for batches.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }
}

#[cfg(test)]
mod tests {
    use tollway_core::CHARGES_MAX;
    use tollway_core::algorithm::TokenBucket;

    use super::*;

    #[test]
    fn one_bucket_twice_is_no_bill_for_any_call() {
        let limiter = Limiter::builder().limit("a", TokenBucket::per_hour(5)).build().unwrap();
        assert_eq!(limiter.spend("a", "x", 2).unwrap().remaining, 3);
        let twice = [ChargeRequest::new("a", "x", 1), ChargeRequest::new("a", "x", 1)];
        assert!(matches!(limiter.spend_all(&twice), Err(LimiterError::Bill(_))));
        assert!(matches!(limiter.check_all(&twice), Err(LimiterError::Bill(_))));
        assert!(matches!(limiter.refund_all(&twice), Err(LimiterError::Bill(_))));
        assert!(matches!(limiter.reset_all(&twice), Err(LimiterError::Bill(_))));
        assert!(matches!(limiter.refund_all(&[]), Err(LimiterError::Bill(_))));
        assert_eq!(limiter.check("a", "x", 0).unwrap().remaining, 3);
        assert_eq!(limiter.refund_all(&twice[..1]).unwrap().remaining, 4);
    }

    #[test]
    fn a_bill_that_is_too_long_and_a_charge_that_cannot_pass_are_the_same_errors_for_all_calls() {
        let limiter = Limiter::builder().limit("a", TokenBucket::per_hour(5)).build().unwrap();
        let request = |id: usize, cost| ChargeRequest::new("a", &id.to_string(), cost).into_owned();
        let too_long: Vec<_> = (0..=CHARGES_MAX).map(|id| request(id, 1)).collect();
        let error = BillError::TooLong { charges: CHARGES_MAX + 1 };
        assert_eq!(limiter.spend_all(&too_long), Err(error.into()));
        let with_bad_cost: Vec<_> = too_long.into_iter().chain([request(99, 6)]).collect();
        assert!(matches!(limiter.spend_all(&with_bad_cost), Err(LimiterError::Charge(_))));
        assert_eq!(limiter.spend_all(&with_bad_cost), limiter.check_all(&with_bad_cost));
        let longest: Vec<_> = (0..CHARGES_MAX).map(|id| request(id, 1)).collect();
        assert_eq!(limiter.spend_all(&longest).unwrap().remaining, 4);
    }
}

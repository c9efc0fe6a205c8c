//! Handles: one limit of a limiter, looked up once.
//!
//! ```
//! use tollway::{Limiter, TokenBucket};
//!
//! let limiter = Limiter::builder().limit("login", TokenBucket::per_minute(5)).build()?;
//! let login = limiter.handle("login")?; // A misspelt name fails here, not at the first request.
//! assert!(login.spend("alice", 1)?.allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A handle is owned, cheap to clone and takes `&self`, so it can be the state of a web server's handlers.

use std::sync::Arc;
use std::time::Duration;

use tollway_core::{Bill, Charge, ChargeError, Decision, Limit, Policy, Refund};

use super::until_ready::{UntilReadyError, until_ready};
use super::{AsyncLimiter, BlockingLimiter, Limiter, LimiterError};
use crate::engine::{Engine, Inspection};

/// Sends requests to one limit of a limiter, by default a [`Limiter`]. A reload of the policy reaches it at its next
/// request; if the limit no longer exists then, requests fail.
///
/// A handle of a [`Limiter`] is the fastest way to ask, until the policy is reloaded: from then on it searches the
/// current policy for the limit at every request. A new handle is fast again.
#[derive(Clone, Debug)]
pub struct Handle<L = Limiter> {
    limiter: L,
    limit: Arc<LimitLookup>,
}

/// Sends requests to one limit of an [`AsyncLimiter`].
pub type AsyncHandle = Handle<AsyncLimiter>;

/// Sends requests to one limit of a [`BlockingLimiter`].
pub type BlockingHandle = Handle<BlockingLimiter>;

/// A limit's name, and where it was in the policy that was current when the handle was made. Over a shared store the
/// name alone is used: a lookup is nothing beside the way to Redis.
#[derive(Debug)]
struct LimitLookup {
    name: Box<str>,
    policy: Arc<Policy>,
    generation: u64,
    position: usize,
}

impl<L> Handle<L> {
    pub(super) fn new(limiter: L, engine: &Engine, limit: &str) -> Result<Self, ChargeError> {
        Ok(Self { limiter, limit: Arc::new(LimitLookup::new(limit, engine)?) })
    }

    /// Returns the name of the limit.
    pub fn name(&self) -> &str {
        &self.limit.name
    }
}

impl Handle {
    /// Takes `cost` from the bucket of `id`, if it fits.
    #[inline]
    pub fn spend(&self, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        let engine = &self.limiter.engine;
        self.limit.with_current(engine, |limit| engine.spend_in_memory(limit, id.as_ref(), cost))
    }

    /// Takes `cost` from the bucket of each id, if it fits, one id after another, and appends the decisions in their
    /// order. An id that the limit rejects, or a cost that can never fit, refuses the batch before anything is taken.
    ///
    /// The buckets are fetched from memory 64 at a time, before the first of them is used: among a million ids, that
    /// takes a third of the time that they take one by one.
    ///
    /// ```
    /// use tollway::{Limiter, TokenBucket};
    ///
    /// let limiter = Limiter::builder().limit("login", TokenBucket::per_minute(1)).build()?;
    /// let login = limiter.handle("login")?;
    /// let mut decisions = Vec::new();
    /// login.spend_many(&["alice", "bob", "alice"], 1, &mut decisions)?;
    /// let allowed: Vec<_> = decisions.iter().map(|decision| decision.allowed()).collect();
    /// assert_eq!(allowed, [true, true, false]);
    /// assert!(login.spend_many(&["carol", ""], 1, &mut decisions).is_err());
    /// assert_eq!(decisions.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spend_many(
        &self,
        ids: &[impl AsRef<[u8]>],
        cost: u64,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), ChargeError> {
        let engine = &self.limiter.engine;
        self.limit.with_current(engine, |limit| engine.spend_many_in_memory(limit, ids, cost, decisions))
    }

    /// Returns the decision that [`spend`](Self::spend) would make. Takes nothing.
    pub fn check(&self, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        let engine = &self.limiter.engine;
        self.limit.with_current(engine, |limit| {
            let charge = Charge::new(limit, id.as_ref(), cost)?;
            Ok(engine.check_in_memory(&[Bill::one(&charge)])[0])
        })
    }

    /// Gives back `cost` to the bucket of `id`, up to a full bucket.
    pub fn refund(&self, id: impl AsRef<[u8]>, cost: u64) -> Result<Refund, ChargeError> {
        let engine = &self.limiter.engine;
        self.limit.with_current(engine, |limit| {
            let charge = Charge::new(limit, id.as_ref(), cost)?.refundable()?;
            Ok(engine.refund_in_memory(std::slice::from_ref(&charge)))
        })
    }

    /// Forgets the bucket of `id`.
    pub fn reset(&self, id: impl AsRef<[u8]>) -> Result<(), ChargeError> {
        let engine = &self.limiter.engine;
        self.limit.with_current(engine, |limit| {
            engine.reset_in_memory(&[Charge::new(limit, id.as_ref(), 0)?]);
            Ok(())
        })
    }

    /// Waits until `cost` fits, and takes it, for at most `timeout`.
    pub async fn until_ready(
        &self,
        id: impl AsRef<[u8]>,
        cost: u64,
        timeout: Duration,
    ) -> Result<Decision, UntilReadyError> {
        let id = id.as_ref();
        until_ready(timeout, || std::future::ready(self.spend(id, cost))).await
    }

    /// Returns the state of the bucket of `id`. Changes nothing.
    pub fn inspect(&self, id: impl AsRef<[u8]>) -> Result<Inspection, ChargeError> {
        self.limiter.inspect(self.name(), id)
    }
}

impl AsyncHandle {
    /// Takes `cost` from the bucket of `id`, if it fits.
    pub async fn spend(&self, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        self.limiter.spend(self.name(), id, cost).await
    }

    /// Returns the decision that [`spend`](Self::spend) would make. Takes nothing.
    pub async fn check(&self, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        self.limiter.check(self.name(), id, cost).await
    }

    /// Gives back `cost` to the bucket of `id`, up to a full bucket.
    pub async fn refund(&self, id: impl AsRef<[u8]>, cost: u64) -> Result<Refund, LimiterError> {
        self.limiter.refund(self.name(), id, cost).await
    }

    /// Forgets the bucket of `id`.
    pub async fn reset(&self, id: impl AsRef<[u8]>) -> Result<(), LimiterError> {
        self.limiter.reset(self.name(), id).await
    }

    /// Waits until `cost` fits, and takes it. Gives up as soon as it is known that the wait would be longer than
    /// `timeout`; the time that Redis takes for each answer comes on top.
    pub async fn until_ready(
        &self,
        id: impl AsRef<[u8]>,
        cost: u64,
        timeout: Duration,
    ) -> Result<Decision, UntilReadyError> {
        self.limiter.until_ready(self.name(), id, cost, timeout).await
    }

    /// Returns the state of the bucket of `id`. Changes nothing.
    pub async fn inspect(&self, id: impl AsRef<[u8]>) -> Result<Inspection, LimiterError> {
        self.limiter.inspect(self.name(), id).await
    }
}

/// Over Redis, each call may put the calling thread to sleep, for the store's deadline at most.
impl BlockingHandle {
    /// Takes `cost` from the bucket of `id`, if it fits.
    pub fn spend(&self, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        self.limiter.spend(self.name(), id, cost)
    }

    /// Returns the decision that [`spend`](Self::spend) would make. Takes nothing.
    pub fn check(&self, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        self.limiter.check(self.name(), id, cost)
    }

    /// Gives back `cost` to the bucket of `id`, up to a full bucket.
    pub fn refund(&self, id: impl AsRef<[u8]>, cost: u64) -> Result<Refund, LimiterError> {
        self.limiter.refund(self.name(), id, cost)
    }

    /// Forgets the bucket of `id`.
    pub fn reset(&self, id: impl AsRef<[u8]>) -> Result<(), LimiterError> {
        self.limiter.reset(self.name(), id)
    }

    /// Waits until `cost` fits, and takes it. Gives up as soon as it is known that the wait would be longer than
    /// `timeout`; the time that Redis takes for each answer comes on top.
    pub fn until_ready(
        &self,
        id: impl AsRef<[u8]>,
        cost: u64,
        timeout: Duration,
    ) -> Result<Decision, UntilReadyError> {
        self.limiter.until_ready(self.name(), id, cost, timeout)
    }

    /// Returns the state of the bucket of `id`. Changes nothing.
    pub fn inspect(&self, id: impl AsRef<[u8]>) -> Result<Inspection, LimiterError> {
        self.limiter.inspect(self.name(), id)
    }
}

impl LimitLookup {
    fn new(name: &str, engine: &Engine) -> Result<Self, ChargeError> {
        // Before the policy: a reload in between makes requests look the limit up, instead of missing the reload.
        let generation = engine.policy_generation();
        let policy = engine.policy();
        let position = position(name, &policy)?;
        Ok(Self { name: name.into(), policy, generation, position })
    }

    /// Runs `work` with the limit as the current policy has it.
    ///
    /// One plain load says whether the policy in hand is still current. Borrowing the current one instead takes two
    /// locked instructions, which are dearer than the rest of a decision on a hot id.
    #[inline]
    fn with_current<T>(
        &self,
        engine: &Engine,
        work: impl FnOnce(&Limit) -> Result<T, ChargeError>,
    ) -> Result<T, ChargeError> {
        if self.generation == engine.policy_generation() {
            work(&self.policy.limits()[self.position])
        } else {
            self.with_reloaded(engine, work)
        }
    }

    #[cold]
    fn with_reloaded<T>(
        &self,
        engine: &Engine,
        work: impl FnOnce(&Limit) -> Result<T, ChargeError>,
    ) -> Result<T, ChargeError> {
        let policy = engine.current_policy();
        work(&policy.limits()[position(&self.name, &policy)?])
    }
}

fn position(name: &str, policy: &Policy) -> Result<usize, ChargeError> {
    let found = policy.limits().iter().position(|limit| limit.name() == name);
    found.ok_or_else(|| policy.unknown_limit(name))
}

#[cfg(test)]
#[cfg(feature = "yaml")]
mod tests {
    use tollway_core::ChargeRequest;

    use super::*;
    use crate::config::Config;

    fn policy(limits: &str) -> Policy {
        Config::parse(limits, "limits").unwrap().policy
    }

    #[test]
    fn a_reload_reaches_a_handle_at_its_next_request() {
        let limiter = Limiter::new(policy("limits: { A: { burst: 2, count: 1, period: 1h } }"));
        let a = limiter.handle("A").unwrap();
        assert_eq!(a.spend("x", 1).unwrap().remaining, 1);
        let moved =
            "limits: { Other: { burst: 1, count: 1, period: 1h }, A: { burst: 9, count: 1, period: 1h } }";
        limiter.reload(policy(moved));
        assert_eq!(a.spend("x", 1).unwrap().remaining, 7, "the bucket stays, and the limit is the new one");
        limiter.reload(policy("limits: { Other: { burst: 1, count: 1, period: 1h } }"));
        for _ in 0..2 {
            assert_eq!(
                a.spend("x", 1),
                Err(ChargeError::UnknownLimit {
                    name: "A".to_owned(),
                    nearest: None,
                    existing: vec!["Other".to_owned()]
                })
            );
        }
        limiter.reload(policy(moved));
        assert_eq!(a.clone().spend("x", 1).unwrap().remaining, 6);
    }

    #[test]
    fn many_ids_get_the_decisions_that_they_would_get_one_by_one() {
        let limits = "
            limits:
              A: { burst: 3, count: 1, period: 1h }
              B: { burst: 3, count: 1, period: 1h, id: ip }
              C: { algorithm: quota, count: 3, period: 1h }
              D: { burst: 3, count: 1, period: 1h }
              E: { algorithm: fixed_window, count: 3, period: 1h }
              F: { algorithm: sliding_window, count: 3, period: 1h }
            overrides:
              D:10.0.0.7: { burst: 5, count: 1, period: 1h }";
        let ids: Vec<_> = (0..300).map(|number| format!("10.0.0.{}", number % 90)).collect();
        let clock = crate::Clock::manual(tollway_core::Timestamp::from_nanos(1 << 60));
        let limiter = || {
            let memory = crate::store::memory::Memory::new(1_000);
            Limiter::with(policy(limits), memory, clock.clone())
        };
        let (batched, one_by_one, by_charges) = (limiter(), limiter(), limiter());
        for name in ["A", "B", "C", "D", "E", "F"] {
            let (batched, one_by_one) = (batched.handle(name).unwrap(), one_by_one.handle(name).unwrap());
            for cost in [0, 1, 2] {
                let mut decisions = Vec::new();
                batched.spend_many(&ids, cost, &mut decisions).unwrap();
                let expected: Vec<_> = ids.iter().map(|id| one_by_one.spend(id, cost).unwrap()).collect();
                assert_eq!(decisions, expected, "{name}, cost {cost}");
                let spend = |id| by_charges.spend_all(&[ChargeRequest::new(name, id, cost)]).unwrap();
                assert_eq!(decisions, ids.iter().map(spend).collect::<Vec<_>>(), "{name}, cost {cost}");
            }
            let mut decisions = Vec::new();
            assert_eq!(
                batched.spend_many(&["10.0.0.99"], 9, &mut decisions),
                Err(one_by_one.spend("10.0.0.99", 9).unwrap_err())
            );
            let with_bad = ["10.0.0.99", ""];
            assert_eq!(
                batched.spend_many(&with_bad, 1, &mut decisions),
                Err(one_by_one.spend("", 1).unwrap_err())
            );
            assert!(decisions.is_empty());
            assert_eq!(batched.check("10.0.0.99", 0).unwrap().remaining, 3, "nothing was taken");
        }
    }

    #[test]
    fn an_unknown_limit_has_no_handle() {
        let limiter = Limiter::new(policy("limits: {}"));
        assert_eq!(
            limiter.handle("A").err(),
            Some(ChargeError::UnknownLimit { name: "A".to_owned(), nearest: None, existing: vec![] })
        );
    }

    #[test]
    fn a_handle_and_its_awaited_twin_have_the_same_calls() {
        let limiter = Limiter::new(policy("limits: { A: { burst: 3, count: 1, period: 1h } }"));
        let (a, awaited) = (limiter.handle("A").unwrap(), AsyncLimiter::from(limiter).handle("A").unwrap());
        crate::block_on(async {
            assert_eq!(a.spend("x", 1).unwrap().remaining, 2);
            assert_eq!(awaited.spend("x", 1).await.unwrap().remaining, 1);
            assert_eq!(awaited.check("x", 1).await.unwrap().remaining, a.check("x", 1).unwrap().remaining);
            assert_eq!(a.refund("x", 1).unwrap().remaining, 2);
            assert_eq!(awaited.refund("x", 1).await.unwrap().remaining, 3);
            assert_eq!(a.spend("x", 3).unwrap().remaining, 0);
            awaited.reset("x").await.unwrap();
            assert_eq!(a.spend("x", 1).unwrap().remaining, 2);
            a.reset("x").unwrap();
            assert_eq!(awaited.spend("x", 3).await.unwrap().remaining, 0);
            assert_eq!(awaited.inspect("x").await.unwrap().bucket, a.inspect("x").unwrap().bucket);
        });
    }

    #[test]
    fn a_blocking_handle_has_the_calls_of_the_others() {
        let limiter = Limiter::new(policy("limits: { A: { burst: 3, count: 1, period: 1h } }"));
        let blocking = AsyncLimiter::from(limiter).blocking();
        assert!(blocking.health().is_none());
        let a = blocking.handle("A").unwrap();
        assert_eq!((a.name(), a.spend("x", 2).unwrap().remaining), ("A", 1));
        assert_eq!(a.check("x", 1).unwrap().remaining, 0);
        assert_eq!(a.refund("x", 1).unwrap().remaining, 2);
        assert_eq!(a.until_ready("x", 2, Duration::ZERO).unwrap().remaining, 0);
        a.reset("x").unwrap();
        assert_eq!(a.inspect("x").unwrap().decision.remaining, 3);
        blocking.reload(policy("limits: { A: { burst: 9, count: 1, period: 1h } }"));
        assert_eq!(blocking.policy().limits().len(), 1);
        assert_eq!(a.spend("x", 1).unwrap().remaining, 8);
    }
}

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

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollway_core::{Bill, Charge, ChargeError, Decision, Limit, Policy, Refund};

use super::until_ready::{UntilReadyError, until_ready};
use super::{AsyncLimiter, BlockingLimiter, Limiter, LimiterError};
use crate::engine::Inspection;

/// Sends requests to one limit of a limiter, by default a [`Limiter`]. A reload of the policy reaches it at its next
/// request; if the limit no longer exists then, requests fail.
#[derive(Clone, Debug)]
pub struct Handle<L = Limiter> {
    limiter: L,
    limit: LimitName,
}

/// Sends requests to one limit of an [`AsyncLimiter`].
pub type AsyncHandle = Handle<AsyncLimiter>;

/// Sends requests to one limit of a [`BlockingLimiter`].
pub type BlockingHandle = Handle<BlockingLimiter>;

/// A limit's name, and its position in the policy when it was last looked up.
#[derive(Debug)]
struct LimitName {
    name: Box<str>,
    /// A hint: it is checked against the name, so a reload that moves the limit costs one search.
    position: AtomicUsize,
}

impl<L> Handle<L> {
    pub(super) fn new(limiter: L, policy: &Policy, limit: &str) -> Result<Self, ChargeError> {
        Ok(Self { limiter, limit: LimitName::new(limit, policy)? })
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
        let policy = engine.current_policy();
        Ok(engine.charge_in_memory(&self.limit.charge(&policy, id.as_ref(), cost)?))
    }

    /// Returns the decision that [`spend`](Self::spend) would make. Takes nothing.
    pub fn check(&self, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        let engine = &self.limiter.engine;
        let policy = engine.current_policy();
        let charge = self.limit.charge(&policy, id.as_ref(), cost)?;
        Ok(engine.check_in_memory(&[Bill::one(&charge)])[0])
    }

    /// Gives back `cost` to the bucket of `id`, up to a full bucket.
    pub fn refund(&self, id: impl AsRef<[u8]>, cost: u64) -> Result<Refund, ChargeError> {
        let engine = &self.limiter.engine;
        let policy = engine.current_policy();
        let charge = self.limit.charge(&policy, id.as_ref(), cost)?.refundable()?;
        Ok(engine.refund_in_memory(std::slice::from_ref(&charge)))
    }

    /// Forgets the bucket of `id`.
    pub fn reset(&self, id: impl AsRef<[u8]>) -> Result<(), ChargeError> {
        let engine = &self.limiter.engine;
        let policy = engine.current_policy();
        engine.reset_in_memory(&[self.limit.charge(&policy, id.as_ref(), 0)?]);
        Ok(())
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
        let policy = self.limiter.policy();
        let charge = self.limit.charge(&policy, id.as_ref(), cost)?;
        Ok(self.limiter.engine().charge(&charge).await)
    }

    /// Returns the decision that [`spend`](Self::spend) would make. Takes nothing.
    pub async fn check(&self, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        let policy = self.limiter.policy();
        let charge = self.limit.charge(&policy, id.as_ref(), cost)?;
        Ok(self.limiter.engine().check_bills(&[Bill::one(&charge)]).await[0])
    }

    /// Gives back `cost` to the bucket of `id`, up to a full bucket.
    pub async fn refund(&self, id: impl AsRef<[u8]>, cost: u64) -> Result<Refund, LimiterError> {
        let policy = self.limiter.policy();
        let charge = self.limit.charge(&policy, id.as_ref(), cost)?.refundable()?;
        Ok(self.limiter.engine().refund_charges(std::slice::from_ref(&charge)).await?)
    }

    /// Forgets the bucket of `id`.
    pub async fn reset(&self, id: impl AsRef<[u8]>) -> Result<(), LimiterError> {
        let policy = self.limiter.policy();
        let charge = self.limit.charge(&policy, id.as_ref(), 0)?;
        Ok(self.limiter.engine().reset_charges(&[charge]).await?)
    }

    /// Waits until `cost` fits, and takes it, for at most `timeout`.
    pub async fn until_ready(
        &self,
        id: impl AsRef<[u8]>,
        cost: u64,
        timeout: Duration,
    ) -> Result<Decision, UntilReadyError> {
        let id = id.as_ref();
        until_ready(timeout, || self.spend(id, cost)).await
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
        let policy = self.limiter.policy();
        Ok(self.limiter.engine().charge(&self.limit.charge(&policy, id.as_ref(), cost)?))
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

    /// Waits until `cost` fits, and takes it, for at most `timeout`.
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

impl LimitName {
    fn new(name: &str, policy: &Policy) -> Result<Self, ChargeError> {
        let limit = Self { name: name.into(), position: AtomicUsize::new(0) };
        limit.find(policy)?;
        Ok(limit)
    }

    #[inline]
    fn charge<'a>(&self, policy: &'a Policy, id: &'a [u8], cost: u64) -> Result<Charge<'a>, ChargeError> {
        Charge::new(self.find(policy)?, id, cost)
    }

    #[inline]
    fn find<'p>(&self, policy: &'p Policy) -> Result<&'p Limit, ChargeError> {
        match policy.limits().get(self.position.load(Ordering::Relaxed)) {
            Some(limit) if limit.name() == &*self.name => Ok(limit),
            _ => self.search(policy),
        }
    }

    #[cold]
    fn search<'p>(&self, policy: &'p Policy) -> Result<&'p Limit, ChargeError> {
        let limits = policy.limits();
        let found = limits.iter().position(|limit| limit.name() == &*self.name);
        let position = found.ok_or_else(|| policy.unknown_limit(&self.name))?;
        self.position.store(position, Ordering::Relaxed);
        Ok(&limits[position])
    }
}

impl Clone for LimitName {
    fn clone(&self) -> Self {
        let position = AtomicUsize::new(self.position.load(Ordering::Relaxed));
        Self { name: self.name.clone(), position }
    }
}

#[cfg(test)]
#[cfg(feature = "yaml")]
mod tests {
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
                Err(ChargeError::UnknownLimit { name: "A".to_owned(), nearest: None })
            );
        }
        limiter.reload(policy(moved));
        assert_eq!(a.clone().spend("x", 1).unwrap().remaining, 6);
    }

    #[test]
    fn an_unknown_limit_has_no_handle() {
        let limiter = Limiter::new(policy("limits: {}"));
        assert_eq!(
            limiter.handle("A").err(),
            Some(ChargeError::UnknownLimit { name: "A".to_owned(), nearest: None })
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

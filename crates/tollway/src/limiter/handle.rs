//! One limit of a limiter, looked up once: for code that always asks under the same limit.
//!
//! ```
//! let limiter = tollway::Limiter::from_yaml("limits: { Login: { burst: 5, count: 5, period: 1m } }")?;
//! let mut login = limiter.handle("Login")?; // A misspelt name fails here, not at the first request.
//! assert!(login.spend("alice", 1)?.allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A handle keeps the policy it used last and asks only whether that is still in force, so every thread has its own.

use std::sync::Arc;

use tollway_core::{Charge, ChargeError, Decision, Policy};

use super::Limiter;

/// A limit by its name. A reload changes what it holds ids to; if the name is gone, asking fails.
#[derive(Clone)]
pub struct Handle<'a> {
    limiter: &'a Limiter,
    name: Box<str>,
    policy: Arc<Policy>,
    edition: u64,
    position: usize,
}

impl<'a> Handle<'a> {
    pub(super) fn new(limiter: &'a Limiter, name: &str) -> Result<Self, ChargeError> {
        // Before the policy: one that is replaced in between is looked up once too often, not once too seldom.
        let edition = limiter.policy.edition();
        let policy = limiter.policy.keep();
        let found = policy.limits().iter().position(|limit| limit.name() == name);
        let position = found.ok_or_else(|| ChargeError::UnknownLimit { name: name.to_owned() })?;
        Ok(Self { limiter, name: name.into(), policy, edition, position })
    }

    /// Takes `cost` from the bucket of `id`, if it fits.
    #[inline]
    pub fn spend(&mut self, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        if self.edition != self.limiter.policy.edition() {
            *self = Self::new(self.limiter, &self.name)?;
        }
        let limit = &self.policy.limits()[self.position];
        Ok(self.limiter.charge(&Charge::new(limit, id.as_ref(), cost)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn policy(limits: &str) -> Policy {
        Config::parse(limits, "limits").unwrap().policy
    }

    #[test]
    fn a_reload_reaches_a_handle_at_its_next_request() {
        let limiter = Limiter::new(policy("limits: { A: { burst: 2, count: 1, period: 1h } }"));
        let mut a = limiter.handle("A").unwrap();
        assert_eq!(a.spend("x", 1).unwrap().remaining, 1);
        let moved =
            "limits: { Other: { burst: 1, count: 1, period: 1h }, A: { burst: 9, count: 1, period: 1h } }";
        limiter.reload(policy(moved));
        assert_eq!(a.spend("x", 1).unwrap().remaining, 7, "the bucket stays, and the limit is the new one");
        limiter.reload(policy("limits: { Other: { burst: 1, count: 1, period: 1h } }"));
        for _ in 0..2 {
            assert_eq!(a.spend("x", 1), Err(ChargeError::UnknownLimit { name: "A".to_owned() }));
        }
        limiter.reload(policy(moved));
        assert_eq!(a.spend("x", 1).unwrap().remaining, 6);
    }

    #[test]
    fn a_name_that_nobody_configured_has_no_handle() {
        let limiter = Limiter::new(policy("limits: {}"));
        assert_eq!(limiter.handle("A").err(), Some(ChargeError::UnknownLimit { name: "A".to_owned() }));
    }
}

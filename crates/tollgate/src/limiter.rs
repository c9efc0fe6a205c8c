//! A policy, a store and a clock: ask, and it decides.

mod handle;
mod in_force;

use std::sync::Arc;

use tollgate_core::algorithm::{Measure, Order, Outcome};
use tollgate_core::{Bill, Charge, ChargeError, Decision, Policy, Refund};

pub use self::handle::Handle;
use self::in_force::InForce;
use crate::clock::Clock;
use crate::config::{Config, ConfigErrors};
use crate::keys::{KeyHash, Knock};
use crate::store::memory::{self, Census, Memory};

/// Decides for this process. Shared between threads by reference; every call is synchronous and short.
pub struct Limiter {
    policy: InForce,
    store: Memory,
    clock: Clock,
}

impl Limiter {
    /// A limiter in memory, by the machine's clock.
    pub fn new(policy: Policy) -> Self {
        Self::with(policy, Memory::new(memory::MAX_BUCKETS), Clock::monotonic())
    }

    /// A limiter in memory with the limits of a configuration's text, by the machine's clock.
    pub fn from_yaml(text: &str) -> Result<Self, ConfigErrors> {
        let config = Config::parse(text, "yaml")?;
        Ok(Self::with(config.policy, Memory::new(config.max_buckets), Clock::monotonic()))
    }

    /// A limiter of these three parts.
    pub fn with(policy: Policy, store: Memory, clock: Clock) -> Self {
        Self { policy: InForce::new(policy), store, clock }
    }

    /// Takes `cost` from the bucket of `id` under `limit`, if it fits.
    #[inline]
    pub fn spend(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        Ok(self.charge(&self.policy.look().charge(limit, id.as_ref(), cost)?))
    }

    /// The decision [`spend`](Self::spend) would make, taking nothing.
    pub fn check(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Decision, ChargeError> {
        let policy = self.policy.look();
        let charge = policy.charge(limit, id.as_ref(), cost)?;
        Ok(self.check_bills(&[Bill::one(&charge)])[0])
    }

    /// Gives back `cost`, up to a full bucket.
    pub fn refund(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Refund, ChargeError> {
        let policy = self.policy.look();
        let charge = policy.charge(limit, id.as_ref(), cost)?.refundable()?;
        Ok(self.refund_charges(std::slice::from_ref(&charge)))
    }

    /// Forgets the bucket of `id` under `limit`.
    pub fn reset(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<(), ChargeError> {
        let policy = self.policy.look();
        self.reset_charges(&[policy.charge(limit, id.as_ref(), 0)?]);
        Ok(())
    }

    /// The limit of this name, looked up once: for code that always asks under the same limit.
    pub fn handle(&self, limit: &str) -> Result<Handle<'_>, ChargeError> {
        Handle::new(self, limit)
    }

    /// Settles a bill of one charge.
    #[inline]
    pub fn charge(&self, charge: &Charge<'_>) -> Decision {
        self.store.charge(charge, || self.clock.now())
    }

    /// Settles each bill on its own, all of it or nothing. The decisions come in the order of the bills.
    pub fn settle(&self, bills: &[Bill<'_>]) -> Vec<Decision> {
        let mut decisions = Vec::with_capacity(bills.len());
        self.store.settle(bills, self.clock.now(), &mut decisions);
        decisions
    }

    /// The decisions [`settle`](Self::settle) would make, taking nothing.
    pub fn check_bills(&self, bills: &[Bill<'_>]) -> Vec<Decision> {
        let mut decisions = Vec::with_capacity(bills.len());
        self.store.check(bills, self.clock.now(), &mut decisions);
        decisions
    }

    /// What stands for a key.
    #[inline]
    pub fn hash_key(&self, key: &[u8]) -> KeyHash {
        self.store.hash_key(key)
    }

    /// Has the bucket of a key fetched from memory. For all keys of a batch, in a loop of its own, before the first knock.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.store.prefetch(hash);
    }

    /// What stands for the id of a charge under its limit.
    pub fn hash_charge(&self, charge: &Charge<'_>) -> KeyHash {
        self.store.hash_charge(charge)
    }

    /// Measures each rate with one more request in it, in order. Appends a measure each.
    pub fn knock(&self, knocks: &[Knock<'_>], measures: &mut Vec<Measure>) {
        self.store.knock(knocks, self.clock.now(), measures);
    }

    /// Does what each order says, one after another. Appends an outcome each.
    pub fn execute(&self, orders: &[Order<'_>], outcomes: &mut Vec<Outcome>) {
        self.store.execute(orders, self.clock.now(), outcomes);
    }

    /// Gives back each of the charges, and says what it came to in all.
    pub fn refund_charges(&self, charges: &[Charge<'_>]) -> Refund {
        let now = self.clock.now();
        let refunds = charges.iter().map(|charge| self.store.refund(charge, now));
        refunds.reduce(Refund::and).unwrap_or(Refund::UNLIMITED)
    }

    /// Forgets the buckets of the charges.
    pub fn reset_charges(&self, charges: &[Charge<'_>]) {
        charges.iter().for_each(|charge| self.store.reset(charge));
    }

    /// Drops buckets that have nothing to say any more from the next `slots` slots of the store. New buckets pay for such
    /// sweeps themselves; call this from a timer to have memory back while nothing happens.
    pub fn sweep(&self, slots: usize) -> usize {
        self.store.sweep(slots, self.clock.now())
    }

    /// The policy in force. A reload does not change the one in hand.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.keep()
    }

    /// Puts another policy in force from the next request on. Buckets stay.
    pub fn reload(&self, policy: Policy) {
        self.policy.replace(policy);
    }

    /// The clock it decides by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What the store holds and has done.
    pub fn census(&self) -> Census {
        self.store.census()
    }
}

//! A policy, a store and a clock: ask, and it decides.

mod awaiting;
mod current_policy;
mod failure;
mod handle;

use std::io;
use std::sync::Arc;

use thiserror::Error;
use tollway_core::algorithm::{QuotaCommand, QuotaOutcome, RateReading};
use tollway_core::{Bill, Charge, ChargeError, Decision, Policy, Refund, RuleBill, RuleDecision, Timestamp};

pub use self::awaiting::{Inspection, RuleInspection};
use self::current_policy::CurrentPolicy;
pub use self::handle::Handle;
use crate::block_on::block_on;
use crate::clock::Clock;
use crate::config::{Config, ConfigErrors, StoreUrl};
use crate::keys::{KeyHash, RateUpdate};
use crate::reports::Report;
use crate::store::memory::{self, Memory, MemoryStats};
use crate::store::redis::{Health, Redis, StoreError};

/// Decides for this process. Shared between threads by reference.
///
/// In memory every call is short, and nothing is waited for. Over Redis a call waits for the answer, for the store's
/// deadline at the most: the methods whose names end in `_async` await it, the others put their thread to sleep.
pub struct Limiter {
    policy: CurrentPolicy,
    /// The buckets; with a shared store, those of limits that decide by themselves while it is away.
    memory: Memory,
    shared: Option<Box<Redis>>,
    clock: Clock,
}

/// Where a limiter's buckets live.
pub enum Store {
    /// In this process.
    Memory(Memory),
    /// In Redis, shared with others. The memory is for limits that decide by themselves while it is away.
    Redis(Redis, Memory),
}

/// Why something could not be given back, forgotten or looked at.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AskError {
    /// It makes no sense.
    #[error(transparent)]
    Charge(#[from] ChargeError),
    /// The store gave no answer. What was asked for may have been done all the same.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Memory> for Store {
    fn from(memory: Memory) -> Self {
        Self::Memory(memory)
    }
}

impl Store {
    /// The store of this address. One elsewhere need not be there yet.
    pub fn open(url: &StoreUrl, max_buckets: usize) -> io::Result<Self> {
        let memory = Memory::new(max_buckets);
        match url {
            StoreUrl::Memory => Ok(Self::Memory(memory)),
            StoreUrl::Redis(url) => Ok(Self::Redis(Redis::open(url)?, memory)),
        }
    }
}

impl Limiter {
    /// A limiter in memory, by the machine's clock.
    pub fn new(policy: Policy) -> Self {
        Self::with(policy, Memory::new(memory::MAX_BUCKETS), Clock::monotonic())
    }

    /// A limiter with the limits and the store of a configuration's text, by the machine's clock.
    pub fn from_yaml(text: &str) -> Result<Self, ConfigErrors> {
        let config = Config::parse(text, "yaml")?;
        Self::open(config, Clock::monotonic())
            .map_err(|error| ConfigErrors::whole_file("yaml", format!("the store cannot be opened: {error}")))
    }

    /// A limiter with the limits and the store of a configuration.
    pub fn open(config: Config, clock: Clock) -> io::Result<Self> {
        Ok(Self::with(config.policy, Store::open(&config.store, config.max_buckets)?, clock))
    }

    /// A limiter of these three parts. Redis decides by its own clock, unless this one is a manual one.
    pub fn with(policy: Policy, store: impl Into<Store>, clock: Clock) -> Self {
        let (memory, shared) = match store.into() {
            Store::Memory(memory) => (memory, None),
            Store::Redis(redis, memory) => (memory, Some(Box::new(redis))),
        };
        Self { policy: CurrentPolicy::new(policy), memory, shared, clock }
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
    pub fn refund(&self, limit: &str, id: impl AsRef<[u8]>, cost: u64) -> Result<Refund, AskError> {
        let policy = self.policy.look();
        let charge = policy.charge(limit, id.as_ref(), cost)?.refundable()?;
        Ok(self.refund_charges(std::slice::from_ref(&charge))?)
    }

    /// Forgets the bucket of `id` under `limit`.
    pub fn reset(&self, limit: &str, id: impl AsRef<[u8]>) -> Result<(), AskError> {
        let policy = self.policy.look();
        Ok(self.reset_charges(&[policy.charge(limit, id.as_ref(), 0)?])?)
    }

    /// The limit of this name, looked up once: for code that always asks under the same limit.
    pub fn handle(&self, limit: &str) -> Result<Handle<'_>, ChargeError> {
        Handle::new(self, limit)
    }

    /// Settles a bill of one charge.
    #[inline]
    pub fn charge(&self, charge: &Charge<'_>) -> Decision {
        match &self.shared {
            None => self.memory.charge(charge, || self.clock.now()),
            Some(_) => block_on(self.charge_async(charge)),
        }
    }

    /// Settles each bill on its own, all of it or nothing. The decisions come in the order of the bills.
    pub fn settle(&self, bills: &[Bill<'_>]) -> Vec<Decision> {
        block_on(self.settle_async(bills))
    }

    /// The decisions [`settle`](Self::settle) would make, taking nothing.
    pub fn check_bills(&self, bills: &[Bill<'_>]) -> Vec<Decision> {
        block_on(self.check_bills_async(bills))
    }

    /// What stands for a key.
    #[inline]
    pub fn hash_key(&self, key: &[u8]) -> KeyHash {
        self.memory.hash_key(key)
    }

    /// Has the bucket of a key fetched from memory. For all keys of a batch, in a loop of its own, before the first knock.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.memory.prefetch(hash);
    }

    /// What stands for the id of a charge under its limit.
    pub fn hash_charge(&self, charge: &Charge<'_>) -> KeyHash {
        self.memory.hash_charge(charge)
    }

    /// Measures each rate with one more request in it, in order. Appends a measure each.
    pub fn update_rates(&self, updates: &[RateUpdate<'_>], readings: &mut Vec<RateReading>) {
        block_on(self.update_rates_async(updates, readings));
    }

    /// Does what each order says, one after another. Appends an outcome each.
    pub fn run_quota_commands(&self, commands: &[QuotaCommand<'_>], outcomes: &mut Vec<QuotaOutcome>) {
        block_on(self.run_quota_commands_async(commands, outcomes));
    }

    /// Is the limit of a rule reached? If not, the request is entered in its logs.
    #[inline]
    pub fn resolve(&self, bill: &RuleBill<'_>) -> RuleDecision {
        match &self.shared {
            None => self.memory.resolve(bill, || self.clock.now()),
            Some(_) => block_on(self.resolve_async(bill)),
        }
    }

    /// Enters what gatekeepers report, in order. Appends from when on the next request of each identifier is next_allowed_at; `None`
    /// is now.
    pub fn record_reports(&self, reports: &[Report<'_>], next_allowed_at: &mut Vec<Option<Timestamp>>) {
        block_on(self.record_reports_async(reports, next_allowed_at));
    }

    /// Gives back each of the charges, and says what it came to in all.
    pub fn refund_charges(&self, charges: &[Charge<'_>]) -> Result<Refund, StoreError> {
        block_on(self.refund_charges_async(charges))
    }

    /// Forgets the buckets of the charges.
    pub fn reset_charges(&self, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        block_on(self.reset_charges_async(charges))
    }

    /// Is an answer something to wait for? In memory it never is.
    #[inline]
    pub const fn waits(&self) -> bool {
        self.shared.is_some()
    }

    /// How the shared store is, if there is one.
    pub fn health(&self) -> Option<Health> {
        self.shared.as_ref().map(|redis| redis.health())
    }

    /// Drops buckets that have nothing to say any more from the next `slots` slots of the store. New buckets pay for such
    /// sweeps themselves; call this from a timer to have memory back while nothing happens.
    pub fn sweep(&self, slots: usize) -> usize {
        self.memory.sweep(slots, self.clock.now())
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

    /// What this process's memory holds and has done.
    pub fn stats(&self) -> MemoryStats {
        self.memory.stats()
    }
}

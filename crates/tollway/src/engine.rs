//! The engine behind every limiter: a policy, a store and a clock, asked in batches.
//!
//! ```
//! use tollway::core::Bill;
//! use tollway::Limiter;
//!
//! let limiter = Limiter::from_yaml("limits: { Login: { burst: 5, count: 5, period: 1m } }")?;
//! let engine = limiter.engine();
//! let policy = engine.policy();
//! let charge = policy.charge("Login", b"alice", 1)?;
//! let decisions = tollway::block_on(engine.settle(&[Bill::one(&charge)]));
//! assert!(decisions[0].allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Applications use [`Limiter`](crate::Limiter) or [`AsyncLimiter`](crate::AsyncLimiter), which ask by name. Servers
//! and middleware decode many requests at once, and hand them over here as one batch.
//!
//! Every call is awaited, on any runtime or on none: in memory it is ready at once, and the answers of Redis come from
//! a thread of the store's own. Dropping a call that has begun takes nothing back: the store may have been asked
//! already.

mod blocking;
mod calls;
mod current_policy;
mod descriptors;
mod failure;
mod inspection;
#[cfg(feature = "journal")]
mod journaled;
#[cfg(feature = "journal")]
mod moved;
#[cfg(feature = "simulation")]
mod simulated_journal;
mod verbs;

#[cfg(feature = "yaml")]
use std::io;
use std::sync::Arc;

use tollway_core::{LostBuckets, Policy};

pub use self::blocking::BlockingEngine;
use self::current_policy::CurrentPolicy;
pub(crate) use self::current_policy::PolicyGuard;
pub use self::inspection::{Inspection, RuleInspection};
#[cfg(feature = "journal")]
pub use self::journaled::JournalOpenError;
#[cfg(feature = "journal")]
pub use self::moved::JournalExport;
#[cfg(feature = "journal")]
pub(crate) use self::moved::policy_of;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use self::simulated_journal::SimulatedJournal;
pub use self::verbs::{Charges, VerbAnswer};
use crate::clock::Clock;
#[cfg(feature = "yaml")]
use crate::config::Config;
#[cfg(all(feature = "journal", feature = "yaml"))]
use crate::config::StoreUrl;
use crate::reports::KnownDelays;
use crate::store::memory::{Memory, MemoryBounds, MemoryStats};
use crate::store::{Health, Redis, Store};

/// Decides requests by a policy, with a store and a clock. Clones share all three.
#[derive(Clone, Debug)]
pub struct Engine {
    parts: Arc<Parts>,
    /// The shared store, if there is one. Outside of `parts`, because a handle of it says whether its caller may block.
    redis: Option<Redis>,
    /// The clock. Outside of `parts`, because a view of the engine can have another.
    clock: Clock,
    /// The journal. Outside of `parts`, because its threads have those: it is closed with the last engine.
    #[cfg(feature = "journal")]
    journal: Option<Arc<journaled::EngineJournal>>,
    /// True if no answer is given before what it decided is on the disk.
    is_awaited: bool,
}

#[derive(Debug)]
struct Parts {
    policy: CurrentPolicy,
    /// The buckets. With a shared store: the buckets of limits that decide locally while the store is unreachable.
    memory: Memory,
    /// The start after which buckets may be missing in memory.
    lost: Option<LostBuckets>,
    /// The delays that a master has published, if a journal keeps them.
    delays: Option<Arc<KnownDelays>>,
}

impl Parts {
    fn new(policy: Policy, memory: Memory, lost: Option<LostBuckets>) -> Self {
        Self { policy: CurrentPolicy::new(after_loss(policy, lost)), memory, lost, delays: None }
    }
}

impl Engine {
    /// Creates an engine over memory, with the machine's clock.
    pub fn new(policy: Policy) -> Self {
        Self::with(policy, Memory::new(MemoryBounds::default()), Clock::monotonic())
    }

    /// Creates an engine with the policy and the store of a configuration.
    #[cfg(feature = "yaml")]
    pub fn open(config: Config, clock: Clock) -> io::Result<Self> {
        #[cfg(feature = "journal")]
        if let (StoreUrl::Memory, Some(settings)) = (&config.store, &config.journal) {
            let opened = Self::with_journal(config.policy, config.memory_bounds, settings, clock);
            return opened.map_err(io::Error::other);
        }
        Ok(Self::with(config.policy, Store::open(&config.store, config.memory_bounds)?, clock))
    }

    /// Creates an engine from its parts. Redis decides by its own clock, unless `clock` is a manual one.
    pub fn with(policy: Policy, store: impl Into<Store>, clock: Clock) -> Self {
        let (memory, redis) = match store.into() {
            Store::Memory(memory) => (memory, None),
            Store::Redis(redis, memory) => (memory, Some(redis)),
        };
        // Without a journal every start is one after which all buckets are missing. A manual clock is that of a test or
        // a replay, which begins where it begins.
        let is_replay = clock.manual_time().is_some();
        let lost = (redis.is_none() && !is_replay).then(|| LostBuckets { epoch: 0, at: clock.now() });
        let parts = Parts::new(policy, memory, lost);
        Self {
            parts: Arc::new(parts),
            redis,
            clock,
            #[cfg(feature = "journal")]
            journal: None,
            is_awaited: false,
        }
    }

    /// Returns a view of this engine that decides by another clock, or `None` if the store is shared, which has a clock
    /// of its own. A caller who records decisions uses it to know the exact time of each. The view does not wait for a
    /// disk: its caller does, with [`until_kept`](Self::until_kept).
    pub fn with_clock(&self, clock: Clock) -> Option<Self> {
        (!self.is_shared()).then(|| Self { clock, is_awaited: false, ..self.clone() })
    }

    /// Returns a view of this engine whose calls put the calling thread to sleep until Redis has answered.
    pub fn blocking(&self) -> BlockingEngine {
        BlockingEngine::new(self)
    }

    /// Returns the current policy. A reload does not change a policy that a caller holds.
    pub fn policy(&self) -> Arc<Policy> {
        self.parts.policy.load_full()
    }

    /// Replaces the policy from the next request on. Buckets stay, and tokens that were used stay used.
    pub fn reload(&self, policy: Policy) {
        let policy = after_loss(policy, self.parts.lost).replacing(&self.policy(), self.clock.now());
        // Before the policy is replaced: from then on its buckets may expire sooner than they are needed.
        self.parts.memory.keep_former(policy.former_buckets());
        self.parts.policy.replace(policy);
    }

    /// Lets sweeps drop the buckets that changed limits still need. The simulator plants it as a bug.
    #[cfg(feature = "simulation")]
    pub fn drop_former(&self) {
        self.parts.memory.keep_former(tollway_core::FormerBuckets::default());
    }

    /// Returns the delays that the journal keeps, or `None` without a journal. A master adds those that it publishes,
    /// and finds those that were in force when the process before ended.
    pub fn journaled_delays(&self) -> Option<Arc<KnownDelays>> {
        self.parts.delays.clone()
    }

    /// Returns the clock that decisions are made by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns how many buckets this process's memory holds, and what it has done.
    pub fn stats(&self) -> MemoryStats {
        self.parts.memory.stats()
    }

    /// Drops expired buckets from the next `slots` slots of the memory store, and returns how many it dropped.
    ///
    /// New buckets pay for such sweeps themselves. A timer that calls this frees memory while no requests come.
    pub fn sweep(&self, slots: usize) -> usize {
        self.parts.memory.sweep(slots, self.clock.now())
    }

    /// Returns true if the store is shared with other processes.
    #[inline]
    pub const fn is_shared(&self) -> bool {
        self.redis.is_some()
    }

    /// Returns true if an answer has to be waited for: the store is shared, or has a journal that syncs before every
    /// answer.
    #[inline]
    pub const fn is_awaited(&self) -> bool {
        self.is_shared() || self.is_awaited
    }

    /// Waits until everything that was decided so far is on the disk, if the journal is to sync before every answer.
    /// All calls of the engine do so themselves.
    #[inline]
    pub async fn until_kept(&self) {
        #[cfg(feature = "journal")]
        if self.is_awaited {
            self.committed().await;
        }
    }

    /// Returns the state of the shared store's nodes, or `None` in memory.
    pub fn health(&self) -> Option<Health> {
        self.redis.as_ref().map(|redis| redis.health())
    }

    #[inline]
    pub(crate) fn current_policy(&self) -> PolicyGuard {
        self.parts.policy.load()
    }

    #[inline]
    pub(crate) fn policy_generation(&self) -> u64 {
        self.parts.policy.generation()
    }

    #[cfg(feature = "yaml")]
    #[inline]
    pub(crate) fn memory(&self) -> &Memory {
        &self.parts.memory
    }
}

/// Tells a policy which buckets may be missing.
fn after_loss(policy: Policy, lost: Option<LostBuckets>) -> Policy {
    match lost {
        Some(lost) => policy.after_loss(lost),
        None => policy,
    }
}

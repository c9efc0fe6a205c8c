//! The policy that applies now: read by every request, replaced by a reload.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use tollway_core::Policy;

/// A policy that is borrowed for one call.
pub(crate) type PolicyGuard = Guard<Arc<Policy>>;

/// A policy that can be replaced while others read it.
#[derive(Debug)]
pub(super) struct CurrentPolicy {
    policy: ArcSwap<Policy>,
    generation: AtomicU64,
}

impl CurrentPolicy {
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy: ArcSwap::from_pointee(policy), generation: AtomicU64::new(0) }
    }

    /// Replaces the policy from the next call on.
    pub(super) fn replace(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
        // After the policy itself: a reader that sees the new generation finds this policy, or a later one.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns how often the policy has been replaced. A policy that was read after the generation is current for as
    /// long as the generation stays the same.
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the policy for as long as the caller keeps it.
    pub(super) fn load_full(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Borrows the policy for one call. It is cheaper than [`load_full`](Self::load_full), but must not be held across
    /// an await.
    #[inline]
    pub(super) fn load(&self) -> PolicyGuard {
        self.policy.load()
    }
}

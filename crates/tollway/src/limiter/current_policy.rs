//! The policy in force, read by every request and replaced once in a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use tollway_core::Policy;

/// A policy that can be replaced while it is read.
pub(super) struct CurrentPolicy {
    policy: ArcSwap<Policy>,
    edition: AtomicU64,
}

impl CurrentPolicy {
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy: ArcSwap::from_pointee(policy), edition: AtomicU64::new(0) }
    }

    /// Puts another policy in force from the next call on.
    pub(super) fn replace(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
        // After the policy itself: whoever sees the new number finds this policy, or a later one.
        self.edition.fetch_add(1, Ordering::Release);
    }

    /// How often it has been replaced: who keeps a policy asks whether this is still the same.
    #[inline]
    pub(super) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// The policy, to keep.
    pub(super) fn keep(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// The policy, to look at.
    #[inline]
    pub(super) fn look(&self) -> impl std::ops::Deref<Target = Arc<Policy>> {
        self.policy.load()
    }
}

//! The policy that applies now: read by every request, replaced by a reload.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tollway_core::Policy;

/// A policy that can be replaced while others read it.
#[derive(Debug)]
pub(super) struct CurrentPolicy(ArcSwap<Policy>);

impl CurrentPolicy {
    pub(super) fn new(policy: Policy) -> Self {
        Self(ArcSwap::from_pointee(policy))
    }

    /// Replaces the policy from the next call on.
    pub(super) fn replace(&self, policy: Policy) {
        self.0.store(Arc::new(policy));
    }

    /// Returns the policy for as long as the caller keeps it.
    pub(super) fn load_full(&self) -> Arc<Policy> {
        self.0.load_full()
    }

    /// Borrows the policy for one call. It is cheaper than [`load_full`](Self::load_full), but must not be held across
    /// an await.
    #[inline]
    pub(super) fn load(&self) -> impl std::ops::Deref<Target = Arc<Policy>> {
        self.0.load()
    }
}

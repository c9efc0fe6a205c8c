//! The policy in force, read by every request and replaced once in a while.
//!
//! Each thread keeps the edition it used last and asks only whether that is still the current one: a load of a number
//! that hardly ever changes, instead of two atomic writes. A thread that stops asking keeps its edition in memory.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use tollgate_core::Policy;

/// Numbers every edition of every limiter of the process.
static EDITIONS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static LAST_USED: RefCell<Option<Edition>> = const { RefCell::new(None) };
}

#[derive(Clone)]
struct Edition {
    number: u64,
    policy: Arc<Policy>,
}

/// A policy that can be replaced while it is read.
pub(super) struct InForce {
    edition: ArcSwap<Edition>,
    current: AtomicU64,
}

impl InForce {
    pub(super) fn new(policy: Policy) -> Self {
        let edition = Edition::of(policy);
        Self { current: AtomicU64::new(edition.number), edition: ArcSwap::from_pointee(edition) }
    }

    /// Puts another policy in force from the next call on.
    pub(super) fn replace(&self, policy: Policy) {
        let edition = Edition::of(policy);
        let number = edition.number;
        self.edition.store(Arc::new(edition));
        // After the edition itself: whoever sees the number finds the policy, or a later one.
        self.current.store(number, Ordering::Release);
    }

    /// The policy, to keep.
    pub(super) fn policy(&self) -> Arc<Policy> {
        self.edition.load().policy.clone()
    }

    /// Reads the policy. `read` must not ask a limiter for anything.
    #[inline]
    pub(super) fn with<T>(&self, read: impl FnOnce(&Policy) -> T) -> T {
        let current = self.current.load(Ordering::Acquire);
        LAST_USED.with_borrow_mut(|last_used| {
            let edition = match last_used {
                Some(edition) if edition.number == current => edition,
                _ => last_used.insert(Edition::clone(&self.edition.load())),
            };
            read(&edition.policy)
        })
    }
}

impl Edition {
    fn of(policy: Policy) -> Self {
        Self { number: EDITIONS.fetch_add(1, Ordering::Relaxed), policy: Arc::new(policy) }
    }
}

//! Counts against an upper bound without a lock.
//!
//! `tests/interleaving.rs` includes this file with loom's atomics, and runs every order of its steps.

use super::atomic::{AtomicUsize, Ordering};

/// A counter that has an upper bound.
#[derive(Debug)]
pub(crate) struct Capacity {
    taken: AtomicUsize,
    max: usize,
}

impl Capacity {
    pub(crate) fn new(max: usize) -> Self {
        Self { taken: AtomicUsize::new(0), max }
    }

    /// Takes one place. Returns the number of places that are taken now, or `None` if all were taken.
    pub(crate) fn take(&self) -> Option<usize> {
        // Relaxed is enough: no other memory depends on the count, and buckets are behind their shard's lock.
        let one_more = |taken| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|before| before + 1)
    }

    /// Takes as many of these places as there are. Returns how many it took.
    #[cfg(feature = "journal")]
    pub(crate) fn take_up_to(&self, places: usize) -> usize {
        let some = |taken: usize| Some(taken + places.min(self.max.saturating_sub(taken)));
        let before = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, some);
        let before = before.unwrap_or_else(|taken| taken);
        places.min(self.max.saturating_sub(before))
    }

    /// Takes places that are in use already, even if there are not so many.
    pub(crate) fn take_above(&self, places: usize) {
        if places > 0 {
            self.taken.fetch_add(places, Ordering::Relaxed);
        }
    }

    /// Releases places that were taken.
    pub(crate) fn give_back(&self, places: usize) {
        if places > 0 {
            self.taken.fetch_sub(places, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        !self.has_free(1)
    }

    /// Returns whether this many places are free.
    pub(crate) fn has_free(&self, places: usize) -> bool {
        self.max.saturating_sub(self.taken()) >= places
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }
}

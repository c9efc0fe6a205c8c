//! Counts buckets and log entries across all shards, against a bound and without a lock.

#[cfg(interleaving)]
use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(interleaving))]
use std::sync::atomic::{AtomicUsize, Ordering};

use super::table::EntryDelta;

/// A counter that has an upper bound.
#[derive(Debug)]
pub(super) struct Capacity {
    taken: AtomicUsize,
    max: usize,
}

impl Capacity {
    pub(super) fn new(max: usize) -> Self {
        Self { taken: AtomicUsize::new(0), max }
    }

    /// Takes one place. Returns the number of places that are taken now, or `None` if all were taken.
    pub(super) fn take(&self) -> Option<usize> {
        // Relaxed is enough: no other memory depends on the count, and buckets are behind their shard's lock.
        let one_more = |taken| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|before| before + 1)
    }

    pub(super) fn is_full(&self) -> bool {
        !self.has_free(1)
    }

    /// Returns whether this many places are free.
    pub(super) fn has_free(&self, places: usize) -> bool {
        self.max.saturating_sub(self.taken()) >= places
    }

    /// Counts entries that were already taken or released. The count may exceed the bound.
    #[inline]
    pub(super) fn count(&self, entry_delta: EntryDelta) {
        let EntryDelta { taken, released } = entry_delta;
        if taken > released {
            self.taken.fetch_add(taken - released, Ordering::Relaxed);
        } else if released > taken {
            self.give_back(released - taken);
        }
    }

    /// Releases places that were taken.
    pub(super) fn give_back(&self, places: usize) {
        if places > 0 {
            self.taken.fetch_sub(places, Ordering::Relaxed);
        }
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }
}

#[cfg(all(test, interleaving))]
mod tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn no_interleaving_takes_more_places_than_there_are_or_loses_one() {
        loom::model(|| {
            let capacity = Arc::new(Capacity::new(1));
            let worker = |capacity: Arc<Capacity>| {
                move || {
                    let got = capacity.take().is_some();
                    if got {
                        assert!(capacity.taken() <= 1);
                        capacity.give_back(1);
                    }
                    got
                }
            };
            let other = loom::thread::spawn(worker(capacity.clone()));
            let mine = worker(capacity.clone())();
            let theirs = other.join().unwrap();
            assert!(mine || theirs);
            assert_eq!(capacity.taken(), 0);
        });
    }
}

//! Counts buckets and log entries across all shards, against their bounds and without a lock.

#[cfg(interleaving)]
use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(interleaving))]
use std::sync::atomic::{AtomicUsize, Ordering};

use std::ops::{Add, AddAssign};

use super::MemoryBounds;
use super::table::EntryDelta;
use crate::hash::BucketHash;

/// The places that the store has for buckets. A bucket that a client made needs a place within the bound of all buckets
/// and one within the bound of such buckets, so that clients leave places for the ids of configured limits.
#[derive(Debug)]
pub(super) struct BucketPlaces {
    all: Capacity,
    client_made: Capacity,
}

/// Numbers of buckets, by who made them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BucketCount {
    /// The buckets of ids under configured limits, rules and domains.
    pub(super) configured: usize,
    /// The buckets that clients made without a configured limit.
    pub(super) client_made: usize,
}

impl BucketCount {
    /// Returns the count of this one bucket.
    pub(super) fn one(hash: BucketHash) -> Self {
        let client_made = usize::from(hash.is_client_made());
        Self { configured: 1 - client_made, client_made }
    }

    pub(super) const fn total(self) -> usize {
        self.configured + self.client_made
    }

    /// Takes one bucket of this kind off the count. Returns false if there is none.
    pub(super) fn take(&mut self, hash: BucketHash) -> bool {
        let count = if hash.is_client_made() { &mut self.client_made } else { &mut self.configured };
        let found = *count > 0;
        *count -= usize::from(found);
        found
    }
}

impl Add for BucketCount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            configured: self.configured + other.configured,
            client_made: self.client_made + other.client_made,
        }
    }
}

impl AddAssign for BucketCount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl BucketPlaces {
    pub(super) fn new(bounds: MemoryBounds) -> Self {
        let client_made = Capacity::new(bounds.client_share());
        Self { all: Capacity::new(bounds.max_buckets), client_made }
    }

    /// Takes a place for a bucket. Returns the number of places that are taken now, or `None` if there was none for it.
    pub(super) fn take(&self, hash: BucketHash) -> Option<usize> {
        if !hash.is_client_made() {
            return self.all.take();
        }
        self.client_made.take()?;
        let taken = self.all.take();
        if taken.is_none() {
            self.client_made.give_back(1);
        }
        taken
    }

    /// Returns whether places for this many buckets are free.
    pub(super) fn has_free(&self, count: BucketCount) -> bool {
        self.all.has_free(count.total()) && self.client_made.has_free(count.client_made)
    }

    /// Releases places that were taken.
    pub(super) fn give_back(&self, count: BucketCount) {
        self.all.give_back(count.total());
        self.client_made.give_back(count.client_made);
    }

    /// Returns the counter of all buckets.
    pub(super) const fn all(&self) -> &Capacity {
        &self.all
    }

    /// Returns the counter of the buckets that clients made.
    pub(super) const fn client_made(&self) -> &Capacity {
        &self.client_made
    }
}

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

//! Counts buckets and log entries across all shards, against their bounds and without a lock.

mod counter;

use std::ops::{Add, AddAssign};

pub(super) use self::counter::Capacity;
use super::MemoryBounds;
use super::table::EntryDelta;
use crate::hash::Tag;

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
    pub(super) fn one(tag: Tag) -> Self {
        let client_made = usize::from(tag.is_client_made());
        Self { configured: 1 - client_made, client_made }
    }

    pub(super) const fn total(self) -> usize {
        self.configured + self.client_made
    }

    /// Takes one bucket of this kind off the count. Returns false if there is none.
    pub(super) fn take(&mut self, tag: Tag) -> bool {
        let count = if tag.is_client_made() { &mut self.client_made } else { &mut self.configured };
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
    pub(super) fn take(&self, tag: Tag) -> Option<usize> {
        if !tag.is_client_made() {
            return self.all.take();
        }
        self.client_made.take()?;
        let taken = self.all.take();
        if taken.is_none() {
            self.client_made.give_back(1);
        }
        taken
    }

    /// Takes as many of these places as there are. Returns how many it took.
    #[cfg(feature = "journal")]
    pub(super) fn take_up_to(&self, count: BucketCount) -> BucketCount {
        let configured = self.all.take_up_to(count.configured);
        let allowed = self.client_made.take_up_to(count.client_made);
        let client_made = self.all.take_up_to(allowed);
        self.client_made.give_back(allowed - client_made);
        BucketCount { configured, client_made }
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

impl Capacity {
    /// Counts entries that were already taken or released. The count may exceed the bound.
    #[inline]
    pub(super) fn count(&self, entry_delta: EntryDelta) {
        let EntryDelta { taken, released } = entry_delta;
        self.take_above(taken.saturating_sub(released));
        self.give_back(released.saturating_sub(taken));
    }
}

/// The atomics of [`counter`]; its test has others.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
}

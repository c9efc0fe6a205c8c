//! The list of the buckets in a table that have changed since a journal last looked.
//!
//! A bucket is marked in its tag when it changes, and is in the list once, however often it changes. So a journal looks
//! at what has changed, and not at all buckets.

use super::slot::StoredBucket;
use crate::hash::Tag;

/// The length from which on a list is looked through for duplicates.
const DEDUP_MIN: usize = 1024;

/// The buckets of a table that have changed, if there is a journal.
#[derive(Debug)]
pub(super) struct Changes {
    is_on: bool,
    /// Each bucket that is marked, and those that were removed. Only the latter may be there several times.
    tags: Vec<Tag>,
    /// The length at which duplicates are dropped.
    dedup_at: usize,
}

impl Changes {
    /// Returns an empty list, which stays empty until it is [turned on](Self::turn).
    pub(super) const fn new() -> Self {
        Self { is_on: false, tags: Vec::new(), dedup_at: DEDUP_MIN }
    }

    /// Turns the list on or off.
    pub(super) const fn turn(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// Exchanges the list for an empty one.
    pub(super) const fn swap(&mut self, empty: &mut Vec<Tag>) {
        std::mem::swap(&mut self.tags, empty);
        self.dedup_at = DEDUP_MIN;
    }

    /// Marks a bucket as changed, unless it is already.
    #[inline]
    pub(super) fn mark<B: StoredBucket>(&mut self, slot: &mut B::Slot) {
        let tag = B::tag(slot);
        if self.is_on && !tag.is_marked() {
            B::set_tag(slot, tag.marked());
            self.push(tag);
        }
    }

    /// Adds a bucket that was removed.
    pub(super) fn add(&mut self, tag: Tag) {
        if self.is_on {
            self.push(tag.unmarked());
        }
    }

    fn push(&mut self, tag: Tag) {
        if self.tags.len() >= self.dedup_at {
            // Whoever makes and resets one bucket again and again takes no more memory than one bucket does.
            self.tags.sort_unstable();
            self.tags.dedup();
            self.dedup_at = (2 * self.tags.len()).max(DEDUP_MIN);
        }
        self.tags.push(tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_that_are_removed_again_and_again_take_little_memory() {
        let mut changes = Changes::new();
        changes.turn(true);
        for word in 0..100_000 {
            changes.add(Tag::from_word(4 * (1 + word % 7)));
        }
        assert!(changes.tags.len() <= DEDUP_MIN);
        let mut tags = Vec::new();
        changes.swap(&mut tags);
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), 7);
        assert!(changes.is_empty());
    }

    #[test]
    fn nothing_is_listed_without_a_journal() {
        let mut changes = Changes::new();
        changes.add(Tag::from_word(4));
        assert!(changes.is_empty());
    }
}

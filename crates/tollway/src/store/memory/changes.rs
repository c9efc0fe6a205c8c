//! The list of what has changed in a table since a journal last looked.
//!
//! ```text
//! [ 1f: full at 12.03 s | 90: removed | 1f: full at 12.05 s ]
//! ```
//!
//! Every change adds a copy of the slot, which a journal writes as it is, without another look at the table: that look
//! would be a cache miss for each bucket. A bucket that changes often is there several times, and only its last state
//! counts. A log is too long to be copied. Its slot is marked when it is listed, and read when the list is written.

use super::slot::StoredBucket;
use crate::hash::Tag;

/// The length at which a list drops what is outdated for the first time. A table has fewer changes between two looks of
/// a journal, unless the journal is held up by its disk.
const COMPACT_MIN: usize = 1024;

/// The changes of a table, if there is a journal.
pub(super) struct Changes<B: StoredBucket> {
    is_on: bool,
    /// The slots as they were after each change, in this order. One whose tag is marked stands for a bucket that was
    /// removed.
    slots: Vec<B::Slot>,
    /// The length at which what is outdated is dropped.
    compact_at: usize,
}

impl<B: StoredBucket> Changes<B> {
    /// Returns an empty list, which stays empty until it is [turned on](Self::turn).
    pub(super) const fn new() -> Self {
        Self { is_on: false, slots: Vec::new(), compact_at: COMPACT_MIN }
    }

    /// Turns the list on or off.
    pub(super) const fn turn(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Exchanges the list for an empty one.
    pub(super) const fn swap(&mut self, empty: &mut Vec<B::Slot>) {
        std::mem::swap(&mut self.slots, empty);
        self.compact_at = COMPACT_MIN;
    }

    /// Adds a bucket that has changed.
    #[inline]
    pub(super) fn add(&mut self, slot: &mut B::Slot) {
        if self.is_on
            && let Some(change) = B::to_change(slot)
        {
            self.push(change);
        }
    }

    /// Adds a bucket that was removed.
    pub(super) fn add_removed(&mut self, tag: Tag) {
        if self.is_on {
            self.push(removed::<B>(tag));
        }
    }

    #[inline]
    fn push(&mut self, change: B::Slot) {
        if self.slots.len() >= self.compact_at {
            self.compact();
        }
        self.slots.push(change);
    }

    /// Drops what is outdated: a list takes no more memory than the buckets that have changed, however long nobody
    /// looks at it.
    #[cold]
    fn compact(&mut self) {
        LastChanges::default().keep::<B>(&mut self.slots);
        self.compact_at = (2 * self.slots.len()).max(COMPACT_MIN);
    }
}

impl<B: StoredBucket> std::fmt::Debug for Changes<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").field("is_on", &self.is_on).field("len", &self.slots.len()).finish()
    }
}

/// Returns what stands for a bucket that was removed.
pub(super) fn removed<B: StoredBucket>(tag: Tag) -> B::Slot {
    B::default().slot(tag.marked())
}

/// Finds the last change of each bucket in a list. It keeps its memory for the next list.
#[derive(Debug, Default)]
pub(super) struct LastChanges {
    /// A hash table of places in the list, each plus one; 0 is empty.
    places: Vec<u32>,
    /// The lists that are passed on as they are before the next one is looked through.
    skipped: usize,
}

/// The share of changes that must be outdated for the next list to be looked through too: one in so many.
const WORTH: usize = 16;
/// The lists that are passed on as they are after one with less than that.
const SKIPPED: usize = 15;

impl LastChanges {
    /// Drops outdated changes, if the last list that was looked through had enough of them. A journal may have several
    /// states of a bucket, in their order: they only take place on the disk.
    pub(super) fn keep_if_worth<B: StoredBucket>(&mut self, changes: &mut Vec<B::Slot>) {
        // One that is longer than usual is that of a bucket that is used all the time.
        if self.skipped > 0 && changes.len() < COMPACT_MIN {
            self.skipped -= 1;
            return;
        }
        let before = changes.len();
        self.keep::<B>(changes);
        self.skipped = if before - changes.len() > before / WORTH { 0 } else { SKIPPED };
    }

    /// Drops all but the last change of each bucket. The others get another order.
    pub(super) fn keep<B: StoredBucket>(&mut self, changes: &mut Vec<B::Slot>) {
        if changes.len() < 2 {
            return;
        }
        let bits = (2 * changes.len()).next_power_of_two().ilog2();
        self.places.clear();
        self.places.resize(1 << bits, 0);
        let mut kept = 0;
        for at in 0..changes.len() {
            let place = self.place::<B>(B::tag(&changes[at]), &changes[..kept], bits);
            let last = match *place {
                0 => {
                    kept += 1;
                    *place = u32::try_from(kept).unwrap_or(u32::MAX);
                    kept - 1
                }
                found => found as usize - 1,
            };
            changes.swap(last, at);
        }
        changes.truncate(kept);
    }

    /// Returns the entry of a bucket, which is empty if none of `kept` is a change of it.
    #[inline]
    fn place<B: StoredBucket>(&mut self, tag: Tag, kept: &[B::Slot], bits: u32) -> &mut u32 {
        let mask = (1 << bits) - 1;
        // Tags are parts of a keyed hash: nobody can choose ids whose entries collide.
        let mut at = tag.home(1 << bits);
        while self.places[at] != 0 && !B::tag(&kept[self.places[at] as usize - 1]).is_same(tag) {
            at = (at + 1) & mask;
        }
        &mut self.places[at]
    }
}

#[cfg(test)]
mod tests {
    use tollway_core::Timestamp;
    use tollway_core::algorithm::TokenBucketState;

    use super::*;

    fn tag(number: u64) -> Tag {
        Tag::from_word(number << 40 | 4)
    }

    fn slot(number: u64, full_at: u64) -> [u64; 2] {
        TokenBucketState::full_at(Timestamp::from_nanos(full_at)).slot(tag(number))
    }

    fn turned_on() -> Changes<TokenBucketState> {
        let mut changes = Changes::new();
        changes.turn(true);
        changes
    }

    #[test]
    fn a_list_that_nobody_looks_at_takes_little_memory() {
        let mut changes = turned_on();
        for word in 0..100_000 {
            changes.add(&mut slot(word % 7, word));
            changes.add_removed(tag(word % 5));
        }
        assert!(changes.slots.len() <= COMPACT_MIN + 1);
    }

    #[test]
    fn the_last_change_of_each_bucket_is_kept() {
        let mut changes = turned_on();
        for number in 0..1_000 {
            changes.add(&mut slot(number % 10, number));
        }
        changes.add_removed(tag(3));
        changes.add(&mut slot(4, 5_000));
        let mut taken = Vec::new();
        changes.swap(&mut taken);
        assert!(changes.is_empty());
        LastChanges::default().keep::<TokenBucketState>(&mut taken);
        taken.sort_unstable();
        let last = |number| match number {
            3 => removed::<TokenBucketState>(tag(3)),
            4 => slot(4, 5_000),
            _ => slot(number, 990 + number),
        };
        assert_eq!(taken, (0..10).map(last).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_listed_without_a_journal() {
        let mut changes = Changes::<TokenBucketState>::new();
        changes.add(&mut slot(1, 1));
        changes.add_removed(tag(1));
        assert!(changes.is_empty());
    }
}

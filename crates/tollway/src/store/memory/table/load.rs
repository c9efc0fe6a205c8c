//! Fills a table with the buckets of a journal, at its final size and in one pass.

use super::{GROUP, OVERFLOW, Table};
use crate::store::memory::slot::StoredBucket;

impl<B: StoredBucket> Table<B> {
    /// Puts buckets into an empty table. They are sorted by tag, and each is there once.
    pub(in crate::store::memory) fn load(&mut self, buckets: Vec<B::Slot>) {
        debug_assert!(self.is_empty(), "buckets that are there would be overwritten");
        if buckets.is_empty() {
            return;
        }
        self.len = buckets.len();
        // As full as a table that has just grown.
        self.homes = (self.len + self.len / 2).div_ceil(GROUP);
        self.slots.grow_to(self.homes * GROUP + OVERFLOW);
        self.moved = true;
        let mut free = 0;
        for slot in buckets {
            let bucket = B::read(&slot);
            self.room += bucket.room();
            self.next_expiry = self.next_expiry.min(bucket.expires_at());
            drop(bucket);
            let at = free.max(B::tag(&slot).home(self.homes) * GROUP);
            // The last slot stays empty.
            while at + 1 >= self.slots.len() {
                self.add_slot();
            }
            *self.slots.at_mut(at) = slot;
            free = at + 1;
        }
    }
}

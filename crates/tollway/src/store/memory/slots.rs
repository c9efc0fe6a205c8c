//! The slots of one table, numbered from 0: one allocation while they are few, then a list of chunks.
//!
//! A list of chunks grows at its end without moving what it has, and every group of slots is within one chunk.

use super::slot::StoredBucket;
use super::table::GROUP;

/// The number of slots up to which a table is one allocation of just that size.
const SMALL_MAX: usize = 128;

#[repr(C)]
pub(super) struct Slots<B: StoredBucket> {
    chunks: Vec<B::Chunk>,
    /// The slots while there are few of them. The list of chunks is empty then.
    small: Vec<B::Slot>,
    len: usize,
}

impl<B: StoredBucket> Slots<B> {
    pub(super) const fn new() -> Self {
        Self { len: 0, small: Vec::new(), chunks: Vec::new() }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&B::Slot> {
        if at >= self.len {
            return None;
        }
        match self.chunks.get(at / B::CHUNK_SLOTS) {
            Some(chunk) => Some(&B::slots(chunk)[at % B::CHUNK_SLOTS]),
            None => self.small.get(at),
        }
    }

    /// Returns a slot that exists.
    #[inline]
    pub(super) fn at(&self, at: usize) -> &B::Slot {
        match self.chunks.get(at / B::CHUNK_SLOTS) {
            Some(chunk) => &B::slots(chunk)[at % B::CHUNK_SLOTS],
            None => &self.small[at],
        }
    }

    /// Returns a slot that exists.
    #[inline]
    pub(super) fn at_mut(&mut self, at: usize) -> &mut B::Slot {
        match self.chunks.get_mut(at / B::CHUNK_SLOTS) {
            Some(chunk) => &mut B::slots_mut(chunk)[at % B::CHUNK_SLOTS],
            None => &mut self.small[at],
        }
    }

    /// Returns the group of slots that starts at `at`, a multiple of the length of a group; `None` if the table has no
    /// slots.
    #[inline]
    pub(super) fn group(&self, at: usize) -> Option<&[B::Slot; GROUP]> {
        let slots = match self.chunks.get(at / B::CHUNK_SLOTS) {
            Some(chunk) => &B::slots(chunk)[at % B::CHUNK_SLOTS..],
            None => self.small.get(at..)?,
        };
        slots.first_chunk()
    }

    pub(super) fn swap(&mut self, one: usize, other: usize) {
        if one != other {
            let slot = std::mem::take(self.at_mut(one));
            let slot = std::mem::replace(self.at_mut(other), slot);
            *self.at_mut(one) = slot;
        }
    }

    /// Adds empty slots at the end until there are `len`.
    pub(super) fn grow_to(&mut self, len: usize) {
        if self.chunks.is_empty() && len <= SMALL_MAX {
            self.small.reserve_exact(len.saturating_sub(self.small.len()));
            self.small.resize_with(len, B::Slot::default);
        } else {
            while self.chunks.len() * B::CHUNK_SLOTS < len {
                self.chunks.push(B::take_chunk());
            }
            let moved = std::mem::take(&mut self.small);
            if let Some(first) = self.chunks.first_mut() {
                B::slots_mut(first).iter_mut().zip(moved).for_each(|(slot, small)| *slot = small);
            }
        }
        self.len = len;
    }

    /// Drops the slots from `len` on, which must be empty, and gives back their memory.
    pub(super) fn shrink_to(&mut self, len: usize) {
        if len <= SMALL_MAX && !self.chunks.is_empty() {
            let small = (0..len).map(|at| std::mem::take(self.at_mut(at))).collect();
            self.small = small;
        }
        let chunks = if len <= SMALL_MAX { 0 } else { len.div_ceil(B::CHUNK_SLOTS) };
        self.chunks.drain(chunks.min(self.chunks.len())..).for_each(B::give_back);
        self.chunks.shrink_to_fit();
        self.small.truncate(len);
        self.small.shrink_to_fit();
        self.len = len;
    }

    /// Returns the address of each piece of memory, which a prefetch needs. A small table has one.
    pub(super) fn addresses(&self) -> impl Iterator<Item = *const B::Slot> {
        let small = self.chunks.is_empty().then_some(self.small.as_ptr());
        small.into_iter().chain(self.chunks.iter().map(|chunk| B::slots(chunk).as_ptr()))
    }
}

impl<B: StoredBucket> Drop for Slots<B> {
    fn drop(&mut self) {
        self.chunks.drain(..).for_each(B::give_back);
    }
}

impl<B: StoredBucket> std::fmt::Debug for Slots<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slots").field("len", &self.len).finish_non_exhaustive()
    }
}

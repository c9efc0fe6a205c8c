//! The slots of a table: a tag and the state of a bucket, as words of 64 bits where the state allows it.
//!
//! | bucket | slot |
//! |---|---|
//! | token bucket | 16 bytes |
//! | fixed window, sliding window | 24 bytes |
//! | smoothed rate, quota, sliding log | 32 bytes |
//!
//! Words can be kept in the memory of the [chunk pool](super::chunk_pool), which is made of plain numbers. A log has
//! memory of its own, so its slots are ordinary values.

use std::ops::Deref;

use tollway_core::Timestamp;
use tollway_core::algorithm::{
    Bucket, FixedWindowState, QuotaState, SlidingLogState, SlidingWindowState, SmoothedRateState,
    TokenBucketState, TtlUnit,
};

use super::chunk_pool::{self, CHUNK_BYTES, PooledChunk};
use super::shard::HotWords;
use crate::hash::Tag;

/// A bucket that can be kept in the slots of a table. An empty slot is the default one, and has the tag [`Tag::NONE`].
pub(super) trait StoredBucket: Bucket + 'static {
    /// The slot that keeps a bucket and its tag.
    type Slot: Default + Send;
    /// A bucket that is read from a slot.
    type Ref<'s>: Deref<Target = Self>;
    /// A piece of memory for [`CHUNK_SLOTS`](Self::CHUNK_SLOTS) slots.
    type Chunk;

    const CHUNK_SLOTS: usize;

    /// The number of words that a bucket is made of; 0 if it is something else.
    const WORDS: usize;

    fn slot(self, tag: Tag) -> Self::Slot;

    fn tag(slot: &Self::Slot) -> Tag;

    /// Returns what a list of changes gets for a bucket that has changed; `None` if the list has it already.
    #[cfg(feature = "journal")]
    fn to_change(slot: &mut Self::Slot) -> Option<Self::Slot>;

    #[cfg(feature = "journal")]
    fn set_tag(slot: &mut Self::Slot, tag: Tag);

    fn read(slot: &Self::Slot) -> Self::Ref<'_>;

    /// Changes the bucket of a slot. The slot is written only if its bucket is another one afterwards, and then passed
    /// to `changed`: a denied request leaves the cache line as it is.
    fn change<T>(
        slot: &mut Self::Slot,
        change: impl FnOnce(&mut Self) -> T,
        changed: impl FnOnce(&mut Self::Slot),
    ) -> T;

    /// Returns the words of a bucket that can be [hot](super::shard::HotBucket); `None` if it has too many.
    fn to_hot(&self) -> Option<HotWords>;

    /// Returns the bucket that [`to_hot`](Self::to_hot) made these words of.
    fn from_hot(words: HotWords) -> Option<Self>;

    /// Returns a chunk whose slots are all empty.
    fn take_chunk() -> Self::Chunk;

    /// Gives back a chunk that is no longer used.
    fn give_back(chunk: Self::Chunk);

    fn slots(chunk: &Self::Chunk) -> &[Self::Slot];

    fn slots_mut(chunk: &mut Self::Chunk) -> &mut [Self::Slot];
}

/// A bucket that was put together from the words of its slot.
pub(super) struct Unpacked<B>(B);

impl<B> Deref for Unpacked<B> {
    type Target = B;

    #[inline]
    fn deref(&self) -> &B {
        &self.0
    }
}

/// Returns the number of slots that fit in a chunk, in whole groups.
const fn slots_per_chunk(slot_bytes: usize) -> usize {
    CHUNK_BYTES / slot_bytes / super::table::GROUP * super::table::GROUP
}

/// Implements [`StoredBucket`] for a bucket that is some words of 64 bits.
macro_rules! packed {
    ($bucket:ty, $words:literal, |$state:ident| $pack:expr, |$packed:ident| $unpack:expr) => {
        impl StoredBucket for $bucket {
            type Slot = [u64; $words + 1];
            type Ref<'s> = Unpacked<Self>;
            type Chunk = PooledChunk;

            const CHUNK_SLOTS: usize = slots_per_chunk(size_of::<Self::Slot>());
            const WORDS: usize = $words;

            #[inline]
            fn slot(self, tag: Tag) -> Self::Slot {
                let mut slot = [tag.to_word(); $words + 1];
                let $state = self;
                let words: [u64; $words] = $pack;
                slot[1..].copy_from_slice(&words);
                slot
            }

            #[inline]
            fn tag(slot: &Self::Slot) -> Tag {
                Tag::from_word(slot[0])
            }

            #[inline]
            #[cfg(feature = "journal")]
            fn to_change(slot: &mut Self::Slot) -> Option<Self::Slot> {
                Some(*slot)
            }

            #[inline]
            #[cfg(feature = "journal")]
            fn set_tag(slot: &mut Self::Slot, tag: Tag) {
                slot[0] = tag.to_word();
            }

            #[inline]
            fn read(slot: &Self::Slot) -> Unpacked<Self> {
                let [_, $packed @ ..] = *slot;
                Unpacked($unpack)
            }

            #[inline(always)] // A decision that a call returned would be copied from the stack.
            fn change<T>(
                slot: &mut Self::Slot,
                change: impl FnOnce(&mut Self) -> T,
                changed: impl FnOnce(&mut Self::Slot),
            ) -> T {
                let Unpacked(mut bucket) = Self::read(slot);
                let outcome = change(&mut bucket);
                let after = bucket.slot(Self::tag(slot));
                if *slot != after {
                    *slot = after;
                    changed(slot);
                }
                outcome
            }

            #[inline]
            fn to_hot(&self) -> Option<HotWords> {
                let $state = *self;
                let words: [u64; $words] = $pack;
                let mut hot = HotWords::default();
                hot.get_mut(..$words)?.copy_from_slice(&words);
                Some(hot)
            }

            #[inline]
            fn from_hot(words: HotWords) -> Option<Self> {
                let $packed: [u64; $words] = words.get(..$words)?.try_into().ok()?;
                Some($unpack)
            }

            fn take_chunk() -> PooledChunk {
                chunk_pool::take()
            }

            fn give_back(chunk: PooledChunk) {
                chunk_pool::give_back(chunk);
            }

            #[inline]
            fn slots(chunk: &PooledChunk) -> &[Self::Slot] {
                &chunk.as_chunks().0[..Self::CHUNK_SLOTS]
            }

            #[inline]
            fn slots_mut(chunk: &mut PooledChunk) -> &mut [Self::Slot] {
                &mut chunk.as_chunks_mut().0[..Self::CHUNK_SLOTS]
            }
        }
    };
}

packed!(TokenBucketState, 1, |bucket| [bucket.expires_at().as_nanos()], |words| {
    Self::full_at(Timestamp::from_nanos(words[0]))
});
packed!(FixedWindowState, 2, |window| [window.ends_at().as_nanos(), window.used()], |words| {
    Self::until(Timestamp::from_nanos(words[0]), words[1])
});
packed!(SlidingWindowState, 2, |window| window.to_words(), |words| Self::from_words(words));
packed!(
    SmoothedRateState,
    3,
    |rate| {
        let (last, value) = rate.last();
        [last.as_nanos(), value.to_bits(), rate.expires_at().as_nanos()]
    },
    |words| Self::measured(
        Timestamp::from_nanos(words[0]),
        f64::from_bits(words[1]),
        Timestamp::from_nanos(words[2])
    )
);
packed!(
    QuotaState,
    3,
    |quota| [quota.expires_at().as_nanos(), quota.counter(), u64::from(quota.unit().0)],
    |words| Self::until(Timestamp::from_nanos(words[0]), words[1], TtlUnit(words[2].to_le_bytes()[0]))
);

/// The slot of a sliding log.
#[derive(Debug, Default)]
pub(super) struct LogSlot {
    tag: Tag,
    log: SlidingLogState,
}

impl StoredBucket for SlidingLogState {
    type Slot = LogSlot;
    type Ref<'s> = &'s Self;
    type Chunk = Box<[LogSlot]>;

    const CHUNK_SLOTS: usize = slots_per_chunk(size_of::<LogSlot>());
    const WORDS: usize = 0;

    fn slot(self, tag: Tag) -> LogSlot {
        LogSlot { tag, log: self }
    }

    #[inline]
    fn tag(slot: &LogSlot) -> Tag {
        slot.tag
    }

    /// A log can be long, so it is marked and read again when it is written.
    #[cfg(feature = "journal")]
    fn to_change(slot: &mut LogSlot) -> Option<LogSlot> {
        let tag = slot.tag;
        slot.tag = tag.marked();
        (!tag.is_marked()).then(|| LogSlot { tag, log: Self::default() })
    }

    #[inline]
    #[cfg(feature = "journal")]
    fn set_tag(slot: &mut LogSlot, tag: Tag) {
        slot.tag = tag;
    }

    #[inline]
    fn read(slot: &LogSlot) -> &Self {
        &slot.log
    }

    #[inline]
    fn change<T>(
        slot: &mut LogSlot,
        change: impl FnOnce(&mut Self) -> T,
        changed: impl FnOnce(&mut LogSlot),
    ) -> T {
        let outcome = change(&mut slot.log);
        changed(slot);
        outcome
    }

    fn to_hot(&self) -> Option<HotWords> {
        None
    }

    fn from_hot(_: HotWords) -> Option<Self> {
        None
    }

    fn take_chunk() -> Box<[LogSlot]> {
        (0..Self::CHUNK_SLOTS).map(|_| LogSlot::default()).collect()
    }

    fn give_back(chunk: Box<[LogSlot]>) {
        drop(chunk);
    }

    #[inline]
    fn slots(chunk: &Box<[LogSlot]>) -> &[LogSlot] {
        chunk
    }

    #[inline]
    fn slots_mut(chunk: &mut Box<[LogSlot]>) -> &mut [LogSlot] {
        chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_as_small_as_the_pages_say() {
        assert_eq!(size_of::<<TokenBucketState as StoredBucket>::Slot>(), 16);
        assert_eq!(size_of::<<FixedWindowState as StoredBucket>::Slot>(), 24);
        assert_eq!(size_of::<<SlidingWindowState as StoredBucket>::Slot>(), 24);
        assert_eq!(size_of::<<SmoothedRateState as StoredBucket>::Slot>(), 32);
        assert_eq!(size_of::<<QuotaState as StoredBucket>::Slot>(), 32);
        assert_eq!(size_of::<LogSlot>(), 32);
    }
}

//! Finds a bucket by what it is about: 128 bits stand for the limit and the id, and neither is stored.
//!
//! The hash is keyed with a number drawn at start. Nobody outside can tell which ids meet in a shard, so nobody can aim
//! at one; and two ids of one limit share a bucket with a chance of about n²/2^129, once in 10^24 years at a million new ids a second.

use std::hash::{BuildHasher, RandomState};

use tollgate_core::Charge;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The key of one process.
#[derive(Clone, Debug)]
pub(super) struct HashKey {
    secret: u64,
}

/// What stands for one bucket. Ordered by its high half first: a table keeps its slots in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BucketHash {
    high: u64,
    low: u64,
}

impl HashKey {
    pub(super) fn random() -> Self {
        Self { secret: RandomState::new().hash_one("tollgate") }
    }

    #[inline]
    pub(super) fn hash(&self, charge: &Charge<'_>) -> BucketHash {
        // One multiplication, so that the seeds of two limits are not a known difference apart.
        let seed = (self.secret ^ charge.limit().fingerprint()).wrapping_mul(0xa076_1d64_78bd_642f);
        BucketHash::new(xxh3_128_with_seed(charge.id(), seed))
    }
}

impl BucketHash {
    /// Stands for no bucket: it marks an empty slot.
    pub(super) const NONE: Self = Self { high: 0, low: 0 };

    pub(super) fn new(hash: u128) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        let (high, low) = ((hash >> 64) as u64, hash as u64);
        Self { high, low: low.max(1) }
    }

    /// Equality without a branch.
    #[inline]
    pub(super) fn is(self, other: Self) -> bool {
        (self.high ^ other.high) | (self.low ^ other.low) == 0
    }

    /// Which of `shards` (a power of two) it belongs to.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to the number of shards")]
    pub(super) fn shard(self, shards: usize) -> usize {
        self.low as usize & (shards - 1)
    }

    /// Where among `homes` it belongs, so that a greater hash never comes before a smaller one.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "less than `homes`")]
    pub(super) fn home(self, homes: usize) -> usize {
        ((u128::from(self.high) * homes as u128) >> 64) as usize
    }
}

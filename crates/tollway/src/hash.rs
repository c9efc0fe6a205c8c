//! Finds a bucket by what it is about: 128 bits stand for the limit and the id, and neither is stored.
//!
//! The hash is keyed with numbers drawn at start. Nobody outside can tell which ids meet in a shard, so nobody can aim
//! at one; and that any two of ten million ids should ever share a bucket has a chance of one in 10^24.

use std::hash::{BuildHasher, RandomState};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};
use tollway_core::Charge;

/// The key of one process: two independent ones, each for half of the hash.
#[derive(Clone, Debug)]
pub(crate) struct HashKey {
    high: RapidSecrets,
    low: RapidSecrets,
}

/// What stands for one bucket. Ordered by its high half first: a table keeps its slots in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BucketHash {
    high: u64,
    low: u64,
}

impl HashKey {
    pub(crate) fn random() -> Self {
        let random = RandomState::new();
        let secrets = |half: &str| RapidSecrets::seed(random.hash_one(half));
        Self { high: secrets("high"), low: secrets("low") }
    }

    #[inline]
    pub(crate) fn hash(&self, charge: &Charge<'_>) -> BucketHash {
        self.hash_of(charge.limit().fingerprint(), charge.id())
    }

    /// The low half, and so the shard, depends on the id alone: the buckets of one id under several limits share a lock.
    #[inline]
    pub(crate) fn hash_of(&self, fingerprint: u64, id: &[u8]) -> BucketHash {
        let half = |key| rapidhash_v3_nano_inline::<true, true>(id, key);
        BucketHash { high: half(&self.high) ^ fingerprint, low: half(&self.low).max(1) }
    }
}

impl BucketHash {
    /// Stands for no bucket: it marks an empty slot.
    pub(crate) const NONE: Self = Self { high: 0, low: 0 };

    /// Equality without a branch.
    #[inline]
    pub(crate) fn is(self, other: Self) -> bool {
        (self.high ^ other.high) | (self.low ^ other.low) == 0
    }

    /// Which of `shards` (a power of two) it belongs to.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to the number of shards")]
    pub(crate) fn shard(self, shards: usize) -> usize {
        self.low as usize & (shards - 1)
    }

    /// Where among `homes` it belongs, so that a greater hash never comes before a smaller one.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "less than `homes`")]
    pub(crate) fn home(self, homes: usize) -> usize {
        ((u128::from(self.high) * homes as u128) >> 64) as usize
    }

    /// Both halves.
    #[inline]
    #[cfg(feature = "yaml")]
    pub(crate) const fn halves(self) -> (u64, u64) {
        (self.high, self.low)
    }

    /// A hash of the test's choosing.
    #[cfg(test)]
    pub(crate) fn of(high: u64, low: u64) -> Self {
        Self { high, low: low.max(1) }
    }
}

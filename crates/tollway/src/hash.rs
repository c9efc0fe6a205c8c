//! Hashes a limit and an id into the 128 bits that identify a bucket; neither is stored.
//!
//! The hash is keyed with random numbers that are drawn at start. Without them an attacker could choose ids that all
//! fall into one shard. The chance that any two of ten million ids ever share a bucket is one in 10^24.
//!
//! One of the 128 bits says whether a client made the bucket, so that a table can count such buckets without storing
//! anything beside them. 127 bits that depend on the id are still enough for the chance above.

use std::hash::{BuildHasher, RandomState};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};
use tollway_core::Charge;

/// The random key that one process hashes with. It has two independent halves, one for each half of the hash.
#[derive(Clone, Debug)]
pub(crate) struct HashKey {
    high: RapidSecrets,
    low: RapidSecrets,
}

/// The 128 bits that identify one bucket. The order is by the high half first: a table keeps its slots in this order.
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

    /// Hashes the bucket of a charge. Clients make those of inline limits.
    #[inline]
    pub(crate) fn hash(&self, charge: &Charge<'_>) -> BucketHash {
        let BucketHash { high, low } = self.hash_of(charge.bucket_fingerprint(), charge.id());
        // Not `hash_client_made`: a server that mixes both kinds would mispredict that branch.
        let mark = if charge.limit().is_inline() { CLIENT_MADE } else { 0 };
        BucketHash { high, low: low | mark }
    }

    /// Hashes an id under a limit with this fingerprint. The low half, and so the shard, depends on the id alone: the
    /// buckets of one id under several limits are then behind one lock.
    #[inline]
    pub(crate) fn hash_of(&self, fingerprint: u64, id: &[u8]) -> BucketHash {
        let (high, low) = self.halves(fingerprint, id);
        BucketHash { high, low: (low & !CLIENT_MADE).max(1) }
    }

    /// Hashes the name of a bucket that clients make at will, without a limit that somebody configured.
    #[inline]
    pub(crate) fn hash_client_made(&self, fingerprint: u64, name: &[u8]) -> BucketHash {
        let (high, low) = self.halves(fingerprint, name);
        BucketHash { high, low: low | CLIENT_MADE }
    }

    #[inline]
    fn halves(&self, fingerprint: u64, id: &[u8]) -> (u64, u64) {
        let half = |key| rapidhash_v3_nano_inline::<true, true>(id, key);
        (half(&self.high) ^ fingerprint, half(&self.low))
    }
}

/// The bit of the low half that marks a bucket as made by a client. It is the highest, because the lowest bits choose
/// the shard.
const CLIENT_MADE: u64 = 1 << 63;

impl BucketHash {
    /// The value that marks an empty slot. No bucket has it, because the low half is never 0.
    pub(crate) const NONE: Self = Self { high: 0, low: 0 };

    /// Compares without a branch, unlike the derived `==`, which compares the halves one after the other.
    #[inline]
    pub(crate) fn equals(self, other: Self) -> bool {
        (self.high ^ other.high) | (self.low ^ other.low) == 0
    }

    /// Returns whether a client made the bucket, without a limit that somebody configured.
    #[inline]
    pub(crate) const fn is_client_made(self) -> bool {
        self.low & CLIENT_MADE != 0
    }

    /// Returns the index of its shard. `shards` is a power of two.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to the number of shards")]
    pub(crate) fn shard(self, shards: usize) -> usize {
        self.low as usize & (shards - 1)
    }

    /// Returns its home among `homes`. A greater hash never has an earlier home: tables rely on this order.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "less than `homes`")]
    pub(crate) fn home(self, homes: usize) -> usize {
        ((u128::from(self.high) * homes as u128) >> 64) as usize
    }

    /// Returns the high and the low half.
    #[inline]
    #[cfg(feature = "yaml")]
    pub(crate) const fn halves(self) -> (u64, u64) {
        (self.high, self.low)
    }

    /// Returns a hash that a test chooses.
    #[cfg(test)]
    pub(crate) fn of(high: u64, low: u64) -> Self {
        Self { high, low: low.max(1) }
    }
}

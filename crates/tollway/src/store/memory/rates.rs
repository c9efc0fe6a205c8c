//! Updates smoothed rates in the memory store: of keys, and of ids under limits.

use std::sync::atomic::Ordering;

use tollway_core::algorithm::{RateReading, SmoothedRateState};
use tollway_core::{OnFull, Timestamp};

use super::{Memory, StoreFull, no_entries};
use crate::hash::BucketHash;
use crate::rates::{RateSubject, RateUpdate};

/// The fingerprint of keys, which have no limit.
pub(super) const KEY_FINGERPRINT: u64 = u64::from_le_bytes(*b"text key");

impl Memory {
    /// Returns the hash of a key.
    #[inline]
    pub(crate) fn hash_key(&self, key: &[u8]) -> BucketHash {
        self.key.hash_client_made(KEY_FINGERPRINT, key)
    }

    /// Starts to fetch the rate of a key from memory.
    #[inline]
    #[cfg(feature = "yaml")]
    pub(crate) fn prefetch_rate(&self, hash: BucketHash) {
        self.shards.prefetch_bucket::<SmoothedRateState>(hash);
        self.shards.prefetch_lock(hash);
    }

    /// Counts one more request in each rate, and appends a reading for each.
    pub fn update_rates(&self, updates: &[RateUpdate<'_>], now: Timestamp, readings: &mut Vec<RateReading>) {
        readings.extend(updates.iter().map(|RateUpdate { bucket, hash, limit, on_full, .. }| {
            let hash = hash.unwrap_or_else(|| match bucket {
                RateSubject::Key(key) => self.hash_key(key),
                RateSubject::Id(charge) => self.key.hash(charge),
            });
            let measured = self
                .change(hash, no_entries, now, |bucket: &mut SmoothedRateState| bucket.update(limit, 1, now));
            measured.unwrap_or_else(|StoreFull| {
                self.refused_full.fetch_add(1, Ordering::Relaxed);
                RateReading::new(0.0, *on_full == OnFull::Deny)
            })
        }));
    }
}

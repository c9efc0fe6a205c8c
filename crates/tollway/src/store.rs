//! The stores: buckets in this process's memory, or in a Redis that a fleet shares.

#[cfg(any(feature = "journal", feature = "redis"))]
pub(crate) mod bucket_name;
mod error;
mod health;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(not(feature = "redis"))]
#[path = "store/redis_disabled.rs"]
mod redis;
#[cfg(any(feature = "journal", feature = "redis"))]
pub(crate) mod written_token_bucket;

#[cfg(feature = "yaml")]
use std::io;

use tollway_core::algorithm::{
    Bucket, FixedWindowState, QuotaState, SlidingLogState, SlidingWindowState, SmoothedRateState,
    TokenBucketState,
};
use tollway_core::{Decision, Timestamp};

pub use self::error::StoreError;
pub use self::health::{Health, NodeHealth, NodeState};
use self::memory::Memory;
#[cfg(feature = "yaml")]
use self::memory::MemoryBounds;
pub use self::redis::Redis;
#[cfg(feature = "yaml")]
use crate::config::StoreUrl;

/// The place where an engine's buckets live.
#[derive(Debug)]
#[non_exhaustive]
pub enum Store {
    /// This process's memory.
    Memory(Memory),
    /// Redis, shared with other processes. The memory is for limits that decide locally while Redis is unreachable.
    Redis(Redis, Memory),
}

impl From<Memory> for Store {
    fn from(memory: Memory) -> Self {
        Self::Memory(memory)
    }
}

#[cfg(feature = "yaml")]
impl Store {
    /// Opens the store of this URL. An unreachable Redis may be started later. A password, a user or a certificate that
    /// is refused is an error.
    pub fn open(url: &StoreUrl, bounds: impl Into<MemoryBounds>) -> io::Result<Self> {
        let memory = Memory::new(bounds);
        match url {
            StoreUrl::Memory => Ok(Self::Memory(memory)),
            #[cfg(feature = "redis")]
            StoreUrl::Redis(url) => Ok(Self::Redis(Redis::open(url)?, memory)),
        }
    }
}

/// A page of the buckets that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct BucketPage {
    /// The keys of the buckets, `NewOrdersPerAccount:12345678`.
    pub buckets: Vec<String>,
    /// The start of the next page, if there is one.
    pub next: Option<u64>,
}

/// A bucket that was read once, and the decisions that follow from what was read.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct BucketReading {
    /// The state of the bucket; `None` if the store holds none.
    pub state: Option<BucketState>,
    /// The decision that a request of cost 0 would get.
    pub decision: Decision,
    /// The decision that a request of cost 1 would get.
    pub next: Decision,
    /// The time of the reading, by the clock of the store.
    pub at: Timestamp,
}

impl BucketReading {
    /// Returns the reading of an id that nothing limits.
    const fn unlimited(at: Timestamp) -> Self {
        Self { state: None, decision: Decision::UNLIMITED, next: Decision::UNLIMITED, at }
    }
}

/// The state that a store keeps of one bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum BucketState {
    /// The time when the bucket is full again.
    TokenBucket(TokenBucketState),
    /// The number of entries in a log, with the oldest and the newest.
    SlidingLog {
        /// The number of entries.
        entries: u64,
        /// The entry that expires first.
        oldest: Timestamp,
        /// The entry that expires last.
        newest: Timestamp,
    },
    /// The last rate, and when it was measured.
    SmoothedRate(SmoothedRateState),
    /// The units used, and when they expire.
    Quota(QuotaState),
    /// The units used in a window, and when it ends.
    FixedWindow(FixedWindowState),
    /// The units used in two windows, and when the later one ends.
    SlidingWindow(SlidingWindowState),
}

impl From<&TokenBucketState> for BucketState {
    fn from(bucket: &TokenBucketState) -> Self {
        Self::TokenBucket(*bucket)
    }
}

impl From<&SlidingLogState> for BucketState {
    fn from(log: &SlidingLogState) -> Self {
        Self::SlidingLog {
            entries: log.len() as u64,
            oldest: log.nth_newest(log.len()).unwrap_or_default(),
            newest: log.nth_newest(1).unwrap_or_default(),
        }
    }
}

impl From<&SmoothedRateState> for BucketState {
    fn from(rate: &SmoothedRateState) -> Self {
        Self::SmoothedRate(*rate)
    }
}

impl From<&QuotaState> for BucketState {
    fn from(quota: &QuotaState) -> Self {
        Self::Quota(*quota)
    }
}

impl From<&FixedWindowState> for BucketState {
    fn from(window: &FixedWindowState) -> Self {
        Self::FixedWindow(*window)
    }
}

impl From<&SlidingWindowState> for BucketState {
    fn from(window: &SlidingWindowState) -> Self {
        Self::SlidingWindow(*window)
    }
}

impl BucketState {
    /// Returns the state of a bucket that has not expired.
    fn live<'b, B: Bucket>(bucket: Option<&'b B>, now: Timestamp) -> Option<Self>
    where
        Self: From<&'b B>,
    {
        bucket.filter(|bucket| bucket.expires_at() > now).map(Self::from)
    }
}

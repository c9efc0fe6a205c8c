//! Where buckets live.

pub mod memory;
pub mod redis;

use tollway_core::Timestamp;
use tollway_core::algorithm::{Bucket, Quota, SlidingLog, SmoothedRate, TokenBucket};

/// What one bucket remembers, for whoever wants to look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Held {
    /// When it is full again.
    TokenBucket(TokenBucket),
    /// How many entries it has, and its oldest and newest.
    SlidingLog {
        /// How many.
        entries: u64,
        /// The first to expire.
        oldest: Timestamp,
        /// The last to expire.
        newest: Timestamp,
    },
    /// When it was last measured, and what it was.
    SmoothedRate(SmoothedRate),
    /// What was used, and until when.
    Quota(Quota),
}

impl From<&TokenBucket> for Held {
    fn from(bucket: &TokenBucket) -> Self {
        Self::TokenBucket(*bucket)
    }
}

impl From<&SlidingLog> for Held {
    fn from(log: &SlidingLog) -> Self {
        Self::SlidingLog {
            entries: log.len() as u64,
            oldest: log.nth_newest(log.len()).unwrap_or_default(),
            newest: log.nth_newest(1).unwrap_or_default(),
        }
    }
}

impl From<&SmoothedRate> for Held {
    fn from(rate: &SmoothedRate) -> Self {
        Self::SmoothedRate(*rate)
    }
}

impl From<&Quota> for Held {
    fn from(quota: &Quota) -> Self {
        Self::Quota(*quota)
    }
}

impl Held {
    /// What a bucket holds that still says something.
    fn live<'b, B: Bucket>(bucket: Option<&'b B>, now: Timestamp) -> Option<Self>
    where
        Self: From<&'b B>,
    {
        bucket.filter(|bucket| bucket.silent_at() > now).map(Self::from)
    }
}

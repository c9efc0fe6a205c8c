//! Where buckets live.

pub mod memory;
pub mod redis;

use tollway_core::Timestamp;
use tollway_core::algorithm::{Bucket, QuotaState, SlidingLogState, SmoothedRateState, TokenBucketState};

/// What one bucket remembers, for whoever wants to look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BucketState {
    /// When it is full again.
    TokenBucket(TokenBucketState),
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
    SmoothedRate(SmoothedRateState),
    /// What was used, and until when.
    Quota(QuotaState),
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

impl BucketState {
    /// What a bucket holds that still says something.
    fn live<'b, B: Bucket>(bucket: Option<&'b B>, now: Timestamp) -> Option<Self>
    where
        Self: From<&'b B>,
    {
        bucket.filter(|bucket| bucket.expires_at() > now).map(Self::from)
    }
}

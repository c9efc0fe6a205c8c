//! A token bucket as it is kept with a name: with the emission interval that it was written under.

use tollway_core::algorithm::{Bucket, TokenBucket, TokenBucketState};
use tollway_core::{Nanos, Timestamp};

/// The moment at which a token bucket is full, and what is needed to read it under other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrittenTokenBucket {
    pub(crate) full_at: Timestamp,
    /// The emission interval; `None` if the numbers came with the request.
    pub(crate) interval: Option<Nanos>,
    /// True if more had been used than the bucket could hold when it was converted.
    pub(crate) overdrawn: bool,
}

impl WrittenTokenBucket {
    /// Returns the bucket under `limit`: one of another interval is converted. If more had been used than it could hold
    /// when it was converted before, it is empty then. One without an interval is taken as it is, and so is any bucket
    /// whose numbers come with the request.
    pub(crate) fn under(self, limit: &TokenBucket, now: Timestamp) -> TokenBucketState {
        let bucket = TokenBucketState::full_at(self.full_at);
        let Some(interval) = self.interval.filter(|_| !limit.is_inline()) else { return bucket };
        if self.overdrawn && interval != limit.emission_interval() && bucket.expires_at() > now {
            return TokenBucketState::full_at(now + limit.fill_time());
        }
        bucket.converted(interval, limit, now)
    }
}

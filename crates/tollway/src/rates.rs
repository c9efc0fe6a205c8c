//! Updates of smoothed rates: one request for one key, or for one id under a limit.

use tollway_core::algorithm::SmoothedRate;
use tollway_core::{Charge, OnFull, OnStoreFailure};

use crate::hash::BucketHash;

/// A hash that identifies a key, or an id under a limit. It is valid for the engine that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyHash(pub(crate) BucketHash);

/// A request that is added to a smoothed rate. A [`RateReading`](tollway_core::algorithm::RateReading) answers it.
#[derive(Clone, Copy, Debug)]
pub struct RateUpdate<'a> {
    /// The key or the id whose rate is updated.
    pub bucket: RateSubject<'a>,
    /// The hash of `bucket`, by which memory finds it.
    pub hash: KeyHash,
    /// The limit that the rate must stay below.
    pub limit: &'a SmoothedRate,
    /// The answer for a new bucket when the store is full.
    pub on_full: OnFull,
    /// The answer when the store gives none.
    pub on_store_failure: OnStoreFailure,
}

/// The key, or the id under a limit, that a rate belongs to.
#[derive(Clone, Copy, Debug)]
pub enum RateSubject<'a> {
    /// A key, as rewritten by the policy.
    Key(&'a [u8]),
    /// An id under a limit.
    Id(&'a Charge<'a>),
}

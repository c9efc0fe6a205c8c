//! Updates of smoothed rates: one request for one key, or for one id under a limit.

use tollway_core::algorithm::SmoothedRate;
use tollway_core::{Algorithm, Charge, OnFull, OnStoreFailure};

use crate::hash::BucketHash;

/// A request that is added to a smoothed rate. A [`RateReading`](tollway_core::algorithm::RateReading) answers it.
#[derive(Clone, Copy, Debug)]
pub struct RateUpdate<'a> {
    pub(crate) bucket: RateSubject<'a>,
    pub(crate) limit: &'a SmoothedRate,
    pub(crate) on_full: OnFull,
    pub(crate) on_store_failure: OnStoreFailure,
    /// The hash of a key that was looked up by it already.
    pub(crate) hash: Option<BucketHash>,
}

/// The key, or the id under a limit, that a rate belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RateSubject<'a> {
    Key(&'a [u8]),
    Id(&'a Charge<'a>),
}

impl<'a> RateUpdate<'a> {
    /// Makes an update of the rate of a key, which is as the policy rewrote it.
    pub const fn of_key(
        key: &'a [u8],
        limit: &'a SmoothedRate,
        on_full: OnFull,
        on_store_failure: OnStoreFailure,
    ) -> Self {
        Self { bucket: RateSubject::Key(key), limit, on_full, on_store_failure, hash: None }
    }

    /// Makes an update of the rate of an id, or returns `None` if its limit is no smoothed rate.
    pub fn of_charge(charge: &'a Charge<'a>) -> Option<Self> {
        let Some(Algorithm::SmoothedRate(rate)) = charge.algorithm() else { return None };
        let limit = charge.limit();
        Some(Self {
            bucket: RateSubject::Id(charge),
            limit: rate,
            on_full: limit.on_full(),
            on_store_failure: limit.on_store_failure(),
            hash: None,
        })
    }
}

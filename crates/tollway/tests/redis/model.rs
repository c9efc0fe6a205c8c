//! Predicts the answers of one bucket with the core's own state, kept as a store keeps it.

use tollway::core::algorithm::{
    Bucket, FixedWindowState, QuotaState, SlidingLogState, SlidingWindowState, SmoothedRateState,
    TokenBucketState,
};
use tollway::core::{Algorithm, Bill, Charge, ChargeKind, Decision, Nanos, Refund, Timestamp, Verdict};
use tollway::store::BucketState;

/// A bucket, or none where nothing is remembered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    token_bucket: Option<TokenBucketState>,
    /// The interval that the token bucket was written under, and whether more was used than it could hold then.
    written: (Nanos, bool),
    sliding_log: Option<SlidingLogState>,
    smoothed_rate: Option<SmoothedRateState>,
    quota: Option<QuotaState>,
    fixed_window: Option<FixedWindowState>,
    sliding_window: Option<SlidingWindowState>,
}

macro_rules! with_bucket {
    ($model:expr, $algorithm:expr, |$bucket:ident, $limit:ident| $body:expr) => {
        match $algorithm {
            Algorithm::TokenBucket($limit) => {
                let $bucket = &mut $model.token_bucket;
                $body
            }
            Algorithm::SlidingLog($limit) => {
                let $bucket = &mut $model.sliding_log;
                $body
            }
            Algorithm::SmoothedRate($limit) => {
                let $bucket = &mut $model.smoothed_rate;
                $body
            }
            Algorithm::Quota($limit) => {
                let $bucket = &mut $model.quota;
                $body
            }
            Algorithm::FixedWindow($limit) => {
                let $bucket = &mut $model.fixed_window;
                $body
            }
            Algorithm::SlidingWindow($limit) => {
                let $bucket = &mut $model.sliding_window;
                $body
            }
        }
    };
}

impl Model {
    pub(crate) fn check(&mut self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        let algorithm = charge.algorithm().unwrap();
        let mut converted = self.converted(algorithm, now);
        let decision =
            with_bucket!(converted, algorithm, |bucket, limit| check(bucket, limit, charge.cost(), now));
        Bill::one(charge).answer(&[decision])
    }

    /// Settles a bill of this one charge.
    pub(crate) fn settle(&mut self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        let (algorithm, cost) = (charge.algorithm().unwrap(), charge.cost());
        let mut converted = self.converted(algorithm, now);
        let decision = with_bucket!(converted, algorithm, |bucket, limit| check(bucket, limit, cost, now));
        if (charge.kind(), decision.verdict) == (ChargeKind::CheckOnly, Verdict::Allow) {
            // Nothing is written, not even a conversion.
            return Bill::one(charge).answer(&[decision]);
        }
        *self = converted;
        let full = self.token_bucket.is_none_or(|bucket| bucket.expires_at() <= now);
        if let Algorithm::TokenBucket(limit) = algorithm
            && full
            && cost > 0
            && decision.verdict == Verdict::Allow
        {
            self.written = (limit.emission_interval(), false);
        }
        with_bucket!(self, algorithm, |bucket, limit| {
            change(bucket, now, |bucket| match (charge.kind(), decision.verdict) {
                (ChargeKind::Spend, _) | (ChargeKind::SpendOnly, Verdict::Allow) => {
                    let _ = bucket.charge(limit, cost, now);
                }
                (ChargeKind::CheckOnly, Verdict::Allow) => {}
                (ChargeKind::SpendOnly | ChargeKind::CheckOnly, _) => {
                    let _ = bucket.charge(limit, 0, now);
                }
            });
            Bill::one(charge).answer(&[decision])
        })
    }

    pub(crate) fn refund(&mut self, charge: &Charge<'_>, now: Timestamp) -> Refund {
        *self = self.converted(charge.algorithm().unwrap(), now);
        with_bucket!(self, charge.algorithm().unwrap(), |bucket, limit| {
            change(bucket, now, |bucket| bucket.refund(limit, charge.cost(), now))
        })
        .unwrap_or(Refund::UNLIMITED)
    }

    pub(crate) fn held(&mut self, algorithm: &Algorithm, now: Timestamp) -> Option<BucketState> {
        let mut converted = self.converted(algorithm, now);
        with_bucket!(converted, algorithm, |bucket, _limit| {
            bucket.as_ref().filter(|bucket| bucket.expires_at() > now).map(BucketState::from)
        })
    }
}

impl Model {
    /// Returns the model as Redis reads it under these numbers: what was used stays used.
    fn converted(&self, algorithm: &Algorithm, now: Timestamp) -> Self {
        let mut converted = self.clone();
        let Algorithm::TokenBucket(limit) = algorithm else { return converted };
        let (interval, overdrawn) = self.written;
        let owed = self.token_bucket.map_or(Nanos::ZERO, |bucket| bucket.expires_at().since(now));
        if owed == Nanos::ZERO || interval == limit.emission_interval() {
            return converted;
        }
        let used = if overdrawn { limit.burst() } else { owed.get().div_ceil(interval.get()) };
        let owed = limit.emission_interval().saturating_mul(used).min(limit.fill_time());
        converted.token_bucket = Some(TokenBucketState::full_at(now + owed));
        converted.written = (limit.emission_interval(), used > limit.burst());
        converted
    }
}

fn check<B: Bucket>(bucket: &Option<B>, limit: &B::Limit, cost: u64, now: Timestamp) -> Decision {
    bucket.as_ref().unwrap_or(&B::default()).check(limit, cost, now)
}

/// Changes a bucket. One that is new is kept if it has something to say.
pub(crate) fn change<B: Bucket, T>(
    bucket: &mut Option<B>,
    now: Timestamp,
    change: impl FnOnce(&mut B) -> T,
) -> T {
    let mut changed = bucket.take();
    let known = changed.is_some();
    let outcome = change(changed.get_or_insert_default());
    *bucket = changed.filter(|bucket| known || bucket.expires_at() > now);
    outcome
}

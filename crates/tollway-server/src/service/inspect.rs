//! Shows buckets to people. Nothing is decided, and nothing counted.

use tollway::store::BucketState;
use tollway_core::algorithm::Bucket;
use tollway_core::{Nanos, Verdict};
use tollway_wire::http::{BucketReport, InspectQuery, KeysPage, KeysQuery, StateSummary};

use super::{Service, ServiceError};
use crate::caller::Caller;

impl Service {
    /// Returns the state of one bucket, and the decisions that follow from it.
    pub(crate) async fn inspect(
        &self,
        caller: &Caller<'_>,
        asked: &InspectQuery<'_>,
    ) -> Result<BucketReport, ServiceError> {
        caller.check_limit(&asked.limit)?;
        let inspection = self.limiter.inspect(&asked.limit, &asked.id).await?;
        let (now, next) = (&inspection.decision, &inspection.next);
        let limited = now.verdict != Verdict::Unlimited;
        // The numbers of the inline limit are not stored, so only the time until its bucket is full is known.
        let has_numbers = inspection.algorithm.is_some();
        let retry_after = if next.allowed() { Nanos::ZERO } else { next.retry_nanos };
        let span = |span: Nanos| (limited && !span.is_forever()).then(|| span.as_duration());
        let mut report = BucketReport::new(inspection.bucket, inspection.algorithm, inspection.at);
        report.remaining = has_numbers.then_some(now.remaining);
        report.retry_after = has_numbers.then_some(retry_after).and_then(span);
        report.reset_after = span(now.reset_nanos);
        report.state = inspection.state.as_ref().and_then(state);
        Ok(report)
    }

    /// Returns a page of the buckets that exist; `None` if the store keeps no ids.
    pub(crate) async fn keys(
        &self,
        caller: &Caller<'_>,
        asked: &KeysQuery<'_>,
    ) -> Result<Option<KeysPage>, ServiceError> {
        match &asked.limit {
            Some(limit) => caller.check_limit(limit)?,
            None => caller.check_all_limits()?,
        }
        let page = self.limiter.keys(asked.limit.as_deref(), asked.cursor, asked.count).await?;
        Ok(page.map(|page| KeysPage::new(page.buckets, page.next)))
    }
}

fn state(held: &BucketState) -> Option<StateSummary> {
    Some(match held {
        BucketState::TokenBucket(bucket) => StateSummary::TokenBucket { full_at: bucket.expires_at() },
        BucketState::SlidingLog { entries, oldest, newest } => {
            StateSummary::SlidingLog { entries: *entries, oldest: *oldest, newest: *newest }
        }
        BucketState::SmoothedRate(bucket) => {
            let (measured_at, rate) = bucket.last();
            StateSummary::SmoothedRate { rate, measured_at }
        }
        BucketState::Quota(quota) => {
            StateSummary::Quota { used: quota.counter(), expires_at: quota.expires_at() }
        }
        BucketState::FixedWindow(window) => {
            StateSummary::FixedWindow { used: window.used(), ends_at: window.ends_at() }
        }
        BucketState::SlidingWindow(window) => {
            let (current, previous, ends_at) = (window.current(), window.previous(), window.ends_at());
            StateSummary::SlidingWindow { current, previous, ends_at }
        }
        _ => return None,
    })
}

//! Shows buckets to operators.

use redis::Value;
use tollway_core::{Charge, Limit, Timestamp};

use super::reply::{ScriptReply, number, unexpected};
use super::script::{self, CallBuilder};
use super::seen::FoundBucket;
use super::{Redis, StoreError};
use crate::store::{BucketPage, BucketReading, BucketState};

/// The largest number of primaries in a scan. Redis recommends at most a thousand nodes in a Cluster.
const NODES: u64 = 1 << 10;

impl Redis {
    /// Reads the bucket of a charge in one script. The time is that of Redis unless it is given.
    pub async fn inspect(
        &self,
        charge: &Charge<'_>,
        now: Option<Timestamp>,
    ) -> Result<BucketReading, StoreError> {
        let key = self.namespace.of_id(charge.limit(), charge.id());
        let draft = CallBuilder::new(script::inspect(charge.algorithm()), &[&key]).now(now);
        let draft = match charge.algorithm() {
            None => draft.arg(""),
            Some(algorithm) => draft.algorithm(algorithm).numbers(algorithm, 0).numbers(algorithm, 1),
        };
        let reply = self.send(vec![draft.finish()]).await.pop().unwrap_or(Ok(Value::Nil));
        let mut answer = ScriptReply::new(reply?)?;
        let at = answer.now()?;
        let Some(algorithm) = charge.algorithm() else { return Ok(BucketReading::unlimited(at)) };
        let for_nothing = FoundBucket::read(algorithm, answer.value(), at)?;
        let next = FoundBucket::read(algorithm, answer.value(), at)?.decide(1, at);
        let decision = for_nothing.decide(0, at);
        Ok(BucketReading { state: state(&for_nothing, answer, at)?, decision, next, at })
    }

    /// Returns a page of the buckets, of one limit or of all. A page begins at 0, or where the one before it ended, and
    /// comes from about `count` keys. A bucket that exists all the while is on at least one page.
    pub async fn scan(
        &self,
        limit: Option<&Limit>,
        from: u64,
        count: usize,
    ) -> Result<BucketPage, StoreError> {
        let (keys, next) = self.scan_keys(self.namespace.pattern(limit), from, count).await?;
        Ok(BucketPage { buckets: keys.iter().map(|key| self.namespace.readable(key)).collect(), next })
    }

    /// Returns a page of the keys that match a pattern, and the start of the next page.
    pub(super) async fn scan_keys(
        &self,
        pattern: Vec<u8>,
        from: u64,
        count: usize,
    ) -> Result<(Vec<Vec<u8>>, Option<u64>), StoreError> {
        // The index of the primary, and its cursor: no server has so many keys that the cursor would not fit.
        let (node, at) = (from % NODES, from / NODES);
        let mut command = redis::cmd("SCAN");
        command.arg(at).arg("MATCH").arg(pattern).arg("COUNT").arg(count.max(1));
        let nth = usize::try_from(node).unwrap_or(usize::MAX);
        let Some(reply) = self.net.send_to_nth(nth, command).await else { return Ok((Vec::new(), None)) };
        let mut answer = ScriptReply::new(reply?)?;
        let next = match answer.number()? {
            0 => node + 1,
            at => at.saturating_mul(NODES).saturating_add(node),
        };
        let Value::Array(keys) = answer.value() else { return Ok((Vec::new(), Some(next))) };
        let bytes = |key: Value| match key {
            Value::BulkString(key) => Ok(key),
            other => Err(unexpected(&other)),
        };
        Ok((keys.into_iter().map(bytes).collect::<Result<_, _>>()?, Some(next)))
    }

    /// Returns the number of keys on all nodes together, ours or not.
    pub async fn size(&self) -> Result<u64, StoreError> {
        let replies = self.net.send_to_all(redis::cmd("DBSIZE")).await;
        replies.into_iter().map(|reply| number(&reply?)).sum()
    }
}

/// Returns the state of a bucket that is live; of a log it is the rest of the answer.
fn state(
    bucket: &FoundBucket<'_>,
    mut log: ScriptReply,
    now: Timestamp,
) -> Result<Option<BucketState>, StoreError> {
    Ok(match bucket {
        FoundBucket::TokenBucket(bucket, _) => BucketState::live(Some(bucket), now),
        FoundBucket::SmoothedRate(rate, _) => BucketState::live(Some(rate), now),
        FoundBucket::Quota(quota, _) => BucketState::live(Some(quota), now),
        FoundBucket::FixedWindow(window, _) => BucketState::live(Some(window), now),
        FoundBucket::SlidingWindow(window, _) => BucketState::live(Some(window), now),
        FoundBucket::SlidingLog(_, limit) => {
            let entries = match log.value() {
                Value::Nil => return Ok(None),
                entries => number(&entries)?,
            };
            let [oldest, newest] = [log.number()?, log.number()?].map(Timestamp::from_nanos);
            let live = newest + limit.period() > now;
            live.then_some(BucketState::SlidingLog { entries, oldest, newest })
        }
    })
}

//! Buckets, for whoever wants to look.

use redis::Value;
use tollway_core::algorithm::Bucket;
use tollway_core::{Algorithm, Charge, Limit, Timestamp};

use super::reply::{Answer, nonsense, number};
use super::script::{self, Draft};
use super::seen::{quota, smoothed_rate, token_bucket};
use super::{Redis, StoreError};
use crate::store::{BucketPage, BucketState};

/// The most primaries that a scan can tell apart: a Cluster of a thousand is said to be as large as they get.
const NODES: u64 = 1 << 10;

impl Redis {
    /// What the bucket of a charge holds, or `None` if it says nothing, and when that was so. The time is Redis's own
    /// unless it is given.
    pub async fn inspect(
        &self,
        charge: &Charge<'_>,
        now: Option<Timestamp>,
    ) -> Result<(Option<BucketState>, Timestamp), StoreError> {
        let key = self.namespace.of_id(charge.limit(), charge.id());
        let call = Draft::new(&script::INSPECT, &[&key]).now(now).finish();
        let reply = self.send(vec![call]).await.pop().unwrap_or(Ok(Value::Nil));
        let mut answer = Answer::new(reply?)?;
        let now = answer.now()?;
        let held = charge.algorithm().map(|algorithm| held(algorithm, answer, now)).transpose()?;
        Ok((held.flatten(), now))
    }

    /// Some of the buckets, of one limit or of all: a page begins at 0, or where the page before it ended, and is made
    /// of about `count` keys that were looked at. Every bucket that is there all the while is on one page at least.
    pub async fn scan(
        &self,
        limit: Option<&Limit>,
        from: u64,
        count: usize,
    ) -> Result<BucketPage, StoreError> {
        let (keys, next) = self.scan_keys(self.namespace.pattern(limit), from, count).await?;
        Ok(BucketPage { buckets: keys.iter().map(|key| self.namespace.readable(key)).collect(), next })
    }

    /// The same for any pattern: the keys themselves, and where the next page starts.
    pub(super) async fn scan_keys(
        &self,
        pattern: Vec<u8>,
        from: u64,
        count: usize,
    ) -> Result<(Vec<Vec<u8>>, Option<u64>), StoreError> {
        // Which primary, counted from 0, and where it said to go on: nobody has so many keys that it would say more.
        let (node, at) = (from % NODES, from / NODES);
        let mut command = redis::cmd("SCAN");
        command.arg(at).arg("MATCH").arg(pattern).arg("COUNT").arg(count.max(1));
        let nth = usize::try_from(node).unwrap_or(usize::MAX);
        let Some(reply) = self.net.send_to_nth(nth, command).await else { return Ok((Vec::new(), None)) };
        let mut answer = Answer::new(reply?)?;
        let next = match answer.number()? {
            0 => node + 1,
            at => at.saturating_mul(NODES).saturating_add(node),
        };
        let Value::Array(keys) = answer.value() else { return Ok((Vec::new(), Some(next))) };
        let bytes = |key: Value| match key {
            Value::BulkString(key) => Ok(key),
            other => Err(nonsense(&other)),
        };
        Ok((keys.into_iter().map(bytes).collect::<Result<_, _>>()?, Some(next)))
    }

    /// How many keys there are on all nodes together, ours or not.
    pub async fn size(&self) -> Result<u64, StoreError> {
        let replies = self.net.send_to_all(redis::cmd("DBSIZE")).await;
        replies.into_iter().map(|reply| number(&reply?)).sum()
    }
}

fn held(
    algorithm: &Algorithm,
    mut answer: Answer,
    now: Timestamp,
) -> Result<Option<BucketState>, StoreError> {
    let text = match answer.value() {
        Value::BulkString(text) => text,
        _ => Vec::new(),
    };
    let live = |silent_at: Timestamp| silent_at > now;
    Ok(match algorithm {
        Algorithm::TokenBucket(_) => {
            token_bucket(&text).filter(|bucket| live(bucket.expires_at())).map(BucketState::TokenBucket)
        }
        Algorithm::SmoothedRate(_) => {
            smoothed_rate(&text).filter(|bucket| live(bucket.expires_at())).map(BucketState::SmoothedRate)
        }
        Algorithm::Quota(_) => {
            quota(&text).filter(|bucket| live(bucket.expires_at())).map(BucketState::Quota)
        }
        Algorithm::SlidingLog(limit) => {
            let entries = match answer.value() {
                Value::Nil => return Ok(None),
                entries => number(&entries)?,
            };
            let [oldest, newest] = [answer.number()?, answer.number()?].map(Timestamp::from_nanos);
            live(newest + limit.period()).then_some(BucketState::SlidingLog { entries, oldest, newest })
        }
    })
}

//! Buckets, for whoever wants to look.

use redis::Value;
use tollway_core::{Charge, Limit, Timestamp};

use super::reply::{Answer, nonsense, number};
use super::script::{self, Draft};
use super::seen::Seen;
use super::{Redis, StoreError};
use crate::store::{BucketPage, BucketReading, BucketState};

/// The most primaries that a scan can tell apart: a Cluster of a thousand is said to be as large as they get.
const NODES: u64 = 1 << 10;

impl Redis {
    /// Reads the bucket of a charge in one script. The time is Redis's own unless it is given.
    pub async fn inspect(
        &self,
        charge: &Charge<'_>,
        now: Option<Timestamp>,
    ) -> Result<BucketReading, StoreError> {
        let key = self.namespace.of_id(charge.limit(), charge.id());
        let draft = Draft::new(script::inspect(charge.algorithm()), &[&key]).now(now);
        let draft = match charge.algorithm() {
            None => draft.arg(""),
            Some(algorithm) => draft.algorithm(algorithm).numbers(algorithm, 0).numbers(algorithm, 1),
        };
        let reply = self.send(vec![draft.finish()]).await.pop().unwrap_or(Ok(Value::Nil));
        let mut answer = Answer::new(reply?)?;
        let at = answer.now()?;
        let Some(algorithm) = charge.algorithm() else { return Ok(BucketReading::unlimited(at)) };
        let for_nothing = Seen::read(algorithm, answer.value())?;
        let next = Seen::read(algorithm, answer.value())?.decide(1, at);
        let decision = for_nothing.decide(0, at);
        Ok(BucketReading { state: state(&for_nothing, answer, at)?, decision, next, at })
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

/// Returns the state of a bucket that is live; of a log it is the rest of the answer.
fn state(bucket: &Seen<'_>, mut log: Answer, now: Timestamp) -> Result<Option<BucketState>, StoreError> {
    Ok(match bucket {
        Seen::TokenBucket(bucket, _) => BucketState::live(Some(bucket), now),
        Seen::SmoothedRate(rate, _) => BucketState::live(Some(rate), now),
        Seen::Quota(quota, _) => BucketState::live(Some(quota), now),
        Seen::SlidingLog(_, limit) => {
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

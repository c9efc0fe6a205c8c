//! Refunds charges and resets buckets in Redis.

use redis::Value;
use tollway_core::{Algorithm, Charge, Refund, Timestamp};

use super::call::Call;
use super::key::slot;
use super::net::Reply;
use super::reply::ScriptReply;
use super::script::{self, CallBuilder};
use super::seen::FoundBucket;
use super::{Redis, StoreError};

impl Redis {
    /// Gives back the cost of each charge. The time is that of Redis unless it is given.
    pub async fn refund(
        &self,
        charges: &[Charge<'_>],
        now: Option<Timestamp>,
    ) -> Vec<Result<Refund, StoreError>> {
        let call = |charge: &Charge<'_>| {
            let algorithm = refundable(charge)?;
            let key = self.namespace.of_id(charge.limit(), charge.id());
            let draft = CallBuilder::new(script::refund(algorithm), &[&key]).now(now).algorithm(algorithm);
            Some(draft.numbers(algorithm, charge.cost()).finish())
        };
        let mut replies = self.send(charges.iter().filter_map(call).collect()).await.into_iter();
        let refund = |charge: &Charge<'_>| match refundable(charge) {
            Some(algorithm) => read(algorithm, charge.cost(), replies.next().unwrap_or(Ok(Value::Nil))),
            None => Ok(Refund::UNLIMITED),
        };
        charges.iter().map(refund).collect()
    }

    /// Forgets the bucket of each charge.
    pub async fn reset(&self, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        let call = |charge: &Charge<'_>| {
            let key = self.namespace.of_id(charge.limit(), charge.id());
            let mut command = redis::cmd("UNLINK");
            command.arg(&key);
            Call { slot: slot(&key), command, script: None }
        };
        let replies = self.send(charges.iter().map(call).collect()).await;
        replies.into_iter().try_for_each(|reply| reply.map(drop))
    }
}

/// Returns the algorithm of a charge, if it can refund.
fn refundable<'a>(charge: &Charge<'a>) -> Option<&'a Algorithm> {
    charge.algorithm().filter(|algorithm| algorithm.refunds())
}

fn read(algorithm: &Algorithm, cost: u64, reply: Reply) -> Result<Refund, StoreError> {
    let mut answer = ScriptReply::new(reply?)?;
    let now = answer.now()?;
    Ok(FoundBucket::read(algorithm, answer.value(), now)?.refund(cost, now))
}

//! Updates smoothed rates in Redis.

use tollway_core::Timestamp;
use tollway_core::algorithm::{RateReading, SmoothedRateState};

use super::net::Reply;
use super::reply::ScriptReply;
use super::script::{self, CallBuilder};
use super::seen::{self, smoothed_rate};
use super::{Redis, StoreError};
use crate::rates::{RateSubject, RateUpdate};

impl Redis {
    /// Adds one request to each rate, in one pipeline. The time is that of Redis unless it is given.
    pub async fn update_rates(
        &self,
        updates: &[RateUpdate<'_>],
        now: Option<Timestamp>,
    ) -> Vec<Result<RateReading, StoreError>> {
        let call = |update: &RateUpdate<'_>| {
            let key = match update.bucket {
                RateSubject::Key(text) => self.namespace.of_text(text),
                RateSubject::Id(charge) => self.namespace.of_id(charge.limit(), charge.id()),
            };
            CallBuilder::new(&script::RATE_UPDATE, &[&key]).now(now).rate(update.limit, 1).finish()
        };
        let replies = self.send(updates.iter().map(call).collect()).await;
        updates.iter().zip(replies).map(|(update, reply)| reading(update, reply)).collect()
    }
}

fn reading(update: &RateUpdate<'_>, reply: Reply) -> Result<RateReading, StoreError> {
    let mut answer = ScriptReply::new(reply?)?;
    let now = answer.now()?;
    let over = answer.number()? != 0;
    let found: SmoothedRateState = seen::read(&answer.value(), smoothed_rate)?;
    Ok(RateReading::new(found.measure(update.limit, 1, now).rate, over))
}

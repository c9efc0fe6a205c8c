//! Rates, measured by Redis.

use tollway_core::Timestamp;
use tollway_core::algorithm::{RateReading, SmoothedRateState};

use super::net::Reply;
use super::reply::Answer;
use super::script::{self, Draft};
use super::seen::{self, smoothed_rate};
use super::{Redis, StoreError};
use crate::rates::{RateSubject, RateUpdate};

impl Redis {
    /// Measures each rate with one more request in it, in one pipeline. The time is Redis's own unless it is given.
    pub async fn update_rates(
        &self,
        updates: &[RateUpdate<'_>],
        now: Option<Timestamp>,
    ) -> Vec<Result<RateReading, StoreError>> {
        let call = |knock: &RateUpdate<'_>| {
            let key = match knock.bucket {
                RateSubject::Key(text) => self.namespace.of_text(text),
                RateSubject::Id(charge) => self.namespace.of_id(charge.limit(), charge.id()),
            };
            Draft::new(&script::KNOCK, &[&key]).now(now).rate(knock.limit, 1).finish()
        };
        let replies = self.send(updates.iter().map(call).collect()).await;
        updates.iter().zip(replies).map(|(knock, reply)| measure(knock, reply)).collect()
    }
}

fn measure(knock: &RateUpdate<'_>, reply: Reply) -> Result<RateReading, StoreError> {
    let mut answer = Answer::new(reply?)?;
    let now = answer.now()?;
    let over = answer.number()? != 0;
    let found: SmoothedRateState = seen::read(&answer.value(), smoothed_rate)?;
    Ok(RateReading::new(found.measure(knock.limit, 1, now).rate, over))
}

//! Rates, measured by Redis.

use tollway_core::Timestamp;
use tollway_core::algorithm::{Measure, SmoothedRate};

use super::reply::Answer;
use super::script::{self, Draft};
use super::seen::{self, smoothed_rate};
use super::wire::Reply;
use super::{Redis, StoreError};
use crate::keys::{Knock, Rated};

impl Redis {
    /// Measures each rate with one more request in it, in one pipeline. The time is Redis's own unless it is given.
    pub async fn knock(
        &self,
        knocks: &[Knock<'_>],
        now: Option<Timestamp>,
    ) -> Vec<Result<Measure, StoreError>> {
        let call = |knock: &Knock<'_>| {
            let key = match knock.bucket {
                Rated::Key(text) => self.namespace.of_text(text),
                Rated::Id(charge) => self.namespace.of_id(charge.limit(), charge.id()),
            };
            Draft::new(&script::KNOCK, &[&key]).now(now).rate(knock.limit, 1).finish()
        };
        let replies = self.wire.send(knocks.iter().map(call).collect()).await;
        knocks.iter().zip(replies).map(|(knock, reply)| measure(knock, reply)).collect()
    }
}

fn measure(knock: &Knock<'_>, reply: Reply) -> Result<Measure, StoreError> {
    let mut answer = Answer::new(reply?)?;
    let now = answer.now()?;
    let over = answer.number()? != 0;
    let found: SmoothedRate = seen::read(&answer.value(), smoothed_rate)?;
    Ok(Measure { over, ..found.measure(knock.limit, 1, now) })
}

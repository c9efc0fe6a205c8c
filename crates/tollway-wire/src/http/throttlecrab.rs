//! `POST /throttle` of throttlecrab: the numbers of a token bucket come with each request.
//!
//! ```text
//! -> {"key":"user:123","max_burst":10,"count_per_period":100,"period":60,"quantity":1}
//! <- {"allowed":true,"limit":10,"remaining":9,"reset_after":0,"retry_after":0}
//! ```
//!
//! The status is 200 for a denial too, and times are whole seconds, cut off. Fields that are unknown are ignored, as
//! its clients expect.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use tollway_core::algorithm::TokenBucket;
use tollway_core::{ChargeRequest, Decision, Nanos};

use super::command::MalformedRequest;
use crate::decimal::put_u64;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A request of a throttlecrab client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrottlecrabRequest<'a> {
    key: Cow<'a, str>,
    limit: TokenBucket,
    quantity: u64,
}

impl<'a> ThrottlecrabRequest<'a> {
    /// Parses the body of a request.
    pub fn from_json(body: &'a [u8]) -> Result<Self, MalformedRequest> {
        #[derive(Deserialize)]
        struct Fields<'a> {
            #[serde(borrow)]
            key: Cow<'a, str>,
            max_burst: i64,
            count_per_period: i64,
            period: i64,
            quantity: Option<i64>,
        }
        let refused = |detail: String| MalformedRequest { field: None, detail };
        let fields: Fields<'_> = serde_json::from_slice(body).map_err(|error| refused(error.to_string()))?;
        let number = |name: &str, value: i64| {
            u64::try_from(value).map_err(|_| refused(format!("\"{name}\" must not be below 0")))
        };
        let burst = number("max_burst", fields.max_burst)?;
        let count = number("count_per_period", fields.count_per_period)?;
        let period = Duration::from_secs(number("period", fields.period)?);
        let quantity = number("quantity", fields.quantity.unwrap_or(1))?;
        let limit = TokenBucket::new(burst, count, period).map_err(|error| refused(error.to_string()))?;
        Ok(Self { key: fields.key, limit, quantity })
    }

    /// Returns the charge that the request makes. A quantity above the burst can never pass: it only looks.
    pub fn charge(&self) -> ChargeRequest<'_> {
        ChargeRequest::inline(
            self.limit,
            self.key.as_bytes(),
            if self.is_too_much() { 0 } else { self.quantity },
        )
    }

    /// Appends the answer to the decision about [`charge`](Self::charge).
    pub fn put_answer(&self, decision: &Decision, out: &mut Vec<u8>) {
        let too_much = self.is_too_much();
        let allowed = decision.allowed() && !too_much;
        let retry = match (allowed, too_much) {
            (true, _) => Nanos::ZERO,
            (false, false) => decision.retry_nanos,
            // The formula has a wait for it, though no wait helps.
            (false, true) => {
                let increment = self.limit.emission_interval().saturating_mul(self.quantity);
                (decision.reset_nanos + increment).saturating_sub(self.limit.fill_time())
            }
        };
        let number = |out: &mut Vec<u8>, name: &[u8], value: u64| {
            out.extend_from_slice(name);
            put_u64(out, value.min(i64::MAX.unsigned_abs()));
        };
        out.extend_from_slice(if allowed { br#"{"allowed":true"# } else { br#"{"allowed":false"# });
        number(out, br#","limit":"#, self.limit.burst());
        number(out, br#","remaining":"#, decision.remaining);
        number(out, br#","reset_after":"#, decision.reset_nanos.get() / NANOS_PER_SECOND);
        number(out, br#","retry_after":"#, retry.get() / NANOS_PER_SECOND);
        out.push(b'}');
    }

    fn is_too_much(&self) -> bool {
        self.quantity > self.limit.burst()
    }
}

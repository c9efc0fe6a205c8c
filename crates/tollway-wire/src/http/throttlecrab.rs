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

use serde::Deserialize;
use tollway_core::{ChargeRequest, Decision};

use super::command::MalformedRequest;
use crate::decimal::put_u64;
use crate::throttlecrab::ThrottlecrabCall;

/// A request of a throttlecrab client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThrottlecrabRequest<'a> {
    key: Cow<'a, str>,
    call: ThrottlecrabCall,
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
        let Fields { key, max_burst, count_per_period, period, quantity } =
            serde_json::from_slice(body).map_err(|error| refused(error.to_string()))?;
        let call = ThrottlecrabCall::new(max_burst, count_per_period, period, quantity.unwrap_or(1))
            .map_err(|error| refused(error.to_string()))?;
        Ok(Self { key, call })
    }

    /// Returns the charge that the request makes. A quantity above the burst can never pass: it only looks.
    pub fn charge(&self) -> ChargeRequest<'_> {
        ChargeRequest::inline(self.call.token_bucket(), self.key.as_bytes(), self.call.cost())
    }

    /// Appends the answer to the decision about [`charge`](Self::charge).
    pub fn put_answer(&self, decision: &Decision, out: &mut Vec<u8>) {
        let answer = self.call.answer(decision);
        let number = |out: &mut Vec<u8>, name: &[u8], value: u64| {
            out.extend_from_slice(name);
            put_u64(out, value.min(i64::MAX.unsigned_abs()));
        };
        out.extend_from_slice(if answer.allowed { br#"{"allowed":true"# } else { br#"{"allowed":false"# });
        number(out, br#","limit":"#, answer.limit);
        number(out, br#","remaining":"#, answer.remaining);
        number(out, br#","reset_after":"#, answer.reset_after);
        number(out, br#","retry_after":"#, answer.retry_after);
        out.push(b'}');
    }
}

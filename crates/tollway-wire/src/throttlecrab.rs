//! The dialect of throttlecrab, which RESP (`THROTTLE`) and HTTP (`POST /throttle`) share: the numbers of a call become
//! a token bucket and a cost, and a decision becomes five fields.

use std::time::Duration;

use thiserror::Error;
use tollway_core::algorithm::{NumbersError, TokenBucket};
use tollway_core::{Decision, Nanos};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The token bucket that a call brings, and the tokens that it takes from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThrottlecrabCall {
    token_bucket: TokenBucket,
    quantity: u64,
}

/// The fields of an answer. Times are whole seconds, cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThrottlecrabAnswer {
    pub(crate) allowed: bool,
    /// The burst.
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// The seconds until the bucket is full.
    pub(crate) reset_after: u64,
    /// The seconds until the same call would be allowed (again).
    pub(crate) retry_after: u64,
}

/// An error for numbers that make no call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ThrottlecrabError {
    /// A quantity below 0: throttlecrab gives nothing back.
    #[error("\"quantity\" must not be below 0")]
    NegativeQuantity { quantity: i64 },
    /// Another number below 0.
    #[error("\"{field}\" must not be below 0")]
    Negative { field: &'static str },
    /// Numbers that make no token bucket.
    #[error("{}", in_fields(.0))]
    Numbers(#[from] NumbersError),
}

/// Returns the text of an error with the names that the numbers have in this dialect.
fn in_fields(error: &NumbersError) -> String {
    let text = error.to_string();
    for (name, field) in [("burst", "max_burst"), ("count", "count_per_period"), ("period", "period")] {
        if let Some(rest) = text.strip_prefix(name).filter(|rest| rest.starts_with(' ')) {
            return format!("\"{field}\"{rest}");
        }
    }
    text
}

impl ThrottlecrabCall {
    /// Makes a call from its numbers, as a client sends them.
    #[inline]
    pub(crate) fn new(
        max_burst: i64,
        count_per_period: i64,
        period: i64,
        quantity: i64,
    ) -> Result<Self, ThrottlecrabError> {
        let quantity =
            u64::try_from(quantity).map_err(|_| ThrottlecrabError::NegativeQuantity { quantity })?;
        let number = |field, number| u64::try_from(number).map_err(|_| ThrottlecrabError::Negative { field });
        let burst = number("max_burst", max_burst)?;
        let count = number("count_per_period", count_per_period)?;
        let period = Duration::from_secs(number("period", period)?);
        Ok(Self::of(TokenBucket::new(burst, count, period)?, quantity))
    }

    /// Makes a call from a token bucket that is valid already.
    pub(crate) const fn of(token_bucket: TokenBucket, quantity: u64) -> Self {
        Self { token_bucket, quantity }
    }

    /// Returns the token bucket that the call brings.
    pub(crate) const fn token_bucket(&self) -> TokenBucket {
        self.token_bucket
    }

    /// Returns the cost of the charge to make: nothing for a quantity above the burst, which can never pass.
    pub(crate) const fn cost(&self) -> u64 {
        if self.is_too_much() { 0 } else { self.quantity }
    }

    /// Returns the answer to the decision about a charge of [`cost`](Self::cost).
    #[inline]
    pub(crate) fn answer(&self, decision: &Decision) -> ThrottlecrabAnswer {
        let too_much = self.is_too_much();
        let retry =
            if too_much { self.retry_of_too_much(decision.reset_nanos) } else { decision.retry_nanos };
        ThrottlecrabAnswer {
            allowed: decision.allowed() && !too_much,
            limit: self.token_bucket.burst(),
            remaining: decision.remaining,
            reset_after: decision.reset_nanos.get() / NANOS_PER_SECOND,
            retry_after: retry.get() / NANOS_PER_SECOND,
        }
    }

    const fn is_too_much(&self) -> bool {
        self.quantity > self.token_bucket.burst()
    }

    /// Returns the wait that throttlecrab names for a quantity above the burst, though no wait helps. The dialect has
    /// no other value: its clients take the field for a number of seconds, so -1 would be a mistake to them.
    fn retry_of_too_much(&self, owed: Nanos) -> Nanos {
        let increment = self.token_bucket.emission_interval().saturating_mul(self.quantity);
        (owed + increment).saturating_sub(self.token_bucket.fill_time())
    }
}

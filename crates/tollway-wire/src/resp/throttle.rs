//! The commands whose numbers come with the call: `CL.THROTTLE` of redis-cell and `THROTTLE` of throttlecrab.
//!
//! ```text
//! CL.THROTTLE key max_burst count period [quantity]  ->  limited, max_burst + 1, remaining, retry_after, reset_after
//! THROTTLE    key max_burst count period [quantity]  ->  allowed, max_burst, remaining, reset_after, retry_after
//! ```
//!
//! Both are one token bucket: of `max_burst + 1` tokens in the first dialect, and of `max_burst` in the second.

use std::time::Duration;

use tollway_core::algorithm::TokenBucket;
use tollway_core::{Decision, InlineTokenBucket, Nanos, Refund};

use super::KEY_MAX;
use super::error::{CommandError, shown};
use super::integer;
use super::reply::ReplyWriter;
use crate::throttlecrab::{ThrottlecrabCall, ThrottlecrabError};

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const NANOS_PER_MILLISECOND: u64 = 1_000_000;

/// A command's wording: the order and the rounding of its reply, and its errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The dialect of `CL.THROTTLE`.
    RedisCell,
    /// The dialect of `THROTTLE`.
    Throttlecrab,
}

/// A request to take from, to look at, or to give back to the bucket of a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleRequest<'a> {
    /// The wording of the reply.
    pub dialect: Dialect,
    /// The key of the bucket.
    pub key: &'a [u8],
    /// The token bucket that the request brings.
    pub inline: InlineTokenBucket,
    usage: ThrottleUse,
    quantity: i64,
}

/// The use that a request makes of its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleUse {
    /// Takes this many tokens; 0 looks.
    Spend(u64),
    /// Looks only: the quantity is above the burst, so that it is limited and can never pass.
    TooMuch,
    /// Gives this many tokens back, to a full bucket at most.
    GiveBack(u64),
}

impl<'a> ThrottleRequest<'a> {
    /// Parses the words of a command, of which the first is its name.
    #[inline]
    pub(super) fn parse(dialect: Dialect, words: &[&'a [u8]]) -> Result<Self, CommandError> {
        let (numbers, quantity) = match words {
            [_, _, numbers @ ..] if numbers.len() == 3 => (numbers, None),
            [_, _, numbers @ .., quantity] if numbers.len() == 3 => (numbers, Some(*quantity)),
            _ => return Err(dialect.wrong_count()),
        };
        let key = words[1];
        if key.len() > KEY_MAX {
            return Err(CommandError::KeyTooLong);
        }
        let burst = dialect.integer("max_burst", numbers[0])?;
        let count = dialect.integer(dialect.name_of_count(), numbers[1])?;
        let period = dialect.integer("period", numbers[2])?;
        let quantity = quantity.map_or(Ok(1), |quantity| dialect.integer("quantity", quantity))?;
        let token_bucket = dialect.token_bucket(burst, count, period, quantity)?;
        let usage = match u64::try_from(quantity) {
            Ok(cost) if cost > token_bucket.burst() => ThrottleUse::TooMuch,
            Ok(cost) => ThrottleUse::Spend(cost),
            Err(_) => ThrottleUse::GiveBack(quantity.unsigned_abs()),
        };
        Ok(Self { dialect, key, inline: InlineTokenBucket::new(token_bucket), usage, quantity })
    }

    /// Returns the same request for the bucket of another key.
    #[inline]
    pub const fn with_key<'k>(&self, key: &'k [u8]) -> ThrottleRequest<'k> {
        let Self { dialect, inline, usage, quantity, .. } = *self;
        ThrottleRequest { dialect, key, inline, usage, quantity }
    }

    /// Returns what the request does with its bucket.
    #[inline]
    pub const fn usage(&self) -> ThrottleUse {
        self.usage
    }

    /// Appends the reply to a spend. Of a quantity above the burst, the decision is that of a look.
    #[inline]
    pub fn put_decision(&self, decision: &Decision, reply: &mut ReplyWriter<'_>) {
        match self.dialect {
            Dialect::RedisCell => {
                let too_much = self.usage == ThrottleUse::TooMuch;
                let allowed = decision.allowed() && !too_much;
                let (burst, remaining) =
                    (whole(self.inline.token_bucket().burst()), whole(decision.remaining));
                let retry = if allowed || too_much { -1 } else { seconds_with_millis(decision.retry_nanos) };
                let reset = seconds_with_millis(decision.reset_nanos);
                reply.five_integers(!allowed, [burst, remaining, retry, reset]);
            }
            Dialect::Throttlecrab => {
                let call = ThrottlecrabCall::of(*self.inline.token_bucket(), self.quantity.unsigned_abs());
                let answer = call.answer(decision);
                let numbers = [answer.limit, answer.remaining, answer.reset_after, answer.retry_after];
                reply.five_integers(answer.allowed, numbers.map(whole));
            }
        }
    }

    /// Appends the reply to a negative quantity.
    pub fn put_refund(&self, refund: &Refund, reply: &mut ReplyWriter<'_>) {
        let (burst, remaining) = (whole(self.inline.token_bucket().burst()), whole(refund.remaining));
        reply.five_integers(false, [burst, remaining, -1, seconds_with_millis(refund.reset_nanos)]);
    }
}

impl Dialect {
    /// Returns the error for too few words, or too many. That of throttlecrab is in its own words.
    const fn wrong_count(self) -> CommandError {
        match self {
            Self::RedisCell => CommandError::CellWords,
            Self::Throttlecrab => CommandError::WordCount { command: "throttle" },
        }
    }

    /// Returns the name that errors have for the tokens of a period.
    const fn name_of_count(self) -> &'static str {
        match self {
            Self::RedisCell => "count",
            Self::Throttlecrab => "count_per_period",
        }
    }

    #[inline]
    fn integer(self, field: &'static str, word: &[u8]) -> Result<i64, CommandError> {
        integer::parse(word).ok_or_else(|| match self {
            Self::RedisCell => CommandError::NoInteger { field, found: shown(word) },
            Self::Throttlecrab => CommandError::Invalid { field },
        })
    }

    #[inline]
    fn token_bucket(
        self,
        burst: i64,
        count: i64,
        period: i64,
        quantity: i64,
    ) -> Result<TokenBucket, CommandError> {
        match self {
            Self::RedisCell => {
                let number = |field, number: i64, min| match u64::try_from(number) {
                    Ok(unsigned) if number >= min => Ok(unsigned),
                    _ => Err(CommandError::TooSmall { field, min }),
                };
                let burst = number("max_burst", burst, 0)? + 1;
                let (count, period) = (number("count", count, 1)?, number("period", period, 1)?);
                TokenBucket::new(burst, count, Duration::from_secs(period))
                    .map_err(|problem| CommandError::Numbers { problem: problem.to_string() })
            }
            Self::Throttlecrab => {
                let call = ThrottlecrabCall::new(burst, count, period, quantity);
                call.map(|call| call.token_bucket()).map_err(|error| {
                    let why = match error {
                        ThrottlecrabError::NegativeQuantity { quantity } => {
                            format!("negative quantity: {quantity}")
                        }
                        _ => "invalid rate limit parameters".to_owned(),
                    };
                    CommandError::Numbers { problem: format!("Rate limit check failed: {why}") }
                })
            }
        }
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns whole seconds, and one more if at least one whole millisecond is left over.
fn seconds_with_millis(span: Nanos) -> i64 {
    let left_over = span.get() % NANOS_PER_SECOND >= NANOS_PER_MILLISECOND;
    whole(span.get() / NANOS_PER_SECOND) + i64::from(left_over)
}

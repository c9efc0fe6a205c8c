//! The bucket that a script found, from which the core computes the decision.

use redis::Value;
use tollway_core::algorithm::{
    Bucket, FixedWindow, FixedWindowState, LogSummary, Quota, QuotaState, SlidingLog, SlidingWindow,
    SlidingWindowState, SmoothedRate, SmoothedRateState, TokenBucket, TokenBucketState, TtlUnit,
};
use tollway_core::{Algorithm, Decision, Nanos, Refund, Timestamp};

use super::StoreError;
use super::reply::{ScriptReply, digits_of, number, unexpected};
use crate::store::written_token_bucket::WrittenTokenBucket;

/// A bucket as a script found it, and the numbers of its limit. A bucket that is missing or malformed was never used.
pub(super) enum FoundBucket<'a> {
    TokenBucket(TokenBucketState, &'a TokenBucket),
    SlidingLog(LogSummary, &'a SlidingLog),
    SmoothedRate(SmoothedRateState, &'a SmoothedRate),
    Quota(QuotaState, &'a Quota),
    FixedWindow(FixedWindowState, &'a FixedWindow),
    SlidingWindow(SlidingWindowState, &'a SlidingWindow),
}

impl<'a> FoundBucket<'a> {
    /// Parses a bucket that a script found at `now`.
    pub(super) fn read(algorithm: &'a Algorithm, found: Value, now: Timestamp) -> Result<Self, StoreError> {
        Ok(match algorithm {
            Algorithm::TokenBucket(limit) => {
                let bucket = read(&found, |text| Some(written_token_bucket(text)?.under(limit, now)))?;
                Self::TokenBucket(bucket, limit)
            }
            Algorithm::SlidingLog(limit) => Self::SlidingLog(log_summary(found)?, limit),
            Algorithm::SmoothedRate(limit) => Self::SmoothedRate(read(&found, smoothed_rate)?, limit),
            Algorithm::Quota(limit) => Self::Quota(read(&found, quota)?, limit),
            Algorithm::FixedWindow(limit) => Self::FixedWindow(read(&found, fixed_window)?, limit),
            Algorithm::SlidingWindow(limit) => Self::SlidingWindow(read(&found, sliding_window)?, limit),
        })
    }

    /// Returns the decision on a charge of `cost`.
    pub(super) fn decide(&self, cost: u64, now: Timestamp) -> Decision {
        match self {
            Self::TokenBucket(bucket, limit) => bucket.check(limit, cost, now),
            Self::SlidingLog(log, limit) => limit.decide(log, cost, now),
            Self::SmoothedRate(bucket, limit) => bucket.check(limit, cost, now),
            Self::Quota(bucket, limit) => bucket.check(limit, cost, now),
            Self::FixedWindow(bucket, limit) => bucket.check(limit, cost, now),
            Self::SlidingWindow(bucket, limit) => bucket.check(limit, cost, now),
        }
    }

    /// Returns the refund of `cost`. The newest entry of a log is the newest that is left.
    pub(super) fn refund(self, cost: u64, now: Timestamp) -> Refund {
        let refund = match self {
            Self::TokenBucket(mut bucket, limit) => bucket.refund(limit, cost, now),
            Self::SmoothedRate(mut bucket, limit) => bucket.refund(limit, cost, now),
            Self::Quota(mut bucket, limit) => bucket.refund(limit, cost, now),
            Self::FixedWindow(mut bucket, limit) => bucket.refund(limit, cost, now),
            Self::SlidingWindow(mut bucket, limit) => bucket.refund(limit, cost, now),
            Self::SlidingLog(found, limit) => {
                let live = found.live.saturating_sub(cost);
                let left = limit.decide(&LogSummary { live, ..found }, 0, now);
                Some(Refund::new(live < found.live, left.remaining, left.reset_nanos))
            }
        };
        refund.unwrap_or(Refund::UNLIMITED)
    }
}

pub(super) fn read<B: Default>(found: &Value, parse: impl Fn(&[u8]) -> Option<B>) -> Result<B, StoreError> {
    match found {
        Value::Nil => Ok(B::default()),
        Value::BulkString(text) => parse(text).ok_or_else(|| unexpected(found)),
        _ => Err(unexpected(found)),
    }
}

/// Parses `1700000000000000000 100000000`: when it is full, and the interval that this was written under, with a `!` if
/// more had been used than it could hold. A bucket whose numbers came with the request has no interval, as version 0.1
/// wrote none.
pub(super) fn written_token_bucket(text: &[u8]) -> Option<WrittenTokenBucket> {
    let mut words = text.split(|byte| *byte == b' ');
    let full_at = Timestamp::from_nanos(digits_of(words.next()?)?);
    let Some(interval) = words.next().filter(|interval| !interval.is_empty()) else {
        return Some(WrittenTokenBucket { full_at, interval: None, overdrawn: false });
    };
    let (digits, overdrawn) = interval.strip_suffix(b"!").map_or((interval, false), |digits| (digits, true));
    Some(WrittenTokenBucket { full_at, interval: Some(Nanos::new(digits_of(digits)?)), overdrawn })
}

/// Parses `r1700000000000000000 2.5 1700000000000000000`.
pub(super) fn smoothed_rate(text: &[u8]) -> Option<SmoothedRateState> {
    let [last, rate, silent_at] = words(text.strip_prefix(b"r")?)?;
    let rate = std::str::from_utf8(rate).ok()?.parse().ok()?;
    let (last, silent_at) = (digits_of(last)?, digits_of(silent_at)?);
    Some(SmoothedRateState::measured(Timestamp::from_nanos(last), rate, Timestamp::from_nanos(silent_at)))
}

/// Parses `q3 1700000000000000000 0`.
pub(super) fn quota(text: &[u8]) -> Option<QuotaState> {
    let [counter, expires_at, unit] = words(text.strip_prefix(b"q")?)?;
    let (counter, expires_at) = (digits_of(counter)?, digits_of(expires_at)?);
    let unit = u8::try_from(digits_of(unit)?).ok()?;
    Some(QuotaState::until(Timestamp::from_nanos(expires_at), counter, TtlUnit(unit)))
}

/// Parses `f3 1700000000000000000`.
pub(super) fn fixed_window(text: &[u8]) -> Option<FixedWindowState> {
    let [used, ends_at] = words(text.strip_prefix(b"f")?)?;
    Some(FixedWindowState::until(Timestamp::from_nanos(digits_of(ends_at)?), digits_of(used)?))
}

/// Parses `s1700000000000000000 68719476736 3 8`.
pub(super) fn sliding_window(text: &[u8]) -> Option<SlidingWindowState> {
    let [ends_at, kept, current, previous] = words(text.strip_prefix(b"s")?)?;
    let (ends_at, kept) = (Timestamp::from_nanos(digits_of(ends_at)?), Nanos::new(digits_of(kept)?));
    Some(SlidingWindowState::until(ends_at, digits_of(current)?, digits_of(previous)?, kept))
}

/// Splits a text into exactly so many words.
pub(super) fn words<const N: usize>(text: &[u8]) -> Option<[&[u8]; N]> {
    let mut words = text.split(|byte| *byte == b' ');
    let mut all = [&b""[..]; N];
    for word in &mut all {
        *word = words.next()?;
    }
    words.next().is_none().then_some(all)
}

fn log_summary(found: Value) -> Result<LogSummary, StoreError> {
    let moment = |value: Value| match value {
        Value::Nil => Ok(None),
        other => number(&other).map(|nanos| Some(Timestamp::from_nanos(nanos))),
    };
    let mut found = ScriptReply::new(found)?;
    Ok(LogSummary {
        live: found.number()?,
        newest: moment(found.value())?,
        in_the_way: moment(found.value())?,
    })
}

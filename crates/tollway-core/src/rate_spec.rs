//! The parser that reads rates and bursts as people write them: `10/s`, `10 per 5 min`, and a burst in requests or in
//! time.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::time::Nanos;

/// A rate that was parsed: a count of requests in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSpec {
    count: u64,
    period: Nanos,
}

/// A burst: the requests that may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burst {
    /// The burst is a number of requests.
    Requests(u64),
    /// The burst is what comes in this time at the rate, and at least one request.
    Time(Nanos),
}

/// An error for a text that is no rate or burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RateSpecError {
    /// The text has no rate's form.
    #[error("a rate must be a count, \"/\" or \"per\", and a span, such as 10/s or 10 per 5 min")]
    RateSpec,
    /// The unit is unknown.
    #[error("the unit of a span must be ms, s, m, h or d, or its long name, such as 5 min")]
    Unit,
    /// A number is zero, or more than can be counted.
    #[error("the count and the span of a rate must be above zero, and the span at most 292 years")]
    Range,
    /// The text has no burst's form.
    #[error("a burst must be a number of requests, such as 10, or a duration, such as 30s")]
    Burst,
}

impl RateSpec {
    /// Makes a rate of `count` requests in a period.
    pub fn new(count: u64, period: Duration) -> Result<Self, RateSpecError> {
        Self::of(count, period.into())
    }

    fn of(count: u64, period: Nanos) -> Result<Self, RateSpecError> {
        if count == 0 || period == Nanos::ZERO || period > Nanos::MAX {
            return Err(RateSpecError::Range);
        }
        Ok(Self { count, period })
    }

    /// Makes a rate of one request per interval.
    pub fn every(interval: Duration) -> Result<Self, RateSpecError> {
        Self::new(1, interval)
    }

    /// Returns the count of requests.
    pub const fn count(self) -> u64 {
        self.count
    }

    /// Returns the period that the count is for.
    pub const fn period(self) -> Nanos {
        self.period
    }
}

impl Burst {
    /// Returns the number of requests that it is at this rate.
    pub fn requests(self, rate: RateSpec) -> u64 {
        match self {
            Self::Requests(requests) => requests,
            Self::Time(time) => {
                let requests =
                    u128::from(time.get()) * u128::from(rate.count) / u128::from(rate.period.get());
                u64::try_from(requests).unwrap_or(u64::MAX).max(1)
            }
        }
    }
}

impl FromStr for RateSpec {
    type Err = RateSpecError;

    fn from_str(text: &str) -> Result<Self, RateSpecError> {
        let divider = divider(text).ok_or(RateSpecError::RateSpec)?;
        let (count, span) = (&text[..divider.start], &text[divider.end..]);
        let count = whole(count.trim()).ok_or(RateSpecError::RateSpec)?;
        Self::of(count, span_of(span.trim())?)
    }
}

impl FromStr for Burst {
    type Err = RateSpecError;

    fn from_str(text: &str) -> Result<Self, RateSpecError> {
        let text = text.trim();
        if let Some(requests) = whole(text) {
            return Ok(Self::Requests(requests));
        }
        if !text.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(RateSpecError::Burst);
        }
        span_of(text).map(Self::Time)
    }
}

impl fmt::Display for RateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = largest_unit(self.period);
        match number {
            1 => write!(f, "{}/{unit}", self.count),
            _ => write!(f, "{}/{number}{unit}", self.count),
        }
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(requests) => write!(f, "{requests}"),
            Self::Time(time) => {
                let (number, unit) = largest_unit(*time);
                write!(f, "{number}{unit}")
            }
        }
    }
}

/// Finds what stands between the count and the span of a rate: `/`, or else ` per `.
pub(crate) fn divider(text: &str) -> Option<Range<usize>> {
    let found = |divider: &str| text.find(divider).map(|at| at..at + divider.len());
    found("/").or_else(|| found(" per "))
}

/// The units of a span, the longest last. Each has its short name, its nanoseconds, and its other names without the `s`
/// of the plural.
const UNITS: [(&str, u64, &[&str]); 6] = [
    ("ns", 1, &["nanosecond"]),
    ("ms", 1_000_000, &["msec", "millisecond"]),
    ("s", 1_000_000_000, &["sec", "second"]),
    ("m", 60_000_000_000, &["min", "minute"]),
    ("h", 3_600_000_000_000, &["hr", "hour"]),
    ("d", 86_400_000_000_000, &["day"]),
];

/// Reads a unit, or a number and a unit: `s`, `5m`, `5 minutes`.
pub(crate) fn span_of(text: &str) -> Result<Nanos, RateSpecError> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number = if number.is_empty() { 1 } else { whole(number).ok_or(RateSpecError::Range)? };
    let unit = unit.trim().to_ascii_lowercase();
    let named = |(short, _, long): &&(&str, u64, &[&str])| {
        unit == *short || long.iter().any(|name| unit == *name || unit.strip_suffix('s') == Some(name))
    };
    let (_, nanos, _) = UNITS.iter().find(named).ok_or(RateSpecError::Unit)?;
    let span = Nanos::new(*nanos).saturating_mul(number);
    if span == Nanos::ZERO || span > Nanos::MAX { Err(RateSpecError::Range) } else { Ok(span) }
}

/// Returns the span as a number of the largest unit that is exact.
pub(crate) fn largest_unit(span: Nanos) -> (u64, &'static str) {
    let exact = UNITS.iter().rfind(|(_, nanos, _)| span.get().is_multiple_of(*nanos));
    exact.map_or((span.get(), "ns"), |(name, nanos, _)| (span.get() / nanos, name))
}

/// Reads digits and nothing else.
pub(crate) fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, expected) in [
            ("10/s", Ok("10/s")),
            ("10 / s", Ok("10/s")),
            ("10/5m", Ok("10/5m")),
            ("10 per 5 min", Ok("10/5m")),
            ("100 per hour", Ok("100/h")),
            ("1 per 60 seconds", Ok("1/m")),
            ("3/24 Hours", Ok("3/d")),
            ("7 per 1500ms", Ok("7/1500ms")),
            ("7 per 2 days", Ok("7/2d")),
            ("0/s", Err(RateSpecError::Range)),
            ("1/0s", Err(RateSpecError::Range)),
            ("1/999999999999999999999d", Err(RateSpecError::Range)),
            ("1/9999999d", Err(RateSpecError::Range)),
            ("10", Err(RateSpecError::RateSpec)),
            ("/s", Err(RateSpecError::RateSpec)),
            ("ten/s", Err(RateSpecError::RateSpec)),
            ("-1/s", Err(RateSpecError::RateSpec)),
            ("10/", Err(RateSpecError::Unit)),
            ("10/fortnight", Err(RateSpecError::Unit)),
            ("10/ss", Err(RateSpecError::Unit)),
        ] {
            assert_eq!(
                text.parse::<RateSpec>().map(|rate| rate.to_string()),
                expected.map(str::to_owned),
                "{text}"
            );
        }
    }

    #[test]
    fn a_burst_in_time_is_what_comes_in_it_and_at_least_one() {
        let requests = |burst: &str, rate: &str| {
            burst.parse::<Burst>().map(|burst| burst.requests(rate.parse().unwrap()))
        };
        assert_eq!(requests("10", "1/s"), Ok(10));
        assert_eq!(requests("30s", "1/s"), Ok(30));
        assert_eq!(requests("30 sec", "100/m"), Ok(50));
        assert_eq!(requests("1s", "1/m"), Ok(1));
        assert_eq!(requests("soon", "1/s"), Err(RateSpecError::Burst));
        assert_eq!(requests("", "1/s"), Err(RateSpecError::Burst));
        assert_eq!(requests("-5", "1/s"), Err(RateSpecError::Burst));
    }

    #[test]
    fn a_rate_and_a_span_have_no_zero_and_at_most_292_years() {
        let (second, longest) = (Duration::from_secs(1), Duration::from(Nanos::MAX));
        assert_eq!(RateSpec::every(longest).map(RateSpec::period), Ok(Nanos::MAX));
        for (count, period) in [(0, second), (1, Duration::ZERO), (1, longest + Duration::from_nanos(1))] {
            assert_eq!(RateSpec::new(count, period), Err(RateSpecError::Range), "{count} {period:?}");
        }
        assert_eq!(span_of("9223372036854775807ns"), Ok(Nanos::MAX));
        assert_eq!(span_of("9223372036854775808ns"), Err(RateSpecError::Range));
    }

    #[test]
    fn a_burst_is_written_as_it_is_read() {
        for text in ["10", "30s", "5m", "1500ms"] {
            assert_eq!(text.parse::<Burst>().unwrap().to_string(), text);
        }
    }
}

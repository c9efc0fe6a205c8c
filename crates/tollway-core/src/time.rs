//! Types for moments and spans of time, which count whole nanoseconds.
//!
//! Arithmetic saturates. A moment a clock can report is at most [`Timestamp::MAX`] and a bucket takes at most
//! [`Nanos::MAX`] to fill, so a moment plus a span always fits in 64 bits and saturation is never reached.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// A moment in time, counted in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The start of 1970.
    pub const EPOCH: Self = Self(0);
    /// The latest moment a clock or a trace may report: some day in 2262.
    pub const MAX: Self = Self(Nanos::MAX.0);

    /// Returns the moment this many nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`; zero if `self` is not later.
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for Timestamp {
    type Output = Self;

    fn add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Nanos> for Timestamp {
    type Output = Self;

    fn sub(self, span: Nanos) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

/// A moment prints as the span since the epoch.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Nanos(self.0).fmt(f)
    }
}

/// A span of time, counted in nanoseconds: the number that algorithms and stores calculate with. Calls for applications
/// take and return a [`Duration`] instead. It prints as decimal seconds, `0.05s`, and parses `1h30m`, `500ms` or
/// `1.5s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span that can be configured: 292 years.
    pub const MAX: Self = Self(i64::MAX as u64);
    /// The span that means: no passing of time helps.
    pub const FOREVER: Self = Self(u64::MAX);

    /// Returns a span of this many nanoseconds.
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns a span of this many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Returns a span of this many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Returns the span in nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns whole seconds, rounded up, as a `Retry-After` header has them.
    pub const fn as_secs_rounded_up(self) -> u64 {
        self.0.div_ceil(1_000_000_000)
    }

    /// Returns the same span as a [`Duration`].
    #[inline]
    pub const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Returns the seconds as a double.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns true only for [`Nanos::FOREVER`].
    pub const fn is_forever(self) -> bool {
        self.0 == u64::MAX
    }

    /// Returns `self - other`, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns `self * factor`, or the longest span that there is.
    pub const fn saturating_mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Self {
        span.as_duration()
    }
}

/// A duration of more than 584 years becomes [`Nanos::FOREVER`].
impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, mut decimals) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if decimals == 0 {
            return write!(f, "{secs}s");
        }
        let mut places = 9;
        while decimals.is_multiple_of(10) {
            (decimals, places) = (decimals / 10, places - 1);
        }
        write!(f, "{secs}.{decimals:0places$}s")
    }
}

/// An error for a text that is not a span of time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseNanosError {
    /// The text is not numbers followed by units.
    #[error("a duration must be numbers with units, such as 1s, 180m, 1h30m or 500ms")]
    Malformed,
    /// A number has no unit.
    #[error("\"{number}\" has no unit; use ns, us, ms, s, m, h or d, such as {number}s")]
    NoUnit {
        /// The number without one.
        number: String,
    },
    /// A number has an unknown unit.
    #[error("\"{unit}\" is not a unit of time; use ns, us, ms, s, m, h or d")]
    Unit {
        /// The text that was found in place of a unit.
        unit: String,
    },
    /// The span is not a whole number of nanoseconds.
    #[error("a duration must be a whole number of nanoseconds")]
    TooFine,
    /// The span is longer than [`Nanos::MAX`].
    #[error("a duration must be at most 2562047h (292 years)")]
    TooLong,
}

impl FromStr for Nanos {
    type Err = ParseNanosError;

    fn from_str(text: &str) -> Result<Self, ParseNanosError> {
        if text.is_empty() {
            return Err(ParseNanosError::Malformed);
        }
        let mut total: u64 = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let (number, after) = split_where(rest, |c| !c.is_ascii_digit() && c != '.');
            let (unit, after) = split_where(after, |c| c.is_ascii_digit() || c == '.');
            total = total.checked_add(part(number, unit)?).ok_or(ParseNanosError::TooLong)?;
            rest = after;
        }
        if total > Self::MAX.0 { Err(ParseNanosError::TooLong) } else { Ok(Self(total)) }
    }
}

fn split_where(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

/// Reads one number with its unit, such as `1.5h`, exactly.
fn part(number: &str, unit: &str) -> Result<u64, ParseNanosError> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && decimals.is_empty()) || decimals.contains('.') {
        return Err(ParseNanosError::Malformed);
    }
    if unit.is_empty() {
        return Err(ParseNanosError::NoUnit { number: number.to_owned() });
    }
    let scale = scale_of(unit)?;
    let whole: u64 =
        if whole.is_empty() { 0 } else { whole.parse().map_err(|_| ParseNanosError::TooLong)? };
    let mut nanos = whole.checked_mul(scale).ok_or(ParseNanosError::TooLong)?;
    let mut place = scale;
    for digit in decimals.trim_end_matches('0').bytes() {
        if place % 10 != 0 {
            return Err(ParseNanosError::TooFine);
        }
        place /= 10;
        nanos = nanos.checked_add(place * u64::from(digit - b'0')).ok_or(ParseNanosError::TooLong)?;
    }
    Ok(nanos)
}

fn scale_of(unit: &str) -> Result<u64, ParseNanosError> {
    Ok(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(ParseNanosError::Unit { unit: unit.to_owned() }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_exactly() {
        for (text, nanos) in [
            ("1s", 1_000_000_000),
            ("180m", 10_800_000_000_000),
            ("2160h", 7_776_000_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("500ms", 500_000_000),
            ("20us", 20_000),
            ("20µs", 20_000),
            ("100ns", 100),
            ("1.5h", 5_400_000_000_000),
            ("0.000000001s", 1),
            ("0s", 0),
            ("1d", 86_400_000_000_000),
            ("9223372036854775807ns", i64::MAX as u64),
        ] {
            assert_eq!(text.parse(), Ok(Nanos::new(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_says_why() {
        for (text, error) in [
            ("", ParseNanosError::Malformed),
            ("s", ParseNanosError::Malformed),
            (".s", ParseNanosError::Malformed),
            ("1..5s", ParseNanosError::Malformed),
            ("-1s", ParseNanosError::Malformed),
            ("10", ParseNanosError::NoUnit { number: "10".into() }),
            ("1h30", ParseNanosError::NoUnit { number: "30".into() }),
            ("1 s", ParseNanosError::Unit { unit: " s".into() }),
            ("1fortnight", ParseNanosError::Unit { unit: "fortnight".into() }),
            ("0.5ns", ParseNanosError::TooFine),
            ("9223372036854775808ns", ParseNanosError::TooLong),
            ("99999999999999999999h", ParseNanosError::TooLong),
            ("2562047h99999h", ParseNanosError::TooLong),
        ] {
            assert_eq!(text.parse::<Nanos>(), Err(error), "{text}");
        }
    }

    #[test]
    fn spans_print_as_trimmed_decimal_seconds() {
        for (nanos, text) in
            [(0, "0s"), (36_000_000_000, "36s"), (35_500_000_000, "35.5s"), (1, "0.000000001s")]
        {
            assert_eq!(Nanos::new(nanos).to_string(), text);
            assert_eq!(Timestamp::from_nanos(nanos).to_string(), text);
        }
        assert_eq!(Nanos::from_millis(1_500).as_secs_f64(), 1.5);
    }
}

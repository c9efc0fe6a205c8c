//! The part of a limit that one of several processes grants by itself, while they cannot ask each other.
//!
//! ```
//! use tollway_core::LocalShare;
//!
//! assert_eq!("1/4".parse::<LocalShare>(), "0.25".parse());
//! assert_eq!(LocalShare::WHOLE.to_string(), "1/1");
//! # Ok::<(), tollway_core::LocalShareError>(())
//! ```

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::algorithm::{Algorithm, FixedWindow, Quota, SlidingLog, SlidingWindow, SmoothedRate, TokenBucket};
use crate::rate_spec::whole;
use crate::time::Nanos;

/// The finest part there is: one of so many.
const DENOMINATOR_MAX: u32 = 1_000_000;

/// The share of a limit that one process grants: above zero and at most one, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalShare {
    numerator: u32,
    denominator: u32,
}

/// An error for a text that is no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a share must be above 0 and at most 1, such as 1/4 or 0.25, with a denominator of at most 1000000")]
#[non_exhaustive]
pub struct LocalShareError;

impl LocalShare {
    /// The share that is the whole limit.
    pub const WHOLE: Self = Self { numerator: 1, denominator: 1 };

    /// Makes a share from a numerator and a denominator.
    pub fn new(numerator: u64, denominator: u64) -> Result<Self, LocalShareError> {
        if numerator == 0 || numerator > denominator {
            return Err(LocalShareError);
        }
        let common = greatest_common_divisor(numerator, denominator);
        let part = |number: u64| u32::try_from(number / common).ok().filter(|part| *part <= DENOMINATOR_MAX);
        let (numerator, denominator) = (part(numerator), part(denominator));
        Ok(Self {
            numerator: numerator.ok_or(LocalShareError)?,
            denominator: denominator.ok_or(LocalShareError)?,
        })
    }

    /// Returns this share of an algorithm: of what it allows at once, and of its rate. A count that would be zero
    /// becomes one.
    pub fn of(self, algorithm: &Algorithm) -> Algorithm {
        self.numbers(algorithm).unwrap_or(*algorithm)
    }

    fn numbers(self, algorithm: &Algorithm) -> Option<Algorithm> {
        Some(match algorithm {
            Algorithm::TokenBucket(limit) => {
                let burst = self.units(limit.burst());
                // Rounded up, and no longer than what lets the bucket fill in 292 years.
                let interval = (u128::from(limit.emission_interval().get()) * u128::from(self.denominator))
                    .div_ceil(u128::from(self.numerator));
                let interval = u64::try_from(interval).unwrap_or(u64::MAX).min(Nanos::MAX.get() / burst);
                Algorithm::TokenBucket(TokenBucket::new(burst, 1, Duration::from_nanos(interval)).ok()?)
            }
            Algorithm::SlidingLog(limit) => {
                Algorithm::SlidingLog(SlidingLog::new(self.units(limit.count()), limit.period().into()).ok()?)
            }
            Algorithm::Quota(limit) => {
                Algorithm::Quota(Quota::new(self.units(limit.count()), limit.period().into()).ok()?)
            }
            Algorithm::FixedWindow(limit) => {
                let (period, offset) = (limit.period().into(), limit.offset().into());
                Algorithm::FixedWindow(FixedWindow::new(self.units(limit.count()), period, offset).ok()?)
            }
            Algorithm::SlidingWindow(limit) => {
                let (count, period) = (self.units(limit.count()), limit.period().into());
                Algorithm::SlidingWindow(SlidingWindow::new(count, period).ok()?)
            }
            Algorithm::SmoothedRate(limit) => Algorithm::SmoothedRate(self.rate(limit)?),
        })
    }

    /// Returns this share of a rate.
    pub fn rate(self, limit: &SmoothedRate) -> Option<SmoothedRate> {
        let part = limit.limit() * f64::from(self.numerator) / f64::from(self.denominator);
        SmoothedRate::new(part, limit.period().into(), limit.strict()).ok()
    }

    /// Returns this share of a count.
    pub fn count(self, count: usize) -> usize {
        usize::try_from(self.units(count as u64)).unwrap_or(count)
    }

    fn units(self, units: u64) -> u64 {
        let part = u128::from(units) * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(part).unwrap_or(u64::MAX).max(1)
    }
}

impl Default for LocalShare {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl FromStr for LocalShare {
    type Err = LocalShareError;

    fn from_str(text: &str) -> Result<Self, LocalShareError> {
        let number = |text: &str| whole(text).ok_or(LocalShareError);
        if let Some((numerator, denominator)) = text.split_once('/') {
            return Self::new(number(numerator)?, number(denominator)?);
        }
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let places = u32::try_from(decimals.len()).map_err(|_| LocalShareError)?;
        let scale = 10_u64.checked_pow(places).ok_or(LocalShareError)?;
        let numerator =
            number(whole)?.checked_mul(scale).and_then(|whole| whole.checked_add(number(decimals).ok()?));
        Self::new(numerator.ok_or(LocalShareError)?, scale)
    }
}

impl fmt::Display for LocalShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.numerator, self.denominator)
    }
}

const fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_fraction_or_a_decimal() {
        for (text, parts) in [
            ("1/4", Some((1, 4))),
            ("0.25", Some((1, 4))),
            ("25/100", Some((1, 4))),
            ("1", Some((1, 1))),
            ("1.0", Some((1, 1))),
            ("0.000001", Some((1, 1_000_000))),
            ("0", None),
            ("0/4", None),
            ("5/4", None),
            ("1/0", None),
            ("1.5", None),
            ("-1", None),
            ("0.+5", None),
            ("+1/+4", None),
            ("a quarter", None),
            ("", None),
            (".", None),
            ("0.0000001", None),
            ("0.00000000000000000000000000001", None),
            ("1/18446744073709551615", None),
        ] {
            let share = parts.map(|(numerator, denominator)| LocalShare { numerator, denominator });
            assert_eq!(text.parse().ok(), share, "{text}");
        }
    }

    #[test]
    fn every_algorithm_keeps_its_part() {
        let quarter = LocalShare::new(1, 4).unwrap();
        let second = Duration::from_secs(1);
        let bucket =
            |burst, count, period| Algorithm::TokenBucket(TokenBucket::new(burst, count, period).unwrap());
        for (whole, part) in [
            (bucket(300, 100, second), bucket(75, 1, Duration::from_millis(40))),
            (bucket(1, 1, second), bucket(1, 1, Duration::from_secs(4))),
            (bucket(1, 1, Nanos::MAX.into()), bucket(1, 1, Nanos::MAX.into())),
            (
                Algorithm::SlidingLog(SlidingLog::new(10, second).unwrap()),
                Algorithm::SlidingLog(SlidingLog::new(2, second).unwrap()),
            ),
            (
                Algorithm::Quota(Quota::new(u64::MAX, second).unwrap()),
                Algorithm::Quota(Quota::new(u64::MAX / 4, second).unwrap()),
            ),
            (
                Algorithm::FixedWindow(FixedWindow::new(7, 2 * second, second).unwrap()),
                Algorithm::FixedWindow(FixedWindow::new(1, 2 * second, second).unwrap()),
            ),
            (
                Algorithm::SlidingWindow(SlidingWindow::new(3, second).unwrap()),
                Algorithm::SlidingWindow(SlidingWindow::new(1, second).unwrap()),
            ),
            (
                Algorithm::SmoothedRate(SmoothedRate::new(10.0, second, true).unwrap()),
                Algorithm::SmoothedRate(SmoothedRate::new(2.5, second, true).unwrap()),
            ),
        ] {
            let same_rate = |a: &Algorithm, b: &Algorithm| match (a, b) {
                (Algorithm::TokenBucket(a), Algorithm::TokenBucket(b)) => {
                    (a.burst(), a.emission_interval()) == (b.burst(), b.emission_interval())
                }
                (a, b) => a == b,
            };
            assert!(same_rate(&quarter.of(&whole), &part), "{whole:?}");
        }
    }

    #[test]
    fn two_thirds_are_twice_a_third() {
        let two_thirds: LocalShare = "4/6".parse().unwrap();
        assert_eq!(two_thirds.to_string(), "2/3");
        assert_eq!(
            [0, 1, 2, 9, usize::MAX].map(|count| two_thirds.count(count)),
            [1, 1, 1, 6, usize::MAX / 3 * 2]
        );
        let second = Duration::from_secs(1);
        let rate = SmoothedRate::new(9.0, second, false).unwrap();
        assert_eq!(two_thirds.rate(&rate), SmoothedRate::new(6.0, second, false).ok());
        let bucket = Algorithm::TokenBucket(TokenBucket::new(30, 1, 2 * second).unwrap());
        let part = Algorithm::TokenBucket(TokenBucket::new(20, 1, 3 * second).unwrap());
        assert_eq!(two_thirds.of(&bucket), part);
    }
}

//! Constructors that write a limit in code: `TokenBucket::per_minute(5).burst(10)`.
//!
//! ```
//! use std::time::Duration;
//! use tollway_core::algorithm::{IntoAlgorithm, SmoothedRate, TokenBucket};
//!
//! let login = TokenBucket::per_minute(5).burst(10).into_algorithm()?;
//! let upload = TokenBucket::every(Duration::from_millis(200)).into_algorithm()?;
//! let search = SmoothedRate::per_second(2.5).strict().into_algorithm()?;
//! assert_eq!((login.cost_max(), upload.cost_max(), search.cost_max()), (10, 1, 2));
//!
//! assert!(TokenBucket::per_minute(0).into_algorithm().is_err());
//! # Ok::<(), tollway_core::algorithm::NumbersError>(())
//! ```
//!
//! The constructors cannot fail, so that they read as one line and work in a `const`. Numbers that make no limit are an
//! error of [`IntoAlgorithm::into_algorithm`].

use std::time::Duration;

use crate::algorithm::{
    Algorithm, FixedWindow, NumbersError, Quota, SlidingLog, SlidingWindow, SmoothedRate, TokenBucket,
};
use crate::rate_spec::RateSpec;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A value that names an algorithm and its numbers, and becomes an [`Algorithm`] if the numbers make a limit.
pub trait IntoAlgorithm {
    /// Returns the algorithm with its numbers, or says which number is out of range.
    fn into_algorithm(self) -> Result<Algorithm, NumbersError>;
}

/// Numbers for a [`TokenBucket`], not validated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "numbers alone limit nothing: give them to a limit"]
pub struct TokenBucketSpec {
    count: u64,
    period: Duration,
    burst: u64,
}

/// Numbers for a [`SlidingLog`], not validated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "numbers alone limit nothing: give them to a limit"]
pub struct SlidingLogSpec {
    count: u64,
    period: Duration,
}

/// Numbers for a [`Quota`], not validated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "numbers alone limit nothing: give them to a limit"]
pub struct QuotaSpec {
    count: u64,
    period: Duration,
}

/// Numbers for a [`FixedWindow`], not validated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "numbers alone limit nothing: give them to a limit"]
pub struct FixedWindowSpec {
    count: u64,
    period: Duration,
    offset: Duration,
}

/// Numbers for a [`SlidingWindow`], not validated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "numbers alone limit nothing: give them to a limit"]
pub struct SlidingWindowSpec {
    count: u64,
    period: Duration,
}

/// Numbers for a [`SmoothedRate`], not validated yet.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "numbers alone limit nothing: give them to a limit"]
pub struct SmoothedRateSpec {
    limit: f64,
    period: Duration,
    strict: bool,
}

/// The constructors that all algorithms with a whole count have.
macro_rules! counted_constructors {
    ($algorithm:ident, $spec:ident) => {
        impl $algorithm {
            /// Allows `count` requests per second.
            pub const fn per_second(count: u64) -> $spec {
                Self::per(count, Duration::from_secs(1))
            }

            /// Allows `count` requests per minute.
            pub const fn per_minute(count: u64) -> $spec {
                Self::per(count, MINUTE)
            }

            /// Allows `count` requests per hour.
            pub const fn per_hour(count: u64) -> $spec {
                Self::per(count, HOUR)
            }

            /// Allows `count` requests per day.
            pub const fn per_day(count: u64) -> $spec {
                Self::per(count, DAY)
            }

            /// Allows one request per `interval`.
            pub const fn every(interval: Duration) -> $spec {
                Self::per(1, interval)
            }
        }
    };
}

counted_constructors!(TokenBucket, TokenBucketSpec);
counted_constructors!(SlidingLog, SlidingLogSpec);
counted_constructors!(Quota, QuotaSpec);
counted_constructors!(FixedWindow, FixedWindowSpec);
counted_constructors!(SlidingWindow, SlidingWindowSpec);

impl TokenBucket {
    /// Allows `count` requests per `period`, and `count` at once unless a [burst](TokenBucketSpec::burst) is set.
    pub const fn per(count: u64, period: Duration) -> TokenBucketSpec {
        TokenBucketSpec { count, period, burst: count }
    }
}

impl SlidingLog {
    /// Allows `count` requests in any span of `period`.
    pub const fn per(count: u64, period: Duration) -> SlidingLogSpec {
        SlidingLogSpec { count, period }
    }
}

impl Quota {
    /// Allows `count` requests in each window of `period`, which its first request opens.
    pub const fn per(count: u64, period: Duration) -> QuotaSpec {
        QuotaSpec { count, period }
    }
}

impl FixedWindow {
    /// Allows `count` requests in each window of `period`. Windows begin at multiples of the period since 1970, unless
    /// an [offset](FixedWindowSpec::offset) is set.
    pub const fn per(count: u64, period: Duration) -> FixedWindowSpec {
        FixedWindowSpec { count, period, offset: Duration::ZERO }
    }
}

impl SlidingWindow {
    /// Allows `count` requests in the last `period`, by an estimate from two windows of the clock.
    pub const fn per(count: u64, period: Duration) -> SlidingWindowSpec {
        SlidingWindowSpec { count, period }
    }
}

impl SmoothedRate {
    /// Keeps the rate below `limit` requests per second.
    pub fn per_second(limit: impl Into<f64>) -> SmoothedRateSpec {
        Self::per(limit, Duration::from_secs(1))
    }

    /// Keeps the rate below `limit` requests per minute.
    pub fn per_minute(limit: impl Into<f64>) -> SmoothedRateSpec {
        Self::per(limit, MINUTE)
    }

    /// Keeps the rate below `limit` requests per hour.
    pub fn per_hour(limit: impl Into<f64>) -> SmoothedRateSpec {
        Self::per(limit, HOUR)
    }

    /// Keeps the rate below `limit` requests per day.
    pub fn per_day(limit: impl Into<f64>) -> SmoothedRateSpec {
        Self::per(limit, DAY)
    }

    /// Keeps the rate below one request per `interval`.
    pub const fn every(interval: Duration) -> SmoothedRateSpec {
        SmoothedRateSpec { limit: 1.0, period: interval, strict: false }
    }

    /// Keeps the rate below `limit` requests per `period`.
    pub fn per(limit: impl Into<f64>, period: Duration) -> SmoothedRateSpec {
        SmoothedRateSpec { limit: limit.into(), period, strict: false }
    }
}

impl TokenBucketSpec {
    /// Sets how many requests a full bucket allows at once (default: the count).
    pub const fn burst(mut self, burst: u64) -> Self {
        self.burst = burst;
        self
    }
}

impl FixedWindowSpec {
    /// Sets how long after a multiple of the period a window begins (default: 0). Days that begin at midnight of a zone
    /// two hours ahead of UTC have an offset of 22 hours.
    pub const fn offset(mut self, offset: Duration) -> Self {
        self.offset = offset;
        self
    }
}

impl SmoothedRateSpec {
    /// Counts denied requests too, so that a caller who keeps asking stays denied.
    pub const fn strict(mut self) -> Self {
        self.strict = true;
        self
    }
}

impl IntoAlgorithm for TokenBucketSpec {
    fn into_algorithm(self) -> Result<Algorithm, NumbersError> {
        TokenBucket::new(self.burst, self.count, self.period).map(Algorithm::TokenBucket)
    }
}

impl IntoAlgorithm for SlidingLogSpec {
    fn into_algorithm(self) -> Result<Algorithm, NumbersError> {
        SlidingLog::new(self.count, self.period).map(Algorithm::SlidingLog)
    }
}

impl IntoAlgorithm for QuotaSpec {
    fn into_algorithm(self) -> Result<Algorithm, NumbersError> {
        Quota::new(self.count, self.period).map(Algorithm::Quota)
    }
}

impl IntoAlgorithm for FixedWindowSpec {
    fn into_algorithm(self) -> Result<Algorithm, NumbersError> {
        FixedWindow::new(self.count, self.period, self.offset).map(Algorithm::FixedWindow)
    }
}

impl IntoAlgorithm for SlidingWindowSpec {
    fn into_algorithm(self) -> Result<Algorithm, NumbersError> {
        SlidingWindow::new(self.count, self.period).map(Algorithm::SlidingWindow)
    }
}

impl IntoAlgorithm for SmoothedRateSpec {
    fn into_algorithm(self) -> Result<Algorithm, NumbersError> {
        SmoothedRate::new(self.limit, self.period, self.strict).map(Algorithm::SmoothedRate)
    }
}

/// A rate is a token bucket whose burst is its count.
impl IntoAlgorithm for RateSpec {
    fn into_algorithm(self) -> Result<Algorithm, NumbersError> {
        TokenBucket::new(self.count(), self.count(), self.period().into()).map(Algorithm::TokenBucket)
    }
}

impl IntoAlgorithm for Algorithm {
    fn into_algorithm(self) -> Result<Algorithm, NumbersError> {
        Ok(self)
    }
}

/// Numbers that were validated when they were made.
macro_rules! valid_numbers {
    ($($algorithm:ident),*) => {$(
        impl From<$algorithm> for Algorithm {
            fn from(numbers: $algorithm) -> Self {
                Self::$algorithm(numbers)
            }
        }

        impl IntoAlgorithm for $algorithm {
            fn into_algorithm(self) -> Result<Algorithm, NumbersError> {
                Ok(self.into())
            }
        }
    )*};
}

valid_numbers!(TokenBucket, SlidingLog, SmoothedRate, Quota, FixedWindow, SlidingWindow);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn specs_make_the_same_limits_as_validated_numbers() {
        let bucket = |burst, count, period| TokenBucket::new(burst, count, period).map(Algorithm::from);
        assert_eq!(TokenBucket::per_second(5).into_algorithm(), bucket(5, 5, SECOND));
        assert_eq!(
            TokenBucket::per_minute(5).burst(10).into_algorithm(),
            bucket(10, 5, Duration::from_secs(60))
        );
        assert_eq!(TokenBucket::per_hour(5).into_algorithm(), bucket(5, 5, Duration::from_secs(3_600)));
        assert_eq!(TokenBucket::per_day(5).into_algorithm(), bucket(5, 5, Duration::from_secs(86_400)));
        assert_eq!(TokenBucket::every(Duration::from_secs(1)).into_algorithm(), bucket(1, 1, SECOND));
        assert_eq!(
            "5/m".parse::<RateSpec>().unwrap().into_algorithm(),
            bucket(5, 5, Duration::from_secs(60))
        );
        assert_eq!(
            SlidingLog::per_second(7).into_algorithm(),
            SlidingLog::new(7, SECOND).map(Algorithm::from)
        );
        assert_eq!(Quota::per_second(7).into_algorithm(), Quota::new(7, SECOND).map(Algorithm::from));
        let hour = Duration::from_secs(3_600);
        assert_eq!(
            FixedWindow::per_day(7).offset(22 * hour).into_algorithm(),
            FixedWindow::new(7, 24 * hour, 22 * hour).map(Algorithm::from)
        );
        assert_eq!(
            SlidingWindow::per_hour(7).into_algorithm(),
            SlidingWindow::new(7, hour).map(Algorithm::from)
        );
        assert_eq!(
            SmoothedRate::per_second(7).strict().into_algorithm(),
            SmoothedRate::new(7.0, SECOND, true).map(Algorithm::from)
        );
    }

    #[test]
    fn numbers_that_make_no_limit_are_errors_of_the_conversion() {
        let zero = |field| Err(NumbersError::Zero { field });
        assert_eq!(TokenBucket::per_second(0).burst(1).into_algorithm(), zero("count"));
        assert_eq!(TokenBucket::per_second(1).burst(0).into_algorithm(), zero("burst"));
        assert_eq!(TokenBucket::every(Duration::ZERO).into_algorithm(), zero("period"));
        assert_eq!(SlidingLog::per_day(0).into_algorithm(), zero("count"));
        assert_eq!(
            Quota::per(1, Duration::MAX).into_algorithm(),
            Err(NumbersError::PeriodTooLong { max: "292 years" })
        );
        assert_eq!(FixedWindow::per_second(0).into_algorithm(), zero("count"));
        assert_eq!(
            FixedWindow::per_second(1).offset(Duration::MAX).into_algorithm(),
            Err(NumbersError::OffsetTooLong)
        );
        assert_eq!(SlidingWindow::per_second(1 << 29).into_algorithm(), Err(NumbersError::WindowTooLarge));
        assert_eq!(SmoothedRate::per_second(f64::NAN).into_algorithm(), Err(NumbersError::Rate));
    }
}

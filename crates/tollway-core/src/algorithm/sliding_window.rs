//! The sliding window: this window's requests, and as many of the previous window's as the last period still covers.
//!
//! ```text
//! count 10, period 1m    11:59              12:00     now        12:01
//!                        ├──────────────────┼──────────┼─────────┤
//!                          8 requests         3 requests
//!                                  └───── the last minute ────┘ covers half of the previous window: 3 + 4 used
//! ```
//!
//! Windows begin at multiples of the period since 1970. A part of a request counts as a whole one. The estimate takes
//! the requests of the previous window as evenly spread; a [sliding log](super::SlidingLog) counts them one by one.

use std::time::Duration;

use crate::algorithm::{Bucket, NumbersError, sensible};
use crate::decision::{Decision, Refund, Verdict};
use crate::time::{Nanos, Timestamp};

/// The bits of one counter, of which a bucket has two.
const COUNTER_BITS: u32 = 29;

/// The highest count of a sliding window: 2^29 - 1.
pub const WINDOW_COUNT_MAX: u64 = (1 << COUNTER_BITS) - 1;

/// The longest period: 73 years. The end of the window after the next one is then still a moment.
const PERIOD_MAX: Nanos = Nanos::new(Nanos::MAX.get() / 4);

/// A limit that allows `count` requests in the last `period`, by an estimate from two windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    count: u64,
    period: Nanos,
    /// The smallest power of two that is at least the period, as an exponent.
    period_log2: u32,
}

impl SlidingWindow {
    /// Rejects zeros, counts above [`WINDOW_COUNT_MAX`], and periods of more than 73 years.
    pub fn new(count: u64, period: Duration) -> Result<Self, NumbersError> {
        let period = Nanos::from(period);
        sensible(&[("count", count)], period)?;
        if count > WINDOW_COUNT_MAX {
            return Err(NumbersError::WindowTooLarge);
        }
        if period > PERIOD_MAX {
            return Err(NumbersError::PeriodTooLong { max: "73 years" });
        }
        Ok(Self { count, period, period_log2: period.get().next_power_of_two().trailing_zeros() })
    }

    /// Returns the number of units that fit in a period.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the time that a window lasts.
    pub const fn period(&self) -> Nanos {
        self.period
    }

    /// Returns the time for which a bucket is kept after the end of a window with requests: the period, rounded up to a
    /// power of two nanoseconds.
    pub const fn kept_after_end(&self) -> Nanos {
        Nanos::new(1 << self.period_log2)
    }

    /// Returns the time until the window that contains `now` ends, which is above zero.
    const fn until_end(&self, now: Timestamp) -> Nanos {
        Nanos::new(self.period.get() - now.as_nanos() % self.period.get())
    }

    /// Returns how many requests of a window count while the last period covers only this end of it.
    fn weighted(&self, requests: u64, covered: Nanos) -> u64 {
        if requests == 0 {
            return 0;
        }
        let (whole, rest) = multiply_divide(requests, covered.get(), self.period.get());
        whole + u64::from(rest > 0)
    }

    /// Returns the longest end of a window of which no more than `room` requests count, from among `requests`.
    fn covered_for(&self, room: u64, requests: u64) -> Nanos {
        if room >= requests {
            return self.period;
        }
        Nanos::new(multiply_divide(room, self.period.get(), requests).0)
    }

    /// Returns the time until a charge of `cost` fits if nobody else comes.
    fn wait(&self, counters: Counters, cost: u64, until_end: Nanos) -> Nanos {
        let room = self.count.saturating_sub(cost);
        match room.checked_sub(counters.current) {
            // Enough requests of the previous window stop counting, the last of them when this window ends.
            Some(room) => until_end.saturating_sub(self.covered_for(room, counters.previous)),
            // This window's requests have to become those of the previous one first, and fewer of them.
            None => (until_end + self.period).saturating_sub(self.covered_for(room, counters.current)),
        }
    }
}

/// Returns `a * b / divisor`, and the remainder. The quotient must fit in 64 bits.
fn multiply_divide(a: u64, b: u64, divisor: u64) -> (u64, u64) {
    // 64 bits are enough for nearly all limits, and are divided several times as fast as 128.
    if let Some(product) = a.checked_mul(b) {
        return (product / divisor, product % divisor);
    }
    let (product, divisor) = (u128::from(a) * u128::from(b), u128::from(divisor));
    let narrow = |wide| u64::try_from(wide).unwrap_or(u64::MAX);
    (narrow(product / divisor), narrow(product % divisor))
}

/// The requests of this window and of the previous one, and when this window ends, in 16 bytes.
///
/// Requests of a window that has not ended count in the current window. The two are the same, unless the clock stepped
/// back or the limit got another period: then the requests still count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindowState {
    ends_at: Timestamp,
    /// From the lowest bit on: the requests of this window, those of the previous one, and the exponent of the time for
    /// which the bucket is kept after the end of this window.
    packed: u64,
}

/// The requests that two windows have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    current: u64,
    previous: u64,
}

impl SlidingWindowState {
    /// Makes a window of a limit that ends at this moment, with the requests that it and the previous one have seen.
    /// More than [`WINDOW_COUNT_MAX`] requests count as that many.
    pub fn until(ends_at: Timestamp, current: u64, previous: u64, kept_after_end: Nanos) -> Self {
        let (current, previous) = (current.min(WINDOW_COUNT_MAX), previous.min(WINDOW_COUNT_MAX));
        Self::pack(ends_at, Counters { current, previous }, kept_after_end.get().max(1).ilog2())
    }

    fn pack(ends_at: Timestamp, counters: Counters, kept_log2: u32) -> Self {
        let packed =
            counters.current | counters.previous << COUNTER_BITS | u64::from(kept_log2) << (2 * COUNTER_BITS);
        Self { ends_at, packed }
    }

    /// Returns the whole state as two numbers, for a store that keeps numbers.
    #[inline]
    pub const fn to_words(self) -> [u64; 2] {
        [self.ends_at.as_nanos(), self.packed]
    }

    /// Returns the state that [`to_words`](Self::to_words) made these numbers of.
    #[inline]
    pub const fn from_words([ends_at, packed]: [u64; 2]) -> Self {
        Self { ends_at: Timestamp::from_nanos(ends_at), packed }
    }

    /// Returns the moment when the window ends that was the present one at the last change.
    pub const fn ends_at(&self) -> Timestamp {
        self.ends_at
    }

    /// Returns the requests of the window that ends at [`ends_at`](Self::ends_at).
    pub const fn current(&self) -> u64 {
        self.packed & WINDOW_COUNT_MAX
    }

    /// Returns the requests of the window before it.
    pub const fn previous(&self) -> u64 {
        self.packed >> COUNTER_BITS & WINDOW_COUNT_MAX
    }

    /// Returns the time for which the bucket is kept after [`ends_at`](Self::ends_at), as [`until`](Self::until) takes
    /// it.
    pub const fn kept_after_end(&self) -> Nanos {
        Nanos::new(1 << (self.packed >> (2 * COUNTER_BITS)))
    }

    /// Returns the counters at a moment whose window begins at `begin`.
    fn counters(&self, limit: &SlidingWindow, begin: Timestamp, now: Timestamp) -> Counters {
        let (current, previous) = (self.current(), self.previous());
        if self.expires_at() <= now {
            Counters::default()
        } else if self.ends_at > begin {
            Counters { current, previous }
        } else if self.ends_at > begin - limit.period {
            Counters { current: 0, previous: current }
        } else {
            Counters::default()
        }
    }
}

impl Bucket for SlidingWindowState {
    type Limit = SlidingWindow;

    fn check(&self, limit: &SlidingWindow, cost: u64, now: Timestamp) -> Decision {
        let mut after = *self;
        after.charge(limit, cost, now)
    }

    #[inline(always)] // A call would return a decision in memory, which is copied from there.
    fn charge(&mut self, limit: &SlidingWindow, cost: u64, now: Timestamp) -> Decision {
        let until_end = limit.until_end(now);
        let ends_at = now + until_end;
        let mut counters = self.counters(limit, ends_at - limit.period, now);
        let used = counters.current + limit.weighted(counters.previous, until_end);
        let left = limit.count.saturating_sub(used);
        let (verdict, taken) = if cost <= left { (Verdict::Allow, cost) } else { (Verdict::Deny, 0) };
        counters.current += taken;
        // Written even when nothing is taken: an end too far ahead would else be too far ahead at every retry.
        if counters != Counters::default() {
            *self = Self::pack(ends_at, counters, limit.period_log2);
        }
        let remaining = left - taken;
        let retry = if cost <= remaining { Nanos::ZERO } else { limit.wait(counters, cost, until_end) };
        Decision::new(verdict, remaining, retry, counters.reset_after(limit, until_end))
    }

    fn refund(&mut self, limit: &SlidingWindow, cost: u64, now: Timestamp) -> Option<Refund> {
        let until_end = limit.until_end(now);
        let ends_at = now + until_end;
        let mut counters = self.counters(limit, ends_at - limit.period, now);
        let given_back = counters.current.min(cost);
        if counters != Counters::default() {
            counters.current -= given_back;
            *self = Self::pack(ends_at, counters, limit.period_log2);
        }
        let used = counters.current + limit.weighted(counters.previous, until_end);
        let reset = counters.reset_after(limit, until_end);
        Some(Refund::new(given_back > 0, limit.count.saturating_sub(used), reset))
    }

    fn expires_at(&self) -> Timestamp {
        match (self.current(), self.previous()) {
            (0, 0) => Timestamp::EPOCH,
            (0, _) => self.ends_at,
            _ => self.ends_at + self.kept_after_end(),
        }
    }
}

impl Counters {
    /// Returns the time until no request counts any more.
    fn reset_after(self, limit: &SlidingWindow, until_end: Nanos) -> Nanos {
        match self {
            Self { current: 1.., .. } => until_end + limit.period,
            Self { previous: 1.., .. } => until_end,
            _ => Nanos::ZERO,
        }
    }
}

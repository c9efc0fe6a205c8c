//! What time it is, for us and for the master.
//!
//! Delays are kept by a clock that only goes forward, and messages carry the wall clock's time. Both are read together, and
//! only the difference of two readings is ever carried from one to the other: a wall clock that is set back by an hour
//! makes nobody wait for an hour.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use tollway_core::{Nanos, Timestamp};

const NANOS_PER_MILLI: u64 = 1_000_000;

/// By tokio's clock, because its timers are what is waited by: where a test has stopped it, nobody's time comes before the timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    started: Instant,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { started: Instant::now() }
    }

    pub(super) fn now(self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { steady: moment(self.started.elapsed()), wall: moment(wall) }
    }

    /// The same moment, for timers. `None` if it is too far away to be one.
    pub(super) fn instant(self, moment: Timestamp) -> Option<Instant> {
        self.started.checked_add(Duration::from_nanos(moment.as_nanos()))
    }
}

fn moment(since: Duration) -> Timestamp {
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// One reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Since the clock was started. It never goes back.
    pub(super) steady: Timestamp,
    wall: Timestamp,
}

impl Now {
    /// The wall clock's milliseconds since 1970.
    pub(super) const fn millis(self) -> u64 {
        self.wall.as_nanos() / NANOS_PER_MILLI
    }

    /// The moment that a message speaks of.
    pub(super) fn heard(self, millis: u64) -> Timestamp {
        let told = Timestamp::EPOCH + Nanos::from_millis(millis);
        self.steady + told.since(self.wall) - self.wall.since(told)
    }

    /// What to call a moment in a message. Rounded, because the two clocks are not read at quite the same time: what was heard is
    /// called what it was called.
    pub(super) fn called(self, moment: Timestamp) -> u64 {
        let wall = self.wall + moment.since(self.steady) - self.steady.since(moment);
        wall.as_nanos().saturating_add(NANOS_PER_MILLI / 2) / NANOS_PER_MILLI
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(steady_millis: u64, wall_millis: u64) -> Now {
        let at = |millis| Timestamp::EPOCH + Nanos::from_millis(millis);
        Now { steady: at(steady_millis), wall: at(wall_millis) }
    }

    #[test]
    fn what_was_heard_is_called_the_same() {
        let heard = now(10, 5_000).heard(6_000);
        assert_eq!(heard, Timestamp::EPOCH + Nanos::from_millis(1_010));
        assert_eq!(now(500, 5_490).called(heard), 6_000);
        let a_little_late = Now { wall: Timestamp::from_nanos(5_490_400_000), ..now(500, 0) };
        assert_eq!(a_little_late.called(heard), 6_000);
    }

    #[test]
    fn a_delay_outlives_a_wall_clock_that_is_set() {
        let heard = now(0, 10_000).heard(11_000);
        let set_back = now(500, 2_000);
        assert_eq!(heard.since(set_back.steady), Nanos::from_millis(500));
        assert_eq!(set_back.called(heard), 2_500);
    }

    #[test]
    fn the_past_and_the_far_future_are_moments_too() {
        assert_eq!(now(10, 5_000).heard(0), Timestamp::EPOCH);
        assert_eq!(now(10, 5_000).called(Timestamp::EPOCH), 4_990);
        assert_eq!(now(10, 5_000).heard(u64::MAX).as_nanos(), u64::MAX - 5_000_000_000 + 10_000_000);
        assert!(now(10, 5_000).called(Timestamp::from_nanos(u64::MAX)) > 5_000);
    }
}

//! The clock of a gatekeeper, which converts between the time of messages and its own.
//!
//! Delays are kept by a monotonic clock, and messages carry wall clock time. Both clocks are read together, and only
//! differences are converted: a wall clock that is set back by an hour makes no request wait for an hour.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use tollway_core::{Nanos, Timestamp};

const NANOS_PER_MILLI: u64 = 1_000_000;

/// A monotonic clock since its start. It is tokio's, because tokio's timers end the waits: in a test that pauses
/// tokio's clock, no wait is over before its timer.
#[derive(Clone, Debug)]
pub(super) struct GatekeeperClock {
    started: Instant,
    /// The time that the simulator sets, in place of both clocks.
    #[cfg(feature = "simulation")]
    simulated: Option<std::sync::Arc<super::simulation::SimulatedTime>>,
}

impl GatekeeperClock {
    pub(super) fn start() -> Self {
        Self {
            started: Instant::now(),
            #[cfg(feature = "simulation")]
            simulated: None,
        }
    }

    /// Returns a clock that the simulator sets.
    #[cfg(feature = "simulation")]
    pub(super) fn simulated(time: std::sync::Arc<super::simulation::SimulatedTime>) -> Self {
        Self { started: Instant::now(), simulated: Some(time) }
    }

    pub(super) fn now(&self) -> ClockReading {
        #[cfg(feature = "simulation")]
        if let Some(time) = &self.simulated {
            let (steady, wall) = time.read();
            return ClockReading { steady, wall };
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ClockReading { steady: moment(self.started.elapsed()), wall: moment(wall) }
    }

    /// Converts a moment for timers, or returns `None` if it is too far in the future.
    pub(super) fn instant(&self, moment: Timestamp) -> Option<Instant> {
        self.started.checked_add(Duration::from_nanos(moment.as_nanos()))
    }
}

fn moment(since: Duration) -> Timestamp {
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Both clocks, read at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockReading {
    /// The time since the clock was started. It never goes back.
    pub(super) steady: Timestamp,
    wall: Timestamp,
}

impl ClockReading {
    /// Returns the milliseconds of the wall clock since 1970.
    pub(super) const fn millis(self) -> u64 {
        self.wall.as_nanos() / NANOS_PER_MILLI
    }

    /// Converts the time in a message to a moment of the monotonic clock.
    pub(super) fn local_time(self, millis: u64) -> Timestamp {
        let told = Timestamp::EPOCH + Nanos::from_millis(millis);
        self.steady + told.since(self.wall) - self.wall.since(told)
    }

    /// Converts a moment of the monotonic clock to the time in a message. It is rounded, because the two clocks are not
    /// read at exactly the same time: a time that was received is sent as it was received.
    pub(super) fn to_wall(self, moment: Timestamp) -> u64 {
        let wall = self.wall + moment.since(self.steady) - self.steady.since(moment);
        wall.as_nanos().saturating_add(NANOS_PER_MILLI / 2) / NANOS_PER_MILLI
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(steady_millis: u64, wall_millis: u64) -> ClockReading {
        let at = |millis| Timestamp::EPOCH + Nanos::from_millis(millis);
        ClockReading { steady: at(steady_millis), wall: at(wall_millis) }
    }

    #[test]
    fn a_time_that_was_received_is_sent_unchanged() {
        let received = now(10, 5_000).local_time(6_000);
        assert_eq!(received, Timestamp::EPOCH + Nanos::from_millis(1_010));
        assert_eq!(now(500, 5_490).to_wall(received), 6_000);
        let a_little_late = ClockReading { wall: Timestamp::from_nanos(5_490_400_000), ..now(500, 0) };
        assert_eq!(a_little_late.to_wall(received), 6_000);
    }

    #[test]
    fn a_delay_outlives_a_wall_clock_that_is_set() {
        let received = now(0, 10_000).local_time(11_000);
        let set_back = now(500, 2_000);
        assert_eq!(received.since(set_back.steady), Nanos::from_millis(500));
        assert_eq!(set_back.to_wall(received), 2_500);
    }

    #[test]
    fn the_past_and_the_far_future_are_moments_too() {
        assert_eq!(now(10, 5_000).local_time(0), Timestamp::EPOCH);
        assert_eq!(now(10, 5_000).to_wall(Timestamp::EPOCH), 4_990);
        assert_eq!(now(10, 5_000).local_time(u64::MAX).as_nanos(), u64::MAX - 5_000_000_000 + 10_000_000);
        assert!(now(10, 5_000).to_wall(Timestamp::from_nanos(u64::MAX)) > 5_000);
    }
}

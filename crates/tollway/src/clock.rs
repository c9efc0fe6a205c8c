//! The clock of a limiter: the only place that reads the time.
//!
//! The time starts at the wall clock and advances with a monotonic counter, so a step of the wall clock changes no
//! decision. A manual clock keeps the time that it was set to, for tests and traces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollway_core::Timestamp;

/// A clock that returns the current time. Clones of a manual clock share their time.
#[derive(Clone, Debug)]
pub struct Clock(TimeSource);

#[derive(Clone, Debug)]
enum TimeSource {
    Monotonic { counter: quanta::Clock, started: u64 },
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// Returns a clock that starts at the wall clock and advances with the machine's monotonic counter.
    pub fn monotonic() -> Self {
        let counter = quanta::Clock::new();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX).min(Timestamp::MAX.as_nanos());
        let started = wall.wrapping_sub(counter.delta_as_nanos(0, counter.raw()));
        Self(TimeSource::Monotonic { counter, started })
    }

    /// Returns a manual clock, which stays at `now` until it is set.
    pub fn manual(now: Timestamp) -> Self {
        Self(TimeSource::Manual(Arc::new(AtomicU64::new(now.as_nanos()))))
    }

    /// Returns the current time.
    #[inline]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(match &self.0 {
            TimeSource::Monotonic { counter, started } => {
                started.wrapping_add(counter.delta_as_nanos(0, counter.raw()))
            }
            TimeSource::Manual(nanos) => nanos.load(Ordering::Relaxed),
        })
    }

    /// Returns the time of a manual clock, or `None` for the machine's clock. The Redis store sends only a manual time
    /// to the server: otherwise Redis uses its own clock, because the clocks of several hosts differ.
    pub fn manual_time(&self) -> Option<Timestamp> {
        match &self.0 {
            TimeSource::Monotonic { .. } => None,
            TimeSource::Manual(_) => Some(self.now()),
        }
    }

    /// Sets a manual clock. The machine's clock ignores this.
    pub fn set(&self, now: Timestamp) {
        if let TimeSource::Manual(nanos) = &self.0 {
            nanos.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Moves a manual clock forward. The machine's clock ignores this.
    pub fn advance(&self, by: Duration) {
        if let TimeSource::Manual(nanos) = &self.0 {
            let later = |now| Some((Timestamp::from_nanos(now) + by.into()).as_nanos());
            let _ = nanos.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::monotonic()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_starts_at_the_wall_clock_and_never_runs_back() {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let clock = Clock::monotonic();
        let mut earlier = clock.now();
        assert!(earlier.as_nanos() / 1_000_000_000 - wall <= 60);
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= earlier);
            earlier = now;
        }
    }

    #[test]
    fn a_manual_clock_stands_where_it_was_set() {
        let clock = Clock::manual(Timestamp::EPOCH);
        clock.clone().set(Timestamp::from_nanos(7));
        assert_eq!(clock.now(), Timestamp::from_nanos(7));
        clock.advance(Duration::from_nanos(2));
        assert_eq!(clock.now(), Timestamp::from_nanos(9));
    }
}

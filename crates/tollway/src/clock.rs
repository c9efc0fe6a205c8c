//! The one place that asks what time it is.
//!
//! The time is the wall clock's when the process started, and from then on a monotonic counter's: a step of the wall
//! clock changes no decision. A manual clock stands where it was set, for tests and traces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tollway_core::Timestamp;

/// What time it is. Clones of a manual clock are the same clock.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Monotonic { counter: quanta::Clock, started: u64 },
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's clock.
    pub fn monotonic() -> Self {
        let counter = quanta::Clock::new();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX).min(Timestamp::MAX.as_nanos());
        let started = wall.wrapping_sub(counter.delta_as_nanos(0, counter.raw()));
        Self(Source::Monotonic { counter, started })
    }

    /// A clock that stands at `now` until it is set.
    pub fn manual(now: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(now.as_nanos()))))
    }

    /// What time it is.
    #[inline]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(match &self.0 {
            Source::Monotonic { counter, started } => {
                started.wrapping_add(counter.delta_as_nanos(0, counter.raw()))
            }
            Source::Manual(nanos) => nanos.load(Ordering::Relaxed),
        })
    }

    /// What a manual clock was set to; `None` of the machine's, whose time another machine need not share.
    pub fn manual_time(&self) -> Option<Timestamp> {
        match &self.0 {
            Source::Monotonic { .. } => None,
            Source::Manual(_) => Some(self.now()),
        }
    }

    /// Sets a manual clock; the machine's clock is nobody's to set.
    pub fn set(&self, now: Timestamp) {
        if let Source::Manual(nanos) = &self.0 {
            nanos.store(now.as_nanos(), Ordering::Relaxed);
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
    }
}

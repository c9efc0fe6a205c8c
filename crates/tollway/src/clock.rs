//! The clock of a limiter: the only place that reads the time.
//!
//! The time starts at the wall clock and advances with a monotonic counter, so a step of the wall clock changes no
//! decision. A manual clock keeps the time that it was set to, for tests and traces. Times that are exchanged with
//! other machines are those of the wall clock; [`WallClock`] converts between the two.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollway_core::Timestamp;

/// A clock that returns the current time. Clones of a manual clock share their time.
#[derive(Clone, Debug)]
pub struct Clock(TimeSource);

#[derive(Clone, Debug)]
enum TimeSource {
    Monotonic { counter: quanta::Clock, started: u64 },
    Manual(Arc<ManualTime>),
}

#[derive(Debug)]
struct ManualTime {
    nanos: AtomicU64,
    /// The wall clock minus the time.
    wall_offset: AtomicI64,
    /// True if a store with a clock of its own decides by this time instead.
    is_sent: bool,
}

impl Clock {
    /// Returns a clock that starts at the wall clock and advances with the machine's monotonic counter.
    pub fn monotonic() -> Self {
        let counter = quanta::Clock::new();
        let started = system_time().as_nanos().wrapping_sub(counter.delta_as_nanos(0, counter.raw()));
        Self(TimeSource::Monotonic { counter, started })
    }

    /// Returns this clock, but so that it is `now` at this moment. A manual clock stays as it is, unless it takes the
    /// place of a machine's.
    #[cfg(feature = "journal")]
    pub(crate) fn resumed_at(self, now: Timestamp) -> Self {
        match self.0 {
            TimeSource::Monotonic { counter, .. } => {
                let started = now.as_nanos().wrapping_sub(counter.delta_as_nanos(0, counter.raw()));
                Self(TimeSource::Monotonic { counter, started })
            }
            TimeSource::Manual(time) => {
                if !time.is_sent {
                    time.nanos.store(now.as_nanos(), Ordering::Relaxed);
                }
                Self(TimeSource::Manual(time))
            }
        }
    }

    /// Returns a manual clock, which stays at `now` until it is set.
    pub fn manual(now: Timestamp) -> Self {
        Self::set_by_hand(now, true)
    }

    /// Returns a manual clock whose time is not sent to Redis, as that of a machine is not. For the simulator, whose
    /// Redis has a clock of its own.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn simulated(now: Timestamp) -> Self {
        Self::set_by_hand(now, false)
    }

    fn set_by_hand(now: Timestamp, is_sent: bool) -> Self {
        let (nanos, wall_offset) = (AtomicU64::new(now.as_nanos()), AtomicI64::new(0));
        Self(TimeSource::Manual(Arc::new(ManualTime { nanos, wall_offset, is_sent })))
    }

    /// Returns the current time.
    #[inline]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(match &self.0 {
            TimeSource::Monotonic { counter, started } => {
                started.wrapping_add(counter.delta_as_nanos(0, counter.raw()))
            }
            TimeSource::Manual(time) => time.nanos.load(Ordering::Relaxed),
        })
    }

    /// Returns the time of the wall clock. That of a manual clock is its own, unless another one was set beside it.
    pub fn wall(&self) -> Timestamp {
        Timestamp::from_nanos(self.now().as_nanos().wrapping_add_signed(self.wall_offset()))
    }

    /// Returns how far the wall clock is ahead of this clock, in nanoseconds.
    fn wall_offset(&self) -> i64 {
        match &self.0 {
            TimeSource::Monotonic { .. } => {
                system_time().as_nanos().wrapping_sub(self.now().as_nanos()).cast_signed()
            }
            TimeSource::Manual(time) => time.wall_offset.load(Ordering::Relaxed),
        }
    }

    /// Returns the time of a manual clock, or `None` for the machine's clock. The Redis store sends only a manual time
    /// to the server: otherwise Redis uses its own clock, because the clocks of several hosts differ.
    pub fn manual_time(&self) -> Option<Timestamp> {
        match &self.0 {
            TimeSource::Monotonic { .. } => None,
            TimeSource::Manual(time) => time.is_sent.then(|| self.now()),
        }
    }

    /// Sets a manual clock. The machine's clock ignores this.
    pub fn set(&self, now: Timestamp) {
        if let TimeSource::Manual(time) = &self.0 {
            time.nanos.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Sets the wall clock beside a manual clock, whose own time stays as it is. The machine's clock ignores this.
    pub fn set_wall(&self, wall: Timestamp) {
        if let TimeSource::Manual(time) = &self.0 {
            let offset = wall.as_nanos().wrapping_sub(self.now().as_nanos()).cast_signed();
            time.wall_offset.store(offset, Ordering::Relaxed);
        }
    }

    /// Moves a manual clock forward. The machine's clock ignores this.
    pub fn advance(&self, by: Duration) {
        if let TimeSource::Manual(time) = &self.0 {
            let later = |now| Some((Timestamp::from_nanos(now) + by.into()).as_nanos());
            let _ = time.nanos.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::monotonic()
    }
}

/// Returns the wall clock of the machine.
fn system_time() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
    Timestamp::from_nanos(nanos.min(Timestamp::MAX.as_nanos()))
}

/// Returns the number that the system gave to the current run of the machine. It is zero if there is none.
#[cfg(feature = "journal")]
pub(crate) fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

/// Returns the nanoseconds since the machine was started, with the time that it slept. It is zero where the system does
/// not tell.
#[cfg(feature = "journal")]
pub(crate) fn boot_time() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (secs, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
        secs.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.unwrap_or(0))
    }
    #[cfg(not(target_os = "linux"))]
    0
}

/// Converts between the times of a clock and those of the wall clock, whose steps it follows.
#[derive(Debug)]
pub struct WallClock {
    clock: Clock,
    offset: AtomicI64,
}

/// The difference between the wall clock and a clock, in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallOffset {
    millis: i64,
}

/// The difference above which a [`WallClock`] takes a new offset. Receivers recognize a time that is sent again, so the
/// offset must not change with every reading of two clocks that are never read at the same moment.
const OFFSET_TOLERANCE_MILLIS: i64 = 100;

impl WallClock {
    /// Returns the wall clock that belongs to `clock`.
    pub fn new(clock: Clock) -> Self {
        Self { clock, offset: AtomicI64::new(0) }
    }

    /// Returns the offset at this moment, as exact as a tenth of a second.
    pub fn offset(&self) -> WallOffset {
        let current = self.clock.wall_offset() / 1_000_000;
        let known = self.offset.load(Ordering::Relaxed);
        if current.abs_diff(known) <= OFFSET_TOLERANCE_MILLIS.unsigned_abs() {
            return WallOffset { millis: known };
        }
        self.offset.store(current, Ordering::Relaxed);
        WallOffset { millis: current }
    }
}

impl WallOffset {
    /// Converts a time of the clock to the wall clock, both in milliseconds since 1970.
    pub const fn to_wall_millis(self, millis: u64) -> u64 {
        millis.saturating_add_signed(self.millis)
    }

    /// Converts a time of the wall clock to the clock, both in milliseconds since 1970.
    pub const fn from_wall_millis(self, millis: u64) -> u64 {
        millis.saturating_sub_signed(self.millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_starts_at_the_wall_clock_and_never_runs_back() {
        let before = system_time();
        let clock = Clock::monotonic();
        let mut earlier = clock.now();
        let offset = clock.wall_offset();
        // The clocks are not further apart than the time that the machine took for this, and what they measure apart.
        let apart_max = 2 * (system_time().as_nanos() - before.as_nanos()) + 1_000_000;
        assert!(earlier >= before && earlier.as_nanos() - before.as_nanos() <= apart_max);
        assert!(offset.unsigned_abs() <= apart_max);
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= earlier);
            earlier = now;
        }
    }

    #[test]
    fn the_wall_clock_is_followed_when_it_steps_and_not_when_it_trembles() {
        let clock = Clock::manual(Timestamp::from_nanos(5_000_000_000));
        let wall = WallClock::new(clock.clone());
        assert_eq!(wall.offset(), WallOffset::default());
        for (wall_millis, offset) in [
            (5_100, 0),
            (3_605_000, 3_600_000),
            (3_604_900, 3_600_000),
            (3_604_899, 3_599_899),
            (4_000, -1_000),
        ] {
            clock.set_wall(Timestamp::from_nanos(wall_millis * 1_000_000));
            assert_eq!(wall.offset(), WallOffset { millis: offset }, "{wall_millis}");
            assert_eq!(clock.now(), Timestamp::from_nanos(5_000_000_000));
        }
        let behind = wall.offset();
        assert_eq!((behind.to_wall_millis(5_000), behind.from_wall_millis(4_000)), (4_000, 5_000));
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

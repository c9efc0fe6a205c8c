//! Exponential backoff with jitter: each retry waits longer, and clients do not retry at the same moment.
//!
//! ```
//! use std::time::Duration;
//! use tollway_core::Backoff;
//!
//! let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(300));
//! let pauses = [0, u32::MAX, u32::MAX, u32::MAX].map(|random| backoff.failed(random).as_millis());
//! assert_eq!(pauses, [50, 200, 300, 300]);
//! ```
//!
//! The random number is an argument, as time is elsewhere: the caller draws it.

use std::time::Duration;

/// The state that says how long to wait before the next attempt.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Makes a backoff whose pauses double from the first to the longest.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// Counts one more failure and returns the pause after it.
    pub fn failed(&mut self, random: u32) -> Duration {
        let pause = self.first.saturating_mul(2_u32.saturating_pow(self.failures));
        self.failures = self.failures.saturating_add(1);
        jittered(pause.min(self.longest), random)
    }

    /// Counts a success: the pause after the next failure is the first again.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }
}

/// Returns a pause between half of `pause` and all of it.
pub fn jittered(pause: Duration, random: u32) -> Duration {
    pause / 2 + up_to(pause / 2, random)
}

/// Returns a pause between zero and `pause`.
pub fn up_to(pause: Duration, random: u32) -> Duration {
    pause.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_until_something_succeeds() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(800));
        let pauses = |backoff: &mut Backoff| [0; 6].map(|_| backoff.failed(u32::MAX).as_millis());
        let expected = [50, 100, 200, 400, 800, 800];
        assert_eq!(pauses(&mut backoff), expected);
        (0..100).for_each(|_| assert_eq!(backoff.failed(0), Duration::from_millis(400)));
        backoff.succeeded();
        assert_eq!(pauses(&mut backoff), expected);
    }

    #[test]
    fn a_pause_is_anything_from_half_of_it_to_all_of_it() {
        let pause = Duration::from_secs(8);
        for (random, jitter, part) in [(0, 4, 0), (u32::MAX / 2, 6, 4), (u32::MAX, 8, 8)] {
            let seconds = |pause: Duration| pause.as_secs_f64().round();
            assert_eq!(seconds(jittered(pause, random)), f64::from(jitter));
            assert_eq!(seconds(up_to(pause, random)), f64::from(part));
        }
    }
}

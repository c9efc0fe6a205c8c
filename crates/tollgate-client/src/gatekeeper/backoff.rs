//! When to try again: later each time, and never at the same moment as everybody else.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The first pause after a connection ended.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest pause: a master that is back is found within a second, and by a fleet not all at once.
const PAUSE_MAX: Duration = Duration::from_millis(800);

#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure.
    pub(super) fn next(&mut self) -> Duration {
        let pause = PAUSE_MIN.saturating_mul(1 << self.failures.min(8)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        // Nobody gains by guessing it.
        #[expect(clippy::cast_possible_truncation, reason = "half of a random number is a random number")]
        let random = RandomState::new().hash_one(()) as u32;
        pause / 2 + (pause / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..64).map(|_| backoff.next()).collect();
        assert!((PAUSE_MIN / 2..=PAUSE_MIN).contains(&pauses[0]));
        assert!(pauses[10..].iter().all(|pause| (PAUSE_MAX / 2..=PAUSE_MAX).contains(pause)));
        assert!(pauses[10..].iter().any(|pause| *pause != pauses[10]));
    }
}

//! When to try again: later each time, and never at the same moment as everybody else.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The first pause after something failed.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The longest pause: a node that is back is found well within two seconds.
const PAUSE_MAX: Duration = Duration::from_millis(800);

/// How long to wait before the next attempt.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure.
    pub(super) fn next(&mut self) -> Duration {
        let pause = PAUSE_MIN * 2_u32.saturating_pow(self.failures.min(8));
        self.failures += 1;
        jittered(pause.min(PAUSE_MAX))
    }
}

/// Somewhere between half of it and all of it.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause / 2 + up_to(pause / 2)
}

/// Somewhere between nothing and this.
pub(super) fn up_to(pause: Duration) -> Duration {
    pause.mul_f64(f64::from(random()) / f64::from(u32::MAX))
}

/// A number that no other process draws at the same time. Nobody gains by guessing it.
pub(super) fn random() -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "half of a random number is a random number")]
    let half = RandomState::new().hash_one(()) as u32;
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..64).map(|_| backoff.next()).collect();
        assert!(pauses[0] <= PAUSE_MIN);
        assert!(pauses[10..].iter().all(|pause| (PAUSE_MAX / 2..=PAUSE_MAX).contains(pause)));
        assert!(pauses[10..].iter().any(|pause| *pause != pauses[10]));
    }
}

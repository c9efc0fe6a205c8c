//! What is left to chance, so that a fleet does not do it all at once.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tollway_core::backoff;

/// Somewhere between half of it and all of it.
pub(super) fn jittered(pause: Duration) -> Duration {
    backoff::jittered(pause, random())
}

/// Somewhere between nothing and this.
pub(super) fn up_to(pause: Duration) -> Duration {
    backoff::up_to(pause, random())
}

/// A number that no other process draws at the same time. Nobody gains by guessing it.
pub(super) fn random() -> u32 {
    (RandomState::new().hash_one(()) >> 32) as u32
}

//! Random pauses, so that the processes of a fleet do not all do a thing at the same moment.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tollway_core::backoff;

/// Returns a pause between half of `pause` and all of it.
pub(super) fn jittered(pause: Duration) -> Duration {
    backoff::jittered(pause, random())
}

/// Returns a pause between zero and `pause`.
pub(super) fn up_to(pause: Duration) -> Duration {
    backoff::up_to(pause, random())
}

/// Returns a random number. It need not be hard to guess.
pub(super) fn random() -> u32 {
    (RandomState::new().hash_one(()) >> 32) as u32
}

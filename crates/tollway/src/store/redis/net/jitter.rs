//! Random pauses, so that the processes of a fleet do not all do a thing at the same moment.

#[cfg(feature = "simulation")]
use std::cell::Cell;
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
    #[cfg(feature = "simulation")]
    if let Some(number) = seeded() {
        return number;
    }
    (RandomState::new().hash_one(()) >> 32) as u32
}

#[cfg(feature = "simulation")]
thread_local! {
    /// The state of the simulator's random numbers. A thread that runs no simulation has none.
    static SEEDED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes the random numbers of this thread follow from a seed: the same seed must give the same pauses.
#[cfg(feature = "simulation")]
pub(super) fn seed(seed: u64) {
    SEEDED.set(Some(seed));
}

#[cfg(feature = "simulation")]
fn seeded() -> Option<u32> {
    let state = SEEDED.get()?.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    SEEDED.set(Some(state));
    Some((state >> 32) as u32)
}

//! Numbers of every size, and a clock that is not always right.

use tollway::core::{Nanos, Timestamp};
use tollway_testbed::Random;

/// The ranges that spans, steps of time and numbers are chosen from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct World {
    span_max: u64,
    step_max: u64,
    number_max: u64,
}

pub(crate) const WORLDS: [World; 5] = [
    World { span_max: 100, step_max: 40, number_max: 10 },
    World { span_max: 3_000_000_000, step_max: 900_000_000, number_max: 100 },
    World { span_max: 3_000_000, step_max: 1_000_000, number_max: 20_000_000 },
    World { span_max: 100 * YEAR, step_max: YEAR, number_max: 1_000 },
    World { span_max: u64::MAX, step_max: u64::MAX, number_max: u64::MAX },
];
const YEAR: u64 = 365 * 86_400 * 1_000_000_000;

impl World {
    pub(crate) fn span(self, random: &mut Random) -> Nanos {
        Nanos::new(edge_or(random, |random| random.magnitude(self.span_max)))
    }

    pub(crate) fn number(self, random: &mut Random) -> u64 {
        edge_or(random, |random| random.magnitude(self.number_max))
    }

    /// Any moment to begin with.
    pub(crate) fn start(random: &mut Random) -> Timestamp {
        Timestamp::from_nanos(edge_or(random, |random| random.magnitude(1 << 61))).min(Timestamp::MAX)
    }

    /// Returns the next moment: mostly the same or a little later, sometimes earlier, and seldom any other.
    pub(crate) fn next(self, random: &mut Random, now: Timestamp) -> Timestamp {
        let step = Nanos::new(random.magnitude(self.step_max));
        let next = match random.between(0, 99) {
            0..=59 => now + step,
            60..=94 => now,
            95..=98 => now - step,
            _ => Timestamp::from_nanos(edge_or(random, Random::any)),
        };
        next.min(Timestamp::MAX)
    }
}

/// Returns the number, or now and then one at the edge of a range.
pub(crate) fn edge_or(random: &mut Random, number: impl FnOnce(&mut Random) -> u64) -> u64 {
    const EDGES: [u64; 9] =
        [1, 999_999_999, 1_000_000_000, 1 << 31, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, u64::MAX];
    if random.one_in(50) { random.pick(&EDGES) } else { number(random) }
}

//! How long something took, by order of magnitude.

use std::time::Duration;

use super::Counter;

/// The upper ends of the buckets, in nanoseconds: a microsecond, where deciding takes place, to a second, where
/// something is wrong.
pub(crate) const BOUNDS: [u64; 13] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    250_000,
    1_000_000,
    5_000_000,
    25_000_000,
    100_000_000,
    1_000_000_000,
];

/// Durations, counted.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: [Counter; BOUNDS.len() + 1],
    nanos: Counter,
}

impl Histogram {
    pub(crate) fn record(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // The first few hold nearly everything, so a walk beats a search.
        let bucket = BOUNDS.iter().position(|bound| nanos <= *bound).unwrap_or(BOUNDS.len());
        self.counts[bucket].one();
        self.nanos.add(nanos);
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().map(Counter::get)
    }

    pub(crate) fn nanos(&self) -> u64 {
        self.nanos.get()
    }
}

//! Counts durations in histograms, whose buckets are orders of magnitude.

use std::time::Duration;

use super::Counter;

/// The upper ends of the buckets, in units of the histogram.
const BOUNDS: [u64; 13] = [
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

pub(crate) const BUCKETS: usize = BOUNDS.len() + 1;

/// A histogram of answers: from a microsecond, where deciding takes place, to a second, where something is wrong.
pub(crate) type Latencies = Histogram<1>;
/// A histogram of delayed requests: from a millisecond to a quarter of an hour.
pub(crate) type Waits = Histogram<1_000>;

/// A histogram whose unit is this many nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Histogram<const UNIT: u64> {
    counts: [Counter; BUCKETS],
    nanos: Counter,
}

impl<const UNIT: u64> Histogram<UNIT> {
    /// Returns the upper ends of the buckets but the last, in nanoseconds.
    pub(crate) fn bounds() -> impl Iterator<Item = u64> {
        BOUNDS.into_iter().map(|bound| bound * UNIT)
    }

    pub(crate) fn record(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // The first few hold nearly everything, so a walk beats a search.
        let bucket = Self::bounds().position(|bound| nanos <= bound).unwrap_or(BOUNDS.len());
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

//! Counts replies, denials and errors, and records latencies in a histogram.

use hdrhistogram::Histogram;
use tollway::core::Nanos;

/// Latencies are told apart from a nanosecond to a minute, to three digits; longer ones count as a minute.
const LATENCY_MAX: u64 = 60_000_000_000;
const DIGITS: u8 = 3;

/// The replies of a run.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) replies: u64,
    /// Answered by what its protocol has for no: over the limit, status 0, 429.
    pub(super) denied: u64,
    /// Answered by an error.
    pub(super) failed: u64,
    pub(super) first_failure: Option<String>,
    latencies: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        let latencies = Histogram::new_with_max(LATENCY_MAX, DIGITS).expect("the bounds are in order");
        Self { replies: 0, denied: 0, failed: 0, first_failure: None, latencies }
    }

    /// Forgets everything: the warm-up is over.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Counts replies that arrived together.
    #[inline]
    pub(super) fn took(&mut self, latency: Nanos, replies: u64) {
        self.latencies.saturating_record_n(latency.get(), replies);
    }

    /// Counts an error, and keeps the first to show.
    pub(super) fn fail(&mut self, what: impl FnOnce() -> String) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(what);
    }

    /// Nothing above this for `share` of the replies, in nanoseconds.
    pub(super) fn quantile(&self, share: f64) -> u64 {
        self.latencies.value_at_quantile(share)
    }

    pub(super) fn mean(&self) -> f64 {
        self.latencies.mean()
    }

    pub(super) fn longest(&self) -> u64 {
        self.latencies.max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_requests_and_not_of_batches() {
        let mut tally = Tally::new();
        tally.took(Nanos::from_millis(1), 998);
        tally.took(Nanos::from_millis(50), 1);
        tally.took(Nanos::from_secs(100), 1);
        let near = |nanos: u64, expected: u64| nanos.abs_diff(expected) * 1_000 <= expected;
        for (share, expected) in [(0.5, 1_000_000), (0.998, 1_000_000), (0.999, 50_000_000)] {
            assert!(near(tally.quantile(share), expected), "{share}: {}", tally.quantile(share));
        }
        assert!(near(tally.longest(), LATENCY_MAX), "{}", tally.longest());
    }

    #[test]
    fn a_cleared_tally_is_empty() {
        let mut tally = Tally::new();
        tally.took(Nanos::from_millis(1), 5);
        tally.fail(|| "no".to_owned());
        tally.clear();
        assert_eq!((tally.failed, tally.longest(), tally.first_failure), (0, 0, None));
    }
}

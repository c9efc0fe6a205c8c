//! Counts replies, denials and errors, and records latencies in a histogram.

use std::time::Duration;

use hdrhistogram::Histogram;
use tollway_core::Nanos;

use crate::protocol::ReplyKind;
use crate::report::shown;

/// The longest latency that is recorded, in nanoseconds: a minute. Longer ones count as this.
const LATENCY_MAX: u64 = 60_000_000_000;
/// The number of significant digits of a latency.
const DIGITS: u8 = 3;

/// The replies of a run, counted, with their latencies.
#[derive(Debug)]
#[non_exhaustive]
pub struct LoadStats {
    /// The number of replies.
    pub replies: u64,
    /// The number of denials, in whatever form the protocol has: over the limit, status 0, 429.
    pub denied: u64,
    /// The number of replies that were errors.
    pub errors: u64,
    /// The first of these errors.
    pub first_error: Option<String>,
    latencies: Histogram<u64>,
}

impl LoadStats {
    pub(crate) fn new() -> Self {
        let latencies = Histogram::new_with_max(LATENCY_MAX, DIGITS).expect("the bounds are in order");
        Self { replies: 0, denied: 0, errors: 0, first_error: None, latencies }
    }

    /// Returns the latency that this share of the replies did not exceed; 1.0 is the longest of all.
    pub fn latency(&self, share: f64) -> Duration {
        Duration::from_nanos(self.latencies.value_at_quantile(share).min(self.latencies.max()))
    }

    /// Returns the mean latency in nanoseconds.
    pub fn mean_nanos(&self) -> f64 {
        self.latencies.mean()
    }

    /// Counts one reply. Its latency is recorded separately, because replies arrive in batches.
    #[inline]
    pub(crate) fn count(&mut self, kind: &ReplyKind<'_>) {
        self.replies += 1;
        match kind {
            ReplyKind::Allowed => {}
            ReplyKind::Denied => self.denied += 1,
            ReplyKind::Error { status, text } => {
                self.errors += 1;
                self.first_error.get_or_insert_with(|| match status {
                    Some(status) => format!("{status} {}", shown(text)),
                    None => shown(text),
                });
            }
        }
    }

    /// Records the latency of replies that arrived together.
    #[inline]
    pub(crate) fn record(&mut self, latency: Nanos, replies: u64) {
        self.latencies.saturating_record_n(latency.get(), replies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_requests_and_not_of_batches() {
        let mut stats = LoadStats::new();
        stats.record(Nanos::from_millis(1), 998);
        stats.record(Nanos::from_millis(50), 1);
        stats.record(Nanos::from_secs(100), 1);
        let near = |nanos: u128, expected: u128| nanos.abs_diff(expected) * 1_000 <= expected;
        for (share, expected) in
            [(0.5, 1_000_000), (0.998, 1_000_000), (0.999, 50_000_000), (1.0, LATENCY_MAX.into())]
        {
            let latency = stats.latency(share);
            assert!(near(latency.as_nanos(), expected), "{share}: {latency:?}");
        }
    }

    #[test]
    fn the_first_error_is_kept() {
        let mut stats = LoadStats::new();
        stats.count(&ReplyKind::Error { status: Some(404), text: b"no\n" });
        stats.count(&ReplyKind::Error { status: None, text: b"later" });
        stats.count(&ReplyKind::Denied);
        assert_eq!((stats.replies, stats.denied, stats.errors), (3, 1, 2));
        assert_eq!(stats.first_error.as_deref(), Some("404 no\\n"));
    }
}

//! A circuit breaker: after failures in a row, calls fail at once, and one probe per pause is let through.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The number of failures in a row that opens the circuit.
const FAILURES_MAX: u32 = 3;
/// The time between two probes while the circuit is open.
const PAUSE: Duration = Duration::from_millis(500);

/// Stops calls to a server that does not respond, so that requests do not wait for one timeout each.
#[derive(Debug)]
pub(super) struct CircuitBreaker {
    began: Instant,
    failures: AtomicU32,
    /// The time of the next probe, in milliseconds since `began`.
    probe_at: AtomicU64,
}

impl CircuitBreaker {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), failures: AtomicU32::new(0), probe_at: AtomicU64::new(0) }
    }

    /// Returns true if a call may be made. While the circuit is open, that is one caller per pause: the probe.
    pub(super) fn allows_call(&self) -> bool {
        if self.failures.load(Ordering::Relaxed) < FAILURES_MAX {
            return true;
        }
        let (probe_at, now) = (self.probe_at.load(Ordering::Relaxed), self.now());
        let next = now + millis(PAUSE);
        // Of several callers that see the pause end, the exchange lets one through.
        now >= probe_at
            && self.probe_at.compare_exchange(probe_at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(super) fn record_success(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    pub(super) fn record_failure(&self) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 == FAILURES_MAX {
            self.probe_at.store(self.now() + millis(PAUSE), Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        millis(self.began.elapsed())
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_open_circuit_lets_one_probe_through_per_pause() {
        let breaker = CircuitBreaker::new();
        for _ in 0..FAILURES_MAX {
            assert!(breaker.allows_call());
            breaker.record_failure();
        }
        for _ in 0..3 {
            assert!(!breaker.allows_call());
            tokio::time::advance(PAUSE).await;
            assert!(breaker.allows_call(), "the probe");
            assert!(!breaker.allows_call(), "only one probe");
            breaker.record_failure();
        }
        tokio::time::advance(PAUSE).await;
        assert!(breaker.allows_call());
        breaker.record_success();
        assert!(breaker.allows_call() && breaker.allows_call());
        breaker.record_failure();
        assert!(breaker.allows_call(), "one failure does not open the circuit");
    }
}

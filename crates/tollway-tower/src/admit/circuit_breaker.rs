//! Whether somebody who gave no answer is asked again.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// After so many questions in a row without an answer it is left alone.
const FAILURES_MAX: u32 = 3;
/// For how long it is left alone. Then one question is asked, and what becomes of it decides.
const PAUSE: Duration = Duration::from_millis(500);

/// How it went of late. While nobody answers, a request waits for nothing.
#[derive(Debug)]
pub(super) struct CircuitBreaker {
    began: Instant,
    failures: AtomicU32,
    /// Left alone until then, in milliseconds since it began; 0 if it never was.
    until: AtomicU64,
}

impl CircuitBreaker {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), failures: AtomicU32::new(0), until: AtomicU64::new(0) }
    }

    /// Is it worth asking? Of all who come when a pause is over, one is told so, and a new pause begins.
    pub(super) fn allows_call(&self) -> bool {
        if self.failures.load(Ordering::Relaxed) < FAILURES_MAX {
            return true;
        }
        let (until, now) = (self.until.load(Ordering::Relaxed), self.now());
        let again = now + millis(PAUSE);
        now >= until
            && self.until.compare_exchange(until, again, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(super) fn answered(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 == FAILURES_MAX {
            self.until.store(self.now() + millis(PAUSE), Ordering::Relaxed);
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
    async fn who_does_not_answer_is_left_alone_and_probed_once_a_pause() {
        let circuit_breaker = CircuitBreaker::new();
        for _ in 0..FAILURES_MAX {
            assert!(circuit_breaker.allows_call());
            circuit_breaker.failed();
        }
        for _ in 0..3 {
            assert!(!circuit_breaker.allows_call());
            tokio::time::advance(PAUSE).await;
            assert!(circuit_breaker.allows_call(), "one may try");
            assert!(!circuit_breaker.allows_call(), "and nobody else");
            circuit_breaker.failed();
        }
        tokio::time::advance(PAUSE).await;
        assert!(circuit_breaker.allows_call());
        circuit_breaker.answered();
        assert!(circuit_breaker.allows_call() && circuit_breaker.allows_call());
        circuit_breaker.failed();
        assert!(circuit_breaker.allows_call(), "once is nothing");
    }
}

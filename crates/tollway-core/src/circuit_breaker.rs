//! A circuit breaker: after failures in a row calls fail at once, and one probe is let through after each pause.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use tollway_core::{Backoff, CircuitBreaker};
//!
//! let pause = Duration::from_millis(500);
//! let (mut breaker, now) = (CircuitBreaker::new(2, Backoff::new(pause, pause)), Instant::now());
//! assert_eq!(breaker.record_failure(now, u32::MAX), None);
//! assert_eq!(breaker.record_failure(now, u32::MAX), Some(pause));
//! assert!(!breaker.allows_call(now) && breaker.allows_call(now + pause));
//! ```
//!
//! Time and random numbers are arguments, so that every behaviour can be replayed.

use std::time::{Duration, Instant};

use crate::backoff::Backoff;

/// Stops calls to a server that does not respond, so that not every request waits for a timeout.
#[derive(Clone, Copy, Debug)]
pub struct CircuitBreaker {
    failures_max: u32,
    backoff: Backoff,
    failures: u32,
    open: Option<OpenCircuit>,
}

#[derive(Clone, Copy, Debug)]
struct OpenCircuit {
    since: Instant,
    pause: Duration,
    probe_at: Instant,
}

impl CircuitBreaker {
    /// Makes a closed circuit that opens after `failures_max` failures in a row. The backoff has the pauses between
    /// probes.
    pub const fn new(failures_max: u32, backoff: Backoff) -> Self {
        Self { failures_max, backoff, failures: 0, open: None }
    }

    /// Returns the time when the circuit opened, or `None` if it is closed.
    pub fn open_since(&self) -> Option<Instant> {
        self.open.map(|open| open.since)
    }

    /// Returns true if a call may be made. While the circuit is open, that is one call per pause: the probe.
    pub fn allows_call(&mut self, now: Instant) -> bool {
        let Some(open) = &mut self.open else { return true };
        let is_probe = now >= open.probe_at;
        if is_probe {
            open.probe_at = now + open.pause;
        }
        is_probe
    }

    /// Counts a failure. Returns the pause until the next probe if the circuit is open.
    pub fn record_failure(&mut self, now: Instant, random: u32) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        if self.failures < self.failures_max {
            return None;
        }
        let pause = self.backoff.failed(random);
        let since = self.open_since().unwrap_or(now);
        self.open = Some(OpenCircuit { since, pause, probe_at: now + pause });
        Some(pause)
    }

    /// Closes the circuit, and forgets the failures.
    pub fn record_success(&mut self) {
        *self = Self::new(self.failures_max, self.backoff);
        self.backoff.succeeded();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_circuit_lets_one_probe_through_per_pause() {
        let pause = Duration::from_millis(500);
        let mut breaker = CircuitBreaker::new(3, Backoff::new(pause, pause));
        let began = Instant::now();
        for failure in 1..=3 {
            assert!(breaker.allows_call(began));
            assert_eq!(breaker.record_failure(began, u32::MAX).is_some(), failure == 3);
        }
        let mut now = began;
        for _ in 0..3 {
            assert!(!breaker.allows_call(now));
            now += pause;
            assert!(breaker.allows_call(now), "the probe");
            assert!(!breaker.allows_call(now), "only one probe");
            breaker.record_failure(now, u32::MAX);
        }
        assert_eq!(breaker.open_since(), Some(began));
        breaker.record_success();
        assert!(breaker.allows_call(now) && breaker.open_since().is_none());
        breaker.record_failure(now, u32::MAX);
        assert!(breaker.allows_call(now), "one failure does not open the circuit");
    }
}

//! Keeps a log line that every request may cause from filling the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time between two lines.
const PAUSE: Duration = Duration::from_secs(10);

/// Lets the first line through, and then one in ten seconds.
#[derive(Debug)]
pub struct LogThrottle {
    began: Instant,
    /// The time of the next line, in milliseconds since `began`.
    next_at: AtomicU64,
    held_back: AtomicU64,
}

impl LogThrottle {
    /// Returns how often a line was held back since the last one, if one may be logged now.
    pub fn allow(&self) -> Option<u64> {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let (next_at, now) = (self.next_at.load(Ordering::Relaxed), millis(self.began.elapsed()));
        let next = now.saturating_add(millis(PAUSE));
        // Of several callers at the end of the pause, the exchange lets one through.
        let is_first = now >= next_at
            && self.next_at.compare_exchange(next_at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_first {
            return Some(self.held_back.swap(0, Ordering::Relaxed));
        }
        self.held_back.fetch_add(1, Ordering::Relaxed);
        None
    }
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self { began: Instant::now(), next_at: AtomicU64::new(0), held_back: AtomicU64::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_passes_and_the_rest_of_the_pause_is_counted() {
        let throttle = LogThrottle::default();
        assert_eq!([0; 4].map(|_| throttle.allow()), [Some(0), None, None, None]);
        throttle.next_at.store(0, Ordering::Relaxed);
        assert_eq!([0; 2].map(|_| throttle.allow()), [Some(3), None]);
    }
}

//! Keeps a log line that every request may cause from filling the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Lets the first line through, and then one after each pause. Time is an argument.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tollway_core::LogThrottle;
///
/// let (pause, now) = (Duration::from_secs(10), Instant::now());
/// let throttle = LogThrottle::new(pause, now);
/// assert_eq!([now; 3].map(|now| throttle.allow(now)), [Some(0), None, None]);
/// assert_eq!([now + pause; 2].map(|now| throttle.allow(now)), [Some(2), None]);
/// ```
#[derive(Debug)]
pub struct LogThrottle {
    pause: Duration,
    began: Instant,
    /// The time of the next line, in milliseconds since `began`.
    next_at: AtomicU64,
    held_back: AtomicU64,
}

impl LogThrottle {
    /// Makes a throttle that lets a line through from `now` on.
    pub const fn new(pause: Duration, now: Instant) -> Self {
        Self { pause, began: now, next_at: AtomicU64::new(0), held_back: AtomicU64::new(0) }
    }

    /// Returns how often a line was held back since the last one, if one may be logged now.
    pub fn allow(&self, now: Instant) -> Option<u64> {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let now = millis(now.saturating_duration_since(self.began));
        let (next_at, next) = (self.next_at.load(Ordering::Relaxed), now.saturating_add(millis(self.pause)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_passes_in_each_pause_and_says_how_many_did_not() {
        let (pause, began) = (Duration::from_secs(10), Instant::now());
        let throttle = LogThrottle::new(pause, began);
        for (millis, expected) in [
            (0, Some(0)),
            (0, None),
            (9_999, None),
            (10_000, Some(2)),
            (19_999, None),
            (45_000, Some(1)),
            (54_999, None),
        ] {
            assert_eq!(throttle.allow(began + Duration::from_millis(millis)), expected, "{millis}");
        }
    }
}

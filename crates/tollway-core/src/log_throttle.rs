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

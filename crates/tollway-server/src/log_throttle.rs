//! Logs what happens often at most once a second.

use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);

/// Counts events of one kind, and says when one of them is to be logged.
#[derive(Debug, Default)]
pub(crate) struct LogThrottle {
    logged_at: Option<Instant>,
    not_logged: u64,
}

impl LogThrottle {
    /// Counts an event. Returns the number of events since the last line, if it is time for another.
    pub(crate) fn log_now(&mut self) -> Option<u64> {
        self.not_logged += 1;
        if self.logged_at.is_some_and(|at| at.elapsed() < EVERY) {
            return None;
        }
        self.logged_at = Some(Instant::now());
        Some(std::mem::take(&mut self.not_logged))
    }
}

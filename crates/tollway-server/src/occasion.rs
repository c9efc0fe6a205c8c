//! What happens often is said at most once a second.

use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);

/// Something worth a line in the log, now and then.
#[derive(Debug, Default)]
pub(crate) struct Occasion {
    said: Option<Instant>,
    unsaid: u64,
}

impl Occasion {
    /// It happened. If it is time to say so: how often it has since it was last said.
    pub(crate) fn now(&mut self) -> Option<u64> {
        self.unsaid += 1;
        if self.said.is_some_and(|said| said.elapsed() < EVERY) {
            return None;
        }
        self.said = Some(Instant::now());
        Some(std::mem::take(&mut self.unsaid))
    }
}

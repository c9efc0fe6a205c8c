//! Says on standard error how far a long move has come.

use std::io::{self, Write};

use tollway::Clock;
use tollway::core::{Nanos, Timestamp};

/// The time between two lines. A short move has none.
const SHOW_EVERY: Nanos = Nanos::from_secs(2);

/// Counts buckets, and prints the count now and then.
pub(super) struct Progress {
    what: &'static str,
    buckets: u64,
    clock: Clock,
    shown_at: Timestamp,
}

impl Progress {
    pub(super) fn new(what: &'static str) -> Self {
        let clock = Clock::monotonic();
        Self { what, buckets: 0, shown_at: clock.now(), clock }
    }

    pub(super) fn add(&mut self, buckets: usize) {
        self.buckets += buckets as u64;
        let now = self.clock.now();
        if now.since(self.shown_at) >= SHOW_EVERY {
            self.shown_at = now;
            // A progress that nobody reads is no reason to stop.
            let _ = writeln!(io::stderr(), "{} buckets {} so far", self.buckets, self.what);
        }
    }
}

//! How a run is going, on the terminal of whoever waits for it.

use std::io::{self, IsTerminal, Write};

use tollway::core::{Nanos, Timestamp};

use super::report::{grouped, span};
use super::tally::Tally;

/// The terminal is written so often.
const SHOW_EVERY: Nanos = Nanos::from_secs(1);

/// One line on a terminal, written over again and again.
pub(super) struct Progress<W: Write> {
    terminal: Option<W>,
    started: Timestamp,
    shown_at: Timestamp,
    /// How many replies there were then.
    shown: u64,
    visible: bool,
}

impl Progress<io::Stderr> {
    /// Shows progress on standard error, if that is a terminal.
    pub(super) fn to_terminal(now: Timestamp) -> Self {
        Self::new(io::stderr().is_terminal().then(io::stderr), now)
    }
}

impl<W: Write> Progress<W> {
    const fn new(terminal: Option<W>, now: Timestamp) -> Self {
        Self { terminal, started: now, shown_at: now, shown: 0, visible: false }
    }

    /// Shows how it is going, if it is time to.
    pub(super) fn tick(&mut self, now: Timestamp, tally: &Tally) {
        if self.terminal.is_some() && now.since(self.shown_at) >= SHOW_EVERY {
            self.show(now, tally);
        }
    }

    /// Takes the line off the terminal.
    pub(super) fn clear(&mut self) {
        if let (Some(terminal), true) = (&mut self.terminal, self.visible) {
            // A terminal that went away takes nothing but the progress with it.
            let _ = write!(terminal, "\r\x1b[K").and_then(|()| terminal.flush());
        }
        self.visible = false;
    }

    fn show(&mut self, now: Timestamp, tally: &Tally) {
        let Some(terminal) = &mut self.terminal else { return };
        // Fewer than before: the warm-up was forgotten.
        let replies = tally.replies.saturating_sub(self.shown);
        let rate = replies as f64 / now.since(self.shown_at).as_secs_f64();
        let (seconds, p99) = (now.since(self.started).as_secs_f64(), span(tally.quantile(0.99)));
        let _ = write!(terminal, "\r\x1b[K{seconds:.0} s  {} requests/s  p99 {p99}", grouped(rate))
            .and_then(|()| terminal.flush());
        (self.shown_at, self.shown, self.visible) = (now, tally.replies, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_rate_of_the_last_second() {
        let at = |millis| Timestamp::EPOCH + Nanos::from_millis(millis);
        let mut progress = Progress::new(Some(Vec::new()), at(0));
        let mut tally = Tally::new();
        tally.replies = 5_000;
        tally.took(Nanos::from_millis(2), 5_000);
        progress.tick(at(999), &tally);
        progress.tick(at(1_000), &tally);
        tally.replies = 1_005_000;
        progress.tick(at(2_000), &tally);
        progress.clear();
        progress.clear();
        let shown = String::from_utf8(progress.terminal.unwrap()).unwrap();
        assert_eq!(
            shown,
            "\r\x1b[K1 s  5,000 requests/s  p99 2.00 ms\r\x1b[K2 s  1,000,000 requests/s  p99 2.00 ms\r\x1b[K"
        );
    }
}

//! The progress of a run, as one line on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use tollway_load::RunProgress;

use super::report::{grouped, span};

/// The time between two updates of the line.
const UPDATE_EVERY: Duration = Duration::from_secs(1);

/// One line on a terminal, written over again and again.
pub(super) struct ProgressLine<W: Write> {
    terminal: Option<W>,
    updated_at: Duration,
    /// The number of replies at the last update.
    replies: u64,
    visible: bool,
}

impl ProgressLine<io::Stderr> {
    /// Shows progress on standard error, if that is a terminal.
    pub(super) fn on_terminal() -> Self {
        Self::new(io::stderr().is_terminal().then(io::stderr))
    }
}

impl<W: Write> ProgressLine<W> {
    const fn new(terminal: Option<W>) -> Self {
        Self { terminal, updated_at: Duration::ZERO, replies: 0, visible: false }
    }

    /// Writes the line, once a second.
    pub(super) fn update(&mut self, progress: &RunProgress<'_>) {
        self.show(progress.elapsed, progress.stats.replies, || progress.stats.latency(0.99));
    }

    fn show(&mut self, elapsed: Duration, replies: u64, p99: impl Fn() -> Duration) {
        let Some(terminal) = &mut self.terminal else { return };
        let passed = elapsed.saturating_sub(self.updated_at);
        if passed < UPDATE_EVERY {
            return;
        }
        // There are fewer replies than before when the warm-up is over.
        let rate = replies.saturating_sub(self.replies) as f64 / passed.as_secs_f64();
        let (rate, p99, seconds) = (grouped(rate), span(p99()), elapsed.as_secs_f64());
        // A terminal that is gone takes only the progress with it.
        let _ = write!(terminal, "\r\x1b[K{seconds:.0} s  {rate} requests/s  p99 {p99}");
        let _ = terminal.flush();
        (self.updated_at, self.replies, self.visible) = (elapsed, replies, true);
    }

    /// Removes the line from the terminal.
    pub(super) fn clear(&mut self) {
        if let (Some(terminal), true) = (&mut self.terminal, self.visible) {
            let _ = write!(terminal, "\r\x1b[K").and_then(|()| terminal.flush());
        }
        self.visible = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_rate_of_the_last_second() {
        let mut line = ProgressLine::new(Some(Vec::new()));
        for (millis, replies) in [(999, 4_000), (1_000, 5_000), (2_000, 1_005_000)] {
            line.show(Duration::from_millis(millis), replies, || Duration::from_millis(2));
        }
        line.clear();
        line.clear();
        let shown = String::from_utf8(line.terminal.unwrap()).unwrap();
        assert_eq!(
            shown,
            "\r\x1b[K1 s  5,000 requests/s  p99 2.00 ms\r\x1b[K2 s  1,000,000 requests/s  p99 2.00 ms\r\x1b[K"
        );
    }
}

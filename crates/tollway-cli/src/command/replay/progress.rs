//! Shows the progress of a replay on a terminal.

use std::io::{self, IsTerminal, Write};

use tollway::Clock;
use tollway::core::{Nanos, Timestamp};

/// The clock is looked at after so many lines, a few milliseconds' worth.
const LINES_A_LOOK: u64 = 4_096;
/// The terminal is written so often.
const SHOW_EVERY: Nanos = Nanos::from_millis(200);

/// One line on a terminal, written over again and again.
pub(super) struct Progress<W: Write> {
    terminal: Option<W>,
    size: Option<u64>,
    clock: Clock,
    started: Timestamp,
    shown_at: Timestamp,
    visible: bool,
    next_look: u64,
}

impl Progress<io::Stderr> {
    /// Shows progress on standard error, if that is a terminal that the events themselves are not printed on.
    pub(super) fn to_terminal(size: Option<u64>, quiet: bool) -> Self {
        let free = io::stderr().is_terminal() && (quiet || !io::stdout().is_terminal());
        Self::new(free.then(io::stderr), size, Clock::monotonic())
    }
}

impl<W: Write> Progress<W> {
    fn new(terminal: Option<W>, size: Option<u64>, clock: Clock) -> Self {
        let started = clock.now();
        Self { terminal, size, clock, started, shown_at: started, visible: false, next_look: LINES_A_LOOK }
    }

    /// Returns whether the output and the progress share one terminal.
    pub(super) const fn is_on(&self) -> bool {
        self.terminal.is_some()
    }

    /// Shows how far it has come, if it is time to.
    pub(super) fn tick(&mut self, lines: u64, bytes: u64) {
        if self.terminal.is_none() || lines < self.next_look {
            return;
        }
        self.next_look = lines + LINES_A_LOOK;
        let now = self.clock.now();
        if now.since(self.shown_at) >= SHOW_EVERY {
            self.show(lines, bytes, now);
        }
    }

    /// Takes the line off the terminal, so that something else can be written.
    pub(super) fn clear(&mut self) {
        if let (Some(terminal), true) = (&mut self.terminal, self.visible) {
            // A terminal that went away takes nothing but the progress with it.
            let _ = write!(terminal, "\r\x1b[K").and_then(|()| terminal.flush());
        }
        self.visible = false;
    }

    fn show(&mut self, lines: u64, bytes: u64, now: Timestamp) {
        let Some(terminal) = &mut self.terminal else { return };
        let share = self.size.map_or(String::new(), |size| format!(" {:3}%", percent(bytes, size)));
        let rate = lines as f64 / now.since(self.started).as_secs_f64();
        let _ = write!(terminal, "\r\x1b[K{lines} lines{share}, {rate:.0} lines/s")
            .and_then(|()| terminal.flush());
        (self.shown_at, self.visible) = (now, true);
    }
}

/// Never above 100, for a file that grows while it is read.
fn percent(part: u64, whole: u64) -> u64 {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    u64::try_from(percent).unwrap_or(100).min(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::EPOCH + Nanos::from_millis(millis)
    }

    #[test]
    fn shows_lines_share_and_rate_now_and_then() {
        let clock = Clock::manual(at(0));
        let mut progress = Progress::new(Some(Vec::new()), Some(1_000_000), clock.clone());
        progress.tick(5_000, 100_000);
        clock.set(at(500));
        progress.tick(5_001, 100_020);
        progress.tick(100_000, 500_000);
        progress.clear();
        progress.clear();
        clock.set(at(501));
        progress.tick(200_000, 600_000);
        let shown = String::from_utf8(progress.terminal.unwrap()).unwrap();
        assert_eq!(shown, "\r\x1b[K100000 lines  50%, 200000 lines/s\r\x1b[K");
    }

    #[test]
    fn a_stream_has_no_share() {
        let clock = Clock::manual(at(0));
        let mut progress = Progress::new(Some(Vec::new()), None, clock.clone());
        clock.set(at(1000));
        progress.tick(LINES_A_LOOK, 1);
        assert_eq!(progress.terminal.unwrap(), b"\r\x1b[K4096 lines, 4096 lines/s");
    }

    #[test]
    fn a_share_is_a_share() {
        for (part, whole, expected) in
            [(0, 0, 0), (1, 0, 100), (u64::MAX, u64::MAX, 100), (3, 2, 100), (1, 3, 33)]
        {
            assert_eq!(percent(part, whole), expected);
        }
    }
}

//! When a node has been silent for too long.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// How many deadlines in a row a node may miss before it is left alone: one may be a hiccup.
const DEADLINES: u32 = 3;

/// And never much longer than this, so that whoever asks does not wait in vain for long.
const SILENCE_MAX: Duration = Duration::from_millis(75);

/// What one connection owes us, and since when it has been late.
///
/// It runs out when nothing has been answered in time for three deadlines, while something was awaited. An answer that comes too
/// late does not help: whoever waited for it has gone. But one who owes nothing is not late.
#[derive(Debug)]
pub(super) struct Patience {
    deadline: Duration,
    owed: VecDeque<Instant>,
    late_since: Option<Instant>,
}

impl Patience {
    pub(super) fn new(deadline: Duration) -> Self {
        Self { deadline, owed: VecDeque::new(), late_since: None }
    }

    /// Something was sent.
    pub(super) fn sent(&mut self, now: Instant) {
        self.owed.push_back(now);
    }

    /// The oldest of what was sent was answered. Answers come in the order of the questions.
    pub(super) fn answered(&mut self, now: Instant) {
        let Some(sent) = self.owed.pop_front() else { return };
        if now - sent <= self.deadline || self.owed.is_empty() {
            self.late_since = None;
        } else {
            self.late_since.get_or_insert(sent);
        }
    }

    /// How many answers are still to come.
    pub(super) fn owed(&self) -> usize {
        self.owed.len()
    }

    /// When it runs out, unless something is answered in time.
    pub(super) fn runs_out(&self) -> Option<Instant> {
        let since = self.late_since.or_else(|| self.owed.front().copied())?;
        Some(since + silence(self.deadline))
    }
}

/// How long a node may be silent.
fn silence(deadline: Duration) -> Duration {
    (deadline * DEADLINES).min(SILENCE_MAX).max(deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(15);

    #[test]
    fn it_runs_out_after_three_deadlines_of_silence() {
        let (mut patience, started) = begin();
        assert_eq!(patience.runs_out(), None);
        patience.sent(at(started, 0));
        patience.sent(at(started, 10));
        assert_eq!(patience.runs_out(), Some(at(started, 45)));
    }

    #[test]
    fn an_answer_in_time_renews_it() {
        let (mut patience, started) = begin();
        patience.sent(at(started, 0));
        patience.sent(at(started, 40));
        patience.answered(at(started, 41)); // Late.
        assert_eq!(patience.runs_out(), Some(at(started, 45)));
        patience.sent(at(started, 42));
        patience.answered(at(started, 44)); // In time.
        assert_eq!(patience.runs_out(), Some(at(started, 42 + 45)));
    }

    #[test]
    fn late_answers_do_not_renew_it_while_more_is_owed() {
        let (mut patience, started) = begin();
        for sent in (0..45).step_by(5) {
            patience.sent(at(started, sent));
            if sent >= 20 {
                patience.answered(at(started, sent)); // Twenty milliseconds after its question.
            }
        }
        assert_eq!(patience.runs_out(), Some(at(started, 45)));
    }

    #[test]
    fn whoever_owes_nothing_is_not_late() {
        let (mut patience, started) = begin();
        patience.sent(at(started, 0));
        patience.answered(at(started, 20));
        assert_eq!(patience.runs_out(), None);
    }

    #[test]
    fn a_long_deadline_is_waited_for_in_full() {
        assert_eq!(silence(Duration::from_millis(5)), Duration::from_millis(15));
        assert_eq!(silence(Duration::from_millis(40)), SILENCE_MAX);
        assert_eq!(silence(Duration::from_secs(2)), Duration::from_secs(2));
    }

    fn begin() -> (Patience, Instant) {
        (Patience::new(DEADLINE), Instant::now())
    }

    fn at(started: Instant, milliseconds: u64) -> Instant {
        started + Duration::from_millis(milliseconds)
    }
}

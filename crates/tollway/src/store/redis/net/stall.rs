//! The time after which a connection without answers is late, and after which it counts as stalled.

use std::time::Duration;

use tokio::time::Instant;

/// The number of deadlines in a row that a node may miss: one may be a hiccup.
const DEADLINES: u32 = 3;

/// The longest stall if the deadline is shorter: every call that waits for it fails in the end.
const STALL_MAX: Duration = Duration::from_millis(75);

/// The pipelines in flight on one connection, and the time since when the node has answered none of them.
///
/// A node that goes on answering is neither late nor stalled, however long its queue is. A node that owes no answer is
/// not late either.
#[derive(Debug)]
pub(super) struct PipelinesInFlight {
    deadline: Duration,
    in_flight: usize,
    silent_since: Option<Instant>,
}

impl PipelinesInFlight {
    pub(super) fn new(deadline: Duration) -> Self {
        Self { deadline, in_flight: 0, silent_since: None }
    }

    /// Records that a pipeline was sent.
    pub(super) fn sent(&mut self, now: Instant) {
        self.in_flight += 1;
        self.silent_since.get_or_insert(now);
    }

    /// Records that a pipeline was answered.
    pub(super) fn answered(&mut self, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.silent_since = (self.in_flight > 0).then_some(now);
    }

    /// Returns the number of pipelines that are not answered.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns the time when the node has been silent for a deadline, unless it answers before.
    pub(super) fn late_at(&self) -> Option<Instant> {
        self.silent_since.map(|since| since + self.deadline)
    }

    /// Returns the time when the connection is stalled, unless the node answers before.
    pub(super) fn stalled_at(&self) -> Option<Instant> {
        self.silent_since.map(|since| since + stall_max(self.deadline))
    }
}

/// Returns the longest time without an answer.
fn stall_max(deadline: Duration) -> Duration {
    (deadline * DEADLINES).min(STALL_MAX).max(deadline)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(15);

    #[test]
    fn a_connection_is_late_after_a_deadline_and_stalls_after_three() {
        let (mut timeout, started) = start();
        assert_eq!((timeout.late_at(), timeout.stalled_at()), (None, None));
        timeout.sent(at(started, 0));
        timeout.sent(at(started, 10));
        assert_eq!(timeout.late_at(), Some(at(started, 15)));
        assert_eq!(timeout.stalled_at(), Some(at(started, 45)));
    }

    #[test]
    fn every_answer_restarts_the_timeout() {
        let (mut timeout, started) = start();
        timeout.sent(at(started, 0));
        timeout.sent(at(started, 0));
        timeout.answered(at(started, 40)); // It waited for long in the queue of the node, which is alive.
        assert_eq!(timeout.late_at(), Some(at(started, 40 + 15)));
        assert_eq!(timeout.stalled_at(), Some(at(started, 40 + 45)));
    }

    #[test]
    fn a_node_that_owes_no_answer_is_not_late() {
        let (mut timeout, started) = start();
        timeout.sent(at(started, 0));
        timeout.answered(at(started, 20));
        assert_eq!((timeout.late_at(), timeout.stalled_at()), (None, None));
    }

    #[test]
    fn a_long_deadline_is_waited_for_in_full() {
        assert_eq!(stall_max(Duration::from_millis(5)), Duration::from_millis(15));
        assert_eq!(stall_max(Duration::from_millis(50)), STALL_MAX);
        assert_eq!(stall_max(Duration::from_secs(2)), Duration::from_secs(2));
    }

    fn start() -> (PipelinesInFlight, Instant) {
        (PipelinesInFlight::new(DEADLINE), Instant::now())
    }

    fn at(started: Instant, milliseconds: u64) -> Instant {
        started + Duration::from_millis(milliseconds)
    }
}

//! Tracks the phases of a run: warming up, measuring, waiting for the last replies, over.

use tollway_core::{Nanos, Timestamp};

use crate::stats::LoadStats;
use crate::{Load, RunLength};

/// The time without any reply after which a run ends.
const SILENCE_MAX: Nanos = Nanos::from_secs(5);

/// The times and counts of one run. Time counts from the start of the run.
#[derive(Debug)]
pub(crate) struct Run {
    /// The time at which measuring begins, and at which requests stop leaving.
    begins: Timestamp,
    ends: Timestamp,
    measuring: bool,
    /// The number of requests that may still leave.
    left: u64,
    in_flight: u64,
    replied_at: Timestamp,
    /// The number of replies, and the time measured, when time was up.
    measured: Option<(u64, Nanos)>,
    unanswered: u64,
    /// The time without a reply after which the last ones are given up.
    drain_timeout: Nanos,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Sending,
    /// Requests stopped leaving, and the last replies are awaited.
    Draining,
    Over,
    /// The run ends because there was no reply for this time.
    Silent(Nanos),
}

impl Run {
    pub(crate) fn new(load: &Load, drain_timeout: Option<Nanos>) -> Self {
        let begins = Timestamp::EPOCH + Nanos::from(load.warmup);
        let (ends, left) = match load.length {
            RunLength::Time(time) => (begins + Nanos::from(time), u64::MAX),
            RunLength::Requests(requests) => (Timestamp::MAX, requests),
        };
        Self {
            begins,
            ends,
            measuring: load.warmup.is_zero(),
            left,
            in_flight: 0,
            replied_at: Timestamp::EPOCH,
            measured: None,
            unanswered: 0,
            drain_timeout: drain_timeout.unwrap_or(SILENCE_MAX),
        }
    }

    /// Returns the phase at `now`. When the warm-up is over, its replies are dropped.
    pub(crate) fn phase(&mut self, now: Timestamp, stats: &mut LoadStats) -> Phase {
        if !self.measuring && now >= self.begins {
            (self.measuring, self.begins, self.unanswered) = (true, now, 0);
            *stats = LoadStats::new();
        }
        let silent = now.since(self.replied_at);
        if now < self.ends && self.left > 0 {
            let is_silent = self.in_flight > 0 && silent >= SILENCE_MAX;
            return if is_silent { Phase::Silent(silent) } else { Phase::Sending };
        }
        // Replies that come after time was up count for the latency, and not for the rate.
        if now >= self.ends {
            self.measured.get_or_insert((stats.replies, now.since(self.begins)));
        }
        match self.in_flight {
            0 => Phase::Over,
            _ if silent < self.drain_timeout => Phase::Draining,
            _ if stats.replies == 0 => Phase::Silent(silent),
            _ => Phase::Over,
        }
    }

    /// Returns how many of `wanted` requests may leave now. They count as sent.
    #[inline]
    pub(crate) fn take(&mut self, wanted: u64, now: Timestamp) -> u64 {
        let taken = if now < self.ends { wanted.min(self.left) } else { 0 };
        if self.in_flight == 0 {
            self.replied_at = now;
        }
        self.left -= taken;
        self.in_flight += taken;
        taken
    }

    /// Counts replies.
    #[inline]
    pub(crate) fn replied(&mut self, replies: u64, now: Timestamp) {
        self.in_flight -= replies;
        self.replied_at = now;
    }

    /// Counts requests that will not be answered any more.
    pub(crate) fn lost(&mut self, requests: u64) {
        self.in_flight -= requests;
        self.unanswered += requests;
    }

    /// Ends the run without waiting for the replies in flight.
    pub(crate) fn interrupt(&mut self) {
        self.in_flight = 0;
    }

    /// Returns the replies and the time that were measured, and the number of unanswered requests.
    pub(crate) fn finish(&mut self, now: Timestamp, replies: u64) -> (u64, Nanos, u64) {
        // A number of requests took until the last reply.
        let end = if self.left == 0 { self.replied_at } else { now };
        let (replies, time) = *self.measured.get_or_insert((replies, end.since(self.begins)));
        (replies, time, self.unanswered + self.in_flight)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: RunLength = RunLength::Time(Duration::from_secs(3_600));
    const SECOND: RunLength = RunLength::Time(Duration::from_secs(1));

    fn run(length: RunLength, warmup: u64) -> (Run, LoadStats) {
        let warmup = Duration::from_secs(warmup);
        let load = Load { length, warmup, ..Load::new(([127, 0, 0, 1], 1).into()) };
        (Run::new(&load, None), LoadStats::new())
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::EPOCH + Nanos::from_millis(millis)
    }

    #[test]
    fn what_is_answered_after_time_is_up_does_not_count_for_the_rate() {
        let (mut run, mut stats) = run(SECOND, 0);
        assert_eq!(run.take(10, at(0)), 10);
        run.replied(4, at(500));
        stats.replies = 4;
        assert_eq!(run.phase(at(999), &mut stats), Phase::Sending);
        assert_eq!(run.phase(at(1_000), &mut stats), Phase::Draining);
        assert_eq!(run.take(1, at(1_000)), 0);
        run.replied(6, at(1_200));
        stats.replies = 10;
        assert_eq!(run.phase(at(1_200), &mut stats), Phase::Over);
        assert_eq!(run.finish(at(1_200), 10), (4, Nanos::from_secs(1), 0));
    }

    #[test]
    fn a_number_of_requests_takes_as_long_as_its_replies() {
        let (mut run, mut stats) = run(RunLength::Requests(10), 0);
        assert_eq!([8, 8, 8].map(|wanted| run.take(wanted, at(0))), [8, 2, 0]);
        assert_eq!(run.phase(at(10), &mut stats), Phase::Draining);
        run.replied(10, at(20));
        assert_eq!(run.phase(at(30), &mut stats), Phase::Over);
        assert_eq!(run.finish(at(30), 10), (10, Nanos::from_millis(20), 0));
    }

    #[test]
    fn the_warm_up_is_dropped() {
        let (mut run, mut stats) = run(SECOND, 2);
        run.take(5, at(0));
        run.lost(5);
        stats.replies = 7;
        assert_eq!(run.phase(at(1_999), &mut stats), Phase::Sending);
        assert_eq!((stats.replies, run.phase(at(2_000), &mut stats)), (7, Phase::Sending));
        assert_eq!((stats.replies, run.phase(at(3_000), &mut stats)), (0, Phase::Over));
        assert_eq!(run.finish(at(3_000), 0), (0, Nanos::from_secs(1), 0));
    }

    #[test]
    fn silence_ends_a_run() {
        let brief = RunLength::Time(Duration::from_millis(1));
        for length in [HOUR, RunLength::Requests(20), RunLength::Requests(10), brief] {
            let (mut run, mut stats) = run(length, 0);
            run.take(10, at(0));
            run.replied(1, at(100));
            let before = run.phase(at(5_099), &mut stats);
            assert!(matches!(before, Phase::Sending | Phase::Draining), "{length:?}: {before:?}");
            let silent = Phase::Silent(Nanos::from_secs(5));
            assert_eq!(run.phase(at(5_100), &mut stats), silent, "{length:?}");
            assert_eq!(run.finish(at(5_100), 1).2, 9, "{length:?}");
        }
    }

    #[test]
    fn an_interrupted_run_has_no_unanswered_requests() {
        let (mut run, _) = run(HOUR, 0);
        run.take(10, at(0));
        run.interrupt();
        assert_eq!(run.finish(at(100), 0).2, 0);
    }
}

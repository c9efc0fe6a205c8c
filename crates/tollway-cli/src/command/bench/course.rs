//! How far a run has come: warming up, measuring, waiting for the last answers, over.

use std::net::SocketAddr;

use anyhow::anyhow;
use tollway::Clock;
use tollway::core::{Nanos, Timestamp};

use super::load::Load;
use super::tally::Tally;

/// How long the generator waits for any answer at all before it gives up, and at the end for the last ones.
const PATIENCE: Nanos = Nanos::from_secs(5);

/// One run's times and bounds.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) clock: Clock,
    /// When measuring begins, and when requests stop leaving.
    begins: Timestamp,
    ends: Timestamp,
    measuring: bool,
    /// How many more requests may leave.
    left: u64,
    in_flight: u64,
    heard_at: Timestamp,
    /// How many replies had come, and how long that took, when time was up.
    measured: Option<(u64, Nanos)>,
    unanswered: u64,
    /// How long the last answers are waited for.
    last_within: Nanos,
    stopped: Option<Stop>,
}

/// Why a run ended before its time.
#[derive(Debug)]
pub(super) enum Stop {
    Interrupted,
    /// There was no answer for so long.
    Silent(Nanos),
    Failed(anyhow::Error),
}

impl Stop {
    /// What to tell whoever wanted the run to be made.
    pub(super) fn into_error(self, addr: SocketAddr) -> anyhow::Error {
        match self {
            Self::Interrupted => anyhow!("interrupted"),
            Self::Silent(waited) => anyhow!("{addr} did not answer for {waited}"),
            Self::Failed(error) => error,
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Sending,
    /// Only answers are awaited.
    Draining,
    Over,
}

impl Course {
    pub(super) fn new(clock: Clock, load: &Load) -> Self {
        let now = clock.now();
        let begins = now + load.warmup;
        let ends = if load.requests.is_some() { Timestamp::MAX } else { begins + load.duration };
        let left = load.requests.unwrap_or(u64::MAX);
        Self {
            clock,
            begins,
            ends,
            measuring: load.warmup == Nanos::ZERO,
            left,
            in_flight: 0,
            heard_at: now,
            measured: None,
            unanswered: 0,
            last_within: PATIENCE,
            stopped: None,
        }
    }

    /// Waits no longer than this for answers after the last request has left.
    pub(super) fn with_last_answers_within(mut self, span: Nanos) -> Self {
        self.last_within = span;
        self
    }

    /// What there is to do at `now`.
    pub(super) fn stage(&mut self, now: Timestamp, tally: &mut Tally) -> Stage {
        if !self.measuring && now >= self.begins {
            (self.measuring, self.begins, self.unanswered) = (true, now, 0);
            tally.clear();
        }
        let silent = now.since(self.heard_at);
        if now < self.ends && self.left > 0 {
            return if self.in_flight > 0 && silent >= PATIENCE {
                self.stop(now, tally, Stop::Silent(silent))
            } else {
                Stage::Sending
            };
        }
        // What comes after time was up says something about latency, and nothing about the rate.
        if now >= self.ends {
            self.measured.get_or_insert((tally.replies, now.since(self.begins)));
        }
        match self.in_flight {
            0 => self.finish(now, tally),
            _ if silent < self.last_within => Stage::Draining,
            _ if tally.replies == 0 => self.stop(now, tally, Stop::Silent(silent)),
            _ => self.finish(now, tally),
        }
    }

    /// Ends the run before its time.
    pub(super) fn stop(&mut self, now: Timestamp, tally: &Tally, why: Stop) -> Stage {
        if matches!(why, Stop::Interrupted) {
            // Nobody waited for these.
            self.in_flight = 0;
        }
        self.stopped.get_or_insert(why);
        self.finish(now, tally)
    }

    fn finish(&mut self, now: Timestamp, tally: &Tally) -> Stage {
        // All that was wanted is answered: it was when the last answer came.
        let end = if self.left == 0 { self.heard_at } else { now };
        self.measured.get_or_insert((tally.replies, end.since(self.begins)));
        self.unanswered += self.in_flight;
        self.in_flight = 0;
        Stage::Over
    }

    /// How many of `wanted` requests may leave now. They count as sent.
    #[inline]
    pub(super) fn take(&mut self, wanted: u64, now: Timestamp) -> u64 {
        let taken = if now < self.ends && self.stopped.is_none() { wanted.min(self.left) } else { 0 };
        if self.in_flight == 0 {
            self.heard_at = now;
        }
        self.left -= taken;
        self.in_flight += taken;
        taken
    }

    /// So many replies have come.
    #[inline]
    pub(super) fn heard(&mut self, replies: u64, now: Timestamp) {
        // Saturating: in a run that was stopped nothing is in flight any more.
        self.in_flight = self.in_flight.saturating_sub(replies);
        self.heard_at = now;
    }

    /// So many will not come any more.
    pub(super) fn lost(&mut self, requests: u64) {
        let requests = requests.min(self.in_flight);
        self.in_flight -= requests;
        self.unanswered += requests;
    }

    /// Requests that were answered in the time measured, and that time.
    pub(super) fn measured(&self) -> (u64, Nanos) {
        self.measured.unwrap_or_default()
    }

    /// Requests that nobody answered.
    pub(super) fn unanswered(&self) -> u64 {
        self.unanswered
    }

    pub(super) fn stopped(&self) -> Option<&Stop> {
        self.stopped.as_ref()
    }

    pub(super) fn into_stopped(self) -> Option<Stop> {
        self.stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        load: Load,
    }

    /// A run from 0 s on, with these flags.
    fn course(flags: &str) -> (Course, Tally) {
        let load = Arguments::parse_from(["bench"].into_iter().chain(flags.split_whitespace())).load;
        (Course::new(Clock::manual(Timestamp::EPOCH), &load), Tally::new())
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::EPOCH + Nanos::from_millis(millis)
    }

    #[test]
    fn what_is_answered_after_time_is_up_does_not_count_for_the_rate() {
        let (mut course, mut tally) = course("--duration 1s");
        assert_eq!(course.take(10, at(0)), 10);
        course.heard(4, at(500));
        tally.replies = 4;
        assert_eq!(course.stage(at(999), &mut tally), Stage::Sending);
        assert_eq!(course.stage(at(1_000), &mut tally), Stage::Draining);
        assert_eq!(course.take(1, at(1_000)), 0);
        course.heard(6, at(1_200));
        tally.replies = 10;
        assert_eq!(course.stage(at(1_200), &mut tally), Stage::Over);
        assert_eq!((course.measured(), course.unanswered()), ((4, Nanos::from_secs(1)), 0));
    }

    #[test]
    fn a_number_of_requests_takes_as_long_as_its_answers() {
        let (mut course, mut tally) = course("--requests 10");
        assert_eq!((course.take(8, at(0)), course.take(8, at(0)), course.take(8, at(0))), (8, 2, 0));
        assert_eq!(course.stage(at(10), &mut tally), Stage::Draining);
        course.heard(10, at(20));
        tally.replies = 10;
        assert_eq!(course.stage(at(30), &mut tally), Stage::Over);
        assert_eq!(course.measured(), (10, Nanos::from_millis(20)));
    }

    #[test]
    fn the_warm_up_is_forgotten() {
        let (mut course, mut tally) = course("--duration 1s --warmup 2s");
        course.take(5, at(0));
        course.lost(5);
        tally.replies = 7;
        assert_eq!(course.stage(at(1_999), &mut tally), Stage::Sending);
        assert_eq!((tally.replies, course.stage(at(2_000), &mut tally)), (7, Stage::Sending));
        assert_eq!((tally.replies, course.unanswered()), (0, 0));
        assert_eq!(course.stage(at(3_000), &mut tally), Stage::Over);
        assert_eq!(course.measured(), (0, Nanos::from_secs(1)));
    }

    #[test]
    fn silence_ends_a_run() {
        for flags in ["--duration 1h", "--requests 20", "--requests 10", "--duration 1ms"] {
            let (mut course, mut tally) = course(flags);
            course.take(10, at(0));
            course.heard(1, at(100));
            assert_ne!(course.stage(at(5_099), &mut tally), Stage::Over, "{flags}");
            assert_eq!(course.stage(at(5_100), &mut tally), Stage::Over, "{flags}");
            assert_eq!(course.unanswered(), 9, "{flags}");
        }
    }
}

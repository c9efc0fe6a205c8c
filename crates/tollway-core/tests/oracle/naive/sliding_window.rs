//! A naive model of the sliding window, which counts by the definition and finds the end of a wait by trying.

use tollway_core::algorithm::SlidingWindow;
use tollway_core::{Decision, Refund, Timestamp, Verdict};

use super::{decision, refund, wide, window_end};

/// The requests of a window and of the one before, when the window ends, and from when on nothing of it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct NaiveSlidingWindow {
    current: i128,
    previous: i128,
    ends_at: i128,
    forgotten_at: i128,
}

impl NaiveSlidingWindow {
    pub(crate) fn spend(&mut self, limit: &SlidingWindow, cost: u64, now: Timestamp) -> Decision {
        let (now, cost, count) = (wide(now), i128::from(cost), i128::from(limit.count()));
        let seen = self.at(limit, now);
        let used = seen.used(limit, now);
        let fits = cost == 0 || used + cost <= count;
        let taken = if fits { cost } else { 0 };
        let after = Self { current: seen.current + taken, ..seen };
        if after.current + after.previous > 0 {
            *self = after.kept(limit);
        }
        let left = (count - used - taken).max(0);
        let retry = if cost <= left { 0 } else { after.first_fit(limit, cost, now) - now };
        let verdict = if fits { Verdict::Allow } else { Verdict::Deny };
        decision(verdict, left, retry, after.reset_at(limit).max(now) - now)
    }

    pub(crate) fn refund(&mut self, limit: &SlidingWindow, cost: u64, now: Timestamp) -> Refund {
        let now = wide(now);
        let seen = self.at(limit, now);
        let after = Self { current: (seen.current - i128::from(cost)).max(0), ..seen };
        if seen.current + seen.previous > 0 {
            *self = after.kept(limit);
        }
        let left = (i128::from(limit.count()) - after.used(limit, now)).max(0);
        refund(after.current < seen.current, left, after.reset_at(limit).max(now) - now)
    }

    /// Returns the two counters as they are at `now`, with the end of the window that contains it. What was kept under
    /// this window, or under one that ends later because the clock stepped back or the period changed, counts in it.
    fn at(&self, limit: &SlidingWindow, now: i128) -> Self {
        let (ends_at, period) = (end(limit, now), period(limit));
        let (current, previous) = if self.forgotten_at <= now || self.ends_at <= ends_at - 2 * period {
            (0, 0)
        } else if self.ends_at <= ends_at - period {
            (0, self.current)
        } else {
            (self.current, self.previous)
        };
        Self { current, previous, ends_at, forgotten_at: 0 }
    }

    /// Counts as the specification does: this window's, and the previous one's by what is covered of it, rounded up.
    fn used(&self, limit: &SlidingWindow, now: i128) -> i128 {
        let period = period(limit);
        self.current + (self.previous * (self.ends_at - now) + period - 1) / period
    }

    fn kept(self, limit: &SlidingWindow) -> Self {
        let mut longer = 1;
        while longer < period(limit) {
            longer *= 2;
        }
        let forgotten_at = match (self.current, self.previous) {
            (0, 0) => 0,
            (0, _) => self.ends_at,
            _ => self.ends_at + longer,
        };
        Self { forgotten_at, ..self }
    }

    fn reset_at(&self, limit: &SlidingWindow) -> i128 {
        match (self.current, self.previous) {
            (0, 0) => 0,
            (0, _) => self.ends_at,
            _ => self.ends_at + period(limit),
        }
    }

    /// Finds the first nanosecond at which the cost fits, by halving: what counts never grows while nobody comes.
    fn first_fit(&self, limit: &SlidingWindow, cost: i128, now: i128) -> i128 {
        let fits = |at: i128| {
            let seen = if at < self.ends_at {
                *self
            } else if at < self.ends_at + period(limit) {
                Self { current: 0, previous: self.current, ends_at: self.ends_at + period(limit), ..*self }
            } else {
                Self { current: 0, previous: 0, ..*self }
            };
            seen.used(limit, at) + cost <= i128::from(limit.count())
        };
        let (mut too_early, mut late_enough) = (now - 1, self.ends_at + period(limit));
        while too_early + 1 < late_enough {
            let middle = too_early + (late_enough - too_early) / 2;
            if fits(middle) { late_enough = middle } else { too_early = middle }
        }
        late_enough
    }
}

fn period(limit: &SlidingWindow) -> i128 {
    limit.period().get().into()
}

fn end(limit: &SlidingWindow, now: i128) -> i128 {
    window_end(limit.period().get(), 0, now)
}

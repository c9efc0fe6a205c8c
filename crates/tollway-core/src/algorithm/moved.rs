//! Moves the state of a bucket to another store: to another clock, and beside a state that is there already.
//!
//! Two states of one bucket become one that is at least as strict as both: what it allows, each of them would have
//! allowed. It is made part by part, of the later time and the higher count. So it does not matter which of them comes
//! first, and to add one a second time changes nothing: a move that was interrupted can be started again.

use super::{
    Bucket, FixedWindowState, QuotaState, SlidingLogState, SlidingWindowState, SmoothedRateState,
    TokenBucketState,
};
use crate::time::{Nanos, Timestamp};

/// The time of one clock minus that of another, at the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClockDifference(i64);

impl ClockDifference {
    /// Returns the difference of a clock that shows `to` when another shows `from`.
    pub fn between(from: Timestamp, to: Timestamp) -> Self {
        let clipped = |time: Timestamp| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        Self(clipped(to).saturating_sub(clipped(from)))
    }

    /// Returns the difference without its sign.
    pub const fn abs(self) -> Nanos {
        Nanos::new(self.0.unsigned_abs())
    }

    /// Returns true if the clock is behind the other.
    pub const fn is_behind(self) -> bool {
        self.0 < 0
    }

    /// Returns the time that this clock shows when the other shows `time`.
    pub fn apply(self, time: Timestamp) -> Timestamp {
        Timestamp::from_nanos(time.as_nanos().saturating_add_signed(self.0))
    }
}

/// A state that can be moved to another store.
pub trait MovedState: Bucket {
    /// Returns the state by another clock.
    ///
    /// Windows stay as they are: their ends are those of the calendar, and a window that ended a little later than the
    /// calendar says would count in the whole next one.
    #[must_use]
    fn by_clock(&self, difference: ClockDifference) -> Self;

    /// Returns a state that, from `now` on, allows only what both states allow.
    #[must_use]
    fn stricter_than(&self, other: &Self, now: Timestamp) -> Self {
        // Otherwise what an expired one has counted would count again.
        match (self.expires_at() > now, other.expires_at() > now) {
            (true, true) => self.join(other, now),
            (true, false) => self.clone(),
            (false, true) => other.clone(),
            (false, false) => Self::default(),
        }
    }

    /// Returns a state as strict as two that are both live at `now`.
    #[must_use]
    fn join(&self, other: &Self, now: Timestamp) -> Self;
}

impl MovedState for TokenBucketState {
    fn by_clock(&self, difference: ClockDifference) -> Self {
        Self::full_at(difference.apply(self.expires_at()))
    }

    fn join(&self, other: &Self, _: Timestamp) -> Self {
        Self::full_at(self.expires_at().max(other.expires_at()))
    }
}

impl MovedState for SlidingLogState {
    fn by_clock(&self, difference: ClockDifference) -> Self {
        let entries: Vec<_> = self.iter().map(|entry| difference.apply(entry)).collect();
        Self::restored(&entries, self.keep(), difference.apply(self.expires_at()))
    }

    /// Takes the later of both newest entries, the later of both second newest ones, and so on.
    fn join(&self, other: &Self, _: Timestamp) -> Self {
        let nth = |n: usize| self.nth_newest(n).max(other.nth_newest(n)).unwrap_or_default();
        let entries: Vec<_> = (1..=self.len().max(other.len())).rev().map(nth).collect();
        let expires_at = self.expires_at().max(other.expires_at());
        Self::restored(&entries, self.keep().max(other.keep()), expires_at)
    }
}

impl MovedState for SmoothedRateState {
    fn by_clock(&self, difference: ClockDifference) -> Self {
        let (last, rate) = self.last();
        Self::measured(difference.apply(last), rate, difference.apply(self.expires_at()))
    }

    fn join(&self, other: &Self, _: Timestamp) -> Self {
        let ((last, rate), (other_last, other_rate)) = (self.last(), other.last());
        let expires_at = self.expires_at().max(other.expires_at());
        Self::measured(last.max(other_last), rate.max(other_rate), expires_at)
    }
}

impl QuotaState {
    /// Returns a quota of Throttr, whose counter is what is left, that is as strict as two of them.
    #[must_use]
    pub fn stricter_pair(&self, other: &Self, now: Timestamp) -> Self {
        match (self.expires_at() > now, other.expires_at() > now) {
            (true, true) => {
                let expires_at = self.expires_at().max(other.expires_at());
                Self::until(expires_at, self.counter().min(other.counter()), self.unit())
            }
            (true, false) => *self,
            (false, true) => *other,
            (false, false) => Self::default(),
        }
    }
}

impl MovedState for QuotaState {
    fn by_clock(&self, difference: ClockDifference) -> Self {
        Self::until(difference.apply(self.expires_at()), self.counter(), self.unit())
    }

    fn join(&self, other: &Self, _: Timestamp) -> Self {
        let expires_at = self.expires_at().max(other.expires_at());
        Self::until(expires_at, self.counter().max(other.counter()), self.unit())
    }
}

impl MovedState for FixedWindowState {
    fn by_clock(&self, _: ClockDifference) -> Self {
        *self
    }

    fn join(&self, other: &Self, _: Timestamp) -> Self {
        Self::until(self.ends_at().max(other.ends_at()), self.used().max(other.used()))
    }
}

impl MovedState for SlidingWindowState {
    fn by_clock(&self, _: ClockDifference) -> Self {
        *self
    }

    fn join(&self, other: &Self, now: Timestamp) -> Self {
        let (earlier, later) = if self.ends_at() <= other.ends_at() { (self, other) } else { (other, self) };
        let kept = earlier.kept_after_end().max(later.kept_after_end());
        let (mut current, mut previous) = (later.current(), later.previous());
        // Two states of one window are alike also when it has ended.
        if earlier.ends_at() > now || earlier.ends_at() == later.ends_at() {
            current = current.max(earlier.current());
            previous = previous.max(earlier.previous());
        } else {
            // What was the present window of the earlier state is the previous one by now.
            previous = previous.max(earlier.current());
        }
        Self::until(later.ends_at(), current, previous, kept)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollway_testbed::Random;

    use super::super::{FixedWindow, Quota, SlidingLog, SlidingWindow, SmoothedRate, TokenBucket};
    use super::*;

    const HISTORIES: u64 = 400;

    fn at(millis: u64) -> Timestamp {
        Timestamp::EPOCH + Nanos::from_millis(millis)
    }

    /// Returns the state after some random requests before `until`, and the time of the last.
    fn history<B: Bucket>(limit: &B::Limit, random: &mut Random, from: u64, until: u64) -> B {
        let (mut state, mut now) = (B::default(), from);
        while now < until {
            let _ = state.charge(limit, 1 + random.below(2), at(now));
            now += random.below(1_500);
        }
        state
    }

    /// Compares a joined state with the two that it was made of, over random times and costs.
    fn check_join<B: MovedState + PartialEq + std::fmt::Debug>(limit: &B::Limit) {
        for seed in 0..HISTORIES {
            let mut random = Random::new(seed);
            let now = 20_000 + random.below(10_000);
            let [one, other]: [B; 2] = std::array::from_fn(|_| {
                let from = 10_000 + random.below(20_000);
                history(limit, &mut random, from.min(now), now)
            });
            let joined = one.stricter_than(&other, at(now));
            assert_eq!(joined, other.stricter_than(&one, at(now)), "the order matters");
            assert_eq!(joined, joined.stricter_than(&one, at(now)), "applying one again changes it");
            for _ in 0..20 {
                let (later, cost) = (at(now + random.below(15_000)), 1 + random.below(4));
                let decided = [&joined, &one, &other].map(|state| state.check(limit, cost, later).allowed());
                let [joined_allows, one_allows, other_allows] = decided;
                assert!(
                    !joined_allows || (one_allows && other_allows),
                    "seed {seed}: {joined:?} of {one:?} and {other:?} allows {cost} at {later}"
                );
            }
        }
    }

    #[test]
    fn what_a_joined_state_allows_both_allow() {
        let period = Duration::from_secs(10);
        check_join::<TokenBucketState>(&TokenBucket::new(5, 5, period).unwrap());
        check_join::<SlidingLogState>(&SlidingLog::new(4, period).unwrap());
        check_join::<SmoothedRateState>(&SmoothedRate::new(6.0, period, false).unwrap());
        check_join::<QuotaState>(&Quota::new(5, period).unwrap());
        check_join::<FixedWindowState>(&FixedWindow::new(5, period, Duration::ZERO).unwrap());
        check_join::<SlidingWindowState>(&SlidingWindow::new(5, period).unwrap());
    }

    /// A state that is joined with nothing, or with one that has expired, stays as it is.
    #[test]
    fn a_state_alone_stays_as_it_is() {
        let limit = SlidingWindow::new(5, Duration::from_secs(10)).unwrap();
        let state: SlidingWindowState = history(&limit, &mut Random::new(7), 12_000, 21_000);
        assert_eq!(state.stricter_than(&SlidingWindowState::default(), at(21_000)), state);
        let expired = FixedWindowState::until(at(10_000), 9);
        let live = FixedWindowState::until(at(20_000), 1);
        for now in [10_000, 11_000].map(at) {
            assert_eq!([expired.stricter_than(&live, now), live.stricter_than(&expired, now)], [live; 2]);
        }
    }

    #[test]
    fn the_window_of_an_earlier_state_is_the_previous_one_when_it_has_ended() {
        let state = |ends, current, previous| {
            SlidingWindowState::until(at(ends), current, previous, Nanos::from_secs(10))
        };
        for (now, earlier, later, expected) in [
            (19_999, state(20_000, 3, 1), state(30_000, 2, 0), state(30_000, 3, 1)),
            (20_000, state(20_000, 3, 1), state(30_000, 2, 0), state(30_000, 2, 3)),
            (21_000, state(20_000, 3, 1), state(30_000, 2, 4), state(30_000, 2, 4)),
            (21_000, state(20_000, 3, 1), state(20_000, 2, 4), state(20_000, 3, 4)),
        ] {
            let joined = [earlier.join(&later, at(now)), later.join(&earlier, at(now))];
            assert_eq!(joined, [expected; 2], "{now}");
        }
    }

    #[test]
    fn the_smaller_rest_of_a_pair_is_the_stricter_one() {
        let quota = |left, ends| QuotaState::until(at(ends), left, super::super::TtlUnit(1));
        assert_eq!(quota(3, 20).stricter_pair(&quota(7, 30), at(10)), quota(3, 30));
        for now in [5, 10].map(at) {
            assert_eq!(quota(3, 5).stricter_pair(&quota(7, 30), now), quota(7, 30));
            assert_eq!(quota(7, 30).stricter_pair(&quota(3, 5), now), quota(7, 30));
        }
    }

    #[test]
    fn moments_follow_the_clock_and_windows_the_calendar() {
        let ahead = ClockDifference::between(at(1_000), at(1_250));
        assert_eq!((ahead.abs(), ahead.is_behind()), (Nanos::from_millis(250), false));
        assert_eq!(TokenBucketState::full_at(at(5_000)).by_clock(ahead).expires_at(), at(5_250));
        let log = SlidingLogState::restored(&[at(1), at(2)], 4, at(9)).by_clock(ahead);
        assert_eq!((log.nth_newest(2), log.expires_at(), log.keep()), (Some(at(251)), at(259), 4));
        let rate = SmoothedRateState::measured(at(5_000), 2.5, at(9_000)).by_clock(ahead);
        assert_eq!((rate.last(), rate.expires_at()), ((at(5_250), 2.5), at(9_250)));
        let quota = |ends| QuotaState::until(at(ends), 3, super::super::TtlUnit(1));
        assert_eq!(quota(5_000).by_clock(ahead), quota(5_250));
        let window = FixedWindowState::until(at(60_000), 3);
        assert_eq!(window.by_clock(ahead), window);
        let window = SlidingWindowState::until(at(60_000), 3, 2, Nanos::from_secs(60));
        assert_eq!(window.by_clock(ahead), window);
        let behind = ClockDifference::between(at(1_250), at(1_000));
        assert_eq!(behind.apply(at(100)), Timestamp::EPOCH);
        assert!(behind.is_behind() && !ClockDifference::default().is_behind());
    }
}

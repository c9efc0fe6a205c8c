//! Tests that compare the sliding window with a naive one, and with its definition alone.

use std::time::Duration;

use tollway_core::algorithm::{Bucket, SlidingWindow, SlidingWindowState, WINDOW_COUNT_MAX};
use tollway_core::{Decision, Nanos, Refund, Timestamp};
use tollway_testbed::{Random, compare};

use crate::history::{self, Model, Step};
use crate::naive;

impl Model for naive::NaiveSlidingWindow {
    type Bucket = SlidingWindowState;
    type Limit = SlidingWindow;

    fn any_limit(random: &mut Random) -> SlidingWindow {
        let count_max = random.pick(&[3, 20, 1_000, WINDOW_COUNT_MAX]);
        let period_max = random.pick(&[20, 3_600_000_000_000, 3_600_000_000_000, Nanos::MAX.get() / 4]);
        let (count, period) = (random.between(1, count_max), random.between(1, period_max));
        SlidingWindow::new(count, Duration::from_nanos(period)).expect("neither is zero or too large")
    }

    fn spans(limit: &SlidingWindow) -> (u64, u64) {
        ((limit.period().get() / limit.count()).max(1), 2 * limit.period().get())
    }

    fn cost_max(limit: &SlidingWindow) -> u64 {
        limit.count()
    }

    fn spend(&mut self, limit: &SlidingWindow, cost: u64, now: Timestamp) -> Decision {
        self.spend(limit, cost, now)
    }

    fn refund(&mut self, limit: &SlidingWindow, cost: u64, now: Timestamp) -> Option<Refund> {
        Some(self.refund(limit, cost, now))
    }
}

#[test]
fn every_answer_is_that_of_two_windows() {
    compare(history::unruly::<naive::NaiveSlidingWindow>, history::run::<naive::NaiveSlidingWindow>);
}

#[test]
fn lets_in_exactly_what_the_definition_does() {
    compare(history::calm::<naive::NaiveSlidingWindow>, run_definition);
}

/// All that was ever let in is kept: a request passes if and only if, with it, this window's requests and the covered
/// part of the previous window's are no more than the count.
fn run_definition(steps: &[Step<SlidingWindow>]) -> Result<u64, String> {
    let Some(Step::Limit(limit)) = steps.first() else { return Ok(0) };
    let (period, count) = (u128::from(limit.period().get()), u128::from(limit.count()));
    let (mut bucket, mut admitted, mut decisions) = (SlidingWindowState::default(), Vec::new(), 0);
    for (index, step) in steps.iter().enumerate() {
        let Step::Spend { cost, now } = step else { continue };
        let (cost, now) = (u128::from(*cost), u128::from(*now));
        let in_window = |window: u128| {
            admitted.iter().filter(|(at, _)| at / period + 1 == window).map(|(_, cost)| cost).sum::<u128>()
        };
        let (current, previous) = (in_window(now / period + 1), in_window(now / period));
        let used = current + (previous * (period - now % period)).div_ceil(period);
        let moment = Timestamp::from_nanos(u64::try_from(now).expect("it was one"));
        let allowed = bucket.charge(limit, u64::try_from(cost).expect("it was one"), moment).allowed();
        if allowed != (cost == 0 || used + cost <= count) {
            return Err(format!("step {index}: allowed is {allowed}, but {used} of {count} are used"));
        }
        if allowed {
            admitted.push((now, cost));
        }
        decisions += 1;
    }
    Ok(decisions)
}

/// Every nanosecond of two periods is tried.
#[test]
fn the_wait_ends_at_the_first_nanosecond_that_fits() {
    let mut random = Random::new(tollway_testbed::seed());
    for _ in 0..2_000 {
        let (count, period) = (random.between(1, 12), random.between(1, 40));
        let limit = SlidingWindow::new(count, Duration::from_nanos(period)).unwrap();
        let (mut bucket, mut now) = (SlidingWindowState::default(), random.between(0, 100));
        for _ in 0..random.between(1, 12) {
            let _ = bucket.charge(&limit, random.between(0, count), Timestamp::from_nanos(now));
            now += random.between(0, period);
        }
        let cost = random.between(1, count);
        let decision = bucket.charge(&limit, cost, Timestamp::from_nanos(now));
        let first = (now..=now + 2 * period)
            .find(|at| bucket.check(&limit, cost, Timestamp::from_nanos(*at)).allowed())
            .expect("all is forgotten by then");
        assert_eq!(decision.retry_nanos.get(), first - now, "{limit:?} {cost} at {now}: {bucket:?}");
    }
}

#[test]
fn what_was_used_stays_used_when_the_period_changes() {
    let window = |count, secs| SlidingWindow::new(count, Duration::from_secs(secs)).unwrap();
    let at = |secs| Timestamp::EPOCH + Nanos::from_secs(secs);
    let mut bucket = SlidingWindowState::default();
    assert!(bucket.charge(&window(9, 60), 6, at(70)).allowed());
    for (secs, left) in [(60, 3), (3_600, 3), (10, 3), (7, 3)] {
        assert_eq!(bucket.check(&window(9, secs), 0, at(71)).remaining, left, "{secs}");
    }
}

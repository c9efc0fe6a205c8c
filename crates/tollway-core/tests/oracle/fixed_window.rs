//! Tests that compare the fixed window with a naive one, and with the promise alone.

use std::collections::HashMap;
use std::time::Duration;

use tollway_core::algorithm::{Bucket, FixedWindow, FixedWindowState};
use tollway_core::{Decision, Nanos, Refund, Timestamp};
use tollway_testbed::{Random, compare};

use crate::history::{self, Model, Step};
use crate::naive;

impl Model for naive::NaiveFixedWindow {
    type Bucket = FixedWindowState;
    type Limit = FixedWindow;

    fn any_limit(random: &mut Random) -> FixedWindow {
        let count_max = random.pick(&[3, 20, 1_000, u64::MAX]);
        let period_max = random.pick(&[20, 3_600_000_000_000, 3_600_000_000_000, Nanos::MAX.get()]);
        let (count, period) = (random.between(1, count_max), random.between(1, period_max));
        let [short, long] = [random.between(0, period), random.magnitude(Nanos::MAX.get())];
        let offset = random.pick(&[0, short, long]);
        FixedWindow::new(count, Duration::from_nanos(period), Duration::from_nanos(offset))
            .expect("neither is zero or too large")
    }

    fn spans(limit: &FixedWindow) -> (u64, u64) {
        ((limit.period().get() / 4).max(1), limit.period().get())
    }

    fn cost_max(limit: &FixedWindow) -> u64 {
        limit.count()
    }

    fn spend(&mut self, limit: &FixedWindow, cost: u64, now: Timestamp) -> Decision {
        self.spend(limit, cost, now)
    }

    fn refund(&mut self, limit: &FixedWindow, cost: u64, now: Timestamp) -> Option<Refund> {
        Some(self.refund(limit, cost, now))
    }
}

#[test]
fn every_answer_is_that_of_counting_in_a_window() {
    compare(history::unruly::<naive::NaiveFixedWindow>, history::run::<naive::NaiveFixedWindow>);
}

#[test]
fn lets_in_exactly_so_many_in_each_window() {
    compare(history::calm::<naive::NaiveFixedWindow>, run_windows);
}

/// Every window that ever was keeps what it let in: a request passes if and only if its own window has room for it.
fn run_windows(steps: &[Step<FixedWindow>]) -> Result<u64, String> {
    let Some(Step::Limit(limit)) = steps.first() else { return Ok(0) };
    let (mut bucket, mut admitted, mut decisions) =
        (FixedWindowState::default(), HashMap::<i128, u128>::new(), 0);
    for (index, step) in steps.iter().enumerate() {
        let Step::Spend { cost, now } = step else { continue };
        let since = i128::from(*now) - i128::from(limit.offset().get());
        let window = admitted.entry(since.div_euclid(limit.period().get().into())).or_default();
        let allowed = bucket.charge(limit, *cost, Timestamp::from_nanos(*now)).allowed();
        if allowed != (*window + u128::from(*cost) <= u128::from(limit.count())) {
            return Err(format!("step {index}: allowed is {allowed}, but its window says otherwise"));
        }
        if allowed {
            *window += u128::from(*cost);
        }
        decisions += 1;
    }
    Ok(decisions)
}

fn window(count: u64, period: u64, offset: u64) -> FixedWindow {
    let [period, offset] = [period, offset].map(Duration::from_secs);
    FixedWindow::new(count, period, offset).unwrap()
}

fn at(secs: u64) -> Timestamp {
    Timestamp::EPOCH + Nanos::from_secs(secs)
}

#[test]
fn what_was_used_stays_used_when_the_numbers_change() {
    let mut bucket = FixedWindowState::default();
    assert!(bucket.charge(&window(5, 60, 0), 3, at(70)).allowed());
    // The next limits see the same three, each until the end of its own window.
    for (limit, left, until_end) in [
        (window(5, 60, 0), 2, 49),
        (window(4, 3_600, 0), 1, 3_529),
        (window(2, 10, 0), 0, 9),
        (window(9, 10, 5), 6, 4),
    ] {
        let decision = bucket.check(&limit, 0, at(71));
        assert_eq!(
            (decision.remaining, decision.reset_after()),
            (left, Duration::from_secs(until_end)),
            "{limit:?}"
        );
    }
}

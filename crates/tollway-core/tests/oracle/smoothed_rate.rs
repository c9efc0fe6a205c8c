//! The smoothed rate: in literal doubles, equal to the last bit.

use std::time::Duration;

use tollway_core::algorithm::{Bucket, FORGET_AFTER_PERIODS, SmoothedRate, SmoothedRateState};
use tollway_core::{Decision, Nanos, Refund, Timestamp};
use tollway_testbed::{Random, compare};

use crate::history::{self, Model, Step, Verdict};
use crate::naive;

impl Model for naive::NaiveSmoothedRate {
    type Bucket = SmoothedRateState;
    type Limit = SmoothedRate;

    fn any_limit(random: &mut Random) -> SmoothedRate {
        let limit = match random.between(0, 9) {
            0 => random.between(1, 1_000) as f64 / 1_000.0,
            1..=7 => random.between(1, 50) as f64 / 2.0,
            8 => random.between(1, 1_000_000) as f64,
            _ => random.magnitude(1 << 53).max(1) as f64,
        };
        let period_max = random.pick(&[20, 3_600_000_000_000, 3_600_000_000_000, Nanos::MAX.get() / 1_000]);
        let period = Duration::from_nanos(random.between(1, period_max));
        SmoothedRate::new(limit, period, random.one_in(2)).expect("valid numbers")
    }

    fn spans(limit: &SmoothedRate) -> (u64, u64) {
        (limit.period().get() / limit.cost_max(), limit.period().get() * FORGET_AFTER_PERIODS)
    }

    fn cost_max(limit: &SmoothedRate) -> u64 {
        limit.cost_max()
    }

    fn spend(&mut self, limit: &SmoothedRate, cost: u64, now: Timestamp) -> Decision {
        self.spend(limit, cost, now)
    }

    fn refund(&mut self, _: &SmoothedRate, _: u64, _: Timestamp) -> Option<Refund> {
        None
    }

    /// Any wait is right that ends when the model lets the request in, and not a nanosecond before.
    fn judge(
        &self,
        limit: &SmoothedRate,
        cost: u64,
        now: Timestamp,
        mut expected: Decision,
        found: Decision,
    ) -> Verdict {
        let retry_at = now + found.retry_nanos;
        let too_early = Timestamp::from_nanos(retry_at.as_nanos().saturating_sub(1));
        let waits = found.retry_nanos > Nanos::ZERO;
        if self.over(limit, cost, retry_at) || waits && !self.over(limit, cost, too_early) {
            return Err(format!("the model has another retry_after than {found:?}"));
        }
        expected.retry_nanos = found.retry_nanos;
        history::same(&expected, &found, "decisions agree")
    }
}

#[test]
fn every_answer_is_that_of_literal_doubles() {
    compare(history::unruly::<naive::NaiveSmoothedRate>, history::run::<naive::NaiveSmoothedRate>);
}

#[test]
fn rates_are_equal_to_the_last_bit() {
    compare(history::unruly::<naive::NaiveSmoothedRate>, run_rates);
}

/// As the text protocol asks: every request knocks, and the rate itself is the answer.
fn run_rates(steps: &[Step<SmoothedRate>]) -> Result<u64, String> {
    let (mut limit, mut decisions) = (None, 0);
    let (mut bucket, mut model) = (SmoothedRateState::default(), naive::NaiveSmoothedRate::default());
    for (index, step) in steps.iter().enumerate() {
        if let Step::Limit(changed) = step {
            limit = Some(changed);
        }
        let (Some(limit), Step::Spend { cost, now }) = (limit, step) else { continue };
        let (cost, now) = (*cost.min(&limit.cost_max()), Timestamp::from_nanos(*now));
        let place = |why| format!("step {index}: {why}");
        let reading = bucket.update(limit, cost, now);
        let rate = model.rate(limit, cost, now);
        history::same(&rate.to_bits(), &reading.rate.to_bits(), "rate").map_err(place)?;
        history::same(&model.over(limit, cost, now), &reading.over, "over").map_err(place)?;
        let _ = model.spend(limit, cost, now);
        decisions += 1;
    }
    Ok(decisions)
}

#[test]
fn a_leaky_key_is_not_locked_out_by_a_clock_stepped_back() {
    let limit = SmoothedRate::new(1.5, Duration::from_nanos(100), false).unwrap();
    let mut bucket = SmoothedRateState::default();
    let an_hour_on = 3_600_000_000_000;
    for now in [an_hour_on, an_hour_on, an_hour_on] {
        let _ = bucket.charge(&limit, 1, Timestamp::from_nanos(now));
    }
    let denied = bucket.charge(&limit, 1, Timestamp::EPOCH);
    assert!(!denied.allowed() && denied.retry_nanos < limit.period());
    assert!(bucket.charge(&limit, 1, Timestamp::EPOCH + denied.retry_nanos).allowed());
}

#[test]
fn asking_is_not_the_first_use() {
    let limit = SmoothedRate::new(1.5, Duration::from_nanos(100), false).unwrap();
    let mut bucket = SmoothedRateState::default();
    let _ = bucket.charge(&limit, 0, Timestamp::EPOCH);
    assert_eq!(bucket, SmoothedRateState::default());
}

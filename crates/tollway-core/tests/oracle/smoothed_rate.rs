//! The smoothed rate: in literal doubles, equal to the last bit.

use std::time::Duration;

use tollway_core::algorithm::{Bucket, SmoothedRate, SmoothedRateState};
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
        (limit.period().get() / limit.cost_max(), limit.forget_after(f64::INFINITY).get())
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

/// A rate that is never forgotten: when it was measured, in seconds, and what it was.
struct Unforgotten(f64, f64);

impl Unforgotten {
    fn measure(&self, limit: &SmoothedRate, cost: u64, now: Timestamp) -> f64 {
        let x = (seconds(now) - self.0).max(1e-9) / limit.period().as_secs_f64();
        (1.0 - f64::exp(-x)) / x * cost as f64 + f64::exp(-x) * self.1
    }
}

fn seconds(at: Timestamp) -> f64 {
    at.as_nanos() as f64 / 1e9
}

const PERIOD: Nanos = Nanos::from_secs(100);

/// Returns requests under one limit: their costs, and the time that passes before each.
fn idle_requests(random: &mut Random) -> Vec<(SmoothedRate, u64, Nanos)> {
    let limit = match random.between(0, 5) {
        0 => random.between(1, 100_000) as f64 / 1_000_000.0,
        1 => random.pick(&[0.05, 0.04, 0.5, 1.0, 1.5]),
        2 => random.magnitude(1 << 53).max(1) as f64,
        _ => random.between(1, 50) as f64 / 2.0,
    };
    let limit = SmoothedRate::new(limit, PERIOD.into(), random.one_in(2)).expect("valid numbers");
    let request = |_| {
        let idle = match random.between(0, 6) {
            0..=2 => random.between(0, PERIOD.get()),
            3 => PERIOD.get() * random.between(20, 30),
            4 => limit.forget_after(0.0).get() + random.between(0, 2) - 1,
            5 => limit.forget_after(f64::INFINITY).get() + random.between(0, 2) - 1,
            _ => random.between(0, 1_100 * PERIOD.get()),
        };
        (limit, random.between(1, limit.cost_max()), Nanos::new(idle))
    };
    (0..20).map(request).collect()
}

/// A request after its rate was forgotten gets the same printed rate and the same decision. The stored rate is less
/// than 0.05 too low for each unit.
#[test]
fn forgetting_a_rate_changes_no_answer() {
    compare(idle_requests, |requests| {
        let (mut bucket, mut now) = (SmoothedRateState::default(), Timestamp::EPOCH);
        for (index, (limit, cost, idle)) in requests.iter().enumerate() {
            now = now + *idle;
            if bucket != SmoothedRateState::default() && bucket.expires_at() <= now {
                let (last, rate) = bucket.last();
                let unforgotten = Unforgotten(seconds(last), rate);
                let expected = unforgotten.measure(limit, *cost, now);
                let found = bucket.measure(limit, *cost, now);
                let same = |expected: &str, found: &str, what: &str| {
                    history::same(&expected, &found, what).map_err(|why| format!("request {index}: {why}"))
                };
                let one = (unforgotten.measure(limit, 1, now), bucket.measure(limit, 1, now).rate);
                same(&format!("{:.1}", one.0), &format!("{:.1}", one.1), "the rate that a key is shown")?;
                same(&format!("{}", expected >= limit.limit()), &format!("{}", found.over), "yes or no")?;
                same("true", &format!("{}", expected - found.rate < 0.05 * *cost as f64), "less is counted")?;
            }
            let _ = bucket.update(limit, *cost, now);
        }
        Ok(requests.len() as u64)
    });
}

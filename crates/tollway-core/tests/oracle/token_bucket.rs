//! Tests that compare the token bucket with the formulas of the specification, and with the promise alone.

use std::time::Duration;

use tollway_core::algorithm::{Bucket, TokenBucket, TokenBucketState};
use tollway_core::{
    Algorithm, Decision, InlineAlgorithm, InlineLimit, InlineTokenBucket, Limit, Nanos, Policy, Refund,
    Timestamp,
};
use tollway_testbed::{Random, compare, seed};

use crate::history::{self, Model, Step};
use crate::naive;

impl Model for naive::NaiveTokenBucket {
    type Bucket = TokenBucketState;
    type Limit = TokenBucket;

    fn any_limit(random: &mut Random) -> TokenBucket {
        loop {
            let (burst, count, period) = match random.between(0, 9) {
                0..=2 => (random.between(1, 5), random.between(1, 5), random.between(1, 20)),
                3..=7 => {
                    (random.between(1, 1_000), random.between(1, 1_000), random.between(1, 3_600_000_000_000))
                }
                8 => (random.magnitude(u64::MAX), 1, random.magnitude(Nanos::MAX.get())),
                _ => (random.magnitude(u64::MAX), random.magnitude(u64::MAX), Nanos::MAX.get()),
            };
            if let Ok(limit) = TokenBucket::new(burst, count, Duration::from_nanos(period)) {
                return limit;
            }
        }
    }

    fn cost_max(limit: &TokenBucket) -> u64 {
        limit.burst()
    }

    fn spans(limit: &TokenBucket) -> (u64, u64) {
        (limit.emission_interval().get(), limit.fill_time().get())
    }

    fn spend(&mut self, limit: &TokenBucket, cost: u64, now: Timestamp) -> Decision {
        self.spend(limit, cost, now)
    }

    fn refund(&mut self, limit: &TokenBucket, cost: u64, now: Timestamp) -> Option<Refund> {
        Some(self.refund(limit, cost, now))
    }
}

#[test]
fn every_answer_follows_the_formulas() {
    compare(history::unruly::<naive::NaiveTokenBucket>, history::run::<naive::NaiveTokenBucket>);
}

#[test]
fn says_when_one_more_is_left() {
    compare(history::calm::<naive::NaiveTokenBucket>, |steps| {
        history::run_more::<naive::NaiveTokenBucket>(steps, true)
    });
}

#[test]
fn lets_in_exactly_what_the_promise_does() {
    compare(history::calm::<naive::NaiveTokenBucket>, run_promise);
}

/// Over any time d one id gets at most `burst + rate * d`, and what stays within that is never denied: a request
/// passes if and only if no span that ends with it, from whichever earlier one, would hold too much.
fn run_promise(steps: &[Step<TokenBucket>]) -> Result<u64, String> {
    let Some(Step::Limit(limit)) = steps.first() else { return Ok(0) };
    let interval = u128::from(limit.period().get()) / u128::from(limit.count());
    let conforms = |admitted: &[(u64, u64)], cost: u64, now: u64| {
        let mut together = u128::from(cost);
        together <= u128::from(limit.burst())
            && admitted.iter().rev().all(|(cost, at)| {
                together += u128::from(*cost);
                together * interval <= u128::from(limit.burst()) * interval + u128::from(now - at)
            })
    };
    let (mut bucket, mut admitted, mut decisions) = (TokenBucketState::default(), Vec::new(), 0);
    for (index, step) in steps.iter().enumerate() {
        let Step::Spend { cost, now } = step else { continue };
        let allowed = bucket.charge(limit, *cost, Timestamp::from_nanos(*now)).allowed();
        if allowed != conforms(&admitted, *cost, *now) {
            return Err(format!("step {index}: allowed is {allowed}, but the promise says otherwise"));
        }
        if allowed {
            admitted.push((*cost, *now));
        }
        decisions += 1;
    }
    Ok(decisions)
}

/// Limits whose numbers change again and again, while tokens are spent and come back.
#[test]
fn tokens_that_were_used_stay_used_when_the_numbers_change() {
    let mut random = Random::new(seed());
    for _ in 0..20_000 {
        let mut limit = naive::NaiveTokenBucket::any_limit(&mut random);
        let (mut bucket, mut model) = (TokenBucketState::default(), naive::NaiveTokenBucket::default());
        let mut now = Timestamp::from_nanos(random.pick(&[0, 1_700_000_000_000_000_000]));
        for _ in 0..10 {
            let cost = random.between(0, limit.burst());
            assert_eq!(model.spend(&limit, cost, now), bucket.charge(&limit, cost, now));
            now = now + Nanos::new(random.magnitude(limit.fill_time().get().min(1 << 60)));
            let next = naive::NaiveTokenBucket::any_limit(&mut random);
            let used = limit.burst() - bucket.check(&limit, 0, now).remaining;
            bucket = bucket.converted(limit.emission_interval(), &next, now);
            model.change(&limit, &next, now);
            let left = bucket.check(&next, 0, now).remaining;
            assert_eq!(left, next.burst().saturating_sub(used), "{limit:?}, then {next:?}");
            limit = next;
        }
    }
}

/// Every request brings other numbers, and the clock runs back now and then.
#[test]
fn a_bucket_is_read_under_the_numbers_that_each_request_brings() {
    let mut random = Random::new(seed());
    for _ in 0..20_000 {
        let (mut bucket, mut model) = (TokenBucketState::default(), naive::NaiveTokenBucket::default());
        let mut now = Timestamp::from_nanos(random.pick(&[0, 1_700_000_000_000_000_000]));
        for _ in 0..10 {
            let numbers = InlineAlgorithm::new(naive::NaiveTokenBucket::any_limit(&mut random));
            let Algorithm::TokenBucket(limit) = numbers.algorithm() else { continue };
            let cost = if random.one_in(4) { 1 } else { random.between(0, limit.burst()) };
            if random.one_in(4) {
                assert_eq!(bucket.refund(limit, cost, now), Some(model.refund(limit, cost, now)));
            } else {
                assert_eq!(bucket.charge(limit, cost, now), model.spend(limit, cost, now));
            }
            let step = Nanos::new(random.magnitude(limit.fill_time().get().min(1 << 60)));
            now = if random.one_in(9) { now - step } else { now + step };
        }
    }
}

#[test]
fn what_takes_nothing_leaves_no_mark_for_a_clock_stepped_back_to_find() {
    let limit = TokenBucket::new(3, 1, Duration::from_nanos(2)).unwrap();
    for nothing in [Step::Refund { cost: 1, now: 70 }, Step::Spend { cost: 0, now: 70 }] {
        let steps = [Step::Limit(limit), nothing, Step::Spend { cost: 2, now: 69 }];
        assert_eq!(history::run::<naive::NaiveTokenBucket>(&steps).err(), None);
    }
}

#[test]
fn an_inline_bucket_owes_more_than_smaller_numbers_hold() {
    let numbers = |burst| {
        let inline = InlineTokenBucket::new(TokenBucket::new(burst, 1, Duration::from_secs(1)).unwrap());
        *inline.token_bucket()
    };
    let (large, small, now) = (numbers(10), numbers(2), Timestamp::EPOCH + Nanos::from_secs(100));
    let mut bucket = TokenBucketState::default();
    assert!(bucket.charge(&large, 10, now).allowed());
    let denied = bucket.charge(&small, 1, now);
    assert_eq!((denied.remaining, denied.retry_nanos), (0, Nanos::from_secs(9)), "ten are owed, and two fit");
    let denied = bucket.charge(&large, 1, now);
    assert_eq!(denied.retry_nanos, Nanos::from_secs(1), "the smaller numbers have forgotten nothing");
    assert!(small.is_inline() && !TokenBucket::new(2, 1, Duration::from_secs(1)).unwrap().is_inline());
}

#[test]
fn a_bucket_is_found_by_its_interval_unless_the_numbers_are_inline() {
    let numbers = |burst, count| TokenBucket::new(burst, count, Duration::from_secs(60)).unwrap();
    let limit = Limit::new("Login").unwrap();
    let found_by = |numbers: &TokenBucket| limit.bucket_fingerprint(numbers);
    assert_eq!(found_by(&numbers(5, 10)), found_by(&numbers(9, 10)), "the burst is not a part of it");
    assert_ne!(found_by(&numbers(5, 10)), found_by(&numbers(5, 11)));
    let inline = InlineLimit::default();
    let [one, other] = [numbers(5, 10), numbers(5, 11)].map(InlineAlgorithm::new);
    let [one, other] =
        [&one, &other].map(|numbers| inline.charge(numbers, b"a", 1).unwrap().bucket_fingerprint());
    assert_eq!(one, other, "whatever numbers a request brings");
    let policy =
        Policy::new(vec![limit.clone().with_default(Algorithm::TokenBucket(numbers(5, 10)))]).unwrap();
    let charge = policy.charge("Login", b"a", 1).unwrap();
    assert_eq!(charge.bucket_fingerprint(), policy.limits()[0].bucket_fingerprint(&numbers(5, 10)));
}

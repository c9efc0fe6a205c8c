//! Every algorithm in Lua beside the core's, over random histories: every field of every answer is the same.
//!
//! A batch is one step for each of many ids, so that two hundred thousand of them take seconds.

use tollway::block_on;
use tollway::core::algorithm::{
    FixedWindow, Quota, SlidingLog, SlidingWindow, SmoothedRate, TokenBucket, WINDOW_COUNT_MAX,
};
use tollway::core::{Algorithm, Bill, Charge, ChargeKind, Limit, Nanos, Policy, Timestamp};
use tollway::store::redis::Redis;
use tollway_testbed::{Random, seed};

use crate::model::Model;
use crate::servers;
use crate::world::{WORLDS, World};

/// The number of steps in which each algorithm is compared.
pub(crate) const STEPS: usize = 200_000;
const IDS: usize = 400;

#[test]
fn token_buckets_decide_as_in_the_core() {
    agree("token_bucket", |random, world| {
        let (period, count) = (world.span(random), world.number(random));
        let burst = if random.one_in(2) { world.number(random) } else { random.between(1, 10) };
        Some(Algorithm::TokenBucket(TokenBucket::new(burst, count, period.into()).ok()?))
    });
}

#[test]
fn sliding_logs_decide_as_in_the_core() {
    agree("sliding_log", |random, world| {
        let count = if random.one_in(9) { random.magnitude(300) } else { random.between(1, 10) };
        Some(Algorithm::SlidingLog(SlidingLog::new(count, world.span(random).into()).ok()?))
    });
}

#[test]
fn smoothed_rates_decide_as_in_the_core() {
    agree("smoothed_rate", |random, world| {
        let limit = match random.between(0, 3) {
            0 => world.number(random) as f64,
            1 => random.any() as f64 / u64::MAX as f64 * 3.0,
            _ => random.between(1, 10) as f64 + 0.5,
        };
        let limit = SmoothedRate::new(limit, world.span(random).into(), random.one_in(2));
        Some(Algorithm::SmoothedRate(limit.ok()?))
    });
}

#[test]
fn quotas_decide_as_in_the_core() {
    agree("quota", |random, world| {
        let count = if random.one_in(2) { world.number(random) } else { random.between(1, 10) };
        Some(Algorithm::Quota(Quota::new(count, world.span(random).into()).ok()?))
    });
}

#[test]
fn fixed_windows_decide_as_in_the_core() {
    agree("fixed_window", |random, world| {
        let count = if random.one_in(2) { world.number(random) } else { random.between(1, 10) };
        let offset = if random.one_in(2) { world.span(random) } else { Nanos::ZERO };
        let window = FixedWindow::new(count, any_period(random, world).into(), offset.into());
        Some(Algorithm::FixedWindow(window.ok()?))
    });
}

/// No clock reports such a time. A script that looked for its window without end would stop the Redis for everybody.
#[test]
fn a_window_is_found_at_the_last_of_all_times() {
    let period = Nanos::new(9_000_500_000_000);
    let window = FixedWindow::new(2, period.into(), std::time::Duration::ZERO).unwrap();
    let limit = Limit::new("L").unwrap().with_default(Algorithm::FixedWindow(window));
    let policy = Policy::new(vec![limit]).unwrap();
    let charge = policy.charge("L", b"a", 1).unwrap();
    let last = Timestamp::from_nanos(u64::MAX);
    let decision =
        block_on(servers::store("last").settle(&[Bill::one(&charge)], Some(last))).remove(0).unwrap();
    assert_eq!((decision.allowed(), decision.remaining), (true, 1));
}

#[test]
fn sliding_windows_decide_as_in_the_core() {
    agree("sliding_window", |random, world| {
        let count = if random.one_in(2) { world.number(random) } else { random.between(1, 10) };
        let window = SlidingWindow::new(count.min(WINDOW_COUNT_MAX), any_period(random, world).into());
        Some(Algorithm::SlidingWindow(window.ok()?))
    });
}

/// Returns a span, or as often one of whole seconds, which Lua divides by in another way.
fn any_period(random: &mut Random, world: World) -> Nanos {
    let span = world.span(random);
    if random.one_in(2) { Nanos::from_secs(span.as_secs_rounded_up()) } else { span }
}

/// One id with a limit of its own, in Redis and in the core.
struct Subject {
    id: String,
    limit: Limit,
    model: Model,
}

fn agree(name: &str, mut any_algorithm: impl FnMut(&mut Random, World) -> Option<Algorithm>) {
    let store = servers::store(name);
    let mut random = Random::new(seed());
    let mut steps = 0;
    for (number, world) in WORLDS.into_iter().enumerate() {
        let mut any_limit = |random: &mut Random| {
            let algorithm = std::iter::repeat_with(|| any_algorithm(random, world)).flatten().next().unwrap();
            Limit::new("L").unwrap().with_default(algorithm)
        };
        let subject = |index| Subject {
            id: format!("{number}/{index}"),
            limit: any_limit(&mut random),
            model: Model::default(),
        };
        let mut subjects: Vec<_> = (0..IDS).map(subject).collect();
        let mut now = World::start(&mut random);
        while steps < STEPS * (number + 1) / WORLDS.len() {
            now = world.next(&mut random, now);
            for subject in &mut subjects {
                if random.one_in(60) {
                    change_limit(&store, subject, any_limit(&mut random));
                }
            }
            steps += step(&store, &mut subjects, &mut random, now);
        }
        compare_what_is_held(&store, &mut subjects, now);
    }
}

/// A longer period of a log would bring back what may have expired by then, where the clock is not the test's.
fn change_limit(store: &Redis, subject: &mut Subject, limit: Limit) {
    let period = |limit: &Limit| limit.default_algorithm().unwrap().window();
    if matches!(limit.default_algorithm(), Some(Algorithm::SlidingLog(_)))
        && period(&limit) > period(&subject.limit)
    {
        block_on(store.reset(&[Charge::new(&subject.limit, subject.id.as_bytes(), 0).unwrap()])).unwrap();
        subject.model = Model::default();
    }
    subject.limit = limit;
}

/// Takes one step of each subject: some settle, some check, some refund.
fn step(store: &Redis, subjects: &mut [Subject], random: &mut Random, now: Timestamp) -> usize {
    let (mut settled, mut checked, mut refunded) = (Vec::new(), Vec::new(), Vec::new());
    for Subject { id, limit, model } in &mut *subjects {
        let cost_max = limit.default_algorithm().unwrap().cost_max();
        let cost = match random.between(0, 9) {
            0 => 0,
            1 => cost_max,
            2 | 3 => random.magnitude(cost_max),
            _ => 1.min(cost_max),
        };
        let charge = Charge::new(limit, id.as_bytes(), cost).unwrap();
        match random.between(0, 9) {
            0 => checked.push((charge, model)),
            1 => refunded.push((charge, model)),
            2 => settled.push((
                charge.with_kind(random.pick(&[ChargeKind::SpendOnly, ChargeKind::CheckOnly])),
                model,
            )),
            _ => settled.push((charge, model)),
        }
    }
    let bills: Vec<_> = settled.iter().map(|(charge, _)| Bill::one(charge)).collect();
    let answers = block_on(store.settle(&bills, Some(now)));
    for ((charge, model), answer) in settled.iter_mut().zip(answers) {
        let before = model.clone();
        assert_eq!(answer.unwrap(), model.settle(charge, now), "at {now}: {charge:?} of {before:?}");
    }
    let bills: Vec<_> = checked.iter().map(|(charge, _)| Bill::one(charge)).collect();
    let answers = block_on(store.check(&bills, Some(now)));
    for ((charge, model), answer) in checked.iter_mut().zip(answers) {
        assert_eq!(answer.unwrap(), model.check(charge, now), "at {now}: {charge:?} of {model:?}");
    }
    let (charges, models): (Vec<_>, Vec<_>) = refunded.into_iter().unzip();
    let answers = block_on(store.refund(&charges, Some(now)));
    for ((charge, model), answer) in charges.iter().zip(models).zip(answers) {
        let before = model.clone();
        assert_eq!(answer.unwrap(), model.refund(charge, now), "at {now}: back to {charge:?} of {before:?}");
    }
    subjects.len()
}

fn compare_what_is_held(store: &Redis, subjects: &mut [Subject], now: Timestamp) {
    for subject in subjects {
        let charge = Charge::new(&subject.limit, subject.id.as_bytes(), 0).unwrap();
        // So that a log is held to its limit as it is now, wherever it was spent from last.
        block_on(store.settle(&[Bill::one(&charge)], Some(now)))[0].as_ref().unwrap();
        let _ = subject.model.settle(&charge, now);
        let reading = block_on(store.inspect(&charge, Some(now))).unwrap();
        assert_eq!(reading.state, subject.model.held(charge.algorithm().unwrap(), now), "{charge:?}");
        assert_eq!(reading.decision, subject.model.check(&charge, now), "{charge:?}");
        let one = Charge::new(&subject.limit, subject.id.as_bytes(), 1).unwrap();
        assert_eq!(reading.next, subject.model.check(&one, now), "{charge:?}");
    }
}

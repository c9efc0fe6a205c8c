//! Runs one limiter and one model through the same history. After every step every bucket is asked what it has left, so
//! a denied bill that changed anything anywhere is found at once.

use std::fmt::Debug;
use std::time::Duration;

use tollway::core::algorithm::{FixedWindow, Quota, SlidingLog, SlidingWindow, TokenBucket};
use tollway::core::{Algorithm, Bill, Charge, ChargeKind, Limit, Nanos, Policy, Timestamp};
use tollway::store::memory::Memory;
use tollway::{Clock, Limiter};
use tollway_testbed::{Random, compare};

use crate::model::Model;
use crate::paper::{LIMITS, Line, Paper, PaperRate, PaperRule, any_algorithms, any_lines, charges, policy};

const IDS: [&str; 2] = ["a", "b"];

#[derive(Clone, Debug)]
enum Step {
    Policy(Box<[Algorithm; LIMITS.len()]>),
    Pass(u64),
    Settle(Vec<Paper>),
    Check(Vec<Paper>),
    Refund(Vec<Line>),
    Reset(Line),
    Sweep,
}

fn history(random: &mut Random) -> Vec<Step> {
    let mut steps = vec![Step::Policy(Box::new(any_algorithms(random)))];
    for _ in 0..40 {
        let papers = (0..random.between(1, 3)).map(|_| Paper::any(random, &IDS)).collect();
        steps.push(match random.between(0, 29) {
            0 => Step::Policy(Box::new(any_algorithms(random))),
            1..=6 => Step::Pass(random.magnitude(10_000_000)),
            7..=10 => Step::Check(papers),
            11..=13 => Step::Refund(any_lines(random, &IDS)),
            14 => Step::Reset(any_lines(random, &IDS).remove(0)),
            15 => Step::Sweep,
            _ => Step::Settle(papers),
        });
    }
    steps
}

#[test]
fn a_limiter_does_what_the_model_does() {
    compare(history, run);
}

fn run(steps: &[Step]) -> Result<u64, String> {
    let clock = Clock::manual(Timestamp::from_nanos(1_700_000_000_000_000_000));
    let limiter = Limiter::with(Policy::default(), Memory::new(1_000), clock.clone());
    let (mut model, mut decisions) = (Model::default(), 0);
    for (index, step) in steps.iter().enumerate() {
        let place = |why| format!("step {index}: {why}");
        if let Step::Policy(algorithms) = step {
            let before = limiter.policy();
            limiter.reload(policy(**algorithms, IDS[0]));
            model.reload(&before, &limiter.policy(), clock.now());
        }
        if limiter.policy().limits().is_empty() {
            continue; // A history cut down to before its first policy.
        }
        decisions += take_step(&limiter, &clock, &mut model, step).map_err(place)?;
        decisions += compare_all(&limiter, &clock, &mut model).map_err(place)?;
    }
    Ok(decisions)
}

fn take_step(limiter: &Limiter, clock: &Clock, model: &mut Model, step: &Step) -> Result<u64, String> {
    let (policy, now) = (limiter.policy(), clock.now());
    match step {
        Step::Policy(_) => Ok(0),
        Step::Pass(nanos) => {
            clock.set(now + Nanos::new(*nanos));
            Ok(0)
        }
        Step::Sweep => {
            for _ in 0..64 {
                limiter.sweep(1_000);
            }
            Ok(0)
        }
        Step::Settle(papers) | Step::Check(papers) => {
            let settles = matches!(step, Step::Settle(_));
            let charges: Vec<Vec<Charge<'_>>> =
                papers.iter().map(|paper| charges(&policy, &paper.lines)).collect();
            let keyed: Vec<_> = papers.iter().map(Paper::keyed_rules).collect();
            let rules: Vec<_> =
                papers.iter().zip(&keyed).map(|(paper, keyed)| paper.rule_bills(keyed)).collect();
            let bills = charges.iter().zip(&rules).zip(papers);
            let bills = bills.map(|((charges, rules), paper)| paper.bill(charges, rules));
            let bills: Vec<Bill<'_>> = bills.collect();
            let found = if settles {
                limiter.engine().blocking().settle(&bills)
            } else {
                limiter.engine().blocking().check_bills(&bills)
            };
            let expected = bills.iter().zip(papers).map(|(bill, paper)| match settles {
                true => model.settle(bill, paper, now),
                false => model.check(bill, paper, now),
            });
            same(&expected.collect(), &found)?;
            Ok(found.len() as u64)
        }
        Step::Refund(lines) => {
            let charges = charges(&policy, lines);
            let expected = charges.iter().map(|charge| model.refund(charge, now));
            same(
                &expected.reduce(|one, other| one.and(other)),
                &Some(limiter.engine().blocking().refund_charges(&charges).unwrap()),
            )?;
            Ok(0)
        }
        Step::Reset(line) => {
            model.reset(&charges(&policy, std::slice::from_ref(line))[0]);
            limiter.reset(line.limit, line.id).map_err(|error| error.to_string())?;
            Ok(0)
        }
    }
}

/// Compares a single check of every bucket, by the short way through the limiter, and a check of every log with the
/// model.
fn compare_all(limiter: &Limiter, clock: &Clock, model: &mut Model) -> Result<u64, String> {
    let policy = limiter.policy();
    let mut decisions = 0;
    for (limit, id) in LIMITS.iter().flat_map(|limit| IDS.map(|id| (limit, id))) {
        let charge = policy.charge(limit, id.as_bytes(), 1).unwrap();
        let expected = model.check(&Bill::one(&charge), &Paper::default(), clock.now());
        same(&expected, &limiter.check(limit, id, 1).unwrap())
            .map_err(|why| format!("{limit}:{id}: {why}"))?;
        decisions += 1;
    }
    for (key, user, count) in ["shared", "own"].into_iter().flat_map(|key| [(key, "x", 1), (key, "y", 3)]) {
        let rates = [true, false].map(|of_user| PaperRate { of_user, count, millis: 5 });
        let rule = PaperRule { any: true, rates: rates.to_vec(), key, user };
        let paper = Paper { rules: vec![rule], ..Paper::default() };
        let keyed = paper.keyed_rules();
        let rules = paper.rule_bills(&keyed);
        let bill = Bill::rule(&rules[0]);
        let expected = model.check(&bill, &paper, clock.now());
        same(&[expected].to_vec(), &limiter.engine().blocking().check_bills(&[bill]))
            .map_err(|why| format!("{key}:{user}: {why}"))?;
        decisions += 1;
    }
    Ok(decisions)
}

fn same<T: PartialEq + Debug>(expected: &T, found: &T) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(format!("expected\n  {expected:?}, found\n  {found:?}"))
}

#[test]
fn a_lowered_limit_or_a_clock_stepped_back_locks_nobody_out() {
    let slow = |algorithm: usize| {
        let day = Duration::from_secs(86_400);
        [
            Algorithm::TokenBucket(TokenBucket::new(1, 1, day).unwrap()),
            Algorithm::SlidingLog(SlidingLog::new(1, day).unwrap()),
            Algorithm::Quota(Quota::new(1, day).unwrap()),
            Algorithm::FixedWindow(FixedWindow::new(1, day, Duration::ZERO).unwrap()),
        ][algorithm]
    };
    let quick = |algorithm: usize| {
        let second = Duration::from_secs(1);
        [
            Algorithm::TokenBucket(TokenBucket::new(1, 1, second).unwrap()),
            Algorithm::SlidingLog(SlidingLog::new(1, second).unwrap()),
            Algorithm::Quota(Quota::new(1, second).unwrap()),
            Algorithm::FixedWindow(FixedWindow::new(1, second, Duration::ZERO).unwrap()),
        ][algorithm]
    };
    let policy = |algorithm| Policy::new(vec![Limit::new("L").unwrap().with_default(algorithm)]).unwrap();
    let noon = Timestamp::from_nanos(1_700_000_000_000_000_000);
    for algorithm in 0..4 {
        for kind in [ChargeKind::Spend, ChargeKind::CheckOnly] {
            for (before, step_back) in [(slow(algorithm), 0), (quick(algorithm), 3_600)] {
                let clock = Clock::manual(noon);
                let limiter = Limiter::with(policy(before), Memory::new(1_000), clock.clone());
                assert!(limiter.spend("L", "a", 1).unwrap().allowed());
                limiter.reload(policy(quick(algorithm)));
                let back = noon - Nanos::from_secs(step_back);
                let ask_at = |millis| {
                    clock.set(back + Nanos::from_millis(millis));
                    let policy = limiter.policy();
                    let charge = policy.charge("L", b"a", 1).unwrap().with_kind(kind);
                    limiter.engine().blocking().settle(&[Bill::one(&charge)])[0]
                };
                let asked = (ask_at(0).allowed(), ask_at(999).allowed(), ask_at(1_000).allowed());
                assert_eq!(asked, (false, false, true), "{before:?} {kind:?} back by {step_back}");
            }
        }
    }
}

/// The tokens that are left of a limit of so many an hour, after each change of the numbers.
#[test]
fn tokens_that_were_used_stay_used_when_a_reload_changes_the_numbers() {
    let hour = Duration::from_secs(3_600);
    let policy = |count: u64, other: u64| {
        let numbers = |count| Algorithm::TokenBucket(TokenBucket::new(count, count, hour).unwrap());
        let mut limit = Limit::new("L").unwrap().with_default(numbers(count));
        limit.add_override(b"other", numbers(other)).unwrap();
        Policy::new(vec![limit]).unwrap()
    };
    let clock = Clock::manual(Timestamp::EPOCH);
    let limiter = Limiter::with(policy(1_000, 1_000), Memory::new(100), clock.clone());
    let left = |id: &str| limiter.check("L", id, 0).unwrap().remaining;
    for id in ["idle", "asks", "other"] {
        assert!(limiter.spend("L", id, 1_000).unwrap().allowed());
    }
    limiter.reload(policy(10_000, 1_000));
    assert_eq!((left("asks"), left("other"), left("new")), (9_000, 0, 10_000));
    // Six minutes later a tenth of an hour's tokens have come back, at the new rate or at the old one.
    clock.set(Timestamp::EPOCH + Nanos::from_secs(360));
    assert_eq!((left("asks"), left("other")), (10_000, 100));
    assert!(limiter.spend("L", "asks", 4_000).unwrap().allowed());
    limiter.reload(policy(5_000, 100));
    assert_eq!((left("asks"), left("other")), (1_000, 0));
    limiter.reload(policy(1_000, 2_000));
    // Nobody asked for the third in the meantime: to it, 1000 an hour is all there ever was.
    assert_eq!((left("asks"), left("other"), left("idle")), (0, 1_900, 100));
    assert!(!limiter.spend("L", "asks", 1).unwrap().allowed());
    clock.set(Timestamp::EPOCH + Nanos::from_secs(363) + Nanos::from_millis(600));
    assert_eq!(left("asks"), 1);
    limiter.reload(policy(1_000, 1_000));
    assert_eq!((left("asks"), left("other")), (1, 902));
    // One bucket for each id: none was left behind.
    assert_eq!(limiter.stats().buckets, 3);
}

#[test]
fn a_spend_only_charge_takes_its_whole_cost_or_nothing() {
    let second = Duration::from_secs(1);
    for algorithm in [
        Algorithm::TokenBucket(TokenBucket::new(5, 1, second).unwrap()),
        Algorithm::SlidingLog(SlidingLog::new(5, second).unwrap()),
        Algorithm::Quota(Quota::new(5, second).unwrap()),
        Algorithm::FixedWindow(FixedWindow::new(5, second, Duration::ZERO).unwrap()),
        Algorithm::SlidingWindow(SlidingWindow::new(5, second).unwrap()),
    ] {
        let limit = |name| Limit::new(name).unwrap().with_default(algorithm);
        let policy = Policy::new(vec![limit("Counted"), limit("Voting")]).unwrap();
        let limiter = Limiter::with(policy.clone(), Memory::new(10), Clock::manual(Timestamp::EPOCH));
        for (cost, left) in [(3, 2), (3, 2), (2, 0), (1, 0)] {
            let charges = [
                policy.charge("Counted", b"a", cost).unwrap().with_kind(ChargeKind::SpendOnly),
                policy.charge("Voting", b"a", 1).unwrap(),
            ];
            assert!(limiter.engine().blocking().settle(&[Bill::new(&charges).unwrap()])[0].allowed());
            assert_eq!(
                limiter.check("Counted", "a", 0).unwrap().remaining,
                left,
                "{algorithm:?} cost {cost}"
            );
        }
    }
}

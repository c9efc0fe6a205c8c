//! Token buckets in Redis whose limit gets other numbers: by a reload, by a restart, or in one process before another.

use std::time::Duration;

use tollway::block_on;
use tollway::core::algorithm::TokenBucket;
use tollway::core::{Algorithm, Bill, ChargeKind, Limit, Nanos, Policy, Timestamp};
use tollway::store::redis::Redis;
use tollway_testbed::{Random, seed};

use crate::servers;

const START: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

fn policy(burst: u64, count: u64, period: Duration) -> Policy {
    let numbers = TokenBucket::new(burst, count, period).unwrap();
    Policy::new(vec![Limit::new("L").unwrap().with_default(Algorithm::TokenBucket(numbers))]).unwrap()
}

fn per_hour(count: u64) -> Policy {
    policy(count, count, Duration::from_secs(3_600))
}

/// Spends, and returns whether it was allowed and what is left.
fn spend(store: &Redis, policy: &Policy, cost: u64, now: Timestamp) -> (bool, u64) {
    let charge = policy.charge("L", b"a", cost).unwrap();
    let decision = block_on(store.settle(&[Bill::one(&charge)], Some(now))).remove(0).unwrap();
    (decision.allowed(), decision.remaining)
}

fn left(store: &Redis, policy: &Policy, now: Timestamp) -> u64 {
    let charge = policy.charge("L", b"a", 0).unwrap();
    block_on(store.check(&[Bill::one(&charge)], Some(now))).remove(0).unwrap().remaining
}

#[test]
fn tokens_that_were_used_stay_used_whoever_asks_next() {
    let store = servers::store("raised");
    assert_eq!(spend(&store, &per_hour(1_000), 1_000, START), (true, 0));
    // Nobody told this process what the numbers were.
    assert_eq!(left(&store, &per_hour(10_000), START), 9_000);
    assert_eq!(spend(&store, &per_hour(10_000), 500, START), (true, 8_500));
    assert_eq!(left(&store, &per_hour(5_000), START), 3_500);
    assert_eq!(spend(&store, &per_hour(1_000), 1, START), (false, 0));
    let later = START + Nanos::from_millis(3_600);
    assert_eq!(left(&store, &per_hour(1_000), later), 1);
    // More was used than fitted: whoever has larger numbers finds nothing left.
    let raised = per_hour(2_000);
    assert_eq!(left(&store, &raised, later), 0);
    let charge = raised.charge("L", b"a", 400).unwrap();
    let refunded = block_on(store.refund(&[charge], Some(later))).remove(0).unwrap();
    assert_eq!((refunded.refunded, refunded.remaining), (true, 400));
    let inspected = per_hour(4_000);
    let inspected = inspected.charge("L", b"a", 1).unwrap();
    assert_eq!(block_on(store.inspect(&inspected, Some(later))).unwrap().decision.remaining, 2_400);
}

#[test]
fn a_bucket_of_an_earlier_version_is_taken_as_it_is() {
    let store = servers::store("plain");
    let half_an_hour = START + Nanos::from_secs(1_800);
    servers::server().cli(&["SET", "plain:L:a", &half_an_hour.as_nanos().to_string()]);
    assert_eq!(left(&store, &per_hour(1_000), START), 500);
    assert_eq!(spend(&store, &per_hour(1_000), 100, START), (true, 400));
}

#[test]
fn a_bucket_that_nobody_could_have_written_is_used_up() {
    let store = servers::store("damaged");
    for value in ["1700000001000000000 0", "1700000001000000000 000", "99999999999999999999999 1"] {
        servers::server().cli(&["SET", "damaged:L:a", value]);
        assert_eq!(spend(&store, &per_hour(1_000), 1, START), (false, 0), "{value}");
        assert_eq!(left(&store, &per_hour(1_000), START + Nanos::from_millis(3_600)), 1, "{value}");
    }
}

/// The quick script, and the one for any bill, by numbers that the quick one can hold.
#[test]
fn both_scripts_convert_alike() {
    let (quick, general) = (servers::store("quick"), servers::store("general"));
    let mut random = Random::new(seed());
    let mut now = START;
    for round in 0..2_000 {
        let (burst, count) = (random.between(1, 200), random.between(1, 90));
        let policy = policy(burst, count, Duration::from_nanos(random.between(1, 9) * 123_456_789));
        now = now + Nanos::new(random.magnitude(3_000_000_000));
        let cost = random.between(1, burst);
        let charge = policy.charge("L", b"a", cost).unwrap();
        let one = block_on(quick.settle(&[Bill::one(&charge)], Some(now))).remove(0).unwrap();
        // A second charge, of another bucket that never denies, makes it a bill like any other.
        let beside = policy.charge("L", b"beside", 1).unwrap().with_kind(ChargeKind::SpendOnly);
        let both = [charge, beside];
        let other = block_on(general.settle(&[Bill::new(&both).unwrap()], Some(now))).remove(0).unwrap();
        assert_eq!(one, other, "round {round}");
    }
}

/// Two processes with different numbers ask in turns: together they admit no more than the larger numbers allow.
#[test]
fn processes_that_disagree_about_the_numbers_admit_no_more_than_the_larger_ones() {
    let store = servers::store("disagree");
    let policies = [per_hour(100), per_hour(1_000)];
    let (mut admitted, mut now) = (0, START);
    for turn in 0..20_000 {
        now = now + Nanos::from_millis(30);
        admitted += u64::from(spend(&store, &policies[usize::from(turn % 4 > 0)], 1, now).0);
    }
    let most = 1_000 + 1_000 * now.since(START).get() / Nanos::from_secs(3_600).get();
    assert!((100..=most).contains(&admitted), "{admitted} were admitted, of {most} at most");
}

//! Keys and Throttr's pairs in the memory store: the same bound, the same sweep, and nobody else's buckets.

use std::time::Duration;

use tollway::config::Config;
use tollway::core::algorithm::{
    Change, QuotaCommand, QuotaOperation, QuotaOutcome, QuotaTtl, RateReading, SmoothedRate,
    SmoothedRateState, TtlUnit,
};
use tollway::core::{Nanos, OnFull, OnStoreFailure, Timestamp};
use tollway::rates::RateUpdate;
use tollway::store::memory::Memory;
use tollway::{Clock, Limiter};

fn limiter(max_buckets: usize) -> Limiter {
    let limits = "limits: { Q: { algorithm: quota, count: 9, period: 1h } }";
    let policy = Config::parse(limits, "limits").expect("the limits above").policy;
    Limiter::with(policy, Memory::new(max_buckets), Clock::manual(Timestamp::EPOCH))
}

fn rate() -> SmoothedRate {
    SmoothedRate::new(3.0, Duration::from_secs(1), false).expect("numbers above zero")
}

fn update_rate(limiter: &Limiter, key: &str, on_full: OnFull) -> RateReading {
    let mut readings = Vec::new();
    let rate = rate();
    let update = RateUpdate::of_key(key.as_bytes(), &rate, on_full, OnStoreFailure::Allow);
    limiter.engine().blocking().update_rates(&[update], &mut readings);
    readings[0]
}

fn execute(limiter: &Limiter, pair: &[u8], operation: QuotaOperation) -> QuotaOutcome {
    let mut outcomes = Vec::new();
    limiter
        .engine()
        .blocking()
        .run_quota_commands(&[QuotaCommand { pair, operation, ttl_max: Nanos::FOREVER }], &mut outcomes);
    outcomes[0]
}

fn insert(seconds: u64) -> QuotaOperation {
    QuotaOperation::Insert {
        left: 5,
        lifetime: QuotaTtl { value: seconds, unit: TtlUnit(2) },
        over_live: false,
    }
}

#[test]
fn a_key_is_measured_as_its_bucket_alone_would_be() {
    let limiter = limiter(100);
    let mut alone = SmoothedRateState::default();
    for step in [0, 0, 1, 5, 5, 6, 400, 2_000] {
        limiter.engine().clock().set(Timestamp::EPOCH + Nanos::from_millis(step));
        let now = limiter.engine().clock().now();
        assert_eq!(
            update_rate(&limiter, "ws global", OnFull::Deny),
            alone.update(&rate(), 1, now),
            "at {step} ms"
        );
    }
    assert_eq!(limiter.stats().buckets, 1);
}

#[test]
fn a_batch_is_taken_in_its_order() {
    let limiter = limiter(1_000);
    let names: Vec<String> = (0..200).map(|number| format!("pair {}", number % 70)).collect();
    let commands: Vec<_> = names
        .iter()
        .map(|name| QuotaCommand { pair: name.as_bytes(), operation: insert(10), ttl_max: Nanos::FOREVER })
        .collect();
    let mut outcomes = Vec::new();
    limiter.engine().blocking().run_quota_commands(&commands, &mut outcomes);
    let first_time =
        |(index, outcome): (usize, &QuotaOutcome)| (*outcome == QuotaOutcome::Done) == (index < 70);
    assert!(outcomes.len() == 200 && outcomes.iter().enumerate().all(first_time));
    assert_eq!(limiter.stats().buckets, 70);
}

#[test]
fn no_room_is_a_failure_for_a_pair_and_for_a_key_what_its_rule_says() {
    let limiter = limiter(1);
    assert_eq!(execute(&limiter, b"\x01\x01cr", insert(10)), QuotaOutcome::Done);
    assert_eq!(execute(&limiter, b"\x01\x01cs", insert(10)), QuotaOutcome::Failed);
    assert_eq!(update_rate(&limiter, "a", OnFull::Deny), RateReading::new(0.0, true));
    assert_eq!(update_rate(&limiter, "a", OnFull::Allow), RateReading::new(0.0, false));
    assert_eq!(limiter.stats().refused_full, 3);
    limiter.engine().clock().set(Timestamp::EPOCH + Nanos::from_secs(10));
    assert_eq!(
        execute(&limiter, b"\x01\x01cs", insert(10)),
        QuotaOutcome::Done,
        "an expired pair gives up its place"
    );
}

#[test]
fn asking_and_ending_leave_nothing_behind() {
    let limiter = limiter(10);
    let decrease = QuotaOperation::ChangeLeft { change: Change::Decrease, value: 1 };
    for operation in [QuotaOperation::Query, QuotaOperation::Purge, decrease, insert(0)] {
        let _ = execute(&limiter, b"\x00\x00", operation);
        assert_eq!(limiter.stats().buckets, 0, "{operation:?}");
    }
    let _ = execute(&limiter, b"\x00\x00", insert(10));
    assert_eq!(execute(&limiter, b"\x00\x00", QuotaOperation::Purge), QuotaOutcome::Done);
    limiter.sweep(1_000_000);
    assert_eq!(limiter.stats().buckets, 0, "a purged pair is swept");
}

#[test]
fn a_pair_a_key_and_an_id_of_one_name_are_three_buckets() {
    let limiter = limiter(10);
    assert_eq!(execute(&limiter, b"x", insert(10)), QuotaOutcome::Done);
    assert_eq!(limiter.spend("Q", "x", 9).unwrap().remaining, 0);
    assert_eq!(update_rate(&limiter, "x", OnFull::Deny).rate, 0.0);
    let found = execute(&limiter, b"x", QuotaOperation::Query);
    assert_eq!(found, QuotaOutcome::Found { left: 5, lifetime: QuotaTtl { value: 10, unit: TtlUnit(2) } });
    assert_eq!(limiter.stats().buckets, 3);
}

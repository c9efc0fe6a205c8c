//! Keys and Throttr's pairs in the memory store: the same bound, the same sweep, and nobody else's buckets.

use std::collections::HashMap;
use std::time::Duration;

use tollway::config::Config;
use tollway::core::algorithm::{
    Bucket, Change, Quota, QuotaCommand, QuotaOperation, QuotaOutcome, QuotaState, QuotaTtl, RateReading,
    SmoothedRate, SmoothedRateState, TtlUnit,
};
use tollway::core::{Nanos, OnFull, OnStoreFailure, Timestamp, Verdict};
use tollway::rates::RateUpdate;
use tollway::store::memory::{Memory, MemoryBounds};
use tollway::{Clock, Limiter};
use tollway_testbed::Random;

fn limiter(bounds: impl Into<MemoryBounds>) -> Limiter {
    let limits = "limits: { Q: { algorithm: quota, count: 9, period: 1h } }";
    let policy = Config::parse(limits, "limits").expect("the limits above").policy;
    Limiter::with(policy, Memory::new(bounds), Clock::manual(Timestamp::EPOCH))
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

/// The names of what a random history uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Key(u64),
    Pair(u64),
    Id(u64),
}

/// The state of one bucket in the model.
enum State {
    Rate(SmoothedRateState),
    Quota(QuotaState),
}

impl State {
    fn is_live(&self, now: Timestamp) -> bool {
        let expires_at = match self {
            Self::Rate(rate) => rate.expires_at(),
            Self::Quota(quota) => quota.expires_at(),
        };
        expires_at > now
    }
}

#[test]
fn a_new_bucket_finds_room_if_and_only_if_the_live_buckets_of_its_kind_leave_some() {
    const MAX: usize = 40;
    for max_client_buckets in [Some(1), Some(13), None, Some(MAX)] {
        let share = max_client_buckets.unwrap_or(MAX / 2);
        let limiter = limiter(MemoryBounds { max_buckets: MAX, max_client_buckets });
        let quota = Quota::new(9, Duration::from_secs(3_600)).expect("numbers above zero");
        let mut random = Random::new(share as u64);
        let mut model: HashMap<Name, State> = HashMap::new();
        let (mut refused, mut millis) = (0, 0);
        for step in 0..20_000 {
            // Now and then so much time passes that whole kinds of buckets expire.
            millis += if random.below(200) == 0 { random.below(4_000_000) } else { random.below(1_000) };
            let now = Timestamp::EPOCH + Nanos::from_millis(millis);
            limiter.engine().clock().set(now);
            model.retain(|_, state| state.is_live(now));
            let client_made = model.keys().filter(|name| !matches!(name, Name::Id(_))).count();
            let (room, room_for_client) = (model.len() < MAX, model.len() < MAX && client_made < share);
            let (kind, number) = (random.below(3), random.below(60));
            let (done, expected) = match kind {
                0 => {
                    let known = model.get(&Name::Key(number));
                    let mut state = match known {
                        Some(State::Rate(state)) => *state,
                        _ => SmoothedRateState::default(),
                    };
                    let has_room = known.is_some() || room_for_client;
                    let expected =
                        if has_room { state.update(&rate(), 1, now) } else { RateReading::new(0.0, true) };
                    if has_room {
                        model.insert(Name::Key(number), State::Rate(state));
                    }
                    (update_rate(&limiter, &number.to_string(), OnFull::Deny) == expected, has_room)
                }
                1 => {
                    let known = model.contains_key(&Name::Pair(number));
                    let operation =
                        if random.below(4) == 0 { QuotaOperation::Purge } else { insert(random.below(60)) };
                    let mut state = match model.remove(&Name::Pair(number)) {
                        Some(State::Quota(state)) => state,
                        _ => QuotaState::default(),
                    };
                    let expected = state.apply(operation, Nanos::FOREVER, now);
                    let has_room = known || state.expires_at() <= now || room_for_client;
                    if has_room {
                        model.insert(Name::Pair(number), State::Quota(state));
                    }
                    let expected = if has_room { expected } else { QuotaOutcome::Failed };
                    (execute(&limiter, &number.to_le_bytes(), operation) == expected, has_room)
                }
                _ => {
                    let known = model.get(&Name::Id(number));
                    let mut state = match known {
                        Some(State::Quota(state)) => *state,
                        _ => QuotaState::default(),
                    };
                    let has_room = known.is_some() || room;
                    let decision = state.charge(&quota, 1, now);
                    let expected = if has_room { decision.verdict } else { Verdict::DenyFull };
                    if has_room {
                        model.insert(Name::Id(number), State::Quota(state));
                    }
                    let decision = limiter.spend("Q", number.to_string(), 1).expect("a limit");
                    (decision.verdict == expected, has_room)
                }
            };
            assert!(done, "step {step}, kind {kind}, share {share}");
            refused += u64::from(!expected);
            model.retain(|_, state| state.is_live(now));
            let client_made = model.keys().filter(|name| !matches!(name, Name::Id(_))).count();
            let stats = limiter.stats();
            assert!((model.len()..=MAX).contains(&stats.buckets), "step {step}: {stats:?}");
            assert!((client_made..=share).contains(&stats.client_buckets), "step {step}: {stats:?}");
            if step % 100 == 0 {
                limiter.sweep(usize::MAX);
                let stats = limiter.stats();
                assert_eq!((stats.buckets, stats.client_buckets), (model.len(), client_made), "step {step}");
            }
        }
        assert_eq!(limiter.stats().refused_full, refused);
        assert!(refused > 100, "only {refused} were refused");
    }
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

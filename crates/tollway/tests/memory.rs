//! The memory store at its bound: who stays, who is turned away, and what is given back.

use std::time::Duration;

use tollway::config::Config;
use tollway::core::algorithm::{Bucket, FixedWindow, SlidingLogState, SlidingWindow, TokenBucket};
use tollway::core::{
    Algorithm, Bill, Decision, InlineAlgorithm, InlineLimit, KeyedRule, Limit, Nanos, Policy, RuleLimit,
    Timestamp, Verdict,
};
use tollway::engine::Engine;
use tollway::store::memory::{Memory, MemoryBounds};
use tollway::{Clock, Limiter};

const LIMITS: &str = "
limits:
  Deny:   { burst: 2, count: 1, period: 1s }
  Allow:  { burst: 2, count: 1, period: 1s, on_full: allow }
  Log:    { algorithm: sliding_log, count: 2, period: 1s }
  Rate:   { algorithm: smoothed_rate, count: 2, period: 1s }
  Quota:  { algorithm: quota, count: 2, period: 1s }
";

fn limiter(max_buckets: usize) -> Limiter {
    let policy = Config::parse(LIMITS, "limits").expect("the limits above").policy;
    Limiter::with(policy, Memory::new(max_buckets), Clock::manual(Timestamp::EPOCH))
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::EPOCH + Nanos::from_secs(seconds)
}

#[test]
fn a_new_id_is_turned_away_and_a_live_bucket_never_evicted() {
    let limiter = limiter(2);
    for id in ["a", "b"] {
        assert_eq!(limiter.spend("Deny", id, 2).unwrap().verdict, Verdict::Allow);
    }
    for id in 0..1_000 {
        let decision = limiter.spend("Deny", format!("new-{id}"), 1).unwrap();
        assert_eq!(decision.verdict, Verdict::DenyFull);
        assert!(decision.retry_nanos > Nanos::ZERO, "a denial says when to come again");
        assert_eq!(limiter.spend("Allow", format!("new-{id}"), 1).unwrap().verdict, Verdict::AllowFull);
    }
    for id in ["a", "b"] {
        assert_eq!(limiter.spend("Deny", id, 1).unwrap().verdict, Verdict::Deny, "{id} was forgotten");
    }
    let stats = limiter.stats();
    assert_eq!((stats.buckets, stats.max_buckets, stats.refused_full), (2, 2, 2_000));
}

#[test]
fn the_buckets_of_inline_limits_are_made_by_clients() {
    let memory = Memory::new(4);
    let limit = InlineLimit::new("throttle").unwrap();
    let numbers = |seconds| {
        InlineAlgorithm::new(TokenBucket::new(2, 1, Duration::from_secs(seconds)).expect("sensible numbers"))
    };
    let (slow, fast) = (numbers(10), numbers(1));
    let spend = |numbers, id| memory.charge(&limit.charge(numbers, id, 1).unwrap(), || Timestamp::EPOCH);
    assert_eq!(spend(&slow, b"a").verdict, Verdict::Allow);
    assert_eq!(spend(&fast, b"a").verdict, Verdict::Deny, "the same bucket, which owes more than two");
    assert_eq!(spend(&fast, b"b").verdict, Verdict::Allow);
    assert_eq!(
        spend(&fast, b"c").verdict,
        Verdict::DenyFull,
        "half of the buckets are for configured limits"
    );
    assert_eq!((memory.stats().buckets, memory.stats().client_buckets), (2, 2));
    let policy = Config::parse(LIMITS, "limits").expect("the limits above").policy;
    let (configured, inline) =
        (policy.charge("Deny", b"a", 1).unwrap(), limit.charge(&fast, b"c", 1).unwrap());
    let mut decisions = Vec::new();
    let bill = [configured.clone(), inline];
    memory.settle(&[Bill::new(&bill).unwrap()], Timestamp::EPOCH, &mut decisions);
    assert_eq!(decisions[0].verdict, Verdict::DenyFull, "a bill has both kinds");
    assert_eq!(memory.stats().buckets, 2);
    assert_eq!(memory.charge(&configured, || Timestamp::EPOCH).verdict, Verdict::Allow);
    memory.settle(&[Bill::new(&bill).unwrap()], at(1), &mut decisions);
    assert_eq!(decisions[1].verdict, Verdict::Allow, "a bucket of each kind has expired");
    assert_eq!((memory.stats().buckets, memory.stats().client_buckets), (3, 2));
    memory.reset(&limit.charge(&fast, b"c", 1).unwrap());
    assert_eq!((memory.stats().buckets, memory.stats().client_buckets), (2, 1));
}

#[test]
fn clients_can_make_as_many_buckets_as_there_are_and_no_more() {
    let bounds = |max_client_buckets| MemoryBounds { max_buckets: 10, max_client_buckets };
    for fits in [None, Some(0), Some(10)] {
        assert_eq!(bounds(fits).checked(), Ok(bounds(fits)));
    }
    assert!(bounds(Some(11)).checked().is_err());
}

#[test]
fn asking_without_spending_takes_no_place() {
    let limiter = limiter(1);
    for id in 0..100 {
        assert_eq!(limiter.spend("Deny", format!("{id}"), 0).unwrap().verdict, Verdict::Allow);
        assert_eq!(limiter.check("Deny", format!("{id}"), 1).unwrap().verdict, Verdict::Allow);
        let _ = limiter.refund("Deny", format!("{id}"), 1).unwrap();
    }
    assert_eq!(limiter.stats().buckets, 0);
    let _ = limiter.spend("Deny", "a", 1).unwrap();
    assert_eq!(limiter.check("Deny", "b", 1).unwrap().verdict, Verdict::DenyFull, "a check foresees it");
}

#[test]
fn a_place_is_free_again_as_soon_as_its_bucket_says_nothing() {
    for limit in ["Deny", "Log", "Rate", "Quota"] {
        let limiter = limiter(3);
        for round in 0..50 {
            limiter.engine().clock().set(at(round * 2_000));
            for id in 0..3 {
                let decision = limiter.spend(limit, format!("{round}-{id}"), 1).unwrap();
                assert_eq!(decision.verdict, Verdict::Allow, "{limit}, round {round}, id {id}");
            }
        }
        assert_eq!(limiter.stats().buckets, 3, "{limit}");
        assert_eq!(limiter.stats().swept, 49 * 3, "{limit}");
    }
}

/// Fills a store with buckets that live for long, but for one that has expired. Nothing else was swept.
fn full_but_for_one_expired() -> Limiter {
    const BUCKETS: usize = 9_000;
    let limits = "
limits:
  Long:  { burst: 1, count: 1, period: 1h }
  Short: { burst: 1, count: 1, period: 1s }
  Log:   { algorithm: sliding_log, count: 2, period: 1h }
";
    let policy = Config::parse(limits, "limits").expect("the limits above").policy;
    let limiter = Limiter::with(policy, Memory::new(BUCKETS), Clock::manual(Timestamp::EPOCH));
    for id in 0..BUCKETS {
        let limit = if id == BUCKETS / 2 { "Short" } else { "Long" };
        assert!(limiter.spend(limit, format!("{id}"), 1).expect("a limit").allowed());
    }
    assert_eq!(limiter.spend("Long", "too early", 1).expect("a limit").verdict, Verdict::DenyFull);
    limiter.engine().clock().set(at(1));
    limiter
}

fn settle(limiter: &Limiter, names: &[(&str, &str)]) -> Decision {
    let policy = limiter.policy();
    let charges: Vec<_> =
        names.iter().map(|(limit, id)| policy.charge(limit, id.as_bytes(), 1).expect("a limit")).collect();
    limiter.engine().blocking().settle(&[Bill::new(&charges).expect("few charges")])[0]
}

#[test]
fn the_only_expired_bucket_makes_room_before_anybody_is_refused() {
    type Request = fn(&Limiter) -> Verdict;
    let requests: [(&str, Request); 5] = [
        ("a charge", |limiter| limiter.spend("Long", "new", 1).unwrap().verdict),
        ("a log", |limiter| limiter.spend("Log", "new", 1).unwrap().verdict),
        ("a check", |limiter| limiter.check("Long", "new", 1).unwrap().verdict),
        ("a bill", |limiter| settle(limiter, &[("Long", "0"), ("Long", "new")]).verdict),
        ("a rule", |limiter| {
            let rule = KeyedRule::new(RuleLimit::new("user:9/h".parse().unwrap()), "", "key");
            limiter.engine().blocking().resolve(&rule.bill(|_| Ok::<_, ()>(Some("new"))).unwrap()).verdict
        }),
    ];
    for (name, request) in requests {
        let limiter = full_but_for_one_expired();
        // The bucket of the bill that is there already was used up.
        let expected = if name == "a bill" { Verdict::Deny } else { Verdict::Allow };
        assert_eq!(request(&limiter), expected, "{name}");
        assert_eq!(limiter.stats().swept, 1, "{name}");
        assert_eq!(limiter.stats().refused_full, 1, "{name}: only the one that came too early");
    }
}

#[test]
fn a_bill_of_several_charges_finds_the_room_that_expired_buckets_had_even_in_its_own_shards() {
    let limiter = limiter(2);
    for round in 0..50 {
        limiter.engine().clock().set(at(round * 10));
        let (first, second) = (format!("a{round}"), format!("b{round}"));
        let decision = settle(&limiter, &[("Deny", &first), ("Quota", &second)]);
        assert_eq!(decision.verdict, Verdict::Allow, "round {round}");
        assert_eq!(limiter.stats().buckets, 2);
        assert_eq!(limiter.spend("Deny", "another", 1).unwrap().verdict, Verdict::DenyFull);
    }
    assert_eq!(limiter.stats().refused_full, 50);
}

#[test]
fn a_bill_that_may_pass_a_full_store_is_charged_once() {
    let limiter = limiter(1);
    let _ = limiter.spend("Quota", "there", 1).unwrap();
    assert!(settle(&limiter, &[("Quota", "there"), ("Allow", "new")]).allowed());
    assert_eq!(limiter.check("Quota", "there", 0).unwrap().remaining, 0);
    assert_eq!(limiter.stats().refused_full, 1);
}

#[test]
fn a_bucket_that_a_refund_made_expire_earlier_gives_up_its_place() {
    let limiter = limiter(1);
    let _ = limiter.spend("Deny", "a", 2).unwrap();
    assert_eq!(limiter.spend("Deny", "b", 1).unwrap().verdict, Verdict::DenyFull);
    let _ = limiter.refund("Deny", "a", 2).unwrap();
    assert_eq!(limiter.spend("Deny", "b", 1).unwrap().verdict, Verdict::Allow);
}

#[test]
fn reset_gives_a_place_back_once() {
    let limiter = limiter(1);
    let _ = limiter.spend("Deny", "a", 1).unwrap();
    for _ in 0..3 {
        limiter.reset("Deny", "a").unwrap();
        assert_eq!(limiter.stats().buckets, 0);
    }
    assert_eq!(limiter.spend("Deny", "b", 1).unwrap().verdict, Verdict::Allow);
}

#[test]
fn a_bill_that_finds_no_room_takes_nothing_and_leaves_no_place_taken() {
    let limiter = limiter(2);
    let _ = limiter.spend("Deny", "there", 1).unwrap();
    let denied = settle(&limiter, &[("Deny", "there"), ("Deny", "new-1"), ("Quota", "new-2")]);
    assert_eq!((denied.verdict, denied.charge), (Verdict::DenyFull, 2));
    assert_eq!(limiter.check("Deny", "there", 0).unwrap().remaining, 1, "denied, it cost nothing");
    assert_eq!(limiter.stats().buckets, 1);
    assert_eq!(settle(&limiter, &[("Deny", "there"), ("Deny", "new-1")]).verdict, Verdict::Allow);
    assert_eq!(limiter.stats().buckets, 2);
}

#[test]
fn a_million_ids_come_and_go_and_only_the_live_ones_stay() {
    let limiter = limiter(2_000_000);
    for id in 0..1_000_000_u64 {
        // A bucket lives for a second: a thousand ids.
        limiter.engine().clock().set(Timestamp::from_nanos(id * 1_000_000));
        assert!(limiter.spend("Deny", id.to_le_bytes(), 1).unwrap().allowed());
    }
    let buckets = limiter.stats().buckets;
    assert!(buckets < 20_000, "{buckets} buckets are kept for 1,000 that are live");
    while limiter.sweep(1_000_000) > 0 {}
    assert!(limiter.stats().buckets <= 1_000, "{} after sweeping", limiter.stats().buckets);
}

#[test]
fn no_bound_at_all_takes_no_more_memory_than_its_buckets() {
    let limiter = limiter(usize::MAX);
    for id in 0..600_000_u32 {
        assert!(limiter.spend("Deny", id.to_le_bytes(), 1).unwrap().allowed());
    }
    assert_eq!(limiter.stats().buckets, 600_000);
}

/// The number of entries that fit in memory when there are few buckets.
const ENTRIES: usize = 1 << 21;

fn log_limiter() -> Limiter {
    let limits = "limits: { Long: { algorithm: sliding_log, count: 60000, period: 1h } }";
    let policy = Config::parse(limits, "limits").expect("the limit above").policy;
    Limiter::with(policy, Memory::new(1_000), Clock::manual(Timestamp::EPOCH))
}

#[test]
fn logs_take_memory_for_so_many_entries_and_no_more() {
    let limiter = log_limiter();
    let full =
        |id: usize| limiter.spend("Long", format!("{id}"), 60_000).unwrap().verdict == Verdict::DenyFull;
    // One too many may be let in: who finds a little room may take all it needs.
    let held = (0..100).take_while(|id| !full(*id)).count();
    assert_eq!(held, ENTRIES.div_ceil(60_000));
    assert!(full(100), "a new id");
    assert_eq!(limiter.spend("Long", "0", 1).unwrap().verdict, Verdict::Deny, "a log that is there");
    limiter.engine().clock().set(at(3_600));
    assert!(limiter.sweep(usize::MAX) >= held);
    assert!(!full(100), "memory is given back with the logs");
}

#[test]
fn the_memory_of_expired_logs_is_free_for_others_at_once() {
    let limiter = log_limiter();
    let full =
        |id: usize| limiter.spend("Long", format!("{id}"), 60_000).unwrap().verdict == Verdict::DenyFull;
    let held = (0..100).take_while(|id| !full(*id)).count();
    limiter.engine().clock().set(at(3_600));
    for id in 100..100 + held {
        assert!(!full(id), "{id}");
    }
    assert!(full(200));
    limiter.engine().clock().set(at(7_200));
    let rule = KeyedRule::new(RuleLimit::new("Or('user:9/h', 'x:9/h')".parse().unwrap()), "", "key");
    let bill = rule.bill(|_| Ok::<_, ()>(Some("late"))).unwrap();
    assert_eq!(limiter.engine().blocking().resolve(&bill).verdict, Verdict::Allow);
}

#[test]
fn a_rule_that_finds_no_memory_for_an_entry_says_so() {
    let limiter = log_limiter();
    let resolve = |text: &str, user: &str| {
        let rule = KeyedRule::new(RuleLimit::new(text.parse().unwrap()), "", "key");
        limiter.engine().blocking().resolve(&rule.bill(|_| Ok::<_, ()>(Some(user))).unwrap()).verdict
    };
    // With its second entry a log gets memory for four.
    for _ in 0..2 {
        assert_eq!(resolve("Or('user:9/h', 'x:9/h')", "early"), Verdict::Allow);
    }
    for id in 0..ENTRIES.div_ceil(60_000) {
        let _ = limiter.spend("Long", format!("{id}"), 60_000).unwrap();
    }
    for rule in ["user:9/h", "Or('user:9/h', 'x:9/h')"] {
        assert_eq!(resolve(rule, "late"), Verdict::DenyFull);
        assert_eq!(resolve(rule, "early"), Verdict::Allow, "there is room in its log");
    }
}

#[test]
fn sixteen_requests_of_the_highest_cost_leave_half_of_the_entries_to_others() {
    let limits = "limits: { Long: { algorithm: sliding_log, count: 65536, period: 1h } }";
    let policy = Config::parse(limits, "limits").expect("the limit above").policy;
    let limiter = Limiter::with(policy, Memory::new(1_000), Clock::manual(Timestamp::EPOCH));
    let spend = |id: usize| limiter.spend("Long", format!("{id}"), 65_536).unwrap().verdict;
    for id in 0..32 {
        assert_eq!(spend(id), Verdict::Allow, "{id}");
    }
    assert_eq!(spend(32), Verdict::DenyFull);
}

#[test]
fn one_log_has_at_most_a_sixteenth_of_the_entries_that_count() {
    const SHARE: u64 = ENTRIES as u64 / 16;
    // One rule has one log, the other two, which are locked together.
    for rule in ["user:200000/h", "Or('user:200000/h', 'user:200000/h', 'x:9/h')"] {
        let limiter = log_limiter();
        let rule = KeyedRule::new(RuleLimit::new(rule.parse().unwrap()), "", "key");
        let resolve = |user: &str| {
            let bill = rule.bill(|selector| Ok::<_, ()>((selector == "user").then_some(user))).unwrap();
            limiter.engine().blocking().resolve(&bill).verdict
        };
        for number in 0..SHARE {
            limiter.engine().clock().set(at(if number < SHARE / 2 { 0 } else { 1_800 }));
            assert_eq!(resolve("busy"), Verdict::Allow, "{number}");
        }
        assert_eq!(resolve("busy"), Verdict::DenyFull);
        assert_eq!(resolve("another"), Verdict::Allow);
        // Half of the entries are an hour old, and make way for as many.
        limiter.engine().clock().set(at(3_600));
        for number in 0..SHARE / 2 {
            assert_eq!(resolve("busy"), Verdict::Allow, "{number}");
        }
        assert_eq!(resolve("busy"), Verdict::DenyFull);
    }
}

#[test]
fn a_log_that_has_its_share_still_denies_by_its_rate() {
    let limiter = log_limiter();
    let rule = KeyedRule::new(RuleLimit::new("user:131072/h".parse().unwrap()), "", "key");
    let bill = rule.bill(|_| Ok::<_, ()>(Some("busy"))).unwrap();
    let engine = limiter.engine().blocking();
    for number in 0..131_072 {
        assert_eq!(engine.resolve(&bill).verdict, Verdict::Allow, "{number}");
    }
    assert_eq!(engine.resolve(&bill).verdict, Verdict::Deny);
    assert_eq!(limiter.stats().refused_full, 0);
}

#[test]
fn a_thousand_entries_take_eight_bytes_each() {
    let mut log = SlidingLogState::default();
    for second in 0..5_000 {
        log.record(at(second), 1_000, Nanos::from_secs(3_600));
        assert!(
            log.room() <= 1_000 && log.room() < 2 * log.entries().max(4),
            "{} for {}",
            log.room(),
            log.entries()
        );
    }
    assert_eq!((log.entries(), log.room() * size_of::<Timestamp>()), (1_000, 8_000));
}

/// Returns a limiter with one limit whose bucket of two is empty at second 0, and which becomes slower at second 1.
fn made_slower(max_buckets: usize) -> (Limiter, Clock) {
    let numbers = |period| {
        let limits = format!("limits: {{ Slowed: {{ burst: 2, count: 1, period: {period} }} }}");
        Config::parse(&limits, "limits").expect("the limits above").policy
    };
    let clock = Clock::manual(Timestamp::EPOCH);
    let limiter = Limiter::with(numbers("1s"), Memory::new(max_buckets), clock.clone());
    assert_eq!(limiter.spend("Slowed", "a", 2).expect("a valid charge").verdict, Verdict::Allow);
    clock.set(at(1));
    limiter.reload(numbers("100s"));
    (limiter, clock)
}

#[test]
fn a_bucket_is_kept_while_numbers_that_made_its_limit_slower_count_it() {
    for later in [2, 50, 99] {
        let (limiter, clock) = made_slower(100);
        clock.set(at(1 + later));
        assert_eq!(limiter.sweep(usize::MAX), 0, "one token is used, for a hundred seconds");
        let left = limiter.check("Slowed", "a", 0).unwrap();
        assert_eq!((left.remaining, left.reset_nanos), (1, Nanos::from_secs(100 - later)));
    }
    // Nothing is used any more, even of a bucket that was empty at the change.
    let (limiter, clock) = made_slower(100);
    clock.set(at(201));
    assert_eq!((limiter.sweep(usize::MAX), limiter.stats().buckets), (1, 0));
}

#[test]
fn a_bucket_is_kept_through_several_changes_of_its_limit() {
    let (limiter, clock) = made_slower(100);
    clock.set(at(51));
    let policy = Config::parse("limits: { Slowed: { burst: 2, count: 1, period: 1000s } }", "limits");
    limiter.reload(policy.expect("a limit").policy);
    clock.set(at(151));
    assert_eq!(limiter.sweep(usize::MAX), 0);
    let left = limiter.check("Slowed", "a", 0).unwrap();
    assert_eq!((left.remaining, left.reset_nanos), (1, Nanos::from_secs(900)));
}

/// An expired bucket stays in the store because another limit was changed. The limit that it is of got other numbers
/// twice, and then those of the bucket again: it was found in the place of the newer one, which was spent.
#[test]
fn numbers_that_come_back_find_no_bucket_from_before() {
    let clock = Clock::manual(at(0));
    let policy = |numbers: &str, other: u64| {
        let other = format!("Other: {{ burst: 10, count: 1, period: {other}h }}");
        Config::parse(&format!("limits: {{ A: {{ {numbers} }}, {other} }}"), "limits").unwrap().policy
    };
    let [first, quick, slow] = [
        "burst: 4, count: 5, period: 60s",
        "burst: 10, count: 8, period: 7s",
        "burst: 4, count: 1, period: 1h",
    ];
    let engine = Engine::with(policy(first, 1), Memory::new(100), clock.clone());
    let limiter = engine.blocking();
    let spend = |seconds, cost| {
        clock.set(at(seconds));
        let policy = engine.policy();
        let charge = policy.charge("A", b"a", cost).unwrap();
        limiter.settle(&[Bill::one(&charge)])[0]
    };
    engine.reload(policy(first, 2));
    assert!(spend(1, 1).allowed());
    for (seconds, numbers) in [(2, quick), (100, slow)] {
        clock.set(at(seconds));
        engine.reload(policy(numbers, 2));
    }
    assert!(spend(101, 4).allowed());
    clock.set(at(200));
    engine.reload(policy(first, 2));
    let decision = spend(201, 1);
    assert_eq!((decision.allowed(), decision.reset_nanos), (false, Nanos::from_secs(47)));
}

#[test]
fn a_full_store_drops_what_it_keeps_for_changed_limits_before_it_refuses() {
    let (limiter, clock) = made_slower(1);
    clock.set(at(50));
    assert_eq!(limiter.spend("Slowed", "new", 1).unwrap().verdict, Verdict::Allow);
    assert_eq!(limiter.spend("Slowed", "a", 1).unwrap().verdict, Verdict::DenyFull);
}

/// The words of a hot window must not be read as those of a window of another kind, which has the same hash.
#[test]
fn a_limit_that_gets_another_algorithm_starts_anew_while_its_bucket_is_hot() {
    let hour = Duration::from_secs(3_600);
    let algorithms = [
        Algorithm::from(SlidingWindow::new(10, hour).unwrap()),
        FixedWindow::new(10, hour, Duration::ZERO).unwrap().into(),
        TokenBucket::new(10, 1, hour).unwrap().into(),
    ];
    let policy = |algorithm| Policy::new(vec![Limit::new("A").unwrap().with_default(algorithm)]).unwrap();
    for (first, second) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
        let limiter = Limiter::with(policy(algorithms[first]), Memory::new(100), Clock::manual(at(1_000)));
        let left = || limiter.spend("A", "alice", 1).unwrap().remaining;
        assert_eq!([left(), left(), left(), left()], [9, 8, 7, 6]);
        limiter.reload(policy(algorithms[second]));
        assert_eq!([left(), left(), left(), left()], [9, 8, 7, 6], "{first} and then {second}");
    }
}

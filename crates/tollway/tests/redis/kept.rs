//! Checks that Redis keeps small values, no longer than they have an effect, and nothing for a check.

use std::time::Duration;

use tollway::block_on;
use tollway::core::algorithm::{
    FixedWindow, Quota, QuotaCommand, QuotaOperation, QuotaTtl, SlidingLog, SlidingWindow, SmoothedRate,
    TokenBucket, TtlUnit,
};
use tollway::core::{Algorithm, Bill, Charge, ChargeKind, Decision, Limit, Nanos};
use tollway::store::redis::Redis;
use tollway_testbed::{Random, RedisServer, seed};

use crate::servers;

/// A server of its own, whose writes are counted, and one limit of each algorithm.
struct Bench {
    server: RedisServer,
    store: Redis,
    limits: [Limit; 6],
}

impl Bench {
    fn new() -> Self {
        let server = RedisServer::start();
        let store = servers::open(&server.url(), "kept");
        let period = Duration::from_secs(1);
        // Windows end by the clock, at any step of a test, so that they are long.
        let window = Duration::from_secs(499);
        let limit = |name: &str, algorithm| Limit::new(name).unwrap().with_default(algorithm);
        let limits = [
            limit("Bucket", Algorithm::TokenBucket(TokenBucket::new(1_000, 7, period).unwrap())),
            limit("Log", Algorithm::SlidingLog(SlidingLog::new(1_000, period).unwrap())),
            limit("Rate", Algorithm::SmoothedRate(SmoothedRate::new(1_000.0, period, false).unwrap())),
            limit("Quota", Algorithm::Quota(Quota::new(1_000, period).unwrap())),
            limit("Fixed", Algorithm::FixedWindow(FixedWindow::new(1_000, window, period).unwrap())),
            limit("Sliding", Algorithm::SlidingWindow(SlidingWindow::new(1_000, window).unwrap())),
        ];
        Self { server, store, limits }
    }

    fn settle(&self, charge: &Charge<'_>) -> Decision {
        block_on(self.store.settle(&[Bill::one(charge)], None)).remove(0).unwrap()
    }

    fn check(&self, charge: &Charge<'_>) -> Decision {
        block_on(self.store.check(&[Bill::one(charge)], None)).remove(0).unwrap()
    }

    fn writes(&self) -> u64 {
        self.server.info("rdb_changes_since_last_save")
    }

    fn number(&self, command: &[&str]) -> i64 {
        self.server.cli(command).parse().unwrap()
    }

    /// The moment at which a bucket has nothing more to say, by what is written; `None` if it has gone by now.
    fn expires_at(&self, limit: &Limit, key: &str) -> Option<i64> {
        let text = match limit.name() {
            "Log" => self.server.cli(&["LINDEX", key, "-1"]),
            _ => self.server.cli(&["GET", key]),
        };
        let word = |n: usize| text.split(' ').nth(n).unwrap().trim_start_matches('s').parse::<i64>().unwrap();
        if text.is_empty() {
            return None;
        }
        Some(match limit.name() {
            "Bucket" => word(0),
            "Log" => word(0) + 1_000_000_000,
            "Rate" => word(2),
            "Sliding" if word(2) > 0 => word(0) + word(1),
            "Sliding" => word(0),
            _ => word(1),
        })
    }
}

#[test]
fn a_token_bucket_is_a_moment_and_its_interval_and_stays_beside_its_header() {
    let bench = Bench::new();
    let _ = bench.settle(&Charge::new(&bench.limits[0], b"a", 1).unwrap());
    let both = [&bench.limits[0], &bench.limits[3]].map(|limit| Charge::new(limit, b"b", 1).unwrap());
    let _ = block_on(bench.store.settle(&[Bill::new(&both).unwrap()], None)).remove(0).unwrap();
    let Some(Algorithm::TokenBucket(limit)) = bench.limits[0].default_algorithm() else { unreachable!() };
    for key in ["kept:Bucket:a", "kept:Bucket:b"] {
        let text = bench.server.cli(&["GET", key]);
        let (full_at, interval) = text.split_once(' ').unwrap();
        assert!(full_at.parse::<u64>().is_ok(), "{text}");
        assert_eq!(interval, limit.emission_interval().get().to_string());
        // Redis allocates strings of up to 44 bytes together with their header.
        assert!(text.len() <= 44, "{text}");
    }
}

#[test]
fn a_key_goes_when_its_bucket_has_nothing_more_to_say_and_never_sooner() {
    let bench = Bench::new();
    let mut random = Random::new(seed());
    let mut seen = 0;
    for round in 0..200 {
        for limit in &bench.limits {
            let id = (round % 3).to_string();
            let kind = random.pick(&[ChargeKind::Spend, ChargeKind::SpendOnly]);
            let charge = Charge::new(limit, id.as_bytes(), random.between(1, 60)).unwrap().with_kind(kind);
            let _ = bench.settle(&charge);
            if random.one_in(4) {
                let _ = block_on(bench.store.refund(&[charge], None)).remove(0).unwrap();
            }
            let key = format!("kept:{}:{id}", limit.name());
            let dropped_at = bench.number(&["PEXPIRETIME", &key]);
            let Some(expires_at) = bench.expires_at(limit, &key) else { continue };
            seen += 1;
            let late = dropped_at * 1_000_000 - expires_at;
            assert!((0..3_000_000).contains(&late), "{key} goes {late} ns after it has nothing more to say");
        }
    }
    assert!(seen > 400, "only {seen} keys were there to be looked at");
    let pair = b"\x01\x01ab";
    let lifetime = QuotaTtl { value: 1_500, unit: TtlUnit(1) };
    let insert = QuotaOperation::Insert { left: 3, lifetime, over_live: true };
    let _ = block_on(
        bench
            .store
            .run_quota_commands(&[QuotaCommand { pair, operation: insert, ttl_max: Nanos::FOREVER }], None),
    )
    .remove(0)
    .unwrap();
    let late = bench.number(&["PEXPIRETIME", "kept:throttr/a/b"]) * 1_000_000
        - bench.expires_at(&bench.limits[3], "kept:throttr/a/b").unwrap();
    assert!((0..3_000_000).contains(&late), "a pair goes {late} ns after its end");
}

#[test]
fn a_bucket_that_is_full_again_leaves_no_key() {
    let bench = Bench::new();
    for limit in bench.limits.iter().filter(|limit| limit.default_algorithm().unwrap().refunds()) {
        let charge = Charge::new(limit, b"a", 5).unwrap();
        let _ = bench.settle(&charge);
        let _ = block_on(bench.store.refund(std::slice::from_ref(&charge), None)).remove(0).unwrap();
        // A quota that was opened stays open: what it counts is nothing.
        let left = i64::from(limit.name() == "Quota");
        let name = limit.name();
        assert_eq!(bench.number(&["EXISTS", &format!("kept:{name}:a")]), left, "{name}");
    }
    let quota = Charge::new(&bench.limits[3], b"a", 1).unwrap();
    block_on(bench.store.reset(&[quota])).unwrap();
    assert_eq!(bench.number(&["DBSIZE"]), 0);
}

#[test]
fn who_only_asks_writes_nothing() {
    let bench = Bench::new();
    for limit in &bench.limits {
        let one = Charge::new(limit, b"a", 1).unwrap();
        let nothing = Charge::new(limit, b"b", 0).unwrap();
        let before = bench.writes();
        assert!(bench.check(&one).allowed());
        assert!(bench.settle(&nothing).allowed());
        assert!(bench.settle(&one.clone().with_kind(ChargeKind::CheckOnly)).allowed());
        assert_eq!((bench.writes() - before, bench.number(&["DBSIZE"])), (0, 0), "{}", limit.name());
    }
}

#[test]
fn who_is_denied_writes_nothing() {
    let bench = Bench::new();
    for limit in &bench.limits {
        let cost = limit.default_algorithm().unwrap().cost_max();
        let all = Charge::new(limit, b"a", cost).unwrap();
        // A rate needs a second request to be measured at all.
        while bench.settle(&all).allowed() {}
        let (before, held) =
            (bench.writes(), bench.server.cli(&["DUMP", &format!("kept:{}:a", limit.name())]));
        assert!(!bench.settle(&all).allowed());
        assert!(!bench.check(&all).allowed());
        assert_eq!(bench.writes(), before, "{}", limit.name());
        assert_eq!(bench.server.cli(&["DUMP", &format!("kept:{}:a", limit.name())]), held);
    }
}

#[test]
fn what_another_algorithm_left_counts_as_never_used() {
    let bench = Bench::new();
    let foreign: [&[&str]; 11] = [
        &["SET", "99999999999999999999999"],
        &["SET", "nan"],
        &["SET", "0x7fffffffffffffff0"],
        &["SET", "1e30"],
        &["SET", ""],
        &["SET", "q1000 9223372036854775807 0"],
        &["SET", "f1000 9223372036854775807"],
        &["SET", "s9223372036854775807 549755813888 1000 1000"],
        &["SET", "r1700000000000000000 1e9 9223372036854775807"],
        &["RPUSH", "9223372036854775807", "9223372036854775807"],
        &["HSET", "a", "b"],
    ];
    for limit in &bench.limits {
        let charge = Charge::new(limit, b"a", 10).unwrap();
        let key = format!("kept:{}:a", limit.name());
        bench.server.cli(&["DEL", &key]);
        let expected = bench.settle(&charge).remaining;
        for command in foreign {
            let own = matches!(
                (limit.name(), command),
                ("Bucket", ["SET", "99999999999999999999999"])
                    | ("Quota", ["SET", "q1000 9223372036854775807 0"])
                    | ("Fixed", ["SET", "f1000 9223372036854775807"])
                    | ("Sliding", ["SET", "s9223372036854775807 549755813888 1000 1000"])
                    | ("Rate", ["SET", "r1700000000000000000 1e9 9223372036854775807"])
                    | ("Log", ["RPUSH", ..])
            );
            bench.server.cli(&["DEL", &key]);
            bench.server.cli(&[&[command[0], &key], &command[1..]].concat());
            let decision = bench.settle(&charge);
            if own {
                // Its own, but from a future that cannot be: nobody waits longer than if it were the present.
                assert!(decision.retry_nanos <= Nanos::from_secs(1_000), "{key} {command:?}: {decision:?}");
            } else {
                assert_eq!((decision.allowed(), decision.remaining), (true, expected), "{key} {command:?}");
            }
            assert!(bench.number(&["PTTL", &key]) > 0, "{key} {command:?} stays for ever");
        }
    }
}

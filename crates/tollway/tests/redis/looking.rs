//! Looking at what there is: keys, one bucket, how many.

use std::collections::BTreeSet;
use std::time::Duration;

use tollway::block_on;
use tollway::clock::Clock;
use tollway::config::Config;
use tollway::core::algorithm::Bucket;
use tollway::core::algorithm::{
    FixedWindow, FixedWindowState, Quota, SlidingLog, SlidingWindow, SmoothedRate, TokenBucket,
};
use tollway::core::{Algorithm, Bill, Charge, Limit, Nanos, Timestamp};
use tollway::engine::Engine;
use tollway::store::memory::Memory;
use tollway::store::redis::Redis;
use tollway::store::{BucketState, Store};
use tollway_testbed::RedisServer;

use crate::servers;

fn limit(name: &str, algorithm: Algorithm) -> Limit {
    Limit::new(name).unwrap().with_default(algorithm)
}

fn token_bucket(name: &str) -> Limit {
    limit(name, Algorithm::TokenBucket(TokenBucket::new(5, 1, Duration::from_secs(60)).unwrap()))
}

fn spend(store: &Redis, limit: &Limit, id: &[u8], now: Option<Timestamp>) {
    let charge = Charge::new(limit, id, 1).unwrap();
    assert!(block_on(store.settle(&[Bill::one(&charge)], now)).remove(0).unwrap().allowed());
}

/// Returns the buckets of all pages.
fn scan(store: &Redis, limit: Option<&Limit>) -> BTreeSet<String> {
    let (mut found, mut next) = (BTreeSet::new(), Some(0));
    while let Some(from) = next {
        let page = block_on(store.scan(limit, from, 10)).unwrap();
        found.extend(page.buckets);
        next = page.next;
    }
    found
}

/// Every bucket of a limit is found, and no other limit's nor another namespace's.
fn finds_its_own(url: &str) {
    let [store, other] = ["a*", "ab"].map(|namespace| servers::open(url, namespace));
    let (one, another) = (token_bucket("One"), token_bucket("OneMore").with_number(7));
    let mut expected = BTreeSet::new();
    for number in 0..200 {
        spend(&store, &one, format!("id {number} {{x}}").as_bytes(), None);
        expected.insert(format!("One:id {number} {{x}}"));
    }
    spend(&store, &another, b"\xff%", None);
    spend(&other, &one, b"elsewhere", None);
    assert_eq!(scan(&store, Some(&one)), expected);
    expected.insert("7:%FF%".to_owned());
    assert_eq!(scan(&store, None), expected);
}

#[test]
fn keys_are_found_on_one_redis() {
    let server = RedisServer::start();
    finds_its_own(&server.url());
    assert_eq!(block_on(servers::open(&server.url(), "a*").size()), Ok(202));
}

#[test]
fn keys_are_found_on_every_node_of_a_cluster() {
    finds_its_own(&servers::cluster().url());
    assert!(block_on(servers::cluster_store("a*").size()).unwrap() >= 202);
}

#[test]
fn a_bucket_is_shown_as_it_is() {
    let store = servers::store("looking");
    let (now, period) = (Timestamp::from_nanos(1_700_000_000_123_456_789), Nanos::from_secs(10));
    let limits = [
        token_bucket("Bucket"),
        limit("Log", Algorithm::SlidingLog(SlidingLog::new(3, period.into()).unwrap())),
        limit("Rate", Algorithm::SmoothedRate(SmoothedRate::new(3.0, period.into(), false).unwrap())),
        limit("Quota", Algorithm::Quota(Quota::new(3, period.into()).unwrap())),
        limit("Fixed", Algorithm::FixedWindow(FixedWindow::new(3, period.into(), period.into()).unwrap())),
        limit("Sliding", Algorithm::SlidingWindow(SlidingWindow::new(3, period.into()).unwrap())),
    ];
    let later = now + Nanos::from_secs(1);
    let window_end = Timestamp::from_nanos(1_700_000_010_000_000_000);
    let long_after = now + Nanos::from_secs(20_000);
    for limit in &limits {
        let charge = Charge::new(limit, b"a", 0).unwrap();
        let look = |at| block_on(store.inspect(&charge, Some(at))).unwrap();
        assert_eq!((look(now).state, look(now).at), (None, now));
        spend(&store, limit, b"a", Some(now));
        spend(&store, limit, b"a", Some(later));
        let held = match limit.name() {
            "Bucket" => matches!(look(later).state, Some(BucketState::TokenBucket(_))),
            "Log" => {
                look(later).state == Some(BucketState::SlidingLog { entries: 2, oldest: now, newest: later })
            }
            "Rate" => {
                matches!(look(later).state, Some(BucketState::SmoothedRate(rate)) if rate.last().0 == later)
            }
            "Quota" => matches!(look(later).state, Some(BucketState::Quota(quota)) if quota.counter() == 2),
            "Fixed" => {
                look(later).state == Some(BucketState::FixedWindow(FixedWindowState::until(window_end, 2)))
            }
            _ => matches!(look(later).state, Some(BucketState::SlidingWindow(window))
                if (window.ends_at(), window.current(), window.previous()) == (window_end, 2, 0)),
        };
        assert!(held, "{:?}", look(later));
        assert_eq!((look(long_after).state, look(long_after).at), (None, long_after));
    }
}

#[test]
fn a_bucket_is_read_by_one_script_at_one_time() {
    let server = RedisServer::start();
    let store = Store::Redis(servers::open(&server.url(), "one"), Memory::new(10));
    let policy = Config::parse("limits: { L: { burst: 2, count: 2, period: 1h } }", "limits").unwrap().policy;
    let engine = Engine::with(policy, store, Clock::monotonic());
    let charge = engine.policy();
    let charge = charge.charge("L", b"a", 2).unwrap();
    assert!(block_on(engine.charge(&charge)).allowed());
    let before = server.times_called("evalsha");
    let _ = block_on(engine.inspect("L", "a")).unwrap(); // The script is loaded.
    let loaded = server.times_called("evalsha");
    let seen = block_on(engine.inspect("L", "a")).unwrap();
    assert_eq!((loaded - before, server.times_called("evalsha") - loaded), (2, 1));
    let Some(BucketState::TokenBucket(bucket)) = seen.state else { panic!("{seen:?}") };
    assert_eq!(seen.decision.reset_nanos, bucket.expires_at().since(seen.at), "by the same moment");
    assert_eq!(seen.decision.reset_nanos.get() - seen.next.retry_nanos.get(), 1_800_000_000_000);
}

//! Real servers that are frozen, killed, restarted and moved under load, as an application sees it.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop where something is wrong, as tests may")]

mod crowd;

use std::sync::Arc;
use std::time::Instant;

use tollway::AsyncLimiter;
use tollway::core::Decision;
use tollway_testbed::{RedisCluster, RedisServer, eventually};

use crate::crowd::{BusyMachine, Crowd};

/// A deadline that a busy machine keeps.
const LONG: &str = "?deadline=5s";

#[test]
fn a_frozen_redis_is_decided_without() {
    let server = RedisServer::start();
    let limiter = limiter(&server.url());
    let ids = names(16);
    let started = Instant::now();
    let crowds = ["Allow", "Deny", "Local"].map(|limit| Crowd::gather(&limiter, limit, &ids));
    for crowd in &crowds {
        crowd.wait_for(100);
    }
    server.freeze();
    eventually("a breaker", || !limiter.health().unwrap().is_well());
    let frozen = Instant::now();
    // Redis answers nobody now, so whoever is answered did not wait for it.
    for crowd in &crowds {
        crowd.wait_for_answers(30 * ids.len());
    }
    let thawed = Instant::now();
    server.thaw();
    for crowd in &crowds {
        crowd.wait_for(100);
    }
    let [allow, deny, local] = crowds.map(Crowd::disperse);

    let meanwhile = |asked: &&crowd::Asked| asked.at > frozen && asked.answered_at < thawed;
    assert!(allow.iter().chain(&deny).chain(&local).filter(meanwhile).all(|asked| asked.decision.degraded));
    assert!(allow.iter().filter(meanwhile).all(|asked| asked.decision.allowed()));
    assert!(!deny.iter().filter(meanwhile).any(|asked| asked.decision.allowed()));
    // A quarter of a burst of 40, and of ten a second over the time that it really took.
    let most = 10.0 + 2.5 * started.elapsed().as_secs_f64();
    for id in &ids {
        let degraded: Vec<_> =
            local.iter().filter(|asked| asked.id == *id && asked.decision.degraded).collect();
        let admitted = degraded.iter().filter(|asked| asked.decision.allowed()).count();
        assert!(admitted >= degraded.len().min(10) && admitted as f64 <= most, "{id} got {admitted}");
    }
}

#[test]
fn a_thousand_calls_at_once_on_a_busy_machine_keep_the_limit() {
    let server = RedisServer::start();
    // The busy machine keeps Redis waiting, too, and for longer than the default deadline.
    let limiter = limiter(&(server.url() + LONG));
    let _busy = BusyMachine::start();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let decisions = runtime.block_on(async {
        let calls: Vec<_> = (0..1_000)
            .map(|_| {
                let limiter = Arc::clone(&limiter);
                tokio::spawn(async move { limiter.spend("Slow", "alice", 1).await.unwrap() })
            })
            .collect();
        let mut decisions = Vec::with_capacity(calls.len());
        for call in calls {
            decisions.push(call.await.unwrap());
        }
        decisions
    });
    let health = limiter.health().unwrap();
    assert_eq!((health.timeouts, health.breaker_openings), (0, 0));
    // A machine that is slow enough sheds calls, and only what was shed is decided without Redis.
    let (shed, by_redis): (Vec<&Decision>, Vec<&Decision>) =
        decisions.iter().partition(|decision| decision.degraded);
    assert_eq!(shed.len() as u64, health.shed);
    let allowed = by_redis.iter().filter(|decision| decision.allowed()).count();
    assert_eq!(allowed, by_redis.len().min(100), "the burst");
}

#[test]
fn a_cluster_primary_that_is_killed_takes_nobody_along() {
    let mut cluster = RedisCluster::start();
    let limiter = limiter(&(cluster.url() + LONG));
    let slot_of = |id: &str| -> u16 {
        cluster.nodes()[0].cli(&["CLUSTER", "KEYSLOT", &format!("tollway:Deny:{id}")]).parse().unwrap()
    };
    let (hurt, spared): (Vec<_>, Vec<_>) = names(24).into_iter().partition(|id| slot_of(id) <= 5460);
    assert!(!hurt.is_empty() && !spared.is_empty());
    let [hurt, spared] = [hurt, spared].map(|ids| Crowd::gather(&limiter, "Deny", &ids));
    hurt.wait_for(100);
    spared.wait_for(100);
    cluster.kill_primary_of(0);
    eventually("an outage", || !limiter.health().unwrap().is_well());
    let before = hurt.shared();
    let replica = &cluster.nodes()[3];
    eventually("a new primary", || replica.cli(&["ROLE"]).starts_with("master"));
    eventually("its first decision", || hurt.shared() > before);
    hurt.wait_for(100);
    eventually("a healthy Cluster", || limiter.health().unwrap().is_well());

    let spared = spared.disperse();
    assert!(!spared.iter().any(|asked| asked.decision.degraded));
    // What was decided without the store was denied.
    let hurt = hurt.disperse();
    assert!(hurt.iter().filter(|asked| asked.decision.degraded).all(|asked| !asked.decision.allowed()));
}

#[test]
fn forgotten_scripts_cost_nobody_a_decision() {
    let server = RedisServer::start();
    let limiter = limiter(&(server.url() + LONG));
    let crowd = Crowd::gather(&limiter, "Deny", &names(16));
    for _ in 0..20 {
        crowd.wait_for(20);
        server.cli(&["SCRIPT", "FLUSH"]);
    }
    assert!(!crowd.disperse().iter().any(|asked| asked.decision.degraded));
}

#[test]
fn a_restart_costs_what_redis_forgets_and_no_more() {
    for (arguments, kept) in [(&["--appendonly", "yes", "--appendfsync", "always"][..], true), (&[], false)] {
        let mut server = RedisServer::start_with(arguments);
        let limiter = limiter(&(server.url() + LONG));
        let remaining = || {
            let decision = limiter.blocking().check("Slow", "alice", 0).unwrap();
            (!decision.degraded).then_some(decision.remaining)
        };
        let _ = limiter.blocking().spend("Slow", "alice", 30).unwrap();
        assert_eq!(remaining(), Some(70));
        server.restart();
        eventually("the store", || remaining().is_some());
        assert_eq!(remaining(), Some(if kept { 70 } else { 100 }));
    }
}

#[test]
fn a_redis_that_becomes_a_replica_decides_nothing() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let limiter = limiter(&(server.url() + LONG));
    let crowd = Crowd::gather(&limiter, "Deny", &names(8));
    crowd.wait_for(100);
    server.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    eventually("an outage", || !limiter.health().unwrap().is_well());
    let during = crowd.shared();
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    eventually("the store", || crowd.shared() > during);
    crowd.wait_for(100);
    crowd.disperse();
}

/// Builds a limiter whose limits differ in what happens without the store. While the store works, only `Slow` is small
/// enough to deny a request here.
fn limiter(store: &str) -> Arc<AsyncLimiter> {
    let yaml = format!(
        "store: {store}
limits:
  Allow: {{ burst: 100000, count: 100000, period: 1s, on_store_failure: allow }}
  Deny: {{ burst: 100000, count: 100000, period: 1s, on_store_failure: deny }}
  Local: {{ burst: 40, count: 10, period: 1s, on_store_failure: local, local_share: 1/4 }}
  Slow: {{ burst: 100, count: 1, period: 1h }}
"
    );
    Arc::new(AsyncLimiter::from_yaml(&yaml).unwrap())
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("id{number}")).collect()
}

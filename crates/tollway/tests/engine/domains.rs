//! Compares the answers to gatekeepers' reports with a master that keeps every timestamp.

use std::collections::HashMap;
use std::time::Duration;

use tollway::block_on;
use tollway::core::domain::Logic;
use tollway::core::{Domain, Nanos, Policy, Timestamp};
use tollway::engine::Engine;
use tollway::reports::Report;
use tollway::store::Store;
use tollway::store::memory::Memory;
use tollway::store::redis::{Redis, RedisUrl};
use tollway::{Clock, Config};
use tollway_testbed::{Random, RedisCluster, RedisServer};

const DOMAINS: &str = "
domains:
  web: { rules: [{ rate: 1/s, burst: 3 }] }
  two: { rules: [{ rate: 2/s, burst: 2 }, { rate: 10/m, burst: 5 }] }
  gcra: { rules: [{ rate: 1/s, burst: 3 }, { interval: 2s, burst: 2 }], logic: gcra }
  open: {}
";

const MILLION: u64 = 1_000_000;
const START: u64 = 1_700_000_000_000;

/// In milliseconds, as the protocol says it.
#[derive(Default)]
struct Naive {
    kept: HashMap<(String, u64), Vec<u64>>,
    instants: HashMap<(String, u64, usize), i128>,
}

impl Naive {
    fn account(&mut self, domain: &Domain, identifier: u64, at: u64, now: u64) -> Option<u64> {
        let numbers = domain.rules().iter().map(|rule| {
            let limit = rule.limit();
            (limit.burst(), limit.period().get() / MILLION / limit.count())
        });
        let name = domain.name().to_owned();
        if domain.logic() == Logic::Gcra {
            let moves = numbers.enumerate().filter_map(|(index, (burst, interval))| {
                let (t, burst, interval) = (i128::from(at.max(now)), i128::from(burst), i128::from(interval));
                let prev = self.instants.entry((name.clone(), identifier, index)).or_insert(i128::MIN);
                let fresh = t - burst * interval;
                let next = if *prev >= fresh { *prev + interval } else { fresh + interval };
                // Nobody waits longer than the time of a burst and a minute.
                *prev = next.min(i128::from(now) + burst * interval + 60_000);
                (*prev > i128::from(now)).then(|| u64::try_from(*prev).unwrap())
            });
            return moves.max();
        }
        let kept = self.kept.entry((name, identifier)).or_default();
        // No rule of this test looks back half as far. Without this, most of the time would go into sorting.
        kept.retain(|at| now - *at.min(&now) < 100_000);
        kept.push(at);
        kept.sort_unstable();
        let newest = *kept.last().unwrap();
        let waits = numbers.filter_map(|(burst, interval)| {
            let recent = kept.iter().filter(|at| now.saturating_sub(**at) <= burst * interval).count();
            (recent as u64 >= burst).then_some(now.max(newest) + interval)
        });
        waits.max()
    }
}

fn moment(millis: u64) -> Timestamp {
    Timestamp::EPOCH + Nanos::from_millis(millis)
}

/// A history that clocks of gatekeepers have a part in: late, early, in no order.
fn agrees(store: Store, steps: u64, seed: u64) {
    let policy = Config::parse(DOMAINS, "test.yaml").unwrap().policy;
    let limiter = Engine::with(Policy::default(), store, Clock::manual(moment(START)));
    let (mut naive, mut random, mut now) = (Naive::default(), Random::new(seed), START);
    for step in 0..steps / 8 {
        now += if random.below(3) == 0 { random.below(3_000) } else { random.below(100) };
        // Now and then a flood, or a clock that is far ahead: some identifiers reach the longest delay.
        let forged = random.one_in(20);
        limiter.clock().set(moment(now));
        let batch: Vec<_> = (0..8)
            .map(|_| {
                let domain = &policy.domains()[usize::try_from(random.below(4)).unwrap()];
                let at = match random.below(4) {
                    _ if forged => now + 60_000,
                    0 => now - random.below(4_000),
                    1 => now + random.below(4_000),
                    _ => now,
                };
                (domain, random.below(20), at)
            })
            .collect();
        let names: Vec<_> = batch.iter().map(|(_, identifier, _)| format!("{identifier}/%{{x}}")).collect();
        let accounts: Vec<_> = batch
            .iter()
            .zip(&names)
            .map(|((domain, _, at), name)| Report { domain, identifier: name.as_bytes(), at: moment(*at) })
            .collect();
        let mut delays = Vec::new();
        limiter.blocking().record_reports(&accounts, &mut delays);
        for ((domain, identifier, at), found) in batch.iter().zip(delays) {
            let expected = naive.account(domain, *identifier, *at, now).map(moment);
            assert_eq!(found, expected, "step {step}: {} {identifier} of {at} at {now}", domain.name());
        }
    }
}

fn patient(url: &str) -> RedisUrl {
    RedisUrl { deadline: Duration::from_secs(20), ..url.parse().unwrap() }
}

#[test]
fn in_memory() {
    agrees(Memory::new(10_000).into(), 200_000, 1);
}

#[test]
fn on_redis() {
    let server = RedisServer::start();
    let redis = Redis::open(&patient(&server.url())).unwrap();
    agrees(Store::Redis(redis, Memory::new(10)), 40_000, 2);
}

#[test]
fn on_a_cluster() {
    let cluster = RedisCluster::start();
    let redis = Redis::open(&patient(&cluster.url())).unwrap();
    agrees(Store::Redis(redis, Memory::new(10)), 8_000, 3);
}

/// Another master, or the same one after a restart, finds out from the store.
#[test]
fn who_is_still_to_wait_is_known_to_every_master() {
    let server = RedisServer::start();
    let master = || {
        let redis = Redis::open(&patient(&server.url())).unwrap();
        Engine::with(Policy::default(), Store::Redis(redis, Memory::new(10)), Clock::manual(moment(START)))
    };
    let policy = Config::parse(DOMAINS, "test.yaml").unwrap().policy;
    let (mut delays, first) = (Vec::new(), master());
    for name in ["web", "gcra"] {
        let domain = policy.domain(name.as_bytes()).unwrap();
        for (identifier, times) in [(&b"a/b:%\xff"[..], 4), (b"idle", 1)] {
            let account = Report { domain, identifier, at: moment(START) };
            first.blocking().record_reports(&vec![account; times], &mut delays);
        }
    }
    drop(first);
    let second = master();
    for (name, until) in [("web", START + 1_000), ("gcra", START + 4_000)] {
        let domain = policy.domain(name.as_bytes()).unwrap();
        let (mut found, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            let page = block_on(second.delays(domain, at, 100)).unwrap();
            found.extend(page.delays.into_iter().map(|delay| (delay.identifier, delay.until)));
            from = page.next;
        }
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, [(b"a/b:%\xff".to_vec(), moment(until))], "{name}");
    }
}

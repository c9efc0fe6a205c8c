//! Decisions in process, beside the `governor` crate.
//!
//! `cargo xtask bench core`

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{QuantaClock, QuantaUpkeepClock};
use governor::state::keyed::KeyedStateStore;
use governor::{Quota, RateLimiter};
use tollgate::Limiter;
use tollgate::core::algorithm::{Algorithm, TokenBucketLimit};
use tollgate::core::{Bill, Limit, Nanos, Policy};
use tollgate_bench::requests::{Popularity, stream};
use tollgate_bench::rounds::{Contestant, alternate, time_threads};

const IDS: usize = 1_000_000;
const REQUESTS: usize = 1_000_000;
const BATCH: usize = 64;

fn main() {
    let rounds = std::env::var("R").map_or(7, |r| r.parse().unwrap());
    println!(
        "one decision in nanoseconds: median (lowest to highest) of {rounds} turns; ratio to governor's best"
    );
    for (what, popularity) in [
        ("uniform", Popularity::Uniform),
        ("zipf 0.99", Popularity::Zipf(0.99)),
        ("one key", Popularity::One),
    ] {
        for threads in [1, 2] {
            compare(&format!("{what}, {threads} thread(s)"), popularity, threads, rounds);
        }
    }
}

fn limiter() -> Limiter {
    let numbers = TokenBucketLimit::new(4_000_000_000, 1, Nanos::from_secs(1)).expect("numbers in range");
    let limit = Limit::new("PerUser").expect("a name").with_default(Algorithm::TokenBucket(numbers));
    Limiter::new(Policy::new(vec![limit]).expect("one limit"))
}

fn quota() -> Quota {
    Quota::per_second(NonZeroU32::MIN).allow_burst(NonZeroU32::new(4_000_000_000).expect("not zero"))
}

fn compare(what: &str, popularity: Popularity, threads: usize, rounds: usize) {
    let streams: Vec<Vec<String>> =
        (0..threads).map(|thread| stream(popularity, IDS, REQUESTS, thread as u64)).collect();
    let upkeep = QuantaUpkeepClock::from_interval(Duration::from_millis(1)).expect("an upkeep thread");
    let hashmap = RateLimiter::<String, _, _>::hashmap_with_clock(quota(), QuantaClock::default());
    let dashmap = RateLimiter::<String, _, _>::dashmap_with_clock(quota(), QuantaClock::default());
    let hashmap_upkeep = RateLimiter::<String, _, _>::hashmap_with_clock(quota(), upkeep.clone());
    let dashmap_upkeep = RateLimiter::<String, _, _>::dashmap_with_clock(quota(), upkeep);
    let ours = limiter();
    let batched = limiter();
    let mut contestants = [
        Contestant { name: "governor hashmap", work: Box::new(|| governor(&hashmap, &streams)) },
        Contestant { name: "governor dashmap", work: Box::new(|| governor(&dashmap, &streams)) },
        Contestant {
            name: "governor hashmap upkeep",
            work: Box::new(|| governor(&hashmap_upkeep, &streams)),
        },
        Contestant {
            name: "governor dashmap upkeep",
            work: Box::new(|| governor(&dashmap_upkeep, &streams)),
        },
        Contestant { name: "tollgate", work: Box::new(|| one_by_one(&ours, &streams)) },
        Contestant { name: "tollgate by 64", work: Box::new(|| in_batches(&batched, &streams)) },
    ];
    println!("\n{what}");
    for result in alternate(rounds, &mut contestants) {
        println!("  {:24} {:>26} ns   {:.2}x", result.name, format!("{:.1}", result.nanos), result.ratio);
    }
}

fn governor<S, C>(limiter: &RateLimiter<String, S, C>, streams: &[Vec<String>]) -> f64
where
    S: KeyedStateStore<String> + Sync,
    C: governor::clock::Clock<Instant = governor::clock::QuantaInstant> + Sync,
{
    time_threads(streams.len(), REQUESTS, |thread| {
        for id in &streams[thread] {
            black_box(limiter.check_key(id).is_ok());
        }
    })
}

fn one_by_one(limiter: &Limiter, streams: &[Vec<String>]) -> f64 {
    time_threads(streams.len(), REQUESTS, |thread| {
        for id in &streams[thread] {
            black_box(limiter.spend("PerUser", id, 1).is_ok_and(|decision| decision.allowed()));
        }
    })
}

fn in_batches(limiter: &Limiter, streams: &[Vec<String>]) -> f64 {
    let policy = limiter.policy();
    time_threads(streams.len(), REQUESTS, |thread| {
        for ids in streams[thread].chunks(BATCH) {
            let charges: Vec<_> =
                ids.iter().filter_map(|id| policy.charge("PerUser", id.as_bytes(), 1).ok()).collect();
            let bills: Vec<_> = charges.iter().map(Bill::one).collect();
            black_box(limiter.settle(&bills));
        }
    })
}

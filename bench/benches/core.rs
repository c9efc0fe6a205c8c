//! Benchmarks decisions in process against the `governor` crate, and the algorithms against each other.
//!
//! `cargo xtask bench core`, or `cargo xtask bench core algorithms` for the algorithms alone.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::clock::{Clock, QuantaClock, QuantaInstant, QuantaUpkeepClock};
use governor::state::keyed::KeyedStateStore;
use governor::{Quota, RateLimiter};
use tollway::Limiter;
use tollway::core::algorithm::{Algorithm, FixedWindow, SlidingWindow, TokenBucket, WINDOW_COUNT_MAX};
use tollway::core::{Bill, Charge, Limit, Nanos, Policy};
use tollway_bench::id_stream::{IdBuffer, Popularity, stream};
use tollway_bench::rounds::{Contestant, alternate, time_threads};

const IDS: u32 = 1_000_000;
const REQUESTS: usize = 1_000_000;
const BATCH: usize = 64;
const ROUNDS: usize = 9;

fn main() {
    // This runs first: later, memory that other contestants freed would be reused and not be counted.
    fill_each();
    compare_algorithms();
    if std::env::args().any(|argument| argument == "algorithms") {
        return;
    }
    println!("\n{IDS} ids; one decision in nanoseconds, and how many times as fast as governor:");
    println!("median (lowest to highest) of {ROUNDS} turns, taken alternately");
    for (what, popularity) in
        [("uniform", Popularity::Uniform), ("Zipf 0.99", Popularity::Zipf(0.99)), ("one id", Popularity::One)]
    {
        for threads in [1, 2] {
            println!("\n{what}, {threads} thread{}", if threads == 1 { "" } else { "s" });
            compare(popularity, threads);
        }
    }
}

/// Fills a store for each algorithm. No store is dropped before the last one is full, so that none reuses memory.
fn fill_each() {
    let filled = [
        ("token bucket", limiter(1_000, Nanos::from_secs(3_600))),
        ("fixed window", fixed_window(Duration::from_secs(3_600))),
        ("sliding window", sliding_window(Duration::from_secs(3_600))),
    ];
    for (name, limiter) in &filled {
        println!("{name}");
        fill(limiter);
    }
}

/// Compares the algorithms with windows with the token bucket. Windows are so short that buckets are in another one at
/// nearly every request.
fn compare_algorithms() {
    println!("\n{IDS} ids; one decision in nanoseconds, and how many times as fast as a token bucket:");
    println!("median (lowest to highest) of {ROUNDS} turns, taken alternately, on one thread");
    let period = Duration::from_secs(1);
    for (what, popularity) in [("uniform", Popularity::Uniform), ("one id", Popularity::One)] {
        let streams = [stream(popularity, IDS, REQUESTS, 0)];
        let limiters = [
            ("token bucket", limiter(BURST, Nanos::from_secs(1))),
            ("fixed window", fixed_window(period)),
            ("sliding window", sliding_window(period)),
        ];
        for (how, ask) in [("one by one", one_by_one as Ask), ("64 at a time", in_batches)] {
            println!("\n{what}, {how}");
            let streams = &streams;
            print_standings(
                &mut limiters.each_ref().map(|(name, limiter)| Contestant {
                    name,
                    work: Box::new(move || ask(limiter, streams)),
                }),
            );
        }
    }
}

/// A function that sends requests to a limiter, and returns the nanoseconds that one took.
type Ask = fn(&Limiter, &[Vec<u32>]) -> f64;

fn print_standings(contestants: &mut [Contestant<'_>]) {
    for standing in alternate(ROUNDS, contestants) {
        println!("  {:26} {:>26}   {:.2}x", standing.name, format!("{:.1}", standing.nanos), standing.ratio);
    }
}

/// Fills a store with new ids one decision at a time, and prints their memory and the slowest decision.
fn fill(limiter: &Limiter) {
    const IDS: u32 = 5_000_000;
    let clock = quanta::Clock::new();
    let numbers: Vec<u32> = (0..IDS).collect();
    let mut arrivals = IdBuffer::new();
    let mut took: Vec<u32> = vec![1; IDS as usize]; // Not 0, which would not be in memory yet.
    let before = resident();
    for (numbers, took) in numbers.chunks(IdBuffer::SIZE).zip(took.chunks_mut(IdBuffer::SIZE)) {
        for (id, took) in arrivals.fill(numbers).iter().zip(took) {
            let started = clock.raw();
            black_box(limiter.spend("PerUser", id, 1).is_ok_and(|decision| decision.allowed()));
            *took = clock.delta_as_nanos(started, clock.raw()).try_into().unwrap_or(u32::MAX);
        }
    }
    let bytes = (resident() - before) as f64 / f64::from(IDS);
    took.sort_unstable();
    let all_but = |one_in: usize| took[took.len() - 1 - took.len() / one_in];
    println!("{IDS} new ids, growing and sweeping as they come");
    println!("  memory       {bytes:.1} bytes a bucket, by resident memory");
    println!(
        "  decisions    median {} ns, 99.9% {} ns, 99.999% {} ns, slowest {} ns",
        all_but(2),
        all_but(1_000),
        all_but(100_000),
        took[took.len() - 1]
    );
    println!("  a bare loop  slowest {} ns: what this machine does to anybody", slowest_pause(&clock, IDS));
}

/// Returns the longest time between two readings of the clock, which is the noise of the machine.
fn slowest_pause(clock: &quanta::Clock, tries: u32) -> u64 {
    (0..tries)
        .map(|number| {
            let started = clock.raw();
            black_box(number);
            clock.delta_as_nanos(started, clock.raw())
        })
        .max()
        .unwrap_or_default()
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<usize> = status.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or_default() * 4096
}

/// Compares Tollway with governor's variants, which differ in store and clock. The upkeep clock is a cached time, which
/// is up to a millisecond late.
fn compare(popularity: Popularity, threads: u64) {
    let streams: Vec<Vec<u32>> = (0..threads).map(|seed| stream(popularity, IDS, REQUESTS, seed)).collect();
    let upkeep = QuantaUpkeepClock::from_interval(Duration::from_millis(1)).expect("an upkeep thread");
    let hashmap = RateLimiter::<String, _, _>::hashmap_with_clock(quota(), QuantaClock::default());
    let dashmap = RateLimiter::<String, _, _>::dashmap_with_clock(quota(), QuantaClock::default());
    let hashmap_upkeep = RateLimiter::<String, _, _>::hashmap_with_clock(quota(), upkeep.clone());
    let dashmap_upkeep = RateLimiter::<String, _, _>::dashmap_with_clock(quota(), upkeep);
    let (ours, batched) = (limiter(BURST, Nanos::from_secs(1)), limiter(BURST, Nanos::from_secs(1)));
    let mut contestants = [
        Contestant { name: "governor, hashmap", work: Box::new(|| governor(&hashmap, &streams)) },
        Contestant { name: "governor, dashmap", work: Box::new(|| governor(&dashmap, &streams)) },
        Contestant {
            name: "governor, hashmap, upkeep",
            work: Box::new(|| governor(&hashmap_upkeep, &streams)),
        },
        Contestant {
            name: "governor, dashmap, upkeep",
            work: Box::new(|| governor(&dashmap_upkeep, &streams)),
        },
        Contestant { name: "tollway", work: Box::new(|| one_by_one(&ours, &streams)) },
        Contestant { name: "tollway, 64 at a time", work: Box::new(|| in_batches(&batched, &streams)) },
    ];
    print_standings(&mut contestants);
}

/// A burst that is so large that nothing is denied. Refilling is slow, so every bucket is still live at its next
/// request.
const BURST: u32 = 4_000_000_000;

fn limiter(burst: u32, period: Nanos) -> Limiter {
    limiter_with(TokenBucket::new(burst.into(), 1, period.into()).expect("numbers in range"))
}

fn fixed_window(period: Duration) -> Limiter {
    limiter_with(FixedWindow::new(BURST.into(), period, Duration::ZERO).expect("numbers in range"))
}

fn sliding_window(period: Duration) -> Limiter {
    limiter_with(SlidingWindow::new(WINDOW_COUNT_MAX, period).expect("numbers in range"))
}

fn limiter_with(algorithm: impl Into<Algorithm>) -> Limiter {
    let limit = Limit::new("PerUser").expect("a name").with_default(algorithm.into());
    Limiter::new(Policy::new(vec![limit]).expect("one limit"))
}

fn quota() -> Quota {
    Quota::per_second(NonZeroU32::MIN).allow_burst(NonZeroU32::new(BURST).expect("not zero"))
}

fn governor<S, C>(limiter: &RateLimiter<String, S, C>, streams: &[Vec<u32>]) -> f64
where
    S: KeyedStateStore<String> + Sync,
    C: Clock<Instant = QuantaInstant> + Sync,
{
    time_arrivals(streams, |ids| {
        for id in ids {
            black_box(limiter.check_key(id).is_ok());
        }
    })
}

fn one_by_one(limiter: &Limiter, streams: &[Vec<u32>]) -> f64 {
    time_arrivals(streams, |ids| {
        let per_user = limiter.handle("PerUser").expect("it is configured");
        for id in ids {
            black_box(per_user.spend(id, 1).is_ok_and(|decision| decision.allowed()));
        }
    })
}

fn in_batches(limiter: &Limiter, streams: &[Vec<u32>]) -> f64 {
    let engine = limiter.engine().blocking();
    time_arrivals(streams, |ids| {
        for ids in ids.chunks(BATCH) {
            let policy = limiter.policy();
            let per_user = policy.limit("PerUser").expect("it is configured");
            let mut charges = Vec::with_capacity(BATCH);
            charges.extend(ids.iter().filter_map(|id| Charge::new(per_user, id.as_bytes(), 1).ok()));
            let bills: Vec<_> = charges.iter().map(Bill::one).collect();
            black_box(engine.settle(&bills));
        }
    })
}

/// Runs each stream on a thread of its own. Only `ask` is timed, not the writing of the ids.
fn time_arrivals(streams: &[Vec<u32>], ask: impl Fn(&[String]) + Sync) -> f64 {
    time_threads(streams.len(), |thread| {
        let mut arrivals = IdBuffer::new();
        let mut took = Duration::ZERO;
        for numbers in streams[thread].chunks(IdBuffer::SIZE) {
            let ids = arrivals.fill(numbers);
            let started = Instant::now();
            ask(ids);
            took += started.elapsed();
        }
        (took, REQUESTS)
    })
}

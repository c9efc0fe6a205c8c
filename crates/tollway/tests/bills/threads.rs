//! Threads that fight for the same buckets while the clock stands: nothing is lost, nothing is given out twice.

use std::thread;
use std::time::Duration;

use tollway::core::algorithm::{Algorithm, FixedWindow, Quota, SlidingLog, SlidingWindow, TokenBucket};
use tollway::core::{Bill, ChargeKind, Decision, Limit, Policy, Timestamp};
use tollway::store::memory::Memory;
use tollway::{Clock, Limiter};
use tollway_testbed::{Random, seed};

const THREADS: u64 = 4;
const BURST: u64 = 2_000;
const LIMITS: [&str; 5] = ["Bucket", "Log", "Quota", "Fixed", "Sliding"];
const IDS: [&str; 3] = ["a", "b", "c"];

/// A limiter whose every bucket holds [`BURST`], under a clock that stands.
fn limiter() -> Limiter {
    let hour = Duration::from_secs(3_600);
    let algorithms = [
        Algorithm::TokenBucket(TokenBucket::new(BURST, 1, hour).unwrap()),
        Algorithm::SlidingLog(SlidingLog::new(BURST, hour).unwrap()),
        Algorithm::Quota(Quota::new(BURST, hour).unwrap()),
        Algorithm::FixedWindow(FixedWindow::new(BURST, hour, Duration::ZERO).unwrap()),
        Algorithm::SlidingWindow(SlidingWindow::new(BURST, hour).unwrap()),
    ];
    let limits = LIMITS.iter().zip(algorithms);
    let limits = limits.map(|(name, algorithm)| Limit::new(name).unwrap().with_default(algorithm));
    let clock = Clock::manual(Timestamp::from_nanos(1_700_000_000_000_000_000));
    Limiter::with(Policy::new(limits.collect()).unwrap(), Memory::new(1_000), clock)
}

/// Runs the work on all threads, each with its own random numbers, and returns the results.
fn together<T: Send>(work: impl Fn(&mut Random) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let run = |thread| work(&mut Random::new(seed() + thread));
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn single_spends_give_out_every_unit_exactly_once() {
    let limiter = limiter();
    let left_behind = together(|_| {
        LIMITS.map(|limit| {
            let spend = || limiter.spend(limit, "a", 1).unwrap();
            std::iter::repeat_with(spend)
                .take_while(Decision::allowed)
                .map(|one| one.remaining)
                .collect::<Vec<_>>()
        })
    });
    for (index, limit) in LIMITS.iter().enumerate() {
        let mut seen: Vec<u64> = left_behind.iter().flat_map(|limits| limits[index].clone()).collect();
        seen.sort_unstable();
        // Each of them left one unit less than the one before it, whoever that was.
        assert_eq!(seen, (0..BURST).collect::<Vec<_>>(), "{limit}");
    }
}

/// The limit and the id that name one of the nine buckets.
type Place = (usize, usize);

/// The charges of one bill, and whether it passed.
struct Settled {
    charges: Vec<(Place, u64, ChargeKind)>,
    allowed: bool,
}

/// One to five buckets in any order, so that threads take the same ones from both ends.
fn any_charges(random: &mut Random) -> Vec<(Place, u64, ChargeKind)> {
    let mut charges: Vec<(Place, u64, ChargeKind)> = Vec::new();
    for _ in 0..random.between(1, 5) {
        let place = (random.pick(&[0, 1, 2]), random.pick(&[0, 1, 2]));
        if !charges.iter().any(|charge| charge.0 == place) {
            let kind = random.pick(&[
                ChargeKind::Spend,
                ChargeKind::Spend,
                ChargeKind::Spend,
                ChargeKind::CheckOnly,
            ]);
            charges.push((place, random.between(0, 4), kind));
        }
    }
    charges
}

fn settle(limiter: &Limiter, charges: Vec<(Place, u64, ChargeKind)>) -> Settled {
    let policy = limiter.policy();
    let charge = |((limit, id), cost, kind): &(Place, u64, ChargeKind)| {
        policy.charge(LIMITS[*limit], IDS[*id].as_bytes(), *cost).unwrap().with_kind(*kind)
    };
    let made: Vec<_> = charges.iter().map(charge).collect();
    let allowed = limiter.engine().blocking().settle(&[Bill::new(&made).unwrap()])[0].allowed();
    Settled { charges, allowed }
}

fn remaining(limiter: &Limiter, (limit, id): Place) -> u64 {
    limiter.check(LIMITS[limit], IDS[id], 0).unwrap().remaining
}

fn places() -> impl Iterator<Item = Place> {
    (0..LIMITS.len()).flat_map(|limit| (0..IDS.len()).map(move |id| (limit, id)))
}

#[test]
fn bills_take_all_of_their_charges_or_none() {
    let limiter = limiter();
    let settled: Vec<Settled> =
        together(|random| (0..5_000).map(|_| settle(&limiter, any_charges(random))).collect::<Vec<_>>())
            .into_iter()
            .flatten()
            .collect();
    for place in places() {
        let admitted = settled.iter().filter(|bill| bill.allowed).flat_map(|bill| &bill.charges);
        let spent = admitted.filter(|charge| charge.0 == place && charge.2 == ChargeKind::Spend);
        let spent: u64 = spent.map(|(_, cost, _)| cost).sum();
        assert!(spent <= BURST, "{place:?} gave out {spent}");
        assert_eq!(remaining(&limiter, place), BURST - spent, "{place:?}");
    }
    // Buckets only get emptier while the clock stands, so whatever was refused would still be.
    for bill in settled.iter().filter(|bill| !bill.allowed) {
        assert!(bill.charges.iter().any(|(place, cost, _)| *cost > remaining(&limiter, *place)));
    }
    assert!(settled.iter().any(|bill| bill.allowed) && settled.iter().any(|bill| !bill.allowed));
}

#[test]
fn what_is_given_back_can_be_had_again() {
    let limiter = limiter();
    together(|random| {
        for _ in 0..2_000 {
            let bill = settle(&limiter, any_charges(random));
            let spent = bill.charges.iter().filter(|(_, _, kind)| bill.allowed && *kind == ChargeKind::Spend);
            for ((limit, id), cost, _) in spent {
                let _ = limiter.refund(LIMITS[*limit], IDS[*id], *cost).unwrap();
            }
        }
    });
    for place in places() {
        assert_eq!(remaining(&limiter, place), BURST, "{place:?}");
    }
}

#[test]
fn batches_of_two_buckets_from_both_ends_keep_them_level() {
    let limiter = limiter();
    let policy = limiter.policy();
    let charge = |id: &'static str| policy.charge("Bucket", id.as_bytes(), 1).unwrap();
    let (there, back) = ([charge("a"), charge("b")], [charge("b"), charge("a")]);
    let passed = together(|random| {
        let first = if random.one_in(2) { [&there, &back] } else { [&back, &there] };
        let batch: Vec<_> =
            first.iter().cycle().take(64).map(|charges| Bill::new(*charges).unwrap()).collect();
        let settle = || {
            limiter.engine().blocking().settle(&batch).iter().filter(|decision| decision.allowed()).count()
        };
        std::iter::repeat_with(settle).take_while(|passed| *passed > 0).sum::<usize>()
    });
    assert_eq!(passed.iter().sum::<usize>() as u64, BURST);
    assert_eq!((remaining(&limiter, (0, 0)), remaining(&limiter, (0, 1))), (0, 0));
}

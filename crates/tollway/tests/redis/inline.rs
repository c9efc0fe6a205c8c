//! Inline limits: every request brings its own numbers, and Redis, the memory store and the core agree.

use std::collections::HashMap;
use std::time::Duration;

use tollway::block_on;
use tollway::core::algorithm::{Bucket, TokenBucket, TokenBucketState};
use tollway::core::{Algorithm, Bill, Charge, ChargeKind, InlineAlgorithm, InlineLimit, Nanos, Timestamp};
use tollway::store::memory::Memory;
use tollway_testbed::{Random, seed};

use crate::servers;
use crate::world::{WORLDS, World};

const IDS: usize = 100;
const ROUNDS: usize = 60;

#[test]
fn each_request_is_decided_by_the_numbers_that_it_brings() {
    let (store, memory) = (servers::store("inline"), Memory::new(10_000));
    let limit = InlineLimit::new("throttle").unwrap();
    let mut random = Random::new(seed());
    for (number, world) in WORLDS.into_iter().enumerate() {
        let ids: Vec<_> = (0..IDS).map(|index| format!("{number}/{index}").into_bytes()).collect();
        let mut states: HashMap<&[u8], TokenBucketState> = HashMap::new();
        let mut now = World::start(&mut random);
        for _ in 0..ROUNDS {
            // Forward only: the memory store may have dropped what expired, and Redis not.
            now = world.next(&mut random, now).max(now);
            let numbers: Vec<_> = ids.iter().map(|_| any_numbers(&mut random, world)).collect();
            let charges: Vec<_> = ids
                .iter()
                .zip(&numbers)
                .map(|(id, numbers)| any_charge(&mut random, &limit, numbers, id))
                .collect();
            if random.one_in(4) {
                let charges: Vec<_> = ids
                    .iter()
                    .zip(&numbers)
                    .map(|(id, numbers)| limit.refund(numbers, id, random.magnitude(u64::MAX)))
                    .collect();
                let refunds = block_on(store.refund(&charges, Some(now)));
                for (charge, refund) in charges.iter().zip(refunds) {
                    let expected = states.entry(id_of(&ids, charge)).or_default();
                    let expected = expected.refund(token_bucket(charge), charge.cost(), now).unwrap();
                    assert_eq!(refund.unwrap(), expected, "at {now}: back to {charge:?}");
                    assert_eq!(memory.refund(charge, now), expected, "at {now}: back to {charge:?}");
                }
                continue;
            }
            // Some through the script for any bill, with another bucket beside it that never denies.
            let beside = InlineAlgorithm::new(TokenBucket::new(1, 1, Duration::from_secs(1)).unwrap());
            let bills: Vec<Vec<_>> = charges
                .iter()
                .map(|charge| match random.one_in(3) {
                    true => vec![
                        charge.clone(),
                        limit.charge(&beside, b"beside", 1).unwrap().with_kind(ChargeKind::SpendOnly),
                    ],
                    false => vec![charge.clone()],
                })
                .collect();
            let bills: Vec<_> = bills.iter().map(|charges| Bill::new(charges).unwrap()).collect();
            let checked = block_on(store.check(&bills, Some(now)));
            let settled = block_on(store.settle(&bills, Some(now)));
            let mut in_memory = Vec::new();
            memory.settle(&bills, now, &mut in_memory);
            for (((charge, checked), settled), in_memory) in
                charges.iter().zip(checked).zip(settled).zip(in_memory)
            {
                let state = states.entry(id_of(&ids, charge)).or_default();
                let before = *state;
                let expected = state.charge(token_bucket(charge), charge.cost(), now);
                assert_eq!(checked.unwrap(), expected, "at {now}: {charge:?} of {before:?}");
                assert_eq!(settled.unwrap(), expected, "at {now}: {charge:?} of {before:?}");
                assert_eq!(in_memory, expected, "at {now}: {charge:?} of {before:?}");
            }
        }
    }
}

fn any_numbers(random: &mut Random, world: World) -> InlineAlgorithm {
    loop {
        let (period, count) = (world.span(random), world.number(random));
        let burst = if random.one_in(2) { world.number(random) } else { random.between(1, 10) };
        if let Ok(limit) = TokenBucket::new(burst, count, period.into()) {
            return InlineAlgorithm::new(limit);
        }
    }
}

fn any_charge<'a>(
    random: &mut Random,
    limit: &'a InlineLimit,
    numbers: &'a InlineAlgorithm,
    id: &'a [u8],
) -> Charge<'a> {
    let cost_max = numbers.algorithm().cost_max();
    let cost = match random.between(0, 4) {
        0 => 0,
        1 => random.magnitude(cost_max),
        _ => 1,
    };
    limit.charge(numbers, id, cost).unwrap()
}

fn token_bucket<'a>(charge: &Charge<'a>) -> &'a TokenBucket {
    match charge.algorithm() {
        Some(Algorithm::TokenBucket(limit)) => limit,
        other => panic!("{other:?} is no token bucket"),
    }
}

fn id_of<'a>(ids: &'a [Vec<u8>], charge: &Charge<'_>) -> &'a [u8] {
    ids.iter().find(|id| **id == charge.id()).unwrap()
}

#[test]
fn an_inline_bucket_has_a_name_of_its_own_and_is_reset_under_any_numbers() {
    let store = servers::store("named");
    let limit = InlineLimit::new("throttle").unwrap();
    let [slow, fast] = [3_600, 1]
        .map(|period| InlineAlgorithm::new(TokenBucket::new(2, 1, Duration::from_secs(period)).unwrap()));
    let now = Timestamp::EPOCH + Nanos::from_secs(1_700_000_000);
    let charge = limit.charge(&slow, b"", 2).unwrap();
    let _ = block_on(store.settle(&[Bill::one(&charge)], Some(now)));
    assert_eq!(servers::server().cli(&["GET", "named:inline/throttle:"]).trim_end(), "1700007200000000000");
    let look = limit.charge(&fast, b"", 0).unwrap();
    let found = block_on(store.check(&[Bill::one(&look)], Some(now))).remove(0).unwrap();
    assert_eq!((found.remaining, found.reset_nanos), (0, Nanos::from_secs(7_200)));
    let bucket = limit.bucket(b"");
    let seen = block_on(store.inspect(&bucket, Some(now))).unwrap();
    assert_eq!(seen.decision.reset_nanos, Nanos::from_secs(7_200));
    block_on(store.reset(&[bucket])).unwrap();
    assert_eq!(servers::server().cli(&["EXISTS", "named:inline/throttle:"]), "0");
}

//! Compares Throttr's commands in Lua with the core's: the same outcomes, in the same order.

use tollway::block_on;
use tollway::core::Nanos;
use tollway::core::algorithm::{Bucket, Change, QuotaCommand, QuotaOperation, QuotaState, QuotaTtl, TtlUnit};
use tollway_testbed::{Random, seed};

use crate::agreement::STEPS;
use crate::model::change;
use crate::servers;
use crate::world::{WORLDS, World};

const PAIRS: usize = 100;
/// More than there are pairs: several commands for one pair must keep their order.
const BATCH: usize = 300;

#[test]
fn orders_come_to_the_same_as_in_the_core() {
    let store = servers::store("commands");
    let mut random = Random::new(seed());
    for (number, world) in WORLDS.into_iter().enumerate() {
        let pairs: Vec<_> = (0..PAIRS).map(|index| pair(&format!("{number}/"), &index.to_string())).collect();
        let mut quotas: Vec<Option<QuotaState>> = vec![None; PAIRS];
        let mut now = World::start(&mut random);
        let ttl_max = Nanos::new(random.pick(&[1_000, 1_000_000_000, u64::MAX]));
        for _ in 0..STEPS / WORLDS.len() / BATCH + 1 {
            now = world.next(&mut random, now);
            let any = |_| (index(&mut random), any_operation(&mut random, world));
            let asked: Vec<_> = (0..BATCH).map(any).collect();
            let order = |(index, operation): &(usize, _)| QuotaCommand {
                pair: &pairs[*index],
                operation: *operation,
                ttl_max,
            };
            let commands: Vec<_> = asked.iter().map(order).collect();
            let known: Vec<_> = quotas.iter().map(Option::is_some).collect();
            let outcomes = block_on(store.run_quota_commands(&commands, Some(now)));
            for ((index, operation), outcome) in asked.into_iter().zip(outcomes) {
                let before = quotas[index];
                let expected = change(&mut quotas[index], now, |quota| quota.apply(operation, ttl_max, now));
                assert_eq!(outcome.unwrap(), expected, "at {now}: {operation:?} of {before:?}");
            }
            // All commands for a pair are one call: a quota that came and went in it was never written. Only a clock
            // that steps back can tell.
            for (quota, _) in quotas.iter_mut().zip(known).filter(|(_, known)| !known) {
                *quota = quota.filter(|quota| quota.expires_at() > now);
            }
        }
    }
}

fn pair(consumer: &str, resource: &str) -> Vec<u8> {
    let len = |part: &str| u8::try_from(part.len()).unwrap();
    [&[len(consumer), len(resource)], consumer.as_bytes(), resource.as_bytes()].concat()
}

fn index(random: &mut Random) -> usize {
    usize::try_from(random.below(PAIRS as u64)).unwrap()
}

fn any_operation(random: &mut Random, world: World) -> QuotaOperation {
    let change = random.pick(&[Change::Patch, Change::Increase, Change::Decrease]);
    let unit = TtlUnit(random.pick(&[0, 0, 0, 1, 2, 255]));
    let value = match unit.0 {
        0 => world.span(random).get(),
        _ => world.number(random),
    };
    match random.between(0, 9) {
        0 => QuotaOperation::Purge,
        1..=3 => QuotaOperation::Insert {
            left: world.number(random),
            lifetime: QuotaTtl { value, unit },
            over_live: random.one_in(3),
        },
        4 | 5 => QuotaOperation::ChangeLeft { change, value: world.number(random) },
        6 => QuotaOperation::ChangeLifetime { change, value },
        _ => QuotaOperation::Query,
    }
}

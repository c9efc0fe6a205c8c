//! Compares the rates of keys in Lua with the core's.

use std::time::Duration;

use tollway::block_on;
use tollway::core::algorithm::{SmoothedRate, SmoothedRateState};
use tollway::core::{Nanos, OnFull, OnStoreFailure};
use tollway::rates::RateUpdate;
use tollway_testbed::{Random, seed};

use crate::model::change;
use crate::servers;
use crate::world::{WORLDS, World};

const KEYS: usize = 200;
const ROUNDS: usize = 50;

/// The script repeats two numbers of the core: the rate from which on a rate is kept for longer, and how much longer.
/// Rates this high are too rare in random histories to show a difference.
#[test]
fn the_script_keeps_high_rates_as_long_as_the_core() {
    let limit = SmoothedRate::new(10.0, Duration::from_secs(1), false).unwrap();
    let low = limit.forget_after(1e6_f64.next_down());
    assert_eq!((limit.forget_after(0.0), limit.forget_after(1e6)), (low, low.saturating_mul(40)));
    let script = include_str!("../../src/store/redis/lua/smoothed_rate.lua");
    for line in [
        "if rate >= 1e6 then",
        "span_s, span_n = span_s * 40 + math.floor(span_n * 40 / 1e9), span_n * 40 % 1e9",
    ] {
        assert!(script.contains(line), "{line}");
    }
}

#[test]
fn rates_are_measured_as_in_the_core() {
    let store = servers::store("rates");
    let mut random = Random::new(seed());
    for (number, world) in WORLDS.into_iter().enumerate() {
        let keys: Vec<_> = (0..KEYS).map(|key| format!("{number} {key}")).collect();
        let mut rates: Vec<Option<SmoothedRateState>> = vec![None; KEYS];
        let mut now = World::start(&mut random);
        for _ in 0..ROUNDS {
            now = world.next(&mut random, now);
            let limits: Vec<_> = keys.iter().map(|_| any_limit(&mut random, world)).collect();
            let updates: Vec<_> = keys
                .iter()
                .zip(&limits)
                .map(|(key, limit)| {
                    RateUpdate::of_key(key.as_bytes(), limit, OnFull::Deny, OnStoreFailure::Deny)
                })
                .collect();
            let readings = block_on(store.update_rates(&updates, Some(now)));
            for ((rate, limit), measure) in rates.iter_mut().zip(&limits).zip(readings) {
                let before = *rate;
                let expected = change(rate, now, |rate| rate.update(limit, 1, now));
                let measure = measure.unwrap();
                assert_eq!(measure, expected, "at {now}: {limit:?} of {before:?}");
            }
        }
    }
}

fn any_limit(random: &mut Random, world: World) -> SmoothedRate {
    let longest = Nanos::MAX.get() / 1_000;
    let period = Duration::from_nanos(world.span(random).get().clamp(1, longest));
    SmoothedRate::new(random.between(1, 8) as f64 + 0.25, period, random.one_in(2)).unwrap()
}

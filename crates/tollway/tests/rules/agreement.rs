//! Compares random rules that share their logs with the naive one, over random histories: every verdict and every
//! `retry_after` is the same, to the nanosecond.
//!
//! A log is kept for the largest count and the longest span of the rules that fill it. So whenever a log begins, a rule
//! that never limits is the first to fill it, and wants as much kept as any of them.

use std::thread;

use tollway::Clock;
use tollway::block_on;
use tollway::core::{KeyedRule, RuleDecision, RuleLimit, Timestamp};
use tollway::engine::Engine;
use tollway_testbed::{Random, seed};

use crate::naive::{Logs, Naive, NaiveRate, SELECTORS, Values, any_values};
use crate::servers;

/// The number of decisions in which each store is compared.
const STEPS: u64 = 200_000;
/// The number of histories that run at a time: each waits for Redis nearly all the while.
const THREADS: u64 = 8;
/// The number of decisions that make one history.
const HISTORY: u64 = 150;

#[test]
fn in_memory_rules_decide_as_the_naive_one_does() {
    agree(STEPS, &|_| servers::in_memory());
}

#[test]
fn on_redis_rules_decide_as_the_naive_one_does() {
    agree(STEPS, &|thread| servers::over_redis(&servers::server().url(), &format!("naive{thread}")));
}

/// One after another, so that nobody comes between the parts of a rule and their being taken back.
#[test]
fn over_several_slots_rules_decide_as_the_naive_one_does() {
    agree(20_000, &|thread| servers::over_redis(&servers::cluster().url(), &format!("naive{thread}")));
}

/// Checks that Redis decides as memory does, in any order of rules that want different lengths of log kept.
#[test]
fn on_redis_a_log_is_kept_as_in_memory() {
    let mut random = Random::new(seed());
    let stores = [servers::in_memory(), servers::over_redis(&servers::server().url(), "kept-as")];
    for number in 0..150 {
        let world = World::new(&mut random, &format!("key{number}"));
        let mut now = 1_700_000_000_000_000_000;
        for _ in 0..HISTORY {
            now += if random.one_in(3) { 0 } else { random.magnitude(4_000_000_000) };
            let (rule, values) = (usize::try_from(random.between(0, 3)).unwrap(), any_values(&mut random));
            let bill = world.rules[rule].1.bill(|selector| value(selector, &values)).unwrap();
            let [memory, redis] = stores.each_ref().map(|(limiter, clock)| {
                clock.set(Timestamp::from_nanos(now));
                limiter.blocking().resolve(&bill)
            });
            assert_eq!(redis, memory, "{} of {values:?} at {now}", world.rules[rule].0.text());
        }
    }
}

fn agree(steps: u64, open: &(impl Fn(u64) -> (Engine, Clock) + Sync)) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let (limiter, clock) = open(thread);
                let mut random = Random::new(seed() + thread);
                for number in 0..steps.div_ceil(THREADS * HISTORY) {
                    World::new(&mut random, &format!("key{number}")).run(&limiter, &clock, &mut random);
                }
            });
        }
    });
}

/// Rules under one key, and all that was ever logged.
struct World {
    rules: Vec<(Naive, KeyedRule)>,
    /// A rule that never limits.
    keeper: (Naive, KeyedRule),
    /// The longest span of them all.
    span: u64,
    logs: Logs,
    /// The latest moment there was.
    latest: u64,
}

impl World {
    fn new(random: &mut Random, key: &str) -> Self {
        let counts = random.pick(&[2, 4, 12]);
        let spans = [1, 500, 1_000, 2_000, 60_000, 200 * 86_400_000];
        let spans = &spans[..usize::try_from(random.between(1, 6)).unwrap()];
        let keyed = |naive: Naive| {
            let rule = naive.text().parse().unwrap_or_else(|error| panic!("{error}"));
            (naive, KeyedRule::new(RuleLimit::new(rule), "", key))
        };
        let rules: Vec<_> = (0..4).map(|_| keyed(Naive::any(random, counts, spans, 0))).collect();
        let millis = spans[spans.len() - 1];
        let count = usize::try_from(counts).unwrap();
        let rate = |selector| Naive::Rate(NaiveRate { selector, count, millis });
        let keeper = keyed(Naive::And([Naive::Or(Vec::new())].into_iter().chain((0..3).map(rate)).collect()));
        Self { rules, keeper, span: millis * 1_000_000, logs: Logs::default(), latest: 0 }
    }

    fn run(mut self, limiter: &Engine, clock: &Clock, random: &mut Random) {
        let mut now = 1_700_000_000_000_000_000 + random.magnitude(1 << 40);
        for _ in 0..HISTORY {
            now = self.later(random, now);
            self.latest = self.latest.max(now);
            clock.set(Timestamp::from_nanos(now));
            let values = any_values(random);
            let silent = |selector| {
                let newest = self.logs.newest(selector, &values);
                !values[selector].is_empty() && newest.is_none_or(|newest| newest + self.span <= now)
            };
            let rule = random.between(0, 3);
            if (0..SELECTORS.len()).any(silent) {
                self.resolve(limiter, None, &values, now);
            } else if random.one_in(8) {
                self.examine(limiter, usize::try_from(rule).unwrap(), &values, now);
            }
            self.resolve(limiter, usize::try_from(rule).ok(), &values, now);
        }
    }

    /// Often the same moment, or the one when something ends, or just before; and sometimes the clock steps back.
    fn later(&self, random: &mut Random, now: u64) -> u64 {
        let end = |random: &mut Random| {
            let spans = self.rules.iter().flat_map(|(naive, _)| naive.rates()).map(NaiveRate::span);
            let entries: Vec<_> = self.logs.all().flatten().copied().collect();
            let spans: Vec<_> = spans.filter(|span| *span < 1 << 40).chain([0]).collect();
            if entries.is_empty() { now } else { random.pick(&entries) + random.pick(&spans) }
        };
        match random.between(0, 39) {
            0..=14 => now,
            15..=30 => now + random.magnitude(2_000_000_000),
            31..=35 => end(random).max(now),
            36 | 37 => end(random).saturating_sub(1).max(now),
            38 => self.not_before_a_silence(now - random.magnitude(3_000_000_000)).unwrap_or(now),
            _ => now + random.magnitude(100_000_000_000),
        }
    }

    /// Returns the moment, or `None` if a log may have been forgotten after it: a clock that steps back cannot restore
    /// it.
    fn not_before_a_silence(&self, moment: u64) -> Option<u64> {
        let silent = |entries: &[u64]| {
            let ends = entries.windows(2).filter(|pair| pair[0] + self.span <= pair[1]).map(|pair| pair[0]);
            ends.chain(entries.last().copied())
                .map(|end| end + self.span)
                .any(|end| (moment + 1..=self.latest).contains(&end))
        };
        (!self.logs.all().any(silent)).then_some(moment)
    }

    fn resolve(&mut self, limiter: &Engine, rule: Option<usize>, values: &Values, now: u64) {
        let (naive, keyed) = rule.map_or(&self.keeper, |rule| &self.rules[rule]);
        let bill = keyed.bill(|selector| value(selector, values)).unwrap();
        let expected = match naive.first_allowed(&self.logs, values, now) {
            Some(at) => RuleDecision::until(Timestamp::from_nanos(at), Timestamp::from_nanos(now)),
            None => RuleDecision::until(Timestamp::from_nanos(u64::MAX), Timestamp::EPOCH),
        };
        let ruling = limiter.blocking().resolve(&bill);
        assert_eq!(ruling, expected, "{} of {values:?} at {now}, with {:?}", naive.text(), self.logs);
        if ruling.allowed() {
            naive.log(&mut self.logs, values, now);
        }
    }

    fn examine(&self, limiter: &Engine, rule: usize, values: &Values, now: u64) {
        let (naive, keyed) = &self.rules[rule];
        let bill = keyed.bill(|selector| value(selector, values)).unwrap();
        let found = block_on(limiter.inspect_rule(&bill)).unwrap();
        assert_eq!(found.at, Timestamp::from_nanos(now));
        assert_eq!(found.reached_until.len(), naive.rates().len());
        for (rate, until) in naive.rates().into_iter().zip(found.reached_until) {
            let free = Naive::Rate(rate).first_allowed(&self.logs, values, now);
            let expected = free.map_or(Timestamp::from_nanos(u64::MAX), Timestamp::from_nanos);
            assert_eq!(
                until.max(found.at),
                expected,
                "{rate:?} of {} at {now}: {:?}",
                naive.text(),
                self.logs
            );
        }
    }
}

fn value(selector: &str, values: &Values) -> Result<Option<&'static str>, ()> {
    let place = SELECTORS.iter().position(|name| *name == selector).ok_or(())?;
    Ok(Some(values[place]))
}

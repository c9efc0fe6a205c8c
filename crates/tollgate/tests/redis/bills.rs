//! Bills on Redis beside the memory store: several charges, every kind, and expressions over them.

use tollgate::core::algorithm::{QuotaLimit, SlidingLogLimit, SmoothedRateLimit, TokenBucketLimit};
use tollgate::core::{Algorithm, Bill, Charge, Decision, Expression, Kind, Limit, Nanos, Refund, Timestamp};
use tollgate::store::memory::Memory;
use tollgate::store::redis::Redis;
use tollgate::waiting::block_on;
use tollgate_testbed::{Random, seed};

use crate::servers;

const LIMITS: u64 = 5;
const IDS: u64 = 12;

/// One charge on paper: the places of its limit and of its id.
#[derive(Clone, Debug)]
struct Line {
    limit: usize,
    id: String,
    cost: u64,
    kind: Kind,
}

/// A bill on paper.
#[derive(Clone, Debug)]
struct Paper {
    lines: Vec<Line>,
    expression: Option<Expression>,
}

#[test]
fn bills_are_settled_as_in_memory() {
    let mut random = Random::new(seed());
    let both = Both::new(servers::store("bills"), &mut random);
    both.compare(500, 100, true, &mut random);
}

/// One after another: where a bill is charged in parts, the next in a batch may come between.
#[test]
fn bills_over_several_slots_are_settled_as_in_memory() {
    let mut random = Random::new(seed());
    for number in 0..10 {
        let both = Both::new(servers::cluster_store(&format!("bills{number}")), &mut random);
        both.compare(300, 1, false, &mut random);
    }
}

/// The same bills to both.
struct Both {
    store: Redis,
    memory: Memory,
    limits: Vec<Limit>,
}

impl Both {
    fn new(store: Redis, random: &mut Random) -> Self {
        Self { store, memory: Memory::new(1_000_000), limits: any_limits(random) }
    }

    /// Batches of bills are settled, others are checked and some charges refunded, all of it as time passes.
    fn compare(mut self, rounds: usize, batch: usize, changing: bool, random: &mut Random) {
        self.introduce_scripts();
        let mut now = Timestamp::from_nanos(1_700_000_000_000_000_000);
        for _ in 0..rounds {
            now = now + Nanos::new(random.magnitude(3_000));
            if changing && random.one_in(20) {
                self.forget_logs();
                self.limits = any_limits(random);
            }
            let papers: Vec<_> = (0..batch).map(|_| any_paper(random)).collect();
            self.on_each(&papers, |bills| {
                let mut expected = Vec::new();
                self.memory.settle(bills, now, &mut expected);
                (block_on(self.store.settle(bills, Some(now))), expected)
            });
            let papers: Vec<_> = (0..batch.div_ceil(5)).map(|_| any_paper(random)).collect();
            self.on_each(&papers, |bills| {
                let mut expected = Vec::new();
                self.memory.check(bills, now, &mut expected);
                (block_on(self.store.check(bills, Some(now))), expected)
            });
            if random.one_in(4) {
                self.refund(&any_lines(random), now);
            }
        }
    }

    /// A script that Redis has not seen is sent and called again, which is after others of its batch: once, for each
    /// set of algorithms.
    fn introduce_scripts(&self) {
        let spend = Charge::new(&self.limits[0], b"nobody", 1).unwrap();
        block_on(self.store.settle(&[Bill::one(&spend)], None))[0].as_ref().unwrap();
        for set in 1..1 << self.limits.len() {
            let limits = self.limits.iter().enumerate().filter(|(index, _)| set & 1 << index != 0);
            let charges: Vec<_> = limits.map(|(_, limit)| Charge::new(limit, b"1", 0).unwrap()).collect();
            block_on(self.store.check(&[Bill::new(&charges).unwrap()], None))[0].as_ref().unwrap();
        }
    }

    fn on_each<E: std::fmt::Debug>(
        &self,
        papers: &[Paper],
        ask: impl FnOnce(&[Bill<'_>]) -> (Vec<Result<Decision, E>>, Vec<Decision>),
    ) {
        let charges: Vec<Vec<_>> = papers.iter().map(|paper| charges(&self.limits, &paper.lines)).collect();
        let bills: Vec<_> = papers
            .iter()
            .zip(&charges)
            .map(|(paper, charges)| match &paper.expression {
                Some(expression) => Bill::new(charges).unwrap().refused_by(expression).unwrap(),
                None => Bill::new(charges).unwrap(),
            })
            .collect();
        let (answers, expected) = ask(&bills);
        assert_eq!(answers.len(), expected.len());
        for ((paper, answer), expected) in papers.iter().zip(answers).zip(expected) {
            assert_eq!(answer.unwrap(), expected, "{paper:?} under {:?}", self.limits);
        }
    }

    fn refund(&self, lines: &[Line], now: Timestamp) {
        let charges = charges(&self.limits, lines);
        let refunds: Vec<Refund> =
            block_on(self.store.refund(&charges, Some(now))).into_iter().map(Result::unwrap).collect();
        let expected: Vec<_> = charges.iter().map(|charge| self.memory.refund(charge, now)).collect();
        assert_eq!(refunds, expected, "{lines:?} under {:?}", self.limits);
    }

    /// A longer period would bring back entries that a clock of Redis's own would have let expire.
    fn forget_logs(&self) {
        let ids: Vec<_> = (0..IDS).map(|id| id.to_string()).collect();
        for limit in self.limits.iter().filter(|limit| limit.name() == "Log") {
            for id in &ids {
                let charge = Charge::new(limit, id.as_bytes(), 0).unwrap();
                self.memory.reset(&charge);
                block_on(self.store.reset(&[charge])).unwrap();
            }
        }
    }
}

fn charges<'a>(limits: &'a [Limit], lines: &'a [Line]) -> Vec<Charge<'a>> {
    let charge = |line: &'a Line| {
        let limit = &limits[line.limit];
        let cost_max = limit.algorithm_for(line.id.as_bytes()).map_or(line.cost, Algorithm::cost_max);
        Charge::new(limit, line.id.as_bytes(), line.cost.min(cost_max)).unwrap().with_kind(line.kind)
    };
    lines.iter().map(charge).collect()
}

/// The last of them holds for one id only.
fn any_limits(random: &mut Random) -> Vec<Limit> {
    let mut period = || Nanos::new(random.between(50, 2_000));
    let [bucket, log, rate, quota, some] = [(); 5].map(|()| period());
    let [few, count] = [(); 2].map(|()| random.between(1, 8));
    let limit = |name: &str, algorithm| Limit::new(name).unwrap().with_default(algorithm);
    let mut some_ids = Limit::new("Some").unwrap().with_number(7);
    let bucket_of =
        |burst, count, period| Algorithm::TokenBucket(TokenBucketLimit::new(burst, count, period).unwrap());
    some_ids.add_override(b"1", bucket_of(count, few, some)).unwrap();
    let rate = SmoothedRateLimit::new(few as f64 + 0.5, rate, random.one_in(2)).unwrap();
    vec![
        limit("Bucket", bucket_of(few, count, bucket)),
        limit("Log", Algorithm::SlidingLog(SlidingLogLimit::new(count, log).unwrap())),
        limit("Rate", Algorithm::SmoothedRate(rate)),
        limit("Quota", Algorithm::Quota(QuotaLimit::new(few, quota).unwrap())),
        some_ids,
    ]
}

fn any_paper(random: &mut Random) -> Paper {
    let lines = any_lines(random);
    let expression = random.one_in(2).then(|| any_expression(random, lines.len(), 2));
    Paper { lines, expression }
}

/// One to five charges of different buckets.
fn any_lines(random: &mut Random) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for _ in 0..random.between(1, 5) {
        let limit = usize::try_from(random.between(0, LIMITS - 1)).unwrap();
        let id = random.between(0, IDS - 1).to_string();
        if lines.iter().all(|line| (line.limit, &line.id) != (limit, &id)) {
            let kind = random.pick(&[Kind::Spend, Kind::Spend, Kind::SpendOnly, Kind::CheckOnly]);
            lines.push(Line { limit, id, cost: random.magnitude(4), kind });
        }
    }
    lines
}

fn any_expression(random: &mut Random, charges: usize, depth: u64) -> Expression {
    if depth == 0 || random.one_in(3) {
        return Expression::Charge(usize::try_from(random.below(charges as u64)).unwrap());
    }
    let parts = (0..random.between(0, 3)).map(|_| any_expression(random, charges, depth - 1)).collect();
    if random.one_in(2) { Expression::Or(parts) } else { Expression::And(parts) }
}

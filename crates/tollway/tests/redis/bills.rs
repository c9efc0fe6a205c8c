//! Bills on Redis beside the memory store: several charges, every kind, expressions over them, and rules.

use tollway::block_on;
use tollway::core::{Bill, Charge, Decision, Nanos, Policy, Refund, Timestamp};
use tollway::store::memory::Memory;
use tollway::store::redis::Redis;
use tollway_testbed::{Random, seed};

use crate::paper::{Line, Paper, PaperRule, any_algorithms, any_lines, charges, policy};
use crate::servers;

const IDS: [&str; 12] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"];

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

/// Sends the same bills to Redis and to memory.
struct Both {
    store: Redis,
    memory: Memory,
    policy: Policy,
}

impl Both {
    fn new(store: Redis, random: &mut Random) -> Self {
        Self { store, memory: Memory::new(1_000_000), policy: any_policy(random) }
    }

    /// Batches of bills are settled, others are checked and some charges refunded, all of it as time passes.
    fn compare(mut self, rounds: usize, batch: usize, changing: bool, random: &mut Random) {
        self.introduce_scripts();
        let mut now = Timestamp::from_nanos(1_700_000_000_000_000_000);
        for _ in 0..rounds {
            // The rates of rules are in milliseconds.
            let most = if random.one_in(4) { 3_000_000 } else { 3_000 };
            now = now + Nanos::new(random.magnitude(most));
            if changing && random.one_in(20) {
                self.forget_logs();
                self.policy = any_policy(random).replacing(&self.policy, now);
                self.ask_all(now);
            }
            let papers: Vec<_> = (0..batch).map(|_| Paper::any(random, &IDS)).collect();
            self.on_each(&papers, |bills| {
                let mut expected = Vec::new();
                self.memory.settle(bills, now, &mut expected);
                (block_on(self.store.settle(bills, Some(now))), expected)
            });
            let papers: Vec<_> = (0..batch.div_ceil(5)).map(|_| Paper::any(random, &IDS)).collect();
            self.on_each(&papers, |bills| {
                let mut expected = Vec::new();
                self.memory.check(bills, now, &mut expected);
                (block_on(self.store.check(bills, Some(now))), expected)
            });
            if random.one_in(4) {
                self.refund(&any_lines(random, &IDS), now);
            }
        }
    }

    /// A script that Redis has not seen is sent and called again, which is after others of its batch: once, for each
    /// set of algorithms, with rules and without.
    fn introduce_scripts(&self) {
        let spend = Charge::new(&self.policy.limits()[0], b"nobody", 1).unwrap();
        block_on(self.store.settle(&[Bill::one(&spend)], None))[0].as_ref().unwrap();
        let rules = vec![PaperRule { any: true, rates: Vec::new(), key: "nobody", user: "" }];
        let paper = Paper { rules, ..Paper::default() };
        let keyed = paper.keyed_rules();
        let rules = paper.rule_bills(&keyed);
        for set in 0..1 << self.policy.limits().len() {
            let limits = self.policy.limits().iter().enumerate().filter(|(index, _)| set & 1 << index != 0);
            let charges: Vec<_> =
                limits.map(|(_, limit)| Charge::new(limit, IDS[0].as_bytes(), 0).unwrap()).collect();
            for rules in [&rules[..], &[]] {
                let Ok(bill) = Bill::with_rules(&charges, rules) else { continue };
                block_on(self.store.check(&[bill], None))[0].as_ref().unwrap();
            }
        }
    }

    fn on_each<E: std::fmt::Debug>(
        &self,
        papers: &[Paper],
        ask: impl FnOnce(&[Bill<'_>]) -> (Vec<Result<Decision, E>>, Vec<Decision>),
    ) {
        let charges: Vec<Vec<_>> = papers.iter().map(|paper| charges(&self.policy, &paper.lines)).collect();
        let keyed: Vec<_> = papers.iter().map(Paper::keyed_rules).collect();
        let rules: Vec<_> = papers.iter().zip(&keyed).map(|(paper, keyed)| paper.rule_bills(keyed)).collect();
        let bills = papers.iter().zip(&charges).zip(&rules);
        let bills: Vec<_> = bills.map(|((paper, charges), rules)| paper.bill(charges, rules)).collect();
        let (answers, expected) = ask(&bills);
        assert_eq!(answers.len(), expected.len());
        for ((paper, answer), expected) in papers.iter().zip(answers).zip(expected) {
            assert_eq!(answer.unwrap(), expected, "{paper:?} under {:?}", self.policy.limits());
        }
    }

    fn refund(&self, lines: &[Line], now: Timestamp) {
        let charges = charges(&self.policy, lines);
        let refunds: Vec<Refund> =
            block_on(self.store.refund(&charges, Some(now))).into_iter().map(Result::unwrap).collect();
        let expected: Vec<_> = charges.iter().map(|charge| self.memory.refund(charge, now)).collect();
        assert_eq!(refunds, expected, "{lines:?} under {:?}", self.policy.limits());
    }

    /// Memory knows when the numbers changed; Redis finds out when a bucket is asked.
    fn ask_all(&self, now: Timestamp) {
        let limits = self.policy.limits().iter().filter(|limit| ["Bucket", "Some"].contains(&limit.name()));
        for (limit, id) in limits.flat_map(|limit| IDS.map(|id| (limit, id))) {
            let charge = Charge::new(limit, id.as_bytes(), 0).unwrap();
            let mut expected = Vec::new();
            self.memory.settle(&[Bill::one(&charge)], now, &mut expected);
            let found = block_on(self.store.settle(&[Bill::one(&charge)], Some(now))).remove(0).unwrap();
            assert_eq!(found, expected[0], "{id} under {limit:?}");
            if found.remaining == 0 {
                // More may have been used than fits, which Redis remembers for servers that have other numbers.
                self.memory.reset(&charge);
                block_on(self.store.reset(&[charge])).unwrap();
            }
        }
    }

    /// A longer period would bring back entries that a clock of Redis's own would have let expire.
    fn forget_logs(&self) {
        for limit in self.policy.limits().iter().filter(|limit| limit.name() == "Log") {
            for id in IDS {
                let charge = Charge::new(limit, id.as_bytes(), 0).unwrap();
                self.memory.reset(&charge);
                block_on(self.store.reset(&[charge])).unwrap();
            }
        }
    }
}

fn any_policy(random: &mut Random) -> Policy {
    policy(any_algorithms(random), IDS[0])
}

//! Models a limiter's memory as a map of naive buckets.

use std::collections::{HashMap, HashSet};

use tollway::core::algorithm::SmoothedRate;
use tollway::core::{
    Algorithm, Bill, Charge, ChargeKind, Decision, Nanos, Policy, Refund, RuleDecision, Timestamp,
};

use crate::naive;
use crate::paper::{Paper, PaperRule};

#[derive(Default)]
pub(crate) struct Model {
    buckets: HashMap<(String, Vec<u8>), NaiveBucket>,
    /// Every entry that was ever made, in nanoseconds, by the key of a rule and the user; the empty one is everybody.
    logs: HashMap<LogKey, Vec<u64>>,
}

type LogKey = (&'static str, &'static str);

#[derive(Clone, Debug)]
enum NaiveBucket {
    TokenBucket(naive::NaiveTokenBucket),
    SlidingLog(naive::NaiveSlidingLog),
    SmoothedRate(naive::NaiveSmoothedRate),
    Quota(naive::NaiveQuota),
    FixedWindow(naive::NaiveFixedWindow),
    SlidingWindow(naive::NaiveSlidingWindow),
}

impl Model {
    /// Every charge is tried by itself; only then is the whole answered, and only then is anything taken.
    pub(crate) fn settle(&mut self, bill: &Bill<'_>, paper: &Paper, now: Timestamp) -> Decision {
        let answer = self.check(bill, paper, now);
        if answer.allowed() {
            // One entry in each log, whichever rules share it.
            let of_everybody = paper.rules.iter().map(|rule| (rule.key, ""));
            let logs: HashSet<LogKey> =
                paper.rules.iter().map(|rule| (rule.key, rule.user)).chain(of_everybody).collect();
            for log in logs {
                self.logs.entry(log).or_default().push(now.as_nanos());
            }
        }
        for charge in bill.charges() {
            let Some(algorithm) = charge.algorithm() else { continue };
            let fits = self.try_alone(charge, now).allowed();
            let bucket = self.bucket(charge, algorithm);
            match charge.kind() {
                ChargeKind::Spend | ChargeKind::SpendOnly if fits && answer.allowed() => {
                    let _ = bucket.spend(algorithm, charge.cost(), now);
                }
                // One that refuses takes nothing, but a strict rate counts the refusal, and what is further ahead
                // than its bucket can hold is pulled back.
                ChargeKind::Spend if !fits => drop(bucket.spend(algorithm, charge.cost(), now)),
                ChargeKind::SpendOnly | ChargeKind::CheckOnly if !fits => {
                    let _ = bucket.spend(algorithm, 0, now);
                }
                _ => {}
            }
        }
        answer
    }

    /// The numbers of token buckets change at `now`.
    pub(crate) fn reload(&mut self, old: &Policy, new: &Policy, now: Timestamp) {
        for ((name, id), bucket) in &mut self.buckets {
            let [old, new] = [old, new].map(|policy| policy.limit(name)?.algorithm_for(id));
            if let (
                NaiveBucket::TokenBucket(bucket),
                Some(Algorithm::TokenBucket(old)),
                Some(Algorithm::TokenBucket(new)),
            ) = (bucket, old, new)
            {
                bucket.change(old, new, now);
            }
        }
    }

    pub(crate) fn check(&mut self, bill: &Bill<'_>, paper: &Paper, now: Timestamp) -> Decision {
        let rules: Vec<_> = paper.rules.iter().map(|rule| self.ruling(rule, now)).collect();
        let mut fares = Vec::new();
        for charge in bill.charges() {
            fares.push((charge.kind(), self.try_alone(charge, now)));
        }
        naive::answer(paper.expression.as_ref(), &fares, &rules)
    }

    /// Tries every moment at which a rate may be free again.
    fn ruling(&self, rule: &PaperRule, now: Timestamp) -> RuleDecision {
        let entries = |of_user: bool| match (of_user, rule.user) {
            (true, "") => None,
            (true, user) => Some(self.logs.get(&(rule.key, user)).map_or(&[][..], |log| log)),
            (false, _) => Some(self.logs.get(&(rule.key, "")).map_or(&[][..], |log| log)),
        };
        let limits = |now: u64| {
            let reached = rule.rates.iter().map(|rate| {
                let young =
                    |log: &[u64]| log.iter().filter(|at| now < **at + rate.millis * 1_000_000).count();
                entries(rate.of_user).is_some_and(|log| young(log) as u64 >= rate.count)
            });
            if rule.any {
                reached.fold(false, |any, one| any | one)
            } else {
                reached.fold(true, |all, one| all & one)
            }
        };
        let ends = rule.rates.iter().flat_map(|rate| {
            let log = entries(rate.of_user).unwrap_or_default();
            log.iter().map(|at| at + rate.millis * 1_000_000)
        });
        let mut moments: Vec<_> = ends.filter(|end| *end > now.as_nanos()).chain([now.as_nanos()]).collect();
        moments.sort_unstable();
        let free = moments.into_iter().find(|moment| !limits(*moment)).unwrap_or(u64::MAX);
        RuleDecision::until(Timestamp::from_nanos(free), now)
    }

    pub(crate) fn refund(&mut self, charge: &Charge<'_>, now: Timestamp) -> Refund {
        let Some(algorithm) = charge.algorithm() else { return Refund::UNLIMITED };
        self.bucket(charge, algorithm).refund(algorithm, charge.cost(), now).unwrap_or(Refund::UNLIMITED)
    }

    pub(crate) fn reset(&mut self, charge: &Charge<'_>) {
        self.buckets.remove(&key(charge));
    }

    fn try_alone(&mut self, charge: &Charge<'_>, now: Timestamp) -> Decision {
        let Some(algorithm) = charge.algorithm() else { return Decision::UNLIMITED };
        self.bucket(charge, algorithm).clone().spend(algorithm, charge.cost(), now)
    }

    fn bucket(&mut self, charge: &Charge<'_>, algorithm: &Algorithm) -> &mut NaiveBucket {
        self.buckets.entry(key(charge)).or_insert_with(|| match algorithm {
            Algorithm::TokenBucket(_) => NaiveBucket::TokenBucket(naive::NaiveTokenBucket::default()),
            Algorithm::SlidingLog(_) => NaiveBucket::SlidingLog(naive::NaiveSlidingLog::default()),
            Algorithm::SmoothedRate(_) => NaiveBucket::SmoothedRate(naive::NaiveSmoothedRate::default()),
            Algorithm::Quota(_) => NaiveBucket::Quota(naive::NaiveQuota::default()),
            Algorithm::FixedWindow(_) => NaiveBucket::FixedWindow(naive::NaiveFixedWindow::default()),
            Algorithm::SlidingWindow(_) => NaiveBucket::SlidingWindow(naive::NaiveSlidingWindow::default()),
        })
    }
}

fn key(charge: &Charge<'_>) -> (String, Vec<u8>) {
    (charge.limit().name().to_owned(), charge.id().to_vec())
}

impl NaiveBucket {
    fn spend(&mut self, algorithm: &Algorithm, cost: u64, now: Timestamp) -> Decision {
        match (self, algorithm) {
            (Self::TokenBucket(bucket), Algorithm::TokenBucket(limit)) => bucket.spend(limit, cost, now),
            (Self::SlidingLog(bucket), Algorithm::SlidingLog(limit)) => bucket.spend(limit, cost, now),
            (Self::Quota(bucket), Algorithm::Quota(limit)) => bucket.spend(limit, cost, now),
            (Self::FixedWindow(bucket), Algorithm::FixedWindow(limit)) => bucket.spend(limit, cost, now),
            (Self::SlidingWindow(bucket), Algorithm::SlidingWindow(limit)) => bucket.spend(limit, cost, now),
            (Self::SmoothedRate(bucket), Algorithm::SmoothedRate(limit)) => {
                let mut decision = bucket.spend(limit, cost, now);
                decision.retry_nanos = wait(bucket, limit, cost, now);
                decision
            }
            (_, changed) => panic!("no history changes an algorithm to {changed:?}"),
        }
    }

    fn refund(&mut self, algorithm: &Algorithm, cost: u64, now: Timestamp) -> Option<Refund> {
        match (self, algorithm) {
            (Self::TokenBucket(bucket), Algorithm::TokenBucket(limit)) => {
                Some(bucket.refund(limit, cost, now))
            }
            (Self::SlidingLog(bucket), Algorithm::SlidingLog(limit)) => Some(bucket.refund(limit, cost, now)),
            (Self::Quota(bucket), Algorithm::Quota(limit)) => Some(bucket.refund(limit, cost, now)),
            (Self::FixedWindow(bucket), Algorithm::FixedWindow(limit)) => {
                Some(bucket.refund(limit, cost, now))
            }
            (Self::SlidingWindow(bucket), Algorithm::SlidingWindow(limit)) => {
                Some(bucket.refund(limit, cost, now))
            }
            _ => None,
        }
    }
}

/// The first nanosecond at which the rate has fallen far enough, between none and when it is forgotten.
fn wait(bucket: &naive::NaiveSmoothedRate, limit: &SmoothedRate, cost: u64, now: Timestamp) -> Nanos {
    let (mut low, mut high) = (0, limit.forget_after(f64::INFINITY).get());
    while low < high {
        let middle = (low + high) / 2;
        match bucket.over(limit, cost, now + Nanos::new(middle)) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Nanos::new(low)
}

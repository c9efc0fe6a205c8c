//! Resolves rules in the memory store: checks all rates of a rule and counts the request in one atomic step.

use std::slice;
use std::sync::atomic::Ordering;

use tollway_core::algorithm::SlidingLogState;
use tollway_core::rule::{LogName, Retention};
use tollway_core::{Bill, OnFull, RuleBill, RuleDecision, RuleLimit, Timestamp, Verdict};

use super::locked_buckets::LockedBuckets;
use super::{FULL_RETRY_AFTER, Memory, StoreFull};
use crate::hash::{BucketHash, HashKey};

/// The fingerprint that is used for the logs of rules, which have no limit.
pub(super) const LOG_FINGERPRINT: u64 = u64::from_le_bytes(*b"rule log");

/// The logs of a bill's rules.
pub(super) struct BillLogs<'a> {
    rules: &'a [RuleBill<'a>],
    /// The hashes of the logs of each rule, one rule after another; `None` where the selector has no value.
    hashes: Vec<Option<BucketHash>>,
    /// Each log once, with what all its rules want kept.
    logs: Vec<(BucketHash, Retention)>,
    empty: SlidingLogState,
}

/// The logs of one rule of a bill.
pub(super) struct RuleLogs<'b> {
    bill: &'b RuleBill<'b>,
    hashes: &'b [Option<BucketHash>],
    empty: &'b SlidingLogState,
}

impl Memory {
    /// Decides whether the rule allows a request. If so, the request is added to every log that has a name.
    #[inline]
    pub fn resolve(&self, bill: &RuleBill<'_>, now: impl FnOnce() -> Timestamp) -> RuleDecision {
        match bill.identifiers() {
            [Some(name)] => {
                let hash = hash(&self.key, name);
                self.shards.prefetch_bucket::<SlidingLogState>(hash);
                self.resolve_single(bill, hash, now())
            }
            _ => self.decide_locked(&Bill::rule(bill), now(), true).into(),
        }
    }

    /// Returns for each rate of the rule the time until which it is reached, and changes nothing.
    pub fn examine(&self, bill: &RuleBill<'_>) -> Vec<Timestamp> {
        self.with_logs(bill, |log| {
            let rates = bill.limit().rule().rates().iter();
            let until = rates
                .map(|rate| log(rate.log()).map_or(Timestamp::EPOCH, |entries| rate.reached_until(entries)));
            until.collect()
        })
    }

    /// Returns the number of requests that the rule would still allow at once; `None` if nothing limits them.
    pub fn remaining(&self, bill: &RuleBill<'_>, now: Timestamp) -> Option<usize> {
        self.with_logs(bill, |log| bill.limit().rule().remaining(log, now))
    }

    /// Locks the logs of a rule, and runs `read` with a function that returns each of them by its index.
    fn with_logs<T>(
        &self,
        bill: &RuleBill<'_>,
        read: impl for<'l> FnOnce(&dyn Fn(usize) -> Option<&'l SlidingLogState>) -> T,
    ) -> T {
        let logs = BillLogs::new(slice::from_ref(bill), &self.key);
        let locked = LockedBuckets::lock(self, logs.hashes());
        let rule = RuleLogs { bill, hashes: &logs.hashes, empty: &logs.empty };
        read(&|index| rule.get(&locked, index))
    }

    /// Resolves a rule that has one log, under one lock.
    #[inline]
    fn resolve_single(&self, bill: &RuleBill<'_>, hash: BucketHash, now: Timestamp) -> RuleDecision {
        let rule = bill.limit().rule();
        let decide = |log: &SlidingLogState| RuleDecision::until(rule.limits_until(|_| Some(log)), now);
        let len_after = |log: &SlidingLogState| match decide(log).allowed() {
            true => rule.logs()[0].retention().len_after(log, now),
            false => log.len(),
        };
        let resolve = |log: &mut SlidingLogState| {
            let decision = decide(log);
            if decision.allowed() {
                rule.logs()[0].log(log, now);
            }
            decision
        };
        self.change(hash, len_after, now, resolve)
            .unwrap_or_else(|StoreFull| self.refuse_rule(bill.limit(), true))
    }

    /// Returns the answer of a rule whose log the store has no room for, and counts it if it is more than a check.
    pub(super) fn refuse_rule(&self, limit: &RuleLimit, stores: bool) -> RuleDecision {
        self.refused_full.fetch_add(u64::from(stores), Ordering::Relaxed);
        match limit.on_full() {
            OnFull::Allow => RuleDecision::ALLOW.with_verdict(Verdict::AllowFull),
            OnFull::Deny => RuleDecision::new(Verdict::DenyFull, FULL_RETRY_AFTER),
        }
    }
}

impl<'a> BillLogs<'a> {
    pub(super) fn new(rules: &'a [RuleBill<'a>], key: &HashKey) -> Self {
        let (mut hashes, mut logs) = (Vec::new(), Vec::<(BucketHash, Retention)>::new());
        for rule in rules {
            for (name, log) in rule.identifiers().iter().zip(rule.limit().rule().logs()) {
                let hash = name.as_ref().map(|name| hash(key, name));
                hashes.push(hash);
                let Some(hash) = hash else { continue };
                match logs.iter_mut().find(|(earlier, _)| *earlier == hash) {
                    Some((_, retention)) => *retention = retention.and(log.retention()),
                    None => logs.push((hash, log.retention())),
                }
            }
        }
        Self { rules, hashes, logs, empty: SlidingLogState::default() }
    }

    /// Returns the hash of each log, once.
    pub(super) fn hashes(&self) -> impl Iterator<Item = BucketHash> + Clone {
        self.logs.iter().map(|(hash, _)| *hash)
    }

    /// Returns the logs of each rule, in their order.
    pub(super) fn rules(&self) -> impl Iterator<Item = RuleLogs<'_>> {
        self.rules.iter().scan(&*self.hashes, |rest, bill| {
            let (hashes, after) = rest.split_at(bill.identifiers().len());
            *rest = after;
            Some(RuleLogs { bill, hashes, empty: &self.empty })
        })
    }

    /// Returns the logs that the store has no room for one more entry in. Reserves the room in the others if `stores`.
    pub(super) fn without_room(
        &self,
        locked: &mut LockedBuckets<'_>,
        now: Timestamp,
        stores: bool,
    ) -> Vec<BucketHash> {
        let mut has_room = |(hash, retention): &(BucketHash, Retention)| {
            let len_after = |log: &SlidingLogState| retention.len_after(log, now);
            match stores {
                true => locked.reserve(*hash, len_after, now),
                false => locked.has_room(*hash, len_after, now),
            }
        };
        self.logs.iter().filter(|log| !has_room(log)).map(|(hash, _)| *hash).collect()
    }

    /// Enters the request in the logs of all rules that had room for all of theirs.
    pub(super) fn enter(&self, locked: &mut LockedBuckets<'_>, without_room: &[BucketHash], now: Timestamp) {
        for (hash, retention) in &self.logs {
            let enters = |rule: RuleLogs<'_>| rule.has_any(&[*hash]) && !rule.has_any(without_room);
            if without_room.is_empty() || self.rules().any(enters) {
                locked.change(*hash, now, |log| retention.log(log, now));
            }
        }
    }
}

impl RuleLogs<'_> {
    pub(super) fn limit(&self) -> &RuleLimit {
        self.bill.limit()
    }

    /// Returns the moment until which the rule limits.
    pub(super) fn limits_until(&self, locked: &LockedBuckets<'_>) -> Timestamp {
        self.limit().rule().limits_until(|index| self.get(locked, index))
    }

    /// Returns whether one of these logs is among those of the rule.
    pub(super) fn has_any(&self, logs: &[BucketHash]) -> bool {
        self.hashes.iter().flatten().any(|hash| logs.contains(hash))
    }

    fn get<'l>(&'l self, locked: &'l LockedBuckets<'_>, index: usize) -> Option<&'l SlidingLogState> {
        self.hashes[index].map(|hash| locked.get::<SlidingLogState>(hash).unwrap_or(self.empty))
    }
}

fn hash(key: &HashKey, name: &LogName<'_>) -> BucketHash {
    key.hash_of(LOG_FINGERPRINT, name.as_bytes())
}

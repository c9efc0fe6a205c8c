//! Resolves rules in the memory store: checks all rates of a rule and counts the request in one atomic step.

use std::sync::atomic::Ordering;

use tollway_core::algorithm::SlidingLogState;
use tollway_core::rule::LogName;
use tollway_core::rule::RuleLog;
use tollway_core::{OnFull, RuleBill, RuleDecision, Timestamp, Verdict};

use super::shard_guards::ShardGuards;
use super::{FULL_RETRY_AFTER, Memory, SWEEP_SLOTS, StoreFull};
use crate::hash::BucketHash;

/// The fingerprint that is used for the logs of rules, which have no limit.
const LOG_FINGERPRINT: u64 = u64::from_le_bytes(*b"rule log");

impl Memory {
    /// Decides whether the rule allows a request. If so, the request is added to every log that has a name.
    #[inline]
    pub fn resolve(&self, bill: &RuleBill<'_>, now: impl FnOnce() -> Timestamp) -> RuleDecision {
        match bill.identifiers() {
            [Some(name)] => {
                let hash = self.key.hash_of(LOG_FINGERPRINT, name.as_bytes());
                self.shards.prefetch_bucket::<SlidingLogState>(hash);
                self.resolve_single(bill, hash, now())
            }
            _ => self.resolve_locked(bill, now()),
        }
    }

    /// Returns for each rate of the rule the time until which it is reached, and changes nothing.
    pub fn examine(&self, bill: &RuleBill<'_>) -> Vec<Timestamp> {
        let hashes = self.hashes(bill);
        let guards = ShardGuards::lock(&self.shards, hashes.iter().copied().flatten());
        let empty = SlidingLogState::default();
        let rates = bill.limit().rule().rates().iter();
        let until = rates.map(|rate| match hashes[rate.log()] {
            Some(hash) => rate.reached_until(guards.log(hash).unwrap_or(&empty)),
            None => Timestamp::EPOCH,
        });
        until.collect()
    }

    /// Resolves a rule that has one log, under one lock.
    #[inline]
    fn resolve_single(&self, bill: &RuleBill<'_>, hash: BucketHash, now: Timestamp) -> RuleDecision {
        let rule = bill.limit().rule();
        let resolve = |log: &mut SlidingLogState| {
            let decision = RuleDecision::until(rule.limits_until(|_| Some(log)), now);
            if decision.allowed() {
                rule.logs()[0].log(log, now);
            }
            decision
        };
        self.change(hash, now, resolve).unwrap_or_else(|StoreFull| self.refuse_rule(bill))
    }

    /// Resolves a rule that has several logs: locks the shards of all of them before it looks at the first.
    fn resolve_locked(&self, bill: &RuleBill<'_>, now: Timestamp) -> RuleDecision {
        let rule = bill.limit().rule();
        let hashes = self.hashes(bill);
        let mut guards = ShardGuards::lock(&self.shards, hashes.iter().copied().flatten());
        let empty = SlidingLogState::default();
        let log = |index: usize| hashes[index].map(|hash| guards.log(hash).unwrap_or(&empty));
        let decision = RuleDecision::until(rule.limits_until(log), now);
        if !decision.allowed() {
            return decision;
        }
        let logs = || hashes.iter().zip(rule.logs());
        let outgrows = |(hash, log): (&Option<BucketHash>, &RuleLog)| {
            hash.is_some_and(|hash| guards.outgrows(hash, |bucket| log.log(bucket, now)))
        };
        let no_entries = self.entries.is_full() && logs().any(outgrows);
        let missing = hashes.iter().flatten().filter(|hash| guards.log(**hash).is_none()).count();
        let places = (0..missing).take_while(|_| self.reserve_bucket(now)).count();
        let full = places < missing || no_entries;
        let decision = if full { self.refuse_rule(bill) } else { decision };
        let mut made = 0;
        for (hash, log) in logs().filter(|_| !full) {
            let Some(hash) = *hash else { continue };
            let room = || {
                made += 1;
                true
            };
            // Capacity was reserved for every missing log, so this cannot fail.
            let _ = guards
                .tables(hash)
                .sliding_logs
                .change_or_insert(hash, now, room, |bucket| log.log(bucket, now));
            self.entries.count(guards.tables(hash).sliding_logs.take_entry_delta());
            guards.publish_locations(hash);
        }
        drop(guards);
        self.capacity.give_back(places - made);
        if made > 0 {
            self.sweep(SWEEP_SLOTS, now);
        }
        decision
    }

    fn hashes(&self, bill: &RuleBill<'_>) -> Vec<Option<BucketHash>> {
        let hash = |name: &LogName<'_>| self.key.hash_of(LOG_FINGERPRINT, name.as_bytes());
        bill.identifiers().iter().map(|name| name.as_ref().map(hash)).collect()
    }

    fn refuse_rule(&self, bill: &RuleBill<'_>) -> RuleDecision {
        self.refused_full.fetch_add(1, Ordering::Relaxed);
        match bill.limit().on_full() {
            OnFull::Allow => RuleDecision::ALLOW.with_verdict(Verdict::AllowFull),
            OnFull::Deny => RuleDecision::new(Verdict::DenyFull, FULL_RETRY_AFTER),
        }
    }
}

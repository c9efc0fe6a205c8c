//! Resolves rules in the memory store: checks all rates of a rule and counts the request in one atomic step.

use std::sync::atomic::Ordering;

use tollway_core::algorithm::SlidingLogState;
use tollway_core::rule::LogName;
use tollway_core::{OnFull, RuleBill, RuleDecision, Timestamp, Verdict};

use super::locked_buckets::LockedBuckets;
use super::{FULL_RETRY_AFTER, Memory, StoreFull};
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
        let locked = LockedBuckets::lock(self, hashes.iter().copied().flatten());
        let empty = SlidingLogState::default();
        let rates = bill.limit().rule().rates().iter();
        let until = rates.map(|rate| match hashes[rate.log()] {
            Some(hash) => rate.reached_until(locked.get(hash).unwrap_or(&empty)),
            None => Timestamp::EPOCH,
        });
        until.collect()
    }

    /// Returns the number of requests that the rule would still allow at once; `None` if nothing limits them.
    pub fn remaining(&self, bill: &RuleBill<'_>, now: Timestamp) -> Option<usize> {
        let hashes = self.hashes(bill);
        let locked = LockedBuckets::lock(self, hashes.iter().copied().flatten());
        let empty = SlidingLogState::default();
        let log = |index: usize| hashes[index].map(|hash| locked.get(hash).unwrap_or(&empty));
        bill.limit().rule().remaining(log, now)
    }

    /// Resolves a rule that has one log, under one lock.
    #[inline]
    fn resolve_single(&self, bill: &RuleBill<'_>, hash: BucketHash, now: Timestamp) -> RuleDecision {
        let rule = bill.limit().rule();
        let decide = |log: &SlidingLogState| RuleDecision::until(rule.limits_until(|_| Some(log)), now);
        let len_after = |log: &SlidingLogState| match decide(log).allowed() {
            true => rule.logs()[0].len_after(log, now),
            false => log.len(),
        };
        let resolve = |log: &mut SlidingLogState| {
            let decision = decide(log);
            if decision.allowed() {
                rule.logs()[0].log(log, now);
            }
            decision
        };
        self.change(hash, len_after, now, resolve).unwrap_or_else(|StoreFull| self.refuse_rule(bill))
    }

    /// Resolves a rule that has several logs, with all of them locked.
    fn resolve_locked(&self, bill: &RuleBill<'_>, now: Timestamp) -> RuleDecision {
        let rule = bill.limit().rule();
        let hashes = self.hashes(bill);
        let logs = || hashes.iter().zip(rule.logs()).filter_map(|(hash, log)| Some(((*hash)?, log)));
        self.with_locked(hashes.iter().copied().flatten(), now, |locked| {
            let empty = SlidingLogState::default();
            let log = |index: usize| hashes[index].map(|hash| locked.get(hash).unwrap_or(&empty));
            let decision = RuleDecision::until(rule.limits_until(log), now);
            if !decision.allowed() {
                return decision;
            }
            if !logs().all(|(hash, log)| locked.reserve(hash, |bucket| log.len_after(bucket, now), now)) {
                // The decision that the rates alone allow is thrown away if another attempt follows.
                return if locked.is_retried() { decision } else { self.refuse_rule(bill) };
            }
            for (hash, log) in logs() {
                locked.change(hash, now, |bucket| log.log(bucket, now));
            }
            decision
        })
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

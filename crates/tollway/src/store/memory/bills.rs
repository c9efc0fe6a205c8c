//! Decides bills of several charges and rules in the memory store: all of a bill is taken in one atomic step, or
//! nothing.

use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use tollway_core::algorithm::{Bucket, TokenBucketState};
use tollway_core::{
    Algorithm, Bill, CHARGES_MAX, Charge, ChargeKind, Decision, RULES_MAX, RuleDecision, Timestamp, Verdict,
};

use super::locked_buckets::{BucketPlace, LockedBuckets};
use super::rules::BillLogs;
use super::shard::{HasTable, with_bucket_type};
use super::{Memory, former, full_decision};
use crate::hash::BucketHash;

/// The decisions about the charges and the rules of one bill.
type Answers = ArrayVec<Decision, { CHARGES_MAX + RULES_MAX }>;

impl Memory {
    /// Appends the decisions that [`settle`](Self::settle) would make, and changes nothing.
    pub fn check(&self, bills: &[Bill<'_>], now: Timestamp, decisions: &mut Vec<Decision>) {
        decisions.extend(bills.iter().map(|bill| self.decide_locked(bill, now, false)));
    }

    /// Settles a bill, and appends the decision about each of its charges. If the bill is denied, they show what is
    /// left of the charges that would have fitted.
    pub fn settle_each(&self, bill: &Bill<'_>, now: Timestamp, each: &mut Vec<Decision>) -> Decision {
        self.decide_each(bill, &self.hashes(bill), now, true, Some(each))
    }

    /// Decides a bill with all its buckets and logs locked. If `stores` is false, nothing is changed.
    pub(super) fn decide_locked(&self, bill: &Bill<'_>, now: Timestamp, stores: bool) -> Decision {
        self.decide_each(bill, &self.hashes(bill), now, stores, None)
    }

    /// Settles a bill whose charges have these hashes, with all its buckets and logs locked.
    pub(super) fn settle_hashed(&self, bill: &Bill<'_>, hashes: &[BucketHash], now: Timestamp) -> Decision {
        self.settle_in_one_shard(bill, hashes, now)
            .unwrap_or_else(|| self.decide_each(bill, hashes, now, true, None))
    }

    /// Settles a bill of token buckets that exist and are in one shard, as those of one id are; `None` if they are not.
    fn settle_in_one_shard(
        &self,
        bill: &Bill<'_>,
        hashes: &[BucketHash],
        now: Timestamp,
    ) -> Option<Decision> {
        let number = self.shards.number(*hashes.first()?);
        let is_elsewhere = |hash: &BucketHash| self.shards.number(*hash) != number;
        if bill.expression().is_some() || !bill.rules().is_empty() || hashes.iter().any(is_elsewhere) {
            return None;
        }
        let mut tables = self.shards.lock(number);
        let table = TokenBucketState::table_mut(&mut tables);
        // Any token bucket is stricter than no limit at all.
        let (mut decision, mut charged) = (Decision::UNLIMITED, ArrayVec::<_, CHARGES_MAX>::new());
        for (index, (charge, hash)) in bill.charges().iter().zip(hashes).enumerate() {
            let (Some(Algorithm::TokenBucket(limit)), ChargeKind::Spend) =
                (charge.algorithm(), charge.kind())
            else {
                return None;
            };
            let place = table.find(hash.tag()).ok()?;
            let mut bucket = *table.get_at(place)?;
            let answer = bucket.charge(limit, charge.cost(), now);
            charged.push((place, bucket, answer.allowed()));
            decision = decision.stricter(answer.with_charge(index));
        }
        for &(place, bucket, fits) in &charged {
            // A denied bucket takes nothing, but a time that is too far ahead is corrected.
            if decision.allowed() || !fits {
                table.change_found(place, |stored| *stored = bucket);
            }
        }
        Some(decision)
    }

    fn hashes(&self, bill: &Bill<'_>) -> ArrayVec<BucketHash, CHARGES_MAX> {
        self.key.hash_each(bill.charges()).collect()
    }

    fn decide_each(
        &self,
        bill: &Bill<'_>,
        hashes: &[BucketHash],
        now: Timestamp,
        stores: bool,
        mut each: Option<&mut Vec<Decision>>,
    ) -> Decision {
        let charges = bill.charges();
        let logs = BillLogs::new(bill.rules(), &self.key);
        let buckets = hashes.iter().copied().chain(logs.hashes());
        self.with_locked(buckets, now, |locked| {
            for (charge, hash) in charges.iter().zip(hashes) {
                locked.carry_over(charge, *hash, now);
            }
            let (mut answers, mut places) = (Answers::new(), ArrayVec::<_, CHARGES_MAX>::new());
            for (charge, hash) in charges.iter().zip(hashes) {
                let (answer, place) = self.ask(locked, charge, *hash, now, stores);
                answers.push(answer);
                places.push(place);
            }
            let rulings = logs.rules().map(|rule| RuleDecision::until(rule.limits_until(locked), now));
            answers.extend(rulings.map(Decision::from));
            let mut decision = bill.answer(&answers);
            let without_room =
                if decision.allowed() { logs.without_room(locked, now, stores) } else { Vec::new() };
            if locked.is_retried() {
                // The decision is thrown away.
                return decision;
            }
            if !without_room.is_empty() {
                for (rule, answer) in logs.rules().zip(&mut answers[charges.len()..]) {
                    if rule.has_any(&without_room) {
                        *answer = self.refuse_rule(rule.limit(), stores).into();
                    }
                }
                decision = bill.answer(&answers);
            }
            if let Some(each) = &mut each {
                each.clear();
                let looked = answers.iter().zip(charges).zip(hashes).map(|((answer, charge), hash)| {
                    let took = decision.allowed() || answer.verdict != Verdict::Allow;
                    if took { *answer } else { look(locked, charge, *hash, now) }
                });
                each.extend(looked);
            }
            if stores {
                // First the buckets that were found: inserting one moves others.
                for exists in [true, false] {
                    let parts = answers.iter().zip(charges).zip(hashes.iter().zip(&places));
                    for ((answer, charge), (hash, place)) in parts {
                        if place.is_some() == exists {
                            commit(locked, charge, *hash, *place, answer.verdict, decision.allowed(), now);
                        }
                    }
                }
            }
            if stores && decision.allowed() {
                logs.enter(locked, &without_room, now);
            }
            decision
        })
    }

    /// Returns the decision about one charge alone, and the place of its bucket if that can be changed in place.
    /// Reserves the room that a charge needs if it is going to be stored.
    fn ask(
        &self,
        locked: &mut LockedBuckets<'_>,
        charge: &Charge<'_>,
        hash: BucketHash,
        now: Timestamp,
        stores: bool,
    ) -> (Decision, Option<BucketPlace>) {
        let Some(algorithm) = charge.algorithm() else { return (Decision::UNLIMITED, None) };
        let cost = charge.cost();
        with_bucket_type!(algorithm, |B, limit| {
            if !B::GROWS
                && let Some(place) = locked.find::<B>(hash)
            {
                return (locked.check_at::<B>(place, limit, cost, now), Some(place));
            }
            let entries_after = |bucket: &B| bucket.entries_after(limit, cost, now);
            // There was no room to put an empty one there, so there is none for a full one either.
            let is_lost = locked.get::<B>(hash).is_none() && former::is_lost::<B>(charge, limit, now);
            let has_room = cost == 0
                || charge.kind() == ChargeKind::CheckOnly
                || is_lost && locked.lack_room::<B>(hash)
                || !is_lost
                    && match stores {
                        true => locked.reserve(hash, entries_after, now),
                        false => locked.has_room(hash, entries_after, now),
                    };
            if has_room {
                return (locked.check::<B>(hash, limit, cost, now), None);
            }
        });
        if stores && !locked.is_retried() {
            self.refused_full.fetch_add(1, Ordering::Relaxed);
        }
        (full_decision(charge), None)
    }
}

/// Returns what is left in the bucket of a charge.
fn look(locked: &LockedBuckets<'_>, charge: &Charge<'_>, hash: BucketHash, now: Timestamp) -> Decision {
    let Some(algorithm) = charge.algorithm() else { return Decision::UNLIMITED };
    with_bucket_type!(algorithm, |B, limit| locked.check::<B>(hash, limit, 0, now))
}

/// Stores what the decision about a bill means for one of its charges, which alone got this verdict.
fn commit(
    locked: &mut LockedBuckets<'_>,
    charge: &Charge<'_>,
    hash: BucketHash,
    place: Option<BucketPlace>,
    verdict: Verdict,
    bill_allowed: bool,
    now: Timestamp,
) {
    use ChargeKind::{CheckOnly, Spend, SpendOnly};
    let Some(algorithm) = charge.algorithm() else { return };
    let cost = match (verdict, charge.kind()) {
        (Verdict::Allow, Spend | SpendOnly) if bill_allowed => charge.cost(),
        // It is denied again and takes nothing. But a strict smoothed rate must count the attempt, and a timestamp that
        // is too far ahead (the clock ran back) must be corrected.
        (Verdict::Deny, Spend) => charge.cost(),
        // The others must not wait for a timestamp that is too far ahead either. Cost 0 corrects it and counts nothing.
        (Verdict::Deny, SpendOnly | CheckOnly) => 0,
        _ => return,
    };
    with_bucket_type!(algorithm, |B, limit| {
        let charge = |bucket: &mut B| _ = bucket.charge(limit, cost, now);
        match place {
            Some(place) => locked.change_at(place, charge),
            None => locked.change(hash, now, charge),
        }
    });
}

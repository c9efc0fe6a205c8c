//! Locks all buckets of one bill at once, so that the bill is settled as a whole.

use tollway_core::algorithm::Bucket;
use tollway_core::bill::CHARGES_MAX;
use tollway_core::{Algorithm, Bill, Charge, ChargeKind, Decision, Timestamp, Verdict};

use super::Memory;
use super::shard::with_table;
use super::shard_guards::ShardGuards;
use crate::hash::BucketHash;

/// The charges of a bill, with the locks of every shard that they touch.
pub(super) struct LockedBill<'a> {
    store: &'a Memory,
    charges: &'a [Charge<'a>],
    hashes: [BucketHash; CHARGES_MAX],
    guards: ShardGuards<'a>,
}

impl<'a> LockedBill<'a> {
    pub(super) fn new(store: &'a Memory, bill: &Bill<'a>) -> Self {
        let charges = bill.charges();
        let mut hashes = [BucketHash::NONE; CHARGES_MAX];
        for (hash, charge) in hashes.iter_mut().zip(charges) {
            *hash = store.key.hash(charge);
        }
        let guards = ShardGuards::lock(&store.shards, hashes[..charges.len()].iter().copied());
        Self { store, charges, hashes, guards }
    }

    /// Returns whether charging this charge would insert a bucket.
    pub(super) fn needs_room(&mut self, index: usize) -> bool {
        let (charge, hash) = (&self.charges[index], self.hashes[index]);
        let Some(algorithm) = charge.algorithm() else { return false };
        let tables = self.guards.tables(hash);
        charge.cost() > 0
            && charge.kind() != ChargeKind::CheckOnly
            && !with_table!(tables, algorithm, |table, _limit| table.contains(hash))
    }

    /// Returns whether charging this charge would take more memory than its bucket has.
    pub(super) fn outgrows(&mut self, index: usize, now: Timestamp) -> bool {
        let (charge, hash) = (&self.charges[index], self.hashes[index]);
        let Some(algorithm) = charge.algorithm() else { return false };
        let tables = self.guards.tables(hash);
        charge.kind() != ChargeKind::CheckOnly
            && with_table!(tables, algorithm, |table, limit| {
                table.outgrows(hash, |bucket| bucket.take(limit, charge.cost(), now))
            })
    }

    /// Returns the decision about this charge alone, and changes nothing.
    pub(super) fn check(&mut self, index: usize, now: Timestamp) -> Decision {
        let (charge, hash) = (&self.charges[index], self.hashes[index]);
        let Some(algorithm) = charge.algorithm() else { return Decision::UNLIMITED };
        let tables = self.guards.tables(hash);
        with_table!(tables, algorithm, |table, limit| table.check(hash, limit, charge.cost(), now))
    }

    /// Applies the answer to the bill to each charge, and returns the number of buckets that were inserted. The caller
    /// has already reserved capacity for them.
    pub(super) fn commit(&mut self, answers: &[Decision], allowed: bool, now: Timestamp) -> usize {
        let mut made = 0;
        for (index, (charge, answer)) in self.charges.iter().zip(answers).enumerate() {
            let Some(algorithm) = charge.algorithm() else { continue };
            let (hash, cost) = (self.hashes[index], charge.cost());
            let takes = charge.kind() != ChargeKind::CheckOnly;
            let tables = self.guards.tables(hash);
            let room = || {
                made += 1;
                true
            };
            // The caller reserved capacity for every missing bucket, so none of these can fail.
            let _ = match answer.verdict {
                Verdict::Allow if takes && allowed => with_table!(tables, algorithm, |table, limit| {
                    table
                        .change_or_insert(hash, now, room, |bucket| bucket.charge(limit, cost, now))
                        .map(|_| ())
                }),
                Verdict::Deny if takes && allowed => with_table!(tables, algorithm, |table, limit| {
                    table.change_or_insert(hash, now, room, |bucket| bucket.take(limit, cost, now))
                }),
                // It is denied again and takes nothing. But a strict smoothed rate must count the attempt, and a
                // timestamp that is too far ahead (the clock ran back) must be corrected.
                Verdict::Deny if charge.kind() == ChargeKind::Spend => {
                    with_table!(tables, algorithm, |table, limit| {
                        table
                            .change_or_insert(hash, now, room, |bucket| bucket.charge(limit, cost, now))
                            .map(|_| ())
                    })
                }
                // A check must not wait for a timestamp that is too far ahead either. Cost 0 corrects it and counts
                // nothing.
                Verdict::Deny if charge.kind() == ChargeKind::CheckOnly => {
                    with_table!(tables, algorithm, |table, limit| {
                        table
                            .change_or_insert(hash, now, room, |bucket| bucket.charge(limit, 0, now))
                            .map(|_| ())
                    })
                }
                _ => continue,
            };
            self.store.entries.count(self.guards.tables(hash).sliding_logs.take_entry_delta());
            self.guards.publish_locations(hash);
        }
        made
    }
}

//! All the buckets of one bill, held at once.

use tollway_core::algorithm::Bucket;
use tollway_core::bill::CHARGES_MAX;
use tollway_core::{Algorithm, Bill, Charge, ChargeKind, Decision, Timestamp, Verdict};

use super::Memory;
use super::shard::with_table;
use super::shard_guards::ShardGuards;
use crate::hash::BucketHash;

/// The charges of a bill, and the locks of every shard they touch.
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

    /// Would charging this one have to make a bucket?
    pub(super) fn needs_room(&mut self, index: usize) -> bool {
        let (charge, hash) = (&self.charges[index], self.hashes[index]);
        let Some(algorithm) = charge.algorithm() else { return false };
        let tables = self.guards.tables(hash);
        charge.cost() > 0
            && charge.kind() != ChargeKind::CheckOnly
            && !with_table!(tables, algorithm, |table, _limit| table.contains(hash))
    }

    /// Would charging this one take more memory than its bucket has?
    pub(super) fn outgrows(&mut self, index: usize, now: Timestamp) -> bool {
        let (charge, hash) = (&self.charges[index], self.hashes[index]);
        let Some(algorithm) = charge.algorithm() else { return false };
        let tables = self.guards.tables(hash);
        charge.kind() != ChargeKind::CheckOnly
            && with_table!(tables, algorithm, |table, limit| {
                table.outgrows(hash, |bucket| bucket.take(limit, charge.cost(), now))
            })
    }

    /// What the charge would come to by itself.
    pub(super) fn check(&mut self, index: usize, now: Timestamp) -> Decision {
        let (charge, hash) = (&self.charges[index], self.hashes[index]);
        let Some(algorithm) = charge.algorithm() else { return Decision::UNLIMITED };
        let tables = self.guards.tables(hash);
        with_table!(tables, algorithm, |table, limit| table.check(hash, limit, charge.cost(), now))
    }

    /// Does what the answer to the bill means for each charge, and says how many buckets it made. Room for those that were
    /// missing has been taken already.
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
            // Room was taken for whatever is missing, so none of these can fail.
            let _ = match answer.verdict {
                Verdict::Allow if takes && allowed => with_table!(tables, algorithm, |table, limit| {
                    table.change(hash, now, room, |bucket| bucket.charge(limit, cost, now)).map(|_| ())
                }),
                Verdict::Deny if takes && allowed => with_table!(tables, algorithm, |table, limit| {
                    table.change(hash, now, room, |bucket| bucket.take(limit, cost, now))
                }),
                // Refused again, it takes nothing; but it counts the update where updates count, and mends an instant too far ahead.
                Verdict::Deny if charge.kind() == ChargeKind::Spend => {
                    with_table!(tables, algorithm, |table, limit| {
                        table.change(hash, now, room, |bucket| bucket.charge(limit, cost, now)).map(|_| ())
                    })
                }
                // Who only checks must not wait for an instant too far ahead either; cost 0 mends it and counts nothing.
                Verdict::Deny if charge.kind() == ChargeKind::CheckOnly => {
                    with_table!(tables, algorithm, |table, limit| {
                        table.change(hash, now, room, |bucket| bucket.charge(limit, 0, now)).map(|_| ())
                    })
                }
                _ => continue,
            };
            self.store.entries.count(self.guards.tables(hash).sliding_logs.tell_growth());
            self.guards.note_places(hash);
        }
        made
    }
}

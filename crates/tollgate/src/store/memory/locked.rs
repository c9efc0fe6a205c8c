//! All the buckets of one bill, held at once.

use tollgate_core::algorithm::Bucket;
use tollgate_core::bill::CHARGES_MAX;
use tollgate_core::{Algorithm, Bill, Charge, Decision, Kind, Timestamp, Verdict};

use super::Memory;
use super::shard::{Guard, Shards, with_table};
use crate::hash::BucketHash;

/// The locks of every shard a bill touches, taken in the order of the shards so that two bills never wait for each other.
pub(super) struct Locked<'a> {
    charges: &'a [Charge<'a>],
    hashes: [BucketHash; CHARGES_MAX],
    shards: &'a Shards,
    guards: Vec<(usize, Guard<'a>)>,
    /// Which of `guards` each charge belongs to.
    places: [usize; CHARGES_MAX],
}

impl<'a> Locked<'a> {
    pub(super) fn new(store: &'a Memory, bill: &Bill<'a>) -> Self {
        let charges = bill.charges();
        let mut hashes = [BucketHash::NONE; CHARGES_MAX];
        for (hash, charge) in hashes.iter_mut().zip(charges) {
            *hash = store.key.hash(charge);
        }
        let shard_of = |hash: &BucketHash| store.shards.number(*hash);
        let mut numbers: Vec<usize> = hashes[..charges.len()].iter().map(shard_of).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut places = [0; CHARGES_MAX];
        for (place, hash) in places.iter_mut().zip(&hashes[..charges.len()]) {
            *place = numbers.partition_point(|number| *number < shard_of(hash));
        }
        let lock = |number: usize| (number, store.shards.lock(number));
        let guards = numbers.into_iter().map(lock).collect();
        Self { charges, hashes, shards: &store.shards, guards, places }
    }

    /// Would charging this one have to make a bucket?
    pub(super) fn needs_room(&mut self, index: usize) -> bool {
        let (charge, hash) = (&self.charges[index], self.hashes[index]);
        let Some(algorithm) = charge.algorithm() else { return false };
        let tables = &mut self.guards[self.places[index]].1;
        charge.cost() > 0
            && charge.kind() != Kind::CheckOnly
            && !with_table!(tables, algorithm, |table, _limit| table.contains(hash))
    }

    /// What the charge would come to by itself.
    pub(super) fn check(&mut self, index: usize, now: Timestamp) -> Decision {
        let (charge, hash) = (&self.charges[index], self.hashes[index]);
        let Some(algorithm) = charge.algorithm() else { return Decision::UNLIMITED };
        let tables = &mut self.guards[self.places[index]].1;
        with_table!(tables, algorithm, |table, limit| table.check(hash, limit, charge.cost(), now))
    }

    /// Does what the answer to the bill means for each charge, and says how many buckets it made. Room for those that were
    /// missing has been taken already.
    pub(super) fn commit(&mut self, answers: &[Decision], allowed: bool, now: Timestamp) -> usize {
        let mut made = 0;
        for (index, (charge, answer)) in self.charges.iter().zip(answers).enumerate() {
            let Some(algorithm) = charge.algorithm() else { continue };
            let (hash, cost) = (self.hashes[index], charge.cost());
            let takes = charge.kind() != Kind::CheckOnly;
            let (number, tables) = &mut self.guards[self.places[index]];
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
                // Refused again, it takes nothing; but it counts the knock where knocks count, and mends an instant too far ahead.
                Verdict::Deny if charge.kind() == Kind::Spend => {
                    with_table!(tables, algorithm, |table, limit| {
                        table.change(hash, now, room, |bucket| bucket.charge(limit, cost, now)).map(|_| ())
                    })
                }
                // Who only checks must not wait for an instant too far ahead either; cost 0 mends it and counts nothing.
                Verdict::Deny if charge.kind() == Kind::CheckOnly => {
                    with_table!(tables, algorithm, |table, limit| {
                        table.change(hash, now, room, |bucket| bucket.charge(limit, 0, now)).map(|_| ())
                    })
                }
                _ => continue,
            };
            self.shards.note_places(*number, tables);
        }
        made
    }
}

//! Carries buckets over to the numbers that a reload gave their limit.
//!
//! A token bucket is one moment, which only its emission interval turns into tokens. So the interval is a part of the
//! hash, and a bucket is never read under an interval that it was not written under. Its first request after a change
//! does not find it, looks where it was before, and moves it. The fast path does not notice.
//!
//! Limits that are strict about crashes are handled here too: a request that does not find a bucket, which may have
//! been lost in a crash, first puts one there in which everything is spent.

use tollway_core::algorithm::{Bucket, TokenBucketState};
use tollway_core::{Algorithm, Charge, Timestamp};

use super::Memory;
use super::capacity::BucketCount;
use super::shard::{HasTable, Tables, with_bucket_type};
use crate::hash::BucketHash;

/// Spends everything that is in a new bucket, if it may have been lost in a crash. It gets here without having been
/// inserted by [`Memory::carry_over`] if the store was full then, and has a place by now.
pub(super) fn spend_if_lost<'b, B: HasTable>(
    charge: &Charge<'_>,
    bucket: &'b mut B,
    limit: &B::Limit,
    now: Timestamp,
) -> &'b mut B {
    let is_new = bucket.expires_at() == Timestamp::EPOCH;
    if is_new
        && let Some(algorithm) = charge.algorithm()
        && let Some(since) = charge.limit().empty_since(algorithm, now)
    {
        let _ = bucket.charge(limit, algorithm.cost_max(), since);
    }
    bucket
}

/// Returns whether a bucket that is not there counts as spent: it may have been lost in a crash, and would not be full
/// yet.
pub(super) fn is_lost<B: HasTable>(charge: &Charge<'_>, limit: &B::Limit, now: Timestamp) -> bool {
    charge.limit().looks_further() && spend_if_lost(charge, &mut B::default(), limit, now).expires_at() > now
}

impl Memory {
    /// Moves the token bucket of a charge to `hash`, if there is none yet and its id has one left from former numbers
    /// of the limit. It stays in its shard, which depends on the id alone.
    pub(super) fn carry_over(
        &self,
        tables: &mut Tables,
        charge: &Charge<'_>,
        hash: BucketHash,
        now: Timestamp,
    ) {
        if charge.limit().looks_further() {
            self.look_further(tables, charge, hash, now);
        }
    }

    #[cold]
    fn look_further(&self, tables: &mut Tables, charge: &Charge<'_>, hash: BucketHash, now: Timestamp) {
        if TokenBucketState::table(tables).get(hash.tag()).is_none() {
            self.take_former(tables, charge, hash, now);
        }
        let Some(algorithm) = charge.algorithm() else { return };
        if !matches!(algorithm, Algorithm::TokenBucket(_)) {
            with_bucket_type!(algorithm, |B, _limit| self.take_renamed::<B>(tables, charge, hash, now));
        }
        let Some(since) = charge.limit().empty_since(algorithm, now) else { return };
        with_bucket_type!(algorithm, |B, limit| {
            let spend_all = |bucket: &mut B| _ = bucket.charge(limit, algorithm.cost_max(), since);
            self.insert_spent(tables, hash, now, spend_all);
        });
    }

    /// Inserts a bucket with nothing left in it, if there is none. Without room for it, the request that asks finds
    /// none either.
    fn insert_spent<B: HasTable>(
        &self,
        tables: &mut Tables,
        hash: BucketHash,
        now: Timestamp,
        spend_all: impl FnOnce(&mut B),
    ) {
        let table = B::table_mut(tables);
        if table.get(hash.tag()).is_some() || B::GROWS && self.entries.is_full() {
            return;
        }
        let _ = table.change_or_insert(hash.tag(), now, || self.places.take(hash.tag()).is_some(), spend_all);
        self.entries.count(table.take_entry_delta());
        self.shards.publish_location::<B>(self.shards.number(hash), tables);
    }

    /// Moves a bucket of another algorithm to `hash`, if there is none yet: the limit became strict about crashes, or
    /// lenient, and its buckets are found by another number since then.
    fn take_renamed<B: HasTable>(
        &self,
        tables: &mut Tables,
        charge: &Charge<'_>,
        hash: BucketHash,
        now: Timestamp,
    ) {
        let table = B::table_mut(tables);
        if table.get(hash.tag()).is_some() {
            return;
        }
        let mark = |base| self.key.hash_of(base, charge.id()).tag();
        let Some(former) = charge.limit().former_bases().map(mark).find(|tag| table.get(*tag).is_some())
        else {
            return;
        };
        let mut bucket = B::default();
        table.change_existing(former, |stored| std::mem::swap(stored, &mut bucket));
        table.remove(former);
        if bucket.expires_at() > now {
            // It takes the place that it had before.
            let _ = table.change_or_insert(hash.tag(), now, || true, |new| *new = bucket);
        } else {
            self.places.give_back(BucketCount::one(hash.tag()));
        }
        self.entries.count(B::table_mut(tables).take_entry_delta());
        self.shards.publish_location::<B>(self.shards.number(hash), tables);
    }

    fn take_former(&self, tables: &mut Tables, charge: &Charge<'_>, hash: BucketHash, now: Timestamp) {
        let table = TokenBucketState::table_mut(tables);
        let take = |fingerprint| {
            let former = self.key.hash_of(fingerprint, charge.id()).tag();
            let bucket = table.get(former).map(|bucket| *bucket);
            table.remove(former);
            bucket
        };
        let Some(bucket) = charge.take_former(take) else { return };
        if bucket.expires_at() > now {
            // It takes the place that it had before.
            let _ = table.change_or_insert(hash.tag(), now, || true, |new| *new = bucket);
        } else {
            self.places.give_back(BucketCount::one(hash.tag()));
        }
        self.shards.publish_location::<TokenBucketState>(self.shards.number(hash), tables);
    }
}

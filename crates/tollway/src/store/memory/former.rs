//! Carries buckets over to the numbers that a reload gave their limit.
//!
//! A token bucket is one moment, which only its emission interval turns into tokens. So the interval is a part of the
//! hash, and a bucket is never read under an interval that it was not written under. Its first request after a change
//! does not find it, looks where it was before, and moves it. The fast path does not notice.
//!
//! Limits that are strict about crashes are handled here too: a request that does not find a bucket, which may have
//! been lost in a crash, first puts one there in which everything is spent.

use tollway_core::algorithm::{Bucket, TokenBucketState};
use tollway_core::{Charge, Timestamp};

use super::Memory;
use super::capacity::BucketCount;
use super::shard::{HasTable, Tables, with_bucket_type};
use crate::hash::BucketHash;

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

//! A list of ids, which gives names to the buckets of an export that has only hashes.

use std::collections::HashMap;

use thiserror::Error;
use tollway_core::algorithm::{Bucket, QuotaState, TokenBucketState};
use tollway_core::{Nanos, Policy, Timestamp};

use super::{Batch, ExportHeader, ExportedBucket, NamedState};
use crate::engine::policy_of;
use crate::hash::HashKey;
use crate::journal::{AnyState, HashIdentity, JournalState};
use crate::store::bucket_name::BucketName;
use crate::store::memory::{NamedPlace, PlaceForm, places};
use crate::store::written_token_bucket::WrittenTokenBucket;

/// The names of buckets, by the numbers that an export without names has for them.
#[derive(Debug)]
pub struct NameList {
    identity: HashIdentity,
    key: HashKey,
    policy: Policy,
    now: Timestamp,
    names: HashMap<HashedPlace, KnownName>,
}

/// The numbers that an export without names has for a bucket.
#[derive(Debug, PartialEq, Eq, Hash)]
struct HashedPlace {
    shard: usize,
    tag: u64,
    kind: u8,
}

#[derive(Debug)]
struct KnownName {
    name: Box<[u8]>,
    form: Form,
}

/// The way in which the state of a hash is written under its name.
#[derive(Clone, Copy, Debug)]
enum Form {
    TokenBucket(Option<Nanos>),
    Instant(usize),
    Other,
}

/// The error of a name that no bucket can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameListError {
    /// The text is not the name of a bucket.
    #[error("write the name of a bucket, such as LIMIT:ID")]
    Malformed,
    /// The id is too long to be in a key of Redis.
    #[error("the id has more than 512 bytes, and Redis has only its digest")]
    TooLong,
    /// The configuration has no such limit or domain.
    #[error("the configuration has no such limit or domain")]
    Unknown,
}

impl NameList {
    /// Returns an empty list for an export of memory, or `None` if its buckets have names already. The policy must be
    /// that of the source.
    pub fn new(header: &ExportHeader, policy: Policy, now: Timestamp) -> Option<Self> {
        let identity = header.identity?;
        let (key, policy) = (HashKey::new(identity.key), policy_of(policy, header));
        Some(Self { identity, key, policy, now, names: HashMap::new() })
    }

    /// Adds a name, such as `LIMIT:ID`. A `%` in an id is written `%25`.
    pub fn add(&mut self, name: &[u8]) -> Result<(), NameListError> {
        let parsed = BucketName::parse(name).ok_or(NameListError::Malformed)?;
        let name = parsed.canonical().ok_or(NameListError::TooLong)?;
        let places = places(&self.key, &self.policy, &parsed, self.now);
        if places.is_empty() {
            return Err(NameListError::Unknown);
        }
        for NamedPlace { hash, form, .. } in places {
            let (kind, form) = match form {
                PlaceForm::TokenBucket(limit) => {
                    (TokenBucketState::KIND, Form::TokenBucket(limit.map(|limit| limit.emission_interval())))
                }
                PlaceForm::Instant(rule) => (TokenBucketState::KIND, Form::Instant(rule)),
                PlaceForm::Pair => (QuotaState::KIND, Form::Other),
                PlaceForm::Kind(kind) => (kind, Form::Other),
            };
            let shard = hash.shard(1 << self.identity.shard_bits);
            let place = HashedPlace { shard, tag: hash.tag().to_word(), kind };
            self.names.insert(place, KnownName { name: name.as_slice().into(), form });
        }
        Ok(())
    }

    /// Gives names to the buckets of a batch. Those that are not in the list stay as they are.
    pub fn name(&self, batch: &mut Batch) {
        for bucket in &mut batch.buckets {
            let ExportedBucket::Hashed { shard, tag, state } = bucket else { continue };
            let place = HashedPlace { shard: *shard, tag: *tag, kind: state.kind() };
            let Some(KnownName { name, form }) = self.names.get(&place) else { continue };
            let state = match (form, &*state) {
                (Form::TokenBucket(interval), AnyState::TokenBucket(bucket)) => {
                    let full_at = bucket.expires_at();
                    NamedState::TokenBucket(WrittenTokenBucket {
                        full_at,
                        interval: *interval,
                        overdrawn: false,
                    })
                }
                // The others follow as buckets of their own, and are joined where they are imported.
                (Form::Instant(rule), AnyState::TokenBucket(bucket)) => {
                    let mut instants = vec![Timestamp::EPOCH; *rule];
                    instants.push(bucket.expires_at());
                    NamedState::Instants(instants)
                }
                _ => NamedState::Other(state.clone()),
            };
            *bucket = ExportedBucket::Named { name: name.clone(), state };
        }
    }
}

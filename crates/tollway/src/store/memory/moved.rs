//! Takes buckets out of the memory store for an export, and puts those of an export into it.

use tollway_core::algorithm::{
    Bucket, ClockDifference, FixedWindowState, MovedState, QuotaState, SlidingLogState, SmoothedRateState,
    TokenBucket, TokenBucketState,
};
use tollway_core::domain::Logic;
use tollway_core::{Algorithm, Charge, InlineLimit, Limit, Policy, Timestamp};

use super::rates::KEY_FINGERPRINT;
use super::rules::LOG_FINGERPRINT;
use super::shard::{HasTable, Shards, with_bucket_type};
use super::table::StoreFull;
use super::{Memory, PAIR_FINGERPRINT};
use crate::export::{ExportedBucket, ImportReport, NamedState};
use crate::hash::{BucketHash, HashKey, Tag};
use crate::journal::{AnyState, JournalState, with_state};
use crate::store::bucket_name::BucketName;

/// The number of buckets that are copied under one lock, which takes some microseconds.
const COPIED_PER_LOCK: usize = 128;

/// The place of a named bucket in the memory store, and what can be there.
#[derive(Debug)]
pub(crate) struct NamedPlace {
    pub(crate) hash: BucketHash,
    pub(crate) form: PlaceForm,
    /// The state of an id that has no bucket, if it must start empty because its bucket may have been lost.
    pub(crate) spent: Option<AnyState>,
}

/// The state that is kept at the place of a named bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PlaceForm {
    /// A token bucket of a limit with these numbers; `None` if they come with each request.
    TokenBucket(Option<TokenBucket>),
    /// The instant of the rule of a domain that has this index.
    Instant(usize),
    /// A quota of Throttr.
    Pair,
    /// A state of the type that has this [kind](JournalState::KIND).
    Kind(u8),
}

/// Returns the places of a named bucket. There are several if it is not known from the name which of them is used, or
/// if a domain has several rules, and none if the policy has nothing of that name.
pub(crate) fn places(
    key: &HashKey,
    policy: &Policy,
    name: &BucketName<'_>,
    now: Timestamp,
) -> Vec<NamedPlace> {
    let place = |hash, form| NamedPlace { hash, form, spent: None };
    match name {
        BucketName::Digest => Vec::new(),
        BucketName::Text(text) => {
            let hash = key.hash_client_made(KEY_FINGERPRINT, text);
            vec![place(hash, PlaceForm::Kind(SmoothedRateState::KIND))]
        }
        BucketName::Pair(pair) => {
            vec![place(key.hash_client_made(PAIR_FINGERPRINT, pair), PlaceForm::Pair)]
        }
        BucketName::Rule(log) => {
            let hash = key.hash_of(LOG_FINGERPRINT, log.as_bytes());
            vec![place(hash, PlaceForm::Kind(SlidingLogState::KIND))]
        }
        BucketName::Identifier { domain, identifier } => {
            let Some(domain) = policy.domain(domain) else { return Vec::new() };
            let hash = |rule| key.hash_of(domain.fingerprint(rule), identifier);
            match domain.logic() {
                Logic::Window => vec![place(hash(0), PlaceForm::Kind(SlidingLogState::KIND))],
                Logic::Gcra => {
                    let rules = 0..domain.rules().len();
                    rules.map(|rule| place(hash(rule), PlaceForm::Instant(rule))).collect()
                }
            }
        }
        BucketName::Id { limit, id } => places_of_id(key, policy, limit, id, now),
    }
}

fn places_of_id(key: &HashKey, policy: &Policy, limit: &str, id: &[u8], now: Timestamp) -> Vec<NamedPlace> {
    if let Some(name) = limit.strip_prefix("inline/") {
        let Ok(inline) = InlineLimit::new(name) else { return Vec::new() };
        let hash = key.hash(&inline.bucket(id));
        let forms = [PlaceForm::TokenBucket(None), PlaceForm::Kind(FixedWindowState::KIND)];
        return forms.map(|form| NamedPlace { hash, form, spent: None }).into();
    }
    let is_named = |known: &&Limit| match known.number() {
        Some(number) => limit.parse() == Ok(number),
        None => known.name() == limit,
    };
    let Some(found) = policy.limit(limit).or_else(|| policy.limits().iter().find(is_named)) else {
        return Vec::new();
    };
    // Ids in keys are canonical already, and an id in another spelling has no bucket.
    let Ok(charge) = Charge::new(found, id, 0) else { return Vec::new() };
    let Some(algorithm) = charge.algorithm() else { return Vec::new() };
    let form = match algorithm {
        Algorithm::TokenBucket(numbers) => PlaceForm::TokenBucket(Some(*numbers)),
        other => PlaceForm::Kind(kind_of(other)),
    };
    let spent = found.empty_since(algorithm, now).map(|since| spent(algorithm, since));
    vec![NamedPlace { hash: key.hash(&charge), form, spent }]
}

/// Returns the state of a bucket of which everything was spent at this moment.
fn spent(algorithm: &Algorithm, at: Timestamp) -> AnyState {
    with_bucket_type!(algorithm, |B, limit| {
        let mut bucket = B::default();
        let _ = bucket.charge(limit, algorithm.cost_max(), at);
        bucket.into()
    })
}

fn kind_of(algorithm: &Algorithm) -> u8 {
    with_bucket_type!(algorithm, |B, _limit| B::KIND)
}

impl Memory {
    /// Passes all buckets of a shard that are live at `now` to `visit`, a few under each lock.
    pub(crate) fn export_shard(&self, shard: usize, now: Timestamp, visit: &mut dyn FnMut(ExportedBucket)) {
        self.shards.visit_all(shard, &mut |tag, state| {
            if with_state!(&state, |state| state.expires_at() > now) {
                visit(ExportedBucket::Hashed { shard, tag: tag.to_word(), state });
            }
        });
    }

    /// Puts a bucket with the hash of an id into the store, or looks only whether it could, and counts it.
    pub(crate) fn import_hashed(
        &self,
        (shard, tag): (usize, u64),
        state: &AnyState,
        import: &MemoryImport,
        report: &mut ImportReport,
    ) {
        let tag = Tag::from_word(tag);
        if shard >= self.shards.len() || !tag.is_valid() {
            report.unknown += 1;
            return;
        }
        let moved: AnyState = with_state!(state, |state| state.by_clock(import.difference).into());
        self.import_state(shard, tag, moved, import, report);
    }

    /// Puts a bucket with a name into the store, or looks only whether it could, and counts it.
    pub(crate) fn import_named(
        &self,
        name: &[u8],
        state: &NamedState,
        policy: &Policy,
        import: &MemoryImport,
        report: &mut ImportReport,
    ) {
        let (parsed, now) = (BucketName::parse(name), import.now);
        if parsed == Some(BucketName::Digest) {
            report.digests += 1;
            return;
        }
        let state = state.by_clock(import.difference);
        if state.expires_at() <= now {
            report.expired += 1;
            return;
        }
        let mut parts = ImportReport::default();
        for NamedPlace { hash, form, spent } in
            parsed.iter().flat_map(|name| places(&self.key, policy, name, now))
        {
            let state: AnyState = match (form, &state) {
                (PlaceForm::TokenBucket(Some(limit)), NamedState::TokenBucket(bucket)) => {
                    bucket.under(&limit, now).into()
                }
                (PlaceForm::TokenBucket(None), NamedState::TokenBucket(bucket)) => {
                    TokenBucketState::full_at(bucket.full_at).into()
                }
                (PlaceForm::Instant(rule), NamedState::Instants(instants)) => {
                    TokenBucketState::full_at(instants.get(rule).copied().unwrap_or_default()).into()
                }
                (PlaceForm::Pair, NamedState::Other(state @ AnyState::Quota(_))) => state.clone(),
                (PlaceForm::Kind(kind), NamedState::Other(state)) if kind == state.kind() => state.clone(),
                _ => continue,
            };
            let state = spent.and_then(|spent| state.stricter_than(&spent, now)).unwrap_or(state);
            self.import_state(self.shards.number(hash), hash.tag(), state, import, &mut parts);
        }
        // One bucket of the export, however many the store has for it.
        match parts {
            ImportReport { no_room: 1.., .. } => report.no_room += 1,
            ImportReport { imported: 1.., .. } => report.imported += 1,
            ImportReport { expired: 1.., .. } => report.expired += 1,
            _ => report.unknown += 1,
        }
    }

    fn import_state(
        &self,
        shard: usize,
        tag: Tag,
        state: AnyState,
        import: &MemoryImport,
        report: &mut ImportReport,
    ) {
        if with_state!(&state, |state| state.expires_at() <= import.now) {
            report.expired += 1;
            return;
        }
        let put = match state {
            // Nobody but Throttr's clients makes quotas without a limit.
            AnyState::Quota(quota) if tag.is_client_made() => {
                self.put_stricter::<QuotaState>(shard, tag, import, |found| {
                    quota.stricter_pair(found, import.now)
                })
            }
            state => with_state!(state, |state| self
                .put_stricter(shard, tag, import, |found| state.stricter_than(found, import.now))),
        };
        match put {
            Ok(()) => report.imported += 1,
            Err(StoreFull) => report.no_room += 1,
        }
    }

    /// Replaces a bucket by what `stricter` makes of it.
    fn put_stricter<B: HasTable>(
        &self,
        shard: usize,
        tag: Tag,
        import: &MemoryImport,
        stricter: impl FnOnce(&B) -> B,
    ) -> Result<(), StoreFull> {
        let mut tables = self.shards.lock(shard);
        let is_new = B::table(&tables).get(tag).is_none();
        if B::GROWS && self.entries.is_full() {
            return Err(StoreFull);
        }
        if import.dry_run {
            let has_room = !is_new || self.places.has_free(super::BucketCount::one(tag));
            return if has_room { Ok(()) } else { Err(StoreFull) };
        }
        let room = || self.places.take(tag).is_some();
        let put = |bucket: &mut B| *bucket = stricter(bucket);
        let done = B::table_mut(&mut tables).change_or_insert(tag, import.now, room, put);
        self.entries.count(B::table_mut(&mut tables).take_entry_delta());
        self.shards.publish_location::<B>(shard, &mut tables);
        done
    }
}

/// The facts about a target that an import into memory needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryImport {
    pub(crate) difference: ClockDifference,
    pub(crate) now: Timestamp,
    pub(crate) dry_run: bool,
}

impl Shards {
    /// Passes all buckets of one table to `visit`. It goes on behind the last tag, wherever that is then.
    pub(super) fn visit_all_in<B: HasTable + JournalState>(
        &self,
        number: usize,
        visit: &mut dyn FnMut(Tag, AnyState),
    ) {
        let (mut after, mut copied) = (Tag::NONE, Vec::with_capacity(COPIED_PER_LOCK));
        loop {
            let tables = self.lock(number);
            let buckets = B::table(&tables).buckets_after(after, COPIED_PER_LOCK);
            copied.extend(buckets.map(|(tag, bucket)| (tag, bucket.clone())));
            drop(tables);
            let is_last = copied.len() < COPIED_PER_LOCK;
            for (tag, bucket) in copied.drain(..) {
                after = tag;
                visit(tag, bucket.into());
            }
            if is_last {
                return;
            }
        }
    }
}

//! Takes buckets out of Redis for an export, and puts those of an export into it.
//!
//! A bucket is read whole, joined with that of the export by the functions of the core, and written if it has not
//! changed since it was read. Otherwise it is read again: decisions go on meanwhile. The rules by which states are
//! joined are so in one place, and not a second time in Lua.

use redis::Value;
use tollway_core::algorithm::{Bucket, SlidingLogState};
use tollway_core::{Nanos, Timestamp};

use super::reply::{ScriptReply, digits_of, number, unexpected};
use super::script::{CallBuilder, READ_BUCKET, REPLACE_BUCKET};
use super::{Redis, StoreError, seen};
use crate::clock::Clock;
use crate::export::{
    Batch, ExportHeader, ExportedBucket, ImportError, ImportReport, ImportSettings, NamedState,
};
use crate::journal::AnyState;
use crate::store::bucket_name::{PAIR, RULE};

/// The most buckets that are read or written in one batch.
const BATCH_MAX: usize = 512;
/// The number of times that a bucket is read again because it has changed meanwhile. A bucket that changes a thousand
/// times a second is written within a few of them.
const ROUNDS_MAX: usize = 1_000;
/// The time for which a log without an expiry counts. No log of ours is without one.
const NO_EXPIRY: Nanos = Nanos::from_secs(86_400);

/// A part of an export of Redis.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct RedisExportPage {
    /// The buckets.
    pub batch: Batch,
    /// The number of keys that begin as those of buckets do, and hold something else.
    pub foreign: u64,
    /// The start of the next page, if there is one.
    pub next: Option<u64>,
}

/// The value of a key, with the time of its node when it was read.
struct FoundKey {
    now: Timestamp,
    content: Content,
}

enum Content {
    Nothing,
    /// A bucket, and the hash of the bytes that it was read from.
    Bucket(NamedState, String),
    Foreign,
}

impl Redis {
    /// Returns the header of an export of this store.
    pub fn export_header(&self, clock: &Clock) -> ExportHeader {
        ExportHeader::named(clock.wall())
    }

    /// Returns a page of the live buckets. A page begins at 0, or where the one before it ended. A bucket that exists
    /// all the while is on at least one page. The time is that of Redis unless `clock` is a manual one.
    pub async fn export_page(&self, from: u64, clock: &Clock) -> Result<RedisExportPage, StoreError> {
        let (keys, next) = self.scan_keys(self.namespace.pattern(None), from, BATCH_MAX).await?;
        let (mut buckets, mut foreign, mut newest) = (Vec::with_capacity(keys.len()), 0, Timestamp::EPOCH);
        for keys in keys.chunks(BATCH_MAX) {
            for (key, found) in keys.iter().zip(self.read_keys(keys, clock.manual_time()).await?) {
                newest = newest.max(found.now);
                match (found.content, self.namespace.name(key)) {
                    (Content::Bucket(state, _), Some(name)) if state.expires_at() > found.now => {
                        buckets.push(ExportedBucket::Named { name: name.into(), state });
                    }
                    (Content::Foreign, _) => foreign += 1,
                    _ => {}
                }
            }
        }
        // The wall clock after that of Redis: whatever happens in between makes the import stricter.
        Ok(RedisExportPage { batch: Batch { clock: newest, wall: clock.wall(), buckets }, foreign, next })
    }

    /// Takes the buckets of a batch into Redis. Where there is a bucket already, the result is as strict as both.
    ///
    /// [`Batch::restate`] must have been called just before. Buckets without names are counted, and stay behind.
    pub async fn import(
        &self,
        batch: &Batch,
        settings: ImportSettings,
        clock: &Clock,
    ) -> Result<ImportReport, ImportError> {
        let mut report = ImportReport::default();
        let mut named = Vec::with_capacity(batch.buckets.len());
        for bucket in &batch.buckets {
            match bucket {
                ExportedBucket::Named { name, state } => named.push((&**name, state)),
                ExportedBucket::Hashed { .. } => report.unnamed += 1,
            }
        }
        for some in named.chunks(BATCH_MAX) {
            report += self.import_some(batch, some, settings, clock).await?;
        }
        Ok(report)
    }

    async fn import_some(
        &self,
        batch: &Batch,
        buckets: &[(&[u8], &NamedState)],
        settings: ImportSettings,
        clock: &Clock,
    ) -> Result<ImportReport, ImportError> {
        let (mut report, mut rest) = (ImportReport::default(), buckets.to_vec());
        for _ in 0..ROUNDS_MAX {
            if rest.is_empty() {
                return Ok(report);
            }
            let now = clock.manual_time();
            let keys: Vec<_> = rest.iter().map(|(name, _)| self.namespace.of_name(name)).collect();
            let found = self.read_keys(&keys, now).await.map_err(ImportError::Store)?;
            let (mut calls, mut written) = (Vec::new(), Vec::new());
            for ((bucket, key), found) in rest.iter().zip(&keys).zip(found) {
                let (name, state) = bucket;
                let moved = state.by_clock(batch.difference(found.now, settings.any_clock)?);
                if moved.expires_at() <= found.now {
                    report.expired += 1;
                    continue;
                }
                let (target, hash) = match &found.content {
                    Content::Nothing => (Some(moved), String::new()),
                    Content::Foreign => (None, String::new()),
                    Content::Bucket(there, hash) => {
                        let joined = moved.stricter_than(there, name.starts_with(PAIR), found.now);
                        if joined.as_ref() == Some(there) {
                            report.imported += 1;
                            continue;
                        }
                        (joined, hash.clone())
                    }
                };
                match target {
                    None => report.unknown += 1,
                    Some(_) if settings.dry_run => report.imported += 1,
                    Some(target) => {
                        calls.push(replace(key, name, &target, &hash, now));
                        written.push(*bucket);
                    }
                }
            }
            rest = Vec::new();
            for (bucket, reply) in written.into_iter().zip(self.send(calls).await) {
                match number(&reply.map_err(ImportError::Store)?).map_err(ImportError::Store)? {
                    1 => report.imported += 1,
                    _ => rest.push(bucket),
                }
            }
        }
        report.no_room += rest.len() as u64;
        Ok(report)
    }

    async fn read_keys(&self, keys: &[Vec<u8>], now: Option<Timestamp>) -> Result<Vec<FoundKey>, StoreError> {
        let calls = keys.iter().map(|key| CallBuilder::new(&READ_BUCKET, &[key]).now(now).finish()).collect();
        self.send(calls).await.into_iter().map(|reply| found_key(reply?)).collect()
    }
}

fn found_key(reply: Value) -> Result<FoundKey, StoreError> {
    let mut answer = ScriptReply::new(reply)?;
    let now = answer.now()?;
    let lives_on = match answer.value() {
        Value::Int(millis) => u64::try_from(millis).map_or(NO_EXPIRY, Nanos::from_millis),
        other => return Err(unexpected(&other)),
    };
    let content = match answer.value() {
        Value::Nil => Content::Nothing,
        Value::BulkString(text) => match state_of_text(&text) {
            Some(state) => Content::Bucket(state, hash_of(b's', &text)),
            None => Content::Foreign,
        },
        Value::Array(entries) => {
            let texts: Option<Vec<_>> = entries.iter().map(text_of).collect();
            match texts.and_then(|texts| Some((state_of_list(&texts, now + lives_on)?, texts.join(&b' ')))) {
                Some((state, joined)) => Content::Bucket(state, hash_of(b'l', &joined)),
                None => Content::Foreign,
            }
        }
        _ => Content::Foreign,
    };
    Ok(FoundKey { now, content })
}

fn text_of(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(text) => Some(text),
        _ => None,
    }
}

/// Returns the hash that a script computes of what a key holds.
fn hash_of(kind: u8, bytes: &[u8]) -> String {
    // All that we write can be printed; what is replaced here differs from everything that a script finds.
    let text = String::from_utf8_lossy(bytes);
    redis::Script::new(&format!("{}{text}", char::from(kind))).get_hash().to_owned()
}

/// Parses a bucket that is a string. Its first byte tells its kind.
fn state_of_text(text: &[u8]) -> Option<NamedState> {
    Some(match text.first()? {
        b'r' => NamedState::Other(seen::smoothed_rate(text)?.into()),
        b'q' => NamedState::Other(seen::quota(text)?.into()),
        b'f' => NamedState::Other(seen::fixed_window(text)?.into()),
        b's' => NamedState::Other(seen::sliding_window(text)?.into()),
        b'g' => {
            let instants = text[1..].split(|byte| *byte == b' ');
            let instants = instants.map(|digits| digits_of(digits).map(Timestamp::from_nanos));
            NamedState::Instants(instants.collect::<Option<_>>()?)
        }
        _ => NamedState::TokenBucket(seen::written_token_bucket(text)?),
    })
}

/// Parses a log: that of a rule begins with how many entries are kept, and for how long.
fn state_of_list(texts: &[&[u8]], expires_at: Timestamp) -> Option<NamedState> {
    let moments = |texts: &[&[u8]]| -> Option<Vec<_>> {
        texts.iter().map(|digits| digits_of(digits).map(Timestamp::from_nanos)).collect()
    };
    let (first, rest) = texts.split_first()?;
    let Some(header) = first.strip_prefix(b"k") else {
        let log = SlidingLogState::restored(&moments(texts)?, 0, expires_at);
        return Some(NamedState::Other(log.into()));
    };
    let [keep, seconds, nanos] = seen::words(header)?;
    let keep = usize::try_from(digits_of(keep)?).ok()?;
    let span = Nanos::from_secs(digits_of(seconds)?) + Nanos::new(digits_of(nanos)?);
    // A few more than are kept may be there, which nobody looks at.
    let entries = moments(&rest[rest.len().saturating_sub(keep)..])?;
    let log = SlidingLogState::restored(&entries, keep, *entries.last()? + span);
    Some(NamedState::Other(log.into()))
}

/// Returns the call that writes a bucket.
fn replace(
    key: &[u8],
    name: &[u8],
    state: &NamedState,
    hash: &str,
    now: Option<Timestamp>,
) -> super::call::Call {
    let call = CallBuilder::new(&REPLACE_BUCKET, &[key]).now(now).arg(hash);
    let call = call.pair(state.expires_at().as_nanos());
    match value(name, state) {
        RedisValue::Text(text) => call.arg("s").arg(text),
        RedisValue::List(entries) => call.arg("l").arg(entries),
    }
    .finish()
}

/// The value of a key.
enum RedisValue {
    Text(String),
    List(Vec<String>),
}

/// Returns what scripts write for a bucket of this name.
fn value(name: &[u8], state: &NamedState) -> RedisValue {
    let text = match state {
        NamedState::TokenBucket(bucket) => {
            let interval = bucket.interval.map_or(String::new(), |interval| interval.get().to_string());
            let overdrawn = if bucket.overdrawn { "!" } else { "" };
            format!("{} {interval}{overdrawn}", bucket.full_at.as_nanos())
        }
        NamedState::Instants(instants) => {
            let digits: Vec<_> = instants.iter().map(|instant| instant.as_nanos().to_string()).collect();
            format!("g{}", digits.join(" "))
        }
        NamedState::Other(AnyState::SmoothedRate(rate)) => {
            let (last, measured) = rate.last();
            format!("r{} {measured:e} {}", last.as_nanos(), state.expires_at().as_nanos())
        }
        NamedState::Other(AnyState::Quota(quota)) => {
            format!("q{} {} {}", quota.counter(), state.expires_at().as_nanos(), quota.unit().0)
        }
        NamedState::Other(AnyState::FixedWindow(window)) => {
            format!("f{} {}", window.used(), window.ends_at().as_nanos())
        }
        NamedState::Other(AnyState::SlidingWindow(window)) => {
            let (ends_at, kept) = (window.ends_at().as_nanos(), window.kept_after_end().get());
            format!("s{ends_at} {kept} {} {}", window.current(), window.previous())
        }
        NamedState::Other(AnyState::SlidingLog(log)) => return RedisValue::List(list(name, log)),
        NamedState::Other(AnyState::TokenBucket(bucket)) => {
            format!("{} ", bucket.expires_at().as_nanos())
        }
    };
    RedisValue::Text(text)
}

/// Returns the entries of a log; that of a rule has a header.
fn list(name: &[u8], log: &SlidingLogState) -> Vec<String> {
    let entries = log.iter().map(|entry| entry.as_nanos().to_string());
    if !name.starts_with(RULE) {
        return entries.collect();
    }
    let span = log.expires_at().since(log.nth_newest(1).unwrap_or_default()).get();
    let header = format!("k{} {} {}", log.keep(), span / 1_000_000_000, span % 1_000_000_000);
    std::iter::once(header).chain(entries).collect()
}

//! Reads the setting `store`, and what a limit does when the store fails (`on_store_failure`).
//!
//! ```yaml
//! store: redis://cache:6379
//! ```
//!
//! or, with all its settings,
//!
//! ```yaml
//! store:
//!   url: rediss+cluster://a,b:7001
//!   namespace: shop
//!   deadline: 20ms
//!   username: tollway
//!   password_file: /run/secrets/redis
//!   tls_ca: /etc/ssl/redis.pem
//!   tls_cert: /etc/tollway/client.pem
//!   tls_key: /etc/tollway/client.key
//! ```
//!
//! A store in memory can keep its buckets in a [journal](super::journal), `store: { memory: { dir: … } }`.
//!
//! The first two forms can contain a password. No error message repeats text that could be one.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use tollway_core::{AfterCrash, LocalShare, OnFull, OnStoreFailure};

use super::algorithm::AlgorithmKind;
use super::did_you_mean::nearest;
use super::errors::ErrorCollector;
use super::fields::{YamlFields, choice, refuse, scalar_text};
use super::yaml::{YamlEntry, YamlValue};
use crate::quote::shorten;
#[cfg(feature = "redis")]
use crate::store::redis::{RedisUrl, RedisUrlError};

const FIELDS: [&str; 9] = [
    "url",
    "namespace",
    "deadline",
    "username",
    "password",
    "password_file",
    "tls_ca",
    "tls_cert",
    "tls_key",
];
const MEMORY: &str = "memory";
const MUST_BE: &str = "must be memory, or a URL such as redis://cache:6379";
const SHARE: &str = "must be above 0 and at most 1, such as 1/4 or 0.25";

/// The store that holds the buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "a process has one of these, or a few")]
pub enum StoreUrl {
    /// Buckets are in the memory of this process.
    #[default]
    Memory,
    /// Buckets are in Redis or Valkey.
    #[cfg(feature = "redis")]
    Redis(RedisUrl),
}

/// A text that does not name a store.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreUrlError {
    /// The text is not a URL.
    #[error("{MUST_BE}, not \"{given}\"{hint}")]
    Unknown {
        /// The text that was given, without a password.
        given: String,
        /// A suggestion of what was probably meant; it may be empty.
        hint: &'static str,
    },
    /// The URL is not valid.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    Redis(#[from] RedisUrlError),
    /// The URL of a Redis, in a program that was built without it.
    #[cfg(not(feature = "redis"))]
    #[error("needs Redis, and this program was built without it; build it with the feature \"redis\"")]
    RedisDisabled,
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        match text {
            "memory" => Ok(Self::Memory),
            "redis" | "valkey" => {
                let hint = " (did you mean \"redis://127.0.0.1:6379\"?)";
                Err(StoreUrlError::Unknown { given: text.to_owned(), hint })
            }
            _ if !text.contains(['/', ':', '@']) => {
                Err(StoreUrlError::Unknown { given: shorten(text), hint: "" })
            }
            #[cfg(feature = "redis")]
            _ => Ok(Self::Redis(text.parse()?)),
            #[cfg(not(feature = "redis"))]
            _ => Err(StoreUrlError::RedisDisabled),
        }
    }
}

/// Writes the store as the file would, with `***` in place of the password.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            #[cfg(feature = "redis")]
            Self::Redis(url) => url.fmt(f),
        }
    }
}

impl StoreUrl {
    /// Reads the value of `store:`, which is a URL or a mapping.
    pub(super) fn read(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Self> {
        match &entry.value.value {
            YamlValue::Map(entries) if memory_settings(entry).is_some() => {
                for other in entries.iter().filter(|entry| entry.key.text != MEMORY) {
                    let message = format!("store has \"memory\", so it has no \"{}\"", other.key.quoted());
                    errors.add(other.key.at, message);
                }
                Some(Self::Memory)
            }
            YamlValue::Map(entries) => read_mapping(entry, entries, errors),
            _ => read_url(entry, "store", errors),
        }
    }
}

/// Returns the settings of the memory store, if `store:` has any.
pub(super) fn memory_settings(store: &YamlEntry) -> Option<&YamlEntry> {
    let YamlValue::Map(entries) = &store.value.value else { return None };
    entries.iter().find(|entry| entry.key.text == MEMORY)
}

fn read_url(entry: &YamlEntry, name: &str, errors: &mut ErrorCollector) -> Option<StoreUrl> {
    let Some(text) = scalar_text(&entry.value).filter(|text| !text.is_empty()) else {
        return refuse(entry, MUST_BE, errors);
    };
    text.parse().map_err(|error: StoreUrlError| errors.add(entry.value.at, format!("{name} {error}"))).ok()
}

fn read_mapping(entry: &YamlEntry, entries: &[YamlEntry], errors: &mut ErrorCollector) -> Option<StoreUrl> {
    if let Some(rest) = entries.iter().find(|entry| is_rest_of_url(entry)) {
        errors.add(rest.key.at, "a comma ends a value between \"{\" and \"}\"; put the url in quotes");
        return None;
    }
    let fields = YamlFields::read(entries, "a store", &FIELDS, errors);
    let store = match fields.get("url") {
        Some(url) => read_url(url, "url", errors),
        None => {
            errors.add(entry.key.at, "store has no \"url\", such as redis://cache:6379");
            None
        }
    };
    match store? {
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) => {
            let url = with_settings(url, &fields, errors);
            url.check_certificate().map_err(|error| errors.add(entry.key.at, format!("store {error}"))).ok();
            Some(StoreUrl::Redis(url))
        }
        StoreUrl::Memory => {
            for other in FIELDS[1..].iter().filter_map(|name| fields.get(name)) {
                let message = format!("{} needs Redis, but this store is memory", other.key.quoted());
                errors.add(other.key.at, message);
            }
            Some(StoreUrl::Memory)
        }
    }
}

/// Returns whether a field is the second half of a URL: YAML reads `{ url: redis+cluster://a,b }` as a URL and a field
/// `b`. The error does not repeat the field, which may be the end of a password.
fn is_rest_of_url(entry: &YamlEntry) -> bool {
    let name = &*entry.key.text;
    let word = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    !word || entry.value.is_absent() && nearest(name, FIELDS).is_none()
}

/// Applies the settings beside the URL. Those with a mistake are reported and left out.
#[cfg(feature = "redis")]
fn with_settings(url: RedisUrl, fields: &YamlFields<'_>, errors: &mut ErrorCollector) -> RedisUrl {
    RedisUrl::SETTINGS.iter().fold(url, |url, name| {
        let Some(entry) = fields.get(name) else { return url };
        let Some(text) = scalar_text(&entry.value).filter(|_| !entry.value.is_null()) else {
            refuse::<()>(entry, "must be text", errors);
            return url;
        };
        url.clone().with_setting(name, text).unwrap_or_else(|error| {
            errors.add(entry.value.at, error.to_string());
            url
        })
    })
}

/// Reads `on_full`. Returns `None` if it is wrong.
pub(super) fn read_on_full(fields: &YamlFields<'_>, errors: &mut ErrorCollector) -> Option<OnFull> {
    let answers = [("deny", OnFull::Deny), ("allow", OnFull::Allow)];
    fields.get("on_full").map_or(Some(OnFull::default()), |entry| choice(entry, &answers, errors))
}

/// Reads `after_crash`. Returns `None` if it is wrong.
pub(super) fn read_after_crash(
    fields: &YamlFields<'_>,
    kind: Option<AlgorithmKind>,
    errors: &mut ErrorCollector,
) -> Option<AfterCrash> {
    let answers = [("lenient", AfterCrash::Lenient), ("strict", AfterCrash::Strict)];
    let Some(entry) = fields.get("after_crash") else { return Some(AfterCrash::default()) };
    let answer = choice(entry, &answers, errors);
    if answer == Some(AfterCrash::Strict) && kind == Some(AlgorithmKind::SmoothedRate) {
        errors.add(entry.value.at, "after_crash strict is not for a smoothed_rate, which has no exact bound");
    }
    answer
}

/// Reads `on_store_failure` and the `local_share` that can go with it. Returns `None` if either is wrong.
pub(super) fn read_on_store_failure(
    fields: &YamlFields<'_>,
    whose: &str,
    errors: &mut ErrorCollector,
) -> Option<OnStoreFailure> {
    let answers = [
        ("allow", OnStoreFailure::Allow),
        ("deny", OnStoreFailure::Deny),
        ("local", OnStoreFailure::Local(LocalShare::WHOLE)),
    ];
    let answer = fields.get("on_store_failure");
    let answer = answer.map_or(Some(OnStoreFailure::default()), |entry| choice(entry, &answers, errors));
    let Some(entry) = fields.get("local_share") else { return answer };
    if !matches!(answer, None | Some(OnStoreFailure::Local(_))) {
        let message =
            format!("local_share needs \"on_store_failure: local\", which this {whose} does not have");
        errors.add(entry.key.at, message);
    }
    let share = scalar_text(&entry.value).and_then(|text| text.parse().ok());
    let Some(share) = share else { return refuse(entry, SHARE, errors) };
    answer.map(|_| OnStoreFailure::Local(share))
}

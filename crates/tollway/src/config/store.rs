//! Where buckets live, and what happens when nobody is there.
//!
//! ```yaml
//! store: redis://cache:6379
//! ```
//!
//! or, with everything that can be said about it,
//!
//! ```yaml
//! store:
//!   url: rediss+cluster://a,b:7001
//!   namespace: shop
//!   deadline: 20ms
//!   username: tollway
//!   password_file: /run/secrets/redis
//!   tls_ca: /etc/ssl/redis.pem
//! ```
//!
//! A password may stand in either, and is in no error: what might be one is not quoted.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use tollway_core::{LocalShare, OnStoreFailure};

use super::errors::Errors;
use super::fields::{Fields, choice, literal, refuse};
use super::suggest::nearest;
use super::yaml::{YamlEntry, YamlValue};
use crate::quote::shorten;
#[cfg(feature = "redis")]
use crate::store::redis::{RedisUrl, RedisUrlError};

const FIELDS: [&str; 7] = ["url", "namespace", "deadline", "username", "password", "password_file", "tls_ca"];
const MUST_BE: &str = "must be `memory`, or a URL such as redis://cache:6379";
const SHARE: &str = "must be above 0 and at most 1, such as 1/4 or 0.25";

/// Where buckets live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// In this process.
    #[default]
    Memory,
    /// In Redis or Valkey.
    #[cfg(feature = "redis")]
    Redis(RedisUrl),
}

/// Why a text names no store.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreUrlError {
    /// Not a URL at all.
    #[error("{MUST_BE}, not {given}{hint}")]
    Unknown {
        /// What was given, without a password.
        given: String,
        /// What was probably meant.
        hint: &'static str,
    },
    /// Something is wrong with a URL.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    Redis(#[from] RedisUrlError),
    /// The URL of a Redis, in a program that was built without it.
    #[cfg(not(feature = "redis"))]
    #[error("needs Redis, and this program was built without it; build it with the feature `redis`")]
    RedisDisabled,
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<Self, StoreUrlError> {
        match text {
            "memory" => Ok(Self::Memory),
            "redis" | "valkey" => {
                let hint = "; did you mean redis://127.0.0.1:6379?";
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

/// What `store:` would say, but for the password, which is `***`.
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
    /// What follows `store:`, in either form.
    pub(super) fn read(entry: &YamlEntry, errors: &mut Errors) -> Option<Self> {
        match &entry.value.value {
            YamlValue::Map(entries) => read_mapping(entry, entries, errors),
            _ => read_url(entry, "store", errors),
        }
    }
}

fn read_url(entry: &YamlEntry, name: &str, errors: &mut Errors) -> Option<StoreUrl> {
    let Some(text) = literal(&entry.value).filter(|text| !text.is_empty()) else {
        return refuse(entry, MUST_BE, errors);
    };
    text.parse().map_err(|error: StoreUrlError| errors.add(entry.value.at, format!("{name} {error}"))).ok()
}

fn read_mapping(entry: &YamlEntry, entries: &[YamlEntry], errors: &mut Errors) -> Option<StoreUrl> {
    if let Some(rest) = entries.iter().find(|entry| is_rest_of_url(entry)) {
        errors.add(rest.key.at, "a comma ends a value between `{` and `}`: put the url in quotes");
        return None;
    }
    let fields = Fields::read(entries, "a store", &FIELDS, errors);
    let store = match fields.get("url") {
        Some(url) => read_url(url, "url", errors),
        None => {
            errors.add(entry.key.at, "store has no `url`, such as redis://cache:6379");
            None
        }
    };
    match store? {
        #[cfg(feature = "redis")]
        StoreUrl::Redis(url) => Some(StoreUrl::Redis(with_settings(url, &fields, errors))),
        StoreUrl::Memory => {
            for other in FIELDS[1..].iter().filter_map(|name| fields.get(name)) {
                let message = format!("{} goes with Redis, and this store is memory", other.key.quoted());
                errors.add(other.key.at, message);
            }
            Some(StoreUrl::Memory)
        }
    }
}

/// `{ url: redis+cluster://a,b }` is a URL and a field `b` to YAML. It is not quoted: it may be the end of a password.
fn is_rest_of_url(entry: &YamlEntry) -> bool {
    let name = &*entry.key.text;
    let word = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    !word || entry.value.is_absent() && nearest(name, FIELDS).is_none()
}

/// The URL with what stands beside it. What is wrong is left out: it was reported, and the file is refused.
#[cfg(feature = "redis")]
fn with_settings(url: RedisUrl, fields: &Fields<'_>, errors: &mut Errors) -> RedisUrl {
    RedisUrl::SETTINGS.iter().fold(url, |url, name| {
        let Some(entry) = fields.get(name) else { return url };
        let Some(text) = literal(&entry.value).filter(|_| !entry.value.is_null()) else {
            refuse::<()>(entry, "must be a text", errors);
            return url;
        };
        url.clone().with_setting(name, text).unwrap_or_else(|error| {
            errors.add(entry.value.at, error.to_string());
            url
        })
    })
}

/// `on_store_failure`, and the `local_share` that may go with it. `None` if either is wrong.
pub(super) fn read_failure(fields: &Fields<'_>, whose: &str, errors: &mut Errors) -> Option<OnStoreFailure> {
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
            format!("local_share goes with `on_store_failure: local`, which this {whose} does not have");
        errors.add(entry.key.at, message);
    }
    let share = literal(&entry.value).and_then(|text| text.parse().ok());
    let Some(share) = share else { return refuse(entry, SHARE, errors) };
    answer.map(|_| OnStoreFailure::Local(share))
}

//! What can be said about a Redis beside where it is: in a URL after `?`, in a file as fields.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use tollway_core::Nanos;

use super::{RedisUrl, Secret};
use crate::quote::shorten;

/// The longest namespace: it is a part of every key.
const NAMESPACE_MAX: usize = 64;
/// The longest user, password or path, in bytes: twice what the tokens of cloud services have.
pub(super) const TEXT_MAX: usize = 4096;
/// What a call may be given to return: below is no network, above no caller that still waits.
const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);

/// Why a setting cannot be as given.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// Keys would be hard to tell apart, or could be steered to a slot.
    #[error(
        "namespace must be 1 to {NAMESPACE_MAX} letters, digits, \"_\", \"-\" and \".\", not \"{given}\""
    )]
    Namespace {
        /// What was given.
        given: String,
    },
    /// Shorter than a network takes, or longer than anybody's patience.
    #[error("deadline must be a duration from 1ms to 1m, such as 15ms, not \"{given}\"")]
    Deadline {
        /// What was given.
        given: String,
    },
    /// Nothing, or more than a name, a password or a path ever has.
    #[error("{name} must have 1 to {TEXT_MAX} bytes")]
    Length {
        /// Which setting.
        name: &'static str,
    },
    /// Said in the URL and beside it, or twice in the URL.
    #[error("{name} is given twice; remove one")]
    Twice {
        /// Which setting.
        name: &'static str,
    },
    /// Two passwords.
    #[error("{name} is a second password; keep one of password and password_file")]
    SecondPassword {
        /// Which setting came second.
        name: &'static str,
    },
    /// Certificates, and nobody to ask for one.
    #[error("tls_ca needs rediss://, but this is redis://")]
    NoTls,
}

impl RedisUrl {
    /// The settings, those of a URL first.
    #[cfg(feature = "yaml")]
    pub(crate) const SETTINGS: [&str; 6] =
        ["namespace", "deadline", "password_file", "tls_ca", "username", "password"];

    /// The same with keys that begin with `namespace`.
    pub fn with_namespace(self, namespace: &str) -> Result<Self, SettingError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if namespace.is_empty() || namespace.len() > NAMESPACE_MAX || !namespace.bytes().all(fits) {
            return Err(SettingError::Namespace { given: shorten(namespace) });
        }
        Ok(Self { namespace: namespace.to_owned(), ..self })
    }

    /// The same with answers that are waited for so long.
    pub fn with_deadline(self, deadline: Duration) -> Result<Self, SettingError> {
        if DEADLINES.contains(&deadline) {
            return Ok(Self { deadline, ..self });
        }
        Err(SettingError::Deadline { given: format!("{deadline:?}") })
    }

    /// The same with this password, and not the one in a file.
    pub fn with_password(self, password: Secret) -> Self {
        Self { password: Some(password), password_file: None, ..self }
    }

    /// The same with one of [`Self::SETTINGS`] as given.
    pub(crate) fn with_setting(self, name: &'static str, value: &str) -> Result<Self, SettingError> {
        self.refuse_twice(name)?;
        match name {
            "namespace" => return self.with_namespace(value),
            "deadline" => return self.with_deadline(parse_deadline(value)?),
            _ if value.is_empty() || value.len() > TEXT_MAX => return Err(SettingError::Length { name }),
            _ => {}
        }
        Ok(match name {
            "username" => Self { username: Some(value.to_owned()), ..self },
            "password" => Self { password: Some(Secret::new(value.to_owned())), ..self },
            "password_file" => Self { password_file: Some(PathBuf::from(value)), ..self },
            _ if self.tls => Self { tls_ca: Some(PathBuf::from(value)), ..self },
            _ => return Err(SettingError::NoTls),
        })
    }

    fn refuse_twice(&self, name: &'static str) -> Result<(), SettingError> {
        let given = match name {
            "namespace" => self.namespace != Self::NAMESPACE,
            "deadline" => self.deadline != Self::DEADLINE,
            "username" => self.username.is_some(),
            "tls_ca" => self.tls_ca.is_some(),
            _ if self.password.is_some() || self.password_file.is_some() => {
                return Err(SettingError::SecondPassword { name });
            }
            _ => false,
        };
        if given { Err(SettingError::Twice { name }) } else { Ok(()) }
    }
}

fn parse_deadline(text: &str) -> Result<Duration, SettingError> {
    let span = text.parse::<Nanos>().ok().map(Duration::from).filter(|span| DEADLINES.contains(span));
    span.ok_or_else(|| SettingError::Deadline { given: shorten(text) })
}

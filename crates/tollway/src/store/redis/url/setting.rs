//! The settings that a store has beside its address: options of a URL, or fields of a file.

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
/// The range of deadlines: no network is faster, and no caller waits longer.
const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);

/// The error of a setting that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The namespace is not valid: it could have braces, which choose a slot.
    #[error(
        "namespace must be 1 to {NAMESPACE_MAX} letters, digits, \"_\", \"-\" and \".\", not \"{given}\""
    )]
    Namespace {
        /// The value that was given.
        given: String,
    },
    /// The deadline is too short or too long.
    #[error("deadline must be a duration from 1ms to 1m, such as 50ms, not \"{given}\"")]
    Deadline {
        /// The value that was given.
        given: String,
    },
    /// The text is empty or too long.
    #[error("{name} must have 1 to {TEXT_MAX} bytes")]
    Length {
        /// The name of the setting.
        name: &'static str,
    },
    /// The setting is in the URL and beside it, or twice in the URL.
    #[error("{name} is given twice; remove one")]
    Twice {
        /// The name of the setting.
        name: &'static str,
    },
    /// Both a password and a file are given.
    #[error("{name} is a second password; keep one of password and password_file")]
    SecondPassword {
        /// The name of the second setting.
        name: &'static str,
    },
    /// Certificates are given without TLS.
    #[error("{name} needs rediss://, but this is redis://")]
    NoTls {
        /// The name of the setting.
        name: &'static str,
    },
    /// Only one of a certificate and its key is given.
    #[error("{given} needs {missing} beside it: a certificate is of no use without its key")]
    HalfCertificate {
        /// The name of the setting that is given.
        given: &'static str,
        /// The name of the setting that is missing.
        missing: &'static str,
    },
}

impl RedisUrl {
    /// The names of the settings, those of a URL first.
    #[cfg(feature = "yaml")]
    pub(crate) const SETTINGS: [&str; 8] =
        ["namespace", "deadline", "password_file", "tls_ca", "tls_cert", "tls_key", "username", "password"];

    /// Sets the namespace of the keys.
    pub fn with_namespace(self, namespace: &str) -> Result<Self, SettingError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if namespace.is_empty() || namespace.len() > NAMESPACE_MAX || !namespace.bytes().all(fits) {
            return Err(SettingError::Namespace { given: shorten(namespace) });
        }
        Ok(Self { namespace: namespace.to_owned(), ..self })
    }

    /// Sets the deadline.
    pub fn with_deadline(self, deadline: Duration) -> Result<Self, SettingError> {
        if DEADLINES.contains(&deadline) {
            return Ok(Self { deadline, ..self });
        }
        Err(SettingError::Deadline { given: format!("{deadline:?}") })
    }

    /// Sets the password, in place of one in a file.
    pub fn with_password(self, password: Secret) -> Self {
        Self { password: Some(password), password_file: None, ..self }
    }

    /// Sets one of [`Self::SETTINGS`].
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
            _ if !self.tls => return Err(SettingError::NoTls { name }),
            "tls_cert" => Self { tls_cert: Some(PathBuf::from(value)), ..self },
            "tls_key" => Self { tls_key: Some(PathBuf::from(value)), ..self },
            _ => Self { tls_ca: Some(PathBuf::from(value)), ..self },
        })
    }

    /// Checks that a certificate has its key, when all settings are there.
    pub(crate) fn check_certificate(&self) -> Result<(), SettingError> {
        let (given, missing) = match (&self.tls_cert, &self.tls_key) {
            (Some(_), None) => ("tls_cert", "tls_key"),
            (None, Some(_)) => ("tls_key", "tls_cert"),
            _ => return Ok(()),
        };
        Err(SettingError::HalfCertificate { given, missing })
    }

    fn refuse_twice(&self, name: &'static str) -> Result<(), SettingError> {
        let given = match name {
            "namespace" => self.namespace != Self::NAMESPACE,
            "deadline" => self.deadline != Self::DEADLINE,
            "username" => self.username.is_some(),
            "tls_ca" => self.tls_ca.is_some(),
            "tls_cert" => self.tls_cert.is_some(),
            "tls_key" => self.tls_key.is_some(),
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

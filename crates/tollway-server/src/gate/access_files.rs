//! Checks the files that say who may use the gates: certificates, tokens and keys.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tollway::config::{GateAccess, Gates};

use super::text::{KeyFileError, check_key_file};
use super::tls::{GateTlsError, check_tls_files};
use crate::tokens::{NO_TOKENS, TokenFileError, check_token_file};

/// The error of a file that says who may use a gate.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AccessFileError {
    /// The files of a gate's TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] GateTlsError),
    /// A token file cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    /// The keys of the text gate cannot be used.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
}

impl AccessFileError {
    /// Returns the path of the file that is wrong; `None` if the error is in no file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Tls(error) => error.source.path(),
            Self::Tokens(error) => Some(error.path()),
            Self::Keys(error) => Some(error.path()),
        }
    }

    /// Returns the error of the file alone, which does not name the gate: gates can share a file.
    pub fn of_file(&self) -> &(dyn Error + 'static) {
        match self {
            Self::Tls(error) => &error.source,
            Self::Tokens(error) => error,
            Self::Keys(error) => error,
        }
    }
}

/// The error is the one that the start of a server has.
impl From<AccessFileError> for io::Error {
    fn from(error: AccessFileError) -> Self {
        match error {
            AccessFileError::Tls(error) => error.into(),
            AccessFileError::Tokens(error) => Self::other(error),
            AccessFileError::Keys(error) => Self::other(error),
        }
    }
}

/// A warning about a file that says who may use a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessFileWarning {
    /// The path of the file.
    pub path: PathBuf,
    /// The text of the warning.
    pub message: String,
}

/// Checks the certificates, the tokens and the keys of the gates that are on, as a server does when it starts. Returns
/// all warnings and all errors.
pub fn check_access_files(gates: &Gates) -> (Vec<AccessFileWarning>, Vec<AccessFileError>) {
    let (mut warnings, mut errors, mut checked) = (Vec::new(), Vec::new(), Vec::new());
    let mut warn =
        |path: &Path, message: String| warnings.push(AccessFileWarning { path: path.to_owned(), message });
    for (gate, _, access) in gates.accesses().filter(|(gate, ..)| *gate != "rls" || cfg!(feature = "rls")) {
        if checked.contains(&access) {
            continue;
        }
        checked.push(access);
        let GateAccess { tls, tokens } = access;
        if let Some(tls) = tls {
            match check_tls_files(tls) {
                Ok(found) => found.iter().for_each(|warning| warn(&tls.cert, warning.to_string())),
                Err(source) => errors.push(GateTlsError { gate, source }.into()),
            }
        }
        if let Some(tokens) = tokens {
            match check_token_file(tokens) {
                Ok(0) => warn(tokens, NO_TOKENS.to_owned()),
                Ok(_) => {}
                Err(error) => errors.push(error.into()),
            }
        }
    }
    if let Some(hmac) = gates.text_hmac.as_ref().filter(|_| gates.text.is_some()) {
        match check_key_file(&hmac.keys) {
            Ok(found) => found.into_iter().for_each(|warning| warn(&hmac.keys, warning)),
            Err(error) => errors.push(error.into()),
        }
    }
    (warnings, errors)
}

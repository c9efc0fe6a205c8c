//! Tokens: who may use a gate, and for what.
//!
//! ```text
//! # NAME  DIGEST OF THE TOKEN                SCOPES        LIMITS, or all
//! shop    sha256:9f86d081884c7d659a2feaa0…   decide,refund shop-*,login
//! grafana sha256:60303ae22b998861bce3b28f…   read
//! ops     sha256:fd61a03af4f77d870fc21e05…   admin
//! ```
//!
//! The file has digests only: whoever reads it cannot use a token. A token that a client sends is found by its SHA-256,
//! which is compared with every line in constant time: the time tells neither how much of a digest was right, nor which
//! line it was. A connection remembers the token that it sent last ([`KnownToken`]), so that a digest is computed once
//! for a connection and not for each request.

mod file;
mod limit_globs;
mod list;
mod new_token;
mod scope;

pub(crate) use self::file::{KnownToken, TokenFile};
pub use self::limit_globs::{LimitGlobs, LimitGlobsError};
pub(crate) use self::list::{Grant, TokenList};
pub use self::list::{TokenFileError, TokenLineError, check_token_file};
pub use self::new_token::{NewToken, NewTokenError};
pub use self::scope::{Scope, Scopes, UnknownScope};

/// The longest token that is looked for, in bytes.
pub(crate) const TOKEN_MAX: usize = 512;

/// The beginning of every token that [`NewToken`] makes, by which people and scanners for secrets know one.
pub(crate) const PREFIX: &str = "tw_";

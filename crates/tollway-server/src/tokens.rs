//! Tokens: who may use a gate, and for what.
//!
//! ```text
//! # NAME  DIGEST OF THE TOKEN                SCOPES        LIMITS, or all
//! shop    sha256:6f4708bcc56d5863181bcb2b…   decide,refund shop-*,login
//! grafana sha256:c09c40da9c3706701d28d420…   read
//! ops     sha256:b47ff4d3d27aa06a22a4c2eb…   admin
//! ```
//!
//! The file has digests only: whoever reads it cannot use a token. A token that a client sends is found by its SHA-256,
//! through a hash with a secret key, and compared in constant time: the time tells neither how much of a digest was
//! right, nor which line it was. A connection remembers the token that it sent last ([`KnownToken`]), so that a digest
//! is computed once for a connection and not for each request.

mod file;
mod limit_globs;
mod list;
mod new_token;
mod scope;

pub(crate) use self::file::NO_TOKENS;
pub(crate) use self::file::{KnownToken, TokenFile};
pub use self::limit_globs::{LimitGlobs, LimitGlobsError};
pub(crate) use self::list::check_token_file;
pub(crate) use self::list::{Grant, TokenList};
pub use self::list::{TokenFileError, TokenLineError, check_tokens};
pub use self::new_token::{NewToken, NewTokenError};
pub use self::scope::{Scope, Scopes, UnknownScope};

/// The longest token that is looked for, in bytes.
pub(crate) const TOKEN_MAX: usize = 512;

/// The beginning of every token that [`NewToken`] makes, by which people and scanners for secrets know one.
pub(crate) const PREFIX: &str = "tw_";

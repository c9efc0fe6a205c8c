//! The global rate limit of a process, which `#[tollway::limit]` uses unless it names another one.

use std::sync::OnceLock;

use thiserror::Error;

use super::RateLimit;

static GLOBAL: OnceLock<RateLimit> = OnceLock::new();

/// The global rate limit is already set, by [`set_global`] or by its first use, which sets it to one in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the global rate limit is already in use; set it before the first limited function is called")]
pub struct GlobalAlreadySet;

/// Sets the global rate limit, which [`#[tollway::limit]`](macro@crate::limit) uses unless it names another one. It can
/// be set once, before its first use: a later change would forget the counts in the store that was used until then.
pub fn set_global(rate_limit: RateLimit) -> Result<(), GlobalAlreadySet> {
    GLOBAL.set(rate_limit).map_err(|_| GlobalAlreadySet)
}

/// Returns the global rate limit. If none was [set](set_global), it is one in memory with the empty namespace.
#[inline]
pub fn global() -> &'static RateLimit {
    GLOBAL.get_or_init(RateLimit::in_memory)
}

//! The rules of a whole process, for functions that name no other.

use std::sync::OnceLock;

use thiserror::Error;

use super::RateLimit;

static GLOBAL: OnceLock<RateLimit> = OnceLock::new();

/// The process has its rate limit already: it was set before, or used, which sets it to one in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the global rate limit is in use already: set it before the first limited function is called")]
pub struct GlobalAlreadySet;

/// Has [`#[tollway::limit]`](macro@crate::limit) ask this one wherever it is told no other. Once, and before it is asked for the
/// first time: counts that moved from one store to another would be forgotten.
pub fn set_global(rate_limit: RateLimit) -> Result<(), GlobalAlreadySet> {
    GLOBAL.set(rate_limit).map_err(|_| GlobalAlreadySet)
}

/// What was [set](set_global); otherwise one in memory, with no namespace.
#[inline]
pub fn global() -> &'static RateLimit {
    GLOBAL.get_or_init(RateLimit::in_memory)
}

//! Wraps a function together with its rule, so that each call resolves the rule first.

use std::fmt;

use super::{RateLimitError, RuleGuard};

/// A function that runs only if its rule allows it, made by [`RuleGuard::wrap`]. It takes one argument: use a tuple for
/// several.
#[must_use = "a limited function does nothing until it is called"]
pub struct LimitedFunction<'a, F> {
    limit: RuleGuard<'a>,
    function: F,
}

impl<'a, F> LimitedFunction<'a, F> {
    pub(super) const fn new(limit: RuleGuard<'a>, function: F) -> Self {
        Self { limit, function }
    }

    /// Calls the function, if its rule allows it.
    pub fn call<A, R>(&self, arguments: A) -> Result<R, RateLimitError>
    where
        F: Fn(A) -> R,
    {
        self.limit.enter()?;
        Ok((self.function)(arguments))
    }

    /// Calls and awaits the function, if its rule allows it.
    pub async fn call_async<A, R>(&self, arguments: A) -> Result<R, RateLimitError>
    where
        F: AsyncFn(A) -> R,
    {
        self.limit.enter_async().await?;
        Ok((self.function)(arguments).await)
    }
}

impl<F> fmt::Debug for LimitedFunction<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitedFunction").field("limit", &self.limit).finish_non_exhaustive()
    }
}

//! A function that runs only when it may.

use super::{RateLimitError, RuleGuard};

/// A function and its limit, made by [`RuleGuard::wrap`]. Its arguments are one value: take a tuple for several.
pub struct LimitedFunction<'a, F> {
    limit: RuleGuard<'a>,
    function: F,
}

impl<'a, F> LimitedFunction<'a, F> {
    pub(super) const fn new(limit: RuleGuard<'a>, function: F) -> Self {
        Self { limit, function }
    }

    /// Calls it, if it may run.
    pub fn call<A, R>(&self, arguments: A) -> Result<R, RateLimitError>
    where
        F: Fn(A) -> R,
    {
        self.limit.enter()?;
        Ok((self.function)(arguments))
    }

    /// Calls and awaits it, if it may run.
    pub async fn call_async<A, R>(&self, arguments: A) -> Result<R, RateLimitError>
    where
        F: AsyncFn(A) -> R,
    {
        self.limit.enter_async().await?;
        Ok((self.function)(arguments).await)
    }
}

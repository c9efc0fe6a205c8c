//! A function that runs only when it may.

use super::{Limit, RateLimitError};

/// A function and its limit, made by [`Limit::wrap`]. Its arguments are one value: take a tuple for several.
pub struct Limited<'a, F> {
    limit: Limit<'a>,
    function: F,
}

impl<'a, F> Limited<'a, F> {
    pub(super) const fn new(limit: Limit<'a>, function: F) -> Self {
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

//! [`LimiterBuilder`]: limits and rules that stand in code.

use thiserror::Error;
use tollway_core::algorithm::{IntoAlgorithm, NumbersError};
use tollway_core::rule::RuleNameError;
use tollway_core::{Limit, LimitError, NamedRule, Policy, PolicyError, RuleError, RuleLimit};

#[cfg(feature = "redis")]
use super::AsyncLimiter;
use super::Limiter;
use crate::clock::Clock;
use crate::store::memory::{BoundsError, Memory, MemoryBounds};
#[cfg(feature = "redis")]
use crate::store::redis::{Redis, RedisUrlError};

/// Builds a [`Limiter`] from limits that stand in code. The first mistake in any of them is the error of
/// [`build`](Self::build).
///
/// ```
/// use std::time::Duration;
/// use tollway::{Limiter, SlidingLog, TokenBucket};
///
/// let limiter = Limiter::builder()
///     .limit("login", TokenBucket::per_minute(5).burst(10))
///     .limit("signup", SlidingLog::per_hour(3))
///     .limit("export", TokenBucket::every(Duration::from_secs(30)))
///     .max_buckets(100_000)
///     .build()?;
/// assert!(limiter.spend("signup", "192.0.2.1", 1)?.allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct LimiterBuilder {
    limits: Vec<Limit>,
    rules: Vec<NamedRule>,
    memory_bounds: MemoryBounds,
    clock: Clock,
    /// The first mistake, so that calls can be chained.
    error: Option<BuildError>,
}

/// The error of a limiter that cannot be built.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A name that no limit can have.
    #[error(transparent)]
    Name(#[from] LimitError),
    /// Numbers that make no limit, such as a burst of zero.
    #[error("limit \"{limit}\" is invalid")]
    Numbers {
        /// The name of the limit.
        limit: String,
        /// The reason.
        source: NumbersError,
    },
    /// A rule that cannot be read.
    #[error("rule \"{rule}\" is invalid")]
    Rule {
        /// The name of the rule.
        rule: String,
        /// The reason.
        source: RuleError,
    },
    /// A name that no rule can have.
    #[error(transparent)]
    RuleName(#[from] RuleNameError),
    /// Limits or rules that do not go together, such as two of one name.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// More buckets for clients than there are.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// A URL that is not one of a Redis.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    StoreUrl(#[from] RedisUrlError),
    /// The store could not be opened: the system gave no thread or no certificates.
    #[cfg(feature = "redis")]
    #[error("the store cannot be opened")]
    Store(#[from] std::io::Error),
}

impl LimiterBuilder {
    /// Adds a limit: a name, and an algorithm with its numbers.
    pub fn limit(mut self, name: &str, algorithm: impl IntoAlgorithm) -> Self {
        let limit = match (Limit::new(name), algorithm.into_algorithm()) {
            (Ok(limit), Ok(algorithm)) => Ok(limit.with_default(algorithm)),
            (Err(error), _) => Err(BuildError::Name(error)),
            (_, Err(source)) => Err(BuildError::Numbers { limit: name.to_owned(), source }),
        };
        match limit {
            Ok(limit) => self.limits.push(limit),
            Err(error) => self.fail(error),
        }
        self
    }

    /// Adds a limit that was made by hand, with overrides, an id format or its own failure mode.
    pub fn custom_limit(mut self, limit: Limit) -> Self {
        self.limits.push(limit);
        self
    }

    /// Adds a rule by name, such as `"Or('10/s', 'user:100/h')"`. It is for what decides by a named rule: the
    /// middleware, and [`Engine::resolve`](crate::engine::Engine::resolve). Code that limits its own functions uses
    /// [`RateLimit`](crate::RateLimit).
    pub fn rule(mut self, name: &str, rule: &str) -> Self {
        let parsed = rule.parse().map_err(|source| BuildError::Rule { rule: name.to_owned(), source });
        let named = parsed.and_then(|rule| Ok(NamedRule::new(name, RuleLimit::new(rule))?));
        match named {
            Ok(rule) => self.rules.push(rule),
            Err(error) => self.fail(error),
        }
        self
    }

    /// Sets the most buckets that are kept in memory. A new id beyond them gets its limit's `on_full` answer.
    pub fn max_buckets(mut self, max_buckets: usize) -> Self {
        self.memory_bounds.max_buckets = max_buckets;
        self
    }

    /// Sets the most buckets in memory that have no configured limit, such as those of keys. The default is half of
    /// all, so that ids of configured limits always find room.
    pub fn max_client_buckets(mut self, max_client_buckets: usize) -> Self {
        self.memory_bounds.max_client_buckets = Some(max_client_buckets);
        self
    }

    /// Sets the clock: a manual one, for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Builds the limiter.
    pub fn build(self) -> Result<Limiter, BuildError> {
        let (policy, memory, clock) = self.parts()?;
        Ok(Limiter::with(policy, memory, clock))
    }

    /// Builds a limiter whose buckets are in Redis, at a URL such as `redis://127.0.0.1:6379`. Does not wait for Redis,
    /// which may be started later.
    #[cfg(feature = "redis")]
    pub fn build_with_redis(self, url: &str) -> Result<AsyncLimiter, BuildError> {
        let (policy, memory, clock) = self.parts()?;
        let redis = Redis::open(&url.parse()?)?;
        Ok(AsyncLimiter::with(policy, crate::store::Store::Redis(redis, memory), clock))
    }

    fn parts(self) -> Result<(Policy, Memory, Clock), BuildError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let policy = Policy::new(self.limits)?.with_rules(self.rules)?;
        Ok((policy, Memory::new(self.memory_bounds.checked()?), self.clock))
    }

    fn fail(&mut self, error: BuildError) {
        self.error.get_or_insert(error);
    }
}

#[cfg(test)]
mod tests {
    use tollway_core::ErrorChain;
    use tollway_core::algorithm::TokenBucket;

    use super::*;

    #[test]
    fn mistakes_in_any_limit_come_out_of_build() {
        let error = |builder: LimiterBuilder| ErrorChain(&builder.build().unwrap_err()).to_string();
        let per_minute = || TokenBucket::per_minute(5);
        assert_eq!(
            error(Limiter::builder().limit("login", TokenBucket::per_minute(0))),
            "limit \"login\" is invalid: burst must be above zero"
        );
        assert!(error(Limiter::builder().limit("log in", per_minute())).contains("log in"));
        assert!(error(Limiter::builder().limit("a", per_minute()).limit("a", per_minute())).contains('a'));
        assert!(
            error(Limiter::builder().rule("upload", "10/fortnight"))
                .starts_with("rule \"upload\" is invalid: a span must be a unit")
        );
        assert_eq!(
            error(Limiter::builder().max_client_buckets(6).max_buckets(5)),
            "max_client_buckets must be at most max_buckets, which is 5, not 6"
        );
    }
}

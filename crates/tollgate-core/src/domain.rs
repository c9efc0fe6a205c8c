//! A domain: what a Smockron master holds the clients of one resource to.
//!
//! ```
//! use tollgate_core::algorithm::SlidingLog;
//! use tollgate_core::domain::{Domain, DomainRule, Logic};
//! use tollgate_core::{Nanos, Timestamp};
//!
//! let domain = Domain::new(vec![DomainRule::new("1/s".parse()?, "3".parse()?)?], Logic::Window);
//! let (mut log, now) = (SlidingLog::default(), Timestamp::EPOCH);
//! assert_eq!(domain.account(&mut log, now, now), None);
//! assert_eq!(domain.account(&mut log, now, now), None);
//! assert_eq!(domain.account(&mut log, now, now), Some(now + Nanos::from_secs(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Gatekeepers have decided already when the master hears of a request, so nothing is refused here: it is entered, and what
//! comes of it is from when on the next is welcome. Of several rules the one that delays longest holds.

mod pace;

use thiserror::Error;

use crate::algorithm::{Bucket, LOG_MAX, NumbersError, SlidingLog, TokenBucket, TokenBucketLimit};
use crate::time::{Nanos, Timestamp};

pub use pace::{Burst, Pace, PaceError};

/// The most rules of one domain: each is looked at for every request.
pub const DOMAIN_RULES_MAX: usize = 16;

/// Gatekeepers' clocks may be ahead by this much, and by as much as a burst takes, before it is no longer believed.
const AHEAD_MAX: Nanos = Nanos::from_secs(60);

/// The rules of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    rules: Vec<DomainRule>,
    logic: Logic,
    keep: usize,
    span: Nanos,
}

/// So many at once, and then one per interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainRule {
    limit: TokenBucketLimit,
}

/// How rules are worked out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Logic {
    /// From the newest timestamps themselves.
    #[default]
    Window,
    /// From one instant a rule, that each request moves on by an interval.
    Gcra,
}

/// Why numbers make no rule of a domain.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DomainError {
    /// Of the rate or the burst.
    #[error(transparent)]
    Numbers(#[from] NumbersError),
    /// More than a log keeps.
    #[error("burst must be at most {LOG_MAX}, not {burst}")]
    BurstTooLarge {
        /// What it came to.
        burst: u64,
    },
}

impl DomainRule {
    /// Requests at this pace, after a burst.
    pub fn new(pace: Pace, burst: Burst) -> Result<Self, DomainError> {
        let burst = burst.requests(pace);
        if burst > LOG_MAX {
            return Err(DomainError::BurstTooLarge { burst });
        }
        Ok(Self { limit: TokenBucketLimit::new(burst, pace.count(), pace.period())? })
    }

    /// How many at once, and one in how long.
    pub const fn limit(&self) -> &TokenBucketLimit {
        &self.limit
    }

    /// Moves a bucket on by one request, whether it fits or not, and says from when on the next is welcome.
    fn move_on(&self, bucket: &mut TokenBucket, at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let limit = &self.limit;
        // Full again when all is paid for; and a burst before that the next may come.
        let full_at = bucket.silent_at().max(at.max(now)) + limit.emission_interval();
        *bucket = TokenBucket::full_at(full_at);
        let welcome = full_at.as_nanos().saturating_sub(limit.fill_time().get());
        Some(Timestamp::from_nanos(welcome)).filter(|welcome| *welcome > now)
    }
}

impl Domain {
    /// A domain of these rules. Without any, nobody is delayed.
    pub fn new(rules: Vec<DomainRule>, logic: Logic) -> Self {
        let bursts = rules.iter().map(|rule| usize::try_from(rule.limit.burst()).unwrap_or(usize::MAX));
        let spans = rules.iter().map(|rule| rule.limit.burst_span());
        let (keep, span) = (bursts.max().unwrap_or(0), spans.max().unwrap_or(Nanos::ZERO));
        Self { rules, logic, keep, span }
    }

    /// The rules, in the order they were given.
    pub fn rules(&self) -> &[DomainRule] {
        &self.rules
    }

    /// How they are worked out.
    pub const fn logic(&self) -> Logic {
        self.logic
    }

    /// How many timestamps of an identifier are kept.
    pub const fn keep(&self) -> usize {
        self.keep
    }

    /// For how long they count; a timestamp of exactly that age still does.
    pub const fn span(&self) -> Nanos {
        self.span
    }

    /// When a request was made of which a gatekeeper says that it was made at `at`: so far ahead nobody can be.
    pub fn believed(&self, at: Timestamp, now: Timestamp) -> Timestamp {
        at.min(now + self.span.max(AHEAD_MAX))
    }

    /// Enters a request, and says from when on the next is welcome; `None` is now.
    pub fn account(&self, log: &mut SlidingLog, at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let one_more = Nanos::new(1);
        log.record(self.believed(at, now), self.keep, self.span + one_more);
        self.delayed_until(log, now)
    }

    /// From when on the next request is welcome, by a log; `None` is now.
    pub fn delayed_until(&self, log: &SlidingLog, now: Timestamp) -> Option<Timestamp> {
        self.rules.iter().filter_map(|rule| log.next_allowed(&rule.limit, now)).max()
    }

    /// Enters a request in the instants of the rules, as many as there are rules, and says from when on the next is
    /// welcome; `None` is now.
    pub fn move_on(&self, buckets: &mut [TokenBucket], at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let at = self.believed(at, now);
        let welcome = |(rule, bucket): (&DomainRule, &mut TokenBucket)| rule.move_on(bucket, at, now);
        self.rules.iter().zip(buckets).filter_map(welcome).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(pace: &str, burst: &str) -> DomainRule {
        DomainRule::new(pace.parse().unwrap(), burst.parse().unwrap()).unwrap()
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::EPOCH + Nanos::from_millis(millis)
    }

    #[test]
    fn the_last_rule_to_let_go_holds() {
        let domain = Domain::new(vec![rule("1/s", "2"), rule("1/m", "3")], Logic::Window);
        let mut log = SlidingLog::default();
        let welcome = [0, 0, 0, 500].map(|now| domain.account(&mut log, at(now), at(now)));
        assert_eq!(welcome, [None, Some(at(1_000)), Some(at(60_000)), Some(at(60_500))]);
    }

    #[test]
    fn timestamps_are_kept_in_their_order_and_one_of_a_bursts_age_still_counts() {
        let domain = Domain::new(vec![rule("1/s", "3")], Logic::Window);
        let mut log = SlidingLog::default();
        domain.account(&mut log, at(2_000), at(2_000));
        domain.account(&mut log, at(0), at(2_000));
        assert_eq!(domain.account(&mut log, at(1_000), at(3_000)), Some(at(4_000)));
        assert_eq!(domain.delayed_until(&log, at(3_001)), None);
        assert!(log.silent_at() > at(5_000), "the newest still counts at five seconds");
    }

    #[test]
    fn a_gatekeeper_far_ahead_is_not_believed() {
        let domain = Domain::new(vec![rule("1/s", "1")], Logic::Window);
        let mut log = SlidingLog::default();
        let ahead = domain.account(&mut log, Timestamp::from_nanos(u64::MAX), at(0));
        assert_eq!(ahead, Some(at(61_000)));
    }

    /// As the protocol has it, in its own words.
    fn naive(prev: Option<i128>, t: i128, burst: i128, interval: i128) -> i128 {
        match prev {
            Some(prev) if prev >= t - burst * interval => prev + interval,
            _ => t - burst * interval + interval,
        }
    }

    #[test]
    fn the_instant_moves_as_the_protocol_says() {
        let rule = rule("10/s", "3");
        let (mut bucket, mut prev, mut now, mut dice) = (TokenBucket::default(), None, 1_000_000_u64, 7_u64);
        for _ in 0..10_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            now += (dice >> 33) % 250;
            let ahead = if (dice >> 20).is_multiple_of(4) { (dice >> 40) % 300 } else { 0 };
            let welcome = rule.move_on(&mut bucket, at(now + ahead), at(now));
            let expected = naive(prev, i128::from(now + ahead), 3, 100);
            prev = Some(expected);
            assert_eq!(welcome, (expected > i128::from(now)).then(|| at(u64::try_from(expected).unwrap())));
        }
    }
}

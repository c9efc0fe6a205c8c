//! A domain: what a Smockron master holds the clients of one resource to.
//!
//! ```
//! use tollway_core::algorithm::SlidingLogState;
//! use tollway_core::domain::{Domain, DomainRule, Logic};
//! use tollway_core::{Nanos, Timestamp};
//!
//! let domain = Domain::new("web", vec![DomainRule::new("1/s".parse()?, "3".parse()?)?], Logic::Window)?;
//! let (mut log, now) = (SlidingLogState::default(), Timestamp::EPOCH);
//! assert_eq!(domain.account(&mut log, now, now), None);
//! assert_eq!(domain.account(&mut log, now, now), None);
//! assert_eq!(domain.account(&mut log, now, now), Some(now + Nanos::from_secs(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Gatekeepers have decided already when the master hears of a request, so nothing is refused here: it is entered, and what
//! comes of it is from when on the next is welcome. Of several rules the one that delays longest holds.

use thiserror::Error;

use crate::algorithm::{Bucket, LOG_MAX, NumbersError, SlidingLogState, TokenBucket, TokenBucketState};
use crate::policy::fingerprint;
use crate::rate_spec::{Burst, RateSpec};
use crate::time::{Nanos, Timestamp};

/// The most rules of one domain: each is looked at for every request.
pub const DOMAIN_RULES_MAX: usize = 16;

/// The longest name of a domain: that of a frame with a short head, less the NUL.
const NAME_MAX: usize = 254;

/// Gatekeepers' clocks may be ahead by this much, and by as much as a burst takes, before it is no longer believed.
const AHEAD_MAX: Nanos = Nanos::from_secs(60);

/// The rules of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    name: Box<str>,
    rules: Vec<DomainRule>,
    logic: Logic,
    keep: usize,
    span: Nanos,
    fingerprint: u64,
}

/// So many at once, and then one per interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainRule {
    limit: TokenBucket,
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

/// Why there is no such domain.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DomainError {
    /// Of the rate or the burst.
    #[error(transparent)]
    Numbers(#[from] NumbersError),
    /// Empty, too long, or with a NUL, which marks the end of a topic.
    #[error("a domain has a name of 1 to {NAME_MAX} bytes, without NUL")]
    Name,
    /// More rules than anybody needs.
    #[error("a domain has at most {DOMAIN_RULES_MAX} rules, not {rules}")]
    TooManyRules {
        /// How many there are.
        rules: usize,
    },
    /// More than a log keeps.
    #[error("burst must be at most {LOG_MAX}, not {burst}")]
    BurstTooLarge {
        /// What it came to.
        burst: u64,
    },
}

impl DomainRule {
    /// Requests at this rate, after a burst.
    pub fn new(rate: RateSpec, burst: Burst) -> Result<Self, DomainError> {
        let burst = burst.requests(rate);
        if burst > LOG_MAX {
            return Err(DomainError::BurstTooLarge { burst });
        }
        Ok(Self { limit: TokenBucket::new(burst, rate.count(), rate.period())? })
    }

    /// How many at once, and one in how long.
    pub const fn limit(&self) -> &TokenBucket {
        &self.limit
    }

    /// Moves a bucket on by one request, whether it fits or not, and says from when on the next is welcome; `None` is now.
    /// As [`Logic::Gcra`] has it.
    pub fn move_on(&self, bucket: &mut TokenBucketState, at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let full_at = bucket.expires_at().max(at.max(now)) + self.limit.emission_interval();
        *bucket = TokenBucketState::full_at(full_at);
        self.welcome_before(full_at, now)
    }

    /// From when on the next request is welcome to a bucket that will be full at this moment: a burst before that.
    pub fn welcome_before(&self, full_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let welcome = full_at.as_nanos().saturating_sub(self.limit.fill_time().get());
        Some(Timestamp::from_nanos(welcome)).filter(|welcome| *welcome > now)
    }

    /// From when on the next request is welcome after a burst that began with `oldest` and has ended with `newest`.
    pub fn welcome_after(&self, oldest: Timestamp, newest: Timestamp, now: Timestamp) -> Option<Timestamp> {
        self.limit.welcome_after(oldest, newest, now)
    }
}

impl Domain {
    /// A domain of these rules. Without any, nobody is delayed.
    pub fn new(name: &str, rules: Vec<DomainRule>, logic: Logic) -> Result<Self, DomainError> {
        if !(1..=NAME_MAX).contains(&name.len()) || name.contains('\0') {
            return Err(DomainError::Name);
        }
        if rules.len() > DOMAIN_RULES_MAX {
            return Err(DomainError::TooManyRules { rules: rules.len() });
        }
        let bursts = rules.iter().map(|rule| usize::try_from(rule.limit.burst()).unwrap_or(usize::MAX));
        let spans = rules.iter().map(|rule| rule.limit.burst_span());
        let (keep, span) = (bursts.max().unwrap_or(0), spans.max().unwrap_or(Nanos::ZERO));
        // No limit has a NUL in its name, so no domain shares a bucket with one.
        let fingerprint = fingerprint(&[b"domain\0", name.as_bytes()].concat());
        Ok(Self { name: name.into(), rules, logic, keep, span, fingerprint })
    }

    /// What gatekeepers call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stands for the name where buckets are looked for; for that of one rule, with its place among them.
    #[inline]
    pub fn fingerprint(&self, rule: usize) -> u64 {
        self.fingerprint.wrapping_add(rule as u64)
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

    /// How far ahead of now a request may be said to have been made.
    pub fn ahead_max(&self) -> Nanos {
        self.span.max(AHEAD_MAX)
    }

    /// When a request was made of which a gatekeeper says that it was made at `at`: further ahead nobody can be.
    pub fn believed(&self, at: Timestamp, now: Timestamp) -> Timestamp {
        at.min(now + self.ahead_max())
    }

    /// Enters a request, and says from when on the next is welcome; `None` is now.
    pub fn account(&self, log: &mut SlidingLogState, at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let one_more = Nanos::new(1);
        log.record(self.believed(at, now), self.keep, self.span + one_more);
        self.delayed_until(log, now)
    }

    /// From when on the next request is welcome, by a log; `None` is now.
    pub fn delayed_until(&self, log: &SlidingLogState, now: Timestamp) -> Option<Timestamp> {
        self.rules.iter().filter_map(|rule| log.next_allowed(&rule.limit, now)).max()
    }
}

#[cfg(test)]
mod tests {
    use tollway_testbed::Random;

    use super::*;

    fn rule(rate: &str, burst: &str) -> DomainRule {
        DomainRule::new(rate.parse().unwrap(), burst.parse().unwrap()).unwrap()
    }

    fn domain(rules: Vec<DomainRule>, logic: Logic) -> Domain {
        Domain::new("d", rules, logic).unwrap()
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::EPOCH + Nanos::from_millis(millis)
    }

    #[test]
    fn the_last_rule_to_let_go_holds() {
        let domain = domain(vec![rule("1/s", "2"), rule("1/m", "3")], Logic::Window);
        let mut log = SlidingLogState::default();
        let welcome = [0, 0, 0, 500].map(|now| domain.account(&mut log, at(now), at(now)));
        assert_eq!(welcome, [None, Some(at(1_000)), Some(at(60_000)), Some(at(60_500))]);
    }

    #[test]
    fn timestamps_are_kept_in_their_order_and_one_of_a_bursts_age_still_counts() {
        let domain = domain(vec![rule("1/s", "3")], Logic::Window);
        let mut log = SlidingLogState::default();
        domain.account(&mut log, at(2_000), at(2_000));
        domain.account(&mut log, at(0), at(2_000));
        assert_eq!(domain.account(&mut log, at(1_000), at(3_000)), Some(at(4_000)));
        assert_eq!(domain.delayed_until(&log, at(3_001)), None);
        assert!(log.expires_at() > at(5_000), "the newest still counts at five seconds");
    }

    #[test]
    fn a_gatekeeper_far_ahead_is_not_believed() {
        let domain = domain(vec![rule("1/s", "1")], Logic::Window);
        let mut log = SlidingLogState::default();
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
        let (mut bucket, mut prev, mut now) = (TokenBucketState::default(), None, 1_000_000);
        let mut random = Random::new(7);
        for _ in 0..10_000 {
            now += random.below(250);
            let ahead = if random.one_in(4) { random.below(300) } else { 0 };
            let welcome = rule.move_on(&mut bucket, at(now + ahead), at(now));
            let expected = naive(prev, i128::from(now + ahead), 3, 100);
            prev = Some(expected);
            assert_eq!(welcome, (expected > i128::from(now)).then(|| at(u64::try_from(expected).unwrap())));
        }
    }
}

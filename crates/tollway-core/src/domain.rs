//! A domain: the rates that a Smockron master enforces for each client of one resource.
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
//! Gatekeepers have decided already when the master receives a request, so nothing is denied here: the request is
//! recorded, and the answer is when the next one is allowed. Of several rules the one that delays longest holds.

use thiserror::Error;

use crate::algorithm::{Bucket, LOG_MAX, NumbersError, SlidingLogState, TokenBucket, TokenBucketState};
use crate::policy::fingerprint;
use crate::rate_spec::{Burst, RateSpec};
use crate::time::{Nanos, Timestamp};

/// The most rules of one domain: each is looked at for every request.
pub const DOMAIN_RULES_MAX: usize = 16;

/// The longest name of a domain: that of a frame with a short head, less the NUL.
const NAME_MAX: usize = 254;

/// Gatekeepers' clocks may be ahead by this much, or by as much as a burst takes if that is longer, before they are no
/// longer believed. No delay is longer than the time of a burst by more than this.
const AHEAD_MAX: Nanos = Nanos::from_secs(60);

/// The rules that a Smockron master applies to one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    name: Box<str>,
    rules: Vec<DomainRule>,
    logic: Logic,
    keep: usize,
    span: Nanos,
    fingerprint: u64,
}

/// A rule that allows a burst at once, and then one request per interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainRule {
    limit: TokenBucket,
}

/// The method that works out when the next request is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Logic {
    /// From the newest timestamps themselves.
    #[default]
    Window,
    /// From one instant a rule, that each request moves on by an interval.
    Gcra,
}

/// An error for rules that make no domain.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DomainError {
    /// Of the rate or the burst.
    #[error(transparent)]
    Numbers(#[from] NumbersError),
    /// Empty, too long, or with a NUL, which marks the end of a topic.
    #[error("the name of a domain must have 1 to {NAME_MAX} bytes and no NUL byte")]
    Name,
    /// More rules than anybody needs.
    #[error("a domain can have at most {DOMAIN_RULES_MAX} rules, and this one has {rules}")]
    TooManyRules {
        /// The number of rules that were given.
        rules: usize,
    },
    /// More than a log keeps.
    #[error("burst must be at most {LOG_MAX}, not {burst}")]
    BurstTooLarge {
        /// The burst that was computed.
        burst: u64,
    },
}

impl DomainRule {
    /// Makes a rule that allows requests at this rate, after a burst.
    pub fn new(rate: RateSpec, burst: Burst) -> Result<Self, DomainError> {
        let burst = burst.requests(rate);
        if burst > LOG_MAX {
            return Err(DomainError::BurstTooLarge { burst });
        }
        Ok(Self { limit: TokenBucket::new(burst, rate.count(), rate.period().into())? })
    }

    /// Returns the burst and the rate as a token bucket.
    pub const fn limit(&self) -> &TokenBucket {
        &self.limit
    }

    /// Moves a bucket on by one request, even if it does not fit, and returns when the next one is allowed; `None`
    /// means now. This is [`Logic::Gcra`].
    pub fn move_on(&self, bucket: &mut TokenBucketState, at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let moved = bucket.expires_at().max(at.max(now)) + self.limit.emission_interval();
        let full_at = moved.min(now + self.owed_max());
        *bucket = TokenBucketState::full_at(full_at);
        self.next_allowed_by_full_at(full_at, now)
    }

    /// Returns the most that a bucket of [`Logic::Gcra`] owes. Everything that is reported moves the instant on, and
    /// anybody may send reports: without a bound, forged ones would lock a client out for as long as their sender
    /// likes.
    pub fn owed_max(&self) -> Nanos {
        self.limit.fill_time() + self.delay_max()
    }

    /// Returns the longest delay of a client: the time of a burst and a minute.
    fn delay_max(&self) -> Nanos {
        self.limit.fill_time() + AHEAD_MAX
    }

    /// Returns when the next request is allowed for a bucket that will be full at `full_at`: a burst earlier.
    pub fn next_allowed_by_full_at(&self, full_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let allowed_at = (full_at - self.limit.fill_time()).min(now + self.delay_max());
        Some(allowed_at).filter(|allowed_at| *allowed_at > now)
    }

    /// Returns when the next request is allowed after a burst from `oldest` to `newest`.
    pub fn next_allowed_by_log(
        &self,
        oldest: Timestamp,
        newest: Timestamp,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.limit.next_allowed_by_log(oldest, newest, now)
    }
}

impl Domain {
    /// Makes a domain with these rules. Without rules, nobody is delayed.
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

    /// Returns the name that gatekeepers use.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a number that identifies the bucket of one rule of this domain.
    #[inline]
    pub fn fingerprint(&self, rule: usize) -> u64 {
        // Spread over all bits: a store may leave out the lowest ones.
        self.fingerprint ^ (rule as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Returns the rules in the order in which they were given.
    pub fn rules(&self) -> &[DomainRule] {
        &self.rules
    }

    /// Returns the method that works out its rules.
    pub const fn logic(&self) -> Logic {
        self.logic
    }

    /// Returns the number of timestamps that are kept for an identifier.
    pub const fn keep(&self) -> usize {
        self.keep
    }

    /// Returns the time that a timestamp counts; one of exactly that age still does.
    pub const fn span(&self) -> Nanos {
        self.span
    }

    /// Returns how far in the future a reported request may lie.
    pub fn ahead_max(&self) -> Nanos {
        self.span.max(AHEAD_MAX)
    }

    /// Returns the time to record for a request that a gatekeeper reports at `at`: it is cut to the furthest allowed
    /// future.
    pub fn believed(&self, at: Timestamp, now: Timestamp) -> Timestamp {
        at.min(now + self.ahead_max())
    }

    /// Records a request and returns when the next one is allowed; `None` means now.
    pub fn account(&self, log: &mut SlidingLogState, at: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let one_more = Nanos::new(1);
        log.record(self.believed(at, now), self.keep, self.span + one_more);
        self.delayed_until(log, now)
    }

    /// Returns the number of entries in the log after [`account`](Self::account).
    pub fn len_after(&self, log: &SlidingLogState) -> usize {
        log.len_after_record(self.keep)
    }

    /// Returns when the next request is allowed, from a log; `None` means now.
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
        let next_allowed = [0, 0, 0, 500].map(|now| domain.account(&mut log, at(now), at(now)));
        assert_eq!(next_allowed, [None, Some(at(1_000)), Some(at(60_000)), Some(at(60_500))]);
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
    fn a_request_that_is_older_than_a_full_log_is_not_recorded() {
        let domain = domain(vec![rule("1/s", "3")], Logic::Window);
        let mut log = SlidingLogState::default();
        assert!(log.is_empty());
        for reported in [1_000, 2_000, 3_000, 500] {
            let _ = domain.account(&mut log, at(reported), at(3_000));
            assert!(!log.is_empty());
        }
        assert_eq!(
            (log.nth_newest(3), domain.delayed_until(&log, at(4_000))),
            (Some(at(1_000)), Some(at(5_000)))
        );
    }

    #[test]
    fn a_gatekeeper_far_ahead_is_not_believed() {
        let domain = domain(vec![rule("1/s", "1")], Logic::Window);
        let mut log = SlidingLogState::default();
        let ahead = domain.account(&mut log, Timestamp::from_nanos(u64::MAX), at(0));
        assert_eq!(ahead, Some(at(61_000)));
    }

    #[test]
    fn forged_reports_delay_nobody_for_longer_than_a_burst_and_a_minute() {
        let rule = rule("10/s", "40");
        let mut bucket = TokenBucketState::default();
        let delays = (0..5_000).map(|_| rule.move_on(&mut bucket, at(70_000), at(1_000)));
        assert_eq!(delays.max(), Some(Some(at(1_000 + 4_000 + 60_000))));
        assert_eq!(rule.next_allowed_by_full_at(Timestamp::MAX, at(1_000)), Some(at(65_000)));
        // Ten seconds later a hundred fewer are owed, and the client waits as long as its own burst and a minute again.
        assert_eq!(rule.move_on(&mut bucket, at(11_000), at(11_000)), Some(at(65_100)));
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
            let next_allowed = rule.move_on(&mut bucket, at(now + ahead), at(now));
            let expected = naive(prev, i128::from(now + ahead), 3, 100);
            prev = Some(expected);
            assert_eq!(
                next_allowed,
                (expected > i128::from(now)).then(|| at(u64::try_from(expected).unwrap()))
            );
        }
    }

    #[test]
    fn a_log_in_another_place_gives_the_same_answer() {
        let rule = rule("1/s", "3");
        assert_eq!(rule.next_allowed_by_log(at(0), at(2_000), at(3_000)), Some(at(4_000)));
        assert_eq!(rule.next_allowed_by_log(at(0), at(2_000), at(3_001)), None);
    }

    #[test]
    fn a_log_keeps_the_largest_burst_for_the_longest_time() {
        let rules = [rule("1/s", "3"), rule("1/m", "2")];
        let domain = domain(rules.to_vec(), Logic::Gcra);
        assert_eq!((domain.name(), domain.rules(), domain.logic()), ("d", &rules[..], Logic::Gcra));
        assert_eq!((domain.keep(), domain.span()), (3, Nanos::from_secs(120)));
        let mut log = SlidingLogState::default();
        for expected in [1, 2, 3, 3] {
            assert_eq!(domain.len_after(&log), expected);
            let _ = domain.account(&mut log, at(0), at(0));
            assert_eq!(log.entries(), expected);
        }
    }

    #[test]
    fn a_domain_is_refused_that_gatekeepers_could_not_name_or_that_takes_too_long() {
        let named = |name: &str| Domain::new(name, Vec::new(), Logic::Window).map(drop);
        for (name, valid) in
            [("", false), ("a", true), (&*"a".repeat(254), true), (&*"a".repeat(255), false), ("a\0", false)]
        {
            assert_eq!(named(name), if valid { Ok(()) } else { Err(DomainError::Name) }, "{name:?}");
        }
        let with_rules = |count| Domain::new("d", vec![rule("1/s", "1"); count], Logic::Window).map(drop);
        assert_eq!(with_rules(16), Ok(()));
        assert_eq!(with_rules(17), Err(DomainError::TooManyRules { rules: 17 }));
        let with_burst = |burst| DomainRule::new("1/s".parse().unwrap(), Burst::Requests(burst)).map(drop);
        assert_eq!(with_burst(LOG_MAX), Ok(()));
        assert_eq!(with_burst(LOG_MAX + 1), Err(DomainError::BurstTooLarge { burst: LOG_MAX + 1 }));
    }
}

//! A rule: rates, and the expression that says when they limit.
//!
//! ```
//! use tollway_core::Rule;
//!
//! let rule: Rule = "Or('10 per second', And('user:100/60 minutes', 'apikey:60/h'))".parse()?;
//! assert_eq!(rule.to_string(), "Or('10/s', And('user:100/h', 'apikey:60/h'))");
//!
//! let error = "Or('10/s', 'user:5/fortnight')".parse::<Rule>().unwrap_err();
//! assert_eq!(error.to_string(), "\
//! a span must be a unit (ms, s, m, h or d), with or without a number in front, such as s or 5m
//!   Or('10/s', 'user:5/fortnight')
//!                      ^^^^^^^^^");
//! # Ok::<(), tollway_core::RuleError>(())
//! ```
//!
//! A rate reads a log of the requests that were allowed. It is reached until one moment, when the entry that fills it
//! is too old, and not after it. So a whole rule limits until one moment, too: the last of an `Or`, the first of an
//! `And`.

mod decision;
mod keyed;
mod lazy;
mod log_name;
mod lookup;
mod named;
mod parse;
mod request;

use std::fmt;

use crate::algorithm::{Bucket, SlidingLogState};
use crate::bill::Expression;
use crate::local_share::LocalShare;
use crate::rate_spec::largest_unit;
use crate::time::{Nanos, Timestamp};

pub use decision::RuleDecision;
pub use keyed::{KeyedRule, RuleBill, RuleLimit, RuleLogName};
pub use lazy::{RuleStep, RuleValues};
pub use log_name::LogName;
pub use lookup::{RuleLookupError, RuleRef};
pub use named::{NamedRule, RuleNameError};
pub use parse::{COUNT_MAX, RATES_MAX, RULE_MAX, RuleError, RuleProblem};
pub use request::RuleRequest;

/// Rates, and which of them limit. Read from text, so it is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    rates: Vec<Rate>,
    logs: Vec<RuleLog>,
    expression: Expression,
}

/// A rate that a rule reads: a count of requests in a span, of everybody or of one selector's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    count: usize,
    span: Nanos,
    log: usize,
    ignored: bool,
}

/// The log that the rates of one selector share. It is kept for the longest span and the largest count of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLog {
    selector: Option<Box<str>>,
    retention: Retention,
}

/// The number of entries that a log keeps, and the time that they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    keep: usize,
    span: Nanos,
}

impl Rule {
    /// Returns the rates in the order in which they were written. The expression counts them from 0.
    pub fn rates(&self) -> &[Rate] {
        &self.rates
    }

    /// Returns the logs that the rates read, one for each selector.
    pub fn logs(&self) -> &[RuleLog] {
        &self.logs
    }

    /// Returns the expression that says which rates limit.
    pub const fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Returns one of the rates in canonical form, such as `user:100/h`.
    pub fn display_rate(&self, index: usize) -> impl fmt::Display + '_ {
        fmt::from_fn(move |f| self.write_rate(index, f))
    }

    /// Returns the moment until which it limits, if nobody else comes. `logs` returns the logs of [`logs`](Self::logs)
    /// by their index, and `None` where the selector has no value: such rates are never reached. A rule does not limit
    /// if the moment has passed.
    pub fn limits_until<'l>(&self, logs: impl Fn(usize) -> Option<&'l SlidingLogState>) -> Timestamp {
        let until = |index: usize| {
            let rate = &self.rates[index];
            logs(rate.log).map_or(Timestamp::EPOCH, |log| rate.reached_until(log))
        };
        self.limits_until_by(until)
    }

    /// Returns the moment until which it limits, from the moment until which each of [`rates`](Self::rates) is reached.
    pub fn limits_until_by(&self, reached_until: impl Fn(usize) -> Timestamp) -> Timestamp {
        self.expression.limits_until(&reached_until)
    }

    /// Returns the number of requests that it would still allow at once, from the same logs as
    /// [`limits_until`](Self::limits_until); `None` if nothing limits them.
    pub fn remaining<'l>(
        &self,
        logs: impl Fn(usize) -> Option<&'l SlidingLogState>,
        now: Timestamp,
    ) -> Option<usize> {
        let left = |index: usize| {
            let rate = &self.rates[index];
            logs(rate.log).map_or(usize::MAX, |log| rate.left(log, now))
        };
        Some(self.expression.left(&left)).filter(|left| *left < usize::MAX)
    }

    /// Returns the same rule with this share of every count. A count that would be zero becomes one, unless it was
    /// zero.
    pub(crate) fn share(&self, share: LocalShare) -> Self {
        let mut part = self.clone();
        let kept = part.rates.iter_mut().map(|rate| &mut rate.count);
        for count in
            kept.chain(part.logs.iter_mut().map(|log| &mut log.retention.keep)).filter(|count| **count > 0)
        {
            *count = share.count(*count);
        }
        part
    }

    /// Returns the rule that never limits.
    const fn unlimited() -> Self {
        Self { rates: Vec::new(), logs: Vec::new(), expression: Expression::Or(Vec::new()) }
    }
}

impl Rate {
    /// Returns the count of requests.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Returns the span that the count is for.
    pub const fn span(&self) -> Nanos {
        self.span
    }

    /// Returns the index of the log that it reads, among those of its rule.
    pub const fn log(&self) -> usize {
        self.log
    }

    /// Returns true if it was written with a third field, which has no effect.
    pub const fn has_ignored_field(&self) -> bool {
        self.ignored
    }

    /// Returns the moment until which it is reached: the entry that fills it counts while it is younger than the span.
    /// A count of zero is reached for ever.
    pub fn reached_until(&self, log: &SlidingLogState) -> Timestamp {
        if self.count == 0 {
            return Timestamp::from_nanos(u64::MAX);
        }
        // A log that others have filled, for a shorter span, is forgotten when it is silent to them.
        let forgotten_at = log.expires_at();
        log.nth_newest(self.count).map_or(Timestamp::EPOCH, |entry| (entry + self.span).min(forgotten_at))
    }
}

impl Rate {
    /// Returns the number of requests that it would still allow at once.
    fn left(&self, log: &SlidingLogState, now: Timestamp) -> usize {
        let counts = |nth: usize| {
            log.expires_at() > now && log.nth_newest(nth).is_some_and(|entry| entry + self.span > now)
        };
        // The entries that count are the newest. Their number is found by halving, because a log may be long.
        let (mut counted, mut beyond) = (0, self.count + 1);
        while beyond - counted > 1 {
            let middle = counted + (beyond - counted) / 2;
            *(if counts(middle) { &mut counted } else { &mut beyond }) = middle;
        }
        self.count - counted
    }
}

impl RuleLog {
    /// Returns the selector whose value picks the log; `None` for the log of everybody.
    pub fn selector(&self) -> Option<&str> {
        self.selector.as_deref()
    }

    /// Returns what the rule wants kept of it.
    pub const fn retention(&self) -> Retention {
        self.retention
    }

    /// Adds a request as [`Retention::log`] does.
    #[inline]
    pub fn log(&self, log: &mut SlidingLogState, now: Timestamp) {
        self.retention.log(log, now);
    }
}

impl Retention {
    /// Returns the number of entries that are kept.
    pub const fn keep(&self) -> usize {
        self.keep
    }

    /// Returns the time that entries count.
    pub const fn span(&self) -> Nanos {
        self.span
    }

    /// Returns the retention that two rules need of a log that they share.
    pub fn and(self, other: Self) -> Self {
        Self { keep: self.keep.max(other.keep), span: self.span.max(other.span) }
    }

    /// Adds a request to the log. If the clock has stepped back, the request gets the time of the newest entry, so that
    /// no entry counts for a shorter time than an older one.
    #[inline]
    pub fn log(&self, log: &mut SlidingLogState, now: Timestamp) {
        if log.expires_at() <= now {
            log.clear();
        }
        let at = log.nth_newest(1).map_or(now, |newest| newest.max(now));
        log.record(at, self.keep, self.span);
    }

    /// Returns the number of entries in the log after [`log`](Self::log).
    pub fn len_after(&self, log: &SlidingLogState, now: Timestamp) -> usize {
        if log.expires_at() <= now { self.keep.min(1) } else { log.len_after_record(self.keep) }
    }
}

impl Expression {
    /// Returns the moment until which it limits, from the moments of the rates.
    fn limits_until(&self, until: &impl Fn(usize) -> Timestamp) -> Timestamp {
        let moment = |part: &Self| part.limits_until(until);
        match self {
            Self::Charge(index) => until(*index),
            Self::Or(parts) => parts.iter().map(moment).max().unwrap_or(Timestamp::EPOCH),
            Self::And(parts) => parts.iter().map(moment).min().unwrap_or(Timestamp::from_nanos(u64::MAX)),
        }
    }
}

impl Expression {
    /// Returns how many more requests are allowed, if each of them is logged everywhere.
    fn left(&self, of_rate: &impl Fn(usize) -> usize) -> usize {
        let left = |part: &Self| part.left(of_rate);
        match self {
            Self::Charge(index) => of_rate(*index),
            Self::Or(parts) => parts.iter().map(left).min().unwrap_or(usize::MAX),
            Self::And(parts) => parts.iter().map(left).max().unwrap_or(0),
        }
    }
}

/// In canonical form: the largest unit that is exact, one space after a comma, single quotes inside.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.expression {
            Expression::Charge(index) => self.write_rate(*index, f),
            expression => self.write_expression(expression, f),
        }
    }
}

impl Rule {
    fn write_expression(&self, expression: &Expression, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, parts) = match expression {
            Expression::Charge(index) => {
                f.write_str("'")?;
                self.write_rate(*index, f)?;
                return f.write_str("'");
            }
            Expression::Or(parts) => ("Or", parts),
            Expression::And(parts) => ("And", parts),
        };
        write!(f, "{name}(")?;
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            self.write_expression(part, f)?;
        }
        f.write_str(")")
    }

    fn write_rate(&self, index: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = &self.rates[index];
        if let Some(selector) = self.logs[rate.log].selector() {
            write!(f, "{selector}:")?;
        }
        match largest_unit(rate.span) {
            (1, unit) => write!(f, "{}/{unit}", rate.count),
            (number, unit) => write!(f, "{}/{number}{unit}", rate.count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_what_would_still_be_allowed() {
        for (rule, expected) in [
            ("3/s", [3, 2, 1, 0]),
            ("Or('3/s', '2/m')", [2, 1, 0, 0]),
            ("And('3/s', '2/m')", [3, 2, 1, 0]),
            ("0/s", [0; 4]),
            ("And()", [0; 4]),
        ] {
            let rule: Rule = rule.parse().unwrap();
            let (now, mut log) = (Timestamp::EPOCH + Nanos::from_secs(5), SlidingLogState::default());
            for left in expected {
                assert_eq!(rule.remaining(|_| Some(&log), now), Some(left), "{rule}");
                rule.logs.iter().for_each(|kept| kept.log(&mut log, now));
            }
        }
        let long: Rule = "50000/s".parse().unwrap();
        let (at, mut log) =
            (|millis| Timestamp::EPOCH + Nanos::from_millis(millis), SlidingLogState::default());
        (0..40_000_u64).for_each(|index| long.logs[0].log(&mut log, at(index / 20)));
        assert_eq!(long.remaining(|_| Some(&log), at(1_999)), Some(30_000));
        assert_eq!(long.remaining(|_| Some(&log), at(9_999)), Some(50_000));
        assert_eq!("Or()".parse::<Rule>().unwrap().remaining(|_| None, at(0)), None);
        assert_eq!("user:1/s".parse::<Rule>().unwrap().remaining(|_| None, at(0)), None);
    }

    #[test]
    fn a_log_is_forgotten_when_it_is_silent_to_all_who_fill_it_whoever_reads_it_then() {
        let [short, long] = ["2/s", "2/h"].map(|rule| rule.parse::<Rule>().unwrap());
        let at = |millis| Timestamp::EPOCH + Nanos::from_millis(millis);
        let mut log = SlidingLogState::default();
        for now in [0, 500] {
            short.logs[0].log(&mut log, at(now));
        }
        assert_eq!(long.limits_until(|_| Some(&log)), at(1_500));
        let remaining = [1_499, 1_500].map(|now| long.remaining(|_| Some(&log), at(now)));
        assert_eq!(remaining, [Some(0), Some(2)]);
        long.logs[0].log(&mut log, at(1_499));
        short.logs[0].log(&mut log, at(1_499));
        assert_eq!(long.limits_until(|_| Some(&log)), at(3_601_499));
        short.logs[0].log(&mut log, at(3_601_499));
        assert_eq!((log.len(), log.expires_at()), (1, at(3_602_499)));
    }

    #[test]
    fn a_share_of_a_rule_is_a_share_of_every_count_and_of_what_is_kept() {
        let rule: Rule = "Or('9/s', '0/m', 'user:1/h', 'apikey:6/d:0.5')".parse().unwrap();
        let part = rule.share(LocalShare::new(2, 3).unwrap());
        assert_eq!(part.to_string(), "Or('6/s', '0/m', 'user:1/h', 'apikey:4/d')");
        assert_eq!(part.rates().iter().map(Rate::count).collect::<Vec<_>>(), [6, 0, 1, 4]);
        assert_eq!(part.logs().iter().map(|log| log.retention().keep()).collect::<Vec<_>>(), [6, 1, 4]);
        let ignored = part.rates().iter().map(Rate::has_ignored_field);
        assert_eq!(ignored.collect::<Vec<_>>(), [false, false, false, true]);
    }

    #[test]
    fn the_length_of_a_log_is_known_before_a_request_is_entered() {
        for rule in ["0/s", "1/s", "3/s"] {
            let retention = rule.parse::<Rule>().unwrap().logs[0].retention();
            let mut log = SlidingLogState::default();
            for millis in [0, 0, 1, 2, 3, 1_002, 1_003, 2_003, 2_004] {
                let now = Timestamp::EPOCH + Nanos::from_millis(millis);
                let expected = retention.len_after(&log, now);
                retention.log(&mut log, now);
                assert_eq!(log.len(), expected, "{rule} {millis}");
            }
        }
    }
}

//! The values of a rule's selectors, asked for one by one and only when the rule needs them.
//!
//! ```
//! use tollway_core::rule::{KeyedRule, RuleLimit, RuleStep, RuleValues};
//! use tollway_core::{Nanos, Timestamp};
//!
//! let rule = KeyedRule::new(RuleLimit::new("Or('10/s', 'user:100/h')".parse()?), "", "upload");
//! let mut values = RuleValues::<&str>::new(&rule, |_selector| None);
//! // The log of everybody is looked at first. If it is full, the rule denies, and nobody is asked for a user.
//! assert_eq!(values.step(&rule), RuleStep::Look);
//! let until = Timestamp::EPOCH + Nanos::from_secs(1);
//! values.looked(Timestamp::EPOCH, vec![until, Timestamp::EPOCH]);
//! assert!(matches!(values.step(&rule), RuleStep::Deny(_)));
//! # Ok::<(), tollway_core::RuleError>(())
//! ```
//!
//! Parts are looked at from the left, up to the first that settles the rule, without locks. A rule that may allow needs
//! every value, because it logs the request everywhere; the whole bill is then resolved in one atomic step, which
//! decides.

use super::{KeyedRule, RuleBill, RuleDecision};
use crate::bill::Expression;
use crate::time::Timestamp;

/// The values of a rule's selectors, as far as they are known, and what was seen of the rule's logs.
#[derive(Clone, Debug)]
pub struct RuleValues<V> {
    /// One for each log of the rule; `None` where the value was not asked for yet.
    known: Vec<Option<Option<V>>>,
    /// The logs that were looked at, as bits. A rule has at most 32 rates, and so at most 32 logs.
    seen: u32,
    /// The time at which they were looked at.
    at: Timestamp,
    /// The moment until which each rate was reached then.
    reached_until: Vec<Timestamp>,
    ask_all: bool,
}

/// The next thing that is needed to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleStep<'r> {
    /// The value of a selector, for [`RuleValues::answer`].
    Ask {
        /// The index of the selector's log.
        log: usize,
        /// The name of the selector.
        selector: &'r str,
    },
    /// The state of the logs of [`RuleValues::bill`], for [`RuleValues::looked`].
    Look,
    /// The rule denies, whatever the other values are. They might deny for longer.
    Deny(RuleDecision),
    /// Every value is known: the bill can be resolved.
    Resolve,
}

/// The result of a part of an expression, as far as it is known.
enum Part {
    Limits,
    Allows,
    Unknown { log: usize },
    Unseen,
}

impl<V: AsRef<[u8]>> RuleValues<V> {
    /// Starts with the values that need not be asked for; `None` is for those that do.
    pub fn new(rule: &KeyedRule, mut known: impl FnMut(&str) -> Option<Option<V>>) -> Self {
        let logs = rule.limit().rule().logs().iter();
        let given = |value: Option<V>| value.filter(|value| !value.as_ref().is_empty());
        let known =
            logs.map(|log| log.selector().map_or(Some(None), |name| known(name).map(given))).collect();
        Self { known, seen: 0, at: Timestamp::EPOCH, reached_until: Vec::new(), ask_all: false }
    }

    /// Returns what is needed next.
    pub fn step<'r>(&self, rule: &'r KeyedRule) -> RuleStep<'r> {
        let Some(unknown) = self.known.iter().position(Option::is_none) else { return RuleStep::Resolve };
        let part =
            if self.ask_all { Part::Allows } else { self.evaluate(rule, rule.limit().rule().expression()) };
        let log = match part {
            Part::Limits => return RuleStep::Deny(self.denial(rule)),
            Part::Unseen => return RuleStep::Look,
            // The request will be logged for every value, so all are needed.
            Part::Allows => unknown,
            Part::Unknown { log } => log,
        };
        let selector = rule.limit().rule().logs()[log].selector();
        RuleStep::Ask { log, selector: selector.expect("a log without a selector needs no value") }
    }

    /// Sets the value of the selector that was asked for; `None` and an empty value are no value.
    pub fn answer(&mut self, log: usize, value: Option<V>) {
        self.known[log] = Some(value.filter(|value| !value.as_ref().is_empty()));
    }

    /// Sets the moment until which each rate of [`bill`](Self::bill) is reached, as it was at this time.
    pub fn looked(&mut self, at: Timestamp, reached_until: Vec<Timestamp>) {
        self.at = at;
        self.reached_until = reached_until;
        let known = self.known.iter().zip(0..).filter(|(known, _)| known.is_some());
        self.seen = known.fold(0, |seen, (_, log)| seen | (1 << log));
    }

    /// Asks for every value: the logs cannot be looked at.
    pub fn ask_all(&mut self) {
        self.ask_all = true;
    }

    /// Returns the bill with the values that are known. The others count as no value.
    pub fn bill<'r>(&self, rule: &'r KeyedRule) -> RuleBill<'r> {
        let logs = rule.limit().rule().logs().iter().zip(&self.known);
        let mut values = logs.filter(|(log, _)| log.selector().is_some()).map(|(_, known)| known.as_ref());
        let next =
            |_: &str| Ok::<_, std::convert::Infallible>(values.next().flatten().and_then(Option::as_ref));
        let Ok(bill) = rule.bill(next);
        bill
    }

    fn evaluate(&self, rule: &KeyedRule, expression: &Expression) -> Part {
        let (parts, settles): (_, fn(&Part) -> bool) = match expression {
            Expression::Charge(rate) => return self.rate(rule, *rate),
            Expression::Or(parts) => (parts, |part| !matches!(part, Part::Allows)),
            Expression::And(parts) => (parts, |part| !matches!(part, Part::Limits)),
        };
        let settled = parts.iter().map(|part| self.evaluate(rule, part)).find(settles);
        settled.unwrap_or(match expression {
            Expression::And(_) => Part::Limits,
            _ => Part::Allows,
        })
    }

    fn rate(&self, rule: &KeyedRule, rate: usize) -> Part {
        let log = rule.limit().rule().rates()[rate].log();
        match &self.known[log] {
            None => Part::Unknown { log },
            Some(None) if rule.limit().rule().logs()[log].selector().is_some() => Part::Allows,
            Some(_) if !self.has_seen(log) => Part::Unseen,
            Some(_) if self.reached_until[rate] > self.at => Part::Limits,
            Some(_) => Part::Allows,
        }
    }

    fn has_seen(&self, log: usize) -> bool {
        self.seen & (1 << log) != 0
    }

    fn denial(&self, rule: &KeyedRule) -> RuleDecision {
        let rule = rule.limit().rule();
        let until = rule.limits_until_by(|rate| {
            let seen = self.has_seen(rule.rates()[rate].log());
            if seen { self.reached_until[rate] } else { Timestamp::EPOCH }
        });
        RuleDecision::until(until, self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::RuleLimit;
    use crate::time::Nanos;

    /// Runs the steps of a rule whose reached rates are `full`, and returns the selectors that were asked for, the
    /// number of looks, and what it came to.
    fn run(rule: &str, full: &[usize], value: Option<&str>) -> (Vec<String>, usize, &'static str) {
        let rule = KeyedRule::new(RuleLimit::new(rule.parse().unwrap()), "", "");
        let mut values = RuleValues::new(&rule, |selector| selector.starts_with("known").then_some(value));
        let (mut asked, mut looks) = (Vec::new(), 0);
        let at = Timestamp::EPOCH + Nanos::from_secs(9);
        loop {
            match values.step(&rule) {
                RuleStep::Ask { log, selector } => {
                    asked.push(selector.to_owned());
                    values.answer(log, value);
                }
                RuleStep::Look => {
                    looks += 1;
                    assert!(looks < 9, "it looks again at what it has seen");
                    let named = |log: usize| values.bill(&rule).identifiers()[log].is_some();
                    let rates = rule.limit().rule().rates().iter().enumerate();
                    let until = |(index, rate): (usize, &crate::rule::Rate)| {
                        let reached = full.contains(&index) && named(rate.log());
                        if reached { at + Nanos::from_secs(1 + index as u64) } else { at }
                    };
                    let until = rates.map(until).collect();
                    values.looked(at, until);
                }
                RuleStep::Deny(decision) => {
                    assert!(!decision.allowed() && decision.retry_after().is_some());
                    return (asked, looks, "deny");
                }
                RuleStep::Resolve => return (asked, looks, "resolve"),
            }
        }
    }

    #[test]
    fn a_value_is_asked_for_only_if_the_rule_needs_it() {
        let named = |selectors: &str| selectors.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (rule, full, asked, looks, outcome) in [
            // One that comes first is needed in any case, and the store is asked once.
            ("a:1/s", &[][..], "a", 0, "resolve"),
            ("known:1/s", &[], "", 0, "resolve"),
            ("Or('1/s', 'known:1/s')", &[0], "", 0, "resolve"),
            ("Or('1/s', 'a:1/s')", &[], "a", 1, "resolve"),
            ("Or('1/s', 'a:1/s')", &[0], "", 1, "deny"),
            ("Or('a:1/s', 'b:1/s')", &[], "a b", 1, "resolve"),
            ("Or('a:1/s', 'b:1/s')", &[0], "a", 1, "deny"),
            ("Or('a:1/s', 'b:1/s')", &[1], "a b", 1, "resolve"),
            ("And('a:1/s', 'b:1/s')", &[0], "a b", 1, "resolve"),
            ("And('a:1/s', 'b:1/s')", &[], "a b", 1, "resolve"),
            ("Or(And('1/s', 'a:1/s'), 'b:1/s')", &[0, 1], "a", 2, "deny"),
            ("Or(And('1/s', 'a:1/s'), 'b:1/s')", &[1], "b a", 2, "resolve"),
            ("Or('known:1/s', 'a:1/s', 'a:5/m', 'b:1/s')", &[2], "a", 2, "deny"),
            ("Or('a:1/s', 'b:1/s', 'c:1/s')", &[1], "a b", 2, "deny"),
            ("And()", &[], "", 0, "resolve"),
        ] {
            assert_eq!(run(rule, full, Some("x")), (named(asked), looks, outcome), "{rule} {full:?}");
        }
    }

    #[test]
    fn no_value_needs_no_look() {
        for value in [None, Some("")] {
            assert_eq!(
                run("Or('a:1/s', 'b:1/s')", &[0, 1], value),
                (vec!["a".into(), "b".into()], 0, "resolve")
            );
        }
    }

    #[test]
    fn a_store_that_cannot_be_looked_at_gets_every_value() {
        let rule = KeyedRule::new(RuleLimit::new("Or('1/s', 'a:1/s', 'b:1/s')".parse().unwrap()), "", "");
        let mut values = RuleValues::<&str>::new(&rule, |_| None);
        assert_eq!(values.step(&rule), RuleStep::Look);
        values.ask_all();
        for (log, selector) in [(1, "a"), (2, "b")] {
            assert_eq!(values.step(&rule), RuleStep::Ask { log, selector });
            values.answer(log, Some("x"));
        }
        assert_eq!(values.step(&rule), RuleStep::Resolve);
        let names: Vec<_> =
            values.bill(&rule).identifiers().iter().flatten().map(|name| name.to_string()).collect();
        assert_eq!(names, [":", "::a:x", "::b:x"]);
    }
}

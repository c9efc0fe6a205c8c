//! The logs of a rule that are in one slot, which one call reads and writes.

use redis::Value;
use tollway_core::rule::Rate;
use tollway_core::{Expression, Rule, RuleBill, Timestamp};

use crate::store::redis::StoreError;
use crate::store::redis::call::Call;
use crate::store::redis::key::{Namespace, slot};
use crate::store::redis::reply::{ScriptReply, number};
use crate::store::redis::script::{self, CallBuilder};

/// The way in which a script treats the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Returns the time until which each rate is reached.
    Look,
    /// Enters the request, unless the rule denies.
    Whole,
    /// Enters the request, unless the rule denies whatever the logs in other slots say.
    Part,
}

/// Logs of a rule that are all in one slot, and the rates that read them.
pub(super) struct Part<'a> {
    rule: &'a Rule,
    /// The index of each log in the rule, and its key.
    logs: Vec<(usize, Vec<u8>)>,
    /// The indexes of the rates in the rule.
    rates: Vec<usize>,
    /// True if entries of these logs may be removed again, by a rule that has logs in other slots.
    revocable: bool,
}

/// The parsed reply to a call.
pub(super) struct Found {
    pub(super) now: Timestamp,
    /// The time until which each rate is reached.
    pub(super) reached_until: Vec<Timestamp>,
    /// The entry that was written to each log; `None` if none was.
    entered: Vec<Option<Timestamp>>,
}

impl<'a> Part<'a> {
    /// Splits the logs of a rule that have a name by slot, in a Cluster.
    pub(super) fn of(bill: &'a RuleBill<'_>, namespace: &Namespace, by_slot: bool) -> Vec<Self> {
        let rule = bill.limit().rule();
        let mut parts: Vec<Self> = Vec::with_capacity(1);
        for (place, name) in bill.identifiers().iter().enumerate() {
            let Some(name) = name else { continue };
            let key = namespace.of_rule(name);
            let near = |part: &Self| !by_slot || slot(&part.logs[0].1) == slot(&key);
            let index = parts.iter().position(near).unwrap_or_else(|| {
                parts.push(Self::new(rule, by_slot));
                parts.len() - 1
            });
            let rates = rule.rates().iter().enumerate().filter(|(_, rate)| rate.log() == place);
            parts[index].rates.extend(rates.map(|(rate, _)| rate));
            parts[index].logs.push((place, key));
        }
        parts
    }

    pub(super) const fn new(rule: &'a Rule, revocable: bool) -> Self {
        Self { rule, logs: Vec::new(), rates: Vec::new(), revocable }
    }

    /// Returns the indexes of its rates in the rule.
    pub(super) fn rates(&self) -> &[usize] {
        &self.rates
    }

    /// Returns the call that reads the logs.
    pub(super) fn call(&self, mode: Mode, now: Option<Timestamp>) -> Call {
        if let (Mode::Whole, Some(rate)) = (mode, self.plain()) {
            return self.call_plain(rate, now);
        }
        let mode = match mode {
            Mode::Look => "look",
            Mode::Whole => "whole",
            Mode::Part => "part",
        };
        let place = |place: usize| self.rates.iter().position(|rate| *rate == place);
        let expression = script::postfix(self.rule.expression(), &place);
        let draft = CallBuilder::new(&script::RULE, &self.keys())
            .now(now)
            .arg(mode)
            .arg(self.revocable())
            .arg(expression);
        let draft = self.rates.iter().fold(draft.arg(self.rates.len()), |draft, rate| {
            let rate = &self.rule.rates()[*rate];
            let log = self.logs.iter().position(|(place, _)| *place == rate.log()).map_or(0, |log| log + 1);
            draft.arg(log).arg(rate.count()).pair(rate.span().get())
        });
        let logs = self.logs.iter().map(|(place, _)| &self.rule.logs()[*place]);
        logs.fold(draft, |draft, log| draft.arg(log.keep()).pair(log.span().get())).finish()
    }

    fn call_plain(&self, rate: &Rate, now: Option<Timestamp>) -> Call {
        let (count, span) = (rate.count(), rate.span().get());
        let kept = format!("k{count} {} {}", span / BILLION, span % BILLION);
        let draft = CallBuilder::new(&script::RULE_PLAIN, &self.keys()).arg(kept).arg(count).arg(span);
        let draft = draft.arg(self.revocable());
        match now {
            Some(now) => draft.pair(now.as_nanos()).finish(),
            None => draft.finish(),
        }
    }

    /// Parses the reply to the call.
    pub(super) fn read(&self, reply: Value) -> Result<Found, StoreError> {
        let mut answer = ScriptReply::new(reply)?;
        let now = answer.now()?;
        let moment = |value: &Value| number(value).map(Timestamp::from_nanos);
        let reached_until = self.rates.iter().map(|_| moment(&answer.value())).collect::<Result<_, _>>()?;
        let entered = self.logs.iter().map(|_| match answer.value() {
            Value::Nil => Ok(None),
            value => moment(&value).map(Some),
        });
        Ok(Found { now, reached_until, entered: entered.collect::<Result<_, _>>()? })
    }

    /// Returns the call that removes the new entries, if there are any.
    pub(super) fn undo(&self, found: &Found, now: Option<Timestamp>) -> Option<Call> {
        found.entered.iter().any(Option::is_some).then(|| {
            let draft = CallBuilder::new(&script::RULE_UNDO, &self.keys()).now(now);
            found.entered.iter().fold(draft, |draft, entry| draft.now(*entry)).finish()
        })
    }

    fn keys(&self) -> Vec<&[u8]> {
        self.logs.iter().map(|(_, key)| &**key).collect()
    }

    const fn revocable(&self) -> &'static str {
        if self.revocable { "1" } else { "" }
    }

    /// Returns the rate of a rule that is a single rate, if the quickest script can count it.
    fn plain(&self) -> Option<&Rate> {
        let ([rate], Expression::Charge(_)) = (self.rule.rates(), self.rule.expression()) else {
            return None;
        };
        (rate.count() > 0 && rate.span() < script::EXACT).then_some(rate)
    }
}

const BILLION: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollway_core::{KeyedRule, Nanos, RuleLimit};
    use tollway_testbed::{Random, RedisServer};

    use super::*;
    use crate::block_on::block_on;
    use crate::store::redis::{Redis, RedisUrl};

    const START: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

    fn ask(store: &Redis, call: Call) -> Value {
        block_on(store.send(vec![call])).remove(0).unwrap()
    }

    fn keyed(rule: &str, key: &str) -> KeyedRule {
        KeyedRule::new(RuleLimit::new(rule.parse().unwrap()), "", key)
    }

    fn bill(rule: &KeyedRule) -> RuleBill<'_> {
        rule.bill(|_| Ok::<_, ()>(Some("x"))).unwrap()
    }

    fn allows(store: &Redis, rule: &KeyedRule, revocable: bool, now: Timestamp) -> bool {
        let bill = bill(rule);
        let part = Part::of(&bill, &store.namespace, revocable).remove(0);
        ask(store, part.call(Mode::Whole, Some(now))) == Value::Nil
    }

    /// Compares decisions with and without requests in between that were entered, denied elsewhere and removed.
    #[test]
    fn nobody_gets_more_for_what_was_entered_and_taken_back() {
        let server = RedisServer::start();
        let deadline = Duration::from_secs(20);
        let store = Redis::open(&RedisUrl { deadline, ..server.url().parse().unwrap() }).unwrap();
        let (mut random, mut compared) = (Random::new(1), 0);
        for round in 0..40 {
            let count = 1 + random.below(6);
            let rule = match random.below(2) {
                0 => format!("{count}/3s"),
                _ => format!("Or('{count}/3s', '{}/500ms')", 1 + count / 2),
            };
            let [with, without] = ["with", "without"].map(|key| keyed(&rule, &format!("{key}{round}")));
            let elsewhere = keyed(&format!("And('{count}/3s', 'elsewhere:1/s')"), &format!("with{round}"));
            let bill = bill(&elsewhere);
            let part = Part::of(&bill, &store.namespace, true).remove(0);
            // Some stay for so long that they are not taken back any more.
            let undone = if random.below(2) == 0 { 4 } else { 1 };
            let (mut now, mut entered, mut stayed) = (START, Vec::new(), false);
            for _ in 0..300 {
                now = now + Nanos::from_millis(random.below(120));
                match random.below(12) {
                    0 | 1 => {
                        for _ in 0..random.below(5) {
                            let reply = ask(&store, part.call(Mode::Part, Some(now)));
                            entered.push((now, part.read(reply).unwrap()));
                        }
                    }
                    turn if turn < 2 + undone && !entered.is_empty() => {
                        for (at, found) in entered.drain(..) {
                            ask(&store, part.undo(&found, Some(now)).unwrap());
                            stayed |= now.since(at) >= Nanos::from_secs(1);
                        }
                    }
                    _ => {
                        let allowed = allows(&store, &with, true, now);
                        let alone = entered.is_empty() && !stayed;
                        if allowed || alone {
                            let fits = allows(&store, &without, false, now);
                            assert!(fits || !allowed, "round {round}: {rule} let one more through at {now}");
                            assert!(allowed || !fits, "round {round}: {rule} let one less through at {now}");
                            compared += 1;
                        }
                    }
                }
            }
        }
        assert!(compared > 1_000, "only {compared} were compared");
    }
}

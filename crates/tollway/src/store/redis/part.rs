//! The charges and the logs of a bill that are in one slot, which one call decides.

use redis::Value;
use tollway_core::algorithm::TokenBucket;
use tollway_core::rule::{Rate, Retention};
use tollway_core::{Algorithm, Bill, Charge, ChargeKind, Expression, RuleBill, Timestamp};

use super::StoreError;
use super::call::Call;
use super::key::{Namespace, slot};
use super::reply::{ScriptReply, number};
use super::script::{self, CallBuilder};
use super::seen::FoundBucket;

/// The way in which a script settles a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Decides, and changes nothing.
    Check,
    /// Takes all or nothing. The part is the whole bill.
    Whole,
    /// Takes all or nothing. Other parts are in other slots, so it takes nothing only if the bill is denied whatever
    /// they say, and it returns what is needed to take it back.
    Part,
    /// Takes each charge, or not, as if it were alone.
    Each,
}

/// Charges and logs of a bill that are all in one slot.
pub(super) struct Part<'a> {
    pub(super) mode: Mode,
    pub(super) lines: Vec<Line<'a>>,
    /// The expression that says which denials deny the part; `None` is any.
    expression: Option<&'a Expression>,
    /// All rules of the bill. Those that have no log here are decided as far as they can be.
    rules: &'a [RuleBill<'a>],
    pub(super) logs: Vec<LogLine>,
    /// The rates that read these logs, one rule after another.
    pub(super) rates: Vec<RatePlace>,
    /// True if entries of these logs may be removed again, by a bill that has other parts.
    revocable: bool,
}

/// One charge that a limit applies to.
pub(super) struct Line<'a> {
    /// The index of the charge in the bill.
    pub(super) place: usize,
    pub(super) charge: &'a Charge<'a>,
    pub(super) algorithm: &'a Algorithm,
    pub(super) key: Vec<u8>,
}

/// One log that has a name, and what all rules of the bill want kept of it.
pub(super) struct LogLine {
    pub(super) key: Vec<u8>,
    retention: Retention,
}

/// The place of a rate: the indexes of its rule in the bill, of the rate in the rule, and of its log in the part.
#[derive(Clone, Copy)]
pub(super) struct RatePlace {
    pub(super) rule: usize,
    pub(super) rate: usize,
    log: usize,
}

/// The buckets and logs that a call has read, and its decision.
pub(super) struct Read<'a> {
    pub(super) now: Timestamp,
    /// True if this part is denied, as a bill of its own.
    pub(super) denied: bool,
    /// The bucket that was found for each line.
    pub(super) seen: Vec<FoundBucket<'a>>,
    /// The time until which each rate is reached. Empty if the bill is whole and allowed.
    pub(super) reached_until: Vec<Timestamp>,
    /// The entry that a part has written to each log; `None` if it has written none.
    pub(super) entered: Vec<Option<Timestamp>>,
}

impl<'a> Part<'a> {
    /// Splits a bill by slot, in a Cluster. Charges of unlimited ids and logs without a name are in no part.
    pub(super) fn of(bill: &Bill<'a>, namespace: &Namespace, by_slot: bool, mode: Mode) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::with_capacity(1);
        for (place, charge) in bill.charges().iter().enumerate() {
            let Some(algorithm) = charge.algorithm() else { continue };
            let key = namespace.of_id(charge.limit(), charge.id());
            let part = Self::at(&key, &mut parts, bill, by_slot, mode);
            part.lines.push(Line { place, charge, algorithm, key });
        }
        for (rule, bill_of_rule) in bill.rules().iter().enumerate() {
            let (names, limit) = (bill_of_rule.identifiers(), bill_of_rule.limit().rule());
            for (place, name) in names.iter().enumerate() {
                let Some(name) = name else { continue };
                let key = namespace.of_rule(name);
                let part = Self::at(&key, &mut parts, bill, by_slot, mode);
                let log = part.log(key, limit.logs()[place].retention());
                let rates = limit.rates().iter().enumerate().filter(|(_, rate)| rate.log() == place);
                part.rates.extend(rates.map(|(rate, _)| RatePlace { rule, rate, log }));
            }
        }
        match (&mut *parts, bill.expression()) {
            ([whole], expression) => whole.expression = expression,
            (several, expression) if mode == Mode::Whole => {
                // With an expression, no part can tell by itself whether the bill is denied.
                let mode = if expression.is_some() { Mode::Each } else { Mode::Part };
                several.iter_mut().for_each(|part| part.mode = mode);
            }
            _ => {}
        }
        parts
    }

    /// Makes a part that has neither charges nor logs.
    pub(super) const fn new(rules: &'a [RuleBill<'a>], revocable: bool, mode: Mode) -> Self {
        Self {
            mode,
            lines: Vec::new(),
            expression: None,
            rules,
            logs: Vec::new(),
            rates: Vec::new(),
            revocable,
        }
    }

    /// Returns the part that has the slot of a key.
    fn at<'p>(
        key: &[u8],
        parts: &'p mut Vec<Self>,
        bill: &Bill<'a>,
        by_slot: bool,
        mode: Mode,
    ) -> &'p mut Self {
        let near = |part: &Self| !by_slot || part.keys().next().is_some_and(|other| slot(other) == slot(key));
        let index = parts.iter().position(near).unwrap_or_else(|| {
            parts.push(Self::new(bill.rules(), by_slot, mode));
            parts.len() - 1
        });
        &mut parts[index]
    }

    /// Returns the index of a log, which several rules may share.
    fn log(&mut self, key: Vec<u8>, retention: Retention) -> usize {
        match self.logs.iter().position(|log| log.key == key) {
            Some(index) => {
                self.logs[index].retention = self.logs[index].retention.and(retention);
                index
            }
            None => {
                self.logs.push(LogLine { key, retention });
                self.logs.len() - 1
            }
        }
    }

    /// Returns the call that decides the part.
    pub(super) fn call(&self, now: Option<Timestamp>) -> Call {
        if let Some((increment, fill, limit)) = self.quick() {
            let draft = CallBuilder::new(&script::SPEND, &[&self.lines[0].key]);
            return draft.arg(increment).arg(fill).unit(limit).now_pair(now).finish();
        }
        if let Some(rate) = self.plain() {
            let (count, span) = (rate.count(), rate.span().get());
            let kept = format!("k{count} {} {}", span / BILLION, span % BILLION);
            let draft = CallBuilder::new(&script::RULE_PLAIN, &[&self.logs[0].key]);
            let draft = draft.arg(kept).arg(count).arg(span).arg(self.revocable());
            return draft.now_pair(now).finish();
        }
        let keys: Vec<&[u8]> = self.keys().collect();
        let mode = match self.mode {
            Mode::Check => "check",
            Mode::Whole => "whole",
            Mode::Part => "part",
            Mode::Each => "each",
        };
        // An unlimited charge has no index, and is no reason to deny.
        let place = |place| self.lines.iter().position(|line| line.place == place);
        let expression =
            self.expression.map(|refusals| script::postfix(refusals, &place)).unwrap_or_default();
        let script = script::settle(self.lines.iter().map(|line| line.algorithm), !self.rules.is_empty());
        let draft = CallBuilder::new(script, &keys).now(now).arg(mode).arg(self.lines.len());
        let draft = self.lines.iter().fold(draft, |draft, line| {
            let kind = match line.charge.kind() {
                ChargeKind::Spend => "s",
                ChargeKind::SpendOnly => "o",
                ChargeKind::CheckOnly => "c",
            };
            draft.algorithm(line.algorithm).arg(kind).numbers(line.algorithm, line.charge.cost())
        });
        let draft = draft.arg(expression);
        if self.rules.is_empty() { draft.finish() } else { self.add_rules(draft).finish() }
    }

    fn add_rules(&self, draft: CallBuilder) -> CallBuilder {
        let draft = draft.arg(self.revocable()).arg(self.rules.len());
        let draft = self.rules.iter().enumerate().fold(draft, |draft, (index, bill)| {
            let (rule, here) =
                (bill.limit().rule(), || self.rates.iter().filter(move |rate| rate.rule == index));
            // A rate without a log here is not reached, as far as this part can tell.
            let expression =
                script::postfix(rule.expression(), &|rate| here().position(|at| at.rate == rate));
            here().fold(draft.arg(expression).arg(here().count()), |draft, at| {
                let rate = &rule.rates()[at.rate];
                draft.arg(at.log + 1).arg(rate.count()).pair(rate.span().get())
            })
        });
        self.logs.iter().fold(draft, |draft, LogLine { retention, .. }| {
            draft.arg(retention.keep()).pair(retention.span().get())
        })
    }

    /// Parses the reply to the call.
    pub(super) fn read(&self, reply: Value, now: Option<Timestamp>) -> Result<Read<'a>, StoreError> {
        let (reached_until, entered) = (Vec::new(), Vec::new());
        if reply == Value::Nil && self.plain().is_some() {
            let now = now.unwrap_or_default();
            return Ok(Read { now, denied: false, seen: Vec::new(), reached_until, entered });
        }
        let mut answer = ScriptReply::new(reply)?;
        if self.quick().is_some() {
            // In the form of `TIME`, unless the caller gave it.
            let now = now.unwrap_or(answer.moment(1_000_000)?);
            let seen = vec![FoundBucket::read(self.lines[0].algorithm, answer.value(), now)?];
            return Ok(Read { now, denied: answer.value() != Value::Nil, seen, reached_until, entered });
        }
        let now = answer.now()?;
        let denied = answer.number()? != 0;
        let seen = self.lines.iter().map(|line| FoundBucket::read(line.algorithm, answer.value(), now));
        let seen = seen.collect::<Result<_, _>>()?;
        let mut moments = |count: usize| {
            let moment = |value| match value {
                Value::Nil => Ok(None),
                value => number(&value).map(|nanos| Some(Timestamp::from_nanos(nanos))),
            };
            (0..count).map(|_| moment(answer.value())).collect::<Result<Vec<_>, _>>()
        };
        let reached_until = moments(self.rates.len())?.into_iter().flatten().collect();
        let entered = moments(self.logs.len())?;
        Ok(Read { now, denied, seen, reached_until, entered })
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().map(|line| &*line.key).chain(self.logs.iter().map(|log| &*log.key))
    }

    const fn revocable(&self) -> &'static str {
        if self.revocable { "1" } else { "" }
    }

    /// Returns the numbers of the quickest script, if it can decide this part: the time in which the cost refills, the
    /// time in which an empty bucket does, and the limit.
    fn quick(&self) -> Option<(u64, u64, &'a TokenBucket)> {
        let (Mode::Whole | Mode::Part | Mode::Each, [line], None, []) =
            (self.mode, &*self.lines, self.expression, self.rules)
        else {
            return None;
        };
        let (ChargeKind::Spend, cost @ 1..) = (line.charge.kind(), line.charge.cost()) else { return None };
        match line.algorithm {
            Algorithm::TokenBucket(limit) if limit.fill_time() < script::EXACT => {
                let increment = limit.emission_interval().saturating_mul(cost).min(script::EXACT);
                Some((increment.get(), limit.fill_time().get(), limit))
            }
            _ => None,
        }
    }

    /// Returns the rate of a bill that is one rule with a single rate, if the quickest script can count it.
    fn plain(&self) -> Option<&'a Rate> {
        let (Mode::Whole, [], [rule], [_]) = (self.mode, &*self.lines, self.rules, &*self.logs) else {
            return None;
        };
        let rule = rule.limit().rule();
        let ([rate], Expression::Charge(_)) = (rule.rates(), rule.expression()) else { return None };
        (rate.count() > 0 && rate.span() < script::EXACT).then_some(rate)
    }
}

const BILLION: u64 = 1_000_000_000;

//! The charges of a bill that are in one slot, which one call decides.

use redis::Value;
use tollway_core::algorithm::TokenBucket;
use tollway_core::{Algorithm, Bill, Charge, ChargeKind, Expression, Timestamp};

use super::StoreError;
use super::call::Call;
use super::key::{Namespace, slot};
use super::reply::ScriptReply;
use super::script::{self, CallBuilder};
use super::seen::FoundBucket;

/// The way in which a script settles charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Decides, and changes nothing.
    Check,
    /// Takes all or nothing.
    Whole,
    /// Takes each charge, or not, as if it were alone.
    Each,
}

/// Charges of a bill that are all in one slot.
pub(super) struct Part<'a> {
    pub(super) mode: Mode,
    /// The charges, at least one.
    pub(super) lines: Vec<Line<'a>>,
    /// The expression that says which denials deny the part; `None` is any.
    expression: Option<&'a Expression>,
}

/// One charge that a limit applies to.
pub(super) struct Line<'a> {
    /// The index of the charge in the bill.
    pub(super) place: usize,
    pub(super) charge: &'a Charge<'a>,
    pub(super) algorithm: &'a Algorithm,
    pub(super) key: Vec<u8>,
}

/// The buckets that a call has read, and its decision.
pub(super) struct Read<'a> {
    pub(super) now: Timestamp,
    /// True if this part is denied, as a bill of its own.
    pub(super) denied: bool,
    /// The bucket that was found for each line.
    pub(super) seen: Vec<FoundBucket<'a>>,
}

impl<'a> Part<'a> {
    /// Splits the charges of a bill by slot, in a Cluster. Charges of unlimited ids are in no part.
    pub(super) fn of(bill: &Bill<'a>, namespace: &Namespace, by_slot: bool, mode: Mode) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::with_capacity(1);
        for (place, charge) in bill.charges().iter().enumerate() {
            let Some(algorithm) = charge.algorithm() else { continue };
            let line = Line { place, charge, algorithm, key: namespace.of_id(charge.limit(), charge.id()) };
            let near = |part: &&mut Self| !by_slot || slot(&part.lines[0].key) == slot(&line.key);
            match parts.iter_mut().find(near) {
                Some(part) => part.lines.push(line),
                None => parts.push(Self { mode, lines: vec![line], expression: None }),
            }
        }
        match (&mut *parts, bill.expression()) {
            ([whole], expression) => whole.expression = expression,
            // No part can tell by itself whether the bill is denied.
            (several, Some(_)) if mode == Mode::Whole => {
                several.iter_mut().for_each(|part| part.mode = Mode::Each);
            }
            _ => {}
        }
        parts
    }

    /// Returns the call that decides the part.
    pub(super) fn call(&self, now: Option<Timestamp>) -> Call {
        if let Some((increment, fill, limit)) = self.quick() {
            let draft = CallBuilder::new(&script::SPEND, &[&self.lines[0].key]);
            let draft = draft.arg(increment).arg(fill).unit(limit);
            return match now {
                Some(now) => draft.pair(now.as_nanos()).finish(),
                None => draft.finish(),
            };
        }
        let keys: Vec<&[u8]> = self.lines.iter().map(|line| &*line.key).collect();
        let mode = match self.mode {
            Mode::Check => "check",
            Mode::Whole => "whole",
            Mode::Each => "each",
        };
        // An unlimited charge has no index, and is no reason to deny.
        let place = |place| self.lines.iter().position(|line| line.place == place);
        let expression =
            self.expression.map(|refusals| script::postfix(refusals, &place)).unwrap_or_default();
        let script = script::settle(self.lines.iter().map(|line| line.algorithm));
        let draft = CallBuilder::new(script, &keys).now(now).arg(mode).arg(expression);
        let draft = self.lines.iter().fold(draft, |draft, line| {
            let kind = match line.charge.kind() {
                ChargeKind::Spend => "s",
                ChargeKind::SpendOnly => "o",
                ChargeKind::CheckOnly => "c",
            };
            draft.algorithm(line.algorithm).arg(kind).numbers(line.algorithm, line.charge.cost())
        });
        draft.finish()
    }

    /// Parses the reply to the call.
    pub(super) fn read(&self, reply: Value, now: Option<Timestamp>) -> Result<Read<'a>, StoreError> {
        let mut answer = ScriptReply::new(reply)?;
        if self.quick().is_some() {
            // In the form of `TIME`, unless the caller gave it.
            let now = now.unwrap_or(answer.moment(1_000_000)?);
            let seen = vec![FoundBucket::read(self.lines[0].algorithm, answer.value(), now)?];
            return Ok(Read { now, denied: answer.value() != Value::Nil, seen });
        }
        let now = answer.now()?;
        let denied = answer.number()? != 0;
        let seen = self.lines.iter().map(|line| FoundBucket::read(line.algorithm, answer.value(), now));
        Ok(Read { now, denied, seen: seen.collect::<Result<_, _>>()? })
    }

    /// Returns the numbers of the quickest script, if it can decide this part: the time in which the cost refills, the
    /// time in which an empty bucket does, and the limit.
    fn quick(&self) -> Option<(u64, u64, &'a TokenBucket)> {
        let (Mode::Whole | Mode::Each, [line], None) = (self.mode, &*self.lines, self.expression) else {
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
}

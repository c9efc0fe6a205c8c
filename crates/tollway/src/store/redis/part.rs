//! The charges of a bill that are in one slot: one call decides them.

use redis::Value;
use tollway_core::{Algorithm, Bill, Charge, ChargeKind, Expression, Timestamp};

use super::StoreError;
use super::call::Call;
use super::key::{Namespace, slot};
use super::reply::Answer;
use super::script::{self, Draft};
use super::seen::Seen;

/// What is to be done with charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Decide, and remember nothing.
    Check,
    /// Take all or nothing.
    Whole,
    /// Take each, or not, as if it were alone.
    Each,
    /// Take whatever fits.
    Rest,
}

/// Some charges of a bill, all in one slot.
pub(super) struct Part<'a> {
    pub(super) mode: Mode,
    /// Never empty.
    pub(super) lines: Vec<Line<'a>>,
    /// Which refusals refuse it; `None` is any.
    expression: Option<&'a Expression>,
}

/// One charge that something holds for.
#[derive(Clone)]
pub(super) struct Line<'a> {
    /// Its place in the bill.
    pub(super) place: usize,
    pub(super) charge: &'a Charge<'a>,
    pub(super) algorithm: &'a Algorithm,
    pub(super) key: Vec<u8>,
}

/// What a call found out.
pub(super) struct Read<'a> {
    pub(super) now: Timestamp,
    /// Is this part denied, as a bill of its own?
    pub(super) denied: bool,
    /// The bucket of each line.
    pub(super) seen: Vec<Seen<'a>>,
}

impl<'a> Part<'a> {
    /// The charges of a bill, by slot where slots matter. Charges that nothing holds for are in no part.
    pub(super) fn of(bill: &Bill<'a>, namespace: &Namespace, by_slot: bool, mode: Mode) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::with_capacity(1);
        for (place, charge) in bill.charges().iter().enumerate() {
            let Some(algorithm) = charge.algorithm() else { continue };
            let line = Line { place, charge, algorithm, key: namespace.of_id(charge.limit(), charge.id()) };
            let near = |part: &&mut Self| !by_slot || slot(&part.lines[0].key) == slot(&line.key);
            match parts.iter_mut().find(near) {
                Some(part) => part.lines.push(line),
                None => parts.push(Self::new(mode, vec![line])),
            }
        }
        match (&mut *parts, bill.expression()) {
            ([whole], expression) => whole.expression = expression,
            // No part can tell by itself what the bill comes to.
            (several, Some(_)) if mode == Mode::Whole => {
                several.iter_mut().for_each(|part| part.mode = Mode::Each);
            }
            _ => {}
        }
        parts
    }

    pub(super) fn new(mode: Mode, lines: Vec<Line<'a>>) -> Self {
        Self { mode, lines, expression: None }
    }

    /// The call that decides it.
    pub(super) fn call(&self, now: Option<Timestamp>) -> Call {
        if let Some((increment, fill)) = self.quick() {
            let draft = Draft::new(&script::SPEND, &[&self.lines[0].key]).arg(increment).arg(fill);
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
            Mode::Rest => "rest",
        };
        // What nothing holds for has no place, and is no reason to deny.
        let place = |place| self.lines.iter().position(|line| line.place == place);
        let expression = self.expression.map(|refusals| script::spell(refusals, &place)).unwrap_or_default();
        let script = script::settle(self.lines.iter().map(|line| line.algorithm));
        let draft = Draft::new(script, &keys).now(now).arg(mode).arg(expression);
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

    /// What the call has answered.
    pub(super) fn read(&self, reply: Value, now: Option<Timestamp>) -> Result<Read<'a>, StoreError> {
        let mut answer = Answer::new(reply)?;
        if self.quick().is_some() {
            // As `TIME` has it, unless it is the caller's.
            let time = answer.moment(1_000_000)?;
            let seen = vec![Seen::read(self.lines[0].algorithm, answer.value())?];
            return Ok(Read { now: now.unwrap_or(time), denied: answer.value() != Value::Nil, seen });
        }
        let now = answer.now()?;
        let denied = answer.number()? != 0;
        let seen = self.lines.iter().map(|line| Seen::read(line.algorithm, answer.value()));
        Ok(Read { now, denied, seen: seen.collect::<Result<_, _>>()? })
    }

    /// The numbers of the quickest script, if it can decide this: how long the cost takes to come, and how long a full
    /// bucket does.
    fn quick(&self) -> Option<(u64, u64)> {
        let (Mode::Whole | Mode::Each, [line], None) = (self.mode, &*self.lines, self.expression) else {
            return None;
        };
        let (ChargeKind::Spend, cost @ 1..) = (line.charge.kind(), line.charge.cost()) else { return None };
        match line.algorithm {
            Algorithm::TokenBucket(limit) if limit.fill_time() < script::EXACT => {
                let increment = limit.emission_interval().saturating_mul(cost).min(script::EXACT);
                Some((increment.get(), limit.fill_time().get()))
            }
            _ => None,
        }
    }
}

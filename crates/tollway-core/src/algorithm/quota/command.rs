//! What the Throttr protocol does to a quota: set, read and change the two numbers directly.

use super::QuotaState;
use crate::time::{Nanos, Timestamp};

/// What Throttr does to a quota. One that has expired is no different from one that never was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaOperation {
    /// Starts a quota.
    Insert {
        /// What it begins with.
        left: u64,
        /// How long it lives.
        lifetime: QuotaTtl,
        /// Does it start over where one is alive? Otherwise it fails there.
        over_live: bool,
    },
    /// Reads it.
    Query,
    /// Changes what is left.
    ChangeLeft {
        /// How.
        change: Change,
        /// By how much, or to what.
        value: u64,
    },
    /// Changes how long it lives.
    ChangeLifetime {
        /// How.
        change: Change,
        /// By how much, or to what, in the quota's own unit.
        value: u64,
    },
    /// Ends it.
    Purge,
}

/// An operation, and the quota it is meant for.
#[derive(Clone, Copy, Debug)]
pub struct QuotaCommand<'a> {
    /// Stands for consumer and resource, and for no other two.
    pub pair: &'a [u8],
    /// What to do.
    pub operation: QuotaOperation,
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum QuotaOutcome {
    /// It was done.
    Done,
    /// It could not be done: there was none, or there was one already.
    Failed,
    /// What a query read.
    Found {
        /// What is left.
        left: u64,
        /// How long it still lives, in its own unit.
        lifetime: QuotaTtl,
    },
}

/// The unit a lifetime was given in, kept as the byte that said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TtlUnit(pub u8);

impl TtlUnit {
    /// Whatever is not nanoseconds (0) or milliseconds (1) counts as seconds.
    const fn nanos(self) -> u64 {
        match self.0 {
            0 => 1,
            1 => 1_000_000,
            _ => 1_000_000_000,
        }
    }
}

/// A span in the unit its owner uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaTtl {
    /// How many of the unit.
    pub value: u64,
    /// Which unit.
    pub unit: TtlUnit,
}

impl QuotaTtl {
    /// The span itself.
    pub const fn nanos(self) -> Nanos {
        Nanos::new(self.value.saturating_mul(self.unit.nanos()))
    }
}

/// How an update changes a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes it the value.
    Patch,
    /// Adds the value, up to the most there is.
    Increase,
    /// Takes the value away, down to zero.
    Decrease,
}

impl QuotaState {
    /// Does what Throttr asks for. An expired quota answers as one that never was.
    #[inline]
    pub fn apply(&mut self, operation: QuotaOperation, now: Timestamp) -> QuotaOutcome {
        let live = self.is_live(now);
        match operation {
            QuotaOperation::Insert { left, lifetime, over_live } if over_live || !live => {
                *self = Self { counter: left, expires_at: now + lifetime.nanos(), unit: lifetime.unit };
                QuotaOutcome::Done
            }
            QuotaOperation::Insert { .. } => QuotaOutcome::Failed,
            _ if !live => QuotaOutcome::Failed,
            QuotaOperation::Query => {
                let value = self.expires_at.since(now).get() / self.unit.nanos();
                QuotaOutcome::Found { left: self.counter, lifetime: QuotaTtl { value, unit: self.unit } }
            }
            QuotaOperation::ChangeLeft { change, value } => {
                self.counter = match change {
                    Change::Patch => value,
                    Change::Increase => self.counter.saturating_add(value),
                    Change::Decrease => self.counter.saturating_sub(value),
                };
                QuotaOutcome::Done
            }
            QuotaOperation::ChangeLifetime { change, value } => {
                let span = QuotaTtl { value, unit: self.unit }.nanos();
                self.expires_at = match change {
                    Change::Patch => now + span,
                    Change::Increase => self.expires_at + span,
                    Change::Decrease => self.expires_at - span,
                };
                QuotaOutcome::Done
            }
            QuotaOperation::Purge => {
                *self = Self::default();
                QuotaOutcome::Done
            }
        }
    }
}

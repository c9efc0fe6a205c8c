//! Operations of the Throttr protocol, which set, read and change the two numbers of a quota directly.

use super::QuotaState;
use crate::time::{Nanos, Timestamp};

/// One operation that a Throttr client runs on a quota. An expired quota is treated like one that never existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaOperation {
    /// Starts a quota.
    Insert {
        /// The units that it starts with.
        left: u64,
        /// The time until it expires.
        lifetime: QuotaTtl,
        /// True if it replaces a quota that has not expired; otherwise the operation fails there.
        over_live: bool,
    },
    /// Reads it.
    Query,
    /// Changes what is left.
    ChangeLeft {
        /// Selects if the value is set, added or subtracted.
        change: Change,
        /// By how much, or to what.
        value: u64,
    },
    /// Changes how long it lives.
    ChangeLifetime {
        /// Selects if the value is set, added or subtracted.
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
    /// The operation to run.
    pub operation: QuotaOperation,
    /// The longest lifetime that the operation can give: a longer one is cut to it.
    pub ttl_max: Nanos,
}

/// The result that an operation returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum QuotaOutcome {
    /// It was done.
    Done,
    /// The operation failed: the quota did not exist, or it existed already.
    Failed,
    /// The quota that a query found.
    Found {
        /// The units that are left.
        left: u64,
        /// The time that remains until it expires, in its own unit.
        lifetime: QuotaTtl,
    },
}

/// The unit a lifetime was given in, kept as the byte that said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TtlUnit(pub u8);

impl TtlUnit {
    /// Returns the nanoseconds of one unit. Every byte other than nanoseconds (0) and milliseconds (1) counts as
    /// seconds.
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
    /// The number of units that it lasts.
    pub value: u64,
    /// The unit that the number is in.
    pub unit: TtlUnit,
}

impl QuotaTtl {
    /// Returns the time in nanoseconds.
    pub const fn nanos(self) -> Nanos {
        Nanos::new(self.value.saturating_mul(self.unit.nanos()))
    }
}

/// Selects how an update changes a number.
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
    /// Runs one operation, which makes the quota live for at most `ttl_max` from now. An expired quota is treated like
    /// one that never existed.
    #[inline]
    pub fn apply(&mut self, operation: QuotaOperation, ttl_max: Nanos, now: Timestamp) -> QuotaOutcome {
        let latest = now + ttl_max;
        let live = self.is_live(now);
        match operation {
            QuotaOperation::Insert { left, lifetime, over_live } if over_live || !live => {
                *self = Self {
                    counter: left,
                    expires_at: latest.min(now + lifetime.nanos()),
                    unit: lifetime.unit,
                };
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
                    Change::Patch => latest.min(now + span),
                    Change::Increase => latest.min(self.expires_at + span),
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

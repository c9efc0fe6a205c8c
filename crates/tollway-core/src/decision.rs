//! What is answered: allow or deny, and what the caller may want to know about it.

use std::cmp::Ordering;

use crate::time::Nanos;

/// The answer to one charge, or to one whole bill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Allowed or not, and on what ground.
    pub verdict: Verdict,
    /// Whole units still in the bucket after this request.
    pub remaining: u64,
    /// How long until the same request would be allowed (again), if nobody else came.
    pub retry_after: Nanos,
    /// How long until the bucket is as though nobody had ever come.
    pub reset_after: Nanos,
    /// Which charge of the bill decided, counted from 0.
    pub charge: usize,
    /// Did the store give no answer, so that this is what the limit says to do then?
    pub degraded: bool,
}

impl Decision {
    /// The answer where no limit applies.
    pub const UNLIMITED: Self = Self {
        verdict: Verdict::Unlimited,
        remaining: u64::MAX,
        retry_after: Nanos::ZERO,
        reset_after: Nanos::ZERO,
        charge: 0,
        degraded: false,
    };

    /// May the request pass?
    pub const fn allowed(&self) -> bool {
        self.verdict.allowed()
    }

    /// The same decision as the answer to charge `index` of its bill.
    pub(crate) const fn of_charge(mut self, index: usize) -> Self {
        self.charge = index;
        self
    }

    /// Orders by strictness, the strictest greatest: denied before allowed, then the longer wait, then the fewer left.
    pub fn cmp_strictness(&self, other: &Self) -> Ordering {
        other
            .allowed()
            .cmp(&self.allowed())
            .then(self.retry_after.cmp(&other.retry_after))
            .then(other.remaining.cmp(&self.remaining))
    }
}

/// Allowed or denied, and on what ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It fits.
    Allow,
    /// It does not fit now.
    Deny,
    /// The limit says nothing about this id.
    Unlimited,
    /// There was no room to remember a new id, and its limit says to allow then.
    AllowFull,
    /// There was no room to remember a new id, and its limit says to deny then.
    DenyFull,
    /// The store gave no answer, and the limit says to allow then.
    AllowAway,
    /// The store gave no answer, and the limit says to deny then. Nobody is over a limit.
    DenyAway,
}

impl Verdict {
    /// May the request pass?
    pub const fn allowed(self) -> bool {
        match self {
            Self::Allow | Self::Unlimited | Self::AllowFull | Self::AllowAway => true,
            Self::Deny | Self::DenyFull | Self::DenyAway => false,
        }
    }
}

/// What giving back came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund {
    /// False if there was nothing to give back.
    pub refunded: bool,
    /// Whole units in the bucket now.
    pub remaining: u64,
    /// How long until the bucket is as though nobody had ever come.
    pub reset_after: Nanos,
}

impl Refund {
    /// What giving back comes to where no limit applies.
    pub const UNLIMITED: Self = Self { refunded: false, remaining: u64::MAX, reset_after: Nanos::ZERO };

    /// What several refunds of one bill came to: something if any did, and no more left than the least of them.
    pub fn and(self, other: Self) -> Self {
        Self {
            refunded: self.refunded || other.refunded,
            remaining: self.remaining.min(other.remaining),
            reset_after: self.reset_after.max(other.reset_after),
        }
    }
}

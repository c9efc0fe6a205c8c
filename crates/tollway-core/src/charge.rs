//! One bucket and one cost.

mod request;

use std::borrow::Cow;

use thiserror::Error;

use crate::algorithm::Algorithm;
use crate::id::IdError;
use crate::limit::Limit;

pub use request::ChargeRequest;

/// What one request would take from one bucket. Made by [`Policy::charge`](crate::Policy::charge), so it is valid.
#[derive(Clone, Debug)]
pub struct Charge<'a> {
    limit: &'a Limit,
    id: Cow<'a, [u8]>,
    algorithm: Option<&'a Algorithm>,
    cost: u64,
    kind: ChargeKind,
}

/// What part a charge has in its bill.
// A whole word: a single byte beside seven of padding is moved in pieces, which stalls the processor on every charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum ChargeKind {
    /// Takes its cost, and can deny.
    #[default]
    Spend,
    /// Takes what fits, and never affects the answer.
    SpendOnly,
    /// Can deny, and never takes.
    CheckOnly,
}

/// Why a charge cannot be made. None of these is a denial: the caller asked for what makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChargeError {
    /// No limit has this name.
    #[error("there is no limit `{name}`")]
    UnknownLimit {
        /// What was asked for.
        name: String,
    },
    /// Not an id of this limit.
    #[error("limit `{limit}`: {source}")]
    Id {
        /// Which limit.
        limit: String,
        /// What is wrong with the id.
        source: IdError,
    },
    /// More than a bucket never used could give: no waiting would help.
    #[error("limit `{limit}`: cost {cost} is above {cost_max}, the most one request can take")]
    CostTooHigh {
        /// Which limit.
        limit: String,
        /// What was asked for.
        cost: u64,
        /// What can be asked for.
        cost_max: u64,
    },
    /// A smoothed rate cannot be given back to.
    #[error("limit `{limit}`: {algorithm} has nothing that could be given back")]
    NoRefund {
        /// Which limit.
        limit: String,
        /// Its algorithm.
        algorithm: &'static str,
    },
}

impl<'a> Charge<'a> {
    /// A charge against `limit`. Refuses ids and costs that could never pass.
    #[inline]
    pub fn new(limit: &'a Limit, id: &'a [u8], cost: u64) -> Result<Self, ChargeError> {
        let id = limit
            .ids()
            .canonical(id)
            .map_err(|source| ChargeError::Id { limit: limit.name().to_owned(), source })?;
        let algorithm = limit.algorithm_for(&id);
        if let Some(algorithm) = algorithm
            && cost > algorithm.cost_max()
        {
            let (limit, cost_max) = (limit.name().to_owned(), algorithm.cost_max());
            return Err(ChargeError::CostTooHigh { limit, cost, cost_max });
        }
        Ok(Self { limit, id, algorithm, cost, kind: ChargeKind::Spend })
    }

    /// The same charge with another part in its bill.
    pub fn with_kind(mut self, kind: ChargeKind) -> Self {
        self.kind = kind;
        self
    }

    /// The same charge held to something else: to a share of its limit, or to nothing.
    pub fn held_to<'b>(&'b self, algorithm: Option<&'b Algorithm>) -> Charge<'b> {
        Charge { limit: self.limit, id: Cow::Borrowed(&self.id), algorithm, cost: self.cost, kind: self.kind }
    }

    /// Passes a charge that can be given back.
    pub fn refundable(self) -> Result<Self, ChargeError> {
        match self.algorithm {
            Some(algorithm) if !algorithm.refunds() => {
                let (limit, algorithm) = (self.limit.name().to_owned(), algorithm.name());
                Err(ChargeError::NoRefund { limit, algorithm })
            }
            _ => Ok(self),
        }
    }

    /// The limit it is made under.
    pub const fn limit(&self) -> &'a Limit {
        self.limit
    }

    /// The id in its canonical spelling.
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// What holds for this id; `None` is no limit at all.
    pub const fn algorithm(&self) -> Option<&'a Algorithm> {
        self.algorithm
    }

    /// How much it would take.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Its part in the bill.
    pub const fn kind(&self) -> ChargeKind {
        self.kind
    }

    /// Would this charge touch the same bucket as `other`?
    pub fn same_bucket(&self, other: &Self) -> bool {
        self.limit.fingerprint() == other.limit.fingerprint() && self.id == other.id
    }
}

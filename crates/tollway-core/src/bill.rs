//! All the charges of one request, and which denials deny it.
//!
//! A bill is settled as a whole. Denied, it takes nothing anywhere: a request denied by its own limit must not
//! drain the one it shares with others.

use thiserror::Error;

use crate::charge::{Charge, ChargeKind};
use crate::decision::{Decision, Verdict};
use crate::time::Nanos;

/// The most charges one bill may have: locks are held and answers compared for all of them at once.
pub const CHARGES_MAX: usize = 32;

/// Several charges that stand or fall together.
#[derive(Clone, Copy, Debug)]
pub struct Bill<'a> {
    charges: &'a [Charge<'a>],
    expression: Option<&'a Expression>,
}

/// An expression that says which denied charges deny a bill, as in rules: `Or` denies if any part does, `And` if all
/// do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Denies if this charge of the bill is denied; they are counted from 0.
    Charge(usize),
    /// Denies if any part does; without parts, never.
    Or(Vec<Expression>),
    /// Denies if all parts do; without parts, always.
    And(Vec<Expression>),
}

/// An error for charges that make no bill.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BillError {
    /// The bill has no charge.
    #[error("a bill needs at least one charge")]
    Empty,
    /// More charges than [`CHARGES_MAX`].
    #[error("a bill can have at most {CHARGES_MAX} charges, and this one has {charges}")]
    TooLong {
        /// The number of charges that were given.
        charges: usize,
    },
    /// One bucket charged twice, where the second would not see the first.
    #[error("bucket \"{bucket}\" is charged twice in one bill; charge it once with the whole cost")]
    SameBucketTwice {
        /// Its readable key.
        bucket: String,
    },
    /// An expression about a charge the bill does not have.
    #[error("the expression names charge {index}, but the bill has only {charges}")]
    NoSuchCharge {
        /// The index that the expression names.
        index: usize,
        /// The number of charges that the bill has.
        charges: usize,
    },
}

impl<'a> Bill<'a> {
    /// Makes a bill that any denied charge denies.
    pub fn new(charges: &'a [Charge<'a>]) -> Result<Self, BillError> {
        match charges.len() {
            0 => return Err(BillError::Empty),
            1..=CHARGES_MAX => {}
            too_many => return Err(BillError::TooLong { charges: too_many }),
        }
        for (index, charge) in charges.iter().enumerate() {
            if charges[..index].iter().any(|earlier| earlier.same_bucket(charge)) {
                let bucket = charge.limit().bucket_key(charge.id()).to_string();
                return Err(BillError::SameBucketTwice { bucket });
            }
        }
        Ok(Self { charges, expression: None })
    }

    /// Makes a bill that has one charge.
    pub fn one(charge: &'a Charge<'a>) -> Self {
        Self { charges: std::slice::from_ref(charge), expression: None }
    }

    /// Returns a bill of the same charges that `expression` denies.
    pub fn denied_by(self, expression: &'a Expression) -> Result<Self, BillError> {
        match expression.charge_out_of(self.charges.len()) {
            Some(index) => Err(BillError::NoSuchCharge { index, charges: self.charges.len() }),
            None => Ok(Self { expression: Some(expression), ..self }),
        }
    }

    /// Returns the same bill with as many other charges in place of its own.
    pub fn with_charges<'b>(&'b self, charges: &'b [Charge<'b>]) -> Bill<'b> {
        debug_assert_eq!(charges.len(), self.charges.len(), "the expression counts them");
        Bill { charges, expression: self.expression }
    }

    /// Returns the charges of the bill.
    pub const fn charges(&self) -> &'a [Charge<'a>] {
        self.charges
    }

    /// Returns the expression that denies it; `None` means that any denied charge does.
    pub const fn expression(&self) -> Option<&'a Expression> {
        self.expression
    }

    /// Returns the only charge of a bill that has nothing else: the charge decides for the bill.
    #[inline]
    pub fn single(&self) -> Option<&'a Charge<'a>> {
        match self.charges {
            [charge] if charge.kind() == ChargeKind::Spend && self.expression.is_none() => Some(charge),
            _ => None,
        }
    }

    /// Makes the decision about the whole bill from the decisions about its charges.
    pub fn answer(&self, decisions: &[Decision]) -> Decision {
        let votes = |index: usize| self.charges[index].kind() != ChargeKind::SpendOnly;
        let strictest = match self.expression {
            Some(expression) => expression.answer(decisions, &votes),
            None => any_denies((0..self.charges.len()).filter_map(|index| vote(decisions, index, &votes))),
        };
        strictest.unwrap_or_else(|| never_denied(decisions[0]))
    }
}

impl Expression {
    /// Returns true if it denies a bill in which these charges are denied.
    pub fn denies(&self, is_denied: &impl Fn(usize) -> bool) -> bool {
        match self {
            Self::Charge(index) => is_denied(*index),
            Self::Or(parts) => parts.iter().any(|part| part.denies(is_denied)),
            Self::And(parts) => parts.iter().all(|part| part.denies(is_denied)),
        }
    }

    fn charge_out_of(&self, charges: usize) -> Option<usize> {
        match self {
            Self::Charge(index) => Some(*index).filter(|index| *index >= charges),
            Self::Or(parts) | Self::And(parts) => parts.iter().find_map(|part| part.charge_out_of(charges)),
        }
    }

    /// `None` where no charge with a vote has a say: that never denies.
    fn answer(&self, decisions: &[Decision], votes: &impl Fn(usize) -> bool) -> Option<Decision> {
        match self {
            Self::Charge(index) => vote(decisions, *index, votes),
            Self::Or(parts) => any_denies(parts.iter().filter_map(|part| part.answer(decisions, votes))),
            Self::And(parts) if parts.is_empty() => Some(NEVER),
            Self::And(parts) => {
                let answers = parts.iter().map(|part| part.answer(decisions, votes));
                let answers = answers.collect::<Option<Vec<_>>>()?;
                answers.into_iter().min_by(Decision::cmp_strictness)
            }
        }
    }
}

/// `And()` denies whatever comes, whenever it comes.
const NEVER: Decision = Decision::new(Verdict::Deny, 0, Nanos::FOREVER, Nanos::ZERO);

fn vote(decisions: &[Decision], index: usize, votes: &impl Fn(usize) -> bool) -> Option<Decision> {
    votes(index).then(|| decisions[index].with_charge(index))
}

/// Nothing had a vote, so nothing could deny, now or later: says what the first charge leaves.
fn never_denied(first: Decision) -> Decision {
    let verdict = if first.allowed() { first.verdict } else { Verdict::Allow };
    Decision { verdict, retry_nanos: Nanos::ZERO, ..first }
}

/// Returns the strictest answer, and the first one of equals.
fn any_denies(answers: impl Iterator<Item = Decision>) -> Option<Decision> {
    answers.reduce(|strictest, next| if next.cmp_strictness(&strictest).is_gt() { next } else { strictest })
}

//! All the charges of one request, and which refusals refuse it.
//!
//! A bill is settled as a whole. Denied, it takes nothing anywhere: a request refused by its own limit must not
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

/// Which refusals refuse a bill. As the rules have it: `Or` refuses if any part does, `And` if all do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Refuses if this charge of the bill is refused; they are counted from 0.
    Charge(usize),
    /// Refuses if any part does; without parts, never.
    Or(Vec<Expression>),
    /// Refuses if all parts do; without parts, always.
    And(Vec<Expression>),
}

/// Why charges make no bill.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BillError {
    /// Nothing to decide.
    #[error("a bill needs at least one charge")]
    Empty,
    /// More charges than [`CHARGES_MAX`].
    #[error("a bill has at most {CHARGES_MAX} charges, not {charges}")]
    TooLong {
        /// How many there were.
        charges: usize,
    },
    /// One bucket charged twice, where the second would not see the first.
    #[error("`{bucket}` is charged twice in one bill; charge it once with the whole cost")]
    SameBucketTwice {
        /// Its readable key.
        bucket: String,
    },
    /// An expression about a charge the bill does not have.
    #[error("the expression names charge {index}, but the bill has {charges}")]
    NoSuchCharge {
        /// What it names.
        index: usize,
        /// How many there are.
        charges: usize,
    },
}

impl<'a> Bill<'a> {
    /// A bill that any refused charge refuses.
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

    /// A bill of one charge.
    pub fn one(charge: &'a Charge<'a>) -> Self {
        Self { charges: std::slice::from_ref(charge), expression: None }
    }

    /// The same charges, refused as `expression` says.
    pub fn refused_by(self, expression: &'a Expression) -> Result<Self, BillError> {
        match expression.charge_out_of(self.charges.len()) {
            Some(index) => Err(BillError::NoSuchCharge { index, charges: self.charges.len() }),
            None => Ok(Self { expression: Some(expression), ..self }),
        }
    }

    /// The same bill with other charges in the place of its own, as many.
    pub fn with_charges<'b>(&'b self, charges: &'b [Charge<'b>]) -> Bill<'b> {
        debug_assert_eq!(charges.len(), self.charges.len(), "the expression counts them");
        Bill { charges, expression: self.expression }
    }

    /// What it would take, and where.
    pub const fn charges(&self) -> &'a [Charge<'a>] {
        self.charges
    }

    /// Which refusals refuse it; `None` is any.
    pub const fn expression(&self) -> Option<&'a Expression> {
        self.expression
    }

    /// The one charge, if that is all there is to the bill: it takes its cost or is refused, and so is the bill.
    #[inline]
    pub fn single(&self) -> Option<&'a Charge<'a>> {
        match self.charges {
            [charge] if charge.kind() == ChargeKind::Spend && self.expression.is_none() => Some(charge),
            _ => None,
        }
    }

    /// The one answer to the whole bill, from the answers to its charges.
    pub fn answer(&self, decisions: &[Decision]) -> Decision {
        let votes = |index: usize| self.charges[index].kind() != ChargeKind::SpendOnly;
        let strictest = match self.expression {
            Some(expression) => expression.answer(decisions, &votes),
            None => any_refuses((0..self.charges.len()).filter_map(|index| vote(decisions, index, &votes))),
        };
        strictest.unwrap_or_else(|| never_refused(decisions[0]))
    }
}

impl Expression {
    fn charge_out_of(&self, charges: usize) -> Option<usize> {
        match self {
            Self::Charge(index) => Some(*index).filter(|index| *index >= charges),
            Self::Or(parts) | Self::And(parts) => parts.iter().find_map(|part| part.charge_out_of(charges)),
        }
    }

    /// `None` where no charge with a vote has a say: that never refuses.
    fn answer(&self, decisions: &[Decision], votes: &impl Fn(usize) -> bool) -> Option<Decision> {
        match self {
            Self::Charge(index) => vote(decisions, *index, votes),
            Self::Or(parts) => any_refuses(parts.iter().filter_map(|part| part.answer(decisions, votes))),
            Self::And(parts) if parts.is_empty() => Some(NEVER),
            Self::And(parts) => {
                let answers = parts.iter().map(|part| part.answer(decisions, votes));
                let answers = answers.collect::<Option<Vec<_>>>()?;
                answers.into_iter().min_by(Decision::cmp_strictness)
            }
        }
    }
}

/// `And()` refuses whatever comes, whenever it comes.
const NEVER: Decision = Decision::new(Verdict::Deny, 0, Nanos::FOREVER, Nanos::ZERO);

fn vote(decisions: &[Decision], index: usize, votes: &impl Fn(usize) -> bool) -> Option<Decision> {
    votes(index).then(|| decisions[index].with_charge(index))
}

/// Nothing had a vote, so nothing could refuse, now or later: says what the first charge leaves.
fn never_refused(first: Decision) -> Decision {
    let verdict = if first.allowed() { first.verdict } else { Verdict::Allow };
    Decision { verdict, retry_nanos: Nanos::ZERO, ..first }
}

/// The strictest, and of equals the first.
fn any_refuses(answers: impl Iterator<Item = Decision>) -> Option<Decision> {
    answers.reduce(|strictest, next| if next.cmp_strictness(&strictest).is_gt() { next } else { strictest })
}

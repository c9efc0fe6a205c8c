//! All the charges of one request and the rules that it asks, and which denials deny it.
//!
//! A bill is settled as a whole. Denied, it takes nothing anywhere: a request denied by its own limit must not
//! drain the one it shares with others, nor be entered in the log of a rule.

use thiserror::Error;

use crate::charge::{Charge, ChargeKind};
use crate::decision::{Decision, Verdict};
use crate::rule::RuleBill;
use crate::time::Nanos;
use crate::verb::Verb;

/// The most charges one bill may have: locks are held and answers compared for all of them at once.
pub const CHARGES_MAX: usize = 32;

/// The most rules one bill may have. Each may have as many logs as it has rates, and all of them are locked at once.
pub const RULES_MAX: usize = 8;

/// Several charges and rules that stand or fall together.
#[derive(Clone, Copy, Debug)]
pub struct Bill<'a> {
    charges: &'a [Charge<'a>],
    expression: Option<&'a Expression>,
    rules: &'a [RuleBill<'a>],
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
    /// The bill has neither a charge nor a rule.
    #[error("a bill needs at least one charge or rule")]
    Empty,
    /// More charges than [`CHARGES_MAX`].
    #[error("a bill can have at most {CHARGES_MAX} charges, and this one has {charges}")]
    TooLong {
        /// The number of charges that were given.
        charges: usize,
    },
    /// More rules than [`RULES_MAX`].
    #[error("a bill can have at most {RULES_MAX} rules, and this one has {rules}")]
    TooManyRules {
        /// The number of rules that were given.
        rules: usize,
    },
    /// Rules in a request that gives something back: an entry in the log of a rule stays there.
    #[error("a {} cannot have rules; only spend and check can", .verb.name())]
    RulesOf {
        /// The verb of the request.
        verb: Verb,
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
        Ok(Self { charges, expression: None, rules: &[] })
    }

    /// Makes a bill that any denied charge and any rule that limits denies. Rules that share a log make one entry in
    /// it.
    pub fn with_rules(charges: &'a [Charge<'a>], rules: &'a [RuleBill<'a>]) -> Result<Self, BillError> {
        match (charges, rules.len()) {
            (_, 0) => Self::new(charges),
            ([], 1..=RULES_MAX) => Ok(Self { charges, expression: None, rules }),
            (_, 1..=RULES_MAX) => Ok(Self { rules, ..Self::new(charges)? }),
            (_, rules) => Err(BillError::TooManyRules { rules }),
        }
    }

    /// Makes a bill that has one charge.
    pub fn one(charge: &'a Charge<'a>) -> Self {
        Self { charges: std::slice::from_ref(charge), expression: None, rules: &[] }
    }

    /// Makes a bill that has one rule.
    pub fn rule(rule: &'a RuleBill<'a>) -> Self {
        Self { charges: &[], expression: None, rules: std::slice::from_ref(rule) }
    }

    /// Returns a bill of the same charges that `expression` denies.
    pub fn denied_by(self, expression: &'a Expression) -> Result<Self, BillError> {
        match expression.charge_out_of(self.charges.len()) {
            Some(index) => Err(BillError::NoSuchCharge { index, charges: self.charges.len() }),
            None => Ok(Self { expression: Some(expression), ..self }),
        }
    }

    /// Returns the same bill with as many other charges and rules in place of its own.
    pub fn with_parts<'b>(&'b self, charges: &'b [Charge<'b>], rules: &'b [RuleBill<'b>]) -> Bill<'b> {
        debug_assert_eq!(charges.len(), self.charges.len(), "the expression counts them");
        Bill { charges, expression: self.expression, rules }
    }

    /// Returns the charges of the bill.
    pub const fn charges(&self) -> &'a [Charge<'a>] {
        self.charges
    }

    /// Returns the rules of the bill.
    pub const fn rules(&self) -> &'a [RuleBill<'a>] {
        self.rules
    }

    /// Returns the expression over the charges that denies it; `None` means that any denied charge does.
    pub const fn expression(&self) -> Option<&'a Expression> {
        self.expression
    }

    /// Returns the only charge of a bill that has nothing else: the charge decides for the bill.
    #[inline]
    pub fn single(&self) -> Option<&'a Charge<'a>> {
        match self.charges {
            [charge]
                if charge.kind() == ChargeKind::Spend
                    && self.expression.is_none()
                    && self.rules.is_empty() =>
            {
                Some(charge)
            }
            _ => None,
        }
    }

    /// Makes the decision about the whole bill from the decisions about its charges and, after them, its rules.
    ///
    /// The memory store does not call it for a bill that only spends from token buckets of one id: it finds the
    /// strictest of its answers while it makes them.
    pub fn answer(&self, decisions: &[Decision]) -> Decision {
        let is_plain = self.expression.is_none() && self.rules.is_empty();
        if is_plain && self.charges.iter().all(|charge| charge.kind() != ChargeKind::SpendOnly) {
            return strictest(decisions.iter().enumerate()).unwrap_or(Decision::UNLIMITED);
        }
        let votes = |index: usize| self.charges[index].kind() != ChargeKind::SpendOnly;
        let (of_charges, of_rules) = decisions.split_at(self.charges.len());
        let voted = match self.expression {
            Some(expression) => expression.answer(of_charges, &votes),
            None => strictest(of_charges.iter().enumerate().filter(|(index, _)| votes(*index))),
        };
        let of_charges = voted.or_else(|| of_charges.first().copied().map(never_denied));
        let of_rules = strictest((self.charges.len()..).zip(of_rules));
        any_denies(of_charges.into_iter().chain(of_rules)).unwrap_or(Decision::UNLIMITED)
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
                mildest(answers.into_iter())
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

/// Returns the strictest of these answers, each with its index in the bill, and the first one of equals. Only that one
/// is copied.
fn strictest<'d>(answers: impl Iterator<Item = (usize, &'d Decision)>) -> Option<Decision> {
    let (index, decision) =
        answers.reduce(|before, next| if next.1.is_stricter_than(before.1) { next } else { before })?;
    Some(decision.with_charge(index))
}

/// Returns the least strict answer, and the first one of equals.
fn mildest(answers: impl Iterator<Item = Decision>) -> Option<Decision> {
    answers.reduce(|before, next| if before.is_stricter_than(&next) { next } else { before })
}

/// Returns the strictest answer, and the first one of equals.
fn any_denies(answers: impl Iterator<Item = Decision>) -> Option<Decision> {
    answers.reduce(Decision::stricter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::rule::{KeyedRule, RuleLimit};

    #[test]
    fn an_expression_denies_as_its_parts_do() {
        let or = |parts: &[usize]| Expression::Or(parts.iter().copied().map(Expression::Charge).collect());
        let and = |parts: &[usize]| Expression::And(parts.iter().copied().map(Expression::Charge).collect());
        for (expression, denied, denies) in [
            (Expression::Charge(1), &[1][..], true),
            (Expression::Charge(1), &[0, 2], false),
            (or(&[0, 1]), &[1], true),
            (or(&[0, 1]), &[2], false),
            (or(&[]), &[0], false),
            (and(&[0, 1]), &[0, 1], true),
            (and(&[0, 1]), &[1], false),
            (and(&[]), &[], true),
            (Expression::Or(vec![and(&[0, 1]), and(&[2])]), &[2], true),
        ] {
            let is_denied = |charge| denied.contains(&charge);
            assert_eq!(expression.denies(&is_denied), denies, "{expression:?} {denied:?}");
        }
    }

    #[test]
    fn a_bill_keeps_its_expression_with_other_parts() {
        let limit = Limit::new("A").unwrap();
        let charges = [Charge::new(&limit, b"a", 1).unwrap()];
        let bill = Bill::new(&charges).unwrap();
        assert_eq!(bill.expression(), None);
        let expression = Expression::And(vec![Expression::Charge(0)]);
        let bill = bill.denied_by(&expression).unwrap();
        assert_eq!(bill.with_parts(&charges, &[]).expression(), Some(&expression));
    }

    #[test]
    fn a_charge_decides_for_its_bill_if_it_spends_and_is_all_that_the_bill_has() {
        let limit = Limit::new("A").unwrap();
        let charge = |id: &'static str, kind| Charge::new(&limit, id.as_bytes(), 1).unwrap().with_kind(kind);
        let single = |bill: Bill<'_>| bill.single().map(|charge| charge.id().to_vec());
        for (kind, expected) in ChargeKind::ALL.into_iter().zip([Some(b"a".to_vec()), None, None]) {
            assert_eq!(single(Bill::one(&charge("a", kind))), expected, "{kind:?}");
        }
        let charges = ["a", "b"].map(|id| charge(id, ChargeKind::Spend));
        assert_eq!(single(Bill::new(&charges).unwrap()), None);
        let expression = Expression::Charge(0);
        assert_eq!(single(Bill::one(&charges[0]).denied_by(&expression).unwrap()), None);
        let rule = KeyedRule::new(RuleLimit::new("1/s".parse().unwrap()), "", "key");
        let rules = [rule.bill(|_| Ok::<_, ()>(None::<&str>)).unwrap()];
        assert_eq!(single(Bill::with_rules(&charges[..1], &rules).unwrap()), None);
    }
}

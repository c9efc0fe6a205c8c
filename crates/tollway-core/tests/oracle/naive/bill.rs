//! A naive model that answers bills by definition.

use std::cmp::Reverse;

use tollway_core::{ChargeKind, Decision, Expression, Nanos, RuleDecision, Verdict};

/// The answer to charges and rules together: the first denial with the longest wait. If nothing denies, the charges
/// answer, unless none of them limits anything.
pub(crate) fn answer(
    expression: Option<&Expression>,
    charges: &[(ChargeKind, Decision)],
    rules: &[RuleDecision],
) -> Decision {
    let of_charges = (!charges.is_empty()).then(|| of_charges(expression, charges));
    let of_rules = rules.iter().enumerate();
    let of_rules = of_rules.map(|(index, rule)| Decision::from(*rule).with_charge(charges.len() + index));
    let all: Vec<_> = of_charges.into_iter().chain(of_rules).collect();
    let longest = all.iter().filter(|one| !one.allowed()).map(|one| one.retry_nanos).max();
    let denial = all.iter().find(|one| !one.allowed() && Some(one.retry_nanos) == longest);
    let limited = all.iter().find(|one| one.verdict != Verdict::Unlimited);
    *denial.or(limited).unwrap_or(&all[0])
}

/// The answer of the charges, from what kind each of them is and how it fares by itself.
fn of_charges(expression: Option<&Expression>, charges: &[(ChargeKind, Decision)]) -> Decision {
    // Without an expression any denied charge denies.
    let any = Expression::Or((0..charges.len()).map(Expression::Charge).collect());
    let expression = expression.unwrap_or(&any);
    let answer = decides(expression, charges).unwrap_or_else(|| allowed(charges[0].1));
    assert_eq!(answer.allowed(), !denies(expression, charges), "the two definitions differ");
    answer
}

/// `Or` if any part does, `And` if all do; a charge that only spends denies nothing.
fn denies(expression: &Expression, charges: &[(ChargeKind, Decision)]) -> bool {
    match expression {
        Expression::Charge(index) => {
            charges[*index].0 != ChargeKind::SpendOnly && !charges[*index].1.allowed()
        }
        Expression::Or(parts) => parts.iter().any(|part| denies(part, charges)),
        Expression::And(parts) => parts.iter().all(|part| denies(part, charges)),
    }
}

/// The strictest part of an `Or` and the least strict of an `And`, unless that has a part that cannot deny.
fn decides(expression: &Expression, charges: &[(ChargeKind, Decision)]) -> Option<Decision> {
    match expression {
        Expression::Charge(index) => {
            let (kind, decision) = charges[*index];
            (kind != ChargeKind::SpendOnly).then_some(decision.with_charge(*index))
        }
        Expression::Or(parts) => {
            let mut answers: Vec<_> = parts.iter().filter_map(|part| decides(part, charges)).collect();
            answers.sort_by_key(|one| (one.allowed(), Reverse(one.retry_nanos), one.remaining));
            answers.first().copied()
        }
        Expression::And(parts) if parts.is_empty() => {
            Some(Decision::new(Verdict::Deny, 0, Nanos::FOREVER, Nanos::ZERO))
        }
        Expression::And(parts) => {
            let mut answers: Vec<_> =
                parts.iter().map(|part| decides(part, charges)).collect::<Option<_>>()?;
            answers.sort_by_key(|one| (!one.allowed(), one.retry_nanos, Reverse(one.remaining)));
            answers.first().copied()
        }
    }
}

fn allowed(mut decision: Decision) -> Decision {
    let verdict = if decision.verdict == Verdict::Unlimited { Verdict::Unlimited } else { Verdict::Allow };
    decision.retry_nanos = Nanos::ZERO;
    decision.with_verdict(verdict)
}

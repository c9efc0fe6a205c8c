//! Tests that compare the answers to random bills with a naive reading of the specification.

use std::time::Duration;

use tollway_core::algorithm::{Algorithm, TokenBucket};
use tollway_core::bill::{CHARGES_MAX, RULES_MAX};
use tollway_core::{
    Bill, BillError, Charge, ChargeKind, Decider, Decision, Expression, IdFormat, KeyedRule, Limit, Nanos,
    Policy, RuleDecision, RuleLimit, Verdict,
};
use tollway_testbed::{Random, compare};

use crate::{history, naive};

/// One bill: how each of its charges fares, and which denials deny it.
#[derive(Clone, Debug)]
struct Case {
    charges: Vec<(ChargeKind, Decision)>,
    expression: Option<Expression>,
    rules: Vec<RuleDecision>,
}

fn cases(random: &mut Random) -> Vec<Case> {
    let charges =
        (0..random.between(1, 5)).map(|_| (any_kind(random), any_decision(random))).collect::<Vec<_>>();
    let expression = (!random.one_in(3)).then(|| any_expression(random, charges.len(), 3));
    let rules = if random.one_in(2) { 0 } else { random.between(1, 3) };
    let rules: Vec<_> = (0..rules).map(|_| any_rule_decision(random)).collect();
    if !rules.is_empty() && random.one_in(5) {
        return vec![Case { charges: Vec::new(), expression: None, rules }];
    }
    vec![Case { charges, expression, rules }]
}

fn any_rule_decision(random: &mut Random) -> RuleDecision {
    let wait = random.pick(&[Nanos::new(0), Nanos::new(1), Nanos::new(2), Nanos::FOREVER]);
    match random.between(0, 2) {
        0 => RuleDecision::ALLOW,
        1 => RuleDecision::new(Verdict::Deny, wait),
        _ => RuleDecision::ALLOW.with_verdict(Verdict::AllowFull),
    }
}

fn any_kind(random: &mut Random) -> ChargeKind {
    random.pick(&[ChargeKind::Spend, ChargeKind::Spend, ChargeKind::SpendOnly, ChargeKind::CheckOnly])
}

/// From so few numbers that two are often equal.
fn any_decision(random: &mut Random) -> Decision {
    let verdict =
        random.pick(&[Verdict::Allow, Verdict::Allow, Verdict::Deny, Verdict::Deny, Verdict::DenyFull]);
    let (retry, remaining) = (Nanos::new(random.between(0, 2)), random.between(0, 2));
    let decision = Decision::new(verdict, remaining, retry, Nanos::new(random.any()));
    if random.one_in(8) { Decision::UNLIMITED } else { decision }
}

fn any_expression(random: &mut Random, charges: usize, depth: u64) -> Expression {
    let parts = |random: &mut Random| {
        (0..random.between(0, 3)).map(|_| any_expression(random, charges, depth - 1)).collect()
    };
    match random.between(0, 3) {
        0 if depth > 0 => Expression::Or(parts(random)),
        1 if depth > 0 => Expression::And(parts(random)),
        _ => Expression::Charge(random.pick(&(0..charges).collect::<Vec<_>>())),
    }
}

#[test]
fn the_answer_is_the_one_the_words_give() {
    let policy = policy();
    let ids: Vec<_> = (0..CHARGES_MAX).map(|id| vec![b'a' + u8::try_from(id).unwrap()]).collect();
    compare(cases, |cases| {
        for case in cases {
            run_case(&policy, &ids, case)?;
        }
        Ok(cases.len() as u64)
    });
}

fn run_case(policy: &Policy, ids: &[Vec<u8>], case: &Case) -> Result<(), String> {
    let charge = |(index, (kind, _)): (usize, &(ChargeKind, Decision))| {
        policy.charge("L", &ids[index], 1).unwrap().with_kind(*kind)
    };
    let charges: Vec<Charge<'_>> = case.charges.iter().enumerate().map(charge).collect();
    let decisions = case.charges.iter().map(|(_, decision)| *decision);
    let decisions: Vec<_> = decisions.chain(case.rules.iter().copied().map(Decision::from)).collect();
    let rule = KeyedRule::new(RuleLimit::new("1/s".parse().unwrap()), "", "key");
    let rules: Vec<_> =
        case.rules.iter().map(|_| rule.bill(|_| Ok::<_, ()>(None::<&str>)).unwrap()).collect();
    let bill = Bill::with_rules(&charges, &rules).unwrap();
    let bill = match &case.expression {
        Some(expression) => bill.denied_by(expression).unwrap(),
        None => bill,
    };
    let found = bill.answer(&decisions);
    let expected = naive::answer(case.expression.as_ref(), &case.charges, &case.rules);
    history::same(&expected, &found, "the decision")
}

fn policy() -> Policy {
    let ten = Algorithm::TokenBucket(TokenBucket::new(10, 10, Duration::from_secs(1)).unwrap());
    let addresses = Limit::new("Address").unwrap().with_ids(IdFormat::IpAddress).with_default(ten);
    Policy::new(vec![Limit::new("L").unwrap().with_default(ten), addresses]).unwrap()
}

#[test]
fn charges_that_make_no_bill_say_why() {
    let policy = policy();
    let ids: Vec<_> = (0..=CHARGES_MAX).map(|id| id.to_string()).collect();
    let charge = |limit, id: &'static str| policy.charge(limit, id.as_bytes(), 1).unwrap();
    let many: Vec<_> = ids.iter().map(|id| policy.charge("L", id.as_bytes(), 1).unwrap()).collect();
    let twice = |bucket: &str| BillError::SameBucketTwice { bucket: bucket.to_owned() };
    for (charges, expected) in [
        (vec![], BillError::Empty),
        (many.clone(), BillError::TooLong { charges: CHARGES_MAX + 1 }),
        (vec![charge("L", "a"), charge("L", "b"), charge("L", "a")], twice("L:a")),
        (vec![charge("L", "a").with_kind(ChargeKind::CheckOnly), charge("L", "a")], twice("L:a")),
        (
            vec![charge("Address", "2001:DB8::1"), charge("Address", "2001:db8:0::1")],
            twice("Address:2001:db8::1"),
        ),
        (
            vec![charge("Address", "::ffff:10.0.0.1"), charge("Address", "10.0.0.1")],
            twice("Address:10.0.0.1"),
        ),
    ] {
        assert_eq!(Bill::new(&charges).err(), Some(expected));
    }
    assert!(Bill::new(&many[..CHARGES_MAX]).is_ok());
    assert!(Bill::new(&[charge("L", "10.0.0.1"), charge("Address", "10.0.0.1")]).is_ok());
}

#[test]
fn rules_beside_charges_are_counted_after_them() {
    let policy = policy();
    let charges = [policy.charge("L", b"a", 1).unwrap(), policy.charge("L", b"b", 1).unwrap()];
    let rule = KeyedRule::new(RuleLimit::new("1/s".parse().unwrap()), "", "key");
    let rules = vec![rule.bill(|_| Ok::<_, ()>(None::<&str>)).unwrap(); RULES_MAX + 1];
    let too_many = BillError::TooManyRules { rules: RULES_MAX + 1 };
    assert_eq!(Bill::with_rules(&charges, &rules).err(), Some(too_many));
    let twice = [charges[0].clone(), charges[0].clone()];
    assert!(Bill::with_rules(&twice, &rules[..1]).is_err());
    assert_eq!(Bill::with_rules(&[], &[]).err(), Some(BillError::Empty));
    assert!(Bill::with_rules(&[], &rules[..RULES_MAX]).is_ok());
    assert!(Bill::with_rules(&charges[..1], &rules[..1]).unwrap().single().is_none());
    assert!(Bill::with_rules(&charges[..1], &[]).unwrap().single().is_some());
    let deny = Decision::new(Verdict::Deny, 0, Nanos::new(1), Nanos::new(1));
    let deciders = [0, 1, 2, 3].map(|index| deny.with_charge(index).decider(&[7, 8]));
    assert_eq!(deciders, [Decider::Charge(&7), Decider::Charge(&8), Decider::Rule(0), Decider::Rule(1)]);
}

#[test]
fn an_expression_is_about_charges_the_bill_has() {
    let policy = policy();
    let charges = [policy.charge("L", b"a", 1).unwrap(), policy.charge("L", b"b", 1).unwrap()];
    let bill = Bill::new(&charges).unwrap();
    for index in [2, 3, usize::MAX] {
        for expression in [
            Expression::Charge(index),
            Expression::Or(vec![Expression::Charge(1), Expression::Charge(index)]),
            Expression::Or(vec![Expression::And(vec![]), Expression::And(vec![Expression::Charge(index)])]),
        ] {
            assert_eq!(
                bill.denied_by(&expression).err(),
                Some(BillError::NoSuchCharge { index, charges: 2 }),
                "{expression:?}"
            );
        }
    }
    assert!(bill.denied_by(&Expression::Charge(1)).is_ok());
}

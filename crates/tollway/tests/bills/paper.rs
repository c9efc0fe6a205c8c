//! Makes the bills of random histories: they charge five limits, under ids that are few enough to meet again.

use tollway::core::algorithm::{FixedWindow, Quota, SlidingLog, SlidingWindow, SmoothedRate, TokenBucket};
use tollway::core::{
    Algorithm, Bill, Charge, ChargeError, ChargeKind, Expression, KeyedRule, Limit, Nanos, Policy, RuleBill,
    RuleLimit,
};
use tollway_testbed::Random;

/// The last of them has a number, and holds for one id only.
pub(crate) const LIMITS: [&str; 7] = ["Bucket", "Log", "Rate", "Quota", "Fixed", "Sliding", "Some"];

/// A bill that names its limits and ids, and outlives the policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paper {
    pub(crate) lines: Vec<Line>,
    pub(crate) expression: Option<Expression>,
    pub(crate) rules: Vec<PaperRule>,
}

/// A rule whose rates are all joined by `Or`, or all by `And`, and the value of its only selector, if it has one.
#[derive(Clone, Debug)]
pub(crate) struct PaperRule {
    pub(crate) any: bool,
    pub(crate) rates: Vec<PaperRate>,
    pub(crate) key: &'static str,
    pub(crate) user: &'static str,
}

/// A rate of everybody, or of one user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaperRate {
    pub(crate) of_user: bool,
    pub(crate) count: u64,
    pub(crate) millis: u64,
}

/// A charge that names its limit and its id.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) limit: &'static str,
    pub(crate) id: &'static str,
    cost: u64,
    kind: ChargeKind,
}

impl Paper {
    pub(crate) fn any(random: &mut Random, ids: &[&'static str]) -> Self {
        let rules = if random.one_in(3) { random.between(1, 3) } else { 0 };
        let rules: Vec<_> = (0..rules).map(|_| PaperRule::any(random)).collect();
        let has_lines = rules.is_empty() || !random.one_in(4);
        let lines = if has_lines { any_lines(random, ids) } else { Vec::new() };
        let expression = (has_lines && random.one_in(2)).then(|| any_expression(random, lines.len(), 2));
        Self { lines, expression, rules }
    }

    /// Its rules, from which their bills are made.
    pub(crate) fn keyed_rules(&self) -> Vec<KeyedRule> {
        self.rules.iter().map(PaperRule::keyed).collect()
    }

    /// The bills of its rules.
    pub(crate) fn rule_bills<'a>(&'a self, keyed: &'a [KeyedRule]) -> Vec<RuleBill<'a>> {
        let bill = |(rule, keyed): (&PaperRule, &'a KeyedRule)| keyed.bill(|_| Ok::<_, ()>(Some(rule.user)));
        self.rules.iter().zip(keyed).map(|rule| bill(rule).unwrap()).collect()
    }

    /// The bill of these charges, which are its lines, and of these rules.
    pub(crate) fn bill<'a>(&'a self, charges: &'a [Charge<'a>], rules: &'a [RuleBill<'a>]) -> Bill<'a> {
        let bill = Bill::with_rules(charges, rules).unwrap();
        match &self.expression {
            Some(expression) => bill.denied_by(expression).unwrap(),
            None => bill,
        }
    }
}

impl PaperRule {
    fn any(random: &mut Random) -> Self {
        let rates = (0..random.between(0, 3)).map(|_| PaperRate {
            of_user: random.one_in(2),
            count: if random.one_in(12) { 0 } else { random.between(1, 3) },
            millis: random.pick(&[1, 2, 5]),
        });
        let (rates, any) = (rates.collect(), random.one_in(2));
        Self { any, rates, key: random.pick(&["shared", "own"]), user: random.pick(&["", "x", "y"]) }
    }

    /// Every rule wants as much kept of both logs as any of them: a log has no more than those who fill it want kept.
    fn keyed(&self) -> KeyedRule {
        let rate = |rate: &PaperRate| {
            let selector = if rate.of_user { "user:" } else { "" };
            format!("'{selector}{}/{}ms'", rate.count, rate.millis)
        };
        let (name, rates) = (if self.any { "Or" } else { "And" }, self.rates.iter().map(rate));
        let rates = rates.collect::<Vec<_>>().join(", ");
        let text = format!("Or({name}({rates}), And(Or(), '3/5ms', 'user:3/5ms'))");
        KeyedRule::new(RuleLimit::new(text.parse().unwrap()), "", self.key)
    }
}

/// Makes one to five charges of different buckets.
pub(crate) fn any_lines(random: &mut Random, ids: &[&'static str]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for _ in 0..random.between(1, 5) {
        let (limit, id) = (random.pick(&LIMITS), random.pick(ids));
        if !lines.iter().any(|line| (line.limit, line.id) == (limit, id)) {
            let kind = random.pick(&[
                ChargeKind::Spend,
                ChargeKind::Spend,
                ChargeKind::Spend,
                ChargeKind::SpendOnly,
                ChargeKind::CheckOnly,
            ]);
            lines.push(Line { limit, id, cost: random.pick(&[0, 1, 1, 1, 2, 3, 8]), kind });
        }
    }
    lines
}

fn any_expression(random: &mut Random, lines: usize, depth: u64) -> Expression {
    let parts = |random: &mut Random| {
        (0..random.between(0, 3)).map(|_| any_expression(random, lines, depth - 1)).collect()
    };
    match random.between(0, 2) {
        0 if depth > 0 => Expression::Or(parts(random)),
        1 if depth > 0 => Expression::And(parts(random)),
        _ => Expression::Charge(random.pick(&(0..lines).collect::<Vec<_>>())),
    }
}

/// Makes an algorithm for each of the limits, in their order.
pub(crate) fn any_algorithms(random: &mut Random) -> [Algorithm; LIMITS.len()] {
    let mut period = || Nanos::new(random.between(50, 2_000));
    let [bucket, log, rate, quota, fixed, sliding, some] = [(); 7].map(|()| period());
    let [few, count] = [(); 2].map(|()| random.between(1, 8));
    [
        Algorithm::TokenBucket(TokenBucket::new(few, count, bucket.into()).unwrap()),
        Algorithm::SlidingLog(SlidingLog::new(count, log.into()).unwrap()),
        Algorithm::SmoothedRate(SmoothedRate::new(few as f64 + 0.5, rate.into(), random.one_in(2)).unwrap()),
        Algorithm::Quota(Quota::new(few, quota.into()).unwrap()),
        Algorithm::FixedWindow(FixedWindow::new(count, fixed.into(), quota.into()).unwrap()),
        Algorithm::SlidingWindow(SlidingWindow::new(few, sliding.into()).unwrap()),
        Algorithm::TokenBucket(TokenBucket::new(count, few, some.into()).unwrap()),
    ]
}

/// The limits with these algorithms; `id` is the one that the last holds for.
pub(crate) fn policy(algorithms: [Algorithm; LIMITS.len()], id: &str) -> Policy {
    let limits = LIMITS.iter().zip(algorithms).map(|(name, algorithm)| {
        let limit = Limit::new(name).unwrap();
        if *name == "Some" {
            let mut limit = limit.with_number(7);
            limit.add_override(id.as_bytes(), algorithm).unwrap();
            return limit;
        }
        limit.with_default(algorithm)
    });
    Policy::new(limits.collect()).unwrap()
}

/// Turns lines into charges. A cost above the limit's maximum is lowered to it, because the limit may have changed
/// since the line was made.
pub(crate) fn charges<'a>(policy: &'a Policy, lines: &'a [Line]) -> Vec<Charge<'a>> {
    let charge = |line: &'a Line| {
        let charge = match policy.charge(line.limit, line.id.as_bytes(), line.cost) {
            Err(ChargeError::CostTooHigh { cost_max, .. }) => {
                policy.charge(line.limit, line.id.as_bytes(), cost_max)
            }
            other => other,
        };
        charge.unwrap().with_kind(line.kind)
    };
    lines.iter().map(charge).collect()
}

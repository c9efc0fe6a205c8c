//! Decides requests when the store gives no answer. No other module does.
//!
//! ```text
//! on_store_failure: allow    allow unreachable   the limiter never takes the site down
//!                   deny     deny unreachable    nobody gets more than the limit by breaking the store
//!                   local    allow or deny       decided in this process's memory, by a share of the limit
//! ```
//!
//! A bill with several charges and rules is denied if one of them has `deny`. Otherwise those with `local` decide it.

use tollway_core::algorithm::RateReading;
use tollway_core::{
    Algorithm, Bill, Charge, ChargeKind, Decider, Decision, Nanos, OnStoreFailure, RuleBill, RuleDecision,
    Timestamp, Verdict,
};

use crate::rates::RateUpdate;
use crate::store::memory::Memory;

/// The wait that is suggested to a client that was denied: by then a probe may have reached the store.
const RETRY_AFTER: Nanos = Nanos::from_secs(1);

/// Settles a bill as its limits say.
pub(super) fn settle(bill: &Bill<'_>, memory: &Memory, now: Timestamp) -> Decision {
    decide(bill, |local, decisions| memory.settle(std::slice::from_ref(local), now, decisions))
}

/// The decision [`settle`] would make.
pub(super) fn check(bill: &Bill<'_>, memory: &Memory, now: Timestamp) -> Decision {
    decide(bill, |local, decisions| memory.check(std::slice::from_ref(local), now, decisions))
}

/// Settles a bill as its limits say, and appends the decision about each of its charges.
pub(super) fn settle_each(
    bill: &Bill<'_>,
    memory: &Memory,
    now: Timestamp,
    each: &mut Vec<Decision>,
) -> Decision {
    let mut asked = Vec::new();
    let decision =
        decide(bill, |local, decisions| decisions.push(memory.settle_each(local, now, &mut asked)));
    // Nothing was asked if the bill must be denied.
    asked.resize(bill.charges().len(), decision);
    each.extend(asked.into_iter().map(|decision| match decision.verdict {
        Verdict::Unlimited => unreachable(Verdict::AllowUnreachable, Nanos::ZERO, 0),
        _ => decision.with_degraded(),
    }));
    decision
}

/// Measures a rate as its limit says.
pub(super) fn update_rate(update: &RateUpdate<'_>, memory: &Memory, now: Timestamp) -> RateReading {
    let share = match update.on_store_failure {
        OnStoreFailure::Allow => return RateReading::new(0.0, false),
        OnStoreFailure::Deny => return RateReading::new(0.0, true),
        OnStoreFailure::Local(share) => share,
    };
    let part = share.rate(update.limit).unwrap_or(*update.limit);
    let mut readings = Vec::with_capacity(1);
    memory.update_rates(&[RateUpdate { limit: &part, ..*update }], now, &mut readings);
    readings[0]
}

/// Resolves a rule as its limit says.
pub(super) fn resolve(bill: &RuleBill<'_>, memory: &Memory, now: Timestamp) -> RuleDecision {
    settle(&Bill::rule(bill), memory, now).into()
}

/// Removes the bucket that this process has for a charge, if it has decided by itself.
pub(super) fn reset(charge: &Charge<'_>, memory: &Memory) {
    memory.reset(&charge.held_to(local_numbers(charge).as_ref()));
}

fn decide(bill: &Bill<'_>, ask: impl FnOnce(&Bill<'_>, &mut Vec<Decision>)) -> Decision {
    let (charges, rules) = (bill.charges(), bill.rules());
    let of_rule = |rule: &RuleBill<'_>| rule.limit().on_store_failure();
    let must_deny =
        charges.iter().map(denies).chain(rules.iter().map(|rule| of_rule(rule) == OnStoreFailure::Deny));
    if let Some((index, _)) = must_deny.enumerate().find(|(_, denies)| *denies) {
        return unreachable(Verdict::DenyUnreachable, RETRY_AFTER, index);
    }
    let held_to: Vec<Option<Algorithm>> = charges.iter().map(local_numbers).collect();
    let local: Vec<_> =
        charges.iter().zip(&held_to).map(|(charge, numbers)| charge.held_to(numbers.as_ref())).collect();
    let local_rules = rules.iter().map(|rule| match of_rule(rule) {
        OnStoreFailure::Local(share) => rule.share(share),
        OnStoreFailure::Allow | OnStoreFailure::Deny => rule.unlimited(),
    });
    let local_rules: Vec<_> = local_rules.collect();
    let mut decisions = Vec::with_capacity(1);
    ask(&bill.with_parts(&local, &local_rules), &mut decisions);
    let decision = decisions[0];
    let was_asked = match decision.decider(charges) {
        Decider::Charge(_) => decision.verdict != Verdict::Unlimited,
        Decider::Rule(index) => of_rule(&rules[index]) != OnStoreFailure::Allow,
    };
    if was_asked {
        decision.with_degraded()
    } else {
        unreachable(Verdict::AllowUnreachable, Nanos::ZERO, decision.charge)
    }
}

fn denies(charge: &Charge<'_>) -> bool {
    charge.limit().on_store_failure() == OnStoreFailure::Deny
        && charge.algorithm().is_some()
        && charge.kind() != ChargeKind::SpendOnly
}

/// Returns the numbers that this process enforces by itself, or `None` if it enforces none: the limit does not decide
/// locally, or has no numbers for this id.
fn local_numbers(charge: &Charge<'_>) -> Option<Algorithm> {
    match charge.limit().on_store_failure() {
        OnStoreFailure::Local(share) => charge.algorithm().map(|algorithm| share.of(algorithm)),
        OnStoreFailure::Allow | OnStoreFailure::Deny => None,
    }
}

const fn unreachable(verdict: Verdict, retry_after: Nanos, charge: usize) -> Decision {
    Decision::new(verdict, 0, retry_after, retry_after).with_charge(charge).with_degraded()
}

#[cfg(test)]
#[cfg(feature = "yaml")]
mod tests {
    use tollway_core::{KeyedRule, LocalShare, RuleLimit};

    use super::*;
    use crate::config::Config;

    const LIMITS: &str = "
        limits:
          Open: { burst: 4, count: 4, period: 4s }
          Closed: { burst: 4, count: 4, period: 4s, on_store_failure: deny }
          Local: { burst: 4, count: 4, period: 4s, on_store_failure: local, local_share: 1/2 }
    ";

    /// Each bill against one memory, and what is answered: the words, what is left, and which charge decided.
    #[test]
    fn every_limit_has_its_say() {
        use Verdict::{Allow, AllowUnreachable, Deny, DenyUnreachable};
        let policy = Config::parse(LIMITS, "limits").unwrap().policy;
        let (memory, now) = (Memory::new(100), Timestamp::EPOCH);
        for (names, verdict, remaining, decided) in [
            (&["Open"][..], AllowUnreachable, 0, 0),
            (&["Closed"], DenyUnreachable, 0, 0),
            (&["Local"], Allow, 1, 0),
            (&["Open", "Closed"], DenyUnreachable, 0, 1),
            (&["Closed", "Local"], DenyUnreachable, 0, 0),
            (&["Open", "Local"], Allow, 0, 1),
            (&["Open", "Local"], Deny, 0, 1),
        ] {
            let charges: Vec<_> = names.iter().map(|name| policy.charge(name, b"id", 1).unwrap()).collect();
            let bill = Bill::new(&charges).unwrap();
            assert_eq!(check(&bill, &memory, now).verdict, verdict, "{names:?}");
            let decision = settle(&bill, &memory, now);
            assert!(decision.degraded, "{names:?}");
            let found = (decision.verdict, decision.remaining, decision.charge);
            assert_eq!(found, (verdict, remaining, decided), "{names:?}");
        }
    }

    /// Each bill of one limit and two rules against a memory of its own, twice.
    #[test]
    fn limits_and_rules_have_their_say_together() {
        use Verdict::{Allow, AllowUnreachable, Deny, DenyUnreachable};
        let policy = Config::parse(LIMITS, "limits").unwrap().policy;
        let rule = |on_store_failure| {
            let rule = RuleLimit::new("2/s".parse().unwrap()).with_on_store_failure(on_store_failure);
            KeyedRule::new(rule, "", &format!("{on_store_failure:?}"))
        };
        let local = OnStoreFailure::Local(LocalShare::new(1, 2).unwrap());
        let [open, closed, local] = [OnStoreFailure::Allow, OnStoreFailure::Deny, local].map(rule);
        for (limit, rules, verdicts, decided) in [
            ("Open", [&open, &open], [AllowUnreachable; 2], [1; 2]),
            ("Open", [&open, &closed], [DenyUnreachable; 2], [2; 2]),
            ("Closed", [&closed, &local], [DenyUnreachable; 2], [0; 2]),
            ("Open", [&local, &open], [Allow, Deny], [1; 2]),
            ("Local", [&open, &open], [Allow; 2], [0; 2]),
            ("Local", [&open, &local], [Allow, Deny], [0, 2]),
        ] {
            let charges = [policy.charge(limit, b"id", 1).unwrap()];
            let rules = rules.map(|rule| rule.bill(|_| Ok::<_, ()>(None::<&str>)).unwrap());
            let (bill, memory) = (Bill::with_rules(&charges, &rules).unwrap(), Memory::new(100));
            let decisions = [(); 2].map(|()| settle(&bill, &memory, Timestamp::EPOCH));
            assert!(decisions.iter().all(|decision| decision.degraded), "{decisions:?}");
            assert_eq!(decisions.map(|decision| decision.verdict), verdicts, "{limit} {rules:?}");
            assert_eq!(decisions.map(|decision| decision.charge), decided, "{limit} {rules:?}");
        }
    }

    #[test]
    fn every_rule_has_its_say() {
        use Verdict::{Allow, AllowUnreachable, Deny, DenyUnreachable};
        let half = LocalShare::new(1, 2).unwrap();
        for (on_store_failure, expected) in [
            (OnStoreFailure::Allow, [AllowUnreachable; 3]),
            (OnStoreFailure::Deny, [DenyUnreachable; 3]),
            (OnStoreFailure::Local(half), [Allow, Allow, Deny]),
        ] {
            let rule = RuleLimit::new("Or('4/s', '5/m')".parse().unwrap());
            let rule = KeyedRule::new(rule.with_on_store_failure(on_store_failure), "", "key");
            let bill = rule.bill(|_| Ok::<_, ()>(None::<&str>)).unwrap();
            let memory = Memory::new(100);
            let rulings = [(); 3].map(|()| resolve(&bill, &memory, Timestamp::EPOCH));
            assert_eq!(rulings.map(|ruling| ruling.verdict), expected);
            assert!(rulings.iter().all(|ruling| ruling.degraded));
        }
    }

    #[test]
    fn a_reset_gives_back_what_the_share_had() {
        let policy = Config::parse(LIMITS, "limits").unwrap().policy;
        let (memory, charge) = (Memory::new(100), policy.charge("Local", b"id", 2).unwrap());
        let verdict = || settle(&Bill::one(&charge), &memory, Timestamp::EPOCH).verdict;
        assert_eq!([verdict(), verdict()], [Verdict::Allow, Verdict::Deny]);
        reset(&charge, &memory);
        assert_eq!(verdict(), Verdict::Allow);
    }

    #[test]
    fn a_charge_without_a_vote_denies_nothing() {
        let policy = Config::parse(LIMITS, "limits").unwrap().policy;
        let charges = [policy.charge("Closed", b"id", 1).unwrap().with_kind(ChargeKind::SpendOnly)];
        let decision = settle(&Bill::new(&charges).unwrap(), &Memory::new(100), Timestamp::EPOCH);
        assert_eq!(decision.verdict, Verdict::AllowUnreachable);
    }
}

//! `TOLL`, which asks under the limits and the rules of the policy.
//!
//! ```text
//! TOLL SPEND Login alice                           takes 1
//! TOLL CHECK Login alice 3                         returns whether 3 would pass
//! TOLL SPEND Login alice 1 All * 1                 one bill: both or none
//! TOLL SPEND Login alice RULE upload user=alice    one bill of a limit and a rule
//! TOLL RESET Login alice All *                     forgets both buckets
//! ```
//!
//! The word `RULE` begins a rule wherever the name of a limit could stand, and in the place of the cost of a first
//! charge. So no limit of that name can be asked for here, while an id can be any word.
//!
//! The reply has the fields of the HTTP gate: a map, or names and values in turn in version 2.

use std::borrow::Cow;

use tollway_core::{
    BillError, Charge, ChargeRequest, Decision, Refund, RuleDecision, RuleRef, RuleRequest, Verb, Verdict,
};

use super::KEY_MAX;
use super::error::{CommandError, shown};
use super::integer;
use super::reply::ReplyWriter;

/// One charge that is asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TollCharge<'a> {
    /// The name of the limit.
    pub limit: &'a str,
    /// The id as the client spells it.
    pub id: &'a [u8],
    /// The units that it would take.
    pub cost: u64,
}

impl<'a> From<TollCharge<'a>> for ChargeRequest<'a> {
    fn from(charge: TollCharge<'a>) -> Self {
        Self::new(charge.limit, charge.id, charge.cost)
    }
}

/// A verb, and the charges and rules that it is about, which are parsed when they are asked for.
#[derive(Clone, Copy, Debug)]
pub struct TollRequest<'w, 'a> {
    /// The verb.
    pub verb: Verb,
    charges: &'w [&'a [u8]],
    /// The words from the first `RULE` on.
    rules: &'w [&'a [u8]],
}

/// The word that begins a rule, in any case.
const RULE: &[u8] = b"RULE";

impl<'w, 'a> TollRequest<'w, 'a> {
    /// Parses the words after the name of the command.
    pub(super) fn parse(words: &'w [&'a [u8]]) -> Result<Self, CommandError> {
        let Some((name, words)) = words.split_first() else { return Err(CommandError::TollVerb) };
        let verb = Verb::ALL.into_iter().find(|verb| name.eq_ignore_ascii_case(verb.name().as_bytes()));
        let Some(verb) = verb else {
            return Err(CommandError::UnknownTollVerb { name: shown(name) });
        };
        let words_per_charge = if verb.has_cost() { 3 } else { 2 };
        // The first charge may leave out its cost.
        let begins_rule =
            |at: &usize| is_rule(words[*at]) && (at.is_multiple_of(words_per_charge) || *at == 2);
        let (charges, rules) = words.split_at((0..words.len()).find(begins_rule).unwrap_or(words.len()));
        if !rules.is_empty() && !verb.has_rules() {
            return Err(CommandError::Bill { problem: BillError::RulesOf { verb } });
        }
        let request = Self { verb, charges, rules };
        let fits = charges.len().is_multiple_of(request.words_per_charge()) && !words.is_empty();
        if fits {
            Ok(request)
        } else if verb.has_cost()
            && charges.len() > words_per_charge
            && !charges.iter().any(|word| is_rule(word))
        {
            Err(CommandError::TollCosts { verb })
        } else {
            Err(CommandError::TollWords { verb })
        }
    }

    /// Returns the charges in their order.
    pub fn charges(self) -> impl ExactSizeIterator<Item = Result<TollCharge<'a>, CommandError>> {
        let verb = self.verb;
        self.charges.chunks(self.words_per_charge()).map(move |words| charge(verb, words))
    }

    /// Returns true if rules are asked beside the charges, or alone.
    pub const fn has_rules(self) -> bool {
        !self.rules.is_empty()
    }

    /// Returns the rules in their order.
    pub fn rules(self) -> Result<Vec<RuleRequest<'a>>, CommandError> {
        let mut rules: Vec<RuleRequest<'a>> = Vec::new();
        let mut words = self.rules.iter();
        while let Some(word) = words.next() {
            if is_rule(word) {
                let name = words.next().ok_or(CommandError::NoRuleName)?;
                let rule = RuleRef::Named(text(name, "rule")?.to_owned());
                rules.push(RuleRequest { rule, key: None, selectors: Vec::new() });
            } else if let Some(rule) = rules.last_mut() {
                let (name, value) = selector(word)?;
                if rule.selectors.iter().any(|(earlier, _)| *earlier == name) {
                    return Err(CommandError::SelectorTwice { name: shown(name.as_bytes()) });
                }
                rule.selectors.push((Cow::Borrowed(name), Cow::Borrowed(value)));
            }
        }
        Ok(rules)
    }

    /// One charge may leave out its cost, and a reset has none.
    fn words_per_charge(&self) -> usize {
        if self.charges.len() == 2 || !self.verb.has_cost() { 2 } else { 3 }
    }
}

fn is_rule(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(RULE)
}

/// Splits `name=value` at the first `=`: a value may be empty, and may have any bytes.
fn selector(word: &[u8]) -> Result<(&str, &[u8]), CommandError> {
    let no_selector = || CommandError::NoSelector { found: shown(word) };
    let equals = word.iter().position(|byte| *byte == b'=').filter(|at| *at > 0).ok_or_else(no_selector)?;
    let (name, value) = (&word[..equals], &word[equals + 1..]);
    if value.len() > KEY_MAX {
        return Err(CommandError::ValueTooLong);
    }
    Ok((text(name, "selector")?, value))
}

fn text<'a>(name: &'a [u8], of: &'static str) -> Result<&'a str, CommandError> {
    std::str::from_utf8(name).map_err(|_| CommandError::NameNotText { of })
}

fn charge<'a>(verb: Verb, words: &[&'a [u8]]) -> Result<TollCharge<'a>, CommandError> {
    let limit = text(words[0], "limit")?;
    if words[1].len() > KEY_MAX {
        return Err(CommandError::IdTooLong);
    }
    let cost = match words.get(2) {
        None => verb.default_cost(),
        Some(word) => match integer::parse(word).map(u64::try_from) {
            Some(Ok(cost)) => cost,
            Some(Err(_)) => return Err(CommandError::TooSmall { field: "cost", min: 0 }),
            None => return Err(CommandError::NoCost { found: shown(word) }),
        },
    };
    Ok(TollCharge { limit, id: words[1], cost })
}

/// Appends the reply to a spend or a check that this charge decided.
pub fn put_decision(charge: &Charge<'_>, decision: &Decision, reply: &mut ReplyWriter<'_>) {
    let reason = reason(decision.verdict);
    let unlimited = decision.verdict == Verdict::Unlimited;
    let extra = usize::from(unlimited) + usize::from(reason.is_some()) + usize::from(decision.degraded);
    reply.map(5 + extra);
    reply.bulk(b"allowed");
    reply.boolean(decision.allowed());
    reply.bulk(b"remaining");
    if unlimited || reason == Some("store") {
        reply.null();
    } else {
        reply.integer(i64::try_from(decision.remaining).unwrap_or(i64::MAX));
    }
    reply.bulk(b"retry_after");
    reply.seconds(decision.retry_nanos);
    reply.bulk(b"reset_after");
    reply.seconds(decision.reset_nanos);
    reply.bulk(b"limit");
    reply.bulk(charge.limit().name().as_bytes());
    if unlimited {
        reply.bulk(b"unlimited");
        reply.boolean(true);
    }
    put_reason(reason, decision.degraded, reply);
}

/// Appends the reply to a spend or a check that the rule of this name decided. Only denials have `retry_after`.
pub fn put_rule_decision(rule: &str, decision: &RuleDecision, reply: &mut ReplyWriter<'_>) {
    let (denied, reason) = (!decision.allowed(), reason(decision.verdict));
    reply.map(2 + usize::from(denied) + usize::from(reason.is_some()) + usize::from(decision.degraded));
    reply.bulk(b"allowed");
    reply.boolean(!denied);
    if denied {
        reply.bulk(b"retry_after");
        reply.seconds(decision.retry_nanos);
    }
    reply.bulk(b"rule");
    reply.bulk(rule.as_bytes());
    put_reason(reason, decision.degraded, reply);
}

/// Returns the reason of a decision that was not made by counting, as replies show it.
fn reason(verdict: Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Allow | Verdict::Deny | Verdict::Unlimited => None,
        Verdict::AllowFull | Verdict::DenyFull => Some("full"),
        Verdict::AllowUnreachable | Verdict::DenyUnreachable => Some("store"),
    }
}

fn put_reason(reason: Option<&str>, degraded: bool, reply: &mut ReplyWriter<'_>) {
    if let Some(reason) = reason {
        reply.bulk(b"reason");
        reply.bulk(reason.as_bytes());
    }
    if degraded {
        reply.bulk(b"degraded");
        reply.boolean(true);
    }
}

/// Appends the reply to a refund. A refund of several charges is about no single limit.
pub fn put_refund(charges: &[Charge<'_>], refund: &Refund, reply: &mut ReplyWriter<'_>) {
    let unlimited = charges.iter().all(|charge| charge.algorithm().is_none());
    reply.map(3 + usize::from(charges.len() == 1) + usize::from(unlimited));
    reply.bulk(b"refunded");
    reply.boolean(refund.refunded);
    reply.bulk(b"remaining");
    if unlimited {
        reply.null();
    } else {
        reply.integer(i64::try_from(refund.remaining).unwrap_or(i64::MAX));
    }
    reply.bulk(b"reset_after");
    reply.seconds(refund.reset_nanos);
    if let [charge] = charges {
        reply.bulk(b"limit");
        reply.bulk(charge.limit().name().as_bytes());
    }
    if unlimited {
        reply.bulk(b"unlimited");
        reply.boolean(true);
    }
}

/// Appends the reply to a reset.
pub fn put_reset(reply: &mut ReplyWriter<'_>) {
    reply.map(1);
    reply.bulk(b"reset");
    reply.boolean(true);
}

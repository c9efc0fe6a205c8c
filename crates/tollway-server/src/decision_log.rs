//! The decision log: a line for each decision, for whoever enables the target `tollway::decisions` at `debug`.
//!
//! ```text
//! RUST_LOG=tollway::decisions=debug tollway serve
//! DEBUG tollway::decisions: spend gate="http" limit="demo" id="alice" cost=1 verdict=Allow remaining=4 retry_after=0s
//! ```
//!
//! A line has the ids and keys that clients chose, so it is never above `debug`. While the target is off, a decision
//! costs one comparison.

use tollway_core::{Charge, Decider, Decision, RuleDecision, RuleRequest, Verb};
use tollway_wire::text::OverLimit;
use tollway_wire::throttr::{ThrottrReply, ThrottrRequest};
use tracing::{Level, debug, enabled};

/// Returns whether the log is on. Ask once for a batch.
#[inline]
pub(crate) fn is_on() -> bool {
    enabled!(target: "tollway::decisions", Level::DEBUG)
}

/// Logs the decision about a bill, with the charge or the rule that decided it.
#[inline]
pub(crate) fn bill(
    gate: &str,
    verb: Verb,
    charges: &[Charge<'_>],
    rules: &[RuleRequest<'_>],
    decision: &Decision,
) {
    match decision.decider(charges) {
        Decider::Charge(decided_by) => {
            charge(gate, verb, (decided_by, decided_by.cost()), (charges.len(), rules.len()), decision);
        }
        Decider::Rule(index) => {
            let RuleRequest { rule: by, key, .. } = &rules[index];
            rule(gate, by.text(), key.as_deref(), &RuleDecision::from(*decision));
        }
    }
}

/// Logs the decision about a bill with so many charges and rules, with the charge that decided it and what that was to
/// cost.
#[inline]
pub(crate) fn charge(
    gate: &str,
    verb: Verb,
    (charge, cost): (&Charge<'_>, u64),
    (charges, rules): (usize, usize),
    decision: &Decision,
) {
    debug!(
        target: "tollway::decisions",
        gate,
        limit = charge.limit().name(),
        // As text, so that the log quotes it: an id could otherwise imitate the fields that follow.
        id = charge.id().escape_ascii().to_string(),
        cost,
        verdict = ?decision.verdict,
        remaining = decision.remaining,
        retry_after = %decision.retry_nanos,
        charges,
        rules,
        degraded = decision.degraded,
        "{}",
        verb.name(),
    );
}

/// Logs the decision of a rule.
#[inline]
pub(crate) fn rule(gate: &str, rule: &str, key: Option<&str>, decision: &RuleDecision) {
    debug!(
        target: "tollway::decisions",
        gate,
        rule,
        key,
        verdict = ?decision.verdict,
        retry_after = %decision.retry_nanos,
        degraded = decision.degraded,
        "rule",
    );
}

/// Logs the reply to a command about a quota.
#[inline]
pub(crate) fn quota(request: &ThrottrRequest<'_>, reply: &ThrottrReply) {
    debug!(
        target: "tollway::decisions",
        gate = "throttr",
        key = request.key.bytes().escape_ascii().to_string(),
        command = ?request.command,
        reply = ?reply,
        "quota",
    );
}

/// Logs the answer about a key.
pub(crate) fn key(gate: &str, key: &[u8], answer: &OverLimit) {
    debug!(
        target: "tollway::decisions",
        gate,
        key = key.escape_ascii().to_string(),
        over = answer.over,
        rate = answer.rate,
        limit = answer.limit,
        "over_limit",
    );
}

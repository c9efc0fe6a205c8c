//! The response of `POST /v1/explain`: the parts of a rule, and which of them are reached.
//!
//! ```text
//! {"rule":"Or('10/s', 'user:5/m')","tree":{"or":[
//!    {"rate":"10/s","log":":upload","reached":true,"frees_after":0.8},
//!    {"rate":"user:5/m","log":":upload:user:vova","reached":false,"frees_after":0}],
//!  "reached":true,"frees_after":0.8},"at":"2026-11-16T01:41:31Z"}
//! ```
//!
//! A part is reached while it limits the request. An `or` is free again when the last of its parts is, and an `and`
//! when the first is. The request passes when the whole tree is free.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tollway_core::{Expression, Nanos, RuleBill, Timestamp};

use super::server_response::{ResponseError, parse_seconds, read_body, unexpected_body};
use crate::decimal::put_seconds;
use crate::json::put_string;
use crate::rfc3339::{Rfc3339, parse_rfc3339};

/// An explanation of which parts of a rule limit a request.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleExplanation {
    /// The rule, written in its canonical form.
    pub rule: String,
    /// The root of the rule's tree.
    pub tree: RulePart,
    /// The time of this observation, which is taken from the store's clock.
    pub at: Timestamp,
}

impl RuleExplanation {
    /// Creates an explanation of `rule` as it was at the time `at`.
    pub const fn new(rule: String, tree: RulePart, at: Timestamp) -> Self {
        Self { rule, tree, at }
    }
}

/// A part of a rule, which may be the whole rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct RulePart {
    /// The kind of this part, with its own parts.
    pub kind: RulePartKind,
    /// The time until this part no longer limits. [`Duration::ZERO`] means that it does not limit now,
    /// [`Duration::MAX`] that waiting does not help, and `None` that the time is not known.
    pub frees_after: Option<Duration>,
}

/// The kind that a part of a rule has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulePartKind {
    /// Limits if the rate is reached.
    Rate {
        /// The rate, written in its canonical form.
        rate: String,
        /// The name of the log that is counted. `None` if the selector has no value.
        log: Option<String>,
    },
    /// Limits if any part is reached.
    Or(Vec<RulePart>),
    /// Limits if all parts are reached.
    And(Vec<RulePart>),
}

impl RulePart {
    /// Builds the tree of a bill's rule. `reached_for` returns how long the rate with this index stays reached;
    /// [`Nanos::FOREVER`] if no waiting helps.
    pub fn from_bill(bill: &RuleBill<'_>, reached_for: impl Fn(usize) -> Option<Nanos>) -> Self {
        Self::from_expression(bill, bill.limit().rule().expression(), &reached_for)
    }

    fn from_expression(
        bill: &RuleBill<'_>,
        expression: &Expression,
        reached_for: &impl Fn(usize) -> Option<Nanos>,
    ) -> Self {
        let all = |parts: &[Expression]| -> Vec<Self> {
            parts.iter().map(|part| Self::from_expression(bill, part, reached_for)).collect()
        };
        let spans = |parts: &[Self]| parts.iter().map(|part| part.frees_after).collect::<Option<Vec<_>>>();
        match expression {
            Expression::Charge(index) => {
                let rule = bill.limit().rule();
                let log = bill.identifiers()[rule.rates()[*index].log()].as_deref().map(str::to_owned);
                let rate = rule.display_rate(*index).to_string();
                let frees_after = reached_for(*index).map(frees_after);
                Self { kind: RulePartKind::Rate { rate, log }, frees_after }
            }
            Expression::Or(parts) => {
                let parts = all(parts);
                let last = spans(&parts).map(|spans| spans.into_iter().max().unwrap_or(Duration::ZERO));
                Self { kind: RulePartKind::Or(parts), frees_after: last }
            }
            Expression::And(parts) => {
                let parts = all(parts);
                let first = spans(&parts).map(|spans| spans.into_iter().min().unwrap_or(Duration::MAX));
                Self { kind: RulePartKind::And(parts), frees_after: first }
            }
        }
    }

    fn put_json(&self, out: &mut Vec<u8>) {
        match &self.kind {
            RulePartKind::Rate { rate, log } => {
                out.extend_from_slice(br#"{"rate":"#);
                put_string(out, rate);
                out.extend_from_slice(br#","log":"#);
                match log {
                    Some(log) => put_string(out, log),
                    None => out.extend_from_slice(b"null"),
                }
            }
            RulePartKind::Or(parts) => put_parts(out, br#"{"or":["#, parts),
            RulePartKind::And(parts) => put_parts(out, br#"{"and":["#, parts),
        }
        let reached = self.frees_after.map(|span| span > Duration::ZERO);
        out.extend_from_slice(br#","reached":"#);
        out.extend_from_slice(match reached {
            Some(true) => b"true",
            Some(false) => b"false",
            None => b"null",
        });
        out.extend_from_slice(br#","frees_after":"#);
        match self.frees_after.filter(|span| *span < Duration::MAX) {
            Some(span) => put_seconds(out, span.into()),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b'}');
    }
}

/// Converts the time that a rate stays reached.
fn frees_after(span: Nanos) -> Duration {
    if span.is_forever() { Duration::MAX } else { span.into() }
}

fn put_parts(out: &mut Vec<u8>, before: &[u8], parts: &[RulePart]) {
    out.extend_from_slice(before);
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        part.put_json(out);
    }
    out.push(b']');
}

impl RuleExplanation {
    /// Appends the response body as JSON.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"rule":"#);
        put_string(out, &self.rule);
        out.extend_from_slice(br#","tree":"#);
        self.tree.put_json(out);
        out.extend_from_slice(format!(r#","at":"{}"}}"#, Rfc3339(self.at)).as_bytes());
    }

    /// Parses the body of a response with this status.
    pub fn from_json(status: u16, body: &[u8]) -> Result<Self, ResponseError> {
        let RuleExplanationFields { rule, tree, at } = read_body(status, body)?;
        let tree = tree.into_part().ok_or_else(|| unexpected_body(status, "\"tree\" is malformed"))?;
        let at =
            parse_rfc3339(at).ok_or_else(|| unexpected_body(status, "\"at\" is not an RFC 3339 time"))?;
        Ok(Self { rule, tree, at })
    }
}

/// The fields that a response may have. Unknown ones are ignored: a later server may add some.
#[derive(Deserialize)]
struct RuleExplanationFields<'a> {
    rule: String,
    #[serde(borrow)]
    tree: RulePartFields<'a>,
    at: &'a str,
}

#[derive(Deserialize)]
struct RulePartFields<'a> {
    rate: Option<String>,
    log: Option<String>,
    #[serde(borrow)]
    or: Option<Vec<RulePartFields<'a>>>,
    #[serde(borrow)]
    and: Option<Vec<RulePartFields<'a>>>,
    reached: Option<bool>,
    #[serde(borrow)]
    frees_after: Option<&'a RawValue>,
}

impl RulePartFields<'_> {
    /// Converts the fields to a part. Returns `None` if they contradict each other.
    fn into_part(self) -> Option<RulePart> {
        let all = |parts: Vec<Self>| parts.into_iter().map(Self::into_part).collect::<Option<Vec<_>>>();
        let kind = match (self.rate, self.or, self.and) {
            (Some(rate), None, None) => RulePartKind::Rate { rate, log: self.log },
            (None, Some(parts), None) => RulePartKind::Or(all(parts)?),
            (None, None, Some(parts)) => RulePartKind::And(all(parts)?),
            _ => return None,
        };
        let frees_after = match (self.reached, self.frees_after) {
            (Some(false), _) => Some(Duration::ZERO),
            (Some(true), None) => Some(Duration::MAX),
            (Some(true), after) => Some(parse_seconds(after).filter(|span| *span > Duration::ZERO)?),
            (None, _) => None,
        };
        Some(RulePart { kind, frees_after })
    }
}

#[cfg(test)]
mod tests {
    use tollway_core::{KeyedRule, RuleLimit};

    use super::*;

    fn explained(rule: &str, reached_for: &[Option<u64>]) -> RuleExplanation {
        let rule = KeyedRule::new(RuleLimit::new(rule.parse().unwrap()), "", "key");
        let bill = rule.bill(|name| Ok::<_, ()>((name != "nobody").then_some("v"))).unwrap();
        let tree = RulePart::from_bill(&bill, |rate| reached_for[rate].map(Nanos::new));
        RuleExplanation { rule: bill.limit().rule().to_string(), tree, at: Timestamp::EPOCH }
    }

    #[test]
    fn a_part_frees_with_the_last_of_an_or_and_the_first_of_an_and() {
        const FOREVER: Option<u64> = Some(u64::MAX);
        for (rule, reached_for, whole) in [
            ("1/s", &[Some(5)][..], Some(5)),
            ("Or('1/s', 'u:1/s')", &[Some(5), Some(7)], Some(7)),
            ("And('1/s', 'u:1/s')", &[Some(5), Some(7)], Some(5)),
            ("And('1/s', Or('u:1/s', 'v:1/s'))", &[Some(9), Some(5), Some(7)], Some(7)),
            ("Or('1/s', And('u:1/s', 'v:1/s'))", &[Some(0), Some(5), FOREVER], Some(5)),
            ("Or('1/s', '0/s')", &[Some(3), FOREVER], FOREVER),
            ("Or()", &[], Some(0)),
            ("And()", &[], FOREVER),
            ("Or('1/s', '2/s')", &[Some(3), None], None),
        ] {
            let explained = explained(rule, reached_for);
            assert_eq!(explained.tree.frees_after, whole.map(Nanos::new).map(frees_after), "{rule}");
            let mut json = Vec::new();
            explained.put_json(&mut json);
            let again = RuleExplanation::from_json(200, &json);
            assert_eq!(again.unwrap(), explained, "{}", String::from_utf8_lossy(&json));
        }
    }

    #[test]
    fn the_answer_reads_as_documented() {
        let explained =
            explained("Or('10/s', And('user:1/h', 'nobody:1/h'))", &[Some(800_000_000), Some(0), Some(0)]);
        let mut json = Vec::new();
        explained.put_json(&mut json);
        let expected = concat!(
            r#"{"rule":"Or('10/s', And('user:1/h', 'nobody:1/h'))","tree":{"or":["#,
            r#"{"rate":"10/s","log":":key","reached":true,"frees_after":0.8},"#,
            r#"{"and":[{"rate":"user:1/h","log":":key:user:v","reached":false,"frees_after":0},"#,
            r#"{"rate":"nobody:1/h","log":null,"reached":false,"frees_after":0}],"reached":false,"frees_after":0}],"#,
            r#""reached":true,"frees_after":0.8},"at":"1970-01-01T00:00:00Z"}"#,
        );
        assert_eq!(String::from_utf8_lossy(&json), expected);
    }

    #[test]
    fn what_makes_no_sense_is_no_explanation() {
        for tree in [
            "{}",
            r#"{"reached":true}"#,
            r#"{"or":[],"and":[],"reached":true}"#,
            r#"{"rate":"1/s","or":[],"reached":true}"#,
            r#"{"or":[{}],"reached":true}"#,
            r#"{"rate":"1/s","reached":true,"frees_after":-1}"#,
            r#"{"rate":"1/s","reached":true,"frees_after":0}"#,
        ] {
            let body = format!(r#"{{"rule":"1/s","tree":{tree},"at":"1970-01-01T00:00:00Z"}}"#);
            assert!(RuleExplanation::from_json(200, body.as_bytes()).is_err(), "{tree}");
        }
    }
}

//! The commands spend, check, refund and reset, which are read from JSON.
//!
//! ```text
//! {"limit":"Login","id":"alice","cost":2}
//! {"limit":{"burst":5,"count":10,"period":"1m"},"id":"alice"}
//! {"charges":[{"limit":"Login","id":"alice"},{"limit":"All","id":"*","kind":"check_only"}]}
//! {"charges":[{"limit":"Login","id":"alice"}],"rules":[{"rule":"upload","selectors":{"user":"alice"}}]}
//! ```
//!
//! An unknown field is an error and is not ignored: it may be one that changes the decision.

mod inline_limit;
mod json;

use std::str::Utf8Error;

use thiserror::Error;
pub use tollway_core::ChargeRequest;
use tollway_core::{ChargeKind, RuleRequest, Verb};

use super::rule::HttpRuleRequest;
use crate::decimal::put_u64;
use crate::json::put_string;

/// A command that was decoded from one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCommand<'a> {
    /// The action to run on the buckets.
    pub verb: Verb,
    charges: ChargeRequests<'a>,
    rules: Vec<RuleRequest<'a>>,
}

/// The charges that a command has. A single charge, the usual case, needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChargeRequests<'a> {
    /// Holds exactly one charge.
    One(ChargeRequest<'a>),
    /// Holds any number of charges.
    Many(Vec<ChargeRequest<'a>>),
}

/// An error that makes a request's body or query string unusable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[error("{detail}")]
pub struct MalformedRequest {
    /// The field that is wrong, such as `cost` or `charges[1].cost`. `None` if the error is not about one field.
    pub field: Option<String>,
    /// A sentence that says what is wrong, and what would be right.
    pub detail: String,
}

/// The error that JSON cannot carry an id or the value of a selector, because it is not UTF-8.
///
/// To replace the invalid bytes would be worse than an error: two ids would then share one bucket.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[error(
    "id \"{id}\" is not UTF-8, and JSON carries no other bytes; send it as text, for example in hexadecimal"
)]
pub struct IdNotUtf8 {
    /// The id, with escapes such as `\xff`.
    pub id: String,
    /// The place of the first invalid byte.
    pub source: Utf8Error,
}

impl IdNotUtf8 {
    pub(super) fn check(id: &[u8]) -> Result<&str, Self> {
        str::from_utf8(id).map_err(|source| Self { id: id.escape_ascii().to_string(), source })
    }
}

impl<'a> HttpCommand<'a> {
    /// Creates a command for these charges.
    pub const fn new(verb: Verb, charges: ChargeRequests<'a>) -> Self {
        Self { verb, charges, rules: Vec::new() }
    }

    /// Returns the same command with these rules in its bill.
    pub fn with_rules(mut self, rules: Vec<RuleRequest<'a>>) -> Self {
        self.rules = rules;
        self
    }

    /// Parses the body of a `POST`.
    pub fn from_json(verb: Verb, body: &'a [u8]) -> Result<Self, MalformedRequest> {
        let (charges, rules) = json::read(verb, body)?;
        Ok(Self { verb, charges, rules })
    }

    /// Appends the body in the form that [`from_json`](Self::from_json) reads. After an error `out` has a part of it.
    pub fn put_json(&self, out: &mut Vec<u8>) -> Result<(), IdNotUtf8> {
        match &self.charges {
            ChargeRequests::One(charge) => put_charge(charge, self.verb, out)?,
            ChargeRequests::Many(charges) => {
                out.extend_from_slice(br#"{"charges":"#);
                put_array(charges, out, |charge, out| put_charge(charge, self.verb, out))?;
                out.push(b'}');
            }
        }
        if !self.rules.is_empty() {
            out.pop();
            out.extend_from_slice(br#","rules":"#);
            put_array(&self.rules, out, |rule, out| {
                HttpRuleRequest::of(rule)?.put_json(out);
                Ok(())
            })?;
            out.push(b'}');
        }
        Ok(())
    }

    /// Returns the rules of the bill.
    pub fn rules(&self) -> &[RuleRequest<'a>] {
        &self.rules
    }

    /// Returns true if the request has a list of charges, also of one: its fields are those of `charges[0]`.
    pub const fn has_charge_list(&self) -> bool {
        matches!(self.charges, ChargeRequests::Many(_))
    }

    /// Returns the charges: at most [`CHARGES_MAX`](tollway_core::bill::CHARGES_MAX), and at least one if there are no
    /// rules.
    pub fn charges(&self) -> &[ChargeRequest<'a>] {
        match &self.charges {
            ChargeRequests::One(charge) => std::slice::from_ref(charge),
            ChargeRequests::Many(charges) => charges,
        }
    }
}

fn put_array<T>(
    items: &[T],
    out: &mut Vec<u8>,
    put: impl Fn(&T, &mut Vec<u8>) -> Result<(), IdNotUtf8>,
) -> Result<(), IdNotUtf8> {
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        put(item, out)?;
    }
    out.push(b']');
    Ok(())
}

fn put_charge(charge: &ChargeRequest<'_>, verb: Verb, out: &mut Vec<u8>) -> Result<(), IdNotUtf8> {
    let id = IdNotUtf8::check(&charge.id)?;
    out.extend_from_slice(br#"{"limit":"#);
    match &charge.inline {
        None => put_string(out, &charge.limit),
        Some(inline) => inline_limit::put(inline.token_bucket(), out),
    }
    out.extend_from_slice(br#","id":"#);
    put_string(out, id);
    if verb.has_cost() {
        out.extend_from_slice(br#","cost":"#);
        put_u64(out, charge.cost);
    }
    if verb.has_kind() && charge.kind != ChargeKind::Spend {
        out.extend_from_slice(br#","kind":"#);
        put_string(out, charge.kind.name());
    }
    out.push(b'}');
    Ok(())
}

pub(super) fn missing_field(field: &str, what: &str) -> MalformedRequest {
    MalformedRequest { field: Some(field.to_owned()), detail: format!("\"{field}\" is missing; {what}") }
}

#[cfg(test)]
mod tests {
    use tollway_core::bill::{CHARGES_MAX, RULES_MAX};

    use super::*;

    fn show(verb: Verb, body: &str) -> String {
        match HttpCommand::from_json(verb, body.as_bytes()) {
            Ok(command) => {
                let shown = command.charges().iter().map(|charge| {
                    let id = String::from_utf8_lossy(&charge.id);
                    format!("{}:{id} {} {:?}", charge.limit, charge.cost, charge.kind)
                });
                let rules = command.rules().iter().map(|RuleRequest { rule, key, selectors }| {
                    let values = selectors.iter().map(|(name, value)| (name, String::from_utf8_lossy(value)));
                    format!("{} {key:?} {:?}", rule.text(), values.collect::<Vec<_>>())
                });
                let shown = shown.chain(rules);
                shown.collect::<Vec<_>>().join(", ")
            }
            Err(MalformedRequest { field, detail }) => {
                format!("{} | {detail}", field.as_deref().unwrap_or("-"))
            }
        }
    }

    #[test]
    fn commands_are_understood() {
        for (verb, body, shown) in [
            (Verb::Spend, r#"{"limit":"L","id":"a"}"#, "L:a 1 Spend"),
            (Verb::Check, r#" {"id":"a" , "limit":"L"} "#, "L:a 1 Spend"),
            (Verb::Refund, r#"{"limit":"L","id":"a","cost":3}"#, "L:a 3 Spend"),
            (Verb::Reset, r#"{"limit":"L","id":"\u0041\n"}"#, "L:A\n 0 Spend"),
            (
                Verb::Spend,
                r#"{"limit":"L","id":"a","cost":18446744073709551615}"#,
                "L:a 18446744073709551615 Spend",
            ),
            (
                Verb::Spend,
                r#"{"charges":[{"limit":"A","id":"x","kind":"check_only"},{"limit":"B","id":"y","cost":2,"kind":"spend_only"}]}"#,
                "A:x 1 CheckOnly, B:y 2 SpendOnly",
            ),
            (Verb::Check, r#"{"limit":"L","id":"a","kind":"spend_only"}"#, "L:a 1 SpendOnly"),
            (
                Verb::Spend,
                r#"{"charges":[{"limit":"A","id":"x"}],"rules":[{"rule":"upload","selectors":{"user":"vova","apikey":null}},{"rule":"r","key":"k"}]}"#,
                r#"A:x 1 Spend, upload None [("user", "vova"), ("apikey", "")], r Some("k") []"#,
            ),
            (Verb::Check, r#"{"rules":[{"rule":"r"}],"limit":"L","id":"a"}"#, "L:a 1 Spend, r None []"),
            (Verb::Spend, r#"{"rules":[{"rule":"r","selectors":{"n":7}}]}"#, r#"r None [("n", "7")]"#),
            (Verb::Spend, r#"{"charges":[],"rules":[{"rule":"r"}]}"#, "r None []"),
            (Verb::Refund, r#"{"charges":[{"limit":"A","id":"x"}]}"#, "A:x 1 Spend"),
            (Verb::Spend, r#"{"charges":[{"limit":"A","id":"x"}],"rules":[]}"#, "A:x 1 Spend"),
            (
                Verb::Refund,
                r#"{"charges":[{"limit":"A","id":"x","kind":"check_only"},{"limit":"B","id":"y","kind":"spend"}]}"#,
                "A:x 1 CheckOnly, B:y 1 Spend",
            ),
        ] {
            assert_eq!(show(verb, body), shown, "{body}");
            let command = HttpCommand::from_json(verb, body.as_bytes()).unwrap();
            let mut again = Vec::new();
            command.put_json(&mut again).unwrap();
            assert_eq!(HttpCommand::from_json(verb, &again).as_ref(), Ok(&command), "{body}");
        }
    }

    #[test]
    fn an_id_that_is_not_utf8_is_an_error() {
        let charges = [ChargeRequest::new("L", "a", 1), ChargeRequest::new("L", b"caf\xe9", 1)];
        for charges in [ChargeRequests::One(charges[1].clone()), ChargeRequests::Many(charges.to_vec())] {
            let error = HttpCommand::new(Verb::Spend, charges).put_json(&mut Vec::new()).unwrap_err();
            assert!(error.to_string().starts_with(r#"id "caf\xe9" is not UTF-8"#), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        let whole = "expected a whole number from 0 to 18446744073709551615 at line 1 column";
        for (verb, body, shown) in [
            (Verb::Spend, "", "- | the body is empty".to_owned()),
            (Verb::Spend, " \n", "- | the body is empty".to_owned()),
            (Verb::Spend, "{\n", "- | EOF while parsing".to_owned()),
            (Verb::Spend, "x", "- | expected value".to_owned()),
            (Verb::Spend, "[]", "- | invalid type: sequence, expected an object such as".to_owned()),
            (Verb::Spend, "{}", "id | \"id\" is missing".to_owned()),
            (Verb::Spend, r#"{"id":"a"}"#, "limit | \"limit\" is missing".to_owned()),
            (Verb::Spend, r#"{"limit":"L","id":"a"}}"#, "- | trailing characters".to_owned()),
            (Verb::Spend, r#"{"limit":"L","id":7}"#, "id | \"id\": invalid type: integer `7`, expected a string".to_owned()),
            (Verb::Spend, r#"{"limit":null,"id":"a"}"#, "limit | \"limit\": invalid type: null".to_owned()),
            (Verb::Spend, r#"{"limit":"L","limit":"L"}"#, "limit | \"limit\": given twice".to_owned()),
            (Verb::Spend, r#"{"limit":"L","id":"a","cots":1}"#, "- | unknown field \"cots\": a spend has \"limit\", \"id\", \"cost\" and \"kind\", or \"charges\"".to_owned()),
            (Verb::Reset, r#"{"limit":"L","id":"a","cost":1}"#, "- | unknown field \"cost\": a reset has".to_owned()),
            (Verb::Spend, r#"{"cost":-1}"#, format!("cost | \"cost\": invalid type: integer `-1`, {whole}")),
            (Verb::Spend, r#"{"cost":1.5}"#, format!("cost | \"cost\": invalid type: floating point `1.5`, {whole}")),
            (Verb::Spend, r#"{"cost":18446744073709551616}"#, "cost | \"cost\": invalid type: floating point".to_owned()),
            (Verb::Spend, r#"{"cost":1e400}"#, "cost | \"cost\": number out of range".to_owned()),
            (Verb::Spend, r#"{"cost":NaN}"#, "cost | \"cost\": expected value".to_owned()),
            (Verb::Spend, r#"{"cost":"1"}"#, "cost | \"cost\": invalid type: string \"1\"".to_owned()),
            (Verb::Spend, r#"{"charges":{}}"#, "charges | \"charges\": invalid type: map, expected an array".to_owned()),
            (Verb::Spend, r#"{"charges":[]}"#, "charges | \"charges\": a bill has at least one charge".to_owned()),
            (Verb::Spend, r#"{"charges":[{"limit":"A","id":"x"},{"limit":"B"}]}"#, "charges[1] | \"charges[1]\": \"id\" is missing".to_owned()),
            (Verb::Spend, r#"{"charges":[{"limit":"A","id":"x","cost":[]}]}"#, "charges[0].cost | \"charges[0].cost\": invalid type: sequence".to_owned()),
            (Verb::Spend, r#"{"charges":[{"kind":"both"}]}"#, "charges[0].kind | \"charges[0].kind\": invalid value: string \"both\", expected \"spend\", \"spend_only\" or \"check_only\"".to_owned()),
            (Verb::Reset, r#"{"limit":"L","id":"a","kind":"spend"}"#, "- | unknown field \"kind\": a reset has".to_owned()),
            (Verb::Spend, r#"{"charges":[{"charges":[]}]}"#, "charges[0] | \"charges[0]\": unknown field \"charges\"".to_owned()),
            (Verb::Refund, r#"{"limit":"L","id":"a","rules":[]}"#, "rules | \"rules\": a refund cannot have rules; only spend and check can".to_owned()),
            (Verb::Reset, r#"{"rules":[{"rule":"r"}]}"#, "rules | \"rules\": a reset cannot have rules".to_owned()),
            (Verb::Spend, r#"{"rules":[]}"#, "id | \"id\" is missing".to_owned()),
            (Verb::Spend, r#"{"charges":[],"rules":[]}"#, "charges | \"charges\": a bill has at least one charge or rule".to_owned()),
            (Verb::Spend, r#"{"rules":{}}"#, "rules | \"rules\": invalid type: map, expected an array".to_owned()),
            (Verb::Spend, r#"{"rules":[{"rule":"r"},{"key":"k"}]}"#, "rules[1] | \"rules[1]\": \"rule\" is missing".to_owned()),
            (Verb::Spend, r#"{"rules":[{"rule":"r","selectors":{"u":1.5}}]}"#, "rules[0].selectors.u | \"rules[0].selectors.u\": invalid type: floating point".to_owned()),
            (Verb::Spend, r#"{"charges":[{"rules":[]}]}"#, "charges[0] | \"charges[0]\": unknown field \"rules\"".to_owned()),
            (Verb::Spend, r#"{"limit":"L","charges":[{"limit":"A","id":"x"}]}"#, "charges | \"charges\" cannot be combined".to_owned()),
        ] {
            assert!(show(verb, body).starts_with(&shown), "{body}: {}", show(verb, body));
        }
        let many = vec![r#"{"limit":"A","id":"x"}"#; CHARGES_MAX + 1].join(",");
        let shown = show(Verb::Spend, &format!(r#"{{"charges":[{many}]}}"#));
        assert!(shown.starts_with("charges[32] | \"charges[32]\": a bill has at most 32 charges"), "{shown}");
        let many = [r#"{"rule":"r"}"#; RULES_MAX + 1].join(",");
        let shown = show(Verb::Spend, &format!(r#"{{"rules":[{many}]}}"#));
        assert!(shown.starts_with("rules[8] | \"rules[8]\": a bill has at most 8 rules"), "{shown}");
        let deep = format!(r#"{{"charges":{}"#, "[".repeat(10_000));
        assert!(show(Verb::Spend, &deep).starts_with("charges[0] | "), "{}", show(Verb::Spend, &deep));
    }
}

//! The request and the response that `POST /v1/rules/upload` has, the request of `POST /v1/explain`, and the rules of a
//! bill.
//!
//! ```text
//! {"selectors":{"user":"vova","apikey":null},"key":"cats"}
//! {"rule":"Or('10/s', 'user:5/m')","selectors":{"user":0}}
//! ```
//!
//! A value is a string or a whole number. Other numbers are refused, because `1.0` and `1` may or may not be the same
//! client. `null` and the empty string are no value. Selectors that the rule does not name are ignored, so that a
//! caller can send all it has.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tollway_core::bill::RULES_MAX;
use tollway_core::rule::RATES_MAX;
use tollway_core::{KeyedRule, RuleBill, RuleLookupError, RuleRef, RuleRequest};

use super::command::{IdNotUtf8, MalformedRequest, missing_field};
use super::json_object::{FieldPath, JsonObject, ObjectReader, duplicate_field, truncate_name};
use super::query_string::percent_encode;
use super::server_response::{ResponseError, parse_seconds, read_body};
use crate::json::{StrSeed, put_string};

/// The greatest number of selectors that a request may have. A rule cannot name more.
const SELECTORS_MAX: usize = RATES_MAX;

/// A request to check or explain a rule, with a key and values for its selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRuleRequest<'a> {
    /// The name of the rule. To explain, an expression is accepted too.
    pub rule: Cow<'a, str>,
    /// The key to count under. `None` uses the key of the rule.
    pub key: Option<Cow<'a, str>>,
    /// The names and values of selectors. Each name occurs once; `None` and the empty string are no value.
    pub selectors: Vec<(Cow<'a, str>, Option<Cow<'a, str>>)>,
}

/// The decision of a rule, as a client receives it.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleResponse {
    /// True if the request may pass.
    pub allowed: bool,
    /// The time until a denied request would pass. `None` if it was allowed, or if waiting does not help.
    pub retry_after: Option<Duration>,
    /// The reason, if it is not the rule itself: `full` or `store`.
    pub reason: Option<String>,
    /// True if the store did not answer, and the rule's `on_store_failure` decided.
    pub degraded: bool,
}

impl<'a> HttpRuleRequest<'a> {
    /// Parses a request whose path names the rule. The body may be empty.
    pub fn for_rule(name: &'a str, body: &'a [u8]) -> Result<Self, MalformedRequest> {
        let (path, empty) = (FieldPath::default(), body.trim_ascii().is_empty());
        let empty_fields = RuleRequestFields::new(false, &path);
        let fields = if empty { empty_fields } else { ObjectReader(empty_fields).read_body(body, &path)? };
        Ok(fields.into_request(name.into()))
    }

    /// Parses a request whose body names the rule.
    pub fn from_json(body: &'a [u8]) -> Result<Self, MalformedRequest> {
        let path = FieldPath::default();
        let fields = ObjectReader(RuleRequestFields::new(true, &path)).read_body(body, &path)?;
        fields.into_named("send a name or an expression as a string")
    }

    /// Returns a request for a rule of the configuration in the form of JSON, which has text only.
    pub(super) fn of(request: &'a RuleRequest<'_>) -> Result<Self, IdNotUtf8> {
        let selectors = request
            .selectors
            .iter()
            .map(|(name, value)| Ok((Cow::Borrowed(&**name), Some(Cow::Borrowed(IdNotUtf8::check(value)?)))));
        let selectors = selectors.collect::<Result<_, _>>()?;
        let key = request.key.as_deref().map(Cow::Borrowed);
        Ok(Self { rule: request.rule.text().into(), key, selectors })
    }

    /// Returns a request for the rule that has this name in the configuration.
    fn into_rule_request(self) -> RuleRequest<'a> {
        let bytes = |text| match text {
            Cow::Borrowed(text) => Cow::Borrowed(str::as_bytes(text)),
            Cow::Owned(text) => Cow::Owned(String::into_bytes(text)),
        };
        let selectors = self.selectors.into_iter();
        let selectors = selectors.map(|(name, value)| (name, value.map(bytes).unwrap_or_default()));
        let rule = RuleRef::Named(self.rule.into_owned());
        RuleRequest { rule, key: self.key, selectors: selectors.collect() }
    }

    /// Returns the path of the request, for a rule of the configuration.
    pub fn path(&self) -> String {
        format!("/v1/rules/{}", percent_encode(self.rule.as_bytes()))
    }

    /// Appends the body in the form that [`from_json`](Self::from_json) reads.
    pub fn put_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"rule":"#);
        put_string(out, &self.rule);
        self.put_rest(b",", out);
    }

    /// Appends the body in the form that [`for_rule`](Self::for_rule) reads.
    pub fn put_json_without_rule(&self, out: &mut Vec<u8>) {
        self.put_rest(b"{", out);
    }

    fn put_rest(&self, before: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(before);
        if let Some(key) = &self.key {
            out.extend_from_slice(br#""key":"#);
            put_string(out, key);
            out.push(b',');
        }
        out.extend_from_slice(br#""selectors":{"#);
        for (index, (name, value)) in self.selectors.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            put_string(out, name);
            out.push(b':');
            match value {
                Some(value) => put_string(out, value),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.extend_from_slice(b"}}");
    }

    /// Makes the bill of this request for `rule`.
    pub fn bill<'r>(&self, rule: &'r KeyedRule) -> Result<RuleBill<'r>, RuleLookupError> {
        rule.bill_of(&self.rule, |selector| {
            let given = self.selectors.iter().find(|(name, _)| name == selector);
            given.map(|(_, value)| value.as_deref().map(str::as_bytes))
        })
    }
}

impl RuleResponse {
    /// Parses the body of a response with this status.
    pub fn from_json(status: u16, body: &[u8]) -> Result<Self, ResponseError> {
        /// The fields that a response may have. Unknown ones are ignored: a later server may add some.
        #[derive(Deserialize)]
        struct RuleResponseFields<'a> {
            allowed: bool,
            #[serde(borrow)]
            retry_after: Option<&'a RawValue>,
            reason: Option<String>,
            degraded: Option<bool>,
        }
        let RuleResponseFields { allowed, retry_after, reason, degraded } = read_body(status, body)?;
        Ok(Self {
            allowed,
            retry_after: parse_seconds(retry_after),
            reason,
            degraded: degraded.unwrap_or(false),
        })
    }
}

/// The fields that a request's JSON object may have.
struct RuleRequestFields<'a, 't> {
    names_rule: bool,
    path: &'t FieldPath,
    rule: Option<Cow<'a, str>>,
    key: Option<Option<Cow<'a, str>>>,
    selectors: Option<SelectorFields<'a, 't>>,
}

impl<'a, 't> RuleRequestFields<'a, 't> {
    fn new(names_rule: bool, path: &'t FieldPath) -> Self {
        Self { names_rule, path, rule: None, key: None, selectors: None }
    }

    fn into_request(self, rule: Cow<'a, str>) -> HttpRuleRequest<'a> {
        let selectors = self.selectors.map(|selectors| selectors.values).unwrap_or_default();
        HttpRuleRequest { rule, key: self.key.flatten(), selectors }
    }
}

impl<'a> RuleRequestFields<'a, '_> {
    fn into_named(mut self, accepted: &str) -> Result<HttpRuleRequest<'a>, MalformedRequest> {
        let rule = self.rule.take().ok_or_else(|| missing_field("rule", accepted))?;
        Ok(self.into_request(rule))
    }
}

/// Deserializes the rules of a bill.
pub(super) struct RulesSeed<'t>(pub(super) &'t FieldPath);

impl<'de> DeserializeSeed<'de> for RulesSeed<'_> {
    type Value = Vec<RuleRequest<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for RulesSeed<'_> {
    type Value = Vec<RuleRequest<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array of at most {RULES_MAX} rules")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut rules = Vec::new();
        while let Some(rule) = self.0.in_item(rules.len(), self.next(&mut seq, rules.len()))? {
            rules.push(rule.into_rule_request());
        }
        Ok(rules)
    }
}

impl RulesSeed<'_> {
    /// Reads the next rule. `before` is the number of rules that were read already.
    fn next<'de, A: SeqAccess<'de>>(
        &self,
        seq: &mut A,
        before: usize,
    ) -> Result<Option<HttpRuleRequest<'de>>, A::Error> {
        let reader = ObjectReader(RuleRequestFields::new(true, self.0));
        let Some(fields) = seq.next_element_seed(reader)? else { return Ok(None) };
        if before == RULES_MAX {
            return Err(A::Error::custom(format_args!("a bill has at most {RULES_MAX} rules")));
        }
        let named = fields.into_named("send the name of a rule as a string");
        named.map(Some).map_err(|malformed| A::Error::custom(malformed.detail))
    }
}

impl<'de> JsonObject<'de> for RuleRequestFields<'de, '_> {
    const EXAMPLE: &'static str = r#"{"selectors":{"user":"vova"}}"#;

    fn read<A: MapAccess<'de>>(&mut self, name: Cow<'de, str>, map: &mut A) -> Result<(), A::Error> {
        let Self { names_rule, path, .. } = *self;
        match &*name {
            "rule" if names_rule => path.read_once(map, &name, &mut self.rule, StrSeed),
            "key" => path.read_once(map, &name, &mut self.key, ScalarSeed::TEXT),
            "selectors" => {
                let selectors = SelectorFields { path, values: Vec::new() };
                path.read_once(map, &name, &mut self.selectors, ObjectReader(selectors))
            }
            unknown => {
                let (name, rule) = (truncate_name(unknown), if names_rule { "\"rule\", " } else { "" });
                Err(A::Error::custom(format_args!(
                    "unknown field \"{name}\"; send {rule}\"selectors\" or \"key\""
                )))
            }
        }
    }
}

/// The selectors that an object has, by name.
struct SelectorFields<'a, 't> {
    path: &'t FieldPath,
    values: Vec<(Cow<'a, str>, Option<Cow<'a, str>>)>,
}

impl<'de> JsonObject<'de> for SelectorFields<'de, '_> {
    const EXAMPLE: &'static str = r#"{"user":"vova"}"#;

    fn read<A: MapAccess<'de>>(&mut self, name: Cow<'de, str>, map: &mut A) -> Result<(), A::Error> {
        if self.values.len() == SELECTORS_MAX {
            return Err(A::Error::custom(format_args!("too many selectors; send at most {SELECTORS_MAX}")));
        }
        let given = self.values.iter().any(|(earlier, _)| *earlier == name);
        let read =
            if given { Err(duplicate_field()) } else { map.next_value_seed(ScalarSeed::TEXT_OR_NUMBER) };
        let value = self.path.in_field(&name, read)?;
        self.values.push((name, value));
        Ok(())
    }
}

/// Deserializes a string or `null`, and a whole number if `number` is set.
#[derive(Clone, Copy)]
struct ScalarSeed {
    number: bool,
}

impl ScalarSeed {
    const TEXT: Self = Self { number: false };
    const TEXT_OR_NUMBER: Self = Self { number: true };

    fn whole<E: Error>(self, number: impl fmt::Display) -> Result<Option<Cow<'static, str>>, E> {
        if self.number {
            return Ok(Some(number.to_string().into()));
        }
        let given = format!("the number \"{number}\"");
        Err(E::invalid_type(serde::de::Unexpected::Other(&given), &self))
    }
}

impl<'de> DeserializeSeed<'de> for ScalarSeed {
    type Value = Option<Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ScalarSeed {
    type Value = Option<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.number { "a string, a whole number or null" } else { "a string or null" })
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        self.whole(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        self.whole(number)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(asked: Result<HttpRuleRequest<'_>, MalformedRequest>) -> String {
        match asked {
            Ok(HttpRuleRequest { rule, key, selectors }) => format!("{rule} {key:?} {selectors:?}"),
            Err(MalformedRequest { field, detail }) => {
                format!("{} | {detail}", field.as_deref().unwrap_or("-"))
            }
        }
    }

    #[test]
    fn what_is_asked_is_understood_and_written() {
        for (body, shown) in [
            (r#"{"rule":"r"}"#, "r None []"),
            (
                r#" {"selectors":{"user":"vova","apikey":null},"rule":"r","key":"k"} "#,
                r#"r Some("k") [("user", Some("vova")), ("apikey", None)]"#,
            ),
            (
                r#"{"rule":"10/s","selectors":{"a":0,"b":-7,"c":18446744073709551615,"d":""}}"#,
                r#"10/s None [("a", Some("0")), ("b", Some("-7")), ("c", Some("18446744073709551615")), ("d", Some(""))]"#,
            ),
            (
                r#"{"rule":"\u0072","key":"","selectors":{"\u0061":"\n"}}"#,
                r#"r Some("") [("a", Some("\n"))]"#,
            ),
            (r#"{"rule":"r","key":null,"selectors":{}}"#, "r None []"),
        ] {
            let asked = HttpRuleRequest::from_json(body.as_bytes());
            assert_eq!(show(asked.clone()), shown);
            let (mut again, mut for_rule) = (Vec::new(), Vec::new());
            asked.as_ref().unwrap().put_json(&mut again);
            asked.as_ref().unwrap().put_json_without_rule(&mut for_rule);
            assert_eq!(HttpRuleRequest::from_json(&again), asked, "{body}");
            assert_eq!(HttpRuleRequest::for_rule(&asked.as_ref().unwrap().rule, &for_rule), asked, "{body}");
        }
        for body in ["", " \n", "{}"] {
            assert_eq!(show(HttpRuleRequest::for_rule("upload", body.as_bytes())), "upload None []");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (body, shown) in [
            ("", "- | EOF while parsing"),
            ("[]", "- | invalid type: sequence, expected an object such as"),
            ("{}", "rule | \"rule\" is missing; send a name or an expression as a string"),
            (r#"{"rule":"r"}}"#, "- | trailing characters"),
            (r#"{"rule":7}"#, "rule | \"rule\": invalid type: integer `7`, expected a string"),
            (r#"{"rule":"r","rule":"r"}"#, "rule | \"rule\": given twice"),
            (
                r#"{"rule":"r","key":7}"#,
                "key | \"key\": invalid type: the number \"7\", expected a string or null",
            ),
            (r#"{"rule":"r","key":"a","key":"a"}"#, "key | \"key\": given twice"),
            (
                r#"{"rule":"r","selectors":[]}"#,
                "selectors | \"selectors\": invalid type: sequence, expected an object such as",
            ),
            (r#"{"rule":"r","selectors":null}"#, "selectors | \"selectors\": invalid type: null"),
            (r#"{"rule":"r","selectors":{},"selectors":{}}"#, "selectors | \"selectors\": given twice"),
            (
                r#"{"rule":"r","selectors":{"user":1.0}}"#,
                "selectors.user | \"selectors.user\": invalid type: floating point `1.0`, expected a string, a whole number or null",
            ),
            (
                r#"{"rule":"r","selectors":{"user":false}}"#,
                "selectors.user | \"selectors.user\": invalid type: boolean `false`",
            ),
            (
                r#"{"rule":"r","selectors":{"user":{}}}"#,
                "selectors.user | \"selectors.user\": invalid type: map",
            ),
            (r#"{"rule":"r","selectors":{"u":1,"u":1}}"#, "selectors.u | \"selectors.u\": given twice"),
            (
                r#"{"rule":"r","user":"vova"}"#,
                "- | unknown field \"user\"; send \"rule\", \"selectors\" or \"key\"",
            ),
        ] {
            let found = show(HttpRuleRequest::from_json(body.as_bytes()));
            assert!(found.starts_with(shown), "{body}: {found}");
        }
        let named = show(HttpRuleRequest::for_rule("upload", br#"{"rule":"r"}"#));
        assert!(named.starts_with("- | unknown field \"rule\"; send \"selectors\" or \"key\""), "{named}");
        let many: Vec<_> = (0..=SELECTORS_MAX).map(|index| format!(r#""s{index}":1"#)).collect();
        let body = format!(r#"{{"selectors":{{{}}}}}"#, many.join(","));
        let found = show(HttpRuleRequest::for_rule("r", body.as_bytes()));
        assert!(found.contains("too many selectors; send at most 32"), "{found}");
        let deep = format!(r#"{{"selectors":{{"a":{}"#, "[".repeat(10_000));
        assert!(HttpRuleRequest::for_rule("r", deep.as_bytes()).is_err());
    }

    #[test]
    fn rulings_are_read() {
        let ruled = |allowed, retry_after: Option<u64>, reason: Option<&str>, degraded| RuleResponse {
            allowed,
            retry_after: retry_after.map(Duration::from_millis),
            reason: reason.map(str::to_owned),
            degraded,
        };
        for (body, expected) in [
            (r#"{"allowed":true}"#, ruled(true, None, None, false)),
            (r#"{"allowed":false,"retry_after":0.8}"#, ruled(false, Some(800), None, false)),
            (r#"{"allowed":false,"retry_after":null}"#, ruled(false, None, None, false)),
            (
                r#"{"allowed":false,"retry_after":1,"reason":"store","degraded":true,"more":1}"#,
                ruled(false, Some(1_000), Some("store"), true),
            ),
        ] {
            assert_eq!(RuleResponse::from_json(200, body.as_bytes()).unwrap(), expected, "{body}");
        }
        assert!(RuleResponse::from_json(200, b"{}").is_err());
    }
}

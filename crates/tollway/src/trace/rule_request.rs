//! Reads and writes requests to the gate `rule` in a trace.
//!
//! ```text
//! upload user=vova apikey=k1          a configured rule, and values for its selectors
//! "Or('1/s', '5/m')" key=stuff        an expression, and the key it is counted under
//! upload user=                        a selector without a value
//! upload \x6bey=vova                  the selector `key`: an escaped `key` is never the keyword
//! ```

use std::borrow::Cow;
use std::fmt;

use tollway_core::rule::RATES_MAX;
use tollway_core::{KeyedRule, Policy, RuleBill, RuleLookupError, RuleRef};

use super::escape::{write_escaped, write_token};
use super::parse::{LineField, LineFields, LocatedProblem, TraceProblem, unescaped};

/// The most selectors that a request can have: as many as a rule can use.
pub(super) const SELECTORS_MAX: usize = RATES_MAX;

/// A request that resolves a rule with a key and values for its selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRequest {
    /// The rule, by name or as an expression.
    pub rule: RuleRef,
    /// The key that the request is counted under, if it is not the rule's own.
    pub key: Option<String>,
    /// The names and values of the selectors. An empty value counts as no value.
    pub selectors: Vec<(String, Vec<u8>)>,
}

impl RuleRequest {
    /// Finds the rule in the policy, or parses its expression.
    pub fn find<'p>(&self, policy: &'p Policy) -> Result<Cow<'p, KeyedRule>, RuleLookupError> {
        policy.find_rule(&self.rule, self.key.as_deref())
    }

    /// Returns the bill that the request makes of its rule.
    pub fn bill<'r>(&self, rule: &'r KeyedRule) -> Result<RuleBill<'r>, RuleLookupError> {
        rule.bill_of(|selector| {
            let given = self.selectors.iter().find(|(name, _)| name == selector);
            given.map(|(_, value)| Some(&value[..]))
        })
    }
}

impl fmt::Display for RuleRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            RuleRef::Named(name) => write_name(f, name)?,
            RuleRef::Written(text) => {
                f.write_str("\"")?;
                let text = text.as_bytes();
                // `=>` would end the request, and a double quote the rule.
                write_escaped(f, text, |at, byte| match byte {
                    b'>' => at == 0 || text[at - 1] != b'=',
                    _ => byte == b' ' || byte.is_ascii_graphic() && byte != b'"',
                })?;
                f.write_str("\"")?;
            }
        }
        if let Some(key) = &self.key {
            f.write_str(" key=")?;
            write_token(f, key.as_bytes())?;
        }
        for (name, value) in &self.selectors {
            f.write_str(" ")?;
            match &**name {
                "key" => f.write_str("\\x6bey")?,
                name => write_name(f, name)?,
            }
            f.write_str("=")?;
            write_token(f, value)?;
        }
        Ok(())
    }
}

/// Writes the name of a rule or a selector, which must not look like an expression or end early at `=`.
fn write_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write_escaped(f, name.as_bytes(), |_, byte| byte.is_ascii_graphic() && !b"=\"".contains(&byte))
}

/// Parses everything that follows the gate.
pub(super) fn parse(fields: &mut LineFields<'_>) -> Result<RuleRequest, LocatedProblem> {
    let rule = rule(fields)?;
    let mut request = RuleRequest { rule, key: None, selectors: Vec::new() };
    for field in fields {
        let Some((name, value)) = field.text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err((field.at, TraceProblem::NotASelector { text: field.text.to_owned() }));
        };
        let value = LineField { text: value, at: field.at + name.len() + 1 };
        if name == "key" {
            let earlier = request.key.replace(text(&value)?);
            earlier.map_or(Ok(()), |_| Err((field.at, TraceProblem::Twice { name: name.to_owned() })))?;
            continue;
        }
        let name = text(&LineField { text: name, at: field.at })?;
        if request.selectors.iter().any(|(earlier, _)| *earlier == name) {
            return Err((field.at, TraceProblem::Twice { name }));
        }
        if request.selectors.len() == SELECTORS_MAX {
            return Err((field.at, TraceProblem::TooManySelectors));
        }
        request.selectors.push((name, unescaped(&value)?));
    }
    Ok(request)
}

fn rule(fields: &mut LineFields<'_>) -> Result<RuleRef, LocatedProblem> {
    let rest = fields.rest();
    let Some(quoted) = rest.text.strip_prefix('"') else {
        let name = fields.next_or_empty();
        if name.text.is_empty() || name.text.contains('=') {
            return Err((name.at, TraceProblem::NoRule));
        }
        return text(&name).map(RuleRef::Named);
    };
    let Some(len) = quoted.find('"') else { return Err((rest.at, TraceProblem::OpenQuote)) };
    fields.at = rest.at + 1 + len + 1;
    text(&LineField { text: &quoted[..len], at: rest.at + 1 }).map(RuleRef::Written)
}

fn text(field: &LineField<'_>) -> Result<String, LocatedProblem> {
    String::from_utf8(unescaped(field)?).map_err(|_| (field.at, TraceProblem::NotText))
}

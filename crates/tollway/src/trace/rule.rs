//! What is asked of a rule, as the trace writes it.
//!
//! ```text
//! upload user=vova apikey=k1          a configured rule, and values for its selectors
//! "Or('1/s', '5/m')" key=stuff        an expression, and the key it is counted under
//! upload user=                        a selector without a value
//! upload \x6bey=vova                  the selector `key`: what is escaped is never the word
//! ```

use std::borrow::Cow;
use std::fmt;

use tollway_core::rule::RATES_MAX;
use tollway_core::{KeyedRule, Policy, RuleBill, RuleLookupError, RuleRef};

use super::escape::{write_escaped, write_token};
use super::parse::{Field, Fields, LocatedProblem, TraceProblem, unescaped};

/// The most selectors of a request: as many as a rule could have.
pub(super) const SELECTORS_MAX: usize = RATES_MAX;

/// A rule, the key it is counted under, and values for its selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRequest {
    /// Which rule.
    pub rule: RuleRef,
    /// The key, if another than the rule's own.
    pub key: Option<String>,
    /// Names and values. An empty value is none.
    pub selectors: Vec<(String, Vec<u8>)>,
}

impl RuleRequest {
    /// The rule that is meant, under its key.
    pub fn find<'p>(&self, policy: &'p Policy) -> Result<Cow<'p, KeyedRule>, RuleLookupError> {
        policy.find_rule(&self.rule, self.key.as_deref())
    }

    /// What is asked of it.
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
                // An arrow would end the request, and a quote the rule.
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

/// Writes what ends at an equals sign, and is no expression.
fn write_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write_escaped(f, name.as_bytes(), |_, byte| byte.is_ascii_graphic() && !b"=\"".contains(&byte))
}

/// Reads all that follows the gate.
pub(super) fn parse(fields: &mut Fields<'_>) -> Result<RuleRequest, LocatedProblem> {
    let rule = rule(fields)?;
    let mut request = RuleRequest { rule, key: None, selectors: Vec::new() };
    for field in fields {
        let Some((name, value)) = field.text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err((field.at, TraceProblem::NotASelector { text: field.text.to_owned() }));
        };
        let value = Field { text: value, at: field.at + name.len() + 1 };
        if name == "key" {
            let earlier = request.key.replace(text(&value)?);
            earlier.map_or(Ok(()), |_| Err((field.at, TraceProblem::Twice { name: name.to_owned() })))?;
            continue;
        }
        let name = text(&Field { text: name, at: field.at })?;
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

fn rule(fields: &mut Fields<'_>) -> Result<RuleRef, LocatedProblem> {
    let rest = fields.rest();
    let Some(quoted) = rest.text.strip_prefix('"') else {
        let name = fields.next_or_nothing();
        if name.text.is_empty() || name.text.contains('=') {
            return Err((name.at, TraceProblem::NoRule));
        }
        return text(&name).map(RuleRef::Named);
    };
    let Some(len) = quoted.find('"') else { return Err((rest.at, TraceProblem::OpenQuote)) };
    fields.at = rest.at + 1 + len + 1;
    text(&Field { text: &quoted[..len], at: rest.at + 1 }).map(RuleRef::Written)
}

fn text(field: &Field<'_>) -> Result<String, LocatedProblem> {
    String::from_utf8(unescaped(field)?).map_err(|_| (field.at, TraceProblem::NotText))
}

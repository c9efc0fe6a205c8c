//! Reads and writes requests to the gate `rule` in a trace, and the rules of a bill at the gate `limit`.
//!
//! ```text
//! upload user=vova apikey=k1          a configured rule, and values for its selectors
//! "Or('1/s', '5/m')" key=stuff        an expression, and the key it is counted under
//! upload user=                        a selector without a value
//! upload \x6bey=vova                  the selector `key`: an escaped `key` is never the keyword
//! ```

use std::fmt;

use tollway_core::rule::RATES_MAX;
use tollway_core::{RuleRef, RuleRequest};

use super::escape::{write_escaped, write_token};
use super::parse::{LineField, LineFields, LocatedProblem, TraceProblem, unescaped};

/// The most selectors that a request can have: as many as a rule can use.
pub(super) const SELECTORS_MAX: usize = RATES_MAX;

/// The word before a rule of a bill.
pub(super) const RULE: &str = "rule=";

/// Writes a request as the gate `rule` has it.
pub(super) fn write(f: &mut fmt::Formatter<'_>, request: &RuleRequest<'_>) -> fmt::Result {
    write_rule(f, &request.rule)?;
    if let Some(key) = &request.key {
        f.write_str(" key=")?;
        write_token(f, key.as_bytes())?;
    }
    for (name, value) in &request.selectors {
        f.write_str(" ")?;
        match &**name {
            "key" => f.write_str("\\x6bey")?,
            "rule" => f.write_str("\\x72ule")?,
            name => write_name(f, name)?,
        }
        f.write_str("=")?;
        write_token(f, value)?;
    }
    Ok(())
}

/// Writes the name of a rule, or its expression in double quotes.
pub(super) fn write_rule(f: &mut fmt::Formatter<'_>, rule: &RuleRef) -> fmt::Result {
    let text = match rule {
        RuleRef::Named(name) => return write_name(f, name),
        RuleRef::Written(text) => text.as_bytes(),
    };
    f.write_str("\"")?;
    // `=>` would end the request, and a double quote the rule.
    write_escaped(f, text, |at, byte| match byte {
        b'>' => at == 0 || text[at - 1] != b'=',
        _ => byte == b' ' || byte.is_ascii_graphic() && byte != b'"',
    })?;
    f.write_str("\"")
}

/// Writes the name of a rule or a selector, which must not look like an expression or end early at `=`.
fn write_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    write_escaped(f, name.as_bytes(), |_, byte| byte.is_ascii_graphic() && !b"=\"".contains(&byte))
}

/// Parses everything that follows the gate.
pub(super) fn parse(fields: &mut LineFields<'_>) -> Result<RuleRequest<'static>, LocatedProblem> {
    let rule = rule(fields)?;
    parse_values(rule, fields)
}

/// Parses the rules of a bill, which are the rest of the line.
pub(super) fn parse_all(fields: &mut LineFields<'_>) -> Result<Vec<RuleRequest<'static>>, LocatedProblem> {
    let mut rules = Vec::new();
    while let Some(field) = fields.next() {
        fields.at = field.at + RULE.len();
        if field.text == RULE {
            return Err((fields.at, TraceProblem::NoRule));
        }
        let rule = rule(fields)?;
        let end = fields.position_of(RULE);
        let values = &mut LineFields { line: &fields.line[..end], at: fields.at };
        rules.push(parse_values(rule, values)?);
        fields.at = end;
    }
    Ok(rules)
}

/// Parses the key and the selectors of a rule.
fn parse_values(rule: RuleRef, fields: &mut LineFields<'_>) -> Result<RuleRequest<'static>, LocatedProblem> {
    let mut request = RuleRequest { rule, key: None, selectors: Vec::new() };
    for field in fields {
        let Some((name, value)) = field.text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err((field.at, TraceProblem::NotASelector { text: field.text.to_owned() }));
        };
        let value = LineField { text: value, at: field.at + name.len() + 1 };
        if name == "key" {
            let earlier = request.key.replace(text(&value)?.into());
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
        request.selectors.push((name.into(), unescaped(&value)?.into()));
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

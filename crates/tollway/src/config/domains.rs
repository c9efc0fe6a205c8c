//! Domains: what a Smockron master holds the clients of each resource to.
//!
//! ```yaml
//! domains:
//!   web: { rules: [{ rate: 1/s, burst: 10 }, { rate: 100 per hour, burst: 20 }] }
//!   search: { rules: [{ interval: 30s, burst: 5m }], logic: gcra }
//! ```

use tollway_core::{Burst, DomainRule, Logic, RateSpec, RateSpecError};
use tollway_core::{Domain, DomainError};

use super::errors::Errors;
use super::fields::{Fields, choice, duration, literal, mapping, refuse};
use super::yaml::{YamlEntry, YamlNode, YamlValue};

const EXAMPLE: &str = "{ rules: [{ rate: 1/s, burst: 10 }] }";
const RULE_EXAMPLE: &str = "{ rate: 1/s, burst: 10 }";

/// Everything under `domains:`. What is wrong is left out: it was reported, and the file is refused.
pub(super) fn read(entry: &YamlEntry, errors: &mut Errors) -> Vec<Domain> {
    if entry.value.is_null() {
        return Vec::new();
    }
    let domains = mapping(entry, &format!("`name: {EXAMPLE}`"), errors).unwrap_or_default();
    domains.iter().filter_map(|domain| read_domain(domain, errors)).collect()
}

fn read_domain(entry: &YamlEntry, errors: &mut Errors) -> Option<Domain> {
    let fields = Fields::read(mapping(entry, EXAMPLE, errors)?, "a domain", &["rules", "logic"], errors);
    let words = [("window", Logic::Window), ("gcra", Logic::Gcra)];
    let logic = fields.get("logic").map_or(Some(Logic::default()), |entry| choice(entry, &words, errors));
    let rules = match fields.get("rules").map(|entry| (entry, &entry.value.value)) {
        Some((_, YamlValue::List(items))) => {
            let rules: Vec<_> = items.iter().map(|item| read_rule(item, errors)).collect();
            rules.into_iter().collect::<Option<Vec<_>>>()
        }
        Some((entry, _)) if !entry.value.is_null() => {
            refuse(entry, &format!("must be a list, such as [{RULE_EXAMPLE}]"), errors)
        }
        _ => Some(Vec::new()),
    };
    let domain = Domain::new(&entry.key.text, rules?, logic?);
    domain.map_err(|error| errors.add(entry.key.at, format!("`{}`: {error}", entry.key.quoted()))).ok()
}

fn read_rule(item: &YamlNode, errors: &mut Errors) -> Option<DomainRule> {
    let YamlValue::Map(entries) = &item.value else {
        let message =
            format!("a rule of a domain is a mapping, such as {RULE_EXAMPLE}, not {}", item.quoted());
        errors.add(item.at, message);
        return None;
    };
    let fields = Fields::read(entries, "a rule of a domain", &["rate", "interval", "burst"], errors);
    let pace = read_pace(item, &fields, errors);
    let burst = match fields.get("burst") {
        Some(entry) => parse(entry, errors),
        None => Some(Burst::Requests(1)),
    };
    let rule = DomainRule::new(pace?, burst?);
    let wrong = |error: DomainError| errors.add(item.at, format!("a rule of a domain: {error}"));
    rule.map_err(wrong).ok()
}

/// From `rate` or from `interval`, one of them.
fn read_pace(item: &YamlNode, fields: &Fields<'_>, errors: &mut Errors) -> Option<RateSpec> {
    match (fields.get("rate"), fields.get("interval")) {
        (Some(rate), None) => parse(rate, errors),
        (None, Some(interval)) => RateSpec::every(duration(interval, errors)?).ok(),
        (Some(_), Some(interval)) => {
            errors.add(interval.key.at, "interval is another way to say rate: leave out one of them");
            None
        }
        (None, None) => {
            errors.add(
                item.at,
                format!("a rule of a domain has a rate or an interval, such as {RULE_EXAMPLE}"),
            );
            None
        }
    }
}

fn parse<T: std::str::FromStr<Err = RateSpecError>>(entry: &YamlEntry, errors: &mut Errors) -> Option<T> {
    let text = literal(&entry.value).filter(|_| !entry.value.is_absent());
    let Some(text) = text else { return refuse(entry, "must be a number or a text", errors) };
    let wrong = |error: RateSpecError| {
        errors.add(entry.value.at, format!("{} {}: {error}", entry.key.quoted(), entry.value.quoted()));
    };
    text.parse().map_err(wrong).ok()
}

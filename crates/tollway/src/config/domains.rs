//! Reads the section `domains`: the rates that a Smockron master enforces.
//!
//! ```yaml
//! domains:
//!   web: { rules: [{ rate: 1/s, burst: 10 }, { rate: 100 per hour, burst: 20 }] }
//!   search: { interval: 30s, burst: 5m, logic: gcra }
//! ```
//!
//! A domain with one rule can have its fields directly. A bare number as a time is milliseconds, as in the
//! configuration of gatekeepers.

use tollway_core::{Burst, Domain, DomainError, DomainRule, Logic, Nanos, RateSpec, RateSpecError};

use super::errors::{ErrorCollector, Position};
use super::fields::{self, YamlFields, choice, mapping, refuse, scalar_text};
use super::yaml::{YamlEntry, YamlNode, YamlValue};

/// The fields that a rule of a domain can have, and those of a domain, which has the fields of its only rule.
const RULE_FIELDS: [&str; 3] = ["rate", "interval", "burst"];
const FIELDS: [&str; 5] = ["rules", "logic", "rate", "interval", "burst"];

const EXAMPLE: &str = "{ rules: [{ rate: 1/s, burst: 10 }] }";
const RULE_EXAMPLE: &str = "{ rate: 1/s, burst: 10 }";

/// Reads everything under `domains:`. A domain with a mistake is left out: the mistake is reported, so the file as a
/// whole is refused anyway.
pub(super) fn read(entry: &YamlEntry, errors: &mut ErrorCollector) -> Vec<Domain> {
    if entry.value.is_null() {
        return Vec::new();
    }
    let domains = mapping(entry, &format!("\"name: {EXAMPLE}\""), errors).unwrap_or_default();
    domains.iter().filter_map(|domain| read_domain(domain, errors)).collect()
}

fn read_domain(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Domain> {
    let fields = YamlFields::read(mapping(entry, EXAMPLE, errors)?, "a domain", &FIELDS, errors);
    let words = [("window", Logic::Window), ("gcra", Logic::Gcra)];
    let logic = fields.get("logic").map_or(Some(Logic::default()), |entry| choice(entry, &words, errors));
    let direct = RULE_FIELDS.iter().find_map(|name| fields.get(name));
    let rules = match (fields.get("rules"), direct) {
        (None, None) => Some(Vec::new()),
        (None, Some(_)) => read_rule(entry.value.at, &fields, errors).map(|rule| vec![rule]),
        (Some(rules), None) => read_rules(rules, errors),
        (Some(_), Some(direct)) => {
            let name = direct.key.quoted();
            errors.add(
                direct.key.at,
                format!("\"{name}\" is beside \"rules\"; move it into a rule of the list"),
            );
            None
        }
    };
    let domain = Domain::new(&entry.key.text, rules?, logic?);
    domain
        .map_err(|error| errors.add(entry.key.at, format!("domain \"{}\": {error}", entry.key.quoted())))
        .ok()
}

fn read_rules(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Vec<DomainRule>> {
    match &entry.value.value {
        YamlValue::List(items) => {
            // All rules are read before the first `?`, so that one mistake does not hide the next.
            let rules: Vec<_> = items.iter().map(|item| read_rule_of_list(item, errors)).collect();
            rules.into_iter().collect()
        }
        _ if entry.value.is_null() => Some(Vec::new()),
        _ => refuse(entry, &format!("must be a list, such as [{RULE_EXAMPLE}]"), errors),
    }
}

fn read_rule_of_list(item: &YamlNode, errors: &mut ErrorCollector) -> Option<DomainRule> {
    let YamlValue::Map(entries) = &item.value else {
        let message =
            format!("a rule of a domain must be a mapping, such as {RULE_EXAMPLE}, not {}", item.quoted());
        errors.add(item.at, message);
        return None;
    };
    read_rule(item.at, &YamlFields::read(entries, "a rule of a domain", &RULE_FIELDS, errors), errors)
}

/// Reads the fields of a rule, which are in a mapping at `at`.
fn read_rule(at: Position, fields: &YamlFields<'_>, errors: &mut ErrorCollector) -> Option<DomainRule> {
    let pace = read_pace(at, fields, errors);
    let burst = match fields.get("burst") {
        Some(entry) => read_burst(entry, errors),
        None => Some(Burst::Requests(1)),
    };
    let rule = DomainRule::new(pace?, burst?);
    let wrong = |error: DomainError| errors.add(at, format!("a rule of a domain: {error}"));
    rule.map_err(wrong).ok()
}

/// Reads the rate of a rule from `rate` or from `interval`; a rule has exactly one of them.
fn read_pace(at: Position, fields: &YamlFields<'_>, errors: &mut ErrorCollector) -> Option<RateSpec> {
    match (fields.get("rate"), fields.get("interval")) {
        (Some(rate), None) => fields::rate(rate, "ms", errors),
        (None, Some(interval)) => read_interval(interval, errors),
        (Some(_), Some(interval)) => {
            errors.add(interval.key.at, "rate and interval mean the same; remove one of them");
            None
        }
        (None, None) => {
            errors.add(at, format!("a rule of a domain needs a rate or an interval, such as {RULE_EXAMPLE}"));
            None
        }
    }
}

/// Reads the time between two requests: a duration, or a span as rates have it. Without a unit it is milliseconds.
fn read_interval(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<RateSpec> {
    let must_be = "must be a time such as 30s, 2 min, 1h30m or 500 (milliseconds)";
    let every = |text: &str| {
        let unit = if text.ends_with(|last: char| last.is_ascii_digit()) { "ms" } else { "" };
        let text = format!("{text}{unit}");
        let duration = text.parse::<Nanos>().ok().and_then(|span| RateSpec::every(span.into()).ok());
        duration.or_else(|| format!("1/{text}").parse().ok())
    };
    scalar_text(&entry.value).and_then(every).or_else(|| refuse(entry, must_be, errors))
}

fn read_burst(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Burst> {
    let Some(text) = scalar_text(&entry.value).filter(|_| !entry.value.is_absent()) else {
        return refuse(entry, "must be a number or text", errors);
    };
    let wrong = |error: RateSpecError| {
        errors.add(entry.value.at, format!("{} {}: {error}", entry.key.quoted(), entry.value.quoted()));
    };
    text.parse().map_err(wrong).ok()
}

//! Reads the section `domains`: the rates that a Smockron master enforces.
//!
//! ```yaml
//! domains:
//!   web: { rules: [{ rate: 1/s, burst: 10 }, { rate: 100 per hour, burst: 20 }] }
//!   search: { rules: [{ interval: 30s, burst: 5m }], logic: gcra }
//! ```

use tollway_core::{Burst, DomainRule, Logic, RateSpec, RateSpecError};
use tollway_core::{Domain, DomainError};

use super::errors::ErrorCollector;
use super::fields::{YamlFields, choice, duration, mapping, refuse, scalar_text};
use super::yaml::{YamlEntry, YamlNode, YamlValue};

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
    let fields = YamlFields::read(mapping(entry, EXAMPLE, errors)?, "a domain", &["rules", "logic"], errors);
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
    domain
        .map_err(|error| errors.add(entry.key.at, format!("domain \"{}\": {error}", entry.key.quoted())))
        .ok()
}

fn read_rule(item: &YamlNode, errors: &mut ErrorCollector) -> Option<DomainRule> {
    let YamlValue::Map(entries) = &item.value else {
        let message =
            format!("a rule of a domain must be a mapping, such as {RULE_EXAMPLE}, not {}", item.quoted());
        errors.add(item.at, message);
        return None;
    };
    let fields = YamlFields::read(entries, "a rule of a domain", &["rate", "interval", "burst"], errors);
    let pace = read_pace(item, &fields, errors);
    let burst = match fields.get("burst") {
        Some(entry) => parse(entry, errors),
        None => Some(Burst::Requests(1)),
    };
    let rule = DomainRule::new(pace?, burst?);
    let wrong = |error: DomainError| errors.add(item.at, format!("a rule of a domain: {error}"));
    rule.map_err(wrong).ok()
}

/// Reads the rate of a rule from `rate` or from `interval`; a rule has exactly one of them.
fn read_pace(item: &YamlNode, fields: &YamlFields<'_>, errors: &mut ErrorCollector) -> Option<RateSpec> {
    match (fields.get("rate"), fields.get("interval")) {
        (Some(rate), None) => parse(rate, errors),
        (None, Some(interval)) => RateSpec::every(duration(interval, errors)?.into()).ok(),
        (Some(_), Some(interval)) => {
            errors.add(interval.key.at, "rate and interval mean the same; remove one of them");
            None
        }
        (None, None) => {
            errors.add(
                item.at,
                format!("a rule of a domain needs a rate or an interval, such as {RULE_EXAMPLE}"),
            );
            None
        }
    }
}

/// Reads a rate or a burst.
pub(super) fn parse<T: std::str::FromStr<Err = RateSpecError>>(
    entry: &YamlEntry,
    errors: &mut ErrorCollector,
) -> Option<T> {
    let text = scalar_text(&entry.value).filter(|_| !entry.value.is_absent());
    let Some(text) = text else { return refuse(entry, "must be a number or text", errors) };
    let wrong = |error: RateSpecError| {
        errors.add(entry.value.at, format!("{} {}: {error}", entry.key.quoted(), entry.value.quoted()));
    };
    text.parse().map_err(wrong).ok()
}

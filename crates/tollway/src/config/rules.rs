//! Reads the section `rules`: named `And`/`Or` rules.
//!
//! ```yaml
//! rules:
//!   upload: "Or('10/s', And('user:100/h', 'apikey:60/h'))"
//!   login: { rule: "Or('user:5/m', 'address:30/m')", on_store_failure: deny }
//! ```

use tollway_core::rule::RuleNameError;
use tollway_core::{NamedRule, Rule, RuleLimit};

use super::errors::{ConfigError, ErrorCollector};
use super::fields::{YamlFields, mapping, refuse, scalar_text};
use super::store::{read_on_full, read_on_store_failure};
use super::yaml::{YamlEntry, YamlValue};

/// The fields that a rule can have.
const FIELDS: [&str; 4] = ["rule", "on_full", "on_store_failure", "local_share"];

const EXAMPLE: &str = "\"Or('10/s', 'user:100/h')\"";

/// The valid rules that were read so far, and warnings about those that probably do not mean what their author thinks.
#[derive(Default)]
pub(super) struct RulesDraft {
    pub(super) rules: Vec<NamedRule>,
    pub(super) warnings: Vec<ConfigError>,
}

impl RulesDraft {
    /// Reads everything under `rules:`.
    pub(super) fn section(&mut self, entry: &YamlEntry, errors: &mut ErrorCollector) {
        if entry.value.is_null() {
            return;
        }
        for rule in mapping(entry, &format!("name: {EXAMPLE}"), errors).unwrap_or_default() {
            let Some(limit) = self.limit(rule, errors) else { continue };
            match NamedRule::new(&rule.key.text, limit) {
                Ok(rule) => self.rules.push(rule),
                Err(_) => {
                    errors.add(rule.key.at, RuleNameError::new(rule.key.quoted()).to_string());
                }
            }
        }
    }

    /// Reads one rule, `name: "…"` or `name: { rule: "…", … }`.
    fn limit(&mut self, entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<RuleLimit> {
        let YamlValue::Map(entries) = &entry.value.value else {
            return self.rule(entry, &entry.key.quoted(), errors).map(RuleLimit::new);
        };
        let fields = YamlFields::read(entries, "a rule", &FIELDS, errors);
        let rule = match fields.get("rule") {
            Some(field) => self.rule(field, &entry.key.quoted(), errors),
            None => {
                let message = format!("rule \"{}\" has no \"rule\", such as {EXAMPLE}", entry.key.quoted());
                errors.add(entry.key.at, message);
                None
            }
        };
        let on_full = read_on_full(&fields, errors);
        let on_store_failure = read_on_store_failure(&fields, "rule", errors);
        Some(RuleLimit::new(rule?).with_on_full(on_full?).with_on_store_failure(on_store_failure?))
    }

    /// Parses the expression; an error shows an excerpt with the position of the mistake.
    fn rule(&mut self, entry: &YamlEntry, name: &str, errors: &mut ErrorCollector) -> Option<Rule> {
        let Some(text) = scalar_text(&entry.value).filter(|_| !entry.value.is_absent()) else {
            return refuse(entry, &format!("must be a rule, such as {EXAMPLE}"), errors);
        };
        match text.parse::<Rule>() {
            Ok(rule) => {
                let ignored =
                    (0..rule.rates().len()).filter(|index| rule.rates()[*index].has_ignored_field());
                self.warnings.extend(ignored.map(|index| {
                    let rate = rule.display_rate(index);
                    let message = format!("rule \"{name}\": the third field of \"{rate}\" has no effect");
                    ConfigError::new(entry.value.at, message)
                }));
                Some(rule)
            }
            Err(error) => {
                let mut found =
                    ConfigError::new(entry.value.at, format!("{}: {}", entry.key.quoted(), error.problem));
                // The excerpt would repeat the password of a URL that was put here by mistake.
                found.excerpt =
                    error.excerpt().filter(|_| !text.contains("://")).map(|lines| lines.join("\n"));
                errors.push(found);
                None
            }
        }
    }
}

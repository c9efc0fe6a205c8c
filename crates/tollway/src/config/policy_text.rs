//! Writes the limits, overrides and rules of a policy as a configuration on one line, for the `reload` of a trace.
//!
//! ```text
//! {limits: {"Login": {algorithm: token_bucket, burst: 5, count: 5, period: 60s, id: any, on_full: deny}},
//!  overrides: {"Login:alice": {algorithm: token_bucket, burst: 50, count: 5, period: 60s}},
//!  rules: {"upload": {rule: "Or('10/s', 'user:100/h')", on_full: deny}}}
//! ```
//!
//! Keys, domains and descriptors are left out: their decisions are not recorded. So is `on_store_failure`, because a
//! replay has its store.

use std::fmt::Write;

use tollway_core::{Algorithm, IdFormat, Limit, NamedRule, OnFull, Policy};

/// The way in which ids are written.
pub enum WrittenIds<'a> {
    /// Ids are written as they are.
    Plain,
    /// Ids are written as this function returns them. Limits then take ids of any format, because hashes have none.
    Hashed(&'a dyn Fn(&[u8]) -> String),
}

/// Returns the policy as a configuration on one line of printable ASCII. Returns `None` if a configuration cannot have
/// it: a policy that was made in code can have ids that are not text, and rates that are not whole.
pub fn policy_text(policy: &Policy, ids: &WrittenIds<'_>) -> Option<String> {
    // The limits of descriptors are in the policy as well. Their names have a slash, which no other name has.
    let limits = || policy.limits().iter().filter(|limit| !limit.name().contains('/'));
    let written = limits().map(|limit| limit_text(limit, ids)).collect::<Option<Vec<_>>>()?;
    let overrides = limits().map(|limit| override_texts(limit, ids)).collect::<Option<Vec<_>>>()?;
    let rules: Vec<_> = policy.rules().iter().map(rule_text).collect();
    Some(format!(
        "{{limits: {{{}}}, overrides: {{{}}}, rules: {{{}}}}}",
        written.join(", "),
        overrides.concat().join(", "),
        rules.join(", ")
    ))
}

fn limit_text(limit: &Limit, ids: &WrittenIds<'_>) -> Option<String> {
    let mut fields = match limit.default_algorithm() {
        Some(algorithm) => numbers(algorithm)? + ", ",
        None => String::new(),
    };
    let format = match ids {
        WrittenIds::Plain => limit.ids(),
        WrittenIds::Hashed(_) => IdFormat::Any,
    };
    fields += &format!("id: {}, ", quoted(format.name()));
    if let Some(number) = limit.number() {
        fields += &format!("number: {number}, ");
    }
    if let IdFormat::Ip(prefix) = format {
        fields += &format!("ipv6_prefix: {}, ", prefix.bits());
    }
    Some(format!("{}: {{{fields}on_full: {}}}", quoted(limit.name()), on_full(limit.on_full())))
}

/// Returns the overrides of a limit in the order of their ids.
fn override_texts(limit: &Limit, ids: &WrittenIds<'_>) -> Option<Vec<String>> {
    let text = |(id, algorithm): (&[u8], &Algorithm)| {
        let id = match ids {
            WrittenIds::Plain => str::from_utf8(id).ok()?.to_owned(),
            WrittenIds::Hashed(hash) => hash(id),
        };
        Some(format!("{}: {{{}}}", quoted(&format!("{}:{id}", limit.name())), numbers(algorithm)?))
    };
    let mut texts = limit.overrides().map(text).collect::<Option<Vec<_>>>()?;
    texts.sort_unstable();
    Some(texts)
}

fn rule_text(rule: &NamedRule) -> String {
    let limit = rule.keyed().limit();
    let (name, text) = (quoted(rule.name()), quoted(&limit.rule().to_string()));
    format!("{name}: {{rule: {text}, on_full: {}}}", on_full(limit.on_full()))
}

/// Returns the fields of an algorithm; `None` if a number cannot be configured.
fn numbers(algorithm: &Algorithm) -> Option<String> {
    let name = algorithm.name();
    Some(match algorithm {
        Algorithm::TokenBucket(limit) => {
            let (burst, count, period) = (limit.burst(), limit.count(), limit.period());
            format!("algorithm: {name}, burst: {burst}, count: {count}, period: {period}")
        }
        Algorithm::SlidingLog(limit) => count_and_period(name, limit.count(), limit.period()),
        Algorithm::Quota(limit) => count_and_period(name, limit.count(), limit.period()),
        Algorithm::SlidingWindow(limit) => count_and_period(name, limit.count(), limit.period()),
        Algorithm::FixedWindow(limit) => {
            format!("{}, offset: {}", count_and_period(name, limit.count(), limit.period()), limit.offset())
        }
        Algorithm::SmoothedRate(limit) => {
            let (count, period, strict) = (limit.limit(), limit.period(), limit.strict());
            if count.fract() != 0.0 {
                return None;
            }
            format!("algorithm: {name}, count: {count:.0}, period: {period}, strict: {strict}")
        }
    })
}

fn count_and_period(name: &str, count: u64, period: tollway_core::Nanos) -> String {
    format!("algorithm: {name}, count: {count}, period: {period}")
}

const fn on_full(answer: OnFull) -> &'static str {
    match answer {
        OnFull::Allow => "allow",
        OnFull::Deny => "deny",
    }
}

/// Returns a text in double quotes, in printable ASCII. An arrow between spaces would end the request of a trace.
fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for character in text.chars() {
        let code = u32::from(character);
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            ' '..='~' if character != '>' => out.push(character),
            // Writing to a string cannot fail.
            _ if code <= 0xffff => _ = write!(out, "\\u{code:04x}"),
            _ => _ = write!(out, "\\U{code:08x}"),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, describe};

    /// Returns what a policy means, without what is not written.
    fn meaning(policy: &Policy) -> Vec<String> {
        let limits = policy.limits().iter().filter(|limit| !limit.name().contains('/')).map(|limit| {
            let mut overrides: Vec<_> = limit.overrides().collect();
            overrides.sort_unstable_by_key(|(id, _)| *id);
            let (default, ids, full) = (limit.default_algorithm(), limit.ids(), limit.on_full());
            format!("{} {default:?} {ids:?} {full:?} {:?} {overrides:?}", limit.name(), limit.number())
        });
        let rules = policy.rules().iter().map(|rule| {
            format!("{} {} {:?}", rule.name(), rule.keyed().limit().rule(), rule.keyed().limit().on_full())
        });
        limits.chain(rules).collect()
    }

    #[test]
    fn a_policy_is_read_back_as_it_was() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let mut checked = 0;
        for file in files.filter(|file| file.extension().is_some_and(|is| is == "yaml")) {
            let config = Config::from_file(&file).unwrap();
            let text = policy_text(&config.policy, &WrittenIds::Plain).unwrap();
            assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text}");
            let again = Config::parse(&text, "written").unwrap_or_else(|errors| panic!("{text}\n{errors}"));
            assert_eq!(meaning(&again.policy), meaning(&config.policy), "{}", file.display());
            checked += 1;
        }
        assert!(checked > 10);
    }

    #[test]
    fn names_ids_and_rules_may_have_any_character() {
        let yaml = "limits: { A: { rate: 1/s, id: any }, B: { id: regId } }\n\
                    overrides: { \"A:a \\\"b\\\" => \\u00e9\\U0001f600\": { rate: 2/s }, 'B:7': { rate: 3/m } }\n\
                    rules: { upload: \"Or('10/s', And('user:100/h', 'key:1/s'))\" }";
        let config = Config::parse(yaml, "policy.yaml").unwrap();
        let text = policy_text(&config.policy, &WrittenIds::Plain).unwrap();
        assert!(text.is_ascii() && !text.contains("=>"), "{text}");
        let again = Config::parse(&text, "written").unwrap();
        assert_eq!(meaning(&again.policy), meaning(&config.policy), "{text}");
    }

    #[test]
    fn hashed_ids_have_no_format() {
        let yaml = "limits: { A: { rate: 1/s, id: ip } }\noverrides: { 'A:10.0.0.1': { rate: 2/s } }";
        let config = Config::parse(yaml, "policy.yaml").unwrap();
        let hash = |id: &[u8]| format!("#{}", id.len());
        let text = policy_text(&config.policy, &WrittenIds::Hashed(&hash)).unwrap();
        let again = Config::parse(&text, "written").unwrap();
        assert!(again.policy.limit("A").unwrap().overrides().any(|(id, _)| id == b"#8"), "{text}");
        assert!(describe(&again).to_string().contains("id any"), "{text}");
    }
}

//! Writes a policy as a configuration on one line, for the `reload` of a trace.
//!
//! ```text
//! {limits: {"Login": {algorithm: token_bucket, burst: 5, count: 5, period: 60s, id: any, on_full: deny}},
//!  overrides: {"Login:alice": {algorithm: token_bucket, burst: 50, count: 5, period: 60s}},
//!  rules: {"upload": {rule: "Or('10/s', 'user:100/h')", on_full: deny}},
//!  keys: {rewrite: [], rules: [{match: "^ws ", limit: 200, period: 10s}]},
//!  envoy: {configs: [{domain: "shop", descriptors: [{key: "account", rate_limit: {unit: minute, …}}]}]}}
//! ```
//!
//! Gatekeepers' domains are left out: what is reported about them is not recorded. So is `on_store_failure`, because a
//! replay has its store. Keys and descriptors are left out if ids are hashed: no pattern matches a hashed key, and no
//! value of a tree is that of a hashed entry.

use std::fmt::Write;

use tollway_core::descriptor::{DescriptorLimit, ListedDescriptor, RateUnit};
use tollway_core::{Algorithm, IdFormat, KeyLimit, KeyRule, Limit, NamedRule, OnFull, Policy};

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
    let mut text = format!(
        "{{limits: {{{}}}, overrides: {{{}}}, rules: {{{}}}",
        written.join(", "),
        overrides.concat().join(", "),
        rules.join(", ")
    );
    if let WrittenIds::Plain = ids {
        text += &keys_text(policy)?;
        text += &descriptors_text(policy)?;
    }
    Some(text + "}")
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

/// Returns the section of the keys after a comma, or nothing if there are none; `None` if their patterns have no text.
fn keys_text(policy: &Policy) -> Option<String> {
    let (rules, patterns) = (policy.keys().rules(), policy.keys().patterns()?);
    if rules.len() != patterns.rules.len() {
        return None;
    }
    if rules.is_empty() && patterns.rewrites.is_empty() {
        return Some(String::new());
    }
    let rewrite = |(pattern, replacement): &(&str, &str)| {
        format!("{{match: {}, replace: {}}}", quoted(pattern), quoted(replacement))
    };
    let rewrites: Vec<_> = patterns.rewrites.iter().map(rewrite).collect();
    let rules: Vec<_> = patterns
        .rules
        .iter()
        .zip(rules)
        .map(|(pattern, rule)| key_rule_text(policy, pattern, rule))
        .collect();
    Some(format!(", keys: {{rewrite: [{}], rules: [{}]}}", rewrites.join(", "), rules.join(", ")))
}

fn key_rule_text(policy: &Policy, pattern: &str, rule: &KeyRule) -> String {
    let answer = match &rule.limit {
        KeyLimit::Rate { limit, on_full, .. } => {
            let (most, period) = (limit.limit(), limit.period());
            let strict = if limit.strict() { ", strict: true" } else { "" };
            format!("limit: {most}, period: {period}{strict}{}", other_on_full(*on_full))
        }
        KeyLimit::Never => "answer: never".to_owned(),
        KeyLimit::Use { limit } => format!("use: {}", quoted(policy.limits()[*limit].name())),
    };
    let stats = if rule.stats { ", stats: true" } else { "" };
    format!("{{match: {}, {answer}{stats}}}", quoted(pattern))
}

/// Returns the section of Envoy's descriptors after a comma, or nothing if there are none; `None` if a configuration
/// cannot have them.
fn descriptors_text(policy: &Policy) -> Option<String> {
    let tree = policy.descriptors();
    if tree.is_empty() {
        return Some(String::new());
    }
    let mut domains: Vec<_> = tree.domains().collect();
    domains.sort_unstable();
    let domain_text = |domain: &&str| {
        let listed = tree.list(domain);
        // A configuration refuses a domain that limits nobody.
        listed.iter().any(|descriptor| descriptor.shown.is_some()).then_some(())?;
        let descriptors = level_text(policy, &mut &*listed, 0)?;
        Some(format!("{{domain: {}, descriptors: {descriptors}}}", quoted(domain)))
    };
    let configs = domains.iter().map(domain_text).collect::<Option<Vec<_>>>()?;
    let modes = flags(&[("quota_mode", tree.quota_mode), ("shadow_mode", tree.shadow_mode)]);
    Some(format!(", envoy: {{configs: [{}]{modes}}}", configs.join(", ")))
}

/// Takes the descriptors of this depth off the front of a list, with those below them, and returns them as a list.
fn level_text(policy: &Policy, listed: &mut &[ListedDescriptor<'_>], depth: usize) -> Option<String> {
    let mut descriptors = Vec::new();
    while let Some((descriptor, rest)) = listed.split_first().filter(|(first, _)| first.depth == depth) {
        *listed = rest;
        let mut text = format!("{{key: {}", quoted(descriptor.key));
        if !descriptor.value.is_empty() {
            text += &format!(", value: {}", quoted(&descriptor.value));
        }
        if let Some(shown) = descriptor.shown {
            text += &rate_limit_text(policy, descriptor, shown)?;
        }
        text += &flags(&[
            ("share_threshold", descriptor.shares_threshold),
            ("detailed_metric", descriptor.detailed_metric),
            ("value_to_metric", descriptor.value_to_metric),
        ]);
        if listed.first().is_some_and(|next| next.depth > depth) {
            text += &format!(", descriptors: {}", level_text(policy, listed, depth + 1)?);
        }
        descriptors.push(text + "}");
    }
    Some(format!("[{}]", descriptors.join(", ")))
}

/// Returns the limit of a descriptor, and the modes of both.
fn rate_limit_text(
    policy: &Policy,
    descriptor: &ListedDescriptor<'_>,
    shown: &DescriptorLimit,
) -> Option<String> {
    let mut fields = match shown.rate {
        None => "unlimited: true".to_owned(),
        Some((requests, RateUnit::Span(span))) => format!("unit: {span}, requests_per_unit: {requests}"),
        Some((requests, unit)) => {
            format!("unit: {}, requests_per_unit: {requests}", unit.name().to_ascii_lowercase())
        }
    };
    if let Some(place) = descriptor.place {
        let limit = &policy.limits()[place];
        match limit.default_algorithm()? {
            Algorithm::FixedWindow(_) => {}
            Algorithm::TokenBucket(numbers) => {
                fields += &format!(", algorithm: token_bucket, burst: {}", numbers.burst());
            }
            algorithm => fields += &format!(", algorithm: {}", algorithm.name()),
        }
        fields += &other_on_full(limit.on_full());
    }
    if !shown.name.is_empty() {
        fields += &format!(", name: {}", quoted(&shown.name));
    }
    if !shown.replaces.is_empty() {
        let names: Vec<_> = shown.replaces.iter().map(|name| format!("{{name: {}}}", quoted(name))).collect();
        fields += &format!(", replaces: [{}]", names.join(", "));
    }
    let modes = flags(&[("shadow_mode", shown.shadow_mode), ("quota_mode", shown.quota_mode)]);
    Some(format!(", rate_limit: {{{fields}}}{modes}"))
}

/// Returns those of these fields that are set.
fn flags(fields: &[(&str, bool)]) -> String {
    let set = fields.iter().filter(|(_, is_set)| *is_set);
    set.map(|(name, _)| format!(", {name}: true")).collect()
}

/// Returns the answer for a full store, if it is not the default one.
fn other_on_full(answer: OnFull) -> String {
    if answer == OnFull::default() { String::new() } else { format!(", on_full: {}", on_full(answer)) }
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

    /// Returns what a policy means, without what is not written. The limits of descriptors are in the order of the
    /// domains.
    fn meaning(policy: &Policy) -> Vec<String> {
        let limits = policy.limits().iter().map(|limit| {
            let mut overrides: Vec<_> = limit.overrides().collect();
            overrides.sort_unstable_by_key(|(id, _)| *id);
            let (default, ids, full) = (limit.default_algorithm(), limit.ids(), limit.on_full());
            format!("{} {default:?} {ids:?} {full:?} {:?} {overrides:?}", limit.name(), limit.number())
        });
        let rules = policy.rules().iter().map(|rule| {
            format!("{} {} {:?}", rule.name(), rule.keyed().limit().rule(), rule.keyed().limit().on_full())
        });
        let keys = policy.keys().rules().iter().map(|rule| match &rule.limit {
            KeyLimit::Rate { limit, on_full, .. } => format!("{limit:?} {on_full:?} {}", rule.stats),
            other => format!("{other:?} {}", rule.stats),
        });
        let tree = policy.descriptors();
        let descriptors = tree.domains().flat_map(|domain| tree.list(domain)).map(|mut descriptor| {
            let limit = descriptor.place.take().map(|place| policy.limits()[place].name());
            format!("{descriptor:?} {limit:?}")
        });
        let patterns = format!("{:?} {} {}", policy.keys().patterns(), tree.quota_mode, tree.shadow_mode);
        let mut meaning: Vec<_> = limits.chain(rules).chain(descriptors).collect();
        // Domains have no order, and so their limits have none.
        meaning.sort_unstable();
        meaning.into_iter().chain(keys).chain([patterns]).collect()
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
    fn keys_and_descriptors_are_read_back_as_they_were() {
        let yaml = r#"
limits: { Searches: { algorithm: sliding_log, count: 3, period: 1m } }
keys:
  rewrite: [{ match: 'ip=10\.0\.(\d+)$ => "\x00"', replace: 'cust=$1' }]
  rules:
    - { match: '^ws "a\\b" => é', limit: 22.5, period: 1m30s, strict: true, on_full: allow }
    - { match: '^search ', use: Searches, stats: true }
    - { match: '.*', answer: never }
envoy:
  quota_mode: true
  configs:
    - domain: shop => "é"
      descriptors:
        - key: account
          rate_limit: { unit: minute, requests_per_unit: 3, name: own, replaces: [{ name: other }] }
          shadow_mode: true
          descriptors:
            - { key: ip, value: '10.*', share_threshold: true, rate_limit: { unit: 90s, requests_per_unit: 7,
                algorithm: token_bucket, burst: 9, on_full: allow } }
            - { key: ip, detailed_metric: true }
        - { key: account, value: vip, quota_mode: true, rate_limit: { unlimited: true } }
        - { key: banned, value_to_metric: true, rate_limit: { unit: DAY, requests_per_unit: 0 } }
    - { domain: search, descriptors: [{ key: q, rate_limit: { unit: week, requests_per_unit: 1,
        algorithm: sliding_window } }] }
"#;
        let config = Config::parse(yaml, "policy.yaml").unwrap();
        let text = policy_text(&config.policy, &WrittenIds::Plain).unwrap();
        assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && !text.contains("=>"), "{text}");
        let again = Config::parse(&text, "written").unwrap_or_else(|errors| panic!("{text}\n{errors}"));
        assert_eq!(meaning(&again.policy), meaning(&config.policy), "{text}");
        let hashed = policy_text(&config.policy, &WrittenIds::Hashed(&|_| String::new())).unwrap();
        assert!(!hashed.contains("account") && !hashed.contains("search "), "{hashed}");
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

//! Converts the descriptors of Envoy's rate limit service to limits that are asked for by name.

use tollway::config::EnvoyFile;
use tollway::core::descriptor::{Descriptor, DescriptorLimit, RateUnit};
use tollway::core::{Algorithm, Limit, OnFull, OnStoreFailure};

use super::imported::{ImportError, Imported, ImportedLimit, Position};

/// Returns a limit for each descriptor that has one.
pub(crate) fn import(text: &str) -> Result<Imported, Vec<ImportError>> {
    let file = EnvoyFile::parse(text, "file").map_err(|errors| {
        let found = errors.errors().iter();
        let place = |line, column| Position { line, column };
        found
            .map(|error| ImportError::new(place(error.line, error.column), error.message.clone()))
            .collect::<Vec<_>>()
    })?;
    let mut imported = Imported::default();
    let mut places = file.positions.iter().map(|(line, column)| Position { line: *line, column: *column });
    for warning in &file.warnings {
        let at = Position { line: warning.line, column: warning.column };
        imported.leave_out(at, warning.message.clone());
    }
    let matching = "which descriptor a request matches: callers name the limit. Envoy itself needs no import: the file \
                    is a configuration as it is, see docs/envoy.md";
    imported.leave_out(places.clone().next(), matching);
    add_all(&file.descriptors, &file.domain, &mut places, &mut Vec::new(), &mut imported);
    imported.finish("no descriptor of the file can be a limit")
}

/// Adds the limits of these descriptors and of those below them, in the order of the file. `places` has where each is.
fn add_all<'a>(
    descriptors: &'a [Descriptor],
    domain: &str,
    places: &mut impl Iterator<Item = Position>,
    path: &mut Vec<&'a Descriptor>,
    imported: &mut Imported,
) {
    for descriptor in descriptors {
        path.push(descriptor);
        let at = places.next();
        match &descriptor.shown {
            Some(shown) => add(shown, at, domain, path, imported),
            None if is_exempt(descriptor, descriptors) => {
                let text = "no rate_limit, so requests that match it have no limit. Ask for no limit";
                imported.leave_out(at, format!("{}: {text}", place(domain, path)));
            }
            None => {}
        }
        add_all(&descriptor.descriptors, domain, places, path, imported);
        path.pop();
    }
}

/// Returns whether a descriptor without a limit of its own exempts requests, beside the others at its place: it is a
/// leaf, or it matches what another one would limit.
fn is_exempt(descriptor: &Descriptor, beside: &[Descriptor]) -> bool {
    let is_wider = |other: &Descriptor| {
        other.key == descriptor.key
            && other.value != descriptor.value
            && !descriptor.value.is_empty()
            && (other.value.is_empty() || other.value.contains('*'))
    };
    descriptor.descriptors.is_empty() || beside.iter().any(|other| is_wider(other) && has_limit(other))
}

fn has_limit(descriptor: &Descriptor) -> bool {
    descriptor.shown.is_some() || descriptor.descriptors.iter().any(has_limit)
}

fn place(domain: &str, path: &[&Descriptor]) -> String {
    format!("domain {domain}: {}", path.iter().map(entry).collect::<Vec<_>>().join(", "))
}

fn entry(descriptor: &&Descriptor) -> String {
    match &*descriptor.value {
        "" => descriptor.key.to_string(),
        value => format!("{}={value}", descriptor.key),
    }
}

fn add(
    shown: &DescriptorLimit,
    at: Option<Position>,
    domain: &str,
    path: &[&Descriptor],
    imported: &mut Imported,
) {
    let place = place(domain, path);
    let limit = path.last().and_then(|descriptor| descriptor.limit.as_ref());
    let limit = limit.and_then(|limit| Some((limit, limit.default_algorithm()?, shown.rate?)));
    if limit.is_none() {
        imported.leave_out(at, format!("{place}: {}", no_limit(shown)));
    }
    for (is_set, what) in left_out(shown, path, limit.is_some()) {
        if is_set {
            imported.leave_out(at, format!("{place}: {what}"));
        }
    }
    let Some((limit, algorithm, (requests, unit))) = limit else { return };
    let entries = path.iter().map(|descriptor| format!(".{}", entry(descriptor)));
    let name = imported.name(&format!("{domain}{}", entries.collect::<String>()));
    let comments = vec![place, id_of(path)];
    imported.limits.push(ImportedLimit { name, comments, fields: fields(limit, algorithm, requests, unit) });
}

/// Says why a descriptor that allows everything or nothing is no limit, and what to do instead.
fn no_limit(shown: &DescriptorLimit) -> String {
    let modes = match (shown.shadow_mode, shown.quota_mode) {
        (false, false) => "",
        (true, false) => " with shadow_mode",
        (false, true) => " with quota_mode",
        (true, true) => " with shadow_mode and quota_mode",
    };
    if shown.rate.is_none() {
        return format!("unlimited{modes}. Ask for no limit");
    }
    let advice = if shown.shadow_mode {
        "so it never refuses. Ask for no limit"
    } else if shown.quota_mode {
        "so it refuses only if all others with quota_mode do. Ask for the others"
    } else {
        "which no limit can be. Refuse such requests without asking"
    };
    format!("requests_per_unit is 0{modes}, {advice}")
}

/// Returns everything about a descriptor that the configuration cannot say, and whether the descriptor has it.
/// [`no_limit`] has the modes of one that becomes no limit.
fn left_out(limit: &DescriptorLimit, path: &[&Descriptor], becomes_limit: bool) -> [(bool, String); 6] {
    let counts_values = path.last().is_some_and(|descriptor| descriptor.detailed_metric)
        || path.iter().any(|descriptor| descriptor.value_to_metric);
    let has_pattern = path.iter().any(|descriptor| descriptor.value.contains('*'));
    let replaced: Vec<_> = limit.replaces.iter().map(|name| &**name).collect();
    let instead = if becomes_limit { "ask for this one instead" } else { "do not ask for it" };
    [
        (becomes_limit && limit.shadow_mode, "shadow_mode: here it denies".to_owned()),
        (becomes_limit && limit.quota_mode, "quota_mode: here it denies by itself".to_owned()),
        (!limit.name.is_empty(), format!("its name {:?}", limit.name)),
        (!replaced.is_empty(), format!("it replaces {}: {instead}", replaced.join(", "))),
        (counts_values, "the metrics for values: here decisions are counted for limits".to_owned()),
        (becomes_limit && has_pattern, "the \"*\" in its value: ask only for values that match".to_owned()),
    ]
}

/// Says which values of a request are the id. Fixed values are in the name of the limit.
fn id_of(path: &[&Descriptor]) -> String {
    let differs = |descriptor: &&&Descriptor| {
        descriptor.value.is_empty() || descriptor.value.contains('*') && !descriptor.shares_threshold
    };
    let keys: Vec<_> = path.iter().filter(differs).map(|descriptor| &*descriptor.key).collect();
    match &*keys {
        [] => "the id is the same for all requests, such as \"all\"".to_owned(),
        [key] => format!("the id is the value of {key}"),
        _ => format!("the id is the values of {}, with | between them", keys.join(" and ")),
    }
}

/// Returns the fields of a limit as YAML.
fn fields(limit: &Limit, algorithm: &Algorithm, requests: u32, unit: RateUnit) -> String {
    let period = match unit {
        RateUnit::Second => "1s".to_owned(),
        RateUnit::Minute => "1m".to_owned(),
        RateUnit::Hour => "1h".to_owned(),
        RateUnit::Day => "1d".to_owned(),
        RateUnit::Week => "7d".to_owned(),
        RateUnit::Month => "30d".to_owned(),
        RateUnit::Year => "365d".to_owned(),
        RateUnit::Span(span) => span.to_string(),
    };
    let mut fields = format!("algorithm: {}, count: {requests}, period: {period}", algorithm.name());
    if let Algorithm::TokenBucket(bucket) = algorithm {
        fields += &format!(", burst: {}", bucket.burst());
    }
    if limit.on_full() == OnFull::Allow {
        fields += ", on_full: allow";
    }
    match limit.on_store_failure() {
        OnStoreFailure::Allow => {}
        OnStoreFailure::Deny => fields += ", on_store_failure: deny",
        OnStoreFailure::Local(share) => fields += &format!(", on_store_failure: local, local_share: {share}"),
    }
    fields
}

#[cfg(test)]
mod tests {
    use tollway::config::Config;
    use tollway_testbed::{Random, seed};

    use super::super::imported::LeftOut;
    use super::*;

    /// Returns the lines of the limits, with their comments, and what was left out. The configuration is valid.
    fn imported(text: &str) -> (Vec<String>, Vec<String>) {
        let imported = import(text).unwrap_or_else(|errors| panic!("{errors:?}"));
        let yaml = imported.to_yaml("ratelimit.yaml");
        Config::parse(&yaml, "imported.yaml").unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
        let limits =
            yaml.split("\nlimits:").nth(1).unwrap().lines().skip(1).map(|line| line.trim().to_owned());
        let left_out = imported.left_out.into_iter().skip(1).map(|LeftOut { at, text }| {
            let at = at.expect("everything has a place");
            format!("{}:{}: {text}", at.line, at.column)
        });
        (limits.collect(), left_out.collect())
    }

    #[test]
    fn every_descriptor_with_a_limit_becomes_one() {
        let (limits, left_out) = imported(
            "domain: shop
descriptors:
  - key: route
    value: login
    rate_limit: { unit: hour, requests_per_unit: 1000 }
    descriptors:
      - { key: remote_address, rate_limit: { unit: minute, requests_per_unit: 5 } }
  - key: account
    descriptors:
      - { key: method, rate_limit: { unit: 30s, requests_per_unit: 7, algorithm: token_bucket, burst: 9 } }
",
        );
        let expected = [
            "# domain shop: route=login",
            "# the id is the same for all requests, such as \"all\"",
            "shop.route-login: { algorithm: fixed_window, count: 1000, period: 1h }",
            "# domain shop: route=login, remote_address",
            "# the id is the value of remote_address",
            "shop.route-login.remote_address: { algorithm: fixed_window, count: 5, period: 1m }",
            "# domain shop: account, method",
            "# the id is the values of account and method, with | between them",
            "shop.account.method: { algorithm: token_bucket, count: 7, period: 30s, burst: 9 }",
        ];
        assert_eq!(limits, expected);
        assert_eq!(left_out, [""; 0]);
    }

    #[test]
    fn what_no_limit_can_say_is_listed() {
        let (limits, left_out) = imported(
            "domain: a
descriptors:
  - { key: k, value: free, rate_limit: { unlimited: true } }
  - { key: k, value: none, rate_limit: { unit: day, requests_per_unit: 0 } }
  - key: k
    value: 'x*'
    share_threshold: true
    shadow_mode: true
    rate_limit: { unit: week, requests_per_unit: 2, name: new, replaces: [{ name: old }] }
  - key: k
    descriptors:
      - { key: l, quota_mode: true, detailed_metric: true, rate_limit: { unit: year, requests_per_unit: 3 } }
",
        );
        assert_eq!(limits.iter().filter(|line| !line.starts_with('#')).count(), 2);
        assert!(
            limits.contains(&"a.k-x-: { algorithm: fixed_window, count: 2, period: 7d }".to_owned()),
            "{limits:?}"
        );
        let expected = [
            "3:5: domain a: k=free: unlimited",
            "4:5: domain a: k=none: requests_per_unit is 0",
            "5:5: domain a: k=x*: shadow_mode",
            "5:5: domain a: k=x*: its name \"new\"",
            "5:5: domain a: k=x*: it replaces old",
            "5:5: domain a: k=x*: the \"*\"",
            "12:9: domain a: k, l: quota_mode",
            "12:9: domain a: k, l: the metrics for values",
        ];
        assert_eq!(left_out.len(), expected.len(), "{left_out:#?}");
        assert!(
            left_out.iter().zip(expected).all(|(left_out, expected)| left_out.starts_with(expected)),
            "{left_out:#?}"
        );
    }

    #[test]
    fn modes_of_what_is_no_limit_are_listed_and_change_the_advice() {
        let (_, left_out) = imported(
            "domain: a
descriptors:
  - { key: k, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: s, shadow_mode: true, rate_limit: { unit: second, requests_per_unit: 0 } }
  - { key: q, quota_mode: true, rate_limit: { unit: second, requests_per_unit: 0 } }
  - { key: u, quota_mode: true, rate_limit: { unlimited: true, name: new, replaces: [{ name: old }] } }
  - { key: v, shadow_mode: true, quota_mode: true, rate_limit: { unlimited: true } }
",
        );
        let expected = [
            "4:5: domain a: s: requests_per_unit is 0 with shadow_mode, so it never refuses. Ask for no limit",
            "5:5: domain a: q: requests_per_unit is 0 with quota_mode, so it refuses only if all others with quota_mode \
             do. Ask for the others",
            "6:5: domain a: u: unlimited with quota_mode. Ask for no limit",
            "6:5: domain a: u: its name \"new\"",
            "6:5: domain a: u: it replaces old: do not ask for it",
            "7:5: domain a: v: unlimited with shadow_mode and quota_mode. Ask for no limit",
        ];
        assert_eq!(left_out, expected);
    }

    #[test]
    fn descriptors_without_a_limit_are_listed() {
        let (limits, left_out) = imported(
            "domain: a
descriptors:
  - { key: user, value: admin }
  - { key: user, rate_limit: { unit: minute, requests_per_unit: 5 } }
  - key: user
    value: bot
    descriptors:
      - { key: path, rate_limit: { unit: minute, requests_per_unit: 1 } }
      - { key: path, value: /health }
  - key: tree
    descriptors: [{ key: leaf }]
",
        );
        assert_eq!(limits.iter().filter(|line| !line.starts_with('#')).count(), 2, "{limits:?}");
        let places = [
            "3:5: domain a: user=admin",
            "5:5: domain a: user=bot",
            "9:9: domain a: user=bot, path=/health",
            "11:19: domain a: tree, leaf",
        ];
        let why = "no rate_limit, so requests that match it have no limit. Ask for no limit";
        assert_eq!(left_out, places.map(|place| format!("{place}: {why}")));
    }

    #[test]
    fn a_file_without_a_limit_is_an_error_that_lists_its_descriptors() {
        let errors = import("domain: a\ndescriptors:\n  - { key: k, rate_limit: { unlimited: true } }\n");
        let errors = errors.unwrap_err();
        assert!(errors[0].message.contains("there is nothing to convert"), "{errors:?}");
        let last = errors.last().unwrap();
        assert_eq!((last.at.line, last.at.column), (3, 5), "{errors:?}");
        assert_eq!(last.message, "not carried over: domain a: k: unlimited. Ask for no limit");
    }

    #[test]
    fn mistakes_are_shown_where_they_are() {
        let errors = import(
            "domain: a\ndescriptors:\n  - { key: k, rate_limit: { unit: eon, requests_per_unit: 1 } }\n",
        );
        let errors = errors.unwrap_err();
        assert_eq!((errors.len(), errors[0].at.line), (1, 3), "{errors:?}");
        assert!(!import("").unwrap_err().is_empty() && !import("[]").unwrap_err().is_empty());
        assert!(!import("limits: {}").unwrap_err().is_empty());
    }

    #[test]
    fn no_text_panics_and_what_is_read_is_valid() {
        const PARTS: [&str; 20] = [
            "domain: a\n",
            "domain: 'é b'\n",
            "descriptors:\n",
            "- key: k\n",
            "- key: 'a b'\n",
            "  value: v\n",
            "  value: '*'\n",
            "  value: null\n",
            "  rate_limit: { unit: day, requests_per_unit: 1 }\n",
            "  rate_limit: { unlimited: true }\n",
            "  rate_limit: { unit: 3s, requests_per_unit: 0 }\n",
            "  shadow_mode: true\n",
            "  descriptors: [{ key: x, rate_limit: { unit: hour, requests_per_unit: 9 } }]\n",
            "  descriptors: []\n",
            "  share_threshold: true\n",
            "[",
            "}",
            "\t",
            "- \n",
            "\u{1b}",
        ];
        let mut random = Random::new(seed());
        for _ in 0..5_000 {
            let start = if random.one_in(4) { "" } else { "domain: d\ndescriptors:\n- key: first\n" };
            let parts = (0..random.below(8)).map(|_| random.pick(&PARTS)).collect::<String>();
            let text = format!("{start}{parts}");
            if let Ok(read) = import(&text) {
                let yaml = read.to_yaml("file");
                Config::parse(&yaml, "imported.yaml")
                    .unwrap_or_else(|errors| panic!("{text:?}\n{yaml}\n{errors}"));
            }
        }
    }
}

//! The configuration files of Envoy's rate limit service.

use std::fs;

use tollway::config::{Config, FileWatch, describe};
use tollway_core::Algorithm;

fn errors(config: &str) -> String {
    Config::parse(config, "envoy.yaml").expect_err(config).to_string()
}

#[test]
fn what_the_service_refuses_is_refused_with_its_place() {
    for (config, expected) in [
        ("descriptors: []\n", "1:1: the domain is missing; add one, such as domain: shop"),
        (
            "envoy:\n- {domain: a, descriptors: [{key: k, rate_limit: {unlimited: true}}]}\n- {domain: a}\n",
            "3:12: domain \"a\" is given twice, first at 2:12; set merge_domains: true to merge them",
        ),
        (
            "envoy:\n- {domain: a, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]}\n\
             - {domain: a, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]}\n",
            "3:12: domain \"a\" is given twice, first at 2:12; set merge_domains: true to merge them",
        ),
        ("domain: shop\n", "1:9: domain \"shop\" has no rate_limit, so it would limit nobody"),
        ("domain: shop\ndescriptors: []\n", "1:9: domain \"shop\" has no rate_limit"),
        ("domain: shop\ndescriptors:\n", "1:9: domain \"shop\" has no rate_limit"),
        (
            "domain: a\ndescriptors:\n- key: k\n  descriptors:\n  - key: l\n",
            "1:9: domain \"a\" has no rate_limit",
        ),
        ("domain: a\ndescriptors:\n- {value: x}\n", "3:3: the descriptor has no key"),
        (
            "domain: a\ndescriptors:\n- {key: k, value: v}\n- {key: k, value: v}\n",
            "4:3: descriptor \"k_v\" is given twice, first at 3:3",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k_v}\n- {key: k, value: v}\n",
            "4:3: descriptor \"k_v\" is given twice, first at 3:3",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, rate_limit: {unit: fortnight, requests_per_unit: 1}}\n",
            "3:31: unit must be second, minute, hour, day, week, month, year or a duration such as 30s, not \"fortnight\"",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, rate_limit: {requests_per_unit: 1}}\n",
            "3:12: rate_limit has no unit; add one, such as unit: minute",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, rate_limit: {unlimited: true, unit: day}}\n",
            "3:42: a limit that is unlimited has no unit; remove one of them",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, ratelimit: {unlimited: true}}\n",
            "3:12: unknown field \"ratelimit\" (did you mean \"rate_limit\"?)",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, rate_limit: {unit: day, per: 1}}\n",
            "3:36: unknown field \"per\"; a rate_limit has",
        ),
        ("domain: a\ndescriptors: [x]\n", "2:15: a descriptor must be a mapping"),
        ("1: a\n", "1:1: unknown field \"1\""),
        (
            "domain: a\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 1.5}}\n",
            "3:55: requests_per_unit must be a whole number from 0 to 4294967295, not \"1.5\"",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 1, name: n, replaces: [{name: n}]}}\n",
            "3:85: limit \"n\" cannot replace itself",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: }]}}\n",
            "3:70: name must be a text, but has no value",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, value: v, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}\n",
            "3:22: share_threshold needs a value with a \"*\", which this descriptor does not have",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 1, burst: 3}}\n",
            "3:58: burst needs \"algorithm: token_bucket\", which this limit does not have",
        ),
        ("domain: ''\n", "1:9: domain must be a text, not the text \"\""),
        ("envoy: {quota_mode: true}\n", "1:1: envoy has no configs; add them, such as configs: [shop.yaml]"),
        (
            "envoy: 7s.yaml\n",
            "1:8: envoy must be a mapping or a list here; only a file can name another, not \"7s.yaml\"",
        ),
    ] {
        let found = errors(config);
        let expected = format!("envoy.yaml:{expected}");
        assert!(found.starts_with(&expected) && !found.contains('\n'), "{config}\n{found}\n{expected}");
    }
}

#[test]
fn every_mistake_of_a_file_is_found() {
    let found = errors("domain: a\ndescriptors:\n- {value: x}\n- {key: k, rate_limit: {}}\n- 7\n");
    assert_eq!(found.lines().count(), 3, "{found}");
}

#[test]
fn a_file_of_the_service_is_a_configuration() {
    let config = "domain: shop\ndescriptors:\n\
        - {key: a, rate_limit: {unit: MINUTE, requests_per_unit: 3}}\n\
        - key: b\n  value: x\n  rate_limit: {unit: 90s, requests_per_unit: 5, algorithm: token_bucket, burst: 10}\n  \
        descriptors:\n  - {key: c, rate_limit: {unlimited: true}}\n";
    let policy = Config::parse(config, "envoy.yaml").unwrap().policy;
    let names: Vec<_> = policy.limits().iter().map(|limit| limit.name()).collect();
    assert_eq!(names, ["envoy/shop/a", "envoy/shop/b=x"]);
    let Some(Algorithm::TokenBucket(bucket)) = policy.limits()[1].default_algorithm() else {
        panic!("{policy:?}")
    };
    assert_eq!((bucket.burst(), bucket.count(), bucket.period().as_secs_rounded_up()), (10, 5, 90));
    assert!(policy.descriptors().has_domain("shop"));
}

#[test]
fn it_stands_beside_limits_of_ours() {
    let config = "limits: { Login: { rate: 5/m } }\nenvoy:\n- domain: d\n  descriptors:\n  \
        - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n";
    let policy = Config::parse(config, "both.yaml").unwrap().policy;
    assert!(policy.limit("Login").is_some() && policy.limit("envoy/d/a").is_some());
}

#[test]
fn what_has_no_effect_is_a_warning() {
    let config = "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day}}\n";
    let warnings = Config::parse(config, "envoy.yaml").unwrap().warnings;
    let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, ["3:12: rate_limit has no requests_per_unit, so no request is allowed"]);
}

/// The program that these files are for is written in Go, whose YAML reads these words of YAML 1.1 as flags.
#[test]
fn flags_may_have_the_words_of_go() {
    let parse = |word: &str| {
        let limit = format!("shadow_mode: {word}, rate_limit: {{unit: minute, requests_per_unit: 5}}");
        Config::parse(&format!("domain: shop\ndescriptors: [{{key: ip, {limit}}}]\n"), "envoy.yaml")
    };
    for word in ["true", "yes", "on", "True", "YES", "On", "y"] {
        let described = describe(&parse(word).unwrap()).to_string();
        assert!(described.contains("  ip  5 per minute, shadow_mode\n"), "{word}: {described}");
    }
    for word in ["false", "no", "off", "False", "NO", "Off", "n"] {
        let described = describe(&parse(word).unwrap()).to_string();
        assert!(described.contains("  ip  5 per minute\n"), "{word}: {described}");
    }
    for word in ["1", "'yes'", "yEs"] {
        assert!(parse(word).unwrap_err().to_string().contains("must be true or false"), "{word}");
    }
}

#[test]
fn a_field_that_a_file_does_not_have_is_named_with_those_that_it_has() {
    let file =
        "domain: a\nqwertz: 1\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 1}}]\n";
    let error = Config::parse(file, "envoy.yaml").unwrap_err().to_string();
    assert!(error.starts_with("envoy.yaml:2:1: unknown field \"qwertz\"; a file has limits, "), "{error}");
    assert!(error.contains("show_ids, domain and descriptors"), "{error}");
}

#[test]
fn the_tree_is_described_in_words() {
    let config = "\
domain: shop
descriptors:
- key: route
  value: login
  descriptors:
  - {key: ip, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: ip, value: '10.*', share_threshold: true, rate_limit: {unit: 30s, requests_per_unit: 7}}
- {key: account, detailed_metric: true, rate_limit: {unit: MONTH, requests_per_unit: 3, name: new, replaces: [{name: a}, {name: b}]}}
- {key: account, value: free, rate_limit: {unlimited: true}}
- {key: account, value: none, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 0}}
- {key: rate, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 9, algorithm: sliding_log}}
- {key: \"two\\nlines\", rate_limit: {unit: year, requests_per_unit: 9, algorithm: token_bucket, burst: 4}}
envoy:
  quota_mode: true
  configs: [{domain: a, descriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 1}}]}]
";
    let described = describe(&Config::parse(config, "envoy.yaml").unwrap()).to_string();
    let tree = "
envoy domain a, 1 descriptor: 1 limit, quota_mode
  k  1 per second

envoy domain shop, 8 descriptors: 5 limits, 1 unlimited, 1 refuses all, quota_mode
  route=login   no limit
    ip          5 per minute, shadow_mode
    ip=10.*     7 per 30s, share_threshold
  account       3 per month, name new, replaces a b, detailed_metric
  account=free  unlimited
  account=none  refuses all, value_to_metric
  rate          9 per hour, sliding_log, quota_mode
  two\\nlines    9 per year, token_bucket, burst 4
";
    assert!(described.ends_with(tree), "{described}");
    assert!(described.contains("\nlimits  6, all from descriptors of Envoy\n"), "{described}");
    let with_own = format!("{config}limits: {{ Login: {{ rate: 5/m }} }}\n");
    let described = describe(&Config::parse(&with_own, "envoy.yaml").unwrap()).to_string();
    assert!(described.contains("\nlimits  7, 6 of them from descriptors of Envoy\n"), "{described}");
}

#[test]
fn an_override_of_a_descriptor_says_what_to_write_instead() {
    let descriptors =
        "domain: web\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]\n";
    let says = "limit \"envoy/web/user\" is that of a descriptor, which has no overrides; for other numbers of one value, \
                add a descriptor with its key and this \"value\"";
    for (overrides, at) in [
        ("overrides: { envoy/web/user:vip: { rate: 5/s } }", "3:14"),
        ("envoy/web/user:vip: { rate: 5/s }", "3:1"),
        ("overrides:\n- envoy/web/user: { rate: 5/s, ids: [vip] }", "4:3"),
    ] {
        let text = format!("{descriptors}{overrides}\n");
        assert_eq!(errors(&text), format!("envoy.yaml:{at}: {says}"), "{overrides}");
    }
}

#[test]
fn files_are_named_and_watched() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("tollway.yaml", "envoy: [one.yaml, two.yaml]\n");
    write(
        "one.yaml",
        "domain: one\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n",
    );
    write("two.yaml", "domain: two\ndescriptors:\n- {key: a, rate_limit: {unit: day}}\n");
    let mut watch = FileWatch::new(directory.path().join("tollway.yaml"));
    let Config { policy, warnings, .. } = watch.read().unwrap();
    let file = warnings[0].file.as_deref().unwrap();
    assert!(file.ends_with("two.yaml"), "{file}");
    assert!(policy.descriptors().has_domain("one") && policy.descriptors().has_domain("two"));
    assert!(!watch.changed());
    write("two.yaml", "domain: two\ndescriptors: [{}]\n");
    assert!(watch.changed());
    let found = watch.read().unwrap_err().to_string();
    assert!(found.contains("two.yaml:2:15: the descriptor has no key"), "{found}");
}

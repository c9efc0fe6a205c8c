//! The snippets of the original key-value limits documentation load unchanged, alone and together.

use tollway::config::Config;
use tollway::core::algorithm::{Algorithm, TokenBucket};

const LIMITS: &str = "\
NewRegistrationsPerIPAddress:
  burst: 20
  count: 20
  period: 1s
NewOrdersPerAccount:
  burst: 300
  count: 300
  period: 180m
";

const OVERRIDES: &str = "\
NewRegistrationsPerIPAddress:10.0.0.2:
  burst: 20
  count: 40
  period: 1s
NewOrdersPerAccount:12345678:
  burst: 300
  count: 600
  period: 180m
";

const WALK_THROUGH: &str = "\
NewFoosPerIPAddress:172.23.45.22:
  burst: 20
  count: 20
  period: 1s
";

/// A limit, an id under it, and the burst, count and period that hold for it.
type Expected = (&'static str, &'static str, Option<(u64, u64, &'static str)>);

fn check(text: &str, expected: &[Expected]) {
    let config = Config::parse(text, "seed.yaml").unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    for (name, id, numbers) in expected {
        let charge = config.policy.charge(name, id.as_bytes(), 0).expect("a limit and an id of its format");
        let numbers = numbers.map(|(burst, count, period)| {
            let period: tollway::core::Nanos = period.parse().expect("a duration");
            Algorithm::TokenBucket(TokenBucket::new(burst, count, period.into()).expect("numbers that fit"))
        });
        assert_eq!(charge.algorithm().copied(), numbers, "{name}:{id}");
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

const BY_DEFAULT: [Expected; 2] = [
    ("NewRegistrationsPerIPAddress", "10.0.0.1", Some((20, 20, "1s"))),
    ("NewOrdersPerAccount", "1", Some((300, 300, "180m"))),
];

const OVERRIDDEN: [Expected; 2] = [
    ("NewRegistrationsPerIPAddress", "10.0.0.2", Some((20, 40, "1s"))),
    ("NewOrdersPerAccount", "12345678", Some((300, 600, "180m"))),
];

#[test]
fn limits_alone_are_a_file() {
    check(LIMITS, &BY_DEFAULT);
}

#[test]
fn overrides_alone_are_a_file_that_limits_nobody_else() {
    check(OVERRIDES, &OVERRIDDEN);
    check(
        OVERRIDES,
        &[("NewOrdersPerAccount", "1", None), ("NewRegistrationsPerIPAddress", "10.0.0.1", None)],
    );
    check(
        WALK_THROUGH,
        &[
            ("NewFoosPerIPAddress", "172.23.45.22", Some((20, 20, "1s"))),
            ("NewFoosPerIPAddress", "172.23.45.23", None),
        ],
    );
}

#[test]
fn one_after_the_other_they_are_a_file() {
    let text = format!("{LIMITS}{OVERRIDES}");
    check(&text, &BY_DEFAULT);
    check(&text, &OVERRIDDEN);
}

#[test]
fn indented_under_their_sections_they_are_a_file() {
    let text = format!("overrides:\n{}limits:\n{}", indented(OVERRIDES), indented(LIMITS));
    check(&text, &BY_DEFAULT);
    check(&text, &OVERRIDDEN);
}

#[test]
fn bare_limits_and_sections_mix() {
    check(&format!("{LIMITS}overrides:\n{}", indented(OVERRIDES)), &OVERRIDDEN);
    check(&format!("{OVERRIDES}limits:\n{}", indented(LIMITS)), &OVERRIDDEN);
}

#[test]
fn the_ids_of_each_format_are_understood() {
    let limit = |name: &str, id: &str| format!("  {name}: {{ burst: 1, count: 1, period: 1s, id: {id} }}\n");
    let ids = [
        ("NewRegistrationsPerIPAddress", "ipAddress", "10.0.0.1"),
        ("NewRegistrationsPerIPAddress", "ipAddress", "2001:0db8:0000:0000:0000:ff00:0042:8329"),
        ("NewRegistrationsPerIPv6Range", "ipv6RangeCIDR", "2001:0db8:0000::/48"),
        ("NewOrdersPerAccount", "regId", "12345678"),
        ("CertificatesPerDomainPerAccount", "regId:domain", "12345678:example.com"),
        ("CertificatesPerFQDNSetPerAccount", "regId:fqdnSet", "12345678:example.com,example.org"),
    ];
    for (name, format, id) in ids {
        let overridden = format!("{name}:{id}:\n  burst: 2\n  count: 3\n  period: 4s\n");
        for overrides in [overridden.clone(), format!("overrides:\n{}", indented(&overridden))] {
            let text = format!("limits:\n{}{overrides}", limit(name, format));
            check(&text, &[(name, id, Some((2, 3, "4s")))]);
        }
        let list =
            format!("overrides:\n- {name}: {{burst: 2, count: 3, period: 4s, ids: [{{id: '{id}'}}]}}\n");
        check(&format!("limits:\n{}{list}", limit(name, format)), &[(name, id, Some((2, 3, "4s")))]);
    }
}

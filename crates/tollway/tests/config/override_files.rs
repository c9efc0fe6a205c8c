//! Overrides in files of their own, in the shape that other software keeps them.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tollway::config::Config;
use tollway::core::algorithm::Algorithm;

/// Default limits as a certificate authority has them, which say nothing of ids.
const DEFAULTS: &str = "\
# Limits for everybody without an override.
NewRegistrationsPerIPAddress:
  burst: 20
  count: 20
  period: 1s
NewRegistrationsPerIPv6Range:
  burst: 500
  count: 500
  period: 3h
CertificatesPerDomainPerAccount:
  # Renewals do not count.
  count: 50
  burst: 50
  period: 168h
CertificatesPerFQDNSet:
  count: 5
  burst: 5
  period: 168h0m0s
NewOrdersPerAccount:
  burst: 300
  count: 300
  period: 180m
FailedAuthorizationsForPausingPerDomainPerAccount: { count: 1, burst: 1, period: 1.5h }
";

/// The overrides that belong to them.
const OVERRIDES: &str = "\
- NewRegistrationsPerIPAddress:
    burst: 40
    count: 40
    period: 1s
    ids:
      - id: 192.0.2.7
        comment: A partner behind one address
      - id: 2001:db8::7
        comment:
- NewRegistrationsPerIPv6Range:
    burst: 50
    count: 50
    period: 2h
    ids:
      - id: 2001:db8:1::/48
- CertificatesPerFQDNSet:
    burst: 60
    count: 60
    period: 24h
    ids:
      - id: \"example.com,example.net\"
        comment: A set of names
      - example.org
- NewOrdersPerAccount:
    burst: 1
    count: 2
    period: 1h
    ids: [ { id: 12345678, comment: Asked for it in writing } ]
- NewOrdersPerAccount:
    burst: 3
    count: 4
    period: 1h
    ids:
    - { id: '87654321' }
";

struct Files(TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            fs::write(directory.path().join(name), text).expect("written");
        }
        Self(directory)
    }

    fn read(&self, name: &str) -> Config {
        Config::from_file(&self.0.path().join(name)).unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// The errors, without the directory that files are in.
    fn errors(&self, name: &str) -> String {
        let errors = Config::from_file(&self.0.path().join(name)).expect_err("mistakes").to_string();
        errors.replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn numbers(config: &Config, limit: &str, id: &str) -> Option<(u64, u64, u64)> {
    let charge = config.policy.charge(limit, id.as_bytes(), 0).expect("a limit and an id of its format");
    charge.algorithm().map(|algorithm| match algorithm {
        Algorithm::TokenBucket(limit) => (limit.burst(), limit.count(), limit.period().get() / 1_000_000_000),
        other => panic!("{other:?}"),
    })
}

const OVERRIDDEN: [(&str, &str, (u64, u64, u64)); 7] = [
    ("NewRegistrationsPerIPAddress", "192.0.2.7", (40, 40, 1)),
    ("NewRegistrationsPerIPAddress", "2001:db8::7", (40, 40, 1)),
    ("NewRegistrationsPerIPv6Range", "2001:db8:1::/48", (50, 50, 7_200)),
    ("CertificatesPerFQDNSet", "example.com,example.net", (60, 60, 86_400)),
    ("CertificatesPerFQDNSet", "example.org", (60, 60, 86_400)),
    ("NewOrdersPerAccount", "12345678", (1, 2, 3_600)),
    ("NewOrdersPerAccount", "87654321", (3, 4, 3_600)),
];

#[test]
fn each_file_of_a_certificate_authority_loads_unchanged() {
    let files = Files::new(&[("defaults.yml", DEFAULTS), ("overrides.yml", OVERRIDES)]);
    let defaults = files.read("defaults.yml");
    assert_eq!(defaults.policy.limits().len(), 6);
    assert_eq!(numbers(&defaults, "CertificatesPerFQDNSet", "x"), Some((5, 5, 604_800)));
    let pausing = "FailedAuthorizationsForPausingPerDomainPerAccount";
    assert_eq!(numbers(&defaults, pausing, "1:example.com"), Some((1, 1, 5_400)));
    let overrides = files.read("overrides.yml");
    for (limit, id, expected) in OVERRIDDEN {
        assert_eq!(numbers(&overrides, limit, id), Some(expected), "{limit}:{id}");
        assert_eq!(numbers(&overrides, limit, "0"), None, "nobody else is limited");
    }
}

#[test]
fn overrides_name_the_file_that_has_them() {
    let map = "NewOrdersPerAccount:12345678: { burst: 1, count: 2, period: 1h }\n";
    for (overrides, form) in [
        (OVERRIDES, "a list"),
        (map, "a mapping"),
        (
            "overrides: [{ NewOrdersPerAccount: { burst: 1, count: 2, period: 1h, ids: [12345678] } }]",
            "a section",
        ),
    ] {
        let main = format!("{DEFAULTS}overrides: overrides.yml\n");
        let files = Files::new(&[("policy.yaml", &main), ("overrides.yml", overrides)]);
        let config = files.read("policy.yaml");
        assert_eq!(numbers(&config, "NewOrdersPerAccount", "12345678"), Some((1, 2, 3_600)), "{form}");
        assert_eq!(numbers(&config, "NewOrdersPerAccount", "1"), Some((300, 300, 10_800)), "{form}");
    }
}

#[test]
fn a_path_is_relative_to_the_file_that_has_it_or_absolute() {
    let files = Files::new(&[("overrides.yml", OVERRIDES)]);
    let main = format!("{DEFAULTS}overrides: ../overrides.yml\n");
    fs::create_dir(files.0.path().join("etc")).expect("a directory");
    fs::write(files.0.path().join("etc/policy.yaml"), main).expect("written");
    assert_eq!(
        numbers(&files.read("etc/policy.yaml"), "NewOrdersPerAccount", "12345678"),
        Some((1, 2, 3_600))
    );
    let absolute = format!("{DEFAULTS}overrides: '{}'\n", files.0.path().join("overrides.yml").display());
    fs::write(files.0.path().join("policy.yaml"), absolute).expect("written");
    assert_eq!(numbers(&files.read("policy.yaml"), "NewOrdersPerAccount", "87654321"), Some((3, 4, 3_600)));
}

#[test]
fn an_error_in_a_file_of_overrides_names_that_file() {
    let main = "limits: { A: { burst: 1, count: 1, period: 1s } }\nA:x: { burst: 2, count: 1, period: 1s }\noverrides: more.yaml\nstore: 5\n";
    for (more, expected) in [
        (
            "A:x: { burst: 2, count: 1, period: 1s }\nB:y: { burst: 1, count: 1, period: 1 }\n",
            "policy.yaml:4:8: store must be memory, or a URL such as redis://cache:6379, not \"5\"\n\
             more.yaml:1:1: limit \"A\" has two overrides for id \"x\", the first at policy.yaml:2:1\n\
             more.yaml:2:1: limit \"B\" does not exist; add it to \"limits\"",
        ),
        (
            "{ A:x:",
            "policy.yaml:4:8: store must be memory, or a URL such as redis://cache:6379, not \"5\"\n\
             more.yaml:2:1: expected a value; is a \"[\" or \"{\" not closed?",
        ),
        (
            "lemmings",
            "policy.yaml:4:8: store must be memory, or a URL such as redis://cache:6379, not \"5\"\n\
             more.yaml:1:1: overrides must be a mapping, such as \"Name:id: {burst: 20, count: 20, period: 1s}\", or a list, \
             not \"lemmings\"",
        ),
    ] {
        let files = Files::new(&[("policy.yaml", main), ("more.yaml", more)]);
        assert_eq!(files.errors("policy.yaml"), expected);
    }
}

#[test]
fn a_file_of_overrides_that_is_missing_or_empty_is_an_error() {
    let main = "limits: { A: {} }\noverrides: more.yaml\n";
    let missing = Files::new(&[("policy.yaml", main)]).errors("policy.yaml");
    assert!(missing.starts_with("policy.yaml:2:12: overrides cannot be read from more.yaml: "), "{missing}");
    for empty in ["", "# later\n", "~\n"] {
        let files = Files::new(&[("policy.yaml", main), ("more.yaml", empty)]);
        let expected = "more.yaml:1:1: the file is empty; remove \"overrides\" if there are none";
        assert_eq!(files.errors("policy.yaml"), expected, "{empty:?}");
    }
    let not_utf8 = Files::new(&[("policy.yaml", main)]);
    fs::write(not_utf8.0.path().join("more.yaml"), b"A:\xff: {}").expect("written");
    assert_eq!(not_utf8.errors("policy.yaml"), "more.yaml:1:3: the file is not UTF-8 from here on");
}

#[test]
fn a_text_names_no_files() {
    let errors = Config::parse("limits: { A: {} }\noverrides: more.yaml", "yaml").expect_err("no file");
    let expected = "yaml:2:12: overrides must be a mapping or a list here; only a file can name another, not \"more.yaml\"";
    assert_eq!(errors.to_string(), expected);
    assert!(Config::from_file(Path::new("no/such/file.yaml")).is_err());
}

#[test]
fn an_account_stands_for_everything_of_the_account() {
    let config = Config::parse(
        "limits: { A: { burst: 1, count: 1, period: 1s, id: 'regId:domain' } }
overrides:
  - A: { burst: 2, count: 2, period: 1s, ids: [7, '8:example.com'] }
  - A: { burst: 3, count: 3, period: 1s, ids: ['7:big.example'] }",
        "yaml",
    );
    let config = config.unwrap_or_else(|errors| panic!("{errors}"));
    for (id, burst) in [
        ("7:example.com", 2),
        ("7:Big.example", 3),
        ("8:example.com", 2),
        ("8:example.org", 1),
        ("77:a.com", 1),
    ] {
        assert_eq!(numbers(&config, "A", id), Some((burst, burst, 1)), "{id}");
    }
    let twice = "limits: { A: { id: 'regId:domain' } }\nA:7: { rate: 1/s }\nA:007: { rate: 2/s }\n";
    let errors = Config::parse(twice, "yaml").expect_err("two overrides").to_string();
    assert_eq!(errors, "yaml:3:1: limit \"A\" has two overrides for id \"7\", the first at 2:1");
}

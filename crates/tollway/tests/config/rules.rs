//! Checks that the section `rules` defines rules that are resolved by name, and that its errors point at their place.

use tollway::Clock;
use tollway::config::{Config, describe};
use tollway::core::{LocalShare, OnFull, OnStoreFailure};
use tollway::engine::Engine;
use tollway::store::memory::Memory;

fn read(text: &str) -> Config {
    Config::parse(text, "test.yaml").unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// Each file gets exactly these errors, with the excerpts below them.
fn check(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        let errors = Config::parse(text, "RULES").err().map(|errors| errors.to_string());
        let expected: Vec<_> = expected.iter().map(|error| format!("RULES:{error}")).collect();
        assert_eq!(errors.as_deref(), Some(&*expected.join("\n")), "\n{text}");
    }
}

const RULES: &str = "
rules:
  upload: \"Or('10/1s', And('user:100/60m', 'apikey:60/h'))\"
  login:
    rule: address:5/m
    on_full: allow
    on_store_failure: local
    local_share: 1/4
  closed: And()
  never: { rule: Or( ), on_store_failure: deny }
";

#[test]
fn rules_are_found_by_name_in_the_order_of_the_file() {
    let config = read(RULES);
    let rules: Vec<_> = config
        .policy
        .rules()
        .iter()
        .map(|rule| {
            let limit = rule.keyed().limit();
            (rule.name(), limit.rule().to_string(), limit.on_full(), limit.on_store_failure())
        })
        .collect();
    let quarter = OnStoreFailure::Local(LocalShare::new(1, 4).unwrap());
    let of = |text: &str| text.to_owned();
    assert_eq!(
        rules,
        [
            (
                "upload",
                of("Or('10/s', And('user:100/h', 'apikey:60/h'))"),
                OnFull::Deny,
                OnStoreFailure::Allow
            ),
            ("login", of("address:5/m"), OnFull::Allow, quarter),
            ("closed", of("And()"), OnFull::Deny, OnStoreFailure::Allow),
            ("never", of("Or()"), OnFull::Deny, OnStoreFailure::Deny),
        ]
    );
    assert_eq!(config.policy.rule("login"), Some(config.policy.rules()[1].keyed()));
    assert!(config.policy.rule("logout").is_none() && config.warnings.is_empty());
}

#[test]
fn a_file_with_rules_says_something() {
    for text in [RULES, "rules: {}"] {
        let config = read(text);
        assert_eq!((config.policy.limits().len(), config.policy.keys().rules().len()), (0, 0), "{text}");
    }
}

#[test]
fn a_description_has_the_rules_in_their_canonical_form() {
    let description = describe(&read(RULES)).to_string();
    assert!(description.contains("\nkeys    0 rules\nrules   4\ndomains 0\n"), "{description}");
    let expected = "
upload  Or('10/s', And('user:100/h', 'apikey:60/h'))
  logs :upload, :upload:user:VALUE, :upload:apikey:VALUE, on_full deny, on_store_failure allow

login  address:5/m
  logs :login:address:VALUE, on_full allow, on_store_failure local (local_share 1/4)

closed  And()
  logs none, on_full deny, on_store_failure allow

never  Or()
  logs none, on_full deny, on_store_failure deny
";
    assert!(description.ends_with(expected), "{description}");
}

#[test]
fn carets_stand_under_the_place() {
    check(&[
        (
            "rules:\n  upload: \"Or('10/s', 'user:5/fortnight')\"",
            &[
                "2:11: upload: a span must be a unit (ms, s, m, h or d), with or without a number in front, such as s or 5m\
               \n  Or('10/s', 'user:5/fortnight')\
               \n                     ^^^^^^^^^",
            ],
        ),
        (
            "rules: { a: 10/s, b: { rule: ten, on_full: allow } }",
            &["1:30: rule: a rate must be [selector:]COUNT/SPAN, such as 10/s or user:100/24h\n  ten\n  ^^^"],
        ),
        (
            "rules:\n  a: >-\n    Or('10/s',\n    '5/m'",
            &["3:5: a: expected \",\" or \")\" after a part\n  Or('10/s', '5/m'\n                  ^"],
        ),
        (
            "rules: { a: '' }",
            &["1:13: a: a rate must be [selector:]COUNT/SPAN, such as 10/s or user:100/24h\n  \n  ^"],
        ),
        (
            "rules: { a: 'redis://app:s3cret@cache' }",
            &["1:13: a: a count must be a whole number from 0 to 10000000"],
        ),
    ]);
    let long = format!("rules: {{ a: \"{}\" }}", " ".repeat(5_000));
    check(&[(&long, &["1:13: a: a rule can have at most 4096 bytes"])]);
}

#[test]
fn every_field_is_checked_and_all_errors_come_at_once() {
    check(&[
        (
            "rules:\n  a: { rul: 1/s, on_ful: evict, on_store_failure: local, local_share: 2, key: x }\n  b: {}\n  7: 1/s",
            &[
                "2:8: unknown field \"rul\" (did you mean \"rule\"?)",
                "2:18: unknown field \"on_ful\" (did you mean \"on_full\"?)",
                "2:26: on_ful must be deny or allow, not \"evict\"",
                "2:71: local_share must be above 0 and at most 1, such as 1/4 or 0.25, not \"2\"",
                "2:74: unknown field \"key\"; a rule has rule, on_full, on_store_failure and local_share",
                "3:3: rule \"b\" has no \"rule\", such as \"Or('10/s', 'user:100/h')\"",
                "4:3: \"7\" cannot be the name of a rule; use letters, digits, \"_\", \"-\" and \".\", but not only digits",
            ],
        ),
        (
            "rules: { a: { rule: 1/s, local_share: 1/2 }, b: [1/s], c: , a: 2/s }",
            &[
                "1:26: local_share needs \"on_store_failure: local\", which this rule does not have",
                "1:49: b must be a rule, such as \"Or('10/s', 'user:100/h')\", not a list",
                "1:56: c must be a rule, such as \"Or('10/s', 'user:100/h')\", but has no value",
                "1:61: \"a\" is given twice, first at 1:10",
            ],
        ),
        (
            "rules: 10/s",
            &["1:8: rules must be a mapping, such as name: \"Or('10/s', 'user:100/h')\", not \"10/s\""],
        ),
        ("rule: { a: 1/s }", &["1:1: unknown field \"rule\" (did you mean \"rules\"?)"]),
    ]);
}

#[test]
fn a_third_field_is_taken_and_warned_about() {
    let config = read("rules:\n  a: \"Or('apikey:5/s:0.1', '10/s')\"\n  b: { rule: 15/m:2 }");
    let warnings: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "2:6: rule \"a\": the third field of \"apikey:5/s\" has no effect",
            "3:14: rule \"b\": the third field of \"15/m\" has no effect",
        ]
    );
    assert_eq!(config.policy.rule("b").unwrap().limit().rule().to_string(), "15/m");
}

#[test]
fn a_reload_swaps_the_rules_and_keeps_the_logs() {
    let clock = Clock::manual(tollway::core::Timestamp::EPOCH);
    let limiter = Engine::with(read("rules: { a: 1/s, b: 1/s }").policy, Memory::new(100), clock);
    let allowed = |name: &str| {
        let policy = limiter.policy();
        let bill = policy.rule(name)?.bill(|_| Ok::<_, ()>(None::<&str>)).unwrap();
        Some(limiter.blocking().resolve(&bill).allowed())
    };
    assert_eq!([(); 3].map(|()| allowed("a")), [Some(true), Some(false), Some(false)]);
    limiter.reload(read("rules: { a: 3/s }").policy);
    assert_eq!([(); 3].map(|()| allowed("a")), [Some(true), Some(true), Some(false)]);
    assert_eq!(allowed("b"), None);
}

//! Checks that the section `domains` sets what a master enforces, and that its errors point at their place.

use tollway::config::{Config, describe};
use tollway::core::domain::Logic;

const DOMAINS: &str = "
domains:
  web: { rules: [{ rate: 1/s, burst: 10 }, { rate: 100 per hour, burst: 20 }] }
  search: { rules: [{ interval: 30s, burst: 5m }], logic: gcra }
  'any name/at all': { rules: [{ rate: 5 per 2 min }] }
  open: {}
";

#[test]
fn domains_are_found_by_the_names_that_gatekeepers_give_them() {
    let policy = Config::parse(DOMAINS, "test.yaml").unwrap().policy;
    let numbers = |name: &str| {
        let domain = policy.domain(name.as_bytes()).unwrap();
        let rule = |rule: &tollway::core::DomainRule| {
            (rule.limit().burst(), rule.limit().count(), rule.limit().period().to_string())
        };
        (domain.logic(), domain.rules().iter().map(rule).collect::<Vec<_>>())
    };
    let of = |burst, count, period: &str| (burst, count, period.to_owned());
    assert_eq!(numbers("web"), (Logic::Window, vec![of(10, 1, "1s"), of(20, 100, "3600s")]));
    assert_eq!(numbers("search"), (Logic::Gcra, vec![of(10, 1, "30s")]));
    assert_eq!(numbers("any name/at all"), (Logic::Window, vec![of(1, 5, "120s")]));
    assert_eq!(numbers("open"), (Logic::Window, vec![]));
    assert!(policy.domain(b"web\0").is_none() && policy.domain(b"\xff").is_none());
}

#[test]
fn a_time_has_the_same_words_everywhere_and_is_milliseconds_without_a_unit() {
    let one_per = |pace: &str| {
        let text = format!(
            "domains: {{ web: {{ rules: [{{ {pace}, burst: 1 }}] }}, direct: {{ {pace}, burst: 1 }} }}"
        );
        let config = Config::parse(&text, "test.yaml").unwrap_or_else(|errors| panic!("{errors}"));
        let [in_list, direct] = config.policy.domains() else { panic!("two domains") };
        assert_eq!(in_list.rules(), direct.rules(), "{pace}");
        in_list.rules()[0].limit().emission_interval().to_string()
    };
    for (pace, expected) in [
        ("interval: 500", "0.5s"),
        ("interval: 500ms", "0.5s"),
        ("interval: 0.5s", "0.5s"),
        ("interval: 2 min", "120s"),
        ("interval: 2 Minutes", "120s"),
        ("interval: 1h30m", "5400s"),
        ("interval: day", "86400s"),
        ("rate: 2/500", "0.25s"),
        ("rate: 1 per 250", "0.25s"),
    ] {
        assert_eq!(one_per(pace), expected, "{pace}");
    }
}

#[test]
fn they_are_told_as_they_were_understood() {
    let told = describe(&Config::parse(DOMAINS, "test.yaml").unwrap()).to_string();
    let expected = "domains 4\n
web  1 per 1s after 10, 100 per 1h after 20
  logic window

search  1 per 30s after 10
  logic gcra

any name/at all  5 per 2m after 1
  logic window

open  nobody is delayed
  logic window
";
    assert!(told.ends_with(expected), "{told}");
}

#[test]
fn what_is_wrong_is_pointed_at() {
    for (text, expected) in [
        (
            "domains: web",
            "1:10: domains must be a mapping, such as \"name: { rules: [{ rate: 1/s, burst: 10 }] }\", not \"web\"",
        ),
        (
            "domains: { web: 1/s }",
            "1:17: web must be a mapping, such as { rules: [{ rate: 1/s, burst: 10 }] }, not \"1/s\"",
        ),
        (
            "domains: { web: { rules: 1/s } }",
            "1:26: rules must be a list, such as [{ rate: 1/s, burst: 10 }], not \"1/s\"",
        ),
        (
            "domains: { web: { rules: [1/s] } }",
            "1:27: a rule of a domain must be a mapping, such as { rate: 1/s, burst: 10 }, not \"1/s\"",
        ),
        (
            "domains: { web: { rules: [{ burst: 1 }] } }",
            "1:27: a rule of a domain needs a rate or an interval, such as { rate: 1/s, burst: 10 }",
        ),
        (
            "domains: { web: { rules: [{ rate: 1/s, interval: 1s }] } }",
            "1:40: rate and interval mean the same; remove one of them",
        ),
        (
            "domains: { web: { rules: [{ rate: often }] } }",
            "1:35: rate \"often\": a rate must be a count, \"/\" or \"per\", and a span, such as 10/s or 10 per 5 min",
        ),
        (
            "domains: { web: { rules: [{ rate: 1/s, burst: big }] } }",
            "1:47: burst \"big\": a burst must be a number of requests, such as 10, or a duration, such as 30s",
        ),
        (
            "domains: { web: { rules: [{ rate: 1/s, burst: 0 }] } }",
            "1:27: a rule of a domain: burst must be above zero",
        ),
        (
            "domains: { web: { rules: [{ rate: 1/s, burst: 70000 }] } }",
            "1:27: a rule of a domain: burst must be at most 65536, not 70000",
        ),
        (
            "domains: { web: { logic: gcar } }",
            "1:26: logic must be window or gcra, not \"gcar\" (did you mean \"gcra\"?)",
        ),
        (
            "domains: { web: { interval: soon } }",
            "1:29: interval must be a time such as 30s, 2 min, 1h30m or 500 (milliseconds), not \"soon\"",
        ),
        (
            "domains: { web: { interval: 0 } }",
            "1:29: interval must be a time such as 30s, 2 min, 1h30m or 500 (milliseconds), not \"0\"",
        ),
        (
            "domains: { web: { rules: [{ rate: 1/s }], burst: 5 } }",
            "1:43: \"burst\" is beside \"rules\"; move it into a rule of the list",
        ),
        (
            "domains: { web: { burst: 5 } }",
            "1:17: a rule of a domain needs a rate or an interval, such as { rate: 1/s, burst: 10 }",
        ),
        (
            "domains: { web: { rate: 10 } }",
            "1:25: rate \"10\": a rate must be a count, \"/\" or \"per\", and a span, such as 10/s or 10 per 5 min (did you mean \"10/s\"?)",
        ),
        (
            "domains: { '': {} }",
            "1:12: domain \"\": the name of a domain must have 1 to 254 bytes and no NUL byte",
        ),
    ] {
        let errors = Config::parse(text, "D").err().map(|errors| errors.to_string());
        assert_eq!(errors, Some(format!("D:{expected}")), "{text}");
    }
}

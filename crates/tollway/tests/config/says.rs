//! Checks that each setting of a configuration takes effect.

use std::net::SocketAddr;
use std::time::Duration;

use tollway::Limiter;
use tollway::config::{Config, Gates, StoreUrl, describe};
use tollway::core::algorithm::{
    Algorithm, FixedWindow, Quota, SlidingLog, SlidingWindow, SmoothedRate, TokenBucket,
};
use tollway::core::{IdFormat, LocalShare, OnFull, OnStoreFailure};
use tollway::store::memory::MemoryBounds;

fn read(text: &str) -> Config {
    Config::parse(text, "test.yaml").unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

fn token_bucket(burst: u64, count: u64, period: Duration) -> Option<Algorithm> {
    TokenBucket::new(burst, count, period).map(Algorithm::TokenBucket).ok()
}

fn algorithm(config: &Config, limit: &str, id: &str) -> Option<Algorithm> {
    let limit = config.policy.limit(limit).expect("a limit that was declared");
    limit.algorithm_for(&limit.ids().canonical(id.as_bytes()).expect("an id of the format")).copied()
}

#[test]
fn settings_that_are_left_out_have_their_defaults() {
    for text in
        ["limits: {}", "rules: { r: 1/s }", "domains: { d: {} }", "keys: [{ match: x, answer: never }]"]
    {
        let config = read(text);
        assert_eq!(config.store, StoreUrl::Memory);
        assert_eq!(config.memory_bounds, MemoryBounds::default());
        assert_eq!(config.gates, Gates::default());
        assert_eq!(config.gates.http, "127.0.0.1:8080".parse().ok());
        assert!(config.policy.limits().is_empty(), "{text}");
    }
}

#[test]
fn the_built_in_policy_is_for_those_who_have_no_file() {
    let names: Vec<_> =
        Config::default().policy.limits().iter().map(|limit| limit.name().to_owned()).collect();
    assert_eq!(names, ["demo", "RequestsPerIPAddress", "LoginsPerAccount"]);
    assert_eq!(algorithm(&Config::default(), "demo", "x"), token_bucket(5, 5, Duration::from_secs(10)));
}

#[test]
fn a_file_that_limits_nothing_is_an_error() {
    let advice = "has no limits, keys, rules, domains or descriptors; add some, such as \
                  \"limits: { demo: { rate: 5/10s } }\", or write \"limits: {}\" if there are none";
    for text in ["", "\n", "# nothing here\n", "---\n", "~", "\u{feff}"] {
        let errors = Config::parse(text, "test.yaml").expect_err(text).to_string();
        assert_eq!(errors, format!("test.yaml:1:1: the file is empty: it {advice}"), "{text:?}");
    }
    for text in [
        "{}",
        "[]",
        "store: memory",
        "gates: { http: off }",
        "limits:",
        "limits:\nkeys: ~\n",
        "overrides: []",
        "max_buckets: 5",
        "max_client_buckets: 5",
    ] {
        let errors = Config::parse(text, "test.yaml").expect_err(text).to_string();
        assert_eq!(errors, format!("test.yaml:1:1: the file {advice}"), "{text:?}");
    }
    let errors = Config::parse("limts: {}", "test.yaml").expect_err("a typo").to_string();
    assert_eq!(errors, "test.yaml:1:1: unknown field \"limts\" (did you mean \"limits\"?)");
}

#[test]
fn a_rate_is_a_count_and_a_period_and_the_burst_is_the_count_unless_given() {
    let config = read(
        "
        limits:
          Plain: { rate: 100/h }
          Burst: { rate: 5 per minute, burst: 10 }
          Log: { algorithm: sliding_log, rate: 3/10 minutes }
          Rate: { algorithm: smoothed_rate, rate: 22/20s, strict: true }
          Quota: { algorithm: quota, rate: 1000/30d }
          Fixed: { algorithm: fixed_window, rate: 7/d, offset: 22h }
          Sliding: { algorithm: sliding_window, rate: 7/d }
        overrides:
          Plain:alice: { rate: 200/h }
          Fixed:alice: { rate: 9/d }
          Fixed:bob: { rate: 9/d, offset: 0s }
          Burst:alice: { rate: 5/minute, burst: 20 }
        ",
    );
    let minute = Duration::from_secs(60);
    assert_eq!(algorithm(&config, "Plain", "x"), token_bucket(100, 100, Duration::from_secs(3_600)));
    assert_eq!(algorithm(&config, "Plain", "alice"), token_bucket(200, 200, Duration::from_secs(3_600)));
    assert_eq!(algorithm(&config, "Burst", "x"), token_bucket(10, 5, minute));
    assert_eq!(algorithm(&config, "Burst", "alice"), token_bucket(20, 5, minute));
    let log = SlidingLog::new(3, Duration::from_secs(600)).map(Algorithm::SlidingLog).ok();
    assert_eq!(algorithm(&config, "Log", "x"), log);
    let rate = SmoothedRate::new(22.0, Duration::from_secs(20), true).map(Algorithm::SmoothedRate).ok();
    assert_eq!(algorithm(&config, "Rate", "x"), rate);
    let quota = Quota::new(1_000, Duration::from_secs(30 * 86_400)).map(Algorithm::Quota).ok();
    assert_eq!(algorithm(&config, "Quota", "x"), quota);
    let fixed = |count, hours| {
        let [day, offset] = [24, hours].map(|hours| Duration::from_secs(hours * 3_600));
        FixedWindow::new(count, day, offset).map(Algorithm::FixedWindow).ok()
    };
    assert_eq!(algorithm(&config, "Fixed", "x"), fixed(7, 22));
    assert_eq!(algorithm(&config, "Fixed", "alice"), fixed(9, 22));
    assert_eq!(algorithm(&config, "Fixed", "bob"), fixed(9, 0));
    let sliding = SlidingWindow::new(7, Duration::from_secs(86_400)).map(Algorithm::SlidingWindow).ok();
    assert_eq!(algorithm(&config, "Sliding", "x"), sliding);
    let bare = read("Plain: { rate: 100/h }");
    assert_eq!(algorithm(&bare, "Plain", "x"), token_bucket(100, 100, Duration::from_secs(3_600)));
}

#[test]
fn an_id_format_may_go_by_its_neutral_name() {
    for (name, format) in IdFormat::NAMES {
        let config = read(&format!("limits: {{ A: {{ rate: 1/s, id: '{name}' }} }}"));
        assert_eq!(config.policy.limit("A").expect("declared").ids(), format, "{name}");
    }
}

#[test]
fn limits_that_are_there_and_empty_are_none() {
    for text in ["limits: {}", "limits: {}\noverrides:\n", "limits:\nkeys: []\noverrides: []"] {
        assert_eq!(read(text).policy.limits().len(), 0, "{text}");
    }
}

#[test]
fn every_field_of_a_limit_is_taken() {
    let config = read(
        "
        limits:
          Plain: { burst: 3, count: 2, period: 1m30s }
          Full:
            algorithm: token_bucket
            burst: 300
            count: 300
            period: 180m
            id: regId:domain
            number: 18446744073709551615
            on_full: allow
            on_store_failure: local
        ",
    );
    let plain = config.policy.limit("Plain").expect("declared");
    assert_eq!(plain.default_algorithm().copied(), token_bucket(3, 2, Duration::from_secs(90)));
    assert_eq!((plain.number(), plain.ids()), (None, IdFormat::Any));
    assert_eq!((plain.on_full(), plain.on_store_failure()), (OnFull::Deny, OnStoreFailure::Allow));
    let full = config.policy.limit("Full").expect("declared");
    assert_eq!(full.default_algorithm().copied(), token_bucket(300, 300, Duration::from_secs(10_800)));
    assert_eq!((full.number(), full.ids()), (Some(u64::MAX), IdFormat::RegIdDomain));
    assert_eq!(
        (full.on_full(), full.on_store_failure()),
        (OnFull::Allow, OnStoreFailure::Local(LocalShare::WHOLE))
    );
}

#[test]
fn each_algorithm_gets_its_numbers() {
    let second = Duration::from_secs(1);
    let config = read(
        "
        limits:
          Log: { algorithm: sliding_log, count: 10, period: 1s }
          Leaky: { algorithm: smoothed_rate, count: 22, period: 1s }
          Strict: { algorithm: smoothed_rate, count: 22, period: 1s, strict: true }
          Quota: { algorithm: quota, count: 18446744073709551615, period: 1s }
        overrides:
          Strict:same: { count: 23, period: 1s }
          Strict:leaky: { count: 23, period: 1s, strict: false }
          Strict:other: { algorithm: token_bucket, burst: 1, count: 1, period: 1s }
        ",
    );
    let rate = |limit, strict| SmoothedRate::new(limit, second, strict).map(Algorithm::SmoothedRate).ok();
    for (limit, id, expected) in [
        ("Log", "x", SlidingLog::new(10, second).map(Algorithm::SlidingLog).ok()),
        ("Quota", "x", Quota::new(u64::MAX, second).map(Algorithm::Quota).ok()),
        ("Leaky", "x", rate(22.0, false)),
        ("Strict", "x", rate(22.0, true)),
        ("Strict", "same", rate(23.0, true)),
        ("Strict", "leaky", rate(23.0, false)),
        ("Strict", "other", token_bucket(1, 1, second)),
    ] {
        assert_eq!(algorithm(&config, limit, id), expected, "{limit}:{id}");
    }
}

#[test]
fn both_forms_of_overrides_say_the_same() {
    let limits = "limits: { A: { burst: 1, count: 1, period: 1s, id: regId }, B: {} }\n";
    for overrides in [
        "overrides:\n  A:007: { burst: 2, count: 2, period: 2s }\n  B:x:y: { burst: 2, count: 2, period: 2s }\n",
        "A:7: { burst: 2, count: 2, period: 2s }\nB:x:y: { burst: 2, count: 2, period: 2s }\n",
        "overrides:\n- A: { burst: 2, count: 2, period: 2s, ids: [7] }\n\
         - B: { burst: 2, count: 2, period: 2s, ids: [{ id: 'x:y', comment: the one }] }\n",
        "overrides:\n- A: { burst: 2, count: 2, period: 2s, ids: ['7'] }\n  \
           B:\n    burst: 2\n    count: 2\n    period: 2s\n    ids:\n    - id: x:y\n",
    ] {
        let config = read(&format!("{limits}{overrides}"));
        let two = token_bucket(2, 2, Duration::from_secs(2));
        assert_eq!(algorithm(&config, "A", "7"), two, "{overrides}");
        assert_eq!(algorithm(&config, "A", "8"), token_bucket(1, 1, Duration::from_secs(1)));
        assert_eq!(algorithm(&config, "B", "x:y"), two);
        assert_eq!(algorithm(&config, "B", "x"), None);
    }
}

#[test]
fn an_id_is_the_text_that_stands_there() {
    for id in
        ["12345678", "007", "1:2", "true", "null", "~", "1e3", "0x10", "no", "1.0", "2026-01-01", "-1", "ü"]
    {
        let numbers = "burst: 2, count: 2, period: 2s";
        for overrides in [
            format!("  A:{id}: {{ {numbers} }}"),
            format!("  'A:{id}': {{ {numbers} }}"),
            format!("- A: {{ {numbers}, ids: [{id}] }}"),
            format!("- A: {{ {numbers}, ids: [{{ id: {id} }}] }}"),
            format!("- A: {{ {numbers}, ids: [\"{id}\"] }}"),
        ] {
            let config = read(&format!("limits: {{ A: {{}} }}\noverrides:\n{overrides}"));
            let limit = config.policy.limit("A").expect("declared");
            let ids: Vec<_> = limit.overrides().map(|(id, _)| id).collect();
            assert_eq!(ids, [id.as_bytes()], "{overrides}");
        }
    }
}

#[test]
fn gates_are_those_that_are_named() {
    let address = |text: &str| text.parse::<SocketAddr>().ok();
    for (text, http) in [
        ("gates: { http: 0.0.0.0:80 }", address("0.0.0.0:80")),
        ("gates: { http: '[::1]:8080' }", address("[::1]:8080")),
        ("gates: { http: { listen: 0.0.0.0:80 } }", address("0.0.0.0:80")),
        ("gates: { http: {} }", address("127.0.0.1:8080")),
        ("gates: { http: off }", None),
        ("gates: {}", None),
        ("", address("127.0.0.1:8080")),
    ] {
        assert_eq!(read(&format!("limits: {{}}\n{text}")).gates.http, http, "{text}");
    }
    assert_eq!(Gates::address("off", Gates::TEXT), Ok(None));
    assert!(Gates::address("", Gates::TEXT).is_err());
}

#[test]
fn a_limiter_is_a_line_of_yaml_away() {
    let yaml = "max_buckets: 7\nlimits: { Login: { burst: 1, count: 1, period: 1h } }";
    let limiter = Limiter::from_yaml(yaml).expect("a policy");
    assert_eq!((limiter.stats().max_buckets, limiter.stats().max_client_buckets), (7, 4));
    let limiter = Limiter::from_yaml(&format!("max_client_buckets: 2\n{yaml}")).expect("a policy");
    assert_eq!((limiter.stats().max_buckets, limiter.stats().max_client_buckets), (7, 2));
    assert!(limiter.spend("Login", "alice", 1).expect("a charge").allowed());
    assert!(!limiter.spend("Login", "alice", 1).expect("a charge").allowed());
    let errors = Limiter::from_yaml("limits: 5").expect_err("no policy").to_string();
    assert!(errors.starts_with("yaml:1:9: limits must be"), "{errors}");
}

#[test]
fn what_was_understood_is_told() {
    let config = read(
        "
        store: memory
        max_buckets: 5000
        max_client_buckets: 1000
        gates: { http: off }
        limits:
          NewOrdersPerAccount: { burst: 300, count: 300, period: 180m, id: regId, number: 3 }
          Uploads: { algorithm: sliding_log, count: 10, period: 500ms, on_full: allow }
          Ws: { algorithm: smoothed_rate, count: 22, period: 20s, strict: true, on_store_failure: local }
          Trial: { algorithm: quota, count: 1000, period: 720h }
          Daily: { algorithm: fixed_window, count: 1000, period: 24h, offset: 22h }
          Searches: { algorithm: sliding_window, count: 1000, period: 1m }
          Guests: {}
        overrides:
          NewOrdersPerAccount:9: { burst: 300, count: 900, period: 180m }
          NewOrdersPerAccount:00012345678: { burst: 300, count: 600, period: 180m }
          Guests:bob: { algorithm: smoothed_rate, count: 3, period: 7s }
        ",
    );
    let expected = "\
store   memory, at most 5000 buckets, 1000 made by clients
gates   http off, admin off, text off, throttr off, resp off, smockron off, rls off
limits  7
keys    0 rules
rules   0
domains 0

NewOrdersPerAccount  token_bucket    burst 300, 300 per 3h  one per 36s, full after 3h
  id number, bucket 3:ID, on_full deny, on_store_failure allow
  3:12345678         token_bucket    burst 300, 600 per 3h  one per 18s, full after 1h30m
  3:9                token_bucket    burst 300, 900 per 3h  one per 12s, full after 1h

Uploads              sliding_log     10 per 500ms           in any 500ms
  id any, bucket Uploads:ID, on_full allow, on_store_failure allow

Ws                   smoothed_rate   22 per 20s             strict: what is denied counts
  id any, bucket Ws:ID, on_full deny, on_store_failure local

Trial                quota           1000 per 720h          in 720h from the first
  id any, bucket Trial:ID, on_full deny, on_store_failure allow

Daily                fixed_window    1000 per 24h           in each 24h of the clock, shifted by 22h
  id any, bucket Daily:ID, on_full deny, on_store_failure allow

Searches             sliding_window  1000 per 1m            in the last 1m, estimated
  id any, bucket Searches:ID, on_full deny, on_store_failure allow

Guests               unlimited                              except for its overrides
  id any, bucket Guests:ID, on_full deny, on_store_failure allow
  Guests:bob         smoothed_rate   3 per 7s               what is denied does not count
";
    let told = describe(&config).to_string();
    assert_eq!(told, expected, "\n{told}");
}

//! Checks every way to configure the store, every mistake in it, and that no password can be read out of it.

use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use tollway::config::{Config, StoreUrl, describe};
use tollway::core::{KeyLimit, LocalShare, OnStoreFailure};
use tollway::store::redis::{Address, RedisUrl, Secret, Topology};

const PASSWORD: &str = "hunter2";

fn address(host: &str, port: u16) -> Address {
    Address { host: host.to_owned(), port }
}

fn single(host: &str, port: u16) -> RedisUrl {
    RedisUrl::new(Topology::Single(address(host, port)))
}

fn secret(password: &str) -> Option<Secret> {
    Some(Secret::new(password.to_owned()))
}

/// Each file gets exactly these errors.
fn check(cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        let errors = Config::parse(text, "POLICY").err().map(|errors| errors.to_string());
        let expected: Vec<_> = expected.iter().map(|error| format!("POLICY:{error}")).collect();
        assert_eq!(errors.as_deref(), Some(&*expected.join("\n")), "\n{text}");
    }
}

/// Reads a file that has nothing but a store.
fn read(yaml: &str) -> Config {
    let yaml = format!("{yaml}\n{}limits: {{}}", if yaml.starts_with('\n') { "        " } else { "" });
    Config::parse(&yaml, "POLICY").unwrap_or_else(|errors| panic!("{errors}\n{yaml}"))
}

fn store(yaml: &str) -> StoreUrl {
    read(yaml).store
}

#[test]
fn a_url_says_everything() {
    let user = Some("app".to_owned());
    let sentinels = |primary: &str| Topology::Sentinel {
        sentinels: vec![address("a", 26379), address("b", 26380)],
        primary: primary.to_owned(),
    };
    let nodes = vec![address("a", 6379), address("::1", 7001), address("10.0.0.1", 6379)];
    for (text, expected) in [
        ("redis://cache", single("cache", 6379)),
        ("redis://cache:6380/", single("cache", 6380)),
        ("valkey://cache", single("cache", 6379)),
        ("rediss://cache", RedisUrl { tls: true, ..single("cache", 6379) }),
        ("valkeys://cache", RedisUrl { tls: true, ..single("cache", 6379) }),
        ("redis://[::1]", single("::1", 6379)),
        ("redis://[2001:0db8::0001]:1", single("2001:db8::1", 1)),
        ("redis://cache/15", RedisUrl { database: 15, ..single("cache", 6379) }),
        ("redis://app@cache", RedisUrl { username: user.clone(), ..single("cache", 6379) }),
        ("redis://:hunter2@cache", RedisUrl { password: secret(PASSWORD), ..single("cache", 6379) }),
        (
            "redis://app:h%75nter2%2F%3f%C3%BC:@@cache",
            RedisUrl { username: user.clone(), password: secret("hunter2/?ü:@"), ..single("cache", 6379) },
        ),
        ("redis+sentinel://a,b:26380/main", RedisUrl::new(sentinels("main"))),
        (
            "rediss+sentinel://app:hunter2@a,b:26380/my%20main/3",
            RedisUrl {
                tls: true,
                username: user.clone(),
                password: secret(PASSWORD),
                database: 3,
                ..RedisUrl::new(sentinels("my main"))
            },
        ),
        ("redis+cluster://a,[::1]:7001,10.0.0.1", RedisUrl::new(Topology::Cluster(nodes.clone()))),
        (
            "rediss+cluster://a,[::1]:7001,10.0.0.1/0?tls_ca=/etc/ca.pem&tls_cert=/my.pem&tls_key=/my.key",
            RedisUrl {
                tls: true,
                tls_ca: Some(PathBuf::from("/etc/ca.pem")),
                tls_cert: Some(PathBuf::from("/my.pem")),
                tls_key: Some(PathBuf::from("/my.key")),
                ..RedisUrl::new(Topology::Cluster(nodes.clone()))
            },
        ),
        (
            "redis://cache/2?namespace=shop&deadline=1.5ms&password_file=/run/a%40b",
            RedisUrl {
                database: 2,
                namespace: "shop".to_owned(),
                deadline: Duration::from_micros(1500),
                password_file: Some(PathBuf::from("/run/a@b")),
                ..single("cache", 6379)
            },
        ),
    ] {
        assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
        assert_eq!(store(&format!("store: '{text}'")), StoreUrl::Redis(expected));
    }
    assert_eq!("memory".parse(), Ok(StoreUrl::Memory));
}

#[test]
fn a_file_may_say_it_in_fields() {
    let expected = RedisUrl {
        tls: true,
        tls_ca: Some(PathBuf::from("/etc/ca.pem")),
        username: Some("app".to_owned()),
        password: secret("123"),
        namespace: "shop".to_owned(),
        deadline: Duration::from_millis(20),
        ..RedisUrl::new(Topology::Cluster(vec![address("a", 6379), address("b", 7001)]))
    };
    let yaml = "
        store:
          url: rediss+cluster://a,b:7001
          namespace: shop
          deadline: 20ms
          username: app
          password: 123
          tls_ca: /etc/ca.pem";
    assert_eq!(store(yaml), StoreUrl::Redis(expected.clone()));
    let yaml = "store: { url: 'rediss+cluster://app:123@a,b:7001?tls_ca=/etc/ca.pem', namespace: shop, deadline: 20ms }";
    assert_eq!(store(yaml), StoreUrl::Redis(expected));
    assert_eq!(store("store: { url: memory }"), StoreUrl::Memory);
    let StoreUrl::Redis(url) = store("store: { url: redis://cache, password_file: secret.txt }") else {
        panic!("a Redis")
    };
    assert_eq!(url.password_file, Some(PathBuf::from("secret.txt")));
}

#[test]
fn what_is_wrong_with_a_url_is_said_with_what_would_be_right() {
    const URL: &str = "store must be a URL such as redis://cache:6379, redis+sentinel://a,b/PRIMARY or \
                       redis+cluster://a,b (rediss for TLS)";
    const WORD: &str = "store must be memory, or a URL such as redis://cache:6379";
    const HOST: &str = "use a name, an IPv4 address, or an IPv6 address in brackets";
    let many = vec!["h"; 65].join(",");
    for (url, expected) in [
        ("disk", &*format!("{WORD}, not \"disk\"")),
        ("Memory", &format!("{WORD}, not \"Memory\"")),
        ("redis", &format!("{WORD}, not \"redis\" (did you mean \"redis://127.0.0.1:6379\"?)")),
        ("cache:6379", &format!("{URL}, not \"cache:6379\"")),
        ("http://cache", &format!("{URL}, not \"http://cache\"")),
        ("redis+sentry://cache", &format!("{URL}, not \"redis+sentry://cache\"")),
        ("redis://", "store has no host; write redis://cache:6379, with an IPv6 address in brackets"),
        ("redis://:6379", "store has no host; write redis://cache:6379, with an IPv6 address in brackets"),
        (
            "redis+cluster://a,,b",
            "store has no host; write redis://cache:6379, with an IPv6 address in brackets",
        ),
        ("redis://my cache", &format!("store has an invalid host \"my cache\"; {HOST}")),
        ("redis://::1", &format!("store has an invalid host \"::1\"; {HOST}")),
        ("redis://[::g]", &format!("store has an invalid host \"::g\"; {HOST}")),
        ("redis://[::1", &format!("store has an invalid host \"[\"; {HOST}")),
        ("redis://a:0", "store has an invalid port after the host \"a\"; use a whole number from 1 to 65535"),
        (
            "redis://a:65536",
            "store has an invalid port after the host \"a\"; use a whole number from 1 to 65535",
        ),
        (
            "redis://a:+1",
            "store has an invalid port after the host \"a\"; use a whole number from 1 to 65535",
        ),
        ("redis://a:", "store has an invalid port after the host \"a\"; use a whole number from 1 to 65535"),
        (
            "redis://[::1]6379",
            "store has an invalid port after the host \"::1\"; use a whole number from 1 to 65535",
        ),
        (
            "rediss://a,b",
            "store has 2 hosts, but rediss:// takes one; for several use rediss+cluster:// or rediss+sentinel://",
        ),
        (
            &*format!("redis+cluster://{many}"),
            "store has 65 hosts, but can have at most 64; a few are enough to find the others",
        ),
        ("redis+sentinel://a,b", "store does not name the primary; write redis+sentinel://a,b/PRIMARY"),
        ("redis+sentinel://a//0", "store does not name the primary; write redis+sentinel://a,b/PRIMARY"),
        ("redis://a/main", "store has an invalid database \"main\"; use a whole number from 0 to 65535"),
        ("redis://a/0/1", "store has an invalid database \"0/1\"; use a whole number from 0 to 65535"),
        ("redis://a/65536", "store has an invalid database \"65536\"; use a whole number from 0 to 65535"),
        (
            "redis+cluster://a/1",
            "store has a database, but a cluster has only database 0; remove what follows the hosts",
        ),
        (
            "redis://a?db=1",
            "store has an unknown option \"db\"; use namespace, deadline, password_file, tls_ca, tls_cert or tls_key",
        ),
        ("redis://a?namespace=x&namespace=y", "store namespace is given twice; remove one"),
        (
            "redis://a?namespace=a:b",
            "store namespace must be 1 to 64 letters, digits, \"_\", \"-\" and \".\", not \"a:b\"",
        ),
        (
            "redis://a?deadline=0s",
            "store deadline must be a duration from 1ms to 1m, such as 50ms, not \"0s\"",
        ),
        (
            "redis://a?deadline=15",
            "store deadline must be a duration from 1ms to 1m, such as 50ms, not \"15\"",
        ),
        (
            "redis://a?deadline=61s",
            "store deadline must be a duration from 1ms to 1m, such as 50ms, not \"61s\"",
        ),
        ("redis://a?password_file=", "store password_file must have 1 to 4096 bytes"),
        ("redis://a?tls_ca=/ca.pem", "store tls_ca needs rediss://, but this is redis://"),
        ("redis://a?tls_key=/my.key", "store tls_key needs rediss://, but this is redis://"),
        (
            "rediss://a?tls_cert=/my.pem",
            "store tls_cert needs tls_key beside it: a certificate is of no use without its key",
        ),
        ("redis://a%", &format!("store has an invalid host \"a%\"; {HOST}")),
        (
            "redis://a?namespace=%4",
            "store has a \"%\" that is not followed by two hexadecimal digits of UTF-8 text; write \"%\" itself as %25",
        ),
    ] {
        check(&[(&format!("store: '{url}'"), &[&format!("1:8: {expected}")])]);
    }
    let long = format!("store: redis://{}", "a".repeat(20_000));
    check(&[(&long, &["1:8: store can have at most 16384 bytes, and has 20008"])]);
}

#[test]
fn what_is_wrong_with_a_field_is_said_where_it_stands() {
    const WORD: &str = "must be memory, or a URL such as redis://cache:6379";
    const COMMA: &str = "a comma ends a value between \"{\" and \"}\"; put the url in quotes";
    check(&[
        ("store:", &[&format!("1:1: store {WORD}, but has no value")]),
        ("store: [redis://a]", &[&format!("1:8: store {WORD}, not a list")]),
        ("store: {}", &["1:1: store has no \"url\", such as redis://cache:6379"]),
        ("store: { url: disk }", &[&format!("1:15: url {WORD}, not \"disk\"")]),
        (
            "store: { url: redis://a, namspace: shop, colour: red }",
            &[
                "1:26: unknown field \"namspace\" (did you mean \"namespace\"?)",
                "1:42: unknown field \"colour\"; a store has url, namespace, deadline, username, password, \
                 password_file, tls_ca, tls_cert and tls_key",
            ],
        ),
        (
            "store:\n  url: redis://a?namespace=a\n  namespace: b\n  deadline: 1h\n  tls_ca: x\n  username: []\n",
            &[
                "3:14: namespace is given twice; remove one",
                "4:13: deadline must be a duration from 1ms to 1m, such as 50ms, not \"1h\"",
                "5:11: tls_ca needs rediss://, but this is redis://",
                "6:13: username must be text, not a list",
            ],
        ),
        (
            "store: { url: rediss://a, tls_key: x }",
            &["1:1: store tls_key needs tls_cert beside it: a certificate is of no use without its key"],
        ),
        (
            "store: { url: redis://a, password: hunter2, password_file: x }",
            &["1:36: password is a second password; keep one of password and password_file"],
        ),
        (
            "store: { url: memory, namespace: shop }",
            &["1:23: namespace needs Redis, but this store is memory"],
        ),
        ("store: { url: redis+cluster://a,b:7001 }", &[&format!("1:33: {COMMA}")]),
        ("store: { url: redis+cluster://a,b }", &[&format!("1:33: {COMMA}")]),
    ]);
}

/// However a password is written, and whatever else is wrong.
#[test]
fn a_password_is_never_printed() {
    let sound = [
        "store: redis://hunter2@cache",
        "store: redis://app:hunter2@cache",
        "store: redis://:hunter2@cache/1?deadline=20ms",
        "store: rediss+sentinel://:hunter2@a,b/main",
        "store: redis+cluster://app:hunter2@a,b",
        "store: { url: redis://cache, password: hunter2 }",
    ];
    for yaml in &sound[1..] {
        let config = read(yaml);
        let shown = format!("{} {:?} {config:?} {}", config.store, config.store, describe(&config));
        assert!(!shown.contains(PASSWORD) && shown.contains("***"), "{shown}");
    }
    // A user is no password.
    assert!(store(sound[0]).to_string().contains("hunter2@"));
    for yaml in [
        "store: redis://:hunter2",
        "store: redis://app:hunter2",
        "store: redis://app:hunter2/0",
        "store: redis://:pa/hunter2@cache",
        "store: 'redis://:pa#hunter2@cache'",
        "store: redis://:pa?hunter2@cache",
        "store: redis://:hunter2?x@cache",
        "store: redis://hunter2,h u/x@cache",
        "store: redis://:hunter2%zz@cache",
        "store: redis://:hunter2@",
        "store: redis://:hunter2@my cache",
        "store: redis://:hunter2@cache:port",
        "store: redis://:hunter2@cache/db",
        "store: redis://:hunter2@a,b",
        "store: redis://:hunter2@cache?password_file=x",
        "store: redis://:hunter2@cache?colour=red",
        "store: rdis://:hunter2@cache",
        "store: redis:/:hunter2@cache",
        "store: app:hunter2@cache:6379",
        "store: { url: rdis://:hunter2@cache }",
        "store: { url: redis://:hunter2@cache, password: hunter2 }",
        "store: { url: redis://:pa,hunter2@cache }",
        "store: { url: redis://:hunter2,pa@cache }",
        "store: { url: redis://cache, passwrd: hunter2 }",
        "store: { url: memory, password: hunter2 }",
        "store: { redis://:hunter2@cache }",
        "store: [redis://:hunter2@cache]",
        "stoer: redis://:hunter2@cache",
        "gates: { http: redis://:hunter2@cache }",
        "redis://:hunter2@cache",
        "max_buckets: redis://:hunter2@cache",
    ] {
        let errors = Config::parse(yaml, "POLICY").expect_err(yaml);
        for shown in [errors.to_string(), format!("{errors:?}")] {
            assert!(!shown.contains(PASSWORD), "{yaml}\n{shown}");
        }
    }
}

#[test]
fn a_password_comes_from_the_url_or_from_a_file_that_is_read_when_it_is_needed() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let url = RedisUrl { password_file: Some(file.path().to_owned()), ..single("cache", 6379) };
    assert!(url.secret().is_err(), "it is empty");
    for password in ["hunter2", "hunter3"] {
        std::fs::write(&file, format!("{password}\n")).expect("written");
        assert_eq!(url.secret().expect("it can be read"), secret(password));
    }
    let url = url.with_password(Secret::new("hunter4".to_owned()));
    assert_eq!(url.secret().expect("no file"), secret("hunter4"));
    assert_eq!(single("cache", 6379).secret().expect("no file"), None);
}

#[test]
fn a_store_is_told_as_it_was_understood() {
    for (store, told) in [
        ("memory", "memory, at most 10000000 buckets"),
        ("redis://cache", "redis://cache:6379, namespace tollway, deadline 50ms"),
        (
            "rediss://app:hunter2@[::1]:1/3?namespace=shop&deadline=20ms&tls_ca=ca.pem&tls_cert=a.pem&tls_key=a.key",
            "rediss://app:***@[::1]:1/3, namespace shop, deadline 20ms, tls_ca ca.pem, tls_cert a.pem, tls_key a.key",
        ),
        (
            "redis+sentinel://app@a,b/main?password_file=/run/p",
            "redis+sentinel://app@a:26379,b:26379/main, namespace tollway, deadline 50ms, password_file /run/p",
        ),
    ] {
        let config = read(&format!("store: '{store}'"));
        let description = describe(&config).to_string();
        assert_eq!(description.lines().next(), Some(&*format!("store   {told}")));
    }
}

#[test]
fn a_limit_and_a_rule_say_what_happens_without_the_store() {
    let config = Config::parse(
        "
        limits:
          A: { burst: 8, count: 8, period: 1s, on_store_failure: local, local_share: 1/4 }
          B: { burst: 8, count: 8, period: 1s, on_store_failure: local, local_share: 0.5 }
          C: { burst: 8, count: 8, period: 1s, on_store_failure: deny }
        keys:
          - { match: '^a ', limit: 8, period: 1s, on_store_failure: local, local_share: 0.25 }
          - { match: '^b ', limit: 8, period: 1s, on_store_failure: deny }
          - { match: '^c ', limit: 8, period: 1s }
        ",
        "POLICY",
    )
    .unwrap_or_else(|errors| panic!("{errors}"));
    let share = |numerator, denominator| {
        OnStoreFailure::Local(LocalShare::new(numerator, denominator).expect("a share"))
    };
    let of_limits: Vec<_> = config.policy.limits().iter().map(|limit| limit.on_store_failure()).collect();
    assert_eq!(of_limits, [share(1, 4), share(1, 2), OnStoreFailure::Deny]);
    let of_rules = config.policy.keys().rules().iter().map(|rule| match rule.limit {
        KeyLimit::Rate { on_store_failure, .. } => on_store_failure,
        _ => panic!("{rule:?}"),
    });
    assert_eq!(of_rules.collect::<Vec<_>>(), [share(1, 4), OnStoreFailure::Deny, OnStoreFailure::Allow]);
    let description = describe(&config).to_string();
    for line in [
        "  id any, bucket A:ID, on_full deny, on_store_failure local (local_share 1/4)",
        "  id any, bucket C:ID, on_full deny, on_store_failure deny",
        "rule 1  ^a   8 per 1s, on_full deny, on_store_failure local (local_share 1/4)",
    ] {
        assert!(description.lines().any(|told| told == line), "{line}\n{description}");
    }
}

#[test]
fn a_share_goes_with_local_and_is_a_part() {
    const SHARE: &str = "local_share must be above 0 and at most 1, such as 1/4 or 0.25";
    const LOCAL: &str = "local_share needs \"on_store_failure: local\", which this";
    check(&[
        (
            "limits: { A: { on_store_failure: deny, local_share: 1/4 } }",
            &[&format!("1:40: {LOCAL} limit does not have")],
        ),
        ("limits: { A: { local_share: 1/4 } }", &[&format!("1:16: {LOCAL} limit does not have")]),
        (
            "keys: [{ match: a, limit: 1, period: 1s, local_share: 1/4 }]",
            &[&format!("1:42: {LOCAL} rule does not have")],
        ),
        (
            "limits: { A: { on_store_failure: lokal, local_share: 1/4 } }",
            &["1:34: on_store_failure must be allow, deny or local, not \"lokal\" (did you mean \"local\"?)"],
        ),
        (
            "limits: { A: { on_store_failure: local, local_share: 5/4 } }",
            &[&format!("1:54: {SHARE}, not \"5/4\"")],
        ),
        (
            "limits: { A: { on_store_failure: local, local_share: 0 } }",
            &[&format!("1:54: {SHARE}, not \"0\"")],
        ),
        (
            "limits: { A: { on_store_failure: local, local_share: [] } }",
            &[&format!("1:54: {SHARE}, not a list")],
        ),
        (
            "limits: { A: {} }\nkeys: [{ match: a, use: A, on_store_failure: deny }]",
            &["2:28: \"on_store_failure\" goes with \"limit\" and \"period\", but this rule has \"use\""],
        ),
    ]);
}

/// A URL without a password means what it prints.
fn check_round_trip(url: &RedisUrl) {
    if url.password.is_none() {
        assert_eq!(url.to_string().parse().as_ref(), Ok(url), "{url}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_store_or_is_not(text in any::<String>()) {
        if let Ok(StoreUrl::Redis(url)) = text.parse() {
            check_round_trip(&url);
        }
    }

    #[test]
    fn any_pieces_of_a_url_are_a_store_or_are_not(
        scheme in prop::sample::select(&["redis", "rediss", "redis+sentinel", "redis+cluster", "valkey", "x"][..]),
        pieces in prop::collection::vec(prop_oneof![
            prop::sample::select(&["a", "[::1]", ":", "@", "/", "?", "&", "#", "%", "%41", "%c3%bc", ",", "=", "0", "6379", "ü",
                "namespace=", "deadline=", "20ms", "password_file=", "tls_ca=", "main"][..]).prop_map(str::to_owned),
            "\\PC{0,3}",
        ], 0..12),
    ) {
        let text = format!("{scheme}://{}", pieces.concat());
        match text.parse() {
            Ok(StoreUrl::Redis(url)) => check_round_trip(&url),
            Ok(store) => panic!("{store} {text}"),
            Err(error) => prop_assert!(error.to_string().len() < 600, "{error}"),
        }
    }

    #[test]
    fn a_password_of_anything_comes_through_and_is_not_printed(password in "[^%]{8,40}") {
        let encoded: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let url: RedisUrl = format!("redis://app:{encoded}@cache").parse().expect("a URL");
        prop_assert_eq!(url.password.as_ref().map(Secret::reveal), Some(&*password));
        prop_assert_eq!(url.to_string(), "redis://app:***@cache:6379");
        let debug = format!("{url:?}");
        prop_assert!(debug.contains("password: Some(***)"), "{}", debug);
    }
}

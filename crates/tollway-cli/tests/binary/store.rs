//! Checks that a flag, the environment or a file chooses the store, and that its password is never printed.

use std::process::Command;

use tollway_testbed::RedisServer;

use crate::run::{file, run, tollway};
use crate::serving::Serving;

const PASSWORD: &str = "hunter2";

#[test]
fn a_password_is_in_no_help_no_error_and_no_description() {
    let config = &file(
        "password.yaml",
        "store: redis://app:hunter2@127.0.0.1:1/0\nlimits: { A: { burst: 1, count: 1, period: 1s } }",
    );
    let wrong = &file("wrong.yaml", "store: redis://app:hunter2@my cache\n");
    for (arguments, code, says) in [
        (&["serve", "--help"][..], 0, "TOLLWAY_STORE_PASSWORD"),
        (
            &["serve", "--store", "rdis://:hunter2@cache"],
            2,
            "--store must be a URL such as redis://cache:6379",
        ),
        (&["serve", "--store", "redis://app:hunter2"], 2, "--store has an invalid port after the host"),
        (&["replay", "--store", "redis://:pa/hunter2@cache"], 2, "--store has an \"@\" in the wrong place"),
        (&["replay", "--store", "disk"], 2, "--store must be memory, or a URL"),
        (&["validate", config], 0, "store   redis://app:***@127.0.0.1:1, namespace tollway, deadline 50ms"),
        (&["validate", wrong], 1, "wrong.yaml:1:8: store has an invalid host \"my cache\""),
        (&["serve", "--config", wrong], 2, "wrong.yaml:1:8: store has an invalid host \"my cache\""),
    ] {
        let output = tollway(arguments)
            .env("TOLLWAY_STORE", "rdis://app:hunter2@cache")
            .env("TOLLWAY_STORE_PASSWORD", PASSWORD)
            .output()
            .unwrap();
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
        assert!(printed.contains(says), "{arguments:?}: {printed}");
        assert!(!printed.contains(PASSWORD), "{arguments:?}: {printed}");
    }
}

#[test]
fn memory_needs_no_password() {
    let ran = run(&["replay", "--store", "memory"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

const LIMITS: &str =
    "limits: { L: { burst: 2, count: 2, period: 2160h, number: 7 }, M: { burst: 9, count: 9, period: 1h } }";

fn configuration(name: &str, store: &str) -> String {
    file(name, format!("{store}\n{LIMITS}"))
}

/// Returns everything that the server shows to anybody.
fn published(serving: &Serving) -> String {
    let page = |path: &str| {
        let url = format!("http://{}{path}", serving.admin);
        let output = Command::new("curl").args(["-si", &url]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    serving.printed.clone() + &page("/metrics") + &page("/readyz") + &page("/v1/keys")
}

#[test]
fn every_command_works_on_redis_and_no_password_is_published() {
    let redis = RedisServer::start_with(&["--requirepass", PASSWORD]);
    let address = redis.address();
    let secret = file("secret.txt", format!("{PASSWORD}\n"));
    let url = "?deadline=5s";
    let ways = [
        (format!("store: redis://:{PASSWORD}@{address}{url}"), None),
        (format!("store: {{ url: 'redis://{address}', password: {PASSWORD}, deadline: 5s }}"), None),
        (format!("store: {{ url: 'redis://{address}{url}', password_file: '{secret}' }}"), None),
        (format!("store: redis://:wrong@{address}{url}"), Some(PASSWORD)),
    ];
    for (index, (store, password)) in ways.iter().enumerate() {
        let config = configuration(&format!("redis-{index}.yaml"), store);
        let environment: Vec<_> = password.iter().map(|it| ("TOLLWAY_STORE_PASSWORD", *it)).collect();
        let environment: Vec<_> = environment.into_iter().chain([("RUST_LOG", "trace")]).collect();
        let serving =
            Serving::start(&["--config", &config, "--http", "127.0.0.1:0", "--workers", "1"], &environment);
        for (arguments, code, answer) in [
            (&["spend", "L:a", "--cost", "2"][..], 0, "allow remaining=0 "),
            (&["spend", "L:a"], 1, "deny remaining=0 "),
            (&["inspect", "L:a"], 0, "bucket     7:a\nlimit      token_bucket, burst 2, "),
            (&["keys"], 0, "7:a\n"),
            (&["keys", "M"], 0, ""),
            (&["reset", "L:a"], 0, "ok\n"),
            (&["keys", "L"], 0, ""),
        ] {
            let (got, words) = serving.ask(arguments);
            assert_eq!(got, code, "{store} {arguments:?}: {words}");
            assert!(
                words.starts_with(answer) && answer.is_empty() == words.is_empty(),
                "{store} {arguments:?}: {words}"
            );
        }
        let seen = published(&serving);
        serving.signal("TERM");
        let (code, log) = serving.wait();
        assert_eq!(code, Some(0), "{log}");
        assert!(!seen.contains(PASSWORD) && !log.contains(PASSWORD), "{seen}\n{log}");
        assert!(
            seen.contains(&format!("buckets in redis://{}", if index == 2 { "" } else { ":***@" })),
            "{seen}"
        );
    }
}

#[test]
fn a_refused_password_is_an_error_at_start_that_does_not_repeat_it() {
    let redis = RedisServer::start_with(&["--requirepass", "another"]);
    let store = format!("store: redis://:{PASSWORD}@{}?deadline=1s", redis.address());
    let config = configuration("refused.yaml", &store);
    for command in
        [&["serve", "--http", "127.0.0.1:0", "--config", &config][..], &["replay", "--config", &config]]
    {
        let ran = run(command);
        assert_ne!(ran.code, 0, "{command:?} {}", ran.stdout);
        assert!(
            ran.stderr.contains("check the username, the password and the password_file of the store"),
            "{}",
            ran.stderr
        );
        assert!(!ran.stderr.contains(PASSWORD) && !ran.stdout.contains(PASSWORD), "{}", ran.stderr);
    }
}

#[test]
fn it_is_spoken_to_over_tls() {
    let redis = RedisServer::start_tls();
    let ca = redis.certificate_authority().display();
    let config = configuration("tls.yaml", &format!("store: {}?deadline=5s&tls_ca={ca}", redis.url()));
    let serving = Serving::start(&["--config", &config, "--http", "127.0.0.1:0", "--workers", "1"], &[]);
    let (code, words) = serving.ask(&["spend", "L:a", "--json"]);
    assert_eq!(code, 0, "{words}");
    assert!(!words.contains("degraded"), "{words}");
    assert_eq!(redis.cli(&["EXISTS", "tollway:7:a"]).trim(), "1");
}

#[test]
fn a_trace_is_replayed_on_redis_and_leaves_the_buckets_of_others_alone() {
    let redis = RedisServer::start();
    let config = configuration("replay-redis.yaml", "");
    let trace = file(
        "redis.trace",
        "0s limit spend L:a cost=2 => allow remaining=0 retry_after=7776000s reset_after=7776000s\n1s limit spend L:a => deny remaining=0 retry_after=3887999s reset_after=7775999s\n",
    );
    for _ in 0..2 {
        let ran = run(&["replay", "--config", &config, "--store", &redis.url(), &trace]);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    }
    assert_eq!(redis.cli(&["EXISTS", "tollway:7:a"]).trim(), "0");
}

//! `docs/fleet.md` is true where it can be tried: its sessions, its files, the rights it asks for, the sizes it names.

use std::fs;
use std::path::PathBuf;

use tollway::Clock;
use tollway::config::Config;
use tollway::core::{KeyedRule, RuleLimit};
use tollway::engine::Engine;
use tollway_testbed::{RedisCluster, RedisServer};

use crate::page::{Page, printed, shell};
use crate::run::{file, root, run};
use crate::serving::Serving;

const PAGE: &str = "docs/fleet.md";

fn serve(config: &str, url: &str) -> Serving {
    let arguments = ["--config", config, "--store", url, "--http", "127.0.0.1:0", "--workers", "1"];
    Serving::start(&arguments, &[])
}

#[test]
fn the_sessions_happen_as_shown() {
    let page = Page::read(PAGE);
    let redis = RedisServer::start();
    let config = file("fleet-page.yaml", page.block("yaml"));
    let url = format!("{}?deadline=10s", redis.url());
    let servers = [serve(&config, &url), serve(&config, &url)];
    let mut ran = 0;
    for (command, shown) in page.examples() {
        let script = command
            .replace("127.0.0.1:8080", &servers[0].addr)
            .replace("127.0.0.1:8081", &servers[1].addr)
            .replace("redis-cli", &format!("redis-cli -p {}", redis.port()));
        let printed = printed(shell(&script).env("TOLLWAY_ADMIN_ADDR", &servers[0].admin));
        assert_eq!(timeless(&printed), timeless(shown), "{command}");
        ran += 1;
    }
    assert!(ran > 6, "only {ran} examples were found");
}

/// Without what depends on when it is run: dates, and seconds with decimals.
fn timeless(text: &str) -> String {
    let timeless = |word: &str| {
        let span = word.rsplit('=').next().unwrap();
        let decimal =
            span.strip_suffix('s').is_some_and(|span| span.contains('.') && span.parse::<f64>().is_ok());
        let date = word.starts_with("20") && word.ends_with('Z');
        if date {
            "a date".to_owned()
        } else if decimal {
            word.replace(span, "a while")
        } else {
            word.to_owned()
        }
    };
    let line = |line: &str| line.split(' ').map(timeless).collect::<Vec<_>>().join(" ");
    text.trim_end().lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_files_load() {
    for yaml in Page::read(PAGE).blocks("yaml") {
        Config::parse(yaml, "fleet.md").unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
    }
    let example = Config::from_file(&root().join("examples/redis.yaml"));
    let example = example.unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(example.store.to_string(), "redis://127.0.0.1:6379");
}

/// The commands of the page that give a user its rights, one a line.
fn rights() -> Vec<Vec<String>> {
    let block = Page::read(PAGE).blocks("acl").concat();
    block.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
}

fn give_rights(node: &RedisServer, lines: usize) {
    for line in rights().iter().take(lines) {
        let line: Vec<_> = line.iter().map(String::as_str).collect();
        // What replays need beyond what the page gives, as it says.
        assert_eq!(node.cli(&[&line[..], &["~tollway-replay-*"]].concat()).trim(), "OK", "{line:?}");
    }
}

fn assert_nothing_was_refused(node: &RedisServer) {
    let refused = node.cli(&["ACL", "LOG"]);
    assert_eq!(refused.trim(), "", "{refused}");
}

fn traces() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("traces")).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|is| is == "trace")).collect()
}

#[test]
fn the_rights_on_the_page_are_enough_and_none_is_too_many() {
    let redis = RedisServer::start();
    give_rights(&redis, 1);
    let url = format!("redis://tollway:s3cret@{}?deadline=10s", redis.address());
    for trace in traces() {
        redis.cli(&["FLUSHALL"]);
        let config = trace.with_extension("yaml");
        let arguments =
            ["replay", "--config", config.to_str().unwrap(), "--store", &url, trace.to_str().unwrap()];
        let ran = run(&arguments);
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    }
    let config = file("fleet-rights.yaml", "limits: { L: { algorithm: sliding_log, count: 5, period: 1h } }");
    let serving = serve(&config, &url);
    for arguments in [&["spend", "L:a"][..], &["keys"], &["inspect", "L:a"], &["reset", "L:a"]] {
        assert_eq!(serving.ask(arguments).0, 0, "{arguments:?}");
    }
    // What was a log, and is a token bucket now; and what is as new after a refund, and so forgotten.
    drop(serving);
    redis.cli(&["RPUSH", "tollway:L:a", "1"]);
    let config = file("fleet-rights.yaml", "limits: { L: { burst: 5, count: 5, period: 1h } }");
    let serving = serve(&config, &url);
    for arguments in [["spend", "L:a"], ["refund", "L:a"]] {
        assert_eq!(serving.ask(&arguments).0, 0, "{arguments:?}");
    }
    // A log that another rule wants kept longer.
    assert_eq!(rulings(&url, &["1/h", "1/h", "2/h"]), [true, false, true]);
    assert_nothing_was_refused(&redis);
    for right in rights()[0].iter().filter_map(|word| word.strip_prefix('+')) {
        // Asked for by the protocol's client if a database other than 0 is named.
        let used = right == "select" || redis.times_called(right) > 0;
        assert!(used, "nothing asks for {right}");
    }
}

/// Returns whether each of the rules allows, one after another under one key, where every selector has the same value.
fn rulings(url: &str, rules: &[&str]) -> Vec<bool> {
    let config = Config::parse(&format!("store: {url}\nlimits: {{}}"), "rules.yaml").unwrap();
    let limiter = Engine::open(config, Clock::monotonic()).unwrap();
    let resolve = |rule: &&str| {
        let rule = KeyedRule::new(RuleLimit::new(rule.parse().unwrap()), "", "key");
        let ruling = limiter.blocking().resolve(&rule.bill(|_| Ok::<_, ()>(Some("x"))).unwrap());
        assert!(!ruling.degraded);
        ruling.allowed()
    };
    rules.iter().map(resolve).collect()
}

#[test]
fn the_rights_on_the_page_are_enough_for_a_cluster() {
    let cluster = RedisCluster::start();
    cluster.nodes().iter().for_each(|node| give_rights(node, 2));
    let url = cluster.url().replace("redis+cluster://", "redis+cluster://tollway:s3cret@") + "?deadline=10s";
    let config = file(
        "fleet-cluster.yaml",
        "limits: { L: { burst: 5, count: 5, period: 1h }, M: { algorithm: sliding_log, count: 1, period: 1h } }",
    );
    let serving = serve(&config, &url);
    let ids: Vec<_> = (0..20).map(|id| format!("L:{id}")).collect();
    let bill: Vec<_> = ["spend"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    let (code, answer) = serving.ask(&bill);
    assert_eq!((code, answer.contains("degraded")), (0, false), "{answer}");
    let (code, keys) = serving.ask(&["keys", "L"]);
    assert_eq!((code, keys.lines().count()), (0, 20), "{keys}");
    assert_eq!(serving.ask(&["reset", "L:1"]).0, 0);
    // One refuses, and what the others took in their slots is taken back.
    assert_eq!(serving.ask(&["spend", "M:0"]).0, 0);
    let (_, answer) = serving.ask(&["spend", "M:0", "M:1", "M:2", "M:3"]);
    assert!(answer.starts_with("deny"), "{answer}");
    assert_eq!(serving.ask(&["spend", "M:1", "M:2", "M:3"]).0, 0);
    // And the same of a rule, whose first part limits by itself, and whose others do not.
    let rule = "Or('1/h', 'a:2/h', 'b:2/h', 'c:2/h')";
    assert_eq!(rulings(&url, &[rule, rule, "And('a:2/h', 'b:2/h')"]), [true, false, true]);
    cluster.nodes().iter().for_each(assert_nothing_was_refused);
}

#[test]
fn a_redis_that_refuses_to_write_counts_as_unreachable() {
    let config = file(
        "fleet-refused.yaml",
        "limits: { L: { burst: 5, count: 5, period: 1h, on_store_failure: local, local_share: 1/5 } }",
    );
    for refusing in [&["--min-replicas-to-write", "1"][..], &["--maxmemory", "100kb"]] {
        let redis = RedisServer::start_with(refusing);
        let serving = serve(&config, &format!("{}?deadline=10s", redis.url()));
        let (code, answer) = serving.ask(&["spend", "L:a", "--json"]);
        assert_eq!(code, 0, "{answer}");
        assert!(
            answer.contains("\"remaining\":0,") && answer.contains("\"degraded\":true"),
            "{refusing:?}: {answer}"
        );
    }
}

#[test]
fn a_token_bucket_is_as_small_as_the_page_says() {
    let redis = RedisServer::start();
    let config =
        file("fleet-size.yaml", "limits: { NewOrdersPerAccount: { burst: 300, count: 300, period: 180m } }");
    let serving = serve(&config, &format!("{}?deadline=10s", redis.url()));
    assert_eq!(serving.ask(&["spend", "NewOrdersPerAccount:12345678"]).0, 0);
    let key = "tollway:NewOrdersPerAccount:12345678";
    assert_eq!(redis.cli(&["OBJECT", "ENCODING", key]).trim(), "embstr");
    let bytes: u64 = redis.cli(&["MEMORY", "USAGE", key]).trim().parse().unwrap();
    assert!(bytes <= 144, "{bytes}");
}

//! Runs every trace of the project against the core alone, the memory store, Redis and a Cluster of six; on each store
//! by the limiter itself, and through functions and blocks.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod codec;
mod core_alone;
mod functions;

use std::fs;
use std::path::{Path, PathBuf};

use tollway::Clock;
use tollway::config::Config;
use tollway::core::Timestamp;
use tollway::engine::Engine;
use tollway::store::memory::Memory;
use tollway::trace::{TraceReader, TraceRequest, TraceTarget, matches};
use tollway_testbed::{RedisCluster, RedisServer};

use crate::core_alone::CoreAlone;
use crate::functions::Functions;

#[test]
fn the_core_answers_the_traces() {
    let ran = each_trace(|config| Box::new(CoreAlone::new(config.policy)));
    assert!(ran > 10, "only {ran} traces were found");
}

#[test]
fn the_memory_store_answers_the_traces() {
    let ran = each_trace(|config| Box::new(in_memory(config)));
    assert!(ran > 10, "only {ran} traces were found");
    each_trace(|config| Box::new(Functions::new(in_memory(config))));
}

#[test]
fn redis_answers_the_traces() {
    let server = RedisServer::start();
    let limiter = |config| {
        server.cli(&["FLUSHALL"]);
        shared(config, &server.url())
    };
    let ran = each_trace(|config| Box::new(limiter(config)));
    assert!(ran > 10, "only {ran} traces were found");
    each_trace(|config| Box::new(Functions::new(limiter(config))));
}

#[test]
fn a_cluster_answers_the_traces() {
    let cluster = RedisCluster::start();
    let limiter = |config| {
        cluster.flush();
        shared(config, &cluster.url())
    };
    let ran = each_trace(|config| Box::new(limiter(config)));
    assert!(ran > 10, "only {ran} traces were found");
    each_trace(|config| Box::new(Functions::new(limiter(config))));
}

#[test]
fn burst_then_one_unit_per_interval() {
    check(
        "limits: { A: { burst: 3, count: 1, period: 100ms } }",
        "
        0s      limit  spend A:x cost=3  => allow remaining=0 retry_after=0.3s reset_after=0.3s
        0s      limit  spend A:x         => deny remaining=0 retry_after=0.1s reset_after=0.3s
        0.099s  limit  spend A:x         => deny remaining=0 retry_after=0.001s reset_after=0.201s
        0.1s    limit  spend A:x         => allow remaining=0 retry_after=0.1s reset_after=0.3s
        ",
    );
}

#[test]
fn what_cannot_be_decided_says_why() {
    check(
        "limits: { A: { burst: 3, count: 1, period: 1s, id: regId }, R: { algorithm: smoothed_rate, count: 3, period: 1s } }",
        r#"
        0s  limit  spend B:1           => error limit "B" does not exist
        0s  limit  spend \n:1          => error limit "\n" does not exist
        0s  limit  spend A:            => error limit "A" rejects the id: an id must not be empty
        0s  limit  spend A:x           => error limit "A" rejects the id: id "x" is not a number, such as 12345678
        0s  limit  spend A:1 cost=4    => error limit "A": cost 4 is too high; one request can take at most 3
        0s  limit  refund R:1          => error limit "R": smoothed_rate does not support refunds
        0s  limit  spend A:1 R:1 A:01  => error bucket "A:1" is charged twice in one bill; charge it once with the whole cost
        "#,
    );
}

#[test]
fn a_store_without_room_answers_as_the_limit_says() {
    let config = "
        max_buckets: 1
        limits:
          Closed: { burst: 3, count: 1, period: 1s }
          Open: { burst: 3, count: 1, period: 1s, on_full: allow }
    ";
    let trace = "
        0s  limit  spend Closed:first   => allow remaining=2 retry_after=0s reset_after=1s
        0s  limit  spend Closed:second  => deny full remaining=0 retry_after=1s reset_after=1s
        0s  limit  spend Open:second    => allow full remaining=0 retry_after=0s reset_after=0s
        0s  limit  spend Closed:first   => allow remaining=1 retry_after=0s reset_after=2s
        0s  limit  spend Closed:first Closed:second  => deny full remaining=0 retry_after=1s reset_after=1s limit=Closed
    ";
    run("inline", trace, &mut in_memory(Config::parse(config, "inline").unwrap()));
}

#[test]
fn a_rule_without_room_for_its_logs_answers_as_it_says() {
    let config = "
        max_buckets: 1
        rules: { closed: 'user:2/s', open: { rule: 'user:2/s', on_full: allow } }
    ";
    let trace = "
        0s  rule  closed user=        => allow
        0s  rule  closed user=first   => allow
        0s  rule  closed user=second  => deny full retry_after=1s
        0s  rule  open user=second    => allow full
        0s  rule  open user=          => allow
        0s  rule  closed user=first   => allow
        0s  rule  closed user=first   => deny retry_after=1s
    ";
    run("inline", trace, &mut in_memory(Config::parse(config, "inline").unwrap()));
}

#[test]
#[should_panic(
    expected = "inline:1: 0s  limit  spend A:x  => allow remaining=2 retry_after=0s reset_after=1s"
)]
fn a_wrong_expectation_is_noticed() {
    check(
        "limits: { A: { burst: 3, count: 1, period: 1s } }",
        "0s  limit  spend A:x  => allow remaining=1 retry_after=0s reset_after=1s",
    );
}

/// An inline configuration and trace, against everything there is.
fn check(config: &str, trace: &str) {
    let config = Config::parse(config, "inline").unwrap();
    run("inline", trace, &mut CoreAlone::new(config.policy.clone()));
    run("inline", trace, &mut in_memory(config.clone()));
    run("inline", trace, &mut shared(config, &RedisServer::start().url()));
}

fn in_memory(config: Config) -> Engine {
    Engine::with(config.policy, Memory::new(config.memory_bounds), Clock::manual(Timestamp::EPOCH))
}

/// In Redis, which may take its time: what is tested is what it answers.
fn shared(config: Config, url: &str) -> Engine {
    let store = format!("{url}?deadline=10s").parse().unwrap();
    Engine::open(Config { store, ..config }, Clock::manual(Timestamp::EPOCH)).unwrap()
}

/// Runs every `traces/NAME.trace` that holds only requests of limits and rules, and reloads, by `traces/NAME.yaml`, and
/// returns their number. The crates of the other gates test the traces of those gates.
fn each_trace(target: impl Fn(Config) -> Box<dyn TraceTarget>) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let traces: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|is| is == "trace")).collect();
    let mut ran = 0;
    for path in &traces {
        let config =
            Config::from_file(&path.with_extension("yaml")).unwrap_or_else(|errors| panic!("{errors}"));
        let name = path.file_name().unwrap().to_string_lossy();
        let text = fs::read_to_string(path).unwrap();
        if asks_for_limits_and_rules(&name, &text) {
            run(&name, &text, &mut *target(config));
            ran += 1;
        }
    }
    ran
}

fn asks_for_limits_and_rules(name: &str, trace: &str) -> bool {
    let events = TraceReader::new(trace.as_bytes())
        .map(|event| event.unwrap_or_else(|error| panic!("{name}:{error}")));
    // All are read, so that a bad line is found here too.
    let others = events.filter(|event| {
        !matches!(event.request, TraceRequest::Limit(_) | TraceRequest::Rule(_) | TraceRequest::Reload(_))
    });
    others.count() == 0
}

fn run(name: &str, trace: &str, target: &mut dyn TraceTarget) {
    let mut wrong = Vec::new();
    let mut expectations = 0;
    for event in TraceReader::new(trace.as_bytes()) {
        let event = event.unwrap_or_else(|error| panic!("{name}:{error}"));
        let reply = target.answer(event.at, &event.request);
        let Some(expected) = &event.expected else { continue };
        expectations += 1;
        if !matches(expected, &reply) {
            wrong.push(format!(
                "{name}:{}: {}\n    expected: {expected}",
                event.line,
                event.with_reply(&reply)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(expectations > 0, "{name} expects nothing");
}

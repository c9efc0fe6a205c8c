//! Every trace of the project, answered by the gates: without sockets, and over them.

mod over_http;
mod over_sockets;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use over_sockets::OverSockets;
use tollway::core::{Rule, RuleRef, RuleRequest, Timestamp};
use tollway::engine::Engine;
use tollway::trace::{TraceReader, TraceRequest, TraceTarget, matches};
use tollway::{Clock, Config};
use tollway_server::TraceResponder;
use tollway_testbed::{RedisCluster, RedisServer};

use crate::support::config_file::WatchedFile;
use crate::support::start_with;

#[test]
fn the_desk_answers_the_traces() {
    each_trace(all, |name, config, trace| run(name, &mut responder(config), trace));
}

#[test]
fn the_gates_answer_the_traces_over_sockets() {
    each_trace(in_json, |name, config, trace| run(name, &mut over_sockets(config, trace), trace));
}

#[test]
fn the_desk_answers_the_traces_from_redis() {
    let server = RedisServer::start();
    each_trace(all, |name, config, trace| {
        server.cli(&["FLUSHALL"]);
        run(name, &mut responder(&shared(config, &server.url())), trace);
    });
}

#[test]
fn the_gates_answer_the_traces_over_sockets_from_redis() {
    let server = RedisServer::start();
    each_trace(in_json, |name, config, trace| {
        server.cli(&["FLUSHALL"]);
        run(name, &mut over_sockets(&shared(config, &server.url()), trace), trace);
    });
}

#[test]
fn the_desk_answers_the_traces_from_a_cluster() {
    let cluster = RedisCluster::start();
    each_trace(all, |name, config, trace| {
        cluster.flush();
        run(name, &mut responder(&shared(config, &cluster.url())), trace);
    });
}

#[test]
fn the_gates_answer_the_traces_over_sockets_from_a_cluster() {
    let cluster = RedisCluster::start();
    each_trace(in_json, |name, config, trace| {
        cluster.flush();
        run(name, &mut over_sockets(&shared(config, &cluster.url()), trace), trace);
    });
}

#[test]
fn the_gate_says_when_a_store_has_no_room() {
    let config = "
        max_buckets: 1
        limits: { L: { burst: 3, count: 1, period: 1s }, M: { burst: 3, count: 1, period: 1s, on_full: allow } }
        keys: [{ match: Y, limit: 3, period: 1s }, { match: N, limit: 3, period: 1s, on_full: allow }]
    ";
    let trace = "
        0s  limit    spend L:first   => allow remaining=2 retry_after=0s reset_after=1s
        0s  limit    spend L:second  => deny full remaining=0 retry_after=1s reset_after=1s
        0s  limit    spend M:second  => allow full remaining=0 retry_after=0s reset_after=0s
        0s  text     over_limit Y    => ok Y 0.0 3.0 1
        0s  text     over_limit N    => ok N 0.0 3.0 1
        0s  text     get_size        => size=1 keys=1
        0s  throttr  01010000000500000000000000020a0000000000000001016372  => 0100000000
    ";
    run("inline", &mut responder(config), trace);
    run("inline", &mut over_sockets(config, trace), trace);
}

#[test]
fn clients_that_fill_their_share_of_the_buckets_leave_room_for_the_ids_of_limits() {
    let config = "
        max_buckets: 5
        max_client_buckets: 2
        limits:
          L: { burst: 3, count: 1, period: 1s }
          Named: { algorithm: smoothed_rate, count: 3, period: 1s }
          Quota: { algorithm: quota, count: 3, period: 1m }
        keys:
          - { match: '^named', use: Named }
          - { match: '^open', limit: 3, period: 1s, on_full: allow }
          - { match: '.*', limit: 3, period: 1s }
    ";
    // The Throttr commands insert a quota of 5 for 10 s.
    let trace = "
        0s   text     over_limit first      => ok N 0.0 3.0 1
        0s   throttr  01010000000500000000000000020a0000000000000001016372  => 0100000001
        0s   text     over_limit second     => ok Y 0.0 3.0 1
        0s   text     over_limit open       => ok N 0.0 3.0 1
        0s   throttr  01010000000500000000000000020a0000000000000001016373  => 0100000000
        0s   limit    spend L:a             => allow remaining=2 retry_after=0s reset_after=1s
        0s   text     over_limit named key  => ok N 0.0 3.0 1
        0s   limit    spend Quota:a         => allow remaining=2 retry_after=0s reset_after=60s
        0s   limit    spend Quota:b         => deny full remaining=0 retry_after=1s reset_after=1s
        10s  throttr  01010000000500000000000000020a0000000000000001016373  => 0100000001
        10s  throttr  01010000000500000000000000020a0000000000000001016372  => 0100000000
        10s  limit    spend L:a             => allow remaining=2 retry_after=0s reset_after=1s
        10s  limit    spend L:b             => deny full remaining=0 retry_after=1s reset_after=1s
    ";
    run("inline", &mut responder(config), trace);
    run("inline", &mut over_sockets(config, trace), trace);
}

#[test]
#[should_panic(expected = "inline:1: limit  spend L:a => allow remaining=2 retry_after=0s reset_after=1s")]
fn a_reply_that_differs_is_found() {
    let config = "limits: { L: { burst: 3, count: 1, period: 1s } }";
    let trace = "0s limit spend L:a => allow remaining=3";
    run("inline", &mut over_sockets(config, trace), trace);
}

fn responder(config: &str) -> TraceResponder {
    let config = Config::parse(config, "inline").unwrap_or_else(|errors| panic!("{errors}"));
    let settings = config.gates.throttr_settings;
    TraceResponder::new(Engine::open(config, Clock::manual(Timestamp::EPOCH)).unwrap(), settings)
}

/// The same configuration with its buckets in Redis, which may take its time: what is tested is what it answers.
fn shared(config: &str, url: &str) -> String {
    format!("{config}\nstore: {url}?deadline=10s\n")
}

fn over_sockets(config: &str, trace: &str) -> OverSockets {
    let rules = written_rules(trace);
    let block: String = rules.iter().map(|(name, text)| format!("  {name}: {text:?}\n")).collect();
    let config = config.replace("rules: {}\n", "rules:\n").replace("rules:\n", &format!("rules:\n{block}"));
    let file = WatchedFile::new(&config);
    let gate = start_with(&config, |settings| {
        settings.workers = 1;
        settings.config = Some(file.watched());
    });
    OverSockets::new(gate, file, rules)
}

/// The expressions of the trace, which are among the rules of its configurations: over HTTP rules are resolved by name.
fn written_rules(trace: &str) -> BTreeMap<String, String> {
    let mut rules = BTreeMap::new();
    for event in TraceReader::new(trace.as_bytes()).map(Result::unwrap) {
        for RuleRequest { rule, .. } in rules_of(&event.request) {
            if let RuleRef::Written(text) = rule
                && text.parse::<Rule>().is_ok()
            {
                rules.insert(over_http::name_of(text), text.clone());
            }
        }
    }
    rules
}

fn all(_: &TraceRequest) -> bool {
    true
}

/// Returns whether a request can be sent as JSON. That is text, and the value of a selector need not be.
fn in_json(request: &TraceRequest) -> bool {
    let mut values = rules_of(request).iter().flat_map(|rule| &rule.selectors);
    values.all(|(_, value)| std::str::from_utf8(value).is_ok())
}

fn rules_of(request: &TraceRequest) -> &[RuleRequest<'static>] {
    match request {
        TraceRequest::Rule(request) => std::slice::from_ref(request),
        TraceRequest::Limit(request) => &request.rules,
        _ => &[],
    }
}

/// Hands over every `traces/NAME.trace` that asks for nothing else, with `traces/NAME.yaml`.
fn each_trace(asks: fn(&TraceRequest) -> bool, mut run: impl FnMut(&str, &str, &str)) {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let mut ran = 0;
    for file in fs::read_dir(traces).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_some_and(|extension| extension == "trace") {
            let config = fs::read_to_string(file.with_extension("yaml")).unwrap();
            let trace = fs::read_to_string(&file).unwrap();
            if TraceReader::new(trace.as_bytes()).all(|event| asks(&event.unwrap().request)) {
                run(&file.display().to_string(), &config, &trace);
                ran += 1;
            }
        }
    }
    assert!(ran > 10, "only {ran} traces were found");
}

fn run(name: &str, target: &mut dyn TraceTarget, trace: &str) {
    for event in TraceReader::new(trace.as_bytes()) {
        let event = event.unwrap();
        let reply = target.answer(event.at, &event.request);
        let as_expected = event.expected.as_deref().is_none_or(|expected| matches(expected, &reply));
        assert!(as_expected, "{name}:{}: {} => {reply}", event.line, event.request);
    }
}

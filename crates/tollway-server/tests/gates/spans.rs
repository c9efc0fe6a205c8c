//! Tests the spans of decisions against a collector in Python, which `cargo xtask test` names in `TOLLWAY_OTLP`;
//! without one they fail.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tollway::config::{OtelSettings, SampleShare, ShowIds, WatchSettings};
use tollway_testbed::{TEST_TIMEOUT, eventually};

use crate::support::rls::{RlsClient, request};
use crate::support::zeromq::total;
use crate::support::{Harness, start_with};

const POLICY: &str = "
limits: { Login: { burst: 2, count: 2, period: 1m } }
rules: { upload: 'user:1/m' }
domain: shop
descriptors: [{key: account, rate_limit: {unit: hour, requests_per_unit: 1000}}]
keys: [{ match: '^fast', limit: 1000, period: 10s }, { match: '^login', use: Login }]
";

/// A collector in a process of its own, killed with the test.
struct Collector {
    child: Child,
    endpoint: String,
}

impl Collector {
    fn start() -> Self {
        let python = std::env::var_os("TOLLWAY_OTLP");
        let python = python.unwrap_or_else(|| panic!("TOLLWAY_OTLP names no Python; run `cargo xtask test`"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gates/spans/collector.py");
        let mut child = Command::new(python).arg(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        // Byte by byte: what follows the port is read later, by another reader.
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::with_capacity(1, stdout).read_line(&mut port).unwrap();
        Self { child, endpoint: format!("http://127.0.0.1:{}", port.trim()) }
    }

    /// Stops the server, which sends what it has, and returns all spans in the order of their limits and ids.
    fn spans_of(mut self, gate: Harness) -> Vec<Value> {
        drop(gate);
        self.child.kill().unwrap();
        let lines = BufReader::new(self.child.stdout.take().unwrap()).lines();
        let mut spans: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        spans.sort_by_key(|span| span["attributes"].to_string());
        spans
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(endpoint: &str, sample: f64, show_ids: ShowIds) -> Harness {
    let sample = SampleShare::new(sample).unwrap();
    start_with(POLICY, |settings| {
        settings.otel = Some(OtelSettings { endpoint: endpoint.to_owned(), sample });
        settings.watch = WatchSettings { show_ids, ..WatchSettings::DEFAULT };
    })
}

fn post(gate: &Harness, path: &str, body: &str) -> u16 {
    gate.post(path, body).status
}

fn spend(gate: &Harness, id: &str) -> u16 {
    post(gate, "/v1/spend", &format!(r#"{{"limit":"Login","id":"{id}","cost":2}}"#))
}

fn attributes(spans: &[Value]) -> Vec<Value> {
    spans.iter().map(|span| span["attributes"].clone()).collect()
}

#[test]
fn a_decision_of_every_gate_has_a_span_with_its_numbers() {
    let collector = Collector::start();
    let gate = start(&collector.endpoint, 1.0, ShowIds::Plain);
    assert_eq!([spend(&gate, "a"), spend(&gate, "a")], [200, 429]);
    assert_eq!(post(&gate, "/v1/check", r#"{"limit":"Login","id":"b"}"#), 200);
    assert_eq!(post(&gate, "/v1/refund", r#"{"limit":"Login","id":"a"}"#), 200, "it decides nothing");
    assert_eq!(post(&gate, "/v1/rules/upload", r#"{"selectors":{"user":"c"}}"#), 200);
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    for request in ["1 over_limit fast", "2 over_limit login d", "3 over_limit unmatched"] {
        udp.send_to(request.as_bytes(), gate.server.text_addr().unwrap()).unwrap();
        udp.recv(&mut [0; 100]).unwrap();
    }
    let mut resp = TcpStream::connect(gate.server.resp_addr().unwrap()).unwrap();
    resp.write_all(b"TOLL SPEND Login e\r\nCL.THROTTLE f 4 5 60\r\n").unwrap();
    let mut replies = BufReader::new(resp);
    // Sixteen lines of a flat array, and five integers behind the length of theirs.
    let mut line = String::new();
    while !line.ends_with("*5\r\n") {
        assert_ne!(replies.read_line(&mut line).unwrap(), 0, "{line}");
    }
    let mut spans = collector.spans_of(gate);
    for span in &mut spans {
        assert_eq!((&span["service"], &span["scope"]), (&json!("tollway"), &json!("tollway")));
        // A server span by OpenTelemetry.
        assert_eq!((&span["kind"], &span["parent_id"]), (&json!(2), &json!("")));
        assert!(span["nanos"].as_i64().unwrap() >= 0);
        assert_eq!(span["trace_id"].as_str().unwrap().len(), 32);
        assert_eq!(span["span_id"].as_str().unwrap().len(), 16);
    }
    let mut traces: Vec<_> = spans.iter().map(|span| span["trace_id"].to_string()).collect();
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), spans.len(), "each begins a trace of its own");
    let of = |gate: &str, limit: &str, id: &str, allowed: bool, cost: u64| {
        json!({"tollway.gate": gate, "tollway.limit": limit, "tollway.id": id, "tollway.allowed": allowed,
            "tollway.cost": cost, "tollway.degraded": false})
    };
    let with = |mut attributes: Value, remaining: Option<u64>, retry_after: Option<f64>| {
        let fields = attributes.as_object_mut().unwrap();
        fields.extend(remaining.map(|remaining| ("tollway.remaining".to_owned(), json!(remaining))));
        fields.extend(retry_after.map(|seconds| ("tollway.retry_after".to_owned(), json!(seconds))));
        attributes
    };
    let mut expected = [
        ("spend", with(of("http", "Login", "a", true, 2), Some(0), Some(60.0))),
        ("spend", with(of("http", "Login", "a", false, 2), Some(0), Some(60.0))),
        ("check", with(of("http", "Login", "b", true, 1), Some(1), Some(0.0))),
        ("spend", with(of("http", "upload", "user=c", true, 1), None, Some(0.0))),
        ("spend", of("text", "keys", "fast", true, 1)),
        ("spend", with(of("text", "Login", "login d", true, 1), Some(1), Some(0.0))),
        ("spend", with(of("resp", "Login", "e", true, 1), Some(1), Some(0.0))),
        ("spend", with(of("resp", "inline/throttle", "f", true, 1), Some(4), Some(0.0))),
    ];
    expected.sort_by_key(|(_, attributes)| attributes.to_string());
    let found: Vec<_> =
        spans.iter().map(|span| (span["name"].as_str().unwrap(), span["attributes"].clone())).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_trace_of_a_client_is_continued_over_http_and_grpc() {
    let collector = Collector::start();
    // Nothing is in the sample but what clients record.
    let gate = start(&collector.endpoint, 0.0, ShowIds::Plain);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let ask = |id: &str, headers: &str| {
        let body = format!(r#"{{"limit":"Login","id":"{id}"}}"#);
        let head = "POST /v1/spend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close";
        let request = format!("{head}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
        assert!(gate.exchange(request.as_bytes()).starts_with("HTTP/1.1 200 "));
    };
    let parent = |flags: &str| format!("TraceParent: 00-{trace}-b7ad6b7169203331-{flags}\r\n");
    ask("recorded", &parent("01"));
    ask("not-recorded", &parent("00"));
    ask("invalid", &parent("1"));
    ask("twice", &parent("01").repeat(2));
    ask("none", "");
    let mut rls = RlsClient::new(gate.server.rls_addr().unwrap());
    rls.trace(&format!("00-{trace}-00f067aa0ba902b7-01"));
    let _ = rls.ask(request("shop", &[("account", "grpc")])).unwrap();
    let spans = collector.spans_of(gate);
    let found: Vec<_> = spans
        .iter()
        .map(|span| {
            let id = span["attributes"]["tollway.gate"].as_str().unwrap();
            (id, span["trace_id"].as_str().unwrap(), span["parent_id"].as_str().unwrap())
        })
        .collect();
    assert_eq!(found, [("http", trace, "b7ad6b7169203331"), ("rls", trace, "00f067aa0ba902b7")]);
    assert_eq!(spans[0]["attributes"]["tollway.id"], "recorded");
}

#[test]
fn ids_are_in_spans_as_the_configuration_says() {
    for show_ids in [ShowIds::Hashed, ShowIds::Off] {
        let collector = Collector::start();
        let gate = start(&collector.endpoint, 1.0, show_ids);
        assert_eq!([spend(&gate, "alice"), spend(&gate, "alice")], [200, 429]);
        let ids = attributes(&collector.spans_of(gate)).into_iter().map(|of| of["tollway.id"].clone());
        let ids: Vec<_> = ids.collect();
        assert_eq!(ids.len(), 2);
        assert_eq!(ids[0], ids[1], "the same hash for the same id");
        match show_ids {
            ShowIds::Off => assert_eq!(ids[0], Value::Null),
            _ => assert!(ids[0].as_str().unwrap().starts_with('#'), "{ids:?}"),
        }
    }
}

#[test]
fn a_collector_that_does_not_answer_holds_up_nobody_and_drops_are_counted() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gate = start(&format!("http://{}", silent.local_addr().unwrap()), 1.0, ShowIds::Plain);
    let outcome = |outcome: &str| {
        total(&gate.get("/metrics").body, &format!("tollway_spans_total{{outcome=\"{outcome}\"}}"))
    };
    let command = b"CL.THROTTLE f 1000000 1000000 60\r\n";
    let mut resp = TcpStream::connect(gate.server.resp_addr().unwrap()).unwrap();
    let mut replies = BufReader::new(resp.try_clone().unwrap());
    let mut line = String::new();
    // More than the queue and a batch hold.
    for _ in 0..100 {
        resp.write_all(&command.repeat(100)).unwrap();
        for _ in 0..600 {
            line.clear();
            assert_ne!(replies.read_line(&mut line).unwrap(), 0);
        }
    }
    assert!(outcome("dropped") >= 10_000 - 4_096 - 2 * 512, "{}", outcome("dropped"));
    assert_eq!(spend(&gate, "a"), 200);
    eventually("the first batch to be given up", || outcome("failed") > 0);
    assert_eq!(outcome("sent"), 0);
}

//! Tests that the server lists who is busy: the lists of `/v1/top`, and the events of `/v1/live`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tollway::config::{MaxConnections, ShowIds, WatchSettings};
use tollway_testbed::TEST_TIMEOUT;
use tollway_wire::http::{EventDecoder, LiveEvent, LiveHistory, LiveSnapshot, ServerSentEvent};

use crate::openapi::Document;
use crate::support::{Harness, start_with};

const POLICY: &str = "
limits:
  Login: { burst: 2, count: 2, period: 1m }
  Fast: { burst: 1000000, count: 1000000, period: 1m }
rules: { upload: 'user:1/m' }
keys: [{ match: '^ws ', limit: 1, period: 20s }, { match: '^named ', use: Login }]
";

fn spend(gate: &Harness, limit: &str, id: &str, cost: u64) -> u16 {
    gate.post("/v1/spend", &json!({"limit": limit, "id": id, "cost": cost}).to_string()).status
}

/// Returns the lines of a list as `kind limit id min..max retry`.
fn lines(report: &Value) -> Vec<String> {
    let line = |entry: &Value| {
        let text = |name: &str| entry[name].as_str().unwrap_or("-").to_owned();
        let (min, max) = (&entry["count_min"], &entry["count_max"]);
        format!("{} {} {} {min}..{max} {}", text("kind"), text("limit"), text("id"), entry["retry_after"])
    };
    report["top"].as_array().unwrap().iter().map(line).collect()
}

#[test]
fn the_ids_that_use_the_most_are_listed() {
    let gate = start_with(POLICY, |_| {});
    for _ in 0..5 {
        spend(&gate, "Login", "mallory", 1);
    }
    for _ in 0..3 {
        spend(&gate, "Login", "bob", 1);
    }
    assert_eq!(spend(&gate, "Fast", "alice", 700), 200);
    gate.post("/v1/check", r#"{"limit":"Login","id":"mallory"}"#);
    let denied = gate.get("/v1/top").json();
    assert_eq!(lines(&denied), ["limit Login mallory 3..3 30.0", "limit Login bob 1..1 30.0"]);
    assert_eq!(
        (&denied["by"], &denied["total"], &denied["exact"]),
        (&json!("denied"), &json!(4), &json!(true))
    );
    let spent = gate.get("/v1/top?by=spent&n=2").json();
    assert_eq!(lines(&spent)[0], "limit Fast alice 700..700 0.0");
    assert_eq!((spent["top"].as_array().unwrap().len(), &spent["total"]), (2, &json!(704)));
    let of_login = gate.get("/v1/top?by=spent&limit=Login").json();
    assert_eq!(lines(&of_login).len(), 2);
    for name in ["Fast", "upload", "keys", "inline/throttle"] {
        let top = gate.get(&format!("/v1/top?limit={name}"));
        assert_eq!((top.status, lines(&top.json())), (200, vec![]), "{name}");
    }
    let unknown = gate.get("/v1/top?limit=Logn");
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    assert!(unknown.body.contains(r#"did you mean \"Login\"?"#), "{}", unknown.body);
    // The time is read when it is asked for.
    gate.clock.advance(Duration::from_secs(20));
    assert_eq!(lines(&gate.get("/v1/top").json())[0], "limit Login mallory 3..3 10.0");
}

#[test]
fn every_gate_tells_who_was_denied() {
    let gate = start_with(POLICY, |_| {});
    for _ in 0..3 {
        gate.post("/v1/rules/upload", r#"{"selectors":{"user":"r"},"key":"vova"}"#);
        gate.post("/v1/spend", r#"{"limit":{"burst":1,"count":1,"period":"1m"},"id":"inline"}"#);
    }
    let mut resp = TcpStream::connect(gate.server.resp_addr().unwrap()).unwrap();
    resp.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    resp.write_all(b"TOLL SPEND Login redis\r\n".repeat(4).as_slice()).unwrap();
    resp.write_all(b"PING\r\n").unwrap();
    read_until(&mut resp, "+PONG");
    let text = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    text.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    for key in ["over_limit ws a", "over_limit ws a", "over_limit ws a", "over_limit named n"] {
        text.send_to(key.as_bytes(), gate.server.text_addr().unwrap()).unwrap();
        text.recv(&mut [0; 512]).unwrap();
    }
    let mut denied = lines(&gate.get("/v1/top").json());
    denied.sort();
    assert_eq!(
        denied,
        [
            "inline inline/throttle inline 2..2 null",
            "key keys ws a 2..2 null",
            "limit Login redis 2..2 30.0",
            "rule upload vova 2..2 null",
        ]
    );
    let spent = lines(&gate.get("/v1/top?by=spent&limit=Login").json());
    assert_eq!(spent, ["limit Login redis 2..2 30.0", "limit Login named n 1..1 0.0"]);
}

#[test]
fn ids_are_shown_as_configured() {
    let show = |show_ids| {
        let gate = start_with(POLICY, |settings| settings.watch = WatchSettings { is_on: true, show_ids });
        (0..3).for_each(|_| _ = spend(&gate, "Login", "a \u{e9}", 1));
        let entry = gate.get("/v1/top").json()["top"][0].clone();
        assert_eq!(entry["count_max"], 1);
        entry["id"].clone()
    };
    assert_eq!(show(ShowIds::Plain), json!("a \\xc3\\xa9"));
    let hashed = show(ShowIds::Hashed);
    let digits = hashed.as_str().unwrap().strip_prefix('#').unwrap();
    assert!(digits.len() == 12 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{hashed}");
    assert_eq!(show(ShowIds::Off), Value::Null);
}

/// The events of one connection.
pub(crate) struct Events {
    stream: TcpStream,
    decoder: EventDecoder,
}

impl Events {
    pub(crate) fn start(gate: &Harness, path: &str) -> Self {
        Self::on(gate.connect(), path)
    }

    fn on(mut stream: TcpStream, path: &str) -> Self {
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").as_bytes()).unwrap();
        let mut received = Vec::new();
        while !received.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            read_more(&mut stream, &mut received);
        }
        let head = received.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        let text = String::from_utf8_lossy(&received[..head]).to_lowercase();
        assert!(text.starts_with("http/1.1 200 ok\r\n"), "{text}");
        for header in ["content-type: text/event-stream", "cache-control: no-store", "connection: close"] {
            assert!(text.contains(header), "{text}");
        }
        let mut decoder = EventDecoder::default();
        decoder.push(&received[head..]);
        Self { stream, decoder }
    }

    pub(crate) fn next(&mut self) -> ServerSentEvent {
        loop {
            if let Some(event) = self.decoder.next_event().unwrap() {
                return event;
            }
            let mut arrived = Vec::new();
            read_more(&mut self.stream, &mut arrived);
            self.decoder.push(&arrived);
        }
    }
}

/// A client that watches.
struct Watcher {
    events: Events,
    document: Document,
}

impl Watcher {
    fn start(gate: &Harness) -> Self {
        Self::on(gate.connect(), gate)
    }

    fn on(stream: TcpStream, gate: &Harness) -> Self {
        Self { events: Events::on(stream, "/v1/live"), document: Document::of(gate) }
    }

    /// Returns the next event, which is as its schema says.
    fn next(&mut self) -> LiveEvent {
        let received = self.events.next();
        let event = LiveEvent::from_event(&received).unwrap().expect("a known event");
        let schema = match &event {
            LiveEvent::History(_) => "LiveHistory",
            LiveEvent::Snapshot(_) => "LiveSnapshot",
        };
        self.document.check_schema(schema, &serde_json::from_str(&received.data).unwrap());
        event
    }

    fn history(&mut self) -> LiveHistory {
        match self.next() {
            LiveEvent::History(history) => history,
            LiveEvent::Snapshot(snapshot) => panic!("{snapshot:?}"),
        }
    }

    fn snapshot(&mut self) -> LiveSnapshot {
        match self.next() {
            LiveEvent::Snapshot(snapshot) => *snapshot,
            LiveEvent::History(history) => panic!("{history:?}"),
        }
    }
}

fn read_more(stream: &mut TcpStream, received: &mut Vec<u8>) {
    let mut buffer = [0; 16 << 10];
    let read = stream.read(&mut buffer).unwrap();
    assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(received));
    received.extend_from_slice(&buffer[..read]);
}

fn read_until(stream: &mut TcpStream, end: &str) {
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(end) {
        read_more(stream, &mut received);
    }
}

#[test]
fn a_watcher_sees_every_second() {
    let gate = start_with(POLICY, |_| {});
    let mut watcher = Watcher::start(&gate);
    let history = watcher.history();
    assert_eq!(history.step, 1);
    for _ in 0..5 {
        spend(&gate, "Login", "mallory", 1);
    }
    let (mut allowed, mut denied, mut last_at) = (0, 0, history.until);
    let last = loop {
        let snapshot = watcher.snapshot();
        assert!(snapshot.at > last_at, "{last_at} {snapshot:?}");
        last_at = snapshot.at;
        allowed += snapshot.totals.allowed;
        denied += snapshot.totals.denied;
        if allowed + denied >= 5 {
            break snapshot;
        }
    };
    assert_eq!((allowed, denied), (2, 3));
    let login = last.limits.iter().find(|limit| limit.name == "Login").unwrap();
    assert_eq!((&*login.numbers, login.denied_share), ("burst 2, 2 per 1m", Some(0.6)));
    assert_eq!((&*last.store.kind, last.store.buckets), ("memory", 1));
    assert_eq!((&*last.top_denied[0].limit, last.top_denied[0].id.as_deref()), ("Login", Some("mallory")));
    assert_eq!(last.last_denials.len(), 3);
    assert_eq!((&*last.last_denials[0].gate, last.last_denials[0].retry_after), ("http", Some(30.0)));
    let http = last.gates.iter().find(|gate| gate.name == "http").unwrap();
    assert_eq!(http.address, gate.server.http_addr().unwrap().to_string());
    assert!(last.server.healthy && !last.server.draining && last.latency.is_some(), "{last:?}");
    // Whoever comes later has what was before.
    let history = Watcher::start(&gate).history();
    assert_eq!(history.denied.iter().sum::<u64>(), 3);
}

#[test]
fn a_watcher_sees_a_store_that_is_unreachable() {
    let gate = start_with(&format!("store: redis://127.0.0.1:1\n{POLICY}"), |_| {});
    let mut watcher = Watcher::start(&gate);
    let _ = watcher.history();
    spend(&gate, "Login", "mallory", 1);
    let snapshot = loop {
        let snapshot = watcher.snapshot();
        if snapshot.store.degraded_since.is_some() {
            break snapshot;
        }
    };
    let [node] = &snapshot.store.nodes[..] else { panic!("{snapshot:?}") };
    assert_eq!(
        (&*snapshot.store.kind, &*node.address, &*node.state),
        ("redis", "127.0.0.1:1", "unreachable")
    );
    assert!(node.since.is_some() && node.reason.is_some(), "{node:?}");
}

#[test]
fn a_head_of_the_events_is_answered_and_takes_no_place() {
    let gate = start_with(POLICY, |settings| settings.bounds.watchers = 1);
    let head = "HEAD /v1/live HTTP/1.1\r\nHost: 127.0.0.1\r\n";
    let last = "GET /v1/top HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    let answers = gate.exchange(format!("{head}\r\n{last}").as_bytes());
    let (first, second) = answers.split_once("\r\n\r\n").unwrap();
    assert!(first.contains("\r\nContent-Type: text/event-stream") && !first.contains("close"), "{answers}");
    assert!(second.starts_with("HTTP/1.1 200 OK\r\n"), "{answers}");
    // The server closes if it is asked to.
    let alone = gate.exchange(format!("{head}Connection: close\r\n\r\n").as_bytes());
    assert!(alone.contains("\r\nConnection: close\r\n") && alone.ends_with("\r\n\r\n"), "{alone}");
    let _ = Watcher::start(&gate).history();
}

#[test]
fn one_watcher_too_many_is_refused() {
    let gate = start_with(POLICY, |settings| settings.bounds.watchers = 1);
    let first = Watcher::start(&gate);
    let reply = gate.get("/v1/live");
    assert_eq!((reply.status, &reply.json()["title"]), (503, &json!("Too many watchers")));
    let head = gate.exchange(b"HEAD /v1/live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 503 ") && head.ends_with("\r\n\r\n"), "{head}");
    drop(first);
}

/// Watchers are never closed for others, so without a bound they would fill a small gate.
#[test]
fn watchers_and_recorders_leave_places_for_others() {
    let gate = start_with(POLICY, |settings| {
        settings.gates.http_connections = MaxConnections { total: 4, per_address: None };
    });
    let watching = [Watcher::start(&gate), Watcher::start(&gate)];
    let reply = gate.get("/v1/live");
    assert_eq!(
        (reply.status, &reply.json()["detail"]),
        (503, &json!("2 clients watch already; close one of them"))
    );
    let mut recorder = gate.connect();
    recorder.write_all(b"GET /v1/live?all HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    let mut answer = [0; 15];
    recorder.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    let reply = gate.get("/v1/live?all");
    assert_eq!(
        (reply.status, &reply.json()["detail"]),
        (503, &json!("a client records already, and this gate has room for one; end it"))
    );
    assert_eq!(gate.get("/v1/top").status, 200);
    drop(watching);
}

#[test]
fn a_gate_that_is_too_small_for_watchers_says_so() {
    for (path, part) in [("/v1/live", "half"), ("/v1/live?all", "a quarter")] {
        // One server each: the only place of a connection may be taken until its end was noticed.
        let gate = start_with(POLICY, |settings| {
            settings.gates.http_connections = MaxConnections { total: 1, per_address: None };
        });
        let reply = gate.get(path);
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(reply.status == 503 && detail.starts_with(part), "{path}: {detail}");
        assert!(
            detail.contains("which is none here; raise its max_connections to at least "),
            "{path}: {detail}"
        );
    }
}

#[test]
fn the_requests_of_each_gate_are_its_own() {
    let gate = start_with(POLICY, |settings| settings.gates.admin = settings.gates.http);
    let stream = TcpStream::connect(gate.server.admin_addr().unwrap()).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut watcher = Watcher::on(stream, &gate);
    let _ = watcher.history();
    (0..5).for_each(|_| _ = spend(&gate, "Login", "mallory", 1));
    let (mut http, mut admin) = (0, 0);
    while http + admin < 7 {
        let snapshot = watcher.snapshot();
        let requests = |name: &str| {
            let gate = snapshot.gates.iter().find(|gate| gate.name == name).unwrap();
            gate.requests.unwrap()
        };
        http += requests("http");
        admin += requests("admin");
    }
    // The watcher has asked the admin gate, and the HTTP gate for the OpenAPI document.
    assert_eq!((http, admin), (6, 1));
}

#[test]
fn a_drain_ends_watching() {
    let gate = start_with(POLICY, |_| {});
    let mut watcher = Watcher::start(&gate);
    let _ = watcher.history();
    gate.server.drain();
    let mut rest = Vec::new();
    watcher.events.stream.read_to_end(&mut rest).unwrap();
    gate.server.join();
}

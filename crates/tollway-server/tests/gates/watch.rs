//! Tests that the server lists who is busy: the lists of `/v1/top`, and the events of `/v1/live`.

use std::collections::BTreeSet;
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
    for (name, detail) in [
        ("Logn", r#"no limit, rule or domain is called "Logn" (did you mean "Login"?)"#),
        ("uplaod", r#"no limit, rule or domain is called "uplaod" (did you mean "upload"?)"#),
        ("inline/x", r#"no limit, rule or domain is called "inline/x"; there are Login, Fast, upload"#),
    ] {
        let unknown = gate.get(&format!("/v1/top?limit={name}"));
        assert_eq!((unknown.status, &unknown.json()["detail"]), (404, &json!(detail)));
    }
    // The time is read when it is asked for.
    gate.clock.advance(Duration::from_secs(20));
    assert_eq!(lines(&gate.get("/v1/top").json())[0], "limit Login mallory 3..3 10.0");
}

/// An id with an override was not denied by the numbers of its limit.
#[test]
fn a_denial_has_the_numbers_of_its_id() {
    let policy = "
limits:
  Login: { burst: 1, count: 5, period: 1m }
  Plain: { burst: 1, count: 5, period: 1m }
overrides:
  Login:vip: { burst: 2, count: 9, period: 1m }
";
    let numbers = |show_ids| {
        let gate = start_with(policy, |settings| settings.watch = WatchSettings { is_on: true, show_ids });
        let long = "x".repeat(200);
        for (limit, id) in [("Login", "vip"), ("Login", "alice"), ("Plain", "alice"), ("Login", &long)] {
            for _ in 0..3 {
                spend(&gate, limit, id, 1);
            }
        }
        let of = |list: &Value| {
            let entry = |entry: &Value| {
                let limit = entry["limit"].as_str().unwrap().to_owned();
                let is_cut = entry["id"].as_str().is_some_and(|id| id.ends_with('…'));
                (limit, is_cut, entry["numbers"].as_str().map(str::to_owned))
            };
            list.as_array().unwrap().iter().map(entry).collect::<BTreeSet<_>>()
        };
        let top = of(&gate.get("/v1/top").json()["top"]);
        let mut watcher = Watcher::start(&gate);
        let _ = watcher.history();
        let snapshot = watcher.snapshot();
        assert_eq!(of(&serde_json::to_value(snapshot.last_denials).unwrap()), top);
        assert_eq!(of(&serde_json::to_value(snapshot.top_denied).unwrap()), top);
        top
    };
    let entry =
        |limit: &str, is_cut, numbers: Option<&str>| (limit.to_owned(), is_cut, numbers.map(str::to_owned));
    let plain = entry("Plain", false, Some("burst 1, 5 per 1m"));
    let of_override = entry("Login", false, Some("burst 2, 9 per 1m"));
    let of_limit = entry("Login", false, Some("burst 1, 5 per 1m"));
    // An id that was cut may have an override, which cannot be found.
    let of_cut = entry("Login", true, None);
    assert_eq!(numbers(ShowIds::Plain), [plain.clone(), of_override, of_limit, of_cut].into());
    // Numbers of its own would tell which hidden id is the one with an override.
    let hidden = entry("Login", false, None);
    for show_ids in [ShowIds::Hashed, ShowIds::Off] {
        assert_eq!(numbers(show_ids), [plain.clone(), hidden.clone()].into());
    }
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
            "rule upload vova user=r 2..2 null",
        ]
    );
    let spent = lines(&gate.get("/v1/top?by=spent&limit=Login").json());
    assert_eq!(spent, ["limit Login redis 2..2 30.0", "limit Login named n 1..1 0.0"]);
}

/// The id of a rule says who was denied: the values of its selectors.
#[test]
fn the_id_of_a_rule_has_the_values_of_its_selectors() {
    let policy = "
limits: { Fast: { burst: 1000, count: 1000, period: 1m } }
rules:
  upload: Or('user:1/h', 'apikey:1/h')
  all: 1/h
";
    let gate = start_with(policy, |settings| settings.workers = 1);
    let upload = |body: Value| gate.post("/v1/rules/upload", &body.to_string());
    for _ in 0..2 {
        for (user, apikey) in [("vova", "k"), ("anna", ""), ("a apikey=k", ""), ("say \"hi\"", "")] {
            let charges = json!([{"limit": "Fast", "id": "x"}]);
            let selectors = json!({"apikey": apikey, "user": user});
            let rules = json!([{"rule": "upload", "selectors": selectors}]);
            gate.post("/v1/spend", &json!({"charges": charges, "rules": rules}).to_string());
            upload(json!({"selectors": selectors, "key": "cats"}));
            upload(json!({"selectors": selectors, "key": "user=x"}));
            upload(json!({"selectors": selectors, "key": "upload"}));
        }
        gate.post("/v1/rules/all", "");
    }
    let ids = |list: &str| {
        let list = gate.get(&format!("/v1/top?n=100&by={list}")).json();
        let rules = list["top"].as_array().unwrap().iter().filter(|entry| entry["kind"] == "rule");
        let entry = |entry: &Value| format!("{} {} {}", entry["limit"], entry["count_max"], entry["id"]);
        rules.map(entry).collect::<BTreeSet<_>>()
    };
    let spent = ids("spent");
    for id in ["user=vova apikey=k", "user=anna", "user=\"a apikey=k\"", "user=\"say \"\"hi\"\"\""] {
        for key in ["", "cats ", "\"user=x\" "] {
            let line = format!("\"upload\" 1 {}", json!(format!("{key}{id}")));
            assert!(spent.contains(&line), "{line}\n{spent:#?}");
        }
        let line = format!("\"upload\" 3 {}", json!(id));
        assert!(ids("denied").contains(&line), "{line}\n{:#?}", ids("denied"));
    }
    assert!(spent.contains("\"all\" 1 \"\"") && ids("denied").contains("\"all\" 1 \"\""));
    assert_eq!(spent.len(), 13, "{spent:#?}");
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

/// A bill that is allowed counts for each of its limits and rules, not only for the strictest one.
#[test]
fn a_limit_has_the_numbers_of_all_requests_that_it_could_deny() {
    let policy = "
limits:
  Login: { burst: 5, count: 1, period: 1h }
  Address: { burst: 19, count: 1, period: 1h }
  Looked: { burst: 5, count: 1, period: 1h }
  Only: { burst: 5, count: 1, period: 1h }
rules: { upload: 'user:3/h' }
";
    let gate = start_with(policy, |settings| settings.workers = 1);
    for id in 0..25 {
        let charges = json!([
            {"limit": "Login", "id": format!("a{id}")},
            {"limit": "Address", "id": "192.0.2.1"},
            {"limit": "Looked", "id": format!("b{id}"), "kind": "check_only"},
            {"limit": "Only", "id": format!("c{id}"), "kind": "spend_only"},
        ]);
        let reply = gate.post("/v1/spend", &json!({ "charges": charges }).to_string());
        assert_eq!(reply.status, if id < 19 { 200 } else { 429 });
    }
    let mut resp = TcpStream::connect(gate.server.resp_addr().unwrap()).unwrap();
    resp.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let toll = (0..8).map(|id| format!("TOLL SPEND Login t{id} 1 Login u{id} 1 RULE upload user=vova\r\n"));
    resp.write_all(toll.collect::<String>().as_bytes()).unwrap();
    resp.write_all(b"PING\r\n").unwrap();
    read_until(&mut resp, "+PONG");
    // The history has every second. A watcher that reads late misses snapshots, so adding those up is not enough.
    let (total, last) = (0..10)
        .find_map(|_| {
            let mut watcher = Watcher::start(&gate);
            let LiveHistory { allowed, denied, .. } = watcher.history();
            let total = (allowed.iter().sum::<u64>(), denied.iter().sum::<u64>());
            let snapshot = watcher.snapshot();
            (total.0 + total.1 >= 33).then_some((total, snapshot))
        })
        .expect("the history has all requests");
    assert_eq!(total, (22, 11), "each request is one, whatever it charged");
    let share = |name: &str| last.limits.iter().find(|limit| limit.name == name).unwrap().denied_share;
    let shares = ["Login", "Address", "Looked", "Only", "upload"].map(share);
    assert_eq!(shares, [Some(0.0), Some(0.24), Some(0.0), None, Some(0.625)]);
    let page = gate.get("/metrics").body;
    let count = |series: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    for (name, allowed, denied) in [("Login", 22, 0), ("Address", 19, 6), ("Looked", 19, 0), ("Only", 0, 0)] {
        let series = |outcome: &str| {
            format!("tollway_decisions_total{{limit=\"{name}\",verb=\"spend\",outcome=\"{outcome}\"}}")
        };
        assert_eq!((count(&series("allow")), count(&series("deny"))), (allowed, denied), "{name}\n{page}");
    }
    let outcomes = ["allow", "deny"];
    let rule = outcomes
        .map(|outcome| count(&format!("tollway_rulings_total{{rule=\"upload\",outcome=\"{outcome}\"}}")));
    let requests = outcomes.map(|outcome| count(&format!("tollway_requests_total{{outcome=\"{outcome}\"}}")));
    assert_eq!((rule, requests), ([3, 5], [22, 11]));
    // A rule has spent what its bills were allowed.
    let spent = gate.get("/v1/top?by=spent&limit=upload").json();
    assert_eq!(spent["top"][0]["count_max"], json!(3));
}

/// Two ids of one limit are one request of it, with the verdict of the id that decided.
#[test]
fn a_limit_whose_second_id_finds_no_place_counts_allow_full() {
    let policy = "
max_buckets: 1
limits: { Open: { burst: 5, count: 1, period: 1h, on_full: allow } }
";
    let gate = start_with(policy, |_| {});
    assert_eq!(spend(&gate, "Open", "a", 1), 200);
    let bill = json!({"charges": [{"limit": "Open", "id": "a"}, {"limit": "Open", "id": "b"}]});
    assert_eq!(gate.post("/v1/spend", &bill.to_string()).json()["reason"], json!("full"));
    let page = gate.get("/metrics").body;
    for outcome in ["allow", "allow_full"] {
        let line =
            format!("tollway_decisions_total{{limit=\"Open\",verb=\"spend\",outcome=\"{outcome}\"}} 1");
        assert!(page.lines().any(|of_page| of_page == line), "{line}\n{page}");
    }
}

/// Descriptors of one request are one request, and each of them counts for its own limit.
#[test]
fn a_request_of_envoy_with_several_descriptors_is_one_request() {
    let policy = "
domain: shop
descriptors:
- {key: large, rate_limit: {unit: year, requests_per_unit: 100}}
- {key: small, rate_limit: {unit: year, requests_per_unit: 3}}
";
    let gate = start_with(policy, |settings| settings.workers = 1);
    let entries = r#"{"entries":[{"key":"large","value":"x"}]},{"entries":[{"key":"small","value":"x"}]}"#;
    for _ in 0..4 {
        gate.post("/json", &format!(r#"{{"domain":"shop","descriptors":[{entries}]}}"#));
    }
    let page = gate.get("/metrics").body;
    for line in [
        r#"tollway_requests_total{outcome="allow"} 3"#,
        r#"tollway_requests_total{outcome="deny"} 1"#,
        r#"tollway_decisions_total{limit="envoy/shop/large",verb="spend",outcome="allow"} 3"#,
        r#"tollway_decisions_total{limit="envoy/shop/small",verb="spend",outcome="allow"} 3"#,
        r#"tollway_decisions_total{limit="envoy/shop/small",verb="spend",outcome="deny"} 1"#,
    ] {
        assert!(page.lines().any(|of_page| of_page == line), "{line}\n{page}");
    }
    assert!(!page.contains(r#"limit="envoy/shop/large",verb="spend",outcome="deny""#), "{page}");
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

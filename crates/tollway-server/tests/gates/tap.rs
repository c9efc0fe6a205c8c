//! Tests that decisions are recorded as lines of a trace: `/v1/live?all`.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::json;
use tollway::config::{ShowIds, WatchSettings};
use tollway::core::Timestamp;
use tollway::engine::Engine;
use tollway::trace::{TraceReader, TraceTarget, matches};
use tollway::{Clock, Config};
use tollway_server::TraceResponder;
use tollway_testbed::TEST_TIMEOUT;
use tollway_wire::http::{DECISIONS_EVENT, RecordedIds, RecordingProgress, RecordingStart};

use crate::support::rls::{RlsClient, from_trace};
use crate::support::{Harness, start_with};
use crate::watch::Events;

const POLICY: &str = "
limits:
  Login: { burst: 2, count: 2, period: 1m, id: regId }
  Any: { burst: 100, count: 100, period: 1s }
overrides: { 'Login:007': { burst: 5, count: 5, period: 1m } }
rules: { upload: 'user:1/m' }
keys: [{ match: '^ws ', limit: 1, period: 20s }]
";

/// A client that records.
struct Recorder {
    events: Events,
    start: RecordingStart,
    lines: Vec<String>,
    progress: RecordingProgress,
}

impl Recorder {
    fn start(gate: &Harness, query: &str) -> Self {
        let mut events = Events::start(gate, &format!("/v1/live?all{query}"));
        let first = events.next();
        assert_eq!(first.name, RecordingStart::EVENT);
        let start = RecordingStart::from_json(&first.data).unwrap();
        Self { events, start, lines: Vec::new(), progress: RecordingProgress::default() }
    }

    /// Reads until there are this many lines.
    fn read(&mut self, lines: usize) -> &[String] {
        while self.lines.len() < lines {
            self.read_event();
        }
        assert_eq!(self.lines.len(), lines, "{:#?}", self.lines);
        &self.lines
    }

    /// Reads until a report of progress has this many decisions that were skipped.
    fn read_until_skipped(&mut self, decisions: u64) {
        // Reports go on, so reading itself does not time out.
        let began = Instant::now();
        while self.progress.skipped < decisions && began.elapsed() < TEST_TIMEOUT {
            self.read_event();
        }
        assert_eq!(self.progress, RecordingProgress { missed: 0, skipped: decisions });
    }

    /// Reads until a line has this text.
    fn read_until(&mut self, text: &str) {
        while !self.lines.iter().any(|line| line.contains(text)) {
            self.read_event();
        }
    }

    /// Replays the lines without another configuration, and compares the replies.
    fn assert_replayed(&self) {
        let config = Config::parse("limits: {}", "replay").unwrap();
        let settings = config.gates.throttr_settings;
        let limiter = Engine::open(config, Clock::manual(Timestamp::EPOCH)).unwrap();
        let mut responder = TraceResponder::new(limiter, settings);
        let trace = self.lines.join("\n");
        for event in TraceReader::new(trace.as_bytes()).map(Result::unwrap) {
            let reply = responder.answer(event.at, &event.request);
            let is_expected = event.expected.as_ref().is_none_or(|expected| matches(expected, &reply));
            assert!(is_expected, "{}: {reply}", event.with_reply(&reply));
        }
    }

    fn read_event(&mut self) {
        let event = self.events.next();
        match &*event.name {
            DECISIONS_EVENT => self.lines.extend(event.data.lines().map(str::to_owned)),
            RecordingProgress::EVENT => {
                self.progress = RecordingProgress::from_json(&event.data).unwrap();
            }
            name => panic!("{name}"),
        }
    }
}

fn spend(gate: &Harness, limit: &str, id: &str) -> u16 {
    gate.post("/v1/spend", &json!({"limit": limit, "id": id}).to_string()).status
}

#[test]
fn decisions_of_all_kinds_become_lines() {
    let gate = start_with(POLICY, |_| {});
    gate.clock.advance(Duration::from_secs(100));
    let mut recorder = Recorder::start(&gate, "");
    let start = RecordingStart {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sample: 1,
        ids: RecordedIds::Plain,
        store: "memory".to_owned(),
        buckets: 0,
        has_policy: true,
    };
    assert_eq!(recorder.start, start);
    gate.clock.advance(Duration::from_millis(1_500));
    for id in ["7", "8", "8", "8"] {
        spend(&gate, "Login", id);
    }
    gate.post("/v1/spend", r#"{"charges":[{"limit":"Login","id":"9"},{"limit":"Any","id":"a b","cost":3}]}"#);
    gate.post("/v1/check", r#"{"limit":"Any","id":"a b","cost":0}"#);
    gate.post("/v1/refund", r#"{"limit":"Any","id":"a b"}"#);
    gate.post("/v1/rules/upload", r#"{"selectors":{"user":"vova"}}"#);
    gate.post("/v1/rules/upload", r#"{"selectors":{"user":"vova"},"key":"cats"}"#);
    gate.post(
        "/v1/spend",
        r#"{"limit":"Any","id":"x","rules":[{"rule":"upload","selectors":{"user":"vova"}}]}"#,
    );
    gate.post("/v1/reset", r#"{"limit":"Login","id":"8"}"#);
    // Mistakes are no decisions.
    assert_eq!((spend(&gate, "Nope", "8"), spend(&gate, "Login", "x")), (404, 422));
    let mut resp = TcpStream::connect(gate.server.resp_addr().unwrap()).unwrap();
    resp.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    gate.clock.advance(Duration::from_millis(500));
    resp.write_all(b"TOLL SPEND Any r\r\nTOLL SPEND Login 9\r\nCL.THROTTLE k 5 1 60\r\n").unwrap();
    let expected = [
        r#"0s  reload  {limits: {"Login": {algorithm: token_bucket, burst: 2, count: 2, period: 60s, id: "number", on_full: deny}, "Any": {algorithm: token_bucket, burst: 100, count: 100, period: 1s, id: "any", on_full: deny}}, overrides: {"Login:7": {algorithm: token_bucket, burst: 5, count: 5, period: 60s}}, rules: {"upload": {rule: "user:1/m", on_full: deny}}, keys: {rewrite: [], rules: [{match: "^ws ", limit: 1, period: 20s}]}}  => ok"#,
        "1.5s  limit  spend Login:7  => allow remaining=4 retry_after=0s reset_after=12s",
        "1.5s  limit  spend Login:8  => allow remaining=1 retry_after=0s reset_after=30s",
        "1.5s  limit  spend Login:8  => allow remaining=0 retry_after=30s reset_after=60s",
        "1.5s  limit  spend Login:8  => deny remaining=0 retry_after=30s reset_after=60s",
        "1.5s  limit  spend Login:9 Any:a\\x20b cost=3  => allow remaining=1 retry_after=0s reset_after=30s limit=Login",
        "1.5s  limit  check Any:a\\x20b cost=0  => allow remaining=97 retry_after=0s reset_after=0.03s",
        "1.5s  limit  refund Any:a\\x20b  => ok remaining=98 reset_after=0.02s",
        "1.5s  rule  upload user=vova  => allow",
        "1.5s  rule  upload key=cats user=vova  => allow",
        "1.5s  limit  spend Any:x rule=upload user=vova  => deny retry_after=60s rule=upload",
        "1.5s  limit  reset Login:8  => ok",
        "2s  limit  spend Any:r  => allow remaining=99 retry_after=0s reset_after=0.01s",
        "2s  limit  spend Login:9  => allow remaining=0 retry_after=29.5s reset_after=59.5s",
        "2s  resp  CL.THROTTLE k 5 1 60  => *5 :0 :6 :5 :-1 :60",
    ];
    assert_eq!(recorder.read(expected.len()), expected);
    recorder.assert_replayed();
    gate.post("/v1/check", &inline("d", 2, "500ms"));
    recorder.read_until_skipped(1);
}

/// Sends datagrams to the text gate one after another, and returns the replies.
fn send_text(gate: &Harness, datagrams: &[&str]) -> Vec<String> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let address = gate.server.text_addr().unwrap();
    let ask = |datagram: &&str| {
        socket.send_to(datagram.as_bytes(), address).unwrap();
        let mut reply = [0; 1000];
        let len = socket.recv(&mut reply).unwrap();
        String::from_utf8(reply[..len].to_vec()).unwrap()
    };
    datagrams.iter().map(ask).collect()
}

/// Returns the body of a request under an inline limit.
fn inline(id: &str, burst: u32, period: &str) -> String {
    format!(r#"{{"limit":{{"burst":{burst},"count":1,"period":"{period}"}},"id":"{id}"}}"#)
}

/// Returns the body of a request under an inline limit of one an hour.
fn inline_of_kind(id: &str, kind: &str) -> String {
    format!(r#"{{"limit":{{"burst":1,"count":1,"period":"1h"}},"id":"{id}","kind":"{kind}"}}"#)
}

#[test]
fn requests_that_bring_their_own_numbers_become_commands_with_them() {
    let gate = start_with(POLICY, |_| {});
    let mut recorder = Recorder::start(&gate, "");
    gate.post("/v1/spend", &inline("a b", 2, "1m"));
    gate.post("/v1/spend", &inline("a b", 1, "1m"));
    gate.post("/v1/refund", &inline("a b", 2, "1m"));
    gate.post("/v1/reset", &inline("a b", 2, "1m"));
    // In a bill, an inline charge that was taken is a line of its own, without a reply; one that was denied is skipped.
    let bill = |id: &str| format!(r#"{{"charges":[{},{{"limit":"Any","id":"x"}}]}}"#, inline(id, 1, "1h"));
    gate.post("/v1/spend", &bill("c"));
    gate.post("/v1/spend", &bill("c"));
    // No command has a period of half a second, and none looks whether a cost would pass.
    gate.post("/v1/spend", &inline("d", 2, "500ms"));
    gate.post("/v1/check", &inline("a b", 2, "1m"));
    let mut throttr = TcpStream::connect(gate.server.throttr_addr().unwrap()).unwrap();
    throttr.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let requests =
        b"\x01\x01\0\0\0\x05\0\0\0\0\0\0\0\x02\x0a\0\0\0\0\0\0\0\x01\x01cr\x02\x02\0\0\0\x01\x01cr";
    throttr.write_all(requests).unwrap();
    throttr.read_exact(&mut [0; 5 + 22]).unwrap();
    let expected = [
        r#"0s  resp  CL.THROTTLE "a b" 1 1 60  => *5 :0 :2 :1 :-1 :60"#,
        r#"0s  resp  CL.THROTTLE "a b" 0 1 60  => *5 :1 :1 :0 :60 :60"#,
        r#"0s  resp  CL.THROTTLE "a b" 1 1 60 -1  => *5 :0 :2 :2 :-1 :0"#,
        r#"0s  resp  DEL "a b""#,
        "0s  resp  CL.THROTTLE c 0 1 3600",
        "0s  limit  spend Any:x",
        "0s  throttr  01010000000500000000000000020a0000000000000001016372  => 0100000001",
        "0s  throttr  020200000001016372  => 02000000010500000000000000020a00000000000000",
    ];
    assert_eq!(recorder.read(1 + expected.len())[1..], expected);
    recorder.read_until_skipped(3);
}

#[test]
fn the_kind_of_an_inline_charge_decides_what_is_recorded() {
    let gate = start_with(POLICY, |_| {});
    let mut recorder = Recorder::start(&gate, "");
    for (id, kind, status) in [
        ("a", "spend", 200),
        ("a", "spend", 429),
        // A command would say that the second one is limited, so neither has a reply.
        ("b", "spend_only", 200),
        ("b", "spend_only", 200),
        // A command would take.
        ("c", "check_only", 200),
        ("a", "check_only", 429),
    ] {
        assert_eq!(gate.post("/v1/spend", &inline_of_kind(id, kind)).status, status, "{kind}");
    }
    let expected = [
        "0s  resp  CL.THROTTLE a 0 1 3600  => *5 :0 :1 :0 :-1 :3600",
        "0s  resp  CL.THROTTLE a 0 1 3600  => *5 :1 :1 :0 :3600 :3600",
        "0s  resp  CL.THROTTLE b 0 1 3600",
        "0s  resp  CL.THROTTLE b 0 1 3600",
    ];
    assert_eq!(recorder.read(1 + expected.len())[1..], expected);
    recorder.read_until_skipped(2);
}

#[test]
fn a_decision_that_no_line_can_have_is_skipped_once() {
    let gate = start_with(POLICY, |_| {});
    let mut recorder = Recorder::start(&gate, "");
    let bill =
        |charges: &[String]| format!(r#"{{"charges":[{},{{"limit":"Any","id":"x"}}]}}"#, charges.join(","));
    // One for each request, whatever it has beside the limit of the policy.
    gate.post("/v1/check", &bill(&[inline("a", 1, "1h"), inline("b", 1, "1h")]));
    gate.post("/v1/spend", &bill(&[inline("a", 1, "500ms"), inline("b", 1, "500ms")]));
    gate.post("/v1/spend", &bill(&[inline("c", 1, "1h")]));
    gate.post("/v1/spend", &bill(&[inline("c", 1, "1h"), inline("d", 1, "1h")]));
    // HTTP accepts longer ids than a command has.
    let long = "x".repeat(513);
    gate.post("/v1/spend", &inline(&long, 1, "1h"));
    gate.post("/v1/reset", &inline(&long, 1, "1h"));
    spend(&gate, "Any", "y");
    let expected = [
        "0s  limit  spend Any:x",
        "0s  resp  CL.THROTTLE c 0 1 3600",
        "0s  limit  spend Any:x",
        "0s  limit  spend Any:y  => allow remaining=99 retry_after=0s reset_after=0.01s",
    ];
    assert_eq!(recorder.read(1 + expected.len())[1..], expected);
    recorder.read_until_skipped(5);
}

#[test]
fn hashed_ids_are_the_same_in_all_lines_and_tell_nothing() {
    let hashed = WatchSettings { is_on: true, show_ids: ShowIds::Hashed };
    let gate = start_with(POLICY, |settings| settings.watch = hashed);
    let mut recorder = Recorder::start(&gate, "");
    assert_eq!(recorder.start.ids, RecordedIds::Hashed);
    for limit in ["Login", "Any"] {
        spend(&gate, limit, "007");
    }
    gate.post("/v1/rules/upload", r#"{"selectors":{"user":"vova"},"key":"cats"}"#);
    let lines = recorder.read(4).join("\n");
    // With what stands around an id: a time or a hash may have these digits, too.
    for told in [":007 ", ":007\"", ":7 ", ":7\"", "vova", "cats"] {
        assert!(!lines.contains(told), "{told}: {lines}");
    }
    let id = |start: &str| lines.split(start).nth(1).unwrap().split([' ', '"']).next().unwrap().to_owned();
    // The override and the request name the same id, which is 7 under this limit and 007 under the other.
    assert_eq!(id("\"Login:"), id("spend Login:"));
    assert_ne!(id("spend Login:"), id("spend Any:"));
    assert!(lines.contains("=> allow remaining=4"), "{lines}");
    let again = Recorder::start(&gate, "&ids=plain").read(1).join("\n");
    assert!(!again.contains(&id("\"Login:")), "{again}");
}

#[test]
fn a_sample_has_all_requests_of_an_id_or_none() {
    let gate = start_with(POLICY, |_| {});
    let mut all = Recorder::start(&gate, "");
    let mut some = Recorder::start(&gate, "&sample=4");
    for _ in 0..3 {
        (0..200).for_each(|id| _ = spend(&gate, "Any", &format!("id-{id}")));
    }
    all.read(601);
    // Of a hundred ids, some are in every sample.
    (0..100).for_each(|id| _ = spend(&gate, "Any", &format!("end-{id}")));
    some.read_until("Any:end-");
    let count = |recorder: &Recorder, id: usize| {
        let text = format!("Any:id-{id}  ");
        recorder.lines.iter().filter(|line| line.contains(&text)).count()
    };
    let counts: Vec<_> = (0..200).map(|id| (count(&all, id), count(&some, id))).collect();
    assert!(counts.iter().all(|count| matches!(count, (3, 0 | 3))), "{counts:?}");
    assert!(counts.contains(&(3, 0)) && counts.contains(&(3, 3)), "{counts:?}");
}

/// A policy of the gates whose requests name no limit.
const KEYS_AND_DESCRIPTORS: &str = r#"
limits: { Searches: { algorithm: sliding_log, count: 2, period: 1m, id: ip } }
keys:
  - rewrite: [{ match: 'cust=(a|b)$', replace: 'cust=ab' }]
  - { match: '^ws ua=bot', limit: 1, period: 20s }
  - { match: '^ws ', limit: 2.5, period: 20s, strict: true }
  - { match: '^[0-9.]+$', use: Searches, stats: true }
  - { match: '^free ', answer: never }
envoy:
  - domain: shop
    descriptors:
      - key: account
        rate_limit: { unit: minute, requests_per_unit: 2, name: "é => 1" }
        descriptors: [{ key: ip, value: '10.*', rate_limit: { unit: 90s, requests_per_unit: 1, algorithm: quota } }]
      - { key: banned, rate_limit: { unit: day, requests_per_unit: 0 } }
      - { key: shadow, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
"#;

/// Returns a request of the domain `shop` whose descriptors have one entry each.
fn descriptors(entries: &[(&str, &str)]) -> String {
    let entries: Vec<_> =
        entries.iter().map(|(key, value)| format!(r#"{{"entries":[["{key}","{value}"]]}}"#)).collect();
    format!(r#"{{"domain":"shop","descriptors":[{}]}}"#, entries.join(","))
}

#[test]
fn requests_that_name_no_limit_are_recorded_as_they_were_sent() {
    let gate = start_with(KEYS_AND_DESCRIPTORS, |_| {});
    gate.clock.advance(Duration::from_millis(1_700_000_012_345));
    let mut recorder = Recorder::start(&gate, "");
    let mut datagrams = vec![
        "007 over_limit ws cust=a",
        "over_limit ws cust=b",
        "8 over_limit ws cust=ab",
        "9 over_limit 192.0.2.1",
        "9 over_limit 192.0.2.1",
        "9 over_limit 192.0.2.1",
        "10 over_limit free é",
        "11 over_limit unknown",
        r#"12 check_limit {"ip":"192.0.2.7", "more": [1], "origin":"ws","ua":"bot"}"#,
        r#"13 check_limit {"origin":"ws","ua":"bot"}"#,
    ];
    let replies = send_text(&gate, &datagrams);
    // These decide nothing.
    send_text(&gate, &["ping", "get_size", "get_stats 192.0.2.1"]);
    gate.clock.advance(Duration::from_millis(7_500));
    let client = RlsClient::new(gate.server.rls_addr().unwrap());
    let more = r#"{"domain":"shop","descriptors":[{"entries":[["account","bob"],["ip","10.0.0.1"]]},{"entries":[["account","bob"]],"limit":{"requests_per_unit":2,"unit":"WEEK"}},{"entries":[["account","eve"]],"hits_addend":2}]}"#;
    let back = r#"{"domain":"shop","descriptors":[{"entries":[["account","eve"]],"hits_addend":1,"is_negative_hits":true}],"hits_addend":4}"#;
    let account = descriptors(&[("account", "ann")]);
    let requests = [
        &*account,
        &account,
        &account,
        &descriptors(&[("account", "ann"), ("shadow", "x")]),
        &descriptors(&[("shadow", "x")]),
        &descriptors(&[("shadow", "x"), ("nothing", "é => y")]),
        &descriptors(&[("banned", "x"), ("shadow", "z")]),
        more,
        more,
        back,
        &account.replace("shop", "other"),
    ];
    for request in requests {
        let answer = client.ask(from_trace(request)).unwrap();
        let code = if answer.overall_code == 1 { 200 } else { 429 };
        // Both gates are recorded, and the second request may be over the limit.
        assert!(gate.post("/json", request).status >= code, "{request}");
    }
    // A mistake is no decision.
    assert_eq!(gate.post("/json", &account.replace("shop", "")).status, 400);
    let lines = recorder.read(1 + datagrams.len() + 2 * requests.len());
    datagrams[6] = "10 over_limit free \\xc3\\xa9";
    for ((line, datagram), reply) in lines[1..].iter().zip(&datagrams).zip(&replies) {
        let reply = reply.replace('é', "\\xc3\\xa9");
        assert!(line.ends_with(&format!("s  text  {datagram}  => {reply}")), "{line}");
    }
    for (pair, request) in lines[1 + datagrams.len()..].chunks(2).zip(requests) {
        let request = request.replace("é => y", "\\u00e9 =\\u003e y");
        assert!(pair.iter().all(|line| line.contains(&format!("s  rls  {request}  => {{"))), "{pair:?}");
    }
    let text = lines.join("\n");
    assert!(text.contains(r#""name":"\u00e9 =\u003e 1"},"limit_remaining":0,"#), "{text}");
    recorder.assert_replayed();
    recorder.read_until_skipped(0);
}

#[test]
fn a_sample_has_all_uses_of_a_bucket_whoever_asked() {
    let gate = start_with(KEYS_AND_DESCRIPTORS, |_| {});
    let mut some = Recorder::start(&gate, "&sample=4");
    for round in 0..2 {
        for number in 0..60 {
            let (ip, account) = (format!("10.0.0.{number}"), format!("a{number}."));
            let check = format!(r#"check_limit {{"origin":"ws","ua":"u{}","ip":"{ip}"}}"#, number % 7);
            let over_limit = format!("{round} over_limit ws ip={ip}");
            send_text(&gate, &[&format!("over_limit {ip}"), &over_limit, &check]);
            spend(&gate, "Searches", &ip);
            gate.post("/json", &descriptors(&[("account", &account)]));
            gate.post("/json", &descriptors(&[("account", &account), ("shadow", &ip)]));
            gate.post("/json", &descriptors(&[("nothing", &account)]));
        }
    }
    // Of a hundred ids, some are in every sample.
    (0..100).for_each(|id| _ = spend(&gate, "Searches", &format!("192.0.2.{id}")));
    some.read_until("Searches:192.0.2.");
    some.assert_replayed();
    let count = |text: &str| some.lines.iter().filter(|line| line.contains(text)).count();
    let counts: Vec<_> = (0..60)
        .map(|number| {
            let named = count(&format!("  text  over_limit 10.0.0.{number}  "));
            let spent = count(&format!("  spend Searches:10.0.0.{number}  "));
            let unlimited = count(&descriptors(&[("nothing", &format!("a{number}."))]));
            (named, spent, unlimited)
        })
        .collect();
    // The bucket of a named limit is that of its id, whichever gate asked.
    assert!(counts.iter().all(|count| matches!(count, (0, 0, 0 | 2) | (2, 2, 0 | 2))), "{counts:?}");
    let named = counts.iter().filter(|(named, ..)| *named > 0).count();
    let unlimited = counts.iter().filter(|(.., unlimited)| *unlimited > 0).count();
    assert!((1..60).contains(&named) && (1..60).contains(&unlimited), "{counts:?}");
    // A request of which a part is in the sample has no reply, or is the use of a key.
    let is_part = |line: &&String| line.contains("  rls  ") && !line.contains("  => ");
    assert!(some.lines.iter().any(|line| is_part(&line)) && count("  text  over_limit ws ip=10.") > 0);
}

#[test]
fn a_hashed_key_matches_no_pattern_and_is_skipped() {
    let gate = start_with(KEYS_AND_DESCRIPTORS, |_| {});
    let mut recorder = Recorder::start(&gate, "&ids=hashed");
    send_text(&gate, &["over_limit ws a", r#"check_limit {"origin":"ws","ua":"x"}"#, "ping"]);
    // What is taken from the bucket of a named limit is seen by others.
    send_text(&gate, &["over_limit 192.0.2.1"]);
    gate.post("/json", &descriptors(&[("account", "ann")]));
    spend(&gate, "Searches", "192.0.2.1");
    recorder.read_until_skipped(3);
    let lines = recorder.read(3).to_vec();
    assert!(lines[1].starts_with("0s  limit  spend Searches:#") && !lines[1].contains("=>"), "{lines:#?}");
    assert!(lines[2].ends_with("  => allow remaining=0 retry_after=60s reset_after=60s"), "{lines:#?}");
    recorder.assert_replayed();
    let lines = lines.join("\n");
    for told in ["shop", "account", "ws", "cust", "192.0."] {
        assert!(!lines.contains(told), "{told}: {lines}");
    }
}

#[test]
fn recorders_are_few_and_ids_that_are_not_shown_are_not_recorded() {
    let gate = start_with(POLICY, |_| {});
    let recorders: Vec<_> = (0..4).map(|_| Recorder::start(&gate, "")).collect();
    let reply = gate.get("/v1/live?all");
    assert_eq!((reply.status, &reply.json()["title"]), (503, &json!("Too many watchers")));
    drop(recorders);
    assert_eq!(gate.get("/v1/live?all&sample=3").status, 400);
    let off = WatchSettings { is_on: true, show_ids: ShowIds::Off };
    let gate = start_with(POLICY, |settings| settings.watch = off);
    let reply = gate.get("/v1/live?all");
    assert_eq!((reply.status, &reply.json()["title"]), (403, &json!("Ids are not shown")));
}

#[test]
fn a_recorder_that_does_not_read_is_cut_and_nobody_waits_for_it() {
    let gate = start_with(POLICY, |settings| settings.bounds.write_time = Duration::from_millis(20));
    let mut stream = gate.connect();
    stream.write_all(b"GET /v1/live?all HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    let long = "x".repeat(8 << 10);
    // Until neither the buffers of the system nor the queue take more, and the connection is closed for that.
    let mut place = 0;
    while gate.get("/metrics").body.contains("tollway_connections_cut_total{when=\"write\"} 0") {
        place += 1;
        spend(&gate, "Any", &format!("{place}{long}"));
    }
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
}

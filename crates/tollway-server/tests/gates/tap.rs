//! Tests that decisions are recorded as lines of a trace: `/v1/live?all`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use tollway::config::{ShowIds, WatchSettings};
use tollway_testbed::TEST_TIMEOUT;
use tollway_wire::http::{DECISIONS_EVENT, RecordedIds, RecordingProgress, RecordingStart};

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

    /// Reads until a report of progress has a decision that was skipped.
    fn read_until_skipped(&mut self) {
        while self.progress.skipped == 0 {
            self.read_event();
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
        r#"0s  reload  {limits: {"Login": {algorithm: token_bucket, burst: 2, count: 2, period: 60s, id: "number", on_full: deny}, "Any": {algorithm: token_bucket, burst: 100, count: 100, period: 1s, id: "any", on_full: deny}}, overrides: {"Login:7": {algorithm: token_bucket, burst: 5, count: 5, period: 60s}}, rules: {"upload": {rule: "user:1/m", on_full: deny}}}  => ok"#,
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
    ];
    assert_eq!(recorder.read(expected.len()), expected);
    recorder.read_until_skipped();
    assert_eq!(recorder.progress, RecordingProgress { missed: 0, skipped: 1 });
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
    // Lines are sent before the report of a decision that came after them.
    gate.post("/v1/spend", r#"{"limit":{"burst":1,"count":1,"period":"1m"},"id":"inline"}"#);
    some.read_until_skipped();
    let count = |recorder: &Recorder, id: usize| {
        let text = format!("Any:id-{id}  ");
        recorder.lines.iter().filter(|line| line.contains(&text)).count()
    };
    let counts: Vec<_> = (0..200).map(|id| (count(&all, id), count(&some, id))).collect();
    assert!(counts.iter().all(|count| matches!(count, (3, 0 | 3))), "{counts:?}");
    assert!(counts.contains(&(3, 0)) && counts.contains(&(3, 3)), "{counts:?}");
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

//! The document at `/openapi.json`, held against what the server does.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::time::Duration;

use serde_json::{Value, json};
use tollway_testbed::{RedisServer, TEST_TIMEOUT};

use crate::support::tokens::Tokens;
use crate::support::{Harness, POLICY, Reply, read_all, start_with};

/// Headers that HTTP itself has.
const OF_HTTP: [&str; 7] = [
    "date",
    "content-type",
    "content-length",
    "connection",
    "allow",
    "cache-control",
    "x-content-type-options",
];

const LOGIN: &str = r#"{"limit":"Login","id":"a"}"#;
const BILL: &str = r#"{"charges":[{"limit":"Login","id":"a","cost":1},{"limit":"Fast","id":"b"}]}"#;
const EVERY_KIND: &str = r#"{"charges":[{"limit":"Login","id":"k","kind":"check_only"},{"limit":"Fast","id":"b","kind":"spend_only"}]}"#;
const TOO_MUCH: &str = r#"{"limit":"Login","id":"a","cost":6}"#;

const DESCRIPTOR: &str = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"account","value":"a"}]}]}"#;

/// The limits of descriptors beside those of the policy.
const DESCRIPTORS: &str = "
domain: shop
descriptors:
- {key: account, rate_limit: {unit: minute, requests_per_unit: 3, name: by-account}}
";

/// Method, path with its query, body, and the status that must come.
const CASES: [(&str, &str, &str, u16); 132] = [
    (
        "POST",
        "/v1/spend",
        r#"{"limit":"Login","id":"r","rules":[{"rule":"upload","selectors":{"user":"r"}}]}"#,
        200,
    ),
    ("POST", "/v1/spend", r#"{"rules":[{"rule":"closed"}]}"#, 429),
    (
        "POST",
        "/v1/spend",
        r#"{"charges":[{"limit":"Login","id":"r"}],"rules":[{"rule":"closed","key":null}]}"#,
        429,
    ),
    (
        "POST",
        "/v1/spend",
        r#"{"charges":[],"rules":[{"rule":"upload","key":"k","selectors":{"user":7}}]}"#,
        200,
    ),
    ("POST", "/v1/spend", r#"{"charges":[{"limit":"Login","id":"r"}],"rules":[]}"#, 200),
    ("POST", "/v1/spend", r#"{"charges":[{"limit":"Login","id":"r"}],"rules":[{"rule":"nobody"}]}"#, 404),
    ("POST", "/v1/spend", r#"{"charges":[],"rules":[]}"#, 400),
    ("POST", "/v1/spend", r#"{"rules":[{"rule":"upload","selectors":{"user":1.5}}]}"#, 400),
    ("POST", "/v1/spend", r#"{"rules":[{"key":"k"}]}"#, 400),
    ("POST", "/v1/check", r#"{"limit":"Login","id":"r","rules":[{"rule":"closed"}]}"#, 429),
    ("POST", "/v1/refund", r#"{"limit":"Login","id":"r","rules":[{"rule":"closed"}]}"#, 400),
    ("POST", "/v1/reset", r#"{"limit":"Login","id":"r","rules":[{"rule":"closed"}]}"#, 400),
    ("POST", "/v1/spend", LOGIN, 200),
    ("POST", "/v1/spend", BILL, 200),
    ("POST", "/v1/spend", EVERY_KIND, 200),
    ("POST", "/v1/spend", r#"{"limit":"Login","id":"a","cost":4}"#, 429),
    (
        "POST",
        "/v1/spend",
        r#"{"charges":[{"limit":"Login","id":"a","cost":4},{"limit":"Fast","id":"b"}]}"#,
        429,
    ),
    ("POST", "/v1/spend", r#"{"limit":"Nobody","id":"a"}"#, 404),
    ("POST", "/v1/spend", TOO_MUCH, 422),
    ("POST", "/v1/spend", r#"{"limit":"Report","id":"x"}"#, 422),
    ("POST", "/v1/spend", r#"{"limit":"Login","id":"a","cost":18446744073709551615}"#, 422),
    ("POST", "/v1/spend", r#"{"limit":"Login","id":"a","cost":-1}"#, 400),
    ("POST", "/v1/spend", r#"{"limit":"Login","id":"a","cost":1.5}"#, 400),
    ("POST", "/v1/spend", r#"{"limit":"Login","id":"a","kind":"check_only"}"#, 200),
    ("POST", "/v1/spend", r#"{"limit":"Login","id":"a","more":1}"#, 400),
    ("POST", "/v1/spend", r#"{"limit":"Login"}"#, 400),
    ("POST", "/v1/spend", r#"{"charges":[]}"#, 400),
    ("POST", "/v1/spend", r#"{"charges":[{"limit":"Login","id":"a","kind":"other"}]}"#, 400),
    ("POST", "/v1/spend", r#"{"limit":"Login","id":"a","charges":[{"limit":"Login","id":"a"}]}"#, 400),
    ("POST", "/v1/spend", "LARGE", 413),
    ("POST", "/v1/check", LOGIN, 200),
    ("POST", "/v1/check", EVERY_KIND, 200),
    ("POST", "/v1/check", r#"{"limit":"Login","id":"a","cost":5}"#, 429),
    ("POST", "/v1/check", r#"{"limit":"Nobody","id":"a"}"#, 404),
    ("POST", "/v1/check", TOO_MUCH, 422),
    ("POST", "/v1/check", "[]", 400),
    ("POST", "/v1/check", "LARGE", 413),
    ("POST", "/v1/refund", LOGIN, 200),
    ("POST", "/v1/refund", BILL, 200),
    ("POST", "/v1/refund", r#"{"limit":"Nobody","id":"a"}"#, 404),
    ("POST", "/v1/refund", TOO_MUCH, 422),
    ("POST", "/v1/refund", EVERY_KIND, 200),
    ("POST", "/v1/refund", "[]", 400),
    ("POST", "/v1/refund", "LARGE", 413),
    ("POST", "/v1/reset", LOGIN, 200),
    ("POST", "/v1/reset", r#"{"limit":"Nobody","id":"a"}"#, 404),
    ("POST", "/v1/reset", r#"{"limit":"Report","id":""}"#, 422),
    ("POST", "/v1/reset", TOO_MUCH, 400),
    ("POST", "/v1/reset", "LARGE", 413),
    ("GET", "/v1/gate?limit=Login&id=g&cost=5", "", 200),
    ("GET", "/v1/gate?limit=Login&id=g", "", 429),
    ("GET", "/v1/gate?limit=Login&id=g&deny_status=401", "", 401),
    ("GET", "/v1/gate?limit=Login&id=g&deny_status=403", "", 403),
    ("GET", "/v1/gate?limit=Login&id=g&deny_status=503", "", 503),
    ("GET", "/v1/gate?limit=Login&id=g&deny_status=500", "", 400),
    ("GET", "/v1/gate?limit=Nobody&id=g", "", 404),
    ("GET", "/v1/gate?limit=Login&id=g&cost=6", "", 422),
    ("GET", "/v1/gate?limit=Login&id=i&limit=Fast&id_from=client_ip&cost=2", "", 200),
    ("GET", "/v1/gate?rule=upload&user=gate", "", 200),
    ("GET", "/v1/gate?rule=upload&user=gate", "", 429),
    ("GET", "/v1/gate?rule=nobody", "", 404),
    ("HEAD", "/v1/gate?limit=Login&id=h&cost=5", "", 200),
    ("HEAD", "/v1/gate?limit=Login&id=h", "", 429),
    ("HEAD", "/v1/gate?limit=Login&id=h&deny_status=401", "", 401),
    ("HEAD", "/v1/gate?limit=Login&id=h&deny_status=403", "", 403),
    ("HEAD", "/v1/gate?limit=Login&id=h&deny_status=503", "", 503),
    ("HEAD", "/v1/gate", "", 400),
    ("HEAD", "/v1/gate?limit=Nobody&id=g", "", 404),
    ("HEAD", "/v1/gate?limit=Login&id=g&cost=6", "", 422),
    ("POST", "/v1/rules/upload", r#"{"selectors":{"user":"vova"}}"#, 200),
    ("POST", "/v1/rules/upload", r#"{"selectors":{"user":"vova","more":7}}"#, 429),
    ("POST", "/v1/rules/upload", r#"{"selectors":{"user":0},"key":"cats"}"#, 200),
    ("POST", "/v1/rules/upload", r#"{"selectors":{"user":null},"key":null}"#, 200),
    ("POST", "/v1/rules/closed", "{}", 429),
    ("POST", "/v1/rules/upload", r#"{"selectors":{"user":1.5}}"#, 400),
    ("POST", "/v1/rules/upload", r#"{"selectors":{"user":true}}"#, 400),
    ("POST", "/v1/rules/upload", r#"{"selectors":[]}"#, 400),
    ("POST", "/v1/rules/upload", r#"{"user":"vova"}"#, 400),
    ("POST", "/v1/rules/nobody", "{}", 404),
    ("POST", "/v1/rules/upload", "LARGE", 413),
    ("POST", "/json", DESCRIPTOR, 200),
    ("POST", "/json", r#"{"domain":"nowhere","descriptors":[{}],"hitsAddend":"2"}"#, 200),
    (
        "POST",
        "/json",
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"account","value":"a"}],"hitsAddend":3}]}"#,
        429,
    ),
    ("POST", "/json", r#"{"domain":"shop","descriptors":[]}"#, 400),
    ("POST", "/json", r#"{"domain":"shop","descriptors":[{"entries":[{"name":"account"}]}]}"#, 400),
    ("POST", "/json", "LARGE", 413),
    ("POST", "/v1/explain", r#"{"rule":"upload","selectors":{"user":"vova"}}"#, 200),
    ("POST", "/v1/explain", r#"{"rule":"upload","selectors":{"user":""}}"#, 200),
    (
        "POST",
        "/v1/explain",
        r#"{"rule":"Or('0/s', And('user:1/s', And(), Or()))","selectors":{"user":1},"key":"k"}"#,
        200,
    ),
    ("POST", "/v1/explain", r#"{"rule":"closed"}"#, 200),
    ("POST", "/v1/explain", r#"{"rule":7}"#, 400),
    ("POST", "/v1/explain", r#"{"selectors":{}}"#, 400),
    ("POST", "/v1/explain", r#"{"rule":"upload","selectors":{"user":{}}}"#, 400),
    ("POST", "/v1/explain", r#"{"rule":"nobody"}"#, 404),
    ("POST", "/v1/explain", "LARGE", 413),
    ("GET", "/v1/inspect?limit=Login&id=a", "", 200),
    ("GET", "/v1/inspect?limit=Login&id=nobody", "", 200),
    ("POST", "/v1/spend", r#"{"limit":"Fixed","id":"a"}"#, 200),
    ("GET", "/v1/inspect?limit=Fixed&id=a", "", 200),
    ("POST", "/v1/spend", r#"{"limit":"Sliding","id":"a"}"#, 200),
    ("GET", "/v1/inspect?limit=Sliding&id=a", "", 200),
    ("GET", "/v1/inspect?limit=Login", "", 400),
    ("GET", "/v1/inspect?limit=Nobody&id=a", "", 404),
    ("GET", "/v1/inspect?limit=Report&id=x", "", 422),
    ("HEAD", "/v1/inspect?limit=Login&id=a", "", 200),
    ("HEAD", "/v1/inspect", "", 400),
    ("HEAD", "/v1/inspect?limit=Nobody&id=a", "", 404),
    ("HEAD", "/v1/inspect?limit=Report&id=x", "", 422),
    ("GET", "/v1/keys?limit=Login", "", 501),
    ("GET", "/v1/keys?count=1001", "", 400),
    ("GET", "/v1/keys?limit=Nobody", "", 404),
    ("HEAD", "/v1/keys", "", 501),
    ("HEAD", "/v1/keys?cursor=x", "", 400),
    ("HEAD", "/v1/keys?limit=Nobody", "", 404),
    ("GET", "/v1/buckets", "", 200),
    ("GET", "/v1/buckets?from=x", "", 400),
    ("HEAD", "/v1/buckets", "", 200),
    ("HEAD", "/v1/buckets?from=x", "", 400),
    ("POST", "/v1/buckets", EMPTY_EXPORT, 200),
    ("POST", "/v1/buckets", r#"{"export":7}"#, 400),
    ("POST", "/v1/buckets", r#"{"export":"AAAA"}"#, 422),
    ("POST", "/v1/buckets", "LARGE", 413),
    ("GET", "/v1/top", "", 200),
    ("GET", "/v1/top?by=spent&limit=Login&n=1", "", 200),
    ("GET", "/v1/top?by=cost", "", 400),
    ("GET", "/v1/top?limit=Nobody", "", 404),
    ("HEAD", "/v1/top", "", 200),
    ("HEAD", "/v1/top?n=0", "", 400),
    ("HEAD", "/v1/top?limit=Nobody", "", 404),
    ("GET", "/healthz", "", 200),
    ("GET", "/metrics", "", 200),
    ("GET", "/openapi.json", "", 200),
];

/// A request whose second descriptor brings numbers.
const DESCRIPTOR_OVERRIDE: &str = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"account","value":"alice"}]},
    {"entries":[{"key":"account","value":"bob"}],"limit":{"requestsPerUnit":9,"unit":"HOUR"}}]}"#;

/// An export without buckets.
const EMPTY_EXPORT: &str = concat!(
    r#"{"export":""#,
    "VE9MTFdBWVgBAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAN7HgCSIk6RhPHzIq",
    "ec4oxNI3gQxlNDhxEQAAAGay5XRHl2P6AwAAAAAAAAAAAAAAAAAAAAA=",
    r#""}"#
);

const INLINE: &str = r#"{"limit":{"burst":2,"count":2,"period":"1m"},"id":"a"}"#;

/// Requests with numbers, and the statuses of a server that takes them.
const CASES_INLINE: [(&str, &str, &str, u16); 14] = [
    ("POST", "/v1/spend", INLINE, 200),
    ("POST", "/v1/spend", r#"{"limit":{"count":2,"period":60},"id":"a","cost":2}"#, 429),
    ("POST", "/v1/check", INLINE, 200),
    ("POST", "/v1/refund", INLINE, 200),
    ("POST", "/v1/reset", INLINE, 200),
    ("POST", "/v1/spend", r#"{"limit":{"count":0,"period":60},"id":"a"}"#, 400),
    ("POST", "/v1/spend", r#"{"limit":{"count":2},"id":"a"}"#, 400),
    ("POST", "/v1/spend", r#"{"limit":{"count":2,"period":60,"more":1},"id":"a"}"#, 400),
    ("POST", "/v1/spend", r#"{"limit":{"count":2,"period":60},"id":"a","cost":3}"#, 422),
    ("POST", "/throttle", r#"{"key":"k","max_burst":2,"count_per_period":2,"period":60}"#, 200),
    ("POST", "/throttle", r#"{"key":"k","max_burst":2,"count_per_period":2,"period":60,"quantity":3}"#, 200),
    ("POST", "/throttle", r#"{"key":"k","max_burst":0,"count_per_period":2,"period":60}"#, 400),
    ("POST", "/throttle", r#"{"key":"","max_burst":2,"count_per_period":2,"period":60}"#, 200),
    ("POST", "/throttle", "LARGE", 413),
];

/// The requests with inline limits, and the statuses of a server that allows none.
const CASES_NOT_INLINE: [(&str, &str, &str, u16); 6] = [
    ("POST", "/v1/spend", INLINE, 403),
    ("POST", "/v1/check", INLINE, 403),
    ("POST", "/v1/refund", INLINE, 403),
    ("POST", "/v1/reset", INLINE, 403),
    ("POST", "/json", DESCRIPTOR_OVERRIDE, 403),
    ("POST", "/throttle", r#"{"key":"k","max_burst":2,"count_per_period":2,"period":60}"#, 404),
];

/// Requests, and the statuses of a server that watches nobody and that nobody can watch.
const CASES_UNWATCHED: [(&str, &str, &str, u16); 4] = [
    ("GET", "/v1/top", "", 501),
    ("HEAD", "/v1/top", "", 501),
    ("GET", "/v1/live", "", 503),
    ("HEAD", "/v1/live", "", 503),
];

/// Nobody listens there.
const POLICY_UNREACHABLE: &str = "
store: redis://127.0.0.1:1
limits:
  Closed: { burst: 5, count: 5, period: 1m, on_store_failure: deny }
  Open: { burst: 5, count: 5, period: 1m }
  Local: { burst: 5, count: 5, period: 1m, on_store_failure: local, local_share: 1/5 }
rules:
  closed: { rule: 5/m, on_store_failure: deny }
  open: 5/m
  local: { rule: 5/m, on_store_failure: local, local_share: 1/5 }
domain: shop
descriptors:
- {key: account, rate_limit: {unit: minute, requests_per_unit: 3, on_store_failure: deny}}
- {key: open, rate_limit: {unit: minute, requests_per_unit: 3}}
";

/// Requests, and the statuses that a server answers while its store is unreachable.
const CASES_UNREACHABLE: [(&str, &str, &str, u16); 30] = [
    ("POST", "/v1/spend", r#"{"limit":"Open","id":"a","rules":[{"rule":"closed"}]}"#, 503),
    ("POST", "/v1/spend", r#"{"limit":"Open","id":"a","rules":[{"rule":"open"}]}"#, 200),
    ("POST", "/v1/check", r#"{"limit":"Closed","id":"a","rules":[{"rule":"local"}]}"#, 503),
    ("POST", "/v1/spend", r#"{"limit":"Closed","id":"a"}"#, 503),
    ("POST", "/v1/check", r#"{"limit":"Closed","id":"a"}"#, 503),
    ("POST", "/v1/spend", r#"{"limit":"Open","id":"a"}"#, 200),
    ("POST", "/v1/check", r#"{"limit":"Open","id":"a"}"#, 200),
    ("POST", "/v1/spend", r#"{"limit":"Local","id":"a"}"#, 200),
    ("POST", "/v1/spend", r#"{"limit":"Local","id":"a"}"#, 429),
    ("POST", "/v1/refund", r#"{"limit":"Closed","id":"a"}"#, 503),
    ("POST", "/v1/reset", r#"{"limit":"Open","id":"a"}"#, 503),
    ("POST", "/v1/rules/closed", "{}", 503),
    ("POST", "/v1/rules/open", "{}", 200),
    ("POST", "/v1/rules/local", "{}", 200),
    ("POST", "/v1/rules/local", "{}", 429),
    ("POST", "/v1/explain", r#"{"rule":"10/s"}"#, 503),
    ("POST", "/json", DESCRIPTOR, 503),
    ("POST", "/json", r#"{"domain":"shop","descriptors":[{"entries":[{"key":"open"}]}]}"#, 200),
    (
        "POST",
        "/json",
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"account"}],"isNegativeHits":true}]}"#,
        503,
    ),
    ("GET", "/v1/gate?limit=Closed&id=a", "", 503),
    ("GET", "/v1/gate?limit=Closed&id=a&deny_status=403", "", 403),
    ("GET", "/v1/gate?limit=Closed&id=a&deny_status=429", "", 429),
    ("GET", "/v1/gate?limit=Open&id=a", "", 200),
    ("GET", "/v1/gate?limit=Local&id=b", "", 200),
    ("GET", "/v1/gate?limit=Local&id=b&deny_status=403", "", 403),
    ("HEAD", "/v1/gate?limit=Closed&id=a", "", 503),
    ("GET", "/v1/inspect?limit=Open&id=a", "", 503),
    ("HEAD", "/v1/inspect?limit=Open&id=a", "", 503),
    ("GET", "/v1/keys", "", 503),
    ("HEAD", "/v1/keys", "", 503),
];

/// Requests, and the statuses that a server answers whose store is a Redis.
const CASES_REDIS: [(&str, &str, &str, u16); 12] = [
    (
        "POST",
        "/v1/spend",
        r#"{"limit":"Login","id":"r","rules":[{"rule":"upload","selectors":{"user":"r"}}]}"#,
        200,
    ),
    ("POST", "/v1/spend", LOGIN, 200),
    ("POST", "/v1/spend", BILL, 200),
    ("POST", "/v1/rules/upload", r#"{"selectors":{"user":"vova"}}"#, 200),
    ("POST", "/v1/explain", r#"{"rule":"upload","selectors":{"user":"vova"}}"#, 200),
    ("GET", "/v1/inspect?limit=Login&id=a", "", 200),
    ("GET", "/v1/buckets", "", 501),
    ("HEAD", "/v1/buckets", "", 501),
    ("POST", "/v1/buckets", EMPTY_EXPORT, 501),
    ("GET", "/v1/keys", "", 200),
    ("GET", "/v1/keys?limit=Login&cursor=1&count=1", "", 200),
    ("HEAD", "/v1/keys", "", 200),
];

#[test]
fn the_server_does_what_the_document_says_and_nothing_else() {
    let gate = start_with(&format!("{POLICY}{DESCRIPTORS}"), |_| {});
    let document = Document::of(&gate);
    let more = ["/healthz", "/readyz", "/metrics", "/openapi.json"].map(|path| ("HEAD", path, "", 200));
    let more = more.into_iter().chain([("GET", "/readyz", "", 200), ("HEAD", "/v1/live", "", 200)]);
    let mut seen = BTreeSet::new();
    document.check_cases(&gate, CASES.into_iter().chain(more), &mut seen);
    document.check_cases(&start_with(POLICY_UNREACHABLE, |_| {}), CASES_UNREACHABLE, &mut seen);
    let inline = format!("gates: {{ http: {{ throttlecrab: true }} }}\n{POLICY}");
    document.check_cases(&start_with(&inline, |_| {}), CASES_INLINE, &mut seen);
    let not_inline = format!("gates: {{ http: {{ inline: deny }} }}\n{POLICY}");
    document.check_cases(&start_with(&not_inline, |_| {}), CASES_NOT_INLINE, &mut seen);
    let redis = RedisServer::start();
    let policy = format!("store: {}?deadline=5s\n{POLICY}", redis.url());
    document.check_cases(&start_with(&policy, |_| {}), CASES_REDIS, &mut seen);
    let unwatched = start_with(POLICY, |settings| {
        settings.watch.is_on = false;
        settings.bounds.watchers = 0;
    });
    document.check_cases(&unwatched, CASES_UNWATCHED, &mut seen);
    document.check_tokens(&mut seen);
    // It does not end: the tests of the watch read it, and compare its events with their schemas.
    seen.insert(("/v1/live".to_owned(), "get".to_owned(), "200".to_owned()));
    for method in ["GET", "HEAD"] {
        let reply = not_ready(method);
        document.check_reply(method, "/readyz", &reply);
        seen.insert(("/readyz".to_owned(), method.to_lowercase(), reply.status.to_string()));
    }
    // The tests of the gates see it, where a task can be made to panic.
    let unhealthy = |method: &str| ("/healthz".to_owned(), method.to_owned(), "503".to_owned());
    seen.extend(["get", "head"].map(unhealthy));
    let documented = document.responses().filter(|(_, _, status)| status != "default").collect();
    assert_eq!(seen, documented, "every documented response was seen, and no other");
}

#[test]
fn what_no_operation_explains_is_a_problem_document_too() {
    let gate = start_with(POLICY, |settings| settings.bounds.head_time = Duration::from_millis(50));
    let document = Document::of(&gate);
    let broken = [
        gate.exchange(b"GET /metrics HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"),
        gate.exchange(b"GET /metrics HTTP/1.1\r\n"),
        gate.exchange(
            format!("GET /metrics HTTP/1.1\r\nHost: x\r\nCookie: {}\r\n\r\n", "x".repeat(20_000)).as_bytes(),
        ),
    ];
    for (answer, status) in broken.iter().zip([400, 408, 431]) {
        let reply = parse(answer);
        assert_eq!(reply.status, status, "{answer}");
        document.check_reply("GET", "/metrics", &reply);
    }
}

/// The document that a server sends.
pub(crate) struct Document(Value);

/// Names a path, a method and a status.
type Response = (String, String, String);

impl Document {
    pub(crate) fn of(gate: &Harness) -> Self {
        Self(gate.get("/openapi.json").json())
    }

    /// Asserts that a value is as the schema of this name says.
    pub(crate) fn check_schema(&self, name: &str, value: &Value) {
        let schema = &self.0["components"]["schemas"][name];
        assert!(schema.is_object() && self.is_valid(schema, value), "{name}: {value}");
    }

    fn check_cases(
        &self,
        gate: &Harness,
        cases: impl IntoIterator<Item = (&'static str, &'static str, &'static str, u16)>,
        seen: &mut BTreeSet<Response>,
    ) {
        let large = "x".repeat(70_000);
        for (method, target, body, status) in cases {
            let body = if body == "LARGE" { &large } else { body };
            let reply = gate.request(method, target, (method == "POST").then_some(body));
            assert_eq!(reply.status, status, "{method} {target} {body}: {}", reply.body);
            let path = target.split('?').next().unwrap();
            let path = if path.starts_with("/v1/rules/") { "/v1/rules/{name}" } else { path };
            self.check_request(method, path, body, status);
            self.check_reply(method, path, &reply);
            seen.insert((path.to_owned(), method.to_lowercase(), status.to_string()));
        }
    }

    /// Asks every operation that needs a scope without a token, and with a token of another scope.
    fn check_tokens(&self, seen: &mut BTreeSet<Response>) {
        let tokens = Tokens::new();
        let gate = start_with(POLICY, |settings| settings.gates.http_access = tokens.access());
        for (path, operations) in self.0["paths"].as_object().unwrap() {
            // The answers to proxies have no body, but those about tokens do: the tests of tokens see them.
            let operations = operations.as_object().unwrap().iter().filter(|_| path != "/v1/gate");
            for (method, operation) in operations {
                let Some(needed) = operation["security"][1]["token"][0].as_str() else { continue };
                let other = if needed == "read" { "decide" } else { "read" };
                for (token, status) in [(None, 401), (Some(tokens.of(other)), 403)] {
                    let (method, url) = (method.to_uppercase(), gate.url(&path.replace("{name}", "upload")));
                    let reply =
                        Harness::request_with(&url, &method, (method == "POST").then_some("{}"), token);
                    assert_eq!(reply.status, status, "{method} {path}: {}", reply.body);
                    self.check_reply(&method, path, &reply);
                    seen.insert((path.clone(), method.to_lowercase(), status.to_string()));
                }
            }
        }
    }

    fn operation(&self, method: &str, path: &str) -> &Value {
        let operation = &self.0["paths"][path][method.to_lowercase()];
        assert!(operation.is_object(), "{method} {path} is not documented");
        operation
    }

    /// Follows a reference into the components.
    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => self.0.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
            None => value,
        }
    }

    fn is_valid(&self, schema: &Value, value: &Value) -> bool {
        let mut schema = schema.clone();
        schema["components"] = self.0["components"].clone();
        jsonschema::validator_for(&schema).unwrap().is_valid(value)
    }

    /// Bodies that are understood are those that the document describes.
    fn check_request(&self, method: &str, path: &str, body: &str, status: u16) {
        if method == "POST" && status != 413 {
            let schema =
                &self.operation(method, path)["requestBody"]["content"]["application/json"]["schema"];
            let body_is_valid = self.is_valid(schema, &serde_json::from_str(body).unwrap());
            assert_eq!(body_is_valid, status != 400, "{path} {body} {status}");
        }
    }

    fn check_reply(&self, method: &str, path: &str, reply: &Reply) {
        let responses = &self.operation(method, path)["responses"];
        let response = responses.get(reply.status.to_string()).unwrap_or(&responses["default"]);
        let response = self.resolve(response);
        self.check_headers(response, reply);
        self.check_body(method, response, reply);
    }

    fn check_headers(&self, response: &Value, reply: &Reply) {
        let documented = response["headers"].as_object().cloned().unwrap_or_default();
        for (name, header) in &documented {
            let header = self.resolve(header);
            match reply.header(name) {
                Some(value) => assert!(self.is_valid(&header["schema"], &json!(value)), "{name}: {value}"),
                None => assert_ne!(header["required"], true, "{name} is missing: {reply:?}"),
            }
        }
        for (name, _) in &reply.headers {
            let known = documented.keys().any(|documented| documented.eq_ignore_ascii_case(name));
            assert!(known || OF_HTTP.contains(&&*name.to_lowercase()), "{name} is not documented: {reply:?}");
        }
    }

    fn check_body(&self, method: &str, response: &Value, reply: &Reply) {
        let Some(content) = response["content"].as_object().filter(|_| method != "HEAD") else {
            return assert_eq!(reply.body, "", "{reply:?}");
        };
        let (content_type, media) = content.iter().next().unwrap();
        assert_eq!(reply.header("content-type"), Some(&**content_type), "{reply:?}");
        let body = if content_type.contains("json") { reply.json() } else { json!(reply.body) };
        assert!(self.is_valid(&media["schema"], &body), "{reply:?}");
    }

    fn responses(&self) -> impl Iterator<Item = Response> {
        let paths = self.0["paths"].as_object().unwrap();
        paths.iter().flat_map(|(path, operations)| {
            operations.as_object().unwrap().iter().flat_map(move |(method, operation)| {
                let responses = operation["responses"].as_object().unwrap();
                responses.keys().map(move |status| (path.clone(), method.clone(), status.clone()))
            })
        })
    }
}

/// Returns the answer of `/readyz` on a connection from before the drain.
fn not_ready(method: &str) -> Reply {
    let gate: Harness = start_with(POLICY, |settings| settings.bounds.drain_idle = TEST_TIMEOUT);
    let mut stream = gate.connect();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(stream.read(&mut [0; 512]).unwrap() > 0);
    gate.server.drain();
    write!(stream, "{method} /readyz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    parse(&read_all(&mut stream))
}

fn parse(answer: &str) -> Reply {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.map(|line| line.split_once(": ").unwrap());
    Reply {
        status,
        headers: headers.map(|(name, value)| (name.into(), value.into())).collect(),
        body: body.into(),
    }
}

//! Rules over HTTP: what a client sees, and what is counted.

use serde_json::json;
use tollway::Config;
use tollway::core::{Nanos, Timestamp};

use crate::support::{Reply, start_with};

const RULES: &str = "
rules:
  upload: Or('3/s', And('user:2/h', 'apikey:2/h'))
  login: user:1/1500ms
  closed: And()
";

fn problem(reply: &Reply) -> (u16, String, String) {
    let document = reply.json();
    let name = document["type"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    (reply.status, name, document["field"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_rule_answers_yes_or_when() {
    let gate = start_with(RULES, |_| {});
    let login = || gate.post("/v1/rules/login", r#"{"selectors":{"user":"vova"}}"#);
    let allowed = login();
    assert_eq!((allowed.status, &*allowed.body), (200, r#"{"allowed":true}"#));
    assert_eq!(allowed.header("retry-after"), None);
    gate.clock.set(Timestamp::EPOCH + Nanos::from_millis(250));
    let denied = login();
    assert_eq!((denied.status, &*denied.body), (429, r#"{"allowed":false,"retry_after":1.25}"#));
    // Whole seconds, rounded up, so that whoever waits so long is not too early.
    assert_eq!(denied.header("retry-after"), Some("2"));
    gate.clock.set(Timestamp::EPOCH + Nanos::from_millis(1500));
    assert_eq!(login().status, 200);

    let never = gate.post("/v1/rules/closed", "");
    assert_eq!((never.status, &*never.body), (429, r#"{"allowed":false,"retry_after":null}"#));
    assert_eq!(never.header("retry-after"), None);
}

#[test]
fn values_are_texts_numbers_or_none() {
    let gate = start_with(RULES, |_| {});
    for (body, status) in [
        (r#"{"selectors":{"user":0}}"#, 200),
        (r#"{"selectors":{"user":"0"}}"#, 429),
        (r#"{"selectors":{"user":null}}"#, 200),
        (r#"{"selectors":{"user":""}}"#, 200),
        (r#"{"selectors":{"user":null},"key":"cats"}"#, 200),
        (r#"{"selectors":{"user":0},"key":"cats"}"#, 200),
        (r#"{"selectors":{"user":0,"more":"is ignored"},"key":"cats"}"#, 429),
        (r#"{"selectors":{"user":0},"key":"login"}"#, 429),
        (r#"{"selectors":{"user":-1}}"#, 200),
    ] {
        let reply = gate.post("/v1/rules/login", body);
        assert_eq!(reply.status, status, "{body}: {}", reply.body);
    }
}

#[test]
fn what_cannot_be_resolved_is_a_problem_and_no_denial() {
    let gate = start_with(RULES, |_| {});
    let of = |status: u16, name: &str, field: &str| (status, name.to_owned(), field.to_owned());
    for (path, body, expected) in [
        ("/v1/rules/login", "{}", of(400, "missing-selector", "selectors.user")),
        ("/v1/rules/login", "", of(400, "missing-selector", "selectors.user")),
        (
            "/v1/rules/upload",
            r#"{"selectors":{"user":"u"}}"#,
            of(400, "missing-selector", "selectors.apikey"),
        ),
        ("/v1/rules/login", r#"{"selectors":{"user":[]}}"#, of(400, "malformed", "selectors.user")),
        ("/v1/rules/logn", "{}", of(404, "unknown-rule", "rule")),
        ("/v1/rules/10/s", "{}", of(404, "unknown-rule", "rule")),
        ("/v1/rules/", "{}", of(404, "not-found", "")),
        ("/v1/rules", "{}", of(404, "not-found", "")),
        ("/v1/explain", r#"{"rule":"Or('10/s', 'x:5/fortnight')"}"#, of(400, "malformed", "rule")),
        ("/v1/explain", r#"{"rule":"login"}"#, of(400, "missing-selector", "selectors.user")),
        ("/v1/explain", r#"{"rule":"logn"}"#, of(404, "unknown-rule", "rule")),
    ] {
        assert_eq!(problem(&gate.post(path, body)), expected, "{path} {body}");
    }
    let get = gate.get("/v1/rules/login");
    assert_eq!((get.status, get.header("allow")), (405, Some("POST")));
    let long = gate.post(&format!("/v1/rules/{}", "x".repeat(5_000)), "{}");
    assert!(long.status == 404 && long.body.len() < 500, "{long:?}");
}

#[test]
fn an_explanation_shows_every_part_and_changes_nothing() {
    let gate = start_with(RULES, |_| {});
    let ask = r#"{"selectors":{"user":"u","apikey":"k"}}"#;
    let explain = r#"{"rule":"upload","selectors":{"user":"u","apikey":"k"}}"#;
    gate.post("/v1/rules/upload", ask);
    gate.clock.set(Timestamp::EPOCH + Nanos::from_millis(500));
    for _ in 0..9 {
        let tree = gate.post("/v1/explain", explain).json()["tree"].clone();
        assert_eq!((&tree["reached"], &tree["frees_after"]), (&json!(false), &json!(0)));
    }
    gate.post("/v1/rules/upload", ask);
    let explained = gate.post("/v1/explain", explain).json();
    assert_eq!(
        explained,
        json!({
            "rule": "Or('3/s', And('user:2/h', 'apikey:2/h'))",
            "tree": {
                "or": [
                    { "rate": "3/s", "log": ":upload", "reached": false, "frees_after": 0 },
                    {
                        "and": [
                            { "rate": "user:2/h", "log": ":upload:user:u", "reached": true, "frees_after": 3599.5 },
                            { "rate": "apikey:2/h", "log": ":upload:apikey:k", "reached": true, "frees_after": 3599.5 },
                        ],
                        "reached": true,
                        "frees_after": 3599.5,
                    },
                ],
                "reached": true,
                "frees_after": 3599.5,
            },
            "at": "1970-01-01T00:00:00.5Z",
        })
    );
    let denied = gate.post("/v1/rules/upload", ask).json();
    assert_eq!(denied["retry_after"], json!(3599.5));
    let written = gate.post("/v1/explain", r#"{"rule":"user:1/h","key":"upload","selectors":{"user":"u"}}"#);
    assert_eq!(written.json()["tree"]["log"], json!(":upload:user:u"));
    assert_eq!(written.json()["tree"]["reached"], json!(true));
    let never = gate.post("/v1/explain", r#"{"rule":"Or('0/s')"}"#).json();
    assert_eq!((&never["tree"]["reached"], &never["tree"]["frees_after"]), (&json!(true), &json!(null)));
}

#[test]
fn metrics_count_by_rule_and_go_on_through_a_reload() {
    let gate = start_with(RULES, |settings| settings.workers = 1);
    let ask = r#"{"selectors":{"user":"vova"}}"#;
    for _ in 0..3 {
        gate.post("/v1/rules/login", ask);
    }
    let sample = |name: &str| {
        let page = gate.get("/metrics").body;
        let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{page}"));
        line.trim().parse::<u64>().unwrap()
    };
    assert_eq!(sample(r#"tollway_rulings_total{rule="login",outcome="allow"}"#), 1);
    assert_eq!(sample(r#"tollway_rulings_total{rule="login",outcome="deny"}"#), 2);
    let page = gate.get("/metrics").body;
    for never in [r#"tollway_rulings_total{rule="closed""#, r#"tollway_rulings_degraded_total{rule="login""#]
    {
        assert!(!page.contains(never), "{page}");
    }
    gate.limiter.reload(Config::parse("rules: { login: 'user:9/h' }", "policy.yaml").unwrap().policy);
    assert_eq!(gate.post("/v1/rules/login", ask).status, 200);
    assert_eq!(gate.post("/v1/rules/closed", "").status, 404);
    assert_eq!(sample(r#"tollway_rulings_total{rule="login",outcome="allow"}"#), 2);
    assert!(!gate.get("/metrics").body.contains("vova"));
}

#[test]
fn without_the_store_a_rule_answers_as_it_says() {
    let gate = start_with(
        "
        store: redis://127.0.0.1:1
        rules:
          open: 1/m
          closed: { rule: 1/m, on_store_failure: deny }
          local: { rule: 4/m, on_store_failure: local, local_share: 1/4 }
        ",
        |_| {},
    );
    for (rule, status, body) in [
        ("open", 200, r#"{"allowed":true,"reason":"store","degraded":true}"#),
        ("closed", 503, r#"{"allowed":false,"retry_after":1,"reason":"store","degraded":true}"#),
        ("local", 200, r#"{"allowed":true,"degraded":true}"#),
        ("local", 429, r#"{"allowed":false,"retry_after":60,"degraded":true}"#),
    ] {
        let reply = gate.post(&format!("/v1/rules/{rule}"), "");
        assert_eq!((reply.status, &*reply.body), (status, body));
        assert_eq!(reply.header("retry-after").is_some(), status != 200);
    }
    assert_eq!(problem(&gate.post("/v1/explain", r#"{"rule":"open"}"#)).1, "store-unreachable");
}

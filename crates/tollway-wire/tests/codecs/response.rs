//! Tests the responses of the HTTP gates: their statuses, headers and bodies, and what a client reads in them.

use std::time::Duration;

use tollway_core::algorithm::TokenBucket;
use tollway_core::{
    Algorithm, Charge, Decision, KeyedRule, Limit, Nanos, OnStoreFailure, Policy, Refund, RuleDecision,
    RuleLimit, Timestamp, Verdict,
};
use tollway_wire::http::{
    BucketReport, HttpRuleRequest, HttpStatus, KeysPage, ProblemDetails, ResponseWriter, RuleExplanation,
    RulePart, RuleResponse, ServerResponse, ThrottlecrabRequest, TopBy, TopReport,
};

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
/// The headers that every response about a limit has.
const HEADERS: &str = "RateLimit-Policy: \"Login\";q=5;w=60\r\nRateLimit: \"Login\";r=";

fn policy() -> Policy {
    let numbers = TokenBucket::new(5, 5, Duration::from_secs(60)).unwrap();
    let limit = Limit::new("Login").unwrap().with_default(Algorithm::TokenBucket(numbers));
    Policy::new(vec![limit.with_on_store_failure(OnStoreFailure::Deny)]).unwrap()
}

fn degraded(verdict: Verdict, remaining: u64, seconds: u64) -> Decision {
    let wait = Nanos::from_secs(seconds);
    Decision::new(verdict, remaining, wait, wait).with_degraded()
}

/// Returns the status, head and body of the response that `write` writes.
fn written(write: impl FnOnce(ResponseWriter<'_>, &[Charge<'_>]) -> HttpStatus) -> (u16, String, String) {
    written_to(false, false, write)
}

/// Returns the response to a client whose connection is closed, or that asked by `HEAD`.
fn written_to(
    close: bool,
    head_only: bool,
    write: impl FnOnce(ResponseWriter<'_>, &[Charge<'_>]) -> HttpStatus,
) -> (u16, String, String) {
    let (mut outbox, mut scratch) = (Vec::new(), Vec::new());
    let response =
        ResponseWriter { outbox: &mut outbox, scratch: &mut scratch, date: DATE, close, head_only };
    let policy = policy();
    let status = write(response, &[policy.charge("Login", b"a", 1).unwrap()]);
    assert!(scratch.is_empty(), "the next response begins with an empty body");
    let text = String::from_utf8(outbox).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with(&format!("HTTP/1.1 {} {}\r\n", status.code(), status.reason())), "{head}");
    (status.code(), head.to_owned(), body.to_owned())
}

#[test]
fn a_decision_without_the_store_says_so() {
    for (decision, status, headers, body) in [
        (
            degraded(Verdict::AllowUnreachable, 0, 0),
            200,
            None,
            r#"{"allowed":true,"remaining":null,"retry_after":0,"reset_after":0,"limit":"Login","reason":"store","degraded":true}"#,
        ),
        (
            degraded(Verdict::DenyUnreachable, 0, 1),
            503,
            Some("\r\nRetry-After: 1\r\n"),
            r#"{"allowed":false,"remaining":null,"retry_after":1,"reset_after":1,"limit":"Login","reason":"store","degraded":true}"#,
        ),
        (
            degraded(Verdict::Allow, 3, 24),
            200,
            Some(HEADERS),
            r#"{"allowed":true,"remaining":3,"retry_after":24,"reset_after":24,"limit":"Login","degraded":true}"#,
        ),
        // The local limit decided in place of the store, and this id is over it.
        (
            degraded(Verdict::Deny, 0, 60),
            429,
            Some(HEADERS),
            r#"{"allowed":false,"remaining":0,"retry_after":60,"reset_after":60,"limit":"Login","degraded":true}"#,
        ),
    ] {
        let (code, head, found) = written(|response, charges| response.decision(charges, &decision));
        assert_eq!((code, &*found), (status, body));
        match headers {
            Some(headers) => assert!(head.contains(headers), "{head}"),
            None => assert!(!head.contains("Retry-After"), "{head}"),
        }
        // What is left is not known without the store, so the headers are left out.
        let unreachable = matches!(decision.verdict, Verdict::AllowUnreachable | Verdict::DenyUnreachable);
        assert_eq!(head.contains("RateLimit"), !unreachable, "{head}");
        let ServerResponse::Decision { allowed, degraded, reason, .. } =
            ServerResponse::from_json(code, found.as_bytes()).unwrap()
        else {
            panic!("{found}")
        };
        assert_eq!((allowed, degraded), (decision.allowed(), true));
        assert_eq!(reason.as_deref(), unreachable.then_some("store"));
    }
}

#[test]
fn a_proxy_is_not_told_that_its_client_is_to_blame() {
    for (decision, asked_for, status) in [
        (degraded(Verdict::AllowUnreachable, 0, 0), Some(HttpStatus::Forbidden), 200),
        (degraded(Verdict::DenyUnreachable, 0, 1), None, 503),
        // The proxy refuses on this status only, and must not let the request through.
        (degraded(Verdict::DenyUnreachable, 0, 1), Some(HttpStatus::Forbidden), 403),
        (degraded(Verdict::DenyUnreachable, 0, 1), Some(HttpStatus::TooManyRequests), 429),
        (degraded(Verdict::Deny, 0, 60), Some(HttpStatus::Forbidden), 403),
        (degraded(Verdict::Deny, 0, 60), None, 429),
    ] {
        let (code, head, body) = written(|response, charges| response.gate(charges, &decision, asked_for));
        assert_eq!((code, &*body), (status, ""), "{decision:?}");
        assert_eq!(head.contains("Retry-After: "), !decision.allowed(), "{head}");
    }
}

#[test]
fn a_decision_about_an_id_has_its_headers_and_its_reason() {
    for (decision, status, body) in [
        (
            Decision::UNLIMITED,
            200,
            r#"{"allowed":true,"remaining":null,"retry_after":0,"reset_after":0,"limit":"Login","unlimited":true}"#,
        ),
        (
            Decision::new(Verdict::AllowFull, 0, Nanos::ZERO, Nanos::ZERO),
            200,
            r#"{"allowed":true,"remaining":0,"retry_after":0,"reset_after":0,"limit":"Login","reason":"full"}"#,
        ),
        (
            Decision::new(Verdict::DenyFull, 0, Nanos::from_secs(2), Nanos::FOREVER),
            429,
            r#"{"allowed":false,"remaining":0,"retry_after":2,"reset_after":null,"limit":"Login","reason":"full"}"#,
        ),
        // Waiting does not help, so there is no time to come again.
        (
            Decision::new(Verdict::Deny, 4, Nanos::FOREVER, Nanos::from_secs(12)),
            429,
            r#"{"allowed":false,"remaining":4,"retry_after":null,"reset_after":12,"limit":"Login"}"#,
        ),
    ] {
        let (code, head, found) = written(|response, charges| response.decision(charges, &decision));
        assert_eq!((code, &*found), (status, body));
        let waits = !decision.allowed() && !decision.retry_nanos.is_forever();
        assert_eq!(head.contains("\r\nRetry-After: "), waits, "{head}");
        let ServerResponse::Decision { remaining, retry_after, reset_after, reason, .. } =
            ServerResponse::from_json(code, found.as_bytes()).unwrap()
        else {
            panic!("{found}")
        };
        assert_eq!(remaining.is_none(), decision.verdict == Verdict::Unlimited);
        assert_eq!(retry_after, decision.retry_after());
        assert_eq!(reset_after.is_none(), decision.reset_nanos.is_forever());
        assert_eq!(reason.as_deref(), body.contains("full").then_some("full"));
    }
}

#[test]
fn a_rule_answers_with_the_time_to_come_again() {
    let denied = RuleDecision::new(Verdict::Deny, Nanos::from_secs(3));
    let never = RuleDecision::new(Verdict::Deny, Nanos::FOREVER);
    let allowed = RuleDecision::new(Verdict::Allow, Nanos::ZERO);
    let full = RuleDecision::new(Verdict::DenyFull, Nanos::from_secs(1)).with_degraded();
    let unreachable = RuleDecision::new(Verdict::DenyUnreachable, Nanos::from_secs(1)).with_degraded();
    for (decision, rule, status, body) in [
        (allowed, None, 200, r#"{"allowed":true}"#),
        (denied, None, 429, r#"{"allowed":false,"retry_after":3}"#),
        (denied, Some("up\"load"), 429, r#"{"allowed":false,"retry_after":3,"rule":"up\"load"}"#),
        (never, Some("upload"), 429, r#"{"allowed":false,"retry_after":null,"rule":"upload"}"#),
        (full, None, 429, r#"{"allowed":false,"retry_after":1,"reason":"full","degraded":true}"#),
        (unreachable, None, 503, r#"{"allowed":false,"retry_after":1,"reason":"store","degraded":true}"#),
    ] {
        let (code, head, found) = written(|response, _| response.rule_decision(&decision, rule));
        assert_eq!((code, &*found), (status, body));
        assert_eq!(head.contains("Retry-After"), !decision.allowed() && decision.retry_after().is_some());
        let read = RuleResponse::from_json(code, found.as_bytes()).unwrap();
        assert_eq!((read.allowed, read.degraded), (decision.allowed(), decision.degraded));
        if let Some(rule) = rule {
            let bill = ServerResponse::from_json(code, found.as_bytes()).unwrap();
            assert_eq!(bill, ServerResponse::RuleDecision { decision: read, rule: rule.to_owned() });
        }
        let (code, head, body) = written(|response, _| response.gate_rule(&decision, None));
        assert_eq!((code, &*body), (status, ""));
        assert!(head.ends_with("\r\nContent-Length: 0"), "{head}");
    }
    let (code, ..) = written(|response, _| response.gate_rule(&denied, Some(HttpStatus::Forbidden)));
    assert_eq!(code, 403);
}

#[test]
fn refunds_and_resets_are_read_by_a_client() {
    let refund = Refund::new(true, 4, Nanos::from_secs(12));
    let (code, _, body) = written(|response, charges| response.refund(charges, &refund));
    assert_eq!(body, r#"{"refunded":true,"remaining":4,"reset_after":12,"limit":"Login"}"#);
    let read = ServerResponse::from_json(code, body.as_bytes()).unwrap();
    let reset_after = Some(Duration::from_secs(12));
    assert_eq!(read, ServerResponse::Refund { refunded: true, remaining: Some(4), reset_after });
    // Several charges are about no single limit, and none at all is unlimited.
    let (_, _, body) = written(|response, charges| {
        response.refund(&[charges[0].clone(), charges[0].clone()], &Refund::new(false, 5, Nanos::ZERO))
    });
    assert_eq!(body, r#"{"refunded":false,"remaining":5,"reset_after":0}"#);
    let (code, _, body) = written(|response, _| response.refund(&[], &Refund::UNLIMITED));
    assert!(body.starts_with(r#"{"refunded":"#) && body.ends_with(r#","unlimited":true}"#), "{body}");
    let ServerResponse::Refund { remaining: None, .. } =
        ServerResponse::from_json(code, body.as_bytes()).unwrap()
    else {
        panic!("{body}")
    };
    let (code, _, body) = written(|response, _| response.reset());
    assert_eq!(ServerResponse::from_json(code, body.as_bytes()).unwrap(), ServerResponse::Reset);
}

#[test]
fn an_answer_with_none_of_the_fields_is_from_another_server() {
    for body in ["{}", r#"{"allowed":true}"#, "[]", "<html>", ""] {
        let error = ServerResponse::from_json(200, body.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("check that the address is that of a Tollway server"), "{error}");
    }
}

#[test]
fn a_throttlecrab_client_gets_whole_seconds_and_always_a_200() {
    let body =
        br#"{"key":"user:123","max_burst":10,"count_per_period":100,"period":60,"quantity":2,"more":1}"#;
    let request = ThrottlecrabRequest::from_json(body).unwrap();
    assert_eq!((&*request.charge().id, request.charge().cost), (&b"user:123"[..], 2));
    let allowed = Decision::new(Verdict::Allow, 8, Nanos::ZERO, Nanos::new(1_900_000_000));
    let (code, _, body) = written(|response, _| response.throttle(&request, &allowed));
    let expected = r#"{"allowed":true,"limit":10,"remaining":8,"reset_after":1,"retry_after":0}"#;
    assert_eq!((code, &*body), (200, expected));
    let denied = Decision::new(Verdict::Deny, 0, Nanos::new(1_200_000_000), Nanos::from_secs(6));
    let (code, _, body) = written(|response, _| response.throttle(&request, &denied));
    let expected = r#"{"allowed":false,"limit":10,"remaining":0,"reset_after":6,"retry_after":1}"#;
    assert_eq!((code, &*body), (200, expected));
    // More than the burst never passes. It takes nothing, and the dialect still has a number for the wait.
    let too_much = br#"{"key":"k","max_burst":10,"count_per_period":10,"period":60,"quantity":12}"#;
    let request = ThrottlecrabRequest::from_json(too_much).unwrap();
    assert_eq!(request.charge().cost, 0);
    let look = Decision::new(Verdict::Allow, 10, Nanos::ZERO, Nanos::ZERO);
    let (_, _, body) = written(|response, _| response.throttle(&request, &look));
    let expected = r#"{"allowed":false,"limit":10,"remaining":10,"reset_after":0,"retry_after":12}"#;
    assert_eq!(body, expected);
    let (code, _, body) =
        written(|response, _| response.throttle_error(HttpStatus::BadRequest, "a \"quoted\" word"));
    assert_eq!((code, &*body), (400, r#"{"error":"a \"quoted\" word"}"#));
}

#[test]
fn numbers_that_make_no_throttlecrab_call_are_explained() {
    for (numbers, detail) in [
        (r#""max_burst":-1,"count_per_period":1,"period":1"#, "\"max_burst\" must not be below 0"),
        (r#""max_burst":1,"count_per_period":-1,"period":1"#, "\"count_per_period\" must not be below 0"),
        (r#""max_burst":1,"count_per_period":1,"period":-1"#, "\"period\" must not be below 0"),
        (
            r#""max_burst":1,"count_per_period":1,"period":1,"quantity":-1"#,
            "\"quantity\" must not be below 0",
        ),
        (r#""max_burst":1,"count_per_period":1"#, "missing field `period`"),
    ] {
        let body = format!(r#"{{"key":"k",{numbers}}}"#);
        let error = ThrottlecrabRequest::from_json(body.as_bytes()).unwrap_err();
        assert!(error.detail.contains(detail), "{numbers}: {}", error.detail);
    }
}

#[test]
fn reports_are_sent_as_a_client_reads_them() {
    let page = KeysPage::new(vec!["Login:a\"b".to_owned()], Some(7));
    let (code, _, body) = written(|response, _| response.keys_page(&page));
    assert_eq!(KeysPage::from_json(code, body.as_bytes()).unwrap(), page);
    let report = BucketReport::new("Login:a".to_owned(), None, Timestamp::from_nanos(1_500_000_000));
    let (code, _, body) = written(|response, _| response.bucket_report(&report));
    assert_eq!(BucketReport::from_json(code, body.as_bytes()).unwrap(), report);
    let rule = KeyedRule::new(RuleLimit::new("Or('1/s', 'user:2/m')".parse().unwrap()), "", "upload");
    let asked = HttpRuleRequest::from_json(br#"{"rule":"upload","selectors":{"user":"alice"}}"#).unwrap();
    assert_eq!(asked.path(), "/v1/rules/upload");
    let tree = RulePart::from_bill(&asked.bill(&rule).unwrap(), |_| Some(Nanos::from_secs(3)));
    let explanation = RuleExplanation::new("upload".to_owned(), tree, Timestamp::EPOCH);
    let (code, _, body) = written(|response, _| response.rule_explanation(&explanation));
    assert_eq!(RuleExplanation::from_json(code, body.as_bytes()).unwrap(), explanation);
    let top =
        TopReport { by: TopBy::Denied, window: 52.5, total: Some(3), exact: Some(true), top: Vec::new() };
    let (code, _, body) = written(|response, _| response.top_report(&top));
    assert_eq!(TopReport::from_json(code, body.as_bytes()).unwrap(), top);
}

#[test]
fn a_problem_tells_clients_when_and_how_to_come_again() {
    for (problem, header) in [
        (ProblemDetails::too_many_connections(), Some("Retry-After: 1")),
        (ProblemDetails::no_token(), Some("WWW-Authenticate: Bearer realm=\"tollway\"")),
        (ProblemDetails::method_not_allowed("GET, HEAD"), Some("Allow: GET, HEAD")),
        (ProblemDetails::cross_site(), None),
    ] {
        let (code, head, body) = written(|response, _| response.problem(&problem));
        assert_eq!(code, problem.status.code());
        assert!(head.contains("\r\nContent-Type: application/problem+json\r\n"), "{head}");
        assert!(head.ends_with(&format!("\r\nContent-Length: {}", body.len())), "{head}");
        let optional = ["Retry-After: ", "WWW-Authenticate: ", "Allow: "];
        let found: Vec<_> =
            head.lines().filter(|line| optional.iter().any(|name| line.starts_with(name))).collect();
        assert_eq!(found, Vec::from_iter(header));
    }
}

#[test]
fn a_head_request_gets_the_headers_alone_and_a_last_answer_says_so() {
    for (close, head_only) in [(false, false), (true, false), (false, true), (true, true)] {
        let (_, head, body) = written_to(close, head_only, |response, _| {
            response.document(HttpStatus::Ok, "text/plain", b"ok\n")
        });
        assert!(head.starts_with(
            "HTTP/1.1 200 OK\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"
        ));
        assert!(head.contains(&format!("\r\nDate: {DATE}\r\n")), "{head}");
        assert!(head.ends_with("\r\nContent-Type: text/plain\r\nContent-Length: 3"), "{head}");
        assert_eq!(head.contains("\r\nConnection: close\r\n"), close, "{head}");
        assert_eq!(body, if head_only { "" } else { "ok\n" });
    }
}

#[test]
fn a_page_may_use_what_its_policy_says() {
    let (_, head, body) = written(|response, _| response.page("text/html", "default-src 'self'", b"<p>"));
    assert!(
        head.contains("\r\nContent-Security-Policy: default-src 'self'\r\nReferrer-Policy: no-referrer\r\n")
    );
    assert_eq!(body, "<p>");
}

#[test]
fn a_stream_of_events_ends_with_its_connection() {
    let (_, head, body) = written(|response, _| response.events(b"event: a\ndata: 1\n\n"));
    assert!(head.contains("\r\nConnection: close\r\n") && head.ends_with("Content-Type: text/event-stream"));
    assert_eq!(body, "event: a\ndata: 1\n\n");
    let (_, head, body) = written_to(false, true, |response, _| response.events(b"event: a\n\n"));
    assert!(!head.contains("Connection: close") && body.is_empty(), "{head}");
}

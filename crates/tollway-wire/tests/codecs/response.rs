//! Tests the responses that are sent when the store did not answer: never a 429.

use std::time::Duration;

use tollway_core::algorithm::TokenBucket;
use tollway_core::{Algorithm, Charge, Decision, Limit, Nanos, OnStoreFailure, Policy, Verdict};
use tollway_wire::http::{HttpStatus, ResponseWriter, ServerResponse};

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
    let (mut outbox, mut scratch) = (Vec::new(), Vec::new());
    let response = ResponseWriter {
        outbox: &mut outbox,
        scratch: &mut scratch,
        date: DATE,
        close: false,
        head_only: false,
    };
    let policy = policy();
    let status = write(response, &[policy.charge("Login", b"a", 1).unwrap()]);
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

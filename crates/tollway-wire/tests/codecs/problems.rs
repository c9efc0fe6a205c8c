//! Tests the errors that the HTTP gates send: programs read their types and statuses, which never change.

use std::net::SocketAddr;

use tollway_core::rule::RuleProblem;
use tollway_core::{BillError, ChargeError, IdFormat, Policy, Rule, RuleLookupError, RuleRef, Verb};
use tollway_wire::http::{
    FramingError, HttpCommand, HttpStatus, ProblemDetails, ResponseError, ServerResponse,
};

const ADDRESS: &str = "127.0.0.1:8082";

fn address() -> SocketAddr {
    ADDRESS.parse().unwrap()
}

/// Checks that a client reads the status, the title and the detail of a problem, and returns its JSON.
fn check(problem: &ProblemDetails) -> String {
    let mut body = Vec::new();
    problem.put_json(&mut body);
    match ServerResponse::from_json(problem.status.code(), &body) {
        Err(ResponseError::Problem { status, title, detail }) => {
            assert_eq!((status, &*title), (problem.status.code(), problem.title));
            assert_eq!(detail, problem.detail);
        }
        other => panic!("{problem:?} reads as {other:?}"),
    }
    String::from_utf8(body).unwrap()
}

#[test]
fn every_problem_has_its_type_and_status() {
    let is = |problem: ProblemDetails, status, name| {
        assert_eq!((problem.status, problem.name), (status, name), "{problem:?}");
        assert!(
            check(&problem).starts_with(&format!(r#"{{"type":"urn:problem-type:tollway:{name}","title":""#))
        );
    };
    is(ProblemDetails::not_found("/v2"), HttpStatus::NotFound, "not-found");
    is(ProblemDetails::proxies_off(), HttpStatus::NotFound, "not-found");
    is(ProblemDetails::throttlecrab_off(), HttpStatus::NotFound, "not-found");
    is(ProblemDetails::other_gate("/v1/keys", "admin", address()), HttpStatus::NotFound, "other-gate");
    is(ProblemDetails::gate_off("/v1/keys", "admin", address()), HttpStatus::NotFound, "other-gate");
    is(ProblemDetails::watch_off(), HttpStatus::NotImplemented, "watch-off");
    is(ProblemDetails::no_ids(), HttpStatus::NotImplemented, "no-ids");
    is(ProblemDetails::too_many_watchers(16), HttpStatus::ServiceUnavailable, "too-many-watchers");
    is(ProblemDetails::too_many_recorders(4), HttpStatus::ServiceUnavailable, "too-many-watchers");
    is(ProblemDetails::too_many_connections(), HttpStatus::ServiceUnavailable, "too-many-connections");
    is(ProblemDetails::not_ready("draining"), HttpStatus::ServiceUnavailable, "not-ready");
    is(ProblemDetails::store_unreachable("no answer"), HttpStatus::ServiceUnavailable, "store-unreachable");
    is(ProblemDetails::ids_not_shown(), HttpStatus::Forbidden, "ids-not-shown");
    is(ProblemDetails::cross_site(), HttpStatus::Forbidden, "cross-site");
    is(ProblemDetails::not_a_proxy(), HttpStatus::Forbidden, "cross-site");
    is(ProblemDetails::missing_scope("admin"), HttpStatus::Forbidden, "missing-scope");
    is(ProblemDetails::other_limits("Login"), HttpStatus::Forbidden, "other-limits");
    is(ProblemDetails::all_limits(), HttpStatus::Forbidden, "all-limits");
    is(ProblemDetails::inline_denied(), HttpStatus::Forbidden, "inline-denied");
    is(ProblemDetails::unknown_host(b"evil.example", "admin"), HttpStatus::Misdirected, "unknown-host");
    is(ProblemDetails::not_json(), HttpStatus::UnsupportedMediaType, "not-json");
    is(ProblemDetails::no_token(), HttpStatus::Unauthorized, "no-token");
    is(ProblemDetails::unknown_token(), HttpStatus::Unauthorized, "unknown-token");
    is(ProblemDetails::method_not_allowed("POST"), HttpStatus::MethodNotAllowed, "method-not-allowed");
    is(ProblemDetails::request_timeout("body"), HttpStatus::RequestTimeout, "too-slow");
    is(FramingError::Host.into(), HttpStatus::BadRequest, "bad-http");
    is(FramingError::BodyTooLong { max: 7 }.into(), HttpStatus::BodyTooLarge, "bad-http");
    is(FramingError::TooManyHeaders.into(), HttpStatus::HeadersTooLarge, "bad-http");
    is(FramingError::TransferCoding.into(), HttpStatus::NotImplemented, "bad-http");
    is(BillError::Empty.into(), HttpStatus::Unprocessable, "bad-bill");
}

fn unknown_rule(name: &str, existing: &[&str]) -> ProblemDetails {
    let existing = existing.iter().map(|name| (*name).to_owned()).collect();
    RuleLookupError::UnknownRule { name: name.to_owned(), nearest: None, existing }.into()
}

#[test]
fn a_problem_says_which_field_is_wrong() {
    let limit = || "Login".to_owned();
    let unknown = |existing: &[&str]| ChargeError::UnknownLimit {
        name: "Logn".to_owned(),
        nearest: None,
        existing: existing.iter().map(|name| (*name).to_owned()).collect(),
    };
    let empty_id = IdFormat::IP.canonical(b"").unwrap_err();
    for (problem, name, field) in [
        (ProblemDetails::from(unknown(&[])), "unknown-limit", "limit"),
        (ChargeError::NoNumbers { limit: limit() }.into(), "no-numbers", "limit"),
        (ChargeError::Id { limit: limit(), source: empty_id }.into(), "bad-id", "id"),
        (ChargeError::CostTooHigh { limit: limit(), cost: 9, cost_max: 5 }.into(), "cost-too-high", "cost"),
        (ChargeError::NoRefund { limit: limit(), algorithm: "smoothed_rate" }.into(), "no-refund", "limit"),
        (unknown_rule("Logn", &[]), "unknown-rule", "rule"),
        (
            RuleLookupError::MissingSelector { rule: limit(), selector: "user".to_owned() }.into(),
            "missing-selector",
            "selectors.user",
        ),
        ("Or(".parse::<Rule>().map_err(RuleLookupError::from).unwrap_err().into(), "malformed", "rule"),
        (BillError::Empty.into(), "bad-bill", "charges"),
        (ProblemDetails::other_limits("Login"), "other-limits", "limit"),
        (
            HttpCommand::from_json(Verb::Spend, br#"{"limit":"Login","id":"a","cost":"x"}"#)
                .unwrap_err()
                .into(),
            "malformed",
            "cost",
        ),
    ] {
        assert_eq!((problem.name, problem.field.as_deref()), (name, Some(field)));
        assert!(check(&problem).ends_with(&format!(r#","field":"{field}"}}"#)), "{problem:?}");
    }
    let listed = ProblemDetails::from(unknown(&["Login", "Pages"]));
    assert_eq!(listed.detail, r#"limit "Logn" does not exist; there are Login, Pages"#);
    let listed = unknown_rule("uplaod", &["upload", "pages"]);
    assert_eq!(listed.detail, r#"rule "uplaod" does not exist; there are upload, pages"#);
    let unknown = |name| ProblemDetails::unknown_name(name, &["Login", "upload"]).detail;
    assert_eq!(unknown("uplaod"), r#"no limit, rule or domain is called "uplaod" (did you mean "upload"?)"#);
    assert_eq!(unknown("shop"), r#"no limit, rule or domain is called "shop"; there are Login, upload"#);
    let malformed = RuleLookupError::Malformed { character: 3, source: RuleProblem::Part };
    assert_eq!(ProblemDetails::from(malformed).status, HttpStatus::BadRequest);
}

#[test]
fn a_problem_says_what_to_do() {
    for (problem, words) in [
        (ProblemDetails::not_found("/v2"), r#"path "/v2" does not exist; /openapi.json lists the paths"#),
        (
            ProblemDetails::other_gate("/v1/keys", "admin", address()),
            r#"path "/v1/keys" is at the admin gate: http://127.0.0.1:8082"#,
        ),
        (
            ProblemDetails::gate_off("/v1/keys", "admin", address()),
            r#"turn it on with "admin: 127.0.0.1:8082" at gates, or with --admin 127.0.0.1:8082"#,
        ),
        (ProblemDetails::unknown_host(b"a\xff", "http"), r#"list it in "hosts" at gates.http"#),
        (ProblemDetails::missing_scope("refund"), r#"needs a token with the scope "refund""#),
        (ProblemDetails::request_timeout("head"), "the head did not arrive before the timeout"),
        (ProblemDetails::too_many_watchers(0), "none here; raise its max_connections to at least 2"),
        (ProblemDetails::too_many_watchers(1), "a client watches already, and this gate has room for one"),
        (ProblemDetails::too_many_recorders(0), "none here; raise its max_connections to at least 4"),
        (ProblemDetails::too_many_recorders(1), "a client records already, and this gate has room for one"),
        (ProblemDetails::too_many_watchers(16), "16 clients watch already; close one of them"),
        (ProblemDetails::too_many_recorders(4), "4 clients record already; end one of them"),
    ] {
        assert!(problem.detail.contains(words), "{}", problem.detail);
    }
}

#[test]
fn what_a_client_made_up_is_cut() {
    let long = "x".repeat(10_000);
    for problem in [
        ProblemDetails::not_found(&long),
        ProblemDetails::other_gate(&long, "admin", address()),
        ProblemDetails::unknown_host(long.as_bytes(), "http"),
        ProblemDetails::other_limits(&long),
        ProblemDetails::unknown_name(&long, &[]),
        Policy::new(vec![]).unwrap().find_rule(&RuleRef::from(&*long), None).unwrap_err().into(),
    ] {
        assert!(problem.detail.len() < 400, "{} bytes", problem.detail.len());
    }
}

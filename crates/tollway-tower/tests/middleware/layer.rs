//! Tests of the layer over a limiter whose clock is set by hand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use tollway::Config;
use tollway::core::{Nanos, Timestamp};
use tollway_tower::{
    AdmissionLayer, Admit, AdmitFuture, AdmitOutcome, ByHeader, ClientId, LocalLimit, LocalRule, OnFailure,
    OnUnidentified, RequestCounts, Unidentified,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::support::{ErrorLog, Hello, POLICY, limiter, per_client, request, send, statuses};

const ALICE: &str = "192.0.2.1";
const BOB: &str = "192.0.2.2";

fn from(peer: &str) -> Request<()> {
    request("/", peer, &[])
}

/// Returns counts that are zero but for the fields that `fill` sets.
fn counts(fill: impl FnOnce(&mut RequestCounts)) -> RequestCounts {
    let mut counts = RequestCounts::default();
    fill(&mut counts);
    counts
}

fn shown(headers: &HeaderMap) -> Vec<String> {
    let mut shown: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    shown.sort();
    shown
}

#[tokio::test]
async fn who_comes_too_soon_is_told_when_to_come_again() {
    let (limiter, clock) = limiter(POLICY);
    let layer = AdmissionLayer::new(LocalLimit::new(limiter, "PerClient").unwrap());
    let mut service = layer.layer(Hello);
    assert_eq!(statuses(&mut service, [from(ALICE), from(ALICE)]).await, [200, 200]);
    clock.set(Timestamp::EPOCH + Nanos::from_millis(500));
    let (status, headers, body) = send(&mut service, from(ALICE)).await;
    assert_eq!((status, &*body), (429, "too many requests\n"));
    assert_eq!(
        shown(&headers),
        [
            "cache-control: no-store",
            "content-type: text/plain; charset=utf-8",
            "ratelimit-policy: \"PerClient\";q=2;w=20",
            "ratelimit: \"PerClient\";r=0;t=10",
            "retry-after: 10",
            "x-ratelimit-limit: 2",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 20",
        ]
    );
    let (status, headers, body) = send(&mut service, from(BOB)).await;
    assert_eq!((status, headers.len(), &*body), (200, 0, "hello"), "somebody else");
    clock.set(Timestamp::EPOCH + Nanos::from_secs(10));
    assert_eq!(statuses(&mut service, [from(ALICE), from(ALICE)]).await, [200, 429]);
    let expected = counts(|counts| (counts.passed, counts.rejected) = (4, 2));
    assert_eq!(layer.counts(), expected);
}

#[tokio::test]
async fn what_passes_is_announced_on_request() {
    let mut service = AdmissionLayer::new(per_client()).always_add_headers(true).layer(Hello);
    let (status, headers, _) = send(&mut service, from(ALICE)).await;
    assert_eq!(status, 200);
    assert_eq!(
        shown(&headers),
        [
            "ratelimit-policy: \"PerClient\";q=2;w=20",
            "ratelimit: \"PerClient\";r=1;t=10",
            "x-ratelimit-limit: 2",
            "x-ratelimit-remaining: 1",
            "x-ratelimit-reset: 10",
        ]
    );
}

#[tokio::test]
async fn a_rejection_has_the_status_that_was_chosen() {
    let layer = AdmissionLayer::new(per_client()).reject_with(StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(statuses(&mut layer.layer(Hello), [ALICE; 3].map(from)).await, [200, 200, 503]);
}

#[tokio::test]
async fn a_grpc_client_is_told_in_its_own_words() {
    let grpc = || request("/pkg.Service/Method", ALICE, &[("content-type", "application/grpc+proto")]);
    for (status, code, message) in [
        (StatusCode::TOO_MANY_REQUESTS, "8", "too many requests"),
        (StatusCode::SERVICE_UNAVAILABLE, "14", "too many requests"),
    ] {
        let mut service = AdmissionLayer::new(per_client()).reject_with(status).layer(Hello);
        assert_eq!(statuses(&mut service, [grpc(), grpc()]).await, [200, 200]);
        let (status, headers, body) = send(&mut service, grpc()).await;
        assert_eq!((status, &*body), (200, ""));
        assert_eq!(headers["content-type"], "application/grpc+proto");
        assert_eq!(headers["cache-control"], "no-store");
        assert_eq!(headers["retry-after"], "10");
        assert_eq!(headers["grpc-status"], code);
        assert_eq!(headers["grpc-message"], message);
        assert_eq!(headers["grpc-retry-pushback-ms"], "10000");
        assert_eq!(headers["ratelimit"], "\"PerClient\";r=0;t=10");
    }
}

#[tokio::test]
async fn skipped_paths_cost_nothing() {
    let layer = AdmissionLayer::new(per_client()).exempt_path("/healthz").exempt_subtree("/static");
    let mut service = layer.layer(Hello);
    let free = ["/healthz", "/static/a.css", "/healthz?x", "/static/b/c", "/healthz"];
    assert_eq!(statuses(&mut service, free.map(|path| request(path, ALICE, &[]))).await, [200; 5]);
    let paid = ["/", "/healthz/", "/static/../"];
    assert_eq!(statuses(&mut service, paid.map(|path| request(path, ALICE, &[]))).await, [200, 200, 429]);
    let expected = counts(|counts| (counts.exempt, counts.passed, counts.rejected) = (5, 2, 1));
    assert_eq!(layer.counts(), expected);
}

#[tokio::test]
async fn a_shadow_counts_and_lets_everybody_through() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&told);
    let layer = AdmissionLayer::new(per_client()).shadow(true).on_decision(move |decided| {
        assert!(decided.shadow);
        hook.lock().unwrap().push(decided.outcome);
    });
    let mut service = layer.layer(Hello);
    let (_, headers, _) = send(&mut service, from(ALICE)).await;
    assert!(headers.is_empty());
    assert_eq!(statuses(&mut service, [ALICE, ALICE, ALICE, ""].map(from)).await, [200; 4]);
    let expected = counts(|counts| (counts.passed, counts.rejected, counts.unidentified) = (2, 2, 1));
    assert_eq!(layer.counts(), expected);
    let rejected = AdmitOutcome::Rejected { retry_after: Some(Duration::from_secs(10)) };
    let passed = AdmitOutcome::Passed;
    let no_address = AdmitOutcome::Unidentified(Unidentified::NoPeerAddress);
    assert_eq!(*told.lock().unwrap(), [passed, passed, rejected, rejected, no_address]);
}

#[tokio::test]
async fn a_hook_is_told_of_every_decision() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hook = Arc::clone(&told);
    let layer = AdmissionLayer::new(per_client()).on_decision(move |decided| {
        let id = decided.id.map(|id| String::from_utf8_lossy(id).into_owned());
        let remaining = decided.decision.map(|decision| decision.remaining);
        hook.lock().unwrap().push((id, remaining, decided.shadow));
    });
    statuses(&mut layer.layer(Hello), [ALICE, ALICE, ALICE, BOB, ""].map(from)).await;
    let alice = |remaining| (Some(ALICE.to_owned()), Some(remaining), false);
    let bob = (Some(BOB.to_owned()), Some(1), false);
    assert_eq!(*told.lock().unwrap(), [alice(1), alice(0), alice(0), bob, (None, None, false)]);
}

#[tokio::test]
async fn who_identifies_nobody_passes_or_does_not() {
    let (limiter, _) = limiter(POLICY);
    let limit = LocalLimit::new(limiter, "PerAccount").unwrap();
    let account = ByHeader::new(HeaderName::from_static("x-account"));
    let requests = || {
        [&[][..], &[("x-account", "not a number")], &[("x-account", "7")]]
            .map(|headers| request("/", ALICE, headers))
    };
    for (choice, expected) in
        [(OnUnidentified::Pass, [200, 200, 200]), (OnUnidentified::Reject, [400, 400, 200])]
    {
        let layer = AdmissionLayer::new(limit.clone()).identify(account.clone()).on_unidentified(choice);
        let mut service = layer.layer(Hello);
        assert_eq!(statuses(&mut service, requests()).await, expected, "{choice:?}");
        let expected = counts(|counts| (counts.unidentified, counts.passed) = (2, 1));
        assert_eq!(layer.counts(), expected, "{choice:?}");
    }
    let grpc = request("/", ALICE, &[("content-type", "application/grpc")]);
    let mut strict = AdmissionLayer::new(limit.clone()).identify(account.clone()).layer(Hello);
    let (_, headers, _) = send(&mut strict, grpc).await;
    assert_eq!(
        (headers["grpc-status"].as_bytes(), headers["grpc-retry-pushback-ms"].as_bytes()),
        (&b"3"[..], &b"-1"[..])
    );
    // The service may take the other one.
    let lenient = AdmissionLayer::new(limit).identify(account).on_unidentified(OnUnidentified::Pass);
    let twice = request("/", ALICE, &[("x-account", "7"), ("x-account", "8")]);
    let (status, _, body) = send(&mut lenient.layer(Hello), twice).await;
    assert_eq!((status, &*body), (400, "the request has more than one client id\n"));
}

#[tokio::test]
async fn a_server_that_adds_no_address_is_found_by_its_first_request() {
    let log = ErrorLog::capture();
    let layer = AdmissionLayer::new(per_client());
    let mut service = layer.layer(Hello);
    for _ in 0..3 {
        let (status, headers, body) = send(&mut service, from("")).await;
        assert_eq!((status, &headers["cache-control"]), (500, &"no-store".parse().unwrap()));
        assert!(body.contains("into_make_service_with_connect_info"), "{body}");
    }
    assert_eq!(log.lines().len(), 1, "every request is like this one");
    assert!(log.lines()[0].contains("no extension with the address"), "{:?}", log.lines());
    let grpc = request("/", "", &[("content-type", "application/grpc")]);
    let (_, headers, _) = send(&mut service, grpc).await;
    assert_eq!(
        (&headers["grpc-status"], headers.get("grpc-retry-pushback-ms")),
        (&"13".parse().unwrap(), None)
    );
    assert_eq!(layer.counts(), counts(|counts| counts.unidentified = 4));
    let lenient = AdmissionLayer::new(per_client()).on_unidentified(OnUnidentified::Pass);
    assert_eq!(statuses(&mut lenient.layer(Hello), [from("")]).await, [200]);
    assert_eq!(log.lines().len(), 1, "it was configured so");
}

/// Bytes that are not text are an id like any other, and two of them are two clients.
#[tokio::test]
async fn ids_that_are_not_utf8_have_buckets_of_their_own() {
    let layer = AdmissionLayer::new(per_client()).identify(ByHeader::new(HeaderName::from_static("x-key")));
    let mut service = layer.layer(Hello);
    let with = |key: &[u8]| {
        let mut request = from(ALICE);
        request.headers_mut().insert("x-key", HeaderValue::from_bytes(key).unwrap());
        request
    };
    let requests = [b"\xe9", b"\xe9", b"\xe9", b"\xe8", b"\xff"].map(|key| with(key));
    assert_eq!(statuses(&mut service, requests).await, [200, 200, 429, 200, 200]);
}

#[tokio::test]
async fn a_rule_limits_what_its_selectors_are_given() {
    let (limiter, clock) = limiter(POLICY);
    let layer = AdmissionLayer::new(LocalRule::new(limiter, "upload").unwrap())
        .identify_by(|head| head.uri.path().strip_prefix("/users/").and_then(ClientId::new));
    let mut service = layer.layer(Hello);
    let to = |path: &str| request(path, ALICE, &[]);
    let requests = ["/users/1", "/users/1", "/users/1", "/users/2"].map(to);
    assert_eq!(statuses(&mut service, requests).await, [200, 200, 429, 200]);
    clock.set(Timestamp::EPOCH + Nanos::from_millis(8_500));
    let (_, headers, _) = send(&mut service, to("/users/1")).await;
    assert_eq!(headers["retry-after"], "2");
}

#[tokio::test]
async fn a_reload_reaches_the_layer() {
    let (limiter, _) = limiter(POLICY);
    let layer = AdmissionLayer::new(LocalLimit::new(limiter.clone(), "PerClient").unwrap());
    let mut service = layer.layer(Hello);
    assert_eq!(statuses(&mut service, [ALICE; 3].map(from)).await, [200, 200, 429]);
    let larger = "limits: { PerClient: { burst: 3, count: 1, period: 10s } }";
    limiter.reload(Config::parse(larger, "larger").unwrap().policy);
    assert_eq!(statuses(&mut service, [ALICE; 2].map(from)).await, [200, 429]);
}

#[tokio::test]
async fn a_limit_that_a_reload_removed_is_an_error_that_is_counted() {
    let log = ErrorLog::capture();
    for (on_failure, expected) in [(OnFailure::Pass, 200), (OnFailure::Reject, 503)] {
        let (limiter, _) = limiter(POLICY);
        let limit = LocalLimit::new(limiter.clone(), "PerClient").unwrap().on_failure(on_failure);
        let rule = LocalRule::new(limiter.clone(), "upload").unwrap().on_failure(on_failure);
        let (by_limit, by_rule) = (AdmissionLayer::new(limit), AdmissionLayer::new(rule));
        limiter.reload(Config::parse("limits: {}", "empty").unwrap().policy);
        assert_eq!(statuses(&mut by_limit.layer(Hello), [ALICE; 2].map(from)).await, [expected; 2]);
        assert_eq!(statuses(&mut by_rule.layer(Hello), [ALICE; 2].map(from)).await, [expected; 2]);
        for counts in [by_limit.counts(), by_rule.counts()] {
            assert_eq!((counts.passed, counts.failed_open + counts.unavailable), (0, 2));
        }
    }
    let lines = log.lines();
    assert_eq!(lines.len(), 4, "one each: {lines:?}");
    assert!(lines[0].contains("limit \"PerClient\" does not exist"), "{lines:?}");
    assert!(lines[1].contains("rule \"upload\" does not exist"), "{lines:?}");
}

#[test]
fn what_nobody_configured_is_known_before_the_first_request() {
    let (limiter, _) = limiter(POLICY);
    let unknown = LocalLimit::new(limiter.clone(), "PerCleint").unwrap_err();
    assert!(unknown.to_string().starts_with("limit \"PerCleint\" does not exist"), "{unknown}");
    let unknown = LocalRule::new(limiter, "PerClient").unwrap_err();
    assert!(unknown.to_string().starts_with("rule \"PerClient\" does not exist"), "{unknown}");
}

#[tokio::test]
async fn a_cost_that_never_fits_is_rejected_for_good() {
    let (limiter, _) = limiter(POLICY);
    let layer = AdmissionLayer::new(LocalLimit::new(limiter, "PerClient").unwrap().cost(3));
    let (status, headers, _) = send(&mut layer.layer(Hello), from(ALICE)).await;
    assert_eq!((status, headers.get("retry-after")), (429, None));
}

/// The layer keeps the error type and the body type of the service.
#[tokio::test]
async fn the_errors_of_the_service_are_its_own() {
    #[derive(Clone)]
    struct Broken;
    impl Service<Request<()>> for Broken {
        type Response = Response<()>;
        type Error = std::num::ParseIntError;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;
        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
            std::task::Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: Request<()>) -> Self::Future {
            std::future::ready("x".parse::<u8>().map(|_| Response::new(())))
        }
    }
    let mut service = AdmissionLayer::new(per_client()).layer(Broken);
    let _error: std::num::ParseIntError = service.call(from(ALICE)).await.err().unwrap();
}

/// An [`Admit`] whose reply comes when it is notified.
struct Slow(Arc<tokio::sync::Notify>);

impl Admit for Slow {
    fn admit(&self, _: &[u8]) -> AdmitFuture {
        let told = Arc::clone(&self.0);
        AdmitFuture::Pending(Box::pin(async move {
            told.notified().await;
            AdmitOutcome::Rejected { retry_after: None }.into()
        }))
    }
}

#[tokio::test]
async fn who_hangs_up_before_the_answer_is_counted_as_gone() {
    let layer = AdmissionLayer::new(Slow(Arc::default()));
    let mut service = layer.layer(Hello);
    drop(service.call(from(ALICE)));
    assert_eq!(layer.counts(), counts(|counts| counts.abandoned = 1));
}

#[tokio::test]
async fn a_shadow_waits_for_no_answer() {
    let told = Arc::<tokio::sync::Notify>::default();
    let layer = AdmissionLayer::new(Slow(Arc::clone(&told))).shadow(true);
    assert_eq!(send(&mut layer.layer(Hello), from(ALICE)).await.0, 200);
    assert_eq!(layer.counts(), RequestCounts::default());
    told.notify_one();
    while layer.counts() == RequestCounts::default() {
        tokio::task::yield_now().await;
    }
    assert_eq!(layer.counts(), counts(|counts| counts.rejected = 1));
}

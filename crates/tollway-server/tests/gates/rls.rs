//! Envoy's rate limit service over gRPC, asked by a client whose messages are not encoded by us.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use prost::Message;
use tollway_testbed::TEST_TIMEOUT;
use tonic::Code;

use crate::support::rls::{Descriptor, Pair, RateLimitRequest, RlsClient, request};
use crate::support::{Harness, start_with};

const POLICY: &str = "
domain: shop
descriptors:
- {key: account, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: blocked, rate_limit: {unit: minute, requests_per_unit: 0}}
";

fn client(gate: &Harness) -> RlsClient {
    RlsClient::new(gate.server.rls_addr().unwrap())
}

#[test]
fn an_answer_has_the_headers_that_the_proxy_adds() {
    let gate = start_with(POLICY, |_| {});
    let client = client(&gate);
    let ask = || client.ask(request("shop", &[("account", "alice")])).unwrap();
    let header = |key: &str, value: &str| Pair { key: key.into(), value: value.into() };
    let policy = header("RateLimit-Policy", "\"envoy/shop/account\";q=3;w=60");
    let answer = ask();
    assert_eq!(answer.overall_code, 1);
    assert_eq!(
        answer.response_headers_to_add,
        [policy.clone(), header("RateLimit", "\"envoy/shop/account\";r=2;t=60")]
    );
    let _ = (ask(), ask());
    let answer = ask();
    assert_eq!((answer.overall_code, answer.statuses[0].code), (2, 2));
    let left = header("RateLimit", "\"envoy/shop/account\";r=0;t=60");
    assert_eq!(answer.response_headers_to_add, [policy, left, header("Retry-After", "60")]);
}

#[test]
fn a_limit_of_zero_and_more_hits_than_fit_are_over_the_limit() {
    let gate = start_with(POLICY, |_| {});
    let client = client(&gate);
    let blocked = client.ask(request("shop", &[("blocked", "x")])).unwrap();
    assert_eq!((blocked.overall_code, blocked.response_headers_to_add.len()), (2, 0));
    let many = RateLimitRequest { hits_addend: 4, ..request("shop", &[("account", "alice")]) };
    let answer = client.ask(many).unwrap();
    assert_eq!((answer.overall_code, answer.statuses[0].limit_remaining), (2, 3));
    // Nothing was taken.
    let all = RateLimitRequest { hits_addend: 3, ..request("shop", &[("account", "alice")]) };
    assert_eq!(client.ask(all).unwrap().overall_code, 1);
}

#[test]
fn hits_are_looked_at_and_given_back() {
    let gate = start_with(POLICY, |_| {});
    let client = client(&gate);
    let ask = |hits: Option<u64>, is_negative_hits: bool| {
        let mut request = request("shop", &[("account", "alice")]);
        request.descriptors[0] =
            Descriptor { hits_addend: hits, is_negative_hits, ..request.descriptors[0].clone() };
        let answer = client.ask(request).unwrap();
        (answer.overall_code, answer.statuses[0].limit_remaining)
    };
    assert_eq!(ask(Some(0), false), (1, 3));
    assert_eq!(ask(Some(2), false), (1, 1));
    assert_eq!(ask(Some(2), false), (2, 1), "two do not fit, and none is taken");
    assert_eq!(ask(Some(1), true), (1, 2));
    assert_eq!(ask(Some(u64::MAX), true), (1, 3), "it is full, and no more");
    assert_eq!(ask(None, false), (1, 2));
}

#[test]
fn a_limit_without_refunds_refuses_to_give_back_before_anything_is_taken() {
    let policy = "
domain: shop
descriptors:
- {key: account, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: rate, rate_limit: {unit: minute, requests_per_unit: 3, algorithm: smoothed_rate}}
";
    let gate = start_with(policy, |_| {});
    let client = client(&gate);
    let mut both = request("shop", &[("account", "alice")]);
    let rate = request("shop", &[("rate", "alice")]).descriptors.remove(0);
    both.descriptors.push(Descriptor { is_negative_hits: true, ..rate });
    assert_eq!(client.ask(both).unwrap_err().code(), Code::InvalidArgument);
    let answer = client.ask(request("shop", &[("account", "alice")])).unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 2);
}

#[test]
fn one_bucket_in_several_descriptors_takes_the_hits_of_all() {
    let gate = start_with(POLICY, |_| {});
    let client = client(&gate);
    let mut twice = request("shop", &[("account", "alice")]);
    twice.descriptors.push(twice.descriptors[0].clone());
    let answer = client.ask(twice.clone()).unwrap();
    assert_eq!(answer.statuses.iter().map(|status| status.limit_remaining).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(client.ask(twice).unwrap().overall_code, 2);
}

#[test]
fn what_is_no_request_is_an_invalid_argument() {
    let gate = start_with(POLICY, |_| {});
    let client = client(&gate);
    let ask = |request| client.ask(request).unwrap_err();
    let no_domain = ask(request("", &[("account", "alice")]));
    assert_eq!(
        (no_domain.code(), no_domain.message()),
        (Code::InvalidArgument, "the domain must not be empty")
    );
    let no_descriptors = ask(RateLimitRequest { domain: "shop".into(), ..RateLimitRequest::default() });
    assert_eq!(no_descriptors.message(), "the list of descriptors must not be empty");
    let descriptors = vec![Descriptor::default(); 10_000];
    let many = ask(RateLimitRequest { domain: "shop".into(), descriptors, hits_addend: 0 });
    assert_eq!(
        (many.code(), many.message()),
        (Code::InvalidArgument, "a request can have at most 32 descriptors")
    );
    let long = ask(request("shop", &[("account", &"x".repeat(10 << 20))]));
    assert_eq!(long.code(), Code::OutOfRange, "{long}");
    let page = gate.get("/metrics").body;
    assert!(page.contains("tollway_rls_requests_total{answer=\"invalid\"} 3\n"), "{page}");
    assert_eq!(client.ask(request("shop", &[("account", "alice")])).unwrap().overall_code, 1);
}

#[derive(Clone, PartialEq, Message)]
struct NotUtf8 {
    #[prost(bytes, tag = "1")]
    domain: Vec<u8>,
}

#[test]
fn a_text_that_is_not_utf8_is_an_invalid_argument() {
    let gate = start_with(POLICY, |_| {});
    let message = NotUtf8 { domain: vec![0xff] };
    let status = client(&gate).call::<_, NotUtf8>(tollway_wire::rls::SHOULD_RATE_LIMIT, message).unwrap_err();
    assert_eq!(status.message(), "the domain, the keys and the values must be UTF-8");
}

#[test]
fn a_store_that_is_away_is_unavailable_if_the_limit_says_deny() {
    let policy = "
store: redis://127.0.0.1:1
domain: shop
descriptors:
- {key: closed, rate_limit: {unit: minute, requests_per_unit: 3, on_store_failure: deny}}
- {key: open, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: local, rate_limit: {unit: minute, requests_per_unit: 3, on_store_failure: local, local_share: 1/3}}
";
    let gate = start_with(policy, |_| {});
    let client = client(&gate);
    let ask = |key| client.ask(request("shop", &[(key, "x")]));
    assert_eq!(ask("closed").unwrap_err().code(), Code::Unavailable);
    let open = ask("open").unwrap();
    assert_eq!((open.overall_code, &open.statuses[0].current_limit), (1, &None), "what is left is not known");
    assert_eq!([ask("local").unwrap().overall_code, ask("local").unwrap().overall_code], [1, 2]);
}

#[test]
fn health_and_reflection_stand_beside_it() {
    #[derive(Clone, PartialEq, Message)]
    struct HealthRequest {
        #[prost(string, tag = "1")]
        service: String,
    }
    #[derive(Clone, PartialEq, Message)]
    struct HealthResponse {
        #[prost(int32, tag = "1")]
        status: i32,
    }
    let gate = start_with(POLICY, |_| {});
    let client = client(&gate);
    let check = |service: &str| {
        client.call::<_, HealthResponse>(
            "/grpc.health.v1.Health/Check",
            HealthRequest { service: service.into() },
        )
    };
    assert_eq!(check("").unwrap().status, 1);
    assert_eq!(check(tollway_wire::rls::SERVICE).unwrap().status, 1);
    assert_eq!(check("nobody").unwrap_err().code(), Code::NotFound);
    let unknown =
        client.call::<_, HealthResponse>("/shop.Nobody/Check", HealthRequest::default()).unwrap_err();
    assert_eq!(
        (unknown.code(), unknown.message()),
        (Code::Unimplemented, "there is no method /shop.Nobody/Check")
    );

    #[derive(Clone, PartialEq, Message)]
    struct ReflectionRequest {
        #[prost(string, optional, tag = "4")]
        file_containing_symbol: Option<String>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct ReflectionResponse {
        #[prost(message, optional, tag = "4")]
        files: Option<Files>,
    }
    #[derive(Clone, PartialEq, Message)]
    struct Files {
        #[prost(bytes, repeated, tag = "1")]
        files: Vec<Vec<u8>>,
    }
    for path in [
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ] {
        let request = ReflectionRequest { file_containing_symbol: Some(tollway_wire::rls::SERVICE.into()) };
        let described = client.call::<_, ReflectionResponse>(path, request).unwrap().files.unwrap();
        let text = String::from_utf8_lossy(&described.files[0]).into_owned();
        assert!(text.contains("ShouldRateLimit") && text.contains("limit_remaining"), "{text}");
    }
}

#[test]
fn a_thousand_calls_at_once_take_exactly_the_limit() {
    let gate = start_with(POLICY, |_| {});
    let answers = client(&gate).ask_at_once(&request("shop", &[("account", "alice")]), 1_000);
    assert_eq!(answers.iter().filter(|answer| answer.overall_code == 1).count(), 3);
    assert_eq!(answers.len(), 1_000);
}

#[test]
fn a_drain_answers_and_says_that_it_is_over() {
    let gate = start_with(POLICY, |_| {});
    let client = client(&gate);
    assert_eq!(client.ask(request("shop", &[("account", "alice")])).unwrap().overall_code, 1);
    // The connection is idle and stays open until the drain ends it.
    gate.server.stop();
    assert!(client.ask(request("shop", &[("account", "alice")])).is_err());
}

#[test]
fn what_is_not_http2_is_closed_and_disturbs_nobody() {
    let gate = start_with(POLICY, |settings| settings.bounds.head_time = Duration::from_millis(100));
    let connect = || {
        let stream = TcpStream::connect(gate.server.rls_addr().unwrap()).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream
    };
    for sent in [&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n", b""] {
        let mut stream = connect();
        stream.write_all(sent).unwrap();
        let read = stream.read(&mut [0; 64]);
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
    // A preface, and then bytes that are no frames.
    let mut stream = connect();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&[0xff; 4_096]).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(client(&gate).ask(request("shop", &[("account", "alice")])).unwrap().overall_code, 1);
}

#[test]
fn the_same_request_is_answered_as_json() {
    let gate = start_with(POLICY, |_| {});
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"account","value":"alice"}],"hitsAddend":"3"}]}"#;
    let allowed = gate.post("/json", body);
    assert_eq!(allowed.status, 200);
    assert_eq!(
        allowed.body,
        r#"{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":3,"unit":"MINUTE"},"limitRemaining":0,"durationUntilReset":"60s"}],"responseHeadersToAdd":[{"key":"RateLimit-Policy","value":"\"envoy/shop/account\";q=3;w=60"},{"key":"RateLimit","value":"\"envoy/shop/account\";r=0;t=60"}]}"#
    );
    assert_eq!(gate.post("/json", body).status, 429);
    assert_eq!(gate.post("/json", r#"{"domain":"shop"}"#).status, 400);
    assert_eq!(gate.post("/json", "{").status, 400);
}

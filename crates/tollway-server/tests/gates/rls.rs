//! Envoy's rate limit service over gRPC, asked by a client whose messages are not encoded by us.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use prost::Message;
use tollway_testbed::{RedisCluster, TEST_TIMEOUT, eventually};
use tollway_wire::http::LiveEvent;
use tonic::Code;

use crate::support::http2::{DATA, END_STREAM, GOAWAY, HEADERS, RST_STREAM, RawConnection};
use crate::support::rls::{Descriptor, Limit, Pair, RateLimitRequest, RlsClient, request};
use crate::support::{Harness, Reply, start_with};
use crate::watch::Events;

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

/// Returns a message with the five bytes before it.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat()
}

#[test]
fn a_text_that_is_not_utf8_is_an_invalid_argument() {
    let gate = start_with(POLICY, |_| {});
    let client = client(&gate);
    let valid = request("shop", &[("account", "alice")]).encode_to_vec();
    for text in ["shop", "account", "alice"] {
        let at = valid.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
        let mut message = valid.clone();
        message[at] = 0xff;
        let status = client.send(tollway_wire::rls::SHOULD_RATE_LIMIT, &[&framed(&message)]).unwrap();
        assert_eq!(
            (status.code(), status.message()),
            (Code::InvalidArgument, "the domain, the keys and the values must be UTF-8"),
            "{text}"
        );
    }
    let answer = client.ask(request("shop", &[("account", "alice")])).unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 2, "nothing was taken before");
}

#[test]
fn a_message_can_arrive_in_pieces() {
    let gate = start_with(POLICY, |_| {});
    let client = client(&gate);
    let message = framed(&request("shop", &[("account", "alice")]).encode_to_vec());
    for split in 1..message.len() {
        let (first, rest) = message.split_at(split);
        let status = client.send(tollway_wire::rls::SHOULD_RATE_LIMIT, &[first, b"", rest]);
        assert_eq!(status.map(|status| status.code()), None, "{split}");
    }
    let pieces: Vec<&[u8]> = message.chunks(1).collect();
    assert!(client.send(tollway_wire::rls::SHOULD_RATE_LIMIT, &pieces).is_none());
}

#[test]
fn a_call_that_is_not_one_message_has_a_clear_status() {
    let gate = start_with(POLICY, |_| {});
    let client = client(&gate);
    let message = framed(&request("shop", &[("account", "alice")]).encode_to_vec());
    let compressed = [&[1], &message[1..]].concat();
    let half = &message[..message.len() - 1];
    let length = |length: u32| [&[0][..], &length.to_be_bytes()].concat();
    for (pieces, code, text) in [
        (&[][..], Code::Unimplemented, "the call has no message"),
        (&[&*message, &message], Code::Unimplemented, "the call has more than one message"),
        (&[&*compressed], Code::Unimplemented, "the message is compressed; send it without compression"),
        (&[half], Code::Internal, "the call ends within its message"),
        (&[&message[..3]], Code::Internal, "the call ends within its message"),
        (&[&length(32_769)], Code::OutOfRange, "the message has 32769 bytes, and 32768 are allowed"),
        (&[&length(u32::MAX)], Code::OutOfRange, "the message has 4294967295 bytes, and 32768 are allowed"),
    ] {
        let status = client.send(tollway_wire::rls::SHOULD_RATE_LIMIT, pieces).unwrap();
        assert_eq!((status.code(), status.message()), (code, text));
    }
    let answer = client.ask(request("shop", &[("account", "alice")])).unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 2, "nothing was taken before");
}

#[test]
fn messages_that_are_too_long_take_no_memory_and_disturb_nobody() {
    let gate = start_with(POLICY, |_| {});
    let client = client(&gate);
    let methods = [
        tollway_wire::rls::SHOULD_RATE_LIMIT,
        "/grpc.health.v1.Health/Check",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ];
    let mut connections: Vec<_> =
        (0..20).map(|_| RawConnection::new(gate.server.rls_addr().unwrap())).collect();
    for (connection, method) in connections.iter_mut().zip(methods.iter().cycle()) {
        connection.begin(1, method, &[]);
        // Ten megabytes are announced, and as much is sent as the window of a stream has room for.
        connection.write(DATA, 0, 1, &[0, 0, 0xa0, 0, 0]);
        connection.write(DATA, 0, 1, &[0; 16_000]);
        assert_eq!(client.ask(request("shop", &[("other", "bob")])).unwrap().overall_code, 1);
    }
    for connection in &mut connections {
        // The call is answered long before its message could have arrived, and the rest is not wanted.
        let kinds = std::iter::from_fn(|| connection.read()).map(|(kind, ..)| kind);
        let kinds: Vec<_> = kinds.take_while(|kind| *kind != RST_STREAM).collect();
        assert!(kinds.contains(&HEADERS) && !kinds.contains(&DATA), "{kinds:?}");
        // The connection goes on.
        let message = framed(&request("shop", &[("other", "alice")]).encode_to_vec());
        connection.begin(3, tollway_wire::rls::SHOULD_RATE_LIMIT, &[]);
        connection.write(DATA, END_STREAM, 3, &message);
        assert!(std::iter::from_fn(|| connection.read()).any(|(kind, ..)| kind == DATA));
    }
}

#[test]
fn a_bill_is_settled_to_its_end_if_the_client_resets_its_stream() {
    // A frozen node must not be replaced, nor be given up.
    let cluster = RedisCluster::start_with(60_000, &[]);
    let policy = format!(
        "store: {}?deadline=30s\nenvoy: [{{domain: shop, descriptors: [\
         {{key: account, rate_limit: {{unit: year, requests_per_unit: 5}}}}, \
         {{key: once, rate_limit: {{unit: year, requests_per_unit: 1}}}}]}}]",
        cluster.url()
    );
    let gate = start_with(&policy, |_| {});
    let client = client(&gate);
    let ask = |key, value: &str, hits| {
        let request = RateLimitRequest { hits_addend: 0, ..request("shop", &[(key, value)]) };
        let descriptor = Descriptor { hits_addend: Some(hits), ..request.descriptors[0].clone() };
        let answer = client.ask(RateLimitRequest { descriptors: vec![descriptor], ..request }).unwrap();
        answer.statuses[0].limit_remaining
    };
    let has_keys = |node: usize| cluster.nodes()[node].cli(&["DBSIZE"]) != "0";
    assert_eq!(ask("once", "x", 1), 0);
    let denying = (0..3).find(|node| has_keys(*node)).unwrap();
    let find = |account: &String| {
        ask("account", account, 1);
        (0..3).find(|node| *node != denying && has_keys(*node))
    };
    let (account, charged) = (0..)
        .map(|number| number.to_string())
        .find_map(|account| find(&account).map(|node| (account, node)))
        .unwrap();
    let both = RateLimitRequest {
        descriptors: [("account", &*account), ("once", "x")]
            .map(|entry| request("shop", &[entry]).descriptors.remove(0))
            .to_vec(),
        ..request("shop", &[])
    };

    cluster.nodes()[denying].freeze();
    let mut connection = RawConnection::new(gate.server.rls_addr().unwrap());
    connection.begin(1, tollway_wire::rls::SHOULD_RATE_LIMIT, &[]);
    connection.write(DATA, END_STREAM, 1, &framed(&both.encode_to_vec()));
    eventually("the first half of the bill", || ask("account", &account, 0) == 3);
    connection.write(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
    // The second answer says that everything that the reset woke has run.
    (0..2).for_each(|_| connection.ping());
    cluster.nodes()[denying].thaw();
    eventually("the end of the bill", || ask("account", &account, 0) == 4);
    assert!(has_keys(charged));
}

#[test]
fn decisions_are_counted_by_values_up_to_a_bound() {
    let policy = "
domain: shop
descriptors:
- {key: account, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 2}}
- key: route
  value: 'v*'
  value_to_metric: true
  descriptors: [{key: ip, rate_limit: {unit: year, requests_per_unit: 2}}]
- {key: path, value: '/a*', share_threshold: true, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 9}}
- {key: plain, rate_limit: {unit: year, requests_per_unit: 9}}
";
    let gate = start_with(policy, |_| {});
    let client = client(&gate);
    let ask = |entries: &[(&str, &str)]| client.ask(request("shop", entries)).unwrap().overall_code;
    let sample = |name: &str| -> Option<u64> {
        let page = gate.get("/metrics").body;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    };
    let series = |limit: &str, descriptor: &str, outcome: &str| {
        sample(&format!(
            "tollway_rls_descriptor_decisions_total{{limit=\"envoy/shop/{limit}\",descriptor=\"{descriptor}\",\
             outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!([1, 1, 2], [(); 3].map(|()| ask(&[("account", "alice")])));
    assert_eq!(series("account", "account=alice", "allow"), Some(2));
    assert_eq!(series("account", "account=alice", "deny"), Some(1));
    // The value of the entry with the field is in the name, and that of the other is not.
    assert_eq!(ask(&[("route", "v1"), ("ip", "10.0.0.1")]), 1);
    assert_eq!(series("route=v*/ip", "route=v1/ip", "allow"), Some(1));
    // Values that share a bucket share a name.
    assert_eq!([ask(&[("path", "/a1")]), ask(&[("path", "/a2")])], [1, 1]);
    assert_eq!(series("path=%2Fa*", "path=%2Fa*", "allow"), Some(2));
    assert_eq!(ask(&[("plain", "x")]), 1);
    assert_eq!(sample("tollway_rls_descriptors"), Some(3));
    // Nothing that a client sends can end a label, and its length is bounded.
    assert_eq!(ask(&[("account", "\"} 1\n\\é")]), 1);
    assert_eq!(series("account", "account=%22%7D%201%0A%5C%C3%A9", "allow"), Some(1));
    assert_eq!(ask(&[("account", &"é".repeat(500))]), 1);
    assert_eq!(series("account", &format!("account={}", "%C3%A9".repeat(32)), "allow"), Some(1));
    for account in 0..1_000 {
        assert_eq!(ask(&[("account", &account.to_string())]), 1);
    }
    assert_eq!(sample("tollway_rls_descriptors"), Some(1_000));
    assert_eq!(sample("tollway_rls_descriptors_max"), Some(1_000));
    assert_eq!(sample("tollway_rls_descriptors_overflow_total"), Some(5));
    assert_eq!(series("account", "other", "allow"), Some(5));
    assert_eq!(
        (series("account", "account=994", "allow"), series("account", "account=995", "allow")),
        (Some(1), None)
    );
    // Those that are counted by themselves still are.
    assert_eq!(ask(&[("account", "alice")]), 2);
    assert_eq!(series("account", "account=alice", "deny"), Some(2));
    assert_eq!(sample("tollway_rls_descriptors_overflow_total"), Some(5));
}

/// Nothing listens where the store should be.
const UNREACHABLE: &str = "
store: redis://127.0.0.1:1
domain: shop
descriptors:
- {key: closed, rate_limit: {unit: minute, requests_per_unit: 3, on_store_failure: deny}}
- {key: open, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: local, rate_limit: {unit: minute, requests_per_unit: 3, on_store_failure: local, local_share: 1/3}}
- {key: tried, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 3, on_store_failure: deny}}
";

#[test]
fn a_store_that_is_unreachable_is_unavailable_if_the_limit_says_deny() {
    let gate = start_with(UNREACHABLE, |_| {});
    let client = client(&gate);
    let ask = |key| client.ask(request("shop", &[(key, "x")]));
    assert_eq!(ask("closed").unwrap_err().code(), Code::Unavailable);
    let open = ask("open").unwrap();
    assert_eq!((open.overall_code, &open.statuses[0].current_limit), (1, &None), "what is left is not known");
    assert_eq!([ask("local").unwrap().overall_code, ask("local").unwrap().overall_code], [1, 2]);
}

#[test]
fn hits_that_never_fit_in_shadow_refuse_nothing_without_the_store() {
    let gate = start_with(UNREACHABLE, |_| {});
    let body =
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"tried","value":"x"}]}],"hitsAddend":9}"#;
    let answer = gate.post("/json", body);
    assert_eq!((answer.status, overall_code(&answer)), (200, "OK".to_owned()), "{}", answer.body);
    assert_eq!(denied(&gate, "tried"), None);
}

fn overall_code(answer: &Reply) -> String {
    let answer: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    answer["overallCode"].as_str().unwrap().to_owned()
}

/// Returns the number of denials of a limit of the domain `shop`; `None` if there was none.
fn denied(gate: &Harness, limit: &str) -> Option<String> {
    let page = gate.get("/metrics").body;
    let series =
        format!("tollway_decisions_total{{limit=\"envoy/shop/{limit}\",verb=\"spend\",outcome=\"deny\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&series).map(ToOwned::to_owned))
}

#[test]
fn hits_that_never_fit_are_counted_as_a_denial_of_their_limit() {
    let policy = "
domain: shop
descriptors:
- {key: large, rate_limit: {unit: year, requests_per_unit: 100}}
- {key: small, rate_limit: {unit: year, requests_per_unit: 10}}
";
    let gate = start_with(policy, |_| {});
    let entries = r#"{"entries":[{"key":"large","value":"x"}]},{"entries":[{"key":"small","value":"x"}]}"#;
    let body = format!(r#"{{"domain":"shop","descriptors":[{entries}],"hitsAddend":11}}"#);
    assert_eq!(gate.post("/json", &body).status, 429);
    assert_eq!((denied(&gate, "small").as_deref(), denied(&gate, "large")), (Some("1"), None));
    let mut events = Events::start(&gate, "/v1/live");
    let denial = std::iter::repeat_with(|| LiveEvent::from_event(&events.next()).unwrap())
        .take(10)
        .find_map(|event| match event {
            Some(LiveEvent::Snapshot(mut snapshot)) => snapshot.last_denials.pop(),
            _ => None,
        })
        .expect("a snapshot has the denial");
    assert_eq!((&*denial.limit, denial.cost, denial.retry_after), ("envoy/shop/small", 11, None));
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

/// Such a call needs no token, and its answer never ends.
#[test]
fn calls_that_watch_are_bounded_on_each_connection() {
    let gate = start_with(POLICY, |settings| settings.bounds.rls_other_calls = 2);
    let mut connection = RawConnection::new(gate.server.rls_addr().unwrap());
    let mut watch = |stream: u8| {
        connection.begin(stream, "/grpc.health.v1.Health/Watch", &[]);
        connection.write(DATA, END_STREAM, stream, &[0; 5]);
        let is_end =
            |kind, flags| matches!(kind, DATA | RST_STREAM) || kind == HEADERS && flags & END_STREAM > 0;
        let end = std::iter::from_fn(|| connection.read()).find(|(kind, flags, _)| is_end(*kind, *flags));
        let is_watching = end.unwrap().0 == DATA;
        if is_watching && stream == 1 {
            connection.write(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
            // The second answer says that everything that the reset woke has run.
            (0..2).for_each(|_| connection.ping());
        }
        is_watching
    };
    // The first was reset, so its place is free again.
    assert_eq!([1, 3, 5, 7].map(&mut watch), [true, true, true, false]);
    connection.begin(9, tollway_wire::rls::SHOULD_RATE_LIMIT, &[]);
    let message = framed(&request("shop", &[("account", "alice")]).encode_to_vec());
    connection.write(DATA, END_STREAM, 9, &message);
    assert!(std::iter::from_fn(|| connection.read()).any(|(kind, ..)| kind == DATA), "decisions go on");
}

#[test]
fn a_drain_says_goodbye_and_that_it_serves_no_longer() {
    let gate = start_with(POLICY, |_| {});
    let mut connection = RawConnection::new(gate.server.rls_addr().unwrap());
    connection.begin(1, "/grpc.health.v1.Health/Watch", &[]);
    connection.write(DATA, END_STREAM, 1, &[0; 5]);
    let mut status = || std::iter::from_fn(|| connection.read()).find(|(kind, ..)| *kind == DATA).unwrap().2;
    assert_eq!(status(), [0, 0, 0, 0, 2, 8, 1]);
    gate.server.drain();
    let rest: Vec<_> = std::iter::from_fn(|| connection.read()).collect();
    assert!(rest.contains(&(DATA, 0, vec![0, 0, 0, 0, 2, 8, 2])), "{rest:?}");
    assert!(rest.iter().any(|(kind, ..)| *kind == GOAWAY), "{rest:?}");
    gate.server.stop();
}

#[test]
fn a_call_that_does_not_arrive_is_answered_and_ends_its_connection() {
    let gate = start_with(POLICY, |settings| settings.bounds.body_time = Duration::from_millis(100));
    for method in [tollway_wire::rls::SHOULD_RATE_LIMIT, "/grpc.health.v1.Health/Check"] {
        let mut connection = RawConnection::new(gate.server.rls_addr().unwrap());
        connection.begin(1, method, &[]);
        connection.write(DATA, 0, 1, &[0; 3]);
        let frames: Vec<_> = std::iter::from_fn(|| connection.read()).collect();
        let kinds: Vec<_> = frames.iter().map(|(kind, ..)| *kind).collect();
        assert!(kinds.contains(&HEADERS) && kinds.contains(&GOAWAY), "{method}: {frames:?}");
    }
}

#[test]
fn only_the_arrival_of_a_call_is_timed_and_not_its_decision() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let policy = format!(
        "store: redis://{}?deadline=1s\nenvoy: [{{domain: shop, descriptors: [{{key: account, \
         rate_limit: {{unit: minute, requests_per_unit: 3, on_store_failure: deny}}}}]}}]",
        silent.local_addr().unwrap()
    );
    let gate = start_with(&policy, |settings| settings.bounds.body_time = Duration::from_millis(200));
    let answer = client(&gate).ask(request("shop", &[("account", "alice")]));
    assert_eq!(answer.unwrap_err().code(), Code::Unavailable);
}

#[test]
fn the_headers_of_a_call_are_bounded() {
    let gate = start_with(POLICY, |_| {});
    let message = request("shop", &[("account", "alice")]).encode_to_vec();
    let message = [&[0, 0, 0, 0, u8::try_from(message.len()).unwrap()], &*message].concat();
    let long = "0123456789".repeat(10);
    for (others, is_answered) in [(10, true), (40, false)] {
        let mut connection = RawConnection::new(gate.server.rls_addr().unwrap());
        connection.begin(1, tollway_wire::rls::SHOULD_RATE_LIMIT, &vec![("x-other", &*long); others]);
        connection.write(DATA, END_STREAM, 1, &message);
        let is_end =
            |kind, flags| matches!(kind, DATA | RST_STREAM) || kind == HEADERS && flags & END_STREAM > 0;
        let end = std::iter::from_fn(|| connection.read()).find(|(kind, flags, _)| is_end(*kind, *flags));
        assert_eq!(end.unwrap().0 == DATA, is_answered, "{others}");
    }
}

#[test]
fn numbers_of_requests_are_counted_under_one_name() {
    let gate = start_with(POLICY, |_| {});
    let client = client(&gate);
    let mut brought = request("shop", &[("account", "alice")]);
    brought.descriptors[0].limit = Some(Limit { requests_per_unit: 1, unit: 3, name: String::new() });
    assert_eq!([1, 2], [(); 2].map(|()| client.ask(brought.clone()).unwrap().overall_code));
    let page = gate.get("/metrics").body;
    for verdict in ["allow", "deny"] {
        let line = page
            .lines()
            .find(|line| line.contains("limit=\"inline/envoy\"") && line.contains(&format!("\"{verdict}\"")));
        assert!(line.is_some_and(|line| line.ends_with(" 1")), "{verdict}: {page}");
    }
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
        let is_closed = match &read {
            Ok(length) => *length == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        assert!(is_closed, "{read:?}");
    }
    // A preface, and then bytes that are no frames.
    let mut stream = connect();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&[0xff; 4_096]).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(client(&gate).ask(request("shop", &[("account", "alice")])).unwrap().overall_code, 1);
    // Only those that sent too little in time were cut.
    let page = gate.get("/metrics").body;
    assert!(page.contains("tollway_connections_cut_total{when=\"head\"} 2\n"), "{page}");
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

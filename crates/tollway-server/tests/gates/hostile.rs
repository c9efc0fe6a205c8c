//! Clients that mean no good, or do not know what they do. None of them disturbs the others.

use std::io::{Read, Write};
use std::time::Duration;

use tollway_server::Bounds;
use tollway_testbed::ZmqSocket;
use tollway_wire::zmtp::SocketType;

use crate::support::{POLICY, Reply, read_all, start, start_with};

/// Deadlines that a test can wait for.
const SHORT: Duration = Duration::from_millis(100);

fn short(bounds: &mut Bounds) {
    let (idle, head_time, body_time, write_time, linger) = (SHORT, SHORT, SHORT, SHORT, SHORT);
    *bounds = Bounds { idle, head_time, body_time, write_time, linger, ..*bounds };
}

#[test]
fn a_question_of_a_proxy_is_bounded() {
    // A peer that is not trusted would not have its headers read.
    let gate =
        start_with(&format!("gates: {{ http: {{ trusted_proxies: [127.0.0.1] }} }}\n{POLICY}"), |_| {});
    let closing = |target: &str, header: &str| {
        format!("GET /v1/gate{target} HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\n\r\n")
    };
    let many = |times: usize| closing(&format!("?{}", "limit=Login&id=a&".repeat(times)), "");
    for (request, status, detail) in [
        (many(900), "400", "a bill has at most 32 charges"),
        (many(10_000), "431", "send at most"),
        (closing(&format!("?rule=upload{}", "&a=b".repeat(1_000)), ""), "400", "given twice"),
        (closing("?limit=Login&id_from=client_ip", &"X-Forwarded-For: ,\r\n".repeat(60)), "200", ""),
        (
            closing("?limit=Login&id_from=client_ip", &format!("X-Forwarded-For: {}\r\n", ",".repeat(9_000))),
            "200",
            "",
        ),
        (closing("?limit=Login&id_from=header:a", &"A: b\r\n".repeat(60)), "400", "more than once"),
        (
            closing("?limit=Login&id_from=header:a", &format!("A: {}\r\n", "x".repeat(20_000))),
            "431",
            "send at most",
        ),
    ] {
        let answer = gate.exchange(request.as_bytes());
        assert_eq!(&answer["HTTP/1.1 ".len()..][..3], status, "{answer}");
        assert!(answer.contains(detail), "{answer}");
    }
    let mut raw =
        b"GET /v1/gate?limit=Login&id_from=header:a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: ".to_vec();
    raw.extend_from_slice(b"\xff\xfe\r\n\r\n");
    assert!(gate.exchange(&raw).starts_with("HTTP/1.1 200 "), "an id may be any bytes");
    let rule = |query: &str| {
        let head =
            format!("GET /v1/gate?rule=upload&{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: ");
        gate.exchange(&[head.as_bytes(), b"\xff\r\n\r\n"].concat())
    };
    assert!(
        rule("user_from=header:a").starts_with("HTTP/1.1 200 "),
        "the value of a selector may be any bytes"
    );
    let answer = rule("user=vova&key_from=header:a");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("must be UTF-8"), "{answer}");
    gate.assert_alive();
}

#[test]
fn what_does_not_arrive_in_time_is_refused() {
    let gate = start_with(POLICY, |settings| short(&mut settings.bounds));
    for (bytes, status) in [
        ("POST /v1/sp", "408"),
        ("POST /v1/spend HTTP/1.1\r\nHost: x\r\nContent-Le", "408"),
        ("POST /v1/spend HTTP/1.1\r\nHost: x\r\nContent-Length: 26\r\n\r\n{\"limit\"", "408"),
        ("POST /v1/spend HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"l", "408"),
    ] {
        let answer = gate.exchange(bytes.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes}: {answer}");
        assert!(answer.contains("urn:problem-type:tollway:too-slow"), "{answer}");
    }
    let silent = gate.exchange(b"");
    assert_eq!(silent, "", "an idle connection is closed without a word");
    let page = gate.get("/metrics").body;
    for line in ["{when=\"head\"} 2", "{when=\"body\"} 2", "{when=\"idle\"} 1"] {
        assert!(page.contains(&format!("tollway_connections_cut_total{line}")), "{page}");
    }
}

#[test]
fn a_byte_at_a_time_earns_no_extension() {
    let gate = start_with(POLICY, |settings| short(&mut settings.bounds));
    let mut stream = gate.connect();
    let head = "POST /v1/spend HTTP/1.1\r\nHost: x\r\n".to_owned() + &"X-Padding: x\r\n".repeat(1000);
    // Another client's request between two bytes makes them slow. The end of the head is never sent.
    let is_cut = head.bytes().any(|byte| {
        gate.assert_alive();
        stream.write_all(&[byte]).is_err()
    });
    assert!(is_cut);
    assert!(gate.get("/metrics").body.contains("tollway_connections_cut_total{when=\"head\"} 1"));
}

#[test]
fn a_client_that_never_reads_is_cut_off() {
    let gate = start_with(POLICY, |settings| {
        short(&mut settings.bounds);
        settings.workers = 1;
    });
    let mut deaf = gate.connect();
    let request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    // It sends until nobody takes any more: the server has stopped reading, and then it hangs up.
    while deaf.write_all(&request).is_ok() {
        gate.assert_alive();
    }
    assert!(gate.get("/metrics").body.contains("tollway_connections_cut_total{when=\"write\"} 1"));
}

#[test]
fn what_is_too_large_is_refused_and_the_refusal_arrives() {
    let gate = start();
    let long = "x".repeat(100_000);
    let many = "A: b\r\n".repeat(100);
    for (bytes, status) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: x\r\nCookie: {long}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n"), 431),
        (format!("POST /v1/spend HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{long}"), 413),
        (
            "POST /v1/spend HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n".to_owned(),
            413,
        ),
        (
            format!(
                "POST /v1/spend HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n{long}\r\n0\r\n\r\n"
            ),
            413,
        ),
    ] {
        let answer = gate.exchange(bytes.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
        gate.assert_alive();
    }
    let largest = format!(r#"{{"limit":"Login","id":"{}"}}"#, "x".repeat((64 << 10) - 25));
    assert_eq!((largest.len(), gate.post("/v1/spend", &largest).status), (64 << 10, 200));
}

#[test]
fn garbage_is_refused() {
    let gate = start();
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..], // TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\0\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA\0: b\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n",
        b"\xff\xff\xff\xff\n",
    ] {
        let answer = gate.exchange(bytes);
        assert!(
            answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.1 505 "),
            "{bytes:?}: {answer}"
        );
        gate.assert_alive();
    }
}

#[test]
fn a_thousand_pipelined_requests_are_answered_in_order() {
    let gate = start_with("limits: { L: { burst: 1000, count: 1, period: 1s } }", |_| {});
    let mut stream = gate.connect();
    let body = r#"{"limit":"L","id":"a"}"#;
    let request = format!(
        "POST /v1/spend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let last = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut writer = stream.try_clone().unwrap();
    let sender =
        std::thread::spawn(move || writer.write_all((request.repeat(1000) + last).as_bytes()).unwrap());
    let answers = read_all(&mut stream);
    sender.join().unwrap();
    let remaining: Vec<u64> = answers
        .split("\"remaining\":")
        .skip(1)
        .map(|rest| rest.split(',').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(remaining, (0..1000).rev().collect::<Vec<_>>());
    assert!(answers.ends_with("ok\n"));
}

#[test]
fn extreme_values_in_every_field_get_an_answer_or_an_explanation() {
    let gate = start();
    let deep = "[".repeat(5_000) + &"]".repeat(5_000);
    let objects = "{\"a\":".repeat(5_000);
    let values = [
        "0",
        "1",
        "2147483648",
        "9007199254740992",
        "9223372036854775807",
        "18446744073709551615",
        "18446744073709551616",
        "-1",
        "-9223372036854775808",
        "1.5",
        "1e400",
        "-0",
        "NaN",
        "Infinity",
        "null",
        "true",
        "\"\"",
        "\"a\"",
        "\"\\ud800\"",
        "\"\\u0000\"",
        "[]",
        "{}",
        "0x10",
        "01",
        "",
        &deep,
        &objects,
    ];
    for verb in ["spend", "check", "refund", "reset"] {
        for field in ["limit", "id", "cost", "charges", "kind", "unknown"] {
            for value in values {
                for body in [
                    format!(r#"{{"limit":"Login","id":"a","{field}":{value}}}"#),
                    format!(r#"{{"{field}":{value}}}"#),
                    format!(
                        r#"{{"charges":[{{"limit":"Login","id":"a"}},{{"limit":"Fast","{field}":{value}}}]}}"#
                    ),
                    format!(r#"{{"charges":[{{"limit":"Login","{field}":{value},"id":"b"}}]}}"#),
                ] {
                    let Reply { status, body: answer, .. } = gate.post(&format!("/v1/{verb}"), &body);
                    assert!([200, 400, 404, 422, 429].contains(&status), "{body}: {status} {answer}");
                }
            }
        }
    }
    for cost in [
        "0",
        "1",
        "2147483648",
        "9007199254740992",
        "18446744073709551615",
        "18446744073709551616",
        "-1",
        "1.5",
        "",
        "NaN",
    ] {
        let status = gate.get(&format!("/v1/gate?limit=Login&id=gate&cost={cost}")).status;
        let expected = match cost {
            "0" | "1" => 200,
            "2147483648" | "9007199254740992" | "18446744073709551615" => 422,
            _ => 400,
        };
        assert_eq!(status, expected, "{cost}");
    }
    gate.assert_alive();
}

const CLOSING: &str = " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[test]
fn a_gate_full_of_requests_answers_only_operators() {
    let gate = start_with(POLICY, |settings| {
        settings.gates.http_connections.total = 3;
        settings.workers = 1;
    });
    let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut served: Vec<_> = (0..3).map(|_| gate.connect()).collect();
    let mut answer = [0; 512];
    for stream in &mut served {
        stream.write_all(&[&request[..], b"GET /unfinished"].concat()).unwrap();
        assert!(stream.read(&mut answer).unwrap() > 0);
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        let answer = gate.exchange(format!("GET {path}{CLOSING}").as_bytes());
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains("\r\nConnection: close\r\n"),
            "{answer}"
        );
    }
    let refusal = gate.exchange(format!("GET /v1/gate?limit=Login&id=a{CLOSING}").as_bytes());
    assert!(refusal.starts_with("HTTP/1.1 503 ") && refusal.contains("\r\nRetry-After: 1\r\n"), "{refusal}");
    for stream in &mut served {
        stream.write_all(b" HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert!(stream.read(&mut answer).unwrap() > 0, "requests that have begun are answered");
    }
    let page = gate.exchange(format!("GET /metrics{CLOSING}").as_bytes());
    assert!(page.contains("tollway_connections_refused_total{gate=\"http\",reason=\"gate\"} 4\n"), "{page}");
}

#[test]
fn a_full_gate_closes_the_connection_that_has_been_idle_for_longest() {
    let gate = start_with(POLICY, |settings| {
        settings.gates.http_connections.total = 2;
        settings.workers = 1;
    });
    let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut answer = [0; 512];
    let mut connections: Vec<_> = (0..3)
        .map(|_| {
            let mut stream = gate.connect();
            stream.write_all(request).unwrap();
            assert!(stream.read(&mut answer).unwrap() > 0);
            stream
        })
        .collect();
    assert_eq!(read_all(&mut connections[0]), "");
    for stream in &mut connections[1..] {
        stream.write_all(request).unwrap();
        assert!(stream.read(&mut answer).unwrap() > 0);
    }
}

#[test]
fn silent_subscribers_do_not_shut_others_out() {
    let gate = start_with(POLICY, |settings| {
        settings.gates.smockron.as_mut().unwrap().connections.total = 2;
        settings.workers = 1;
    });
    let control = gate.server.smockron_control_addr().unwrap();
    let silent: Vec<_> = (0..10).map(|_| ZmqSocket::connect(control, SocketType::Sub)).collect();
    let mut subscriber = gate.subscriber(&[b"web\0"]);
    assert!(subscriber.published().is_empty(), "one without a topic made room");
    gate.assert_alive();
    drop(silent);
}

#[test]
fn one_address_cannot_take_every_connection() {
    let gate = start_with(POLICY, |settings| {
        settings.gates.http_connections.per_address = Some(2);
        settings.workers = 1;
    });
    let _held: Vec<_> = (0..2).map(|_| gate.connect()).collect();
    let refusal = gate.exchange(format!("GET /v1/gate?limit=Login&id=a{CLOSING}").as_bytes());
    assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
    let page = gate.exchange(format!("GET /metrics{CLOSING}").as_bytes());
    assert!(
        page.contains("tollway_connections_refused_total{gate=\"http\",reason=\"address\"} 2\n"),
        "{page}"
    );
}

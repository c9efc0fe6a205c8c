//! Tests that a web page cannot use a browser to ask: cross-site requests, names that point here, and forms.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use tollway_testbed::TEST_TIMEOUT;

use crate::support::{Harness, read_all, start_with};

const POLICY: &str = "limits: { Login: { burst: 5, count: 5, period: 1m } }";
const BODY: &str = r#"{"limit":"Login","id":"alice"}"#;

fn start_both(policy: &str) -> Harness {
    start_with(policy, |settings| settings.gates.admin = Some("127.0.0.1:0".parse().unwrap()))
}

/// Sends a request with these headers. `HERE` in them is the host and the port of the gate.
fn send(address: SocketAddr, line: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let headers = headers.replace("HERE", &address.to_string());
    let length = body.len();
    write!(stream, "{line} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    read_all(&mut stream)
}

fn assert_answer(answer: &str, status: u16, problem: &str, what: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {answer}");
    assert!(problem.is_empty() || answer.contains(&format!("tollway:{problem}\"")), "{what}: {answer}");
    assert!(answer.contains("\r\nX-Content-Type-Options: nosniff\r\n"), "{what}: {answer}");
    assert_eq!(answer.matches("\r\nCache-Control: no-store\r\n").count(), 1, "{what}: {answer}");
    assert!(!answer.to_lowercase().contains("access-control-"), "{what}: {answer}");
}

/// The headers of a sender, and the status and the problem that its request gets.
const SENDERS: [(&str, u16, &str); 14] = [
    ("Host: HERE\r\n", 200, ""),
    ("Host: HERE\r\nOrigin: http://HERE\r\nSec-Fetch-Site: same-origin\r\n", 200, ""),
    ("Host: HERE\r\nSec-Fetch-Site: none\r\n", 200, ""),
    ("Host: a.localhost:1\r\nOrigin: http://a.localhost:1\r\n", 200, ""),
    ("Host: tollway.internal\r\nOrigin: http://tollway.internal\r\n", 200, ""),
    ("Host: tollway.internal\r\nOrigin: https://tollway.internal\r\nX-Forwarded-Proto: https\r\n", 200, ""),
    ("Host: tollway.internal\r\nOrigin: https://tollway.internal\r\n", 403, "cross-site"),
    ("Host: HERE\r\nOrigin: https://evil.example\r\n", 403, "cross-site"),
    ("Host: HERE\r\nOrigin: null\r\n", 403, "cross-site"),
    ("Host: HERE\r\nOrigin: http://HERE\r\nOrigin: http://HERE\r\n", 403, "cross-site"),
    ("Host: HERE\r\nSec-Fetch-Site: cross-site\r\n", 403, "cross-site"),
    ("Host: HERE\r\nOrigin: http://HERE\r\nSec-Fetch-Site: same-site\r\n", 403, "cross-site"),
    ("Host: evil.example:8082\r\nOrigin: http://evil.example:8082\r\n", 421, "unknown-host"),
    ("Host: HERE\r\nHost: HERE\r\n", 400, "bad-http"),
];

#[test]
fn pages_of_other_sites_and_unknown_names_are_refused_at_both_gates() {
    let hosts = "gates: { http: { hosts: [tollway.internal] }, admin: { hosts: [Tollway.Internal] } }";
    let gate = start_both(&format!("{POLICY}\n{hosts}"));
    let (http, admin) = (gate.server.http_addr().unwrap(), gate.server.admin_addr().unwrap());
    for (headers, status, problem) in SENDERS {
        let headers = format!("{headers}Content-Type: application/json\r\n");
        for (address, path) in [(http, "/v1/check"), (admin, "/v1/reset"), (admin, "/v1/refund")] {
            let answer = send(address, &format!("POST {path}"), &headers, BODY);
            assert_answer(&answer, status, problem, &format!("{path} {headers}"));
        }
        for (address, path) in [(http, "/healthz"), (admin, "/metrics"), (admin, "/openapi.json")] {
            let answer = send(address, &format!("GET {path}"), &headers, "");
            assert_answer(&answer, status, problem, &format!("{path} {headers}"));
        }
    }
}

/// A page whose name points to the gate reads by GET, and its browser then sends nothing but the name.
#[test]
fn a_name_that_points_here_reads_nothing_of_operators() {
    let gate = start_both(POLICY);
    let (http, admin) = (gate.server.http_addr().unwrap(), gate.server.admin_addr().unwrap());
    let rebound = "Host: evil.example\r\n";
    for path in ["/v1/inspect?limit=Login&id=alice", "/v1/keys", "/metrics", "/healthz"] {
        let answer = send(admin, &format!("GET {path}"), rebound, "");
        assert_answer(&answer, 421, "unknown-host", path);
        assert!(answer.contains("gates.admin"), "{answer}");
    }
    // Programs ask the gate `http` by whatever name their network has for it.
    let json = format!("{rebound}Content-Type: application/json\r\n");
    assert_answer(&send(http, "POST /v1/spend", &json, BODY), 200, "", "spend");
    let alone = start_with(POLICY, |_| {});
    let http = alone.server.http_addr().unwrap();
    for path in ["/v1/inspect?limit=Login&id=alice", "/metrics"] {
        let answer = send(http, &format!("GET {path}"), rebound, "");
        assert_answer(&answer, 421, "unknown-host", path);
        assert!(answer.contains("gates.http"), "{answer}");
    }
}

#[test]
fn other_sites_may_link_to_the_console() {
    let gate = start_both(POLICY);
    let admin = gate.server.admin_addr().unwrap();
    let link = "Host: HERE\r\nSec-Fetch-Site: cross-site\r\n";
    for path in ["/", "/console.js"] {
        assert_answer(&send(admin, &format!("GET {path}"), link, ""), 200, "", path);
        assert_answer(
            &send(admin, &format!("GET {path}"), "Host: evil.example\r\n", ""),
            421,
            "unknown-host",
            path,
        );
    }
    assert_answer(&send(admin, "GET /v1/live", link, ""), 403, "cross-site", "figures");
}

#[test]
fn a_body_says_that_it_is_json() {
    let gate = start_both(POLICY);
    let (http, admin) = (gate.server.http_addr().unwrap(), gate.server.admin_addr().unwrap());
    for (content_type, status, problem) in [
        ("Content-Type: application/json\r\n", 200, ""),
        ("CONTENT-TYPE: Application/JSON;charset=utf-8\r\n", 200, ""),
        ("", 415, "not-json"),
        ("Content-Type: text/plain\r\n", 415, "not-json"),
        ("Content-Type: application/x-www-form-urlencoded\r\n", 415, "not-json"),
        ("Content-Type: multipart/form-data; boundary=application/json\r\n", 415, "not-json"),
        ("Content-Type: application/json\r\nContent-Type: text/plain\r\n", 415, "not-json"),
    ] {
        for (address, path) in [(http, "/v1/check"), (admin, "/v1/reset")] {
            let headers = format!("Host: HERE\r\n{content_type}");
            assert_answer(
                &send(address, &format!("POST {path}"), &headers, BODY),
                status,
                problem,
                content_type,
            );
        }
    }
}

/// Neither a form nor a preflight of a page of another site spends anything.
#[test]
fn the_path_for_proxies_answers_proxies_and_no_pages() {
    let trusting = format!("{POLICY}\ngates: {{ http: {{ trusted_proxies: [127.0.0.1] }} }}");
    let (wary, trusting) = (start_both(POLICY), start_both(&trusting));
    let target = "/v1/gate?limit=Login&id=alice&cost=0";
    for (headers, status) in [
        ("", 200),
        ("Sec-Fetch-Site: none\r\n", 200),
        ("Origin: https://shop.example\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: same-origin\r\n", 403),
        ("Origin: https://shop.example\r\nX-Forwarded-For: 192.0.2.1\r\n", 200),
        ("Origin: https://shop.example\r\nx-original-uri: /a\r\n", 200),
        ("Sec-Fetch-Site: same-origin\r\nX-Real-IP: 192.0.2.1\r\n", 200),
        ("Sec-Fetch-Site: cross-site\r\nForwarded: for=192.0.2.1\r\n", 200),
        ("Origin: https://shop.example\r\nX-Forwarder: 1\r\n", 403),
    ] {
        for method in ["GET", "POST", "OPTIONS"] {
            let headers = format!("Host: shop.example\r\n{headers}");
            let line = format!("{method} {target}");
            let answer = send(wary.server.http_addr().unwrap(), &line, &headers, "");
            assert_answer(&answer, status, if status == 403 { "cross-site" } else { "" }, &headers);
            let answer = send(trusting.server.http_addr().unwrap(), &line, &headers, "");
            assert_answer(&answer, 200, "", &headers);
        }
    }
    // The status of a denial, because a proxy may let a request pass on another one.
    let line = format!("GET {target}&deny_status=429");
    let answer = send(wary.server.http_addr().unwrap(), &line, "Host: x\r\nOrigin: http://y\r\n", "");
    assert_answer(&answer, 429, "cross-site", "deny_status");
    for gate in [wary, trusting] {
        assert_eq!(
            gate.post("/v1/check", r#"{"limit":"Login","id":"alice","cost":0}"#).json()["remaining"],
            5
        );
    }
}

//! Tests that no request can hide in another, over raw sockets: every request that the upstream sees was limited.

use std::io::{Read, Write};
use std::net::TcpStream;

use tollway_testbed::{ScriptedMaster, TEST_TIMEOUT};

use crate::guard_process::GuardProcess;
use crate::upstream::{self, Upstream};

/// Starts an upstream that answers each request with its bytes, and closes the connection.
fn mirror() -> Upstream {
    Upstream::raw(|mut stream| {
        let mut seen = upstream::head(&mut stream);
        let length = seen.split_once("content-length: ").map(|(_, rest)| rest.lines().next().unwrap());
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        stream.read_exact(&mut body).unwrap();
        while seen.contains("transfer-encoding: chunked") && !body.ends_with(b"0\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            body.extend(byte);
        }
        seen += std::str::from_utf8(&body).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", seen.len());
        stream.write_all((head + &seen).as_bytes()).unwrap();
    })
}

/// Returns the answer to these bytes.
fn answer_to(guard: &GuardProcess, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(&guard.address).unwrap();
    client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    // It may have been refused before it was all sent.
    let _ = client.write_all(bytes).and_then(|()| client.flush());
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// Returns a request of these lines, the last of its connection.
fn request(lines: &[&str], body: &str) -> Vec<u8> {
    format!("{}\r\nConnection: close\r\n\r\n{body}", lines.join("\r\n")).into_bytes()
}

const CHUNKS: &str = "5\r\nhello\r\n0\r\n\r\n";

#[test]
fn ambiguous_requests_are_rejected() {
    let upstream = Upstream::raw(|_| panic!("somebody passed it on"));
    let guard = GuardProcess::start(&upstream.url(), &[]);
    for (status, lines, body) in [
        // How long is the body?
        (400, &["POST / HTTP/1.1", "Host: a", "Content-Length: 5", "Content-Length: 6"][..], "hello!"),
        (400, &["POST / HTTP/1.1", "Host: a", "Content-Length: 5, 5"], "hello"),
        (400, &["POST / HTTP/1.1", "Host: a", "Content-Length: +5"], "hello"),
        (400, &["POST / HTTP/1.1", "Host: a", "Content-Length: x"], "hello"),
        (400, &["POST / HTTP/1.1", "Host: a", "Content-Length: 99999999999999999999"], "hello"),
        (400, &["POST / HTTP/1.1", "Host: a", "Transfer-Encoding : chunked"], CHUNKS),
        (400, &["POST / HTTP/1.1", "Host: a", "Transfer-Encoding:", " chunked"], CHUNKS),
        (400, &["POST / HTTP/1.1", "Host: a", "Transfer-Encoding: \u{b}chunked"], CHUNKS),
        (400, &["POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked, gzip"], CHUNKS),
        (400, &["POST / HTTP/1.0", "Host: a", "Transfer-Encoding: chunked"], CHUNKS),
        (501, &["POST / HTTP/1.1", "Host: a", "Transfer-Encoding: gzip, chunked"], CHUNKS),
        (
            501,
            &["POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
            CHUNKS,
        ),
        // Which host is it for?
        (400, &["GET / HTTP/1.1"], ""),
        (400, &["GET / HTTP/1.1", "Host: a", "Host: b"], ""),
        (400, &["GET / HTTP/1.1", "Host: a/b"], ""),
        (400, &["GET / HTTP/1.1", "Host: u@a"], ""),
        (400, &["GET http://u:p@a/ HTTP/1.1", "Host: a"], ""),
        (400, &["GET a:80 HTTP/1.1", "Host: a"], ""),
        (405, &["CONNECT a:80 HTTP/1.1", "Host: a"], ""),
        // Where does what end?
        (400, &["GET / HTTP/1.1", "Host: a", "X-A: b", " c"], ""),
        (400, &["GET / HTTP/1.1", " Host: a"], ""),
        (400, &["GET / HTTP/1.1", "Host: a\rX-A: b"], ""),
        (400, &["GET / HTTP/1.1", "Host: a", "X-A: b\0c"], ""),
        (400, &["GET / HTTP/1.1", "Host: a", "X A: b"], ""),
        (400, &["GET / HTTP/1.1", "Host: a", ": b"], ""),
        (400, &["GET /a b HTTP/1.1", "Host: a"], ""),
        (400, &["GET /a\u{1}b HTTP/1.1", "Host: a"], ""),
        (400, &["GET * HTTP/1.1", "Host: a"], ""),
        (400, &["GET / HTTP/1.2", "Host: a"], ""),
        (400, &["GET /", "Host: a"], ""),
        (400, &["GARBAGE"], ""),
    ] {
        let answer = answer_to(&guard, &request(lines, body));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{lines:?}: {answer}");
    }
}

#[test]
fn oversized_requests_are_rejected() {
    let upstream = Upstream::raw(|_| panic!("somebody passed it on"));
    let guard = GuardProcess::start(&upstream.url(), &[]);
    let long = "x".repeat(70_000);
    let many = (0..10_000).map(|number| format!("X-{number}: y")).collect::<Vec<_>>().join("\r\n");
    for line in [
        format!("GET /{long} HTTP/1.1"),
        format!("GET / HTTP/1.1\r\nX: {long}"),
        format!("GET / HTTP/1.1\r\n{many}"),
    ] {
        // Not all of it is read, so the answer may be lost with the connection.
        let answer = answer_to(&guard, &request(&[&line, "Host: a"], ""));
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}

#[test]
fn forwarded_requests_are_unambiguous() {
    let upstream = mirror();
    let guard = GuardProcess::start(&upstream.url(), &[]);
    for (lines, body, seen, not_seen) in [
        // By the later rule of the two.
        (
            &["POST / HTTP/1.1", "Host: a", "Content-Length: 4", "Transfer-Encoding: chunked"][..],
            CHUNKS,
            &["hello"][..],
            &["content-length"][..],
        ),
        (
            &["POST / HTTP/1.1", "Host: a", "Content-Length: 5", "Content-Length: 5"],
            "hello",
            &["content-length: 5\r\n", "\r\n\r\nhello"],
            &["5\r\ncontent-length"],
        ),
        // A body is no less one because it is a GET's, or because somebody says that it is about the connection.
        (
            &["GET / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"],
            CHUNKS,
            &["transfer-encoding: chunked\r\n", "hello"],
            &[],
        ),
        (
            &["GET / HTTP/1.1", "Host: a", "Content-Length: 5", "Connection: content-length"],
            "hello",
            &["content-length: 5\r\n", "hello"],
            &[],
        ),
        (
            &["POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"],
            "5;x=y\r\nhello\r\n0\r\n\r\n",
            &["\r\n\r\n5\r\nhello\r\n0\r\n\r\n"],
            &["x=y"],
        ),
        // Headers that somebody wants to have removed.
        (&["GET / HTTP/1.1", "Host: a", "Connection: close, host"], "", &["host: a\r\n"], &["connection"]),
        (
            &["GET / HTTP/1.1", "Host: a", "X-Forwarded-For: 192.0.2.1", "Connection: x-forwarded-for"],
            "",
            &["x-forwarded-for: 192.0.2.1, 127.0.0.1\r\n"],
            &[],
        ),
        // The address that counts is the whole one.
        (
            &["GET http://b:1/x?y HTTP/1.1", "Host: a"],
            "",
            &["GET /x?y HTTP/1.1\r\n", "host: b:1\r\n"],
            &["host: a"],
        ),
        (&["OPTIONS * HTTP/1.1", "Host: a"], "", &["OPTIONS * HTTP/1.1\r\n"], &[]),
        // More HTTP would not be limited.
        (
            &[
                "GET / HTTP/1.1",
                "Host: a",
                "Upgrade: h2c",
                "HTTP2-Settings: AAMAAABkAAQAAP__",
                "Connection: upgrade, http2-settings",
            ],
            "",
            &["GET / HTTP/1.1\r\n"],
            &["upgrade", "http2"],
        ),
        // Lines may end without a carriage return; they do no longer.
        (&["GET / HTTP/1.1\nHost: a\nX-A: b"], "", &["host: a\r\nx-a: b\r\n"], &[]),
        (&["GET / HTTP/1.0"], "", &["GET / HTTP/1.1\r\n", "host: 127.0.0.1:"], &[]),
    ] {
        let answer = answer_to(&guard, &request(lines, body));
        let (head, mirrored) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 OK\r\n"), "{lines:?}: {answer}");
        for text in seen {
            assert!(mirrored.contains(text), "{lines:?}: no {text:?} in {mirrored:?}");
        }
        for text in not_seen {
            assert!(!mirrored.contains(text), "{lines:?}: {text:?} in {mirrored:?}");
        }
    }
}

#[test]
fn invalid_chunks_end_their_request() {
    let upstream = Upstream::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let guard = GuardProcess::start(&upstream.url(), &[]);
    for body in [
        "zz\r\nhello\r\n0\r\n\r\n",
        "5\nhello\n0\n\n",
        "4\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    ] {
        let answer =
            answer_to(&guard, &request(&["POST / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked"], body));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{body:?}: {answer}");
    }
}

#[test]
fn pipelined_requests_stay_apart() {
    let upstream = mirror();
    let guard = GuardProcess::start(&upstream.url(), &[]);
    let two = [
        &b"POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"[..],
        &request(&["GET /2 HTTP/1.1", "Host: a"], ""),
    ];
    let answer = answer_to(&guard, &two.concat());
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 2, "{answer}");
    // Of what was announced in two ways, nobody knows where it ends.
    let smuggled = "5\r\nhello\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let first = b"POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = answer_to(&guard, &[&first[..], smuggled.as_bytes()].concat());
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 1, "{answer}");
}

#[tokio::test]
async fn forwarded_addresses_are_read_only_from_trusted_proxies() {
    let upstream = mirror();
    for (believed, identifier) in [("192.0.2.0/24", "127.0.0.1"), ("127.0.0.0/8", "192.0.2.2")] {
        let mut master = ScriptedMaster::bind("api");
        let guard = GuardProcess::of(&upstream.url(), &master.addresses(), &["--trust-proxy", believed]);
        master.accept();
        // Until the subscription is there, what passes is not told.
        guard.shows("master_connected", |value| value >= 1).await;
        let lines = ["GET / HTTP/1.1", "Host: a", "X-Forwarded-For: 192.0.2.1, 192.0.2.2"];
        answer_to(&guard, &request(&lines, ""));
        assert_eq!(master.message()[2], identifier, "{believed}");
    }
}

//! Tests of unusual and invalid responses of an upstream.

use std::io::{Read, Write};
use std::net::TcpStream;

use hyper::Request;
use tollway_testbed::TEST_TIMEOUT;

use crate::guard_process::GuardProcess;
use crate::upstream::{self, Upstream, body_of, full};

/// Returns what a client gets for `request` from an upstream that sends `response` and closes the connection.
fn answer(request: &str, response: &'static str) -> String {
    let upstream = Upstream::raw(move |mut stream| {
        upstream::head(&mut stream);
        stream.write_all(response.as_bytes()).unwrap();
    });
    let guard = GuardProcess::start(&upstream.url(), &[]);
    let mut client = TcpStream::connect(&guard.address).unwrap();
    client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const OLD: &str = "GET / HTTP/1.0\r\n\r\n";

#[test]
fn response_bodies_end_where_they_should() {
    for (ask, said, status, contains, ends) in [
        (GET, "HTTP/1.1 204 No Content\r\n\r\n", "204", "", "\r\n\r\n"),
        (GET, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", "204", "", "\r\n\r\n"),
        (
            GET,
            "HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 5\r\n\r\n",
            "304",
            "etag: x\r\n",
            "\r\n\r\n",
        ),
        (HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "200", "content-length: 5\r\n", "\r\n\r\n"),
        (
            HEAD,
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "200",
            "content-length: 5\r\n",
            "\r\n\r\n",
        ),
        (HEAD, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "200", "", "\r\n\r\n"),
        (
            GET,
            "HTTP/1.1 200 OK\r\n\r\nto the end",
            "200",
            "transfer-encoding: chunked\r\n",
            "\r\n\r\nA\r\nto the end\r\n0\r\n\r\n",
        ),
        (
            GET,
            "HTTP/1.0 200 OK\r\n\r\nto the end",
            "200",
            "transfer-encoding: chunked\r\n",
            "\r\n\r\nA\r\nto the end\r\n0\r\n\r\n",
        ),
        (
            OLD,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "200",
            "",
            "\r\n\r\nhello",
        ),
        (OLD, "HTTP/1.1 200 OK\r\n\r\nto the end", "200", "", "\r\n\r\nto the end"),
        (
            GET,
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "200",
            "",
            "\r\n\r\nok",
        ),
        (
            GET,
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "200",
            "",
            "\r\n\r\nok",
        ),
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok, and more", "200", "", "\r\n\r\nok"),
        (
            GET,
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "200",
            "",
            "hello\r\n0\r\n\r\n",
        ),
    ] {
        let answer = answer(ask, said);
        assert_eq!(answer.split(' ').nth(1), Some(status), "{said:?}: {answer:?}");
        assert!(answer.contains(contains) && answer.ends_with(ends), "{said:?}: {answer:?}");
        assert!(!(answer.contains("content-length") && answer.contains("transfer-encoding")), "{answer:?}");
        assert!(!(ask == OLD && answer.contains("chunked")), "{answer:?}");
    }
}

#[test]
fn invalid_responses_are_a_502() {
    for said in [
        "",
        "HTTP/1.1 200",
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    ] {
        let answer = answer(GET, said);
        assert!(answer.starts_with("HTTP/1.1 502 "), "{said:?}: {answer}");
    }
}

/// A client must not take a part of a response for all of it.
#[test]
fn truncated_responses_look_truncated() {
    let counted = answer(GET, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    assert!(counted.contains("content-length: 10\r\n") && counted.ends_with("\r\n\r\nhalf"), "{counted:?}");
    let chunked = answer(GET, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
    assert!(chunked.ends_with("4\r\nhalf\r\n"), "{chunked:?}");
}

#[test]
fn expect_100_continue_is_answered() {
    let upstream = Upstream::raw(|mut stream| {
        let head = upstream::head(&mut stream);
        assert!(!head.contains("expect"), "{head}");
        let mut body = [0; 5];
        stream.read_exact(&mut body).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    });
    let guard = GuardProcess::start(&upstream.url(), &[]);
    let mut client = TcpStream::connect(&guard.address).unwrap();
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    assert_eq!(upstream::head(&mut client), "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hello").unwrap();
    assert!(upstream::head(&mut client).starts_with("HTTP/1.1 200 OK\r\n"));
}

/// An upstream may refuse an upload without reading it.
#[tokio::test]
async fn a_response_may_come_before_the_request_has_ended() {
    let upstream = Upstream::raw(|mut stream| {
        upstream::head(&mut stream);
        stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno\n").unwrap();
        // What lies unread would make the system take the answer back.
        let _ = stream.read(&mut [0; 65_536]);
    });
    let guard = GuardProcess::start(&upstream.url(), &["--workers", "1"]);
    let mut client = TcpStream::connect(&guard.address).unwrap();
    client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nhello").unwrap();
    assert!(upstream::head(&mut client).starts_with("HTTP/1.1 413 "));
    // The next one gets another connection to the upstream, and so does not get its answer.
    let response = guard.ask(Request::get("/").body(full("")).unwrap()).await;
    assert_eq!(response.status(), 413);
    assert_eq!(body_of(response.into_body()).await, b"no\n");
}

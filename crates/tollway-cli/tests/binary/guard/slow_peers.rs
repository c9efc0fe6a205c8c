//! Tests of clients and upstreams that stall. The timeouts are short here, so that they can be awaited.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, mpsc};

use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tollway_testbed::TEST_TIMEOUT;

use crate::guard_process::GuardProcess;
use crate::upstream::{self, BoxedBody, Upstream, answer, body_of, full};

const SHORT: [&str; 2] = ["--client-timeout", "300ms"];

fn connect(guard: &GuardProcess) -> TcpStream {
    let client = TcpStream::connect(&guard.address).unwrap();
    client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    client
}

/// Returns what comes until the connection ends, which it must.
fn to_the_end(client: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    match client.read_to_end(&mut said) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => said,
    }
}

/// A client that says nothing. Others know by its end that the timeout of clients has passed since it came.
struct IdleClient(TcpStream);

impl IdleClient {
    fn connect(guard: &GuardProcess) -> Self {
        let client = connect(guard);
        client.set_nonblocking(true).unwrap();
        Self(client)
    }

    fn is_disconnected(&mut self) -> bool {
        !matches!(self.0.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Returns an answer with the length of the request's body.
async fn counted(request: Request<Incoming>) -> Response<BoxedBody> {
    answer(body_of(request.into_body()).await.len().to_string())
}

#[tokio::test]
async fn an_idle_client_is_disconnected() {
    let upstream = Upstream::http1(|_| async { answer("served") }).await;
    let guard = GuardProcess::start(&upstream.url(), &SHORT);
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const ASKED: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for silent in [&b""[..], b"G", b"GET / HTTP/1.1\r\nHost: a\r\nX-", b"PRI * HT", PREFACE, ASKED] {
        let mut client = connect(&guard);
        client.write_all(silent).unwrap();
        let said = to_the_end(&mut client);
        assert_eq!(said.starts_with(b"HTTP/1.1 200 OK"), silent == ASKED);
    }
}

#[tokio::test]
async fn a_client_with_short_requests_is_not_idle() {
    let upstream = Upstream::http2(|_| async { answer("served") }).await;
    let guard = GuardProcess::start(&upstream.url().replace("http:", "h2c:"), &["--client-timeout", "1s"]);
    let (mut http2, mut http1) = (guard.http2().await, connect(&guard));
    let mut idle = IdleClient::connect(&guard);
    while !idle.is_disconnected() {
        let request = Request::get("http://a/").body(full("")).unwrap();
        assert_eq!(http2.send_request(request).await.unwrap().status(), StatusCode::OK);
        // Answered without asking anybody.
        http1.write_all(b"HEAD / HTTP/1.1\r\nHost: a b\r\n\r\n").unwrap();
        assert!(upstream::head(&mut http1).starts_with("HTTP/1.1 400 "));
    }
}

#[tokio::test]
async fn a_request_that_stops_arriving_is_a_408() {
    let upstream = Upstream::http1(counted).await;
    let guard = GuardProcess::start(&upstream.url(), &SHORT);
    let mut client = connect(&guard);
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
    let said = to_the_end(&mut client);
    assert!(said.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&said));
    let (mut pieces, body) = Channel::<Bytes, hyper::Error>::new(1);
    pieces.send_data(Bytes::from("half")).await.unwrap();
    let response = guard.ask_http2(Request::post("http://a/").body(body.boxed()).unwrap()).await;
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(guard.metric("upstream_failures_total").await, 0);
}

/// The upload takes longer than the timeouts of the client and of the upstream.
#[tokio::test]
async fn a_slow_upload_that_makes_progress_is_served() {
    let upstream = Upstream::http1(counted).await;
    let guard = GuardProcess::start(&upstream.url(), &["--client-timeout", "1s", "--timeout", "1s"]);
    let mut client = connect(&guard);
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let (mut idle, mut sent) = (IdleClient::connect(&guard), 0);
    while !idle.is_disconnected() {
        // Another request between two bytes makes them slow.
        guard.metric("open_requests").await;
        client.write_all(b"1\r\nx\r\n").unwrap();
        sent += 1;
    }
    client.write_all(b"0\r\n\r\n").unwrap();
    let said = String::from_utf8(to_the_end(&mut client)).unwrap();
    assert!(said.starts_with("HTTP/1.1 200 ") && said.ends_with(&format!("\r\n\r\n{sent}")), "{said}");
}

/// Returns a response that never ends.
fn endless() -> Response<BoxedBody> {
    let (mut pieces, body) = Channel::new(1);
    tokio::spawn(async move { while pieces.send_data(Bytes::from_static(&[b'x'; 65_536])).await.is_ok() {} });
    Response::new(body.boxed())
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected() {
    let upstream = Upstream::http1(|_| async { endless() }).await;
    let guard = GuardProcess::start(&upstream.url(), &[&SHORT[..], &["--max-connections", "1"]].concat());
    let mut deaf = connect(&guard);
    deaf.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    deaf.read_exact(&mut [0; 12]).unwrap();
    // There is one place, so whoever comes next is served when the first is gone.
    let mut next = connect(&guard);
    next.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut status = [0; 12];
    next.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
}

#[tokio::test]
async fn a_stream_that_is_not_read_is_reset_alone() {
    let upstream = Upstream::http1(|request| async move {
        if request.uri().path() == "/endless" { endless() } else { answer("served") }
    })
    .await;
    // Long enough for the neighbour to read now and then, also on a busy machine.
    let guard = GuardProcess::start(&upstream.url(), &["--client-timeout", "3s"]);
    let stream = TokioIo::new(tokio::net::TcpStream::connect(&guard.address).await.unwrap());
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_connection_window_size(10_000_000)
        .handshake(stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    let get = |path: &str| Request::get(format!("http://a{path}")).body(Empty::<Bytes>::new()).unwrap();
    let mut deaf = sender.send_request(get("/endless")).await.unwrap().into_body();
    // Its neighbour keeps the connection busy, and would be cut off with it.
    let neighbour = tokio::spawn({
        let mut sender = sender.clone();
        let get = get("/endless");
        async move {
            let mut body = sender.send_request(get).await.unwrap().into_body();
            while let Some(Ok(_)) = body.frame().await {}
        }
    });
    guard.shows("open_requests", |value| value >= 2).await;
    guard.shows("open_requests", |value| value <= 1).await;
    let ended = loop {
        match deaf.frame().await {
            Some(Ok(_)) => {}
            other => break other,
        }
    };
    assert!(ended.is_some_and(|ended| ended.is_err()));
    assert!(!neighbour.is_finished());
    assert_eq!(body_of(sender.send_request(get("/")).await.unwrap().into_body()).await, b"served");
}

#[tokio::test]
async fn an_upstream_that_stalls_in_a_body_of_known_length_is_disconnected() {
    let upstream = Upstream::raw(|mut stream| {
        upstream::head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "nobody waits any longer");
    });
    let guard = GuardProcess::start(&upstream.url(), &["--timeout", "200ms"]);
    let mut client = connect(&guard);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(to_the_end(&mut client).ends_with(b"\r\n\r\nhalf"));
}

#[tokio::test]
async fn an_upstream_may_pause_in_a_body_of_unknown_length() {
    let (pause_ends, pause) = mpsc::channel();
    let pause = Mutex::new(pause);
    let upstream = Upstream::raw(move |mut stream| {
        upstream::head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\none ").unwrap();
        pause.lock().unwrap().recv().unwrap();
        stream.write_all(b"two").unwrap();
    });
    let guard = GuardProcess::start(&upstream.url(), &["--timeout", "100ms", "--client-timeout", "100ms"]);
    let response = guard.ask(Request::get("/").body(full("")).unwrap()).await;
    // Each of them is disconnected when the timeouts, which are equal, have passed once more.
    for _ in 0..3 {
        to_the_end(&mut connect(&guard));
    }
    pause_ends.send(()).unwrap();
    assert_eq!(body_of(response.into_body()).await, b"one two");
}

#[tokio::test]
async fn idle_clients_make_room_for_new_ones() {
    let upstream = Upstream::http1(counted).await;
    let guard = GuardProcess::start(&upstream.url(), &["--max-connections", "2"]);
    let mut idle = connect(&guard);
    idle.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(upstream::head(&mut idle).starts_with("HTTP/1.1 200 "));
    let mut unfinished = connect(&guard);
    unfinished.write_all(b"GET /").unwrap();
    for _ in 0..3 {
        let response = guard.ask(Request::get("/").body(full("")).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
    }
    to_the_end(&mut idle);
    to_the_end(&mut unfinished);
}

#[tokio::test]
async fn slow_clients_make_room_for_new_ones() {
    let upstream = Upstream::http1(counted).await;
    let guard =
        GuardProcess::start(&upstream.url(), &["--max-connections", "1", "--client-timeout", "600ms"]);
    let mut slow = connect(&guard);
    slow.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n").unwrap();
    let next = tokio::spawn(guard.ask(Request::get("/").body(full("")).unwrap()));
    // Never silent for long, but of no use to anybody. Other requests between two bytes make them slow.
    while slow.write_all(b"x").is_ok() && !next.is_finished() {
        for _ in 0..10 {
            guard.metric("open_requests").await;
        }
    }
    assert_eq!(next.await.unwrap().status(), StatusCode::OK);
    assert!(to_the_end(&mut slow).starts_with(b"HTTP/1.1 408 "));
}

#[tokio::test]
async fn further_requests_on_one_connection_need_permits() {
    let upstream = Upstream::http1(|_| async { endless() }).await;
    let guard = GuardProcess::start(&upstream.url(), &["--max-connections", "2"]);
    let stream = TokioIo::new(tokio::net::TcpStream::connect(&guard.address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let mut open = Vec::new();
    for expected in [200, 200, 503] {
        let get = Request::get("http://a/").body(Empty::<Bytes>::new()).unwrap();
        let response = sender.send_request(get).await.unwrap();
        assert_eq!(response.status(), expected);
        open.push(response);
    }
    assert_eq!(open[2].headers()["retry-after"], "1");
}

#[test]
fn a_tunnel_may_be_idle() {
    let upstream = Upstream::raw(|mut stream| {
        upstream::head(&mut stream);
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
            .unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(&byte).unwrap();
    });
    let guard = GuardProcess::start(&upstream.url(), &SHORT);
    let mut tunnel = connect(&guard);
    tunnel.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n").unwrap();
    assert!(upstream::head(&mut tunnel).starts_with("HTTP/1.1 101 "));
    // Somebody else runs out of patience meanwhile.
    to_the_end(&mut connect(&guard));
    tunnel.write_all(b"x").unwrap();
    assert_eq!(to_the_end(&mut tunnel), b"x");
}

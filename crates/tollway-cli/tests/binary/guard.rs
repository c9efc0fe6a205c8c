//! `tollway guard` between real clients and a real upstream.

mod hostile;
mod odd;
mod slow;
mod websocket;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};

use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode, Version};
use tokio::sync::mpsc;
use tollway_testbed::{ScriptedMaster, eventually};

use crate::guarded::Guarded;
use crate::run::run;
use crate::upstream::{self, Upstream, answer, body_of, full};

/// Now and so many seconds, in the master's milliseconds.
fn in_secs(secs: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    u64::try_from(now).unwrap() + secs * 1_000
}

#[tokio::test]
async fn a_request_passes_as_it_is_but_for_what_is_about_one_connection() {
    let upstream = Upstream::http1(|request| async move {
        let mut seen = format!("{} {} {:?}\n", request.method(), request.uri(), request.version());
        for (name, value) in request.headers() {
            seen += &format!("{name}: {}\n", value.to_str().unwrap());
        }
        let body = body_of(request.into_body()).await;
        let mut response = answer(seen + &String::from_utf8(body).unwrap());
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response.headers_mut().append("set-cookie", "a=1".parse().unwrap());
        response.headers_mut().append("set-cookie", "b=2".parse().unwrap());
        response.headers_mut().insert("keep-alive", "timeout=1".parse().unwrap());
        response
    })
    .await;
    let guarded = Guarded::start(&upstream.url(), &[]);
    let request = Request::post("/path?query=%20")
        .header("host", "example.com")
        .header("connection", "keep-alive, x-mine")
        .header("x-mine", "1")
        .header("x-forwarded-for", "198.51.100.1")
        .header("accept", "*/*");
    let response = guarded.ask(request.body(full("the body")).unwrap()).await;
    assert_eq!(response.status(), StatusCode::IM_A_TEAPOT);
    let cookies: Vec<_> = response.headers().get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=1", "b=2"]);
    assert!(!response.headers().contains_key("keep-alive"));
    let seen = String::from_utf8(body_of(response.into_body()).await).unwrap();
    let mut lines: Vec<_> = seen.lines().collect();
    lines[1..].sort_unstable();
    let expected = [
        "POST /path?query=%20 HTTP/1.1",
        "accept: */*",
        "content-length: 8",
        "host: example.com",
        "the body",
        "x-forwarded-for: 198.51.100.1, 127.0.0.1",
        "x-forwarded-proto: http",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn bodies_are_streamed_both_ways() {
    let upstream = Upstream::http1(|request| async move { Response::new(request.into_body().boxed()) }).await;
    let guarded = Guarded::start(&upstream.url(), &[]);
    let (mut pieces, body) = Channel::new(1);
    pieces.send_data(Bytes::from("first")).await.unwrap();
    let mut echo = guarded.ask(Request::post("/").body(body.boxed()).unwrap()).await.into_body();
    // Each piece comes back before the next is sent: nobody gathers them.
    for next in ["second", "third"] {
        assert!(!echo.frame().await.unwrap().unwrap().into_data().unwrap().is_empty());
        pieces.send_data(Bytes::from(next)).await.unwrap();
    }
    let many = (0..200).map(|_| Bytes::from("x".repeat(100_000)));
    let sending = tokio::spawn(async move {
        for piece in many {
            pieces.send_data(piece).await.unwrap();
        }
    });
    assert_eq!(body_of(echo).await.len(), "third".len() + 200 * 100_000);
    sending.await.unwrap();
}

#[tokio::test]
async fn an_upgrade_becomes_a_tunnel() {
    let upstream = Upstream::raw(|mut stream| {
        let head = upstream::head(&mut stream);
        assert!(head.contains("upgrade: echo\r\n") && head.contains("connection: upgrade\r\n"), "{head}");
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhi")
            .unwrap();
        let mut bytes = [0; 100];
        while let Ok(len @ 1..) = stream.read(&mut bytes) {
            stream.write_all(&bytes[..len]).unwrap();
        }
    });
    let guarded = Guarded::start(&upstream.url(), &[]);
    let mut client = TcpStream::connect(&guarded.address).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n").unwrap();
    let head = upstream::head(&mut client);
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("upgrade: echo\r\n"), "{head}");
    let mut bytes = [0; 2];
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hi");
    for word in [b"one", b"two"] {
        client.write_all(word).unwrap();
        let mut back = [0; 3];
        client.read_exact(&mut back).unwrap();
        assert_eq!(&back, word);
    }
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut bytes).unwrap(), 0, "the end of one side is the end of the other");
}

#[tokio::test]
async fn http2_is_spoken_with_clients_whatever_the_upstream_speaks() {
    let upstream = Upstream::http1(|request| async move {
        answer(format!("{:?} {}", request.version(), request.headers()["host"].to_str().unwrap()))
    })
    .await;
    let guarded = Guarded::start(&upstream.url(), &[]);
    let request = Request::get("http://example.com/").body(full("")).unwrap();
    let response = guarded.ask_http2(request).await;
    assert_eq!(response.version(), Version::HTTP_2);
    assert_eq!(body_of(response.into_body()).await, b"HTTP/1.1 example.com");
}

#[tokio::test]
async fn http2_passes_through_with_its_trailers() {
    let upstream = Upstream::http2(|request| async move {
        let te = request.headers().get("te").map_or("", |te| te.to_str().unwrap());
        let words = format!("{:?} {te} {}", request.version(), request.uri());
        let mut trailers = hyper::HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let body = Full::new(Bytes::from(words)).with_trailers(async { Some(Ok(trailers)) });
        Response::new(body.map_err(|never| match never {}).boxed())
    })
    .await;
    let guarded = Guarded::start(&upstream.url().replace("http:", "h2c:"), &[]);
    let request = Request::get("http://example.com/x").header("te", "trailers").body(full("")).unwrap();
    let collected = guarded.ask_http2(request).await.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(collected.to_bytes(), "HTTP/2.0 trailers http://example.com/x");
    let response = guarded.ask(Request::get("/y").header("host", "a.example").body(full("")).unwrap()).await;
    assert_eq!(body_of(response.into_body()).await, b"HTTP/2.0  http://a.example/y");
    let everything = Request::options("*").header("host", "a.example").body(full("")).unwrap();
    assert_eq!(guarded.ask(everything).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn who_must_wait_waits_and_who_would_wait_too_long_is_told_when_to_come_again() {
    let upstream = Upstream::http1(|_| async { answer("served") }).await;
    let mut master = ScriptedMaster::bind("api");
    let guarded = Guarded::of(&upstream.url(), &master.addresses(), &["--identify", "header:x-user"]);
    master.accept();
    let get = |user: &str| {
        let request = Request::get("/").header("x-user", user).header("user-agent", "test/1");
        guarded.ask(request.body(full("")).unwrap())
    };
    // Until the subscription is there, what passes is not told.
    guarded.shows("master_connected", |value| value >= 1).await;
    assert_eq!(get("alice").await.status(), StatusCode::OK);
    let accepted = master.message();
    assert_eq!(
        (&accepted[1..3], &*accepted[5]),
        (&["ACCEPTED".to_owned(), "alice".to_owned()][..], "test/1")
    );
    master.delay_until("alice", in_secs(3_600));
    guarded.shows("known_delays", |value| value >= 1).await;
    let response = get("alice").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let retry_after: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((3_500..=3_600).contains(&retry_after), "{retry_after}");
    assert_eq!(get("bob").await.status(), StatusCode::OK, "nobody else is held up");
    let soon = in_secs(0) + 100;
    master.delay_until("carol", soon);
    guarded.shows("known_delays", |value| value >= 2).await;
    assert_eq!(get("carol").await.status(), StatusCode::OK);
    assert!(in_secs(0) >= soon);
    let statuses = [0; 3].map(|_| master.message()[1].clone());
    assert_eq!(statuses, ["REJECTED", "ACCEPTED", "DELAYED"]);
    assert_eq!(guarded.metric(r#"requests_total{status="rejected"}"#).await, 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_gives_up_its_place() {
    let upstream = Upstream::http1(|_| async { answer("served") }).await;
    let mut master = ScriptedMaster::bind("api");
    let guarded = Guarded::of(&upstream.url(), &master.addresses(), &["--max-delay", "60s"]);
    master.accept();
    master.delay_until("127.0.0.1", in_secs(50));
    guarded.shows("known_delays", |value| value >= 1).await;
    let mut http1 = TcpStream::connect(&guarded.address).unwrap();
    http1.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let http2 = tokio::spawn(guarded.ask_http2(Request::get("http://a/").body(full("")).unwrap()));
    guarded.shows("waiting", |value| value >= 2).await;
    drop(http1);
    guarded.shows("waiting", |value| value <= 1).await;
    http2.abort();
    guarded.shows("waiting", |value| value == 0).await;
}

#[tokio::test]
async fn connections_to_the_upstream_are_used_again() {
    let upstream = Upstream::http1(|_| async { answer("served") }).await;
    let guarded = Guarded::start(&upstream.url(), &["--workers", "1"]);
    for _ in 0..20 {
        let response = guarded.ask(Request::get("/").body(full("")).unwrap()).await;
        assert_eq!(body_of(response.into_body()).await, b"served");
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_fails_nobody() {
    let upstream = Upstream::raw(|mut stream| {
        upstream::head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        // It said nothing of closing.
    });
    let guarded = Guarded::start(&upstream.url(), &["--workers", "1"]);
    for _ in 0..50 {
        let response = guarded.ask(Request::get("/").body(full("")).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(body_of(response.into_body()).await, b"ok");
    }
}

#[tokio::test]
async fn an_upstream_that_is_away_or_silent_or_mad_is_said_to_be() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let guarded = Guarded::start(&format!("http://{nobody}"), &[]);
    let get = || Request::get("/").body(full("")).unwrap();
    assert_eq!(guarded.ask(get()).await.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(guarded.metric("upstream_failures_total").await, 1);
    let silent = Upstream::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let guarded = Guarded::start(&silent.url(), &["--timeout", "50ms"]);
    assert_eq!(guarded.ask(get()).await.status(), StatusCode::GATEWAY_TIMEOUT);
    let mad = Upstream::raw(|mut stream| stream.write_all(b"SSH-2.0-OpenSSH\r\n").unwrap());
    let guarded = Guarded::start(&mad.url(), &[]);
    assert_eq!(guarded.ask(get()).await.status(), StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn to_stop_is_to_answer_first() {
    let (arrived, mut arrivals) = mpsc::channel(1);
    let (let_go, held) = tokio::sync::watch::channel(false);
    let upstream = Upstream::http1(move |_| {
        let (arrived, mut held) = (arrived.clone(), held.clone());
        async move {
            arrived.send(()).await.unwrap();
            held.wait_for(|gone| *gone).await.unwrap();
            answer("at last")
        }
    })
    .await;
    let guarded = Guarded::start(&upstream.url(), &[]);
    let asked = tokio::spawn(guarded.ask(Request::get("/").body(full("")).unwrap()));
    arrivals.recv().await.unwrap();
    guarded.signal("TERM");
    eventually("a closed door", || TcpStream::connect(&guarded.address).is_err());
    let_go.send_replace(true);
    assert_eq!(body_of(asked.await.unwrap().into_body()).await, b"at last");
    assert_eq!(guarded.wait(), Some(0));
}

#[test]
fn what_cannot_work_is_said_at_once() {
    let with = |arguments: &[&str]| {
        let all = ["guard", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1", "--domain", "d"];
        run(&[&all[..], arguments].concat())
    };
    for (arguments, expected) in [
        (&["--upstream", "https://a"][..], "the argument '--upstream <URL>' cannot be used multiple times"),
        (&["--identify", "shoe-size"], "must be address, or header:NAME"),
        (&["--trust-proxy", "10.0.0.1/8"], "did you mean \"10.0.0.0/8\"?"),
        (&["--rejected", "1/0"], "must be send, off, or a sample"),
        (&["--master", "a:b"], "write it as HOST or HOST:PORT, such as 127.0.0.1:10004"),
        (&["--max-connections", "0"], "must be a whole number of at least 1"),
        (&["--max-delayed", "many"], "must be a whole number"),
        (&["--patience", "0s"], "must be from 1ms to 24h"),
        (&["--timeout", "2d"], "must be from 1ms to 24h"),
    ] {
        let ran = with(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}");
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    let ran = run(&["guard", "--listen", ":1", "--upstream", "https://a", "--domain", "d"]);
    assert!(ran.stderr.contains("TLS to the upstream is not supported"), "{}", ran.stderr);
}

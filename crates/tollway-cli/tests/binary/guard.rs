//! Tests of `tollway guard` between real clients and a real upstream.

mod ambiguous_requests;
mod slow_peers;
mod unusual_responses;
mod websocket;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode, Version};
use tokio::sync::mpsc;
use tollway_testbed::{Certificates, ScriptedMaster, eventually};

use crate::guard_process::GuardProcess;
use crate::run::{file, run};
use crate::upstream::{self, Upstream, answer, body_of, full};

/// Returns the time in so many seconds, in the master's milliseconds.
fn in_secs(secs: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    u64::try_from(now).unwrap() + secs * 1_000
}

#[tokio::test]
async fn a_request_is_forwarded_without_its_hop_by_hop_headers() {
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
    let guard = GuardProcess::start(&upstream.url(), &[]);
    let request = Request::post("/path?query=%20")
        .header("host", "example.com")
        .header("connection", "keep-alive, x-mine")
        .header("x-mine", "1")
        .header("x-forwarded-for", "198.51.100.1")
        .header("x-forwarded-proto", "https")
        .header("x-real-ip", "198.51.100.1")
        .header("forwarded", "for=198.51.100.1")
        .header("accept", "*/*");
    let response = guard.ask(request.body(full("the body")).unwrap()).await;
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
        "x-real-ip: 127.0.0.1",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn bodies_are_streamed_both_ways() {
    let upstream = Upstream::http1(|request| async move { Response::new(request.into_body().boxed()) }).await;
    let guard = GuardProcess::start(&upstream.url(), &[]);
    let (mut pieces, body) = Channel::new(1);
    pieces.send_data(Bytes::from("first")).await.unwrap();
    let mut echo = guard.ask(Request::post("/").body(body.boxed()).unwrap()).await.into_body();
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
    let guard = GuardProcess::start(&upstream.url(), &[]);
    let mut client = TcpStream::connect(&guard.address).unwrap();
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
async fn a_client_may_use_http2_with_an_http1_upstream() {
    let upstream = Upstream::http1(|request| async move {
        answer(format!("{:?} {}", request.version(), request.headers()["host"].to_str().unwrap()))
    })
    .await;
    let guard = GuardProcess::start(&upstream.url(), &[]);
    let request = Request::get("http://example.com/").body(full("")).unwrap();
    let response = guard.ask_http2(request).await;
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
    let guard = GuardProcess::start(&upstream.url().replace("http:", "h2c:"), &[]);
    let request = Request::get("http://example.com/x").header("te", "trailers").body(full("")).unwrap();
    let collected = guard.ask_http2(request).await.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(collected.to_bytes(), "HTTP/2.0 trailers http://example.com/x");
    let response = guard.ask(Request::get("/y").header("host", "a.example").body(full("")).unwrap()).await;
    assert_eq!(body_of(response.into_body()).await, b"HTTP/2.0  http://a.example/y");
    let everything = Request::options("*").header("host", "a.example").body(full("")).unwrap();
    assert_eq!(guard.ask(everything).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_request_waits_or_is_rejected_as_the_master_says() {
    let upstream = Upstream::http1(|_| async { answer("served") }).await;
    let mut master = ScriptedMaster::bind("api");
    let guard = GuardProcess::of(&upstream.url(), &master.addresses(), &["--identify", "header:x-user"]);
    master.accept();
    let get = |user: &str| {
        let request = Request::get("/").header("x-user", user).header("user-agent", "test/1");
        guard.ask(request.body(full("")).unwrap())
    };
    // Until the subscription is there, what passes is not told.
    guard.shows("master_connected", |value| value >= 1).await;
    assert_eq!(get("alice").await.status(), StatusCode::OK);
    let accepted = master.message();
    assert_eq!(
        (&accepted[1..3], &*accepted[5]),
        (&["ACCEPTED".to_owned(), "header:x-user=alice".to_owned()][..], "test/1")
    );
    master.delay_until("header:x-user=alice", in_secs(3_600));
    guard.shows("known_delays", |value| value >= 1).await;
    let response = get("alice").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["cache-control"], "no-store");
    let retry_after: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((3_500..=3_600).contains(&retry_after), "{retry_after}");
    assert_eq!(get("bob").await.status(), StatusCode::OK, "nobody else is held up");
    let soon = in_secs(0) + 100;
    master.delay_until("header:x-user=carol", soon);
    guard.shows("known_delays", |value| value >= 2).await;
    assert_eq!(get("carol").await.status(), StatusCode::OK);
    assert!(in_secs(0) >= soon);
    let statuses = [0; 3].map(|_| master.message()[1].clone());
    assert_eq!(statuses, ["REJECTED", "ACCEPTED", "DELAYED"]);
    assert_eq!(guard.metric(r#"requests_total{status="rejected"}"#).await, 1);
}

#[tokio::test]
async fn a_limit_or_a_rule_of_a_file_decides() {
    let upstream = Upstream::http1(|_| async { answer("served") }).await;
    let policy =
        "limits: { PerClient: { burst: 2, count: 1, period: 1h } }\nrules: { upload: 'client:2/1h' }\n";
    let config = file("tollway.yaml", policy);
    for arguments in [["--limit", "PerClient"], ["--rule", "upload"]] {
        let guard = GuardProcess::local(&upstream.url(), &config, &arguments);
        let get = || guard.ask(Request::get("/").body(full("")).unwrap());
        assert_eq!([get().await.status(), get().await.status()], [200, 200]);
        let response = get().await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{arguments:?}");
        assert_eq!(response.headers()["cache-control"], "no-store");
        let retry_after: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1_700..=3_600).contains(&retry_after), "{retry_after}");
        assert_eq!(response.headers().contains_key("ratelimit"), arguments[0] == "--limit");
        assert_eq!(body_of(response.into_body()).await, b"too many requests\n");
        let grpc = Request::post("/").header("content-type", "application/grpc").body(full("")).unwrap();
        assert_eq!(guard.ask(grpc).await.headers()["grpc-status"], "8");
        assert_eq!(guard.metric(r#"requests_total{status="accepted"}"#).await, 2);
        assert_eq!(guard.metric(r#"requests_total{status="rejected"}"#).await, 2);
    }
}

#[tokio::test]
async fn a_limit_of_a_file_delays_requests() {
    let upstream = Upstream::http1(|_| async { answer("served") }).await;
    let config = file("tollway.yaml", "limits: { PerClient: { burst: 1, count: 1, period: 1h } }");
    let arguments = ["--limit", "PerClient", "--max-delay", "2h"];
    let guard = GuardProcess::local(&upstream.url(), &config, &arguments);
    let get = || guard.ask(Request::get("/").body(full("")).unwrap());
    assert_eq!(get().await.status(), StatusCode::OK);
    let waiting = tokio::spawn(get());
    guard.shows("waiting", |value| value == 1).await;
    waiting.abort();
    guard.shows("waiting", |value| value == 0).await;
}

#[tokio::test]
async fn a_header_identifies_a_client_that_no_address_can_be() {
    let upstream = Upstream::http1(|_| async { answer("served") }).await;
    let config = file("tollway.yaml", "limits: { PerClient: { burst: 1, count: 1, period: 1h } }");
    let arguments = ["--limit", "PerClient", "--max-delay", "0s", "--identify", "header:x-api-key"];
    let guard = GuardProcess::local(&upstream.url(), &config, &arguments);
    let with = |keys: &[&str]| {
        let request = keys.iter().fold(Request::get("/"), |request, key| request.header("x-api-key", *key));
        guard.ask(request.body(full("")).unwrap())
    };
    for (keys, expected) in [
        (&["127.0.0.1"][..], 200),
        (&["127.0.0.1"], 429),
        (&[], 200),
        (&[], 429),
        (&["k1", "k2"], 400),
        (&["k1", "k1"], 400),
        (&["k1"], 200),
    ] {
        assert_eq!(with(keys).await.status(), expected, "{keys:?}");
    }
    assert_eq!(guard.metric(r#"requests_total{status="unidentified"}"#).await, 2);
}

#[tokio::test]
async fn an_https_upstream_must_prove_who_it_is() {
    let [certificates, others] = ["theirs", "others"].map(|name| {
        let directory = Path::new(&file("certificates", "")).with_file_name(name);
        fs::create_dir_all(&directory).unwrap();
        Certificates::create(&directory)
    });
    let upstream = Upstream::https(&certificates, |request| async move {
        answer(format!("{} {}", request.uri(), request.headers()["host"].to_str().unwrap()))
    })
    .await;
    let (url, get) =
        (upstream.url().replace("http:", "https:"), || Request::get("/x").header("host", "a.example"));
    let ca = |certificates: &Certificates| certificates.authority().to_str().unwrap().to_owned();
    let guard = GuardProcess::start(&url, &["--upstream-ca", &ca(&certificates)]);
    for _ in 0..3 {
        let response = guard.ask(get().body(full("")).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(body_of(response.into_body()).await, b"/x a.example");
    }
    let wary = GuardProcess::start(&url, &["--upstream-ca", &ca(&others)]);
    assert_eq!(wary.ask(get().body(full("")).unwrap()).await.status(), StatusCode::BAD_GATEWAY);
    wary.logs("is unreachable");
}

#[tokio::test]
async fn a_client_that_disconnects_waits_no_longer() {
    let upstream = Upstream::http1(|_| async { answer("served") }).await;
    let mut master = ScriptedMaster::bind("api");
    let guard = GuardProcess::of(&upstream.url(), &master.addresses(), &["--max-delay", "60s"]);
    master.accept();
    master.delay_until("127.0.0.1", in_secs(50));
    guard.shows("known_delays", |value| value >= 1).await;
    let mut http1 = TcpStream::connect(&guard.address).unwrap();
    http1.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let http2 = tokio::spawn(guard.ask_http2(Request::get("http://a/").body(full("")).unwrap()));
    guard.shows("waiting", |value| value >= 2).await;
    drop(http1);
    guard.shows("waiting", |value| value <= 1).await;
    http2.abort();
    guard.shows("waiting", |value| value == 0).await;
}

#[tokio::test]
async fn upstream_connections_are_reused() {
    let upstream = Upstream::http1(|_| async { answer("served") }).await;
    let guard = GuardProcess::start(&upstream.url(), &["--workers", "1"]);
    for _ in 0..20 {
        let response = guard.ask(Request::get("/").body(full("")).unwrap()).await;
        assert_eq!(body_of(response.into_body()).await, b"served");
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn a_closed_upstream_connection_fails_no_request() {
    let upstream = Upstream::raw(|mut stream| {
        upstream::head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        // It said nothing of closing.
    });
    let guard = GuardProcess::start(&upstream.url(), &["--workers", "1"]);
    for _ in 0..50 {
        let response = guard.ask(Request::get("/").body(full("")).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(body_of(response.into_body()).await, b"ok");
    }
}

#[tokio::test]
async fn a_failing_upstream_is_a_502_or_504() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let guard = GuardProcess::start(&format!("http://{nobody}"), &[]);
    let get = || Request::get("/").body(full("")).unwrap();
    assert_eq!(guard.ask(get()).await.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(guard.metric("upstream_failures_total").await, 1);
    guard.logs(&format!("upstream http://{nobody} is unreachable"));
    let silent = Upstream::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let guard = GuardProcess::start(&silent.url(), &["--timeout", "50ms"]);
    assert_eq!(guard.ask(get()).await.status(), StatusCode::GATEWAY_TIMEOUT);
    let mad = Upstream::raw(|mut stream| stream.write_all(b"SSH-2.0-OpenSSH\r\n").unwrap());
    let guard = GuardProcess::start(&mad.url(), &[]);
    assert_eq!(guard.ask(get()).await.status(), StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn a_stop_answers_the_requests_in_flight_first() {
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
    let mut guard = GuardProcess::start(&upstream.url(), &[]);
    assert_eq!(guard.admin("/healthz").await, (200, "ok\n".to_owned()));
    let asked = tokio::spawn(guard.ask(Request::get("/").body(full("")).unwrap()));
    arrivals.recv().await.unwrap();
    guard.signal("TERM");
    eventually("a closed door", || TcpStream::connect(&guard.address).is_err());
    assert_eq!(guard.admin("/healthz").await, (503, "draining\n".to_owned()));
    guard.logs("draining: no new connections");
    let_go.send_replace(true);
    assert_eq!(body_of(asked.await.unwrap().into_body()).await, b"at last");
    assert_eq!(guard.wait(), Some(0));
    guard.logs("stopped");
}

#[test]
fn invalid_arguments_are_errors() {
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
        (&["--client-timeout", "0s"], "must be from 1ms to 24h"),
        (&["--timeout", "2d"], "must be from 1ms to 24h"),
        (&["--limit", "PerClient"], "cannot be used with"),
    ] {
        let ran = with(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}");
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    let config = file("tollway.yaml", "limits: { PerClient: { burst: 1, count: 1, period: 1h } }");
    for (arguments, expected) in [
        (
            &["--upstream", "ftp://a", "--domain", "d"][..],
            "must be http://HOST:PORT, https://HOST:PORT, or h2c://",
        ),
        (&["--upstream", "http://a"], "--domain <NAME>|--limit <NAME>|--rule <NAME>"),
        (&["--upstream", "http://a", "--limit", "PerClient"], "--config <FILE>"),
        (&["--upstream", "http://a", "--limit", "PerCleint", "-c", &config], "did you mean \"PerClient\"?"),
        (&["--upstream", "http://a", "--rule", "upload", "-c", &config], "rule \"upload\" does not exist"),
        (
            &["--upstream", "https://a", "--upstream-ca", "/nowhere", "--domain", "d"],
            "/nowhere has no certificates",
        ),
    ] {
        let ran = run(&[&["guard", "--listen", "127.0.0.1:0"][..], arguments].concat());
        assert_eq!(ran.code, 2, "{arguments:?}");
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
}

//! The HTTP clients, beside servers that behave and others that do not.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tollway_client::ClientError;
use tollway_client::http::{CONNECTIONS_MAX, Client, DEFAULT_TIMEOUT, blocking};
use tollway_testbed::TEST_TIMEOUT;

const ALLOWED: &str = r#"{"allowed":true,"remaining":4,"retry_after":0,"reset_after":12,"limit":"Login"}"#;

async fn ask(client: &Client) -> Result<bool, ClientError> {
    Ok(client.spend("Login", "alice", 1).await?.allowed())
}

/// Asks with the blocking twin of the client, on a thread of its own.
async fn ask_blocking(client: &blocking::Client) -> Result<bool, ClientError> {
    let client = client.clone();
    let asked = tokio::task::spawn_blocking(move || client.spend("Login", "alice", 1));
    Ok(asked.await.unwrap()?.allowed())
}

fn blocking_twin(client: &Client) -> blocking::Client {
    blocking::Client::with_timeout(client.address(), TEST_TIMEOUT).unwrap()
}

/// Returns the words of an error and of its sources.
fn words(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {}", words(source))).unwrap_or_default();
    format!("{error}{source}")
}

async fn listen() -> (TcpListener, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::with_timeout(&listener.local_addr().unwrap().to_string(), TEST_TIMEOUT).unwrap();
    (listener, client)
}

/// Reads one request, and returns false if there was none.
async fn question(stream: &mut TcpStream) -> bool {
    let mut asked = Vec::new();
    while !asked.ends_with(b"}") {
        if stream.read_buf(&mut asked).await.unwrap() == 0 {
            return false;
        }
    }
    let asked = String::from_utf8(asked).unwrap();
    assert!(asked.starts_with("POST /v1/spend HTTP/1.1\r\nHost: 127.0.0.1:"), "{asked}");
    assert!(asked.ends_with("\r\n\r\n{\"limit\":\"Login\",\"id\":\"alice\",\"cost\":1}"), "{asked}");
    true
}

async fn answer(stream: &mut TcpStream, status: &str, body: &str) {
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_connection_carries_one_question_after_another() {
    let (listener, client) = listen().await;
    let serve = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for _ in 0..3 {
            assert!(question(&mut stream).await);
            answer(&mut stream, "200 OK", ALLOWED).await;
        }
    });
    for _ in 0..3 {
        assert!(ask(&client).await.unwrap());
    }
    serve.await.unwrap();
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_not_asked() {
    let (listener, client) = listen().await;
    let (closed, told) = tokio::sync::oneshot::channel();
    let serve = tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        assert!(question(&mut first).await);
        answer(&mut first, "200 OK", ALLOWED).await;
        drop(first);
        closed.send(()).unwrap();
        let (mut second, _) = listener.accept().await.unwrap();
        assert!(question(&mut second).await);
        answer(&mut second, "200 OK", ALLOWED).await;
    });
    assert!(ask(&client).await.unwrap());
    told.await.unwrap();
    // The end of the connection is in the kernel already; the runtime hears of it when it next looks.
    tokio::task::yield_now().await;
    assert!(ask(&client).await.unwrap());
    serve.await.unwrap();
}

#[tokio::test]
async fn a_question_without_an_answer_is_not_repeated() {
    let (listener, client) = listen().await;
    let serve = tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        assert!(question(&mut first).await);
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        assert!(question(&mut second).await);
        answer(&mut second, "200 OK", ALLOWED).await;
    });
    let lost = ask(&client).await;
    assert!(matches!(lost, Err(ClientError::Disconnected { .. })), "asked again, it has an answer: {lost:?}");
    assert!(ask(&client).await.unwrap());
    serve.await.unwrap();
}

#[tokio::test]
async fn silence_is_over_at_the_deadline() {
    let (listener, client) = listen().await;
    let client = Client::with_timeout(client.address(), Duration::from_millis(10)).unwrap();
    let error = ask(&client).await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    drop(listener);
    let error = ask(&client).await.unwrap_err();
    assert!(matches!(error, ClientError::Refused { .. } | ClientError::ConnectTimedOut { .. }), "{error}");
}

#[tokio::test]
async fn what_is_no_tollway_says_so() {
    for (status, body, said) in [
        ("200 OK", "<html>", "status 200 with an unexpected body"),
        ("404 Not Found", r#"{"title":"Unknown limit","detail":"no"}"#, "Unknown limit: no"),
        ("OK", "", "its head is not HTTP"),
    ] {
        let (listener, client) = listen().await;
        let serve = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(question(&mut stream).await);
            answer(&mut stream, status, body).await;
        });
        let error = words(&ask(&client).await.unwrap_err());
        assert!(error.contains(said), "{error}");
        serve.await.unwrap();
    }
}

#[tokio::test]
async fn no_more_connections_are_open_than_may_be() {
    let (listener, client) = listen().await;
    let serve = tokio::spawn(async move {
        let mut streams = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            streams.push(listener.accept().await.unwrap().0);
        }
        let mut serving = JoinSet::new();
        for mut stream in streams {
            serving.spawn(async move {
                while question(&mut stream).await {
                    answer(&mut stream, "200 OK", ALLOWED).await;
                }
            });
        }
        tokio::select! {
            _ = listener.accept() => panic!("the others wait for their turn"),
            _ = serving.join_all() => {}
        }
    });
    let mut asking = JoinSet::new();
    for _ in 0..3 * CONNECTIONS_MAX {
        let client = client.clone();
        asking.spawn(async move { ask(&client).await.unwrap() });
    }
    assert!(asking.join_all().await.into_iter().all(|allowed| allowed));
    drop(client);
    serve.await.unwrap();
}

#[tokio::test]
async fn a_blocking_connection_carries_one_request_after_another() {
    let (listener, client) = listen().await;
    let client = blocking_twin(&client);
    let serve = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for _ in 0..3 {
            assert!(question(&mut stream).await);
            answer(&mut stream, "200 OK", ALLOWED).await;
        }
        drop(stream);
        let (mut second, _) = listener.accept().await.unwrap();
        assert!(question(&mut second).await);
        drop(second);
        let (mut third, _) = listener.accept().await.unwrap();
        assert!(question(&mut third).await);
        answer(&mut third, "200 OK", ALLOWED).await;
    });
    for _ in 0..3 {
        assert!(ask_blocking(&client).await.unwrap());
    }
    // The server has closed the first connection, and drops the second request: it is not sent again.
    let lost = ask_blocking(&client).await;
    assert!(matches!(lost, Err(ClientError::Disconnected { .. })), "{lost:?}");
    assert!(ask_blocking(&client).await.unwrap());
    serve.await.unwrap();
}

#[tokio::test]
async fn a_blocking_client_says_what_went_wrong() {
    let (listener, client) = listen().await;
    let impatient = blocking::Client::with_timeout(client.address(), Duration::from_millis(10)).unwrap();
    let error = ask_blocking(&impatient).await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    drop(listener);
    let error = words(&ask_blocking(&blocking_twin(&client)).await.unwrap_err());
    let expected = format!("no server at {}; start one with \"tollway serve\": ", client.address());
    assert!(error.starts_with(&expected), "{error}");
}

#[tokio::test]
async fn each_failure_to_connect_says_what_happened_and_what_to_do() {
    let unknown = "no-such-host.invalid:8080";
    // A backlog that is full drops the next connection, as a firewall would.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    full.listen(0).unwrap();
    let full_address = full.local_addr().unwrap().as_socket().unwrap();
    let wait = || std::net::TcpStream::connect_timeout(&full_address, TEST_TIMEOUT).unwrap();
    let _waiting = wait();
    let full_address = full_address.to_string();
    for (address, expected, advice) in [
        (unknown, format!("the host in {unknown} cannot be looked up; "), "check its spelling"),
        (&full_address, format!("no connection to {full_address} within 50ms; "), "firewall"),
    ] {
        let timeout = if address == unknown { TEST_TIMEOUT } else { Duration::from_millis(50) };
        let client = Client::with_timeout(address, timeout).unwrap();
        let blocking = blocking::Client::with_timeout(address, timeout).unwrap();
        for error in [ask(&client).await.unwrap_err(), ask_blocking(&blocking).await.unwrap_err()] {
            let error = words(&error);
            assert!(error.starts_with(&expected) && error.contains(advice), "{error}");
        }
    }
}

#[test]
fn an_address_without_a_port_has_the_default_one() {
    assert_eq!(Client::new("limiter").unwrap().address(), "limiter:8080");
    assert_eq!(blocking::Client::new("limiter").unwrap().address(), "limiter:8080");
    assert_eq!(Client::new("http://limiter").unwrap().address(), "limiter:80");
    assert_eq!(Client::new("https://limiter").unwrap().address(), "limiter:443");
}

#[tokio::test]
async fn both_clients_wait_for_a_second_unless_told_otherwise() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let client = Client::new(&address).unwrap();
    let blocking = blocking::Client::new(&address).unwrap();
    for error in [ask(&client).await.unwrap_err(), ask_blocking(&blocking).await.unwrap_err()] {
        assert!(matches!(error, ClientError::TimedOut { timeout: DEFAULT_TIMEOUT, .. }), "{error}");
    }
}

/// Answers one request of a client that wants events, on a thread of its own, and returns what it got.
async fn watched(head: &str, pieces: &[&str]) -> Vec<Result<(String, String), ClientError>> {
    let (listener, client) = listen().await;
    let client = blocking_twin(&client);
    let watching = tokio::task::spawn_blocking(move || {
        let mut stream = match client.live() {
            Ok(stream) => stream,
            Err(error) => return vec![Err(error)],
        };
        let mut events = Vec::new();
        while !matches!(events.last(), Some(Err(_))) {
            events.push(stream.next_event().map(|event| (event.name, event.data)));
        }
        events
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        stream.read_buf(&mut asked).await.unwrap();
    }
    assert!(asked.starts_with(b"GET /v1/live HTTP/1.1\r\nHost: 127.0.0.1:"));
    stream.write_all(format!("HTTP/1.1 {head}\r\n\r\n").as_bytes()).await.unwrap();
    for piece in pieces {
        stream.write_all(piece.as_bytes()).await.unwrap();
    }
    drop(stream);
    watching.await.unwrap()
}

#[tokio::test]
async fn events_are_read_until_the_server_closes() {
    let head = "200 OK\r\nContent-Type: text/event-stream";
    let events =
        watched(head, &["event: history\ndata: {}", "\n\nevent: snap", "shot\ndata: 1\n\nevent: cut"]).await;
    let named = |name: &str, data: &str| (name.to_owned(), data.to_owned());
    let [Ok(first), Ok(second), Err(ClientError::Disconnected { .. })] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((first, second), (&named("history", "{}"), &named("snapshot", "1")));
}

#[tokio::test]
async fn what_is_not_events_is_an_error() {
    let problem = r#"{"title":"Too many watchers","status":503,"detail":"16 clients watch already"}"#;
    let head = format!("503 Service Unavailable\r\nContent-Length: {}", problem.len());
    let events = watched(&head, &[problem]).await;
    assert!(matches!(events[..], [Err(ClientError::Problem { status: 503, .. })]), "{events:?}");
    let chunked = "200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked";
    for (head, body) in [(chunked, "0\r\n\r\n"), ("200 OK\r\nContent-Length: 2", "{}"), ("200 OK", "hello")] {
        let events = watched(head, &[body]).await;
        assert!(matches!(events[..], [Err(ClientError::InvalidResponse { .. })]), "{head}: {events:?}");
    }
    let long = "x".repeat(5 << 20);
    let events = watched("200 OK\r\nContent-Type: text/event-stream", &["data: ", &long]).await;
    let [Err(error)] = &events[..] else { panic!("{events:?}") };
    assert!(words(error).ends_with("an event is longer than 4194304 bytes"), "{}", words(error));
}

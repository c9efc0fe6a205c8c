//! The client that awaits, face to face with servers that behave and others that do not.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tollway_client::core::Verb;
use tollway_client::http::awaiting::{AskError, CONNECTIONS_MAX, Client};
use tollway_client::http::{ChargeRequest, ServerResponse};
use tollway_testbed::PATIENCE;

const ALLOWED: &str = r#"{"allowed":true,"remaining":4,"retry_after":0,"reset_after":12,"limit":"Login"}"#;

async fn ask(client: &Client) -> Result<bool, AskError> {
    match client.ask(Verb::Spend, &[ChargeRequest::new("Login", "alice", 1)]).await? {
        ServerResponse::Decision { allowed, .. } => Ok(allowed),
        other => panic!("{other:?}"),
    }
}

async fn listen() -> (TcpListener, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::with_timeout(&listener.local_addr().unwrap().to_string(), PATIENCE);
    (listener, client)
}

/// Reads one question, and says whether there was one.
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
    assert!(matches!(lost, Err(AskError::Unreachable { .. })), "asked again, it has an answer: {lost:?}");
    assert!(ask(&client).await.unwrap());
    serve.await.unwrap();
}

#[tokio::test]
async fn silence_is_over_at_the_deadline() {
    let (listener, client) = listen().await;
    let client = Client::with_timeout(client.address(), Duration::from_millis(10));
    let error = ask(&client).await.unwrap_err();
    assert!(matches!(error, AskError::TimedOut { .. }), "{error}");
    drop(listener);
    let error = ask(&client).await.unwrap_err();
    assert!(matches!(error, AskError::Unreachable { .. } | AskError::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn what_is_no_tollway_says_so() {
    for (status, body, said) in [
        ("200 OK", "<html>", "status 200 with a body that is no answer"),
        ("404 Not Found", r#"{"title":"Unknown limit","detail":"no"}"#, "Unknown limit: no"),
        ("OK", "", "its head is not HTTP"),
    ] {
        let (listener, client) = listen().await;
        let serve = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(question(&mut stream).await);
            answer(&mut stream, status, body).await;
        });
        let error = ask(&client).await.unwrap_err().to_string();
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

//! The text clients, beside a peer that says what it is told to.

use std::net::{SocketAddr, UdpSocket};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use proptest::prelude::*;
use tokio::task::JoinSet;
use tollway_client::text::{
    CheckLimit, Client, IN_FLIGHT_MAX, KeyAnswer, KeyStats, OverLimit, SigningKey, blocking,
};
use tollway_client::wire::text::{DATAGRAM_MAX, Mac, SignedRequest};
use tollway_client::{ClientError, InvalidRequest};
use tollway_testbed::TEST_TIMEOUT;

/// Short, where it is silence that is waited for.
const IMPATIENCE: Duration = Duration::from_millis(30);

/// A peer that answers each datagram with those that `script` makes of its id and its body.
struct Peer {
    addr: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    fn start(mut script: impl FnMut(&str, &str) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        let thread = thread::spawn(move || {
            let mut buffer = [0; 2000];
            while let Ok((len @ 1.., from)) = socket.recv_from(&mut buffer) {
                let datagram = str::from_utf8(&buffer[..len]).unwrap();
                let (id, body) = datagram.split_once(' ').unwrap();
                for reply in script(id, body) {
                    socket.send_to(&reply, from).unwrap();
                }
            }
        });
        Self { addr, thread: Some(thread) }
    }

    /// Ends with the reply to each question, told without its id.
    fn answering(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
        Self::start(move |id, body| vec![format!("{id} {}", answer(body)).into_bytes()])
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let stop = UdpSocket::bind("127.0.0.1:0").unwrap();
        let thread = self.thread.take().unwrap();
        // More than once: where many questions wait, there may be no room for one more datagram.
        while !thread.is_finished() {
            stop.send_to(b"", self.addr).unwrap();
            thread::yield_now();
        }
        let ended = thread.join();
        assert!(thread::panicking() || ended.is_ok());
    }
}

/// Returns the one reply that the peer has for each command.
fn plain(question: &str) -> String {
    match question.split(' ').next().unwrap() {
        "over_limit" if question.ends_with("busy") => "ok Y 28.1 22.0 20",
        "over_limit" => "ok N 1.4 22.0 20",
        "check_limit" => r#"ok Y 28.1 22.0 20, ["ws ua=a","ws ip=b","ws global"], []"#,
        "get_stats" => "n_req=2 n_over=1 last_max_rate=9 key=k",
        "get_size" => "size=3 keys=3",
        "ping" => "pong",
        other => panic!("nobody asks {other}"),
    }
    .to_owned()
}

const UNDER: OverLimit = OverLimit::new(false, 1.4, 22.0, 20);
const OVER: OverLimit = OverLimit::new(true, 28.1, 22.0, 20);
const STATS: KeyStats = KeyStats::new(2, 1, 9);

fn check_limit() -> CheckLimit<'static> {
    CheckLimit { origin: "ws".into(), ua: "a \"quoted\" one".into(), ip: "192.0.2.1".into() }
}

#[test]
fn a_blocking_client_reads_every_reply() {
    let peer = Peer::answering(plain);
    let client = blocking::Client::with_timeout(&peer.addr.to_string(), TEST_TIMEOUT).unwrap();
    assert_eq!(client.over_limit("ws idle").unwrap(), KeyAnswer::Answered(UNDER));
    assert_eq!(client.over_limit("ws busy").unwrap(), KeyAnswer::Answered(OVER));
    assert_eq!(client.check_limit(check_limit()).unwrap(), KeyAnswer::Answered(OVER));
    assert_eq!(client.get_stats("k").unwrap(), STATS);
    assert_eq!(client.get_size().unwrap(), 3);
    client.ping().unwrap();
    assert_eq!(client.ask(b"get_size").unwrap(), b"size=3 keys=3");
}

#[tokio::test]
async fn an_async_client_reads_every_reply() {
    let peer = Peer::answering(plain);
    let client = Client::with_timeout(&peer.addr.to_string(), TEST_TIMEOUT).unwrap();
    assert_eq!(client.over_limit("ws idle").await.unwrap(), KeyAnswer::Answered(UNDER));
    assert_eq!(client.over_limit("ws busy").await.unwrap(), KeyAnswer::Answered(OVER));
    assert_eq!(client.check_limit(check_limit()).await.unwrap(), KeyAnswer::Answered(OVER));
    assert_eq!(client.get_stats("k").await.unwrap(), STATS);
    assert_eq!(client.get_size().await.unwrap(), 3);
    client.ping().await.unwrap();
    assert_eq!(client.ask(b"get_size").await.unwrap(), b"size=3 keys=3");
}

#[tokio::test]
async fn silence_is_as_though_the_answer_were_n() {
    let peer = Peer::start(|_, _| Vec::new());
    let blocking = blocking::Client::with_timeout(&peer.addr.to_string(), IMPATIENCE).unwrap();
    let client = Client::with_timeout(&peer.addr.to_string(), IMPATIENCE).unwrap();
    for decision in [blocking.over_limit("k").unwrap(), client.over_limit("k").await.unwrap()] {
        assert_eq!(decision, KeyAnswer::Unanswered);
        assert!(!decision.over() && decision.answered().is_none());
    }
    let timed_out =
        |pinged| matches!(pinged, Err(ClientError::TimedOut { timeout, .. }) if timeout == IMPATIENCE);
    assert!(timed_out(blocking.ping()) && timed_out(client.ping().await));
}

#[tokio::test]
async fn replies_with_other_ids_are_let_go_by() {
    let peer = Peer::start(|id, _| {
        let next = id.parse::<u64>().unwrap() + 1;
        [
            "ok Y 9.0 1.0 1".to_owned(),
            format!("{next} ok Y 9.0 1.0 1"),
            format!("0{id} ok Y 9.0 1.0 1"),
            id.to_owned(),
        ]
        .into_iter()
        .chain([String::new(), format!(" {id} ok Y 9.0 1.0 1"), format!("{id} ok N 1.4 22.0 20")])
        .map(String::into_bytes)
        .collect()
    });
    let blocking = blocking::Client::with_timeout(&peer.addr.to_string(), TEST_TIMEOUT).unwrap();
    let client = Client::with_timeout(&peer.addr.to_string(), TEST_TIMEOUT).unwrap();
    for _ in 0..3 {
        assert_eq!(blocking.over_limit("k").unwrap(), KeyAnswer::Answered(UNDER));
        assert_eq!(client.over_limit("k").await.unwrap(), KeyAnswer::Answered(UNDER));
    }
}

#[tokio::test]
async fn a_late_answer_is_not_taken_for_the_next() {
    // The first question is answered when the second comes, and then with the opposite.
    let late = || {
        let mut first = None;
        Peer::start(move |id, _| match first.take() {
            None => {
                first = Some(id.to_owned());
                Vec::new()
            }
            Some(first) => {
                vec![format!("{first} ok Y 28.1 22.0 20").into(), format!("{id} ok N 1.4 22.0 20").into()]
            }
        })
    };
    let (one, other) = (late(), late());
    let blocking = blocking::Client::with_timeout(&one.addr.to_string(), IMPATIENCE).unwrap();
    let client = Client::with_timeout(&other.addr.to_string(), IMPATIENCE).unwrap();
    assert_eq!(blocking.over_limit("k").unwrap(), KeyAnswer::Unanswered);
    assert_eq!(client.over_limit("k").await.unwrap(), KeyAnswer::Unanswered);
    assert!(!blocking.over_limit("k").unwrap().over());
    assert!(!client.over_limit("k").await.unwrap().over());
}

#[tokio::test]
async fn patience_may_be_endless() {
    let peer = Peer::answering(plain);
    blocking::Client::with_timeout(&peer.addr.to_string(), Duration::MAX).unwrap().ping().unwrap();
    Client::with_timeout(&peer.addr.to_string(), Duration::MAX).unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn an_address_without_a_port_has_the_default_one() {
    assert_eq!(Client::new("limiter").unwrap().address(), "limiter:2000");
    assert_eq!(blocking::Client::new("limiter").unwrap().address(), "limiter:2000");
    for error in
        [Client::new("udp://limiter").unwrap_err(), blocking::Client::new("udp://limiter").unwrap_err()]
    {
        let expected =
            r#"invalid address "udp://limiter"; write it as HOST or HOST:PORT, such as 127.0.0.1:2000"#;
        assert_eq!(error.to_string(), expected);
    }
    let unknown = "no-such-host.invalid";
    let blocking = blocking::Client::with_timeout(unknown, TEST_TIMEOUT).unwrap();
    let client = Client::with_timeout(unknown, TEST_TIMEOUT).unwrap();
    for error in [blocking.ping().unwrap_err(), client.ping().await.unwrap_err()] {
        assert!(matches!(error, ClientError::Lookup { .. }), "{error}");
    }
    assert_eq!(client.over_limit("k").await.unwrap(), KeyAnswer::Unanswered);
}

#[tokio::test]
async fn nobody_there_is_known_at_once() {
    let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let blocking = blocking::Client::with_timeout(&gone, TEST_TIMEOUT).unwrap();
    let client = Client::with_timeout(&gone, TEST_TIMEOUT).unwrap();
    for _ in 0..3 {
        assert_eq!(blocking.over_limit("k").unwrap(), KeyAnswer::Unanswered);
        assert_eq!(client.over_limit("k").await.unwrap(), KeyAnswer::Unanswered);
        assert!(matches!(blocking.ping(), Err(ClientError::Refused { .. })));
        assert!(matches!(client.ping().await, Err(ClientError::Refused { .. })));
    }
}

#[tokio::test]
async fn many_questions_are_in_flight_at_a_time() {
    const QUESTIONS: usize = 200;
    // All must have come before any is answered, and the last is answered first.
    let mut asked = Vec::new();
    let peer = Peer::start(move |id, body| {
        asked.push(format!("{id} ok N {}.0 1000.0 10", body.rsplit(' ').next().unwrap()).into_bytes());
        if asked.len() == QUESTIONS { asked.drain(..).rev().collect() } else { Vec::new() }
    });
    let client = Client::with_timeout(&peer.addr.to_string(), TEST_TIMEOUT).unwrap();
    let mut asking = JoinSet::new();
    for number in 0..QUESTIONS {
        let client = client.clone();
        asking.spawn(async move { (number, client.over_limit(number.to_string()).await.unwrap()) });
    }
    for (number, decision) in asking.join_all().await {
        assert_eq!(decision.answered().unwrap().rate.to_string(), number.to_string());
    }
}

#[test]
fn a_blocking_client_may_be_used_by_many_threads() {
    let peer = Peer::answering(plain);
    let client = blocking::Client::with_timeout(&peer.addr.to_string(), TEST_TIMEOUT).unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            let client = client.clone();
            scope.spawn(move || {
                for _ in 0..20 {
                    assert_eq!(client.over_limit("ws busy").unwrap(), KeyAnswer::Answered(OVER));
                    assert_eq!(client.get_size().unwrap(), 3);
                }
            });
        }
    });
}

#[tokio::test]
async fn more_questions_than_may_wait_are_unanswered_and_not_kept() {
    let peer = Peer::start(|_, _| Vec::new());
    let client = Client::with_timeout(&peer.addr.to_string(), IMPATIENCE).unwrap();
    let mut asking = JoinSet::new();
    for _ in 0..2 * IN_FLIGHT_MAX {
        let client = client.clone();
        asking.spawn(async move { client.over_limit("k").await.unwrap() });
    }
    assert!(asking.join_all().await.iter().all(|decision| *decision == KeyAnswer::Unanswered));
}

#[tokio::test]
async fn what_cannot_be_asked_is_an_error_and_not_n() {
    let peer = Peer::answering(plain);
    let blocking = blocking::Client::with_timeout(&peer.addr.to_string(), TEST_TIMEOUT).unwrap();
    let client = Client::with_timeout(&peer.addr.to_string(), TEST_TIMEOUT).unwrap();
    for key in ["two\nlines".to_owned(), "ends\n".to_owned(), "x".repeat(1000)] {
        assert!(matches!(blocking.over_limit(&key), Err(ClientError::InvalidRequest(InvalidRequest::Text))));
        assert!(matches!(
            client.over_limit(&key).await,
            Err(ClientError::InvalidRequest(InvalidRequest::Text))
        ));
        assert!(matches!(
            client.get_stats(&key).await,
            Err(ClientError::InvalidRequest(InvalidRequest::Text))
        ));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn no_answer_makes_a_client_fall_over(answer in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..1500),
        "(ok [YN]|n_req=|size=|pong)[0-9 .,=a-z_]{0,40}".prop_map(String::into_bytes),
    ]) {
        let said = answer.clone();
        let peer = Peer::start(move |id, _| vec![[id.as_bytes(), b" ", &answer].concat()]);
        let blocking = blocking::Client::with_timeout(&peer.addr.to_string(), TEST_TIMEOUT).unwrap();
        let _ = blocking.over_limit("k").unwrap();
        let sized = blocking.get_size();
        prop_assert!(matches!(sized, Ok(_) | Err(ClientError::InvalidResponse { .. })), "{sized:?}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let heard = runtime.block_on(async {
            let client = Client::with_timeout(&peer.addr.to_string(), TEST_TIMEOUT).unwrap();
            let _ = client.over_limit("k").await.unwrap();
            let _ = client.get_stats("k").await;
            client.ask(b"anything").await.unwrap()
        });
        prop_assert!(said.starts_with(&heard) && (heard.len() == said.len() || heard.len() > 900));
    }
}

fn signing_key() -> SigningKey {
    SigningKey::new("web", &[7; 32]).unwrap()
}

/// Returns the signed reply to a request, which must be signed, after others that a stranger could send.
fn reply_between_forgeries(id: &str, body: &str) -> Vec<Vec<u8>> {
    let datagram = format!("{id} {body}");
    let request = SignedRequest::split(datagram.as_bytes()).expect("a signature");
    let mac = request.verify(&signing_key()).expect("of this key");
    let signed = |reply: &str, key: &SigningKey, request: &Mac| {
        let mut reply = format!("{id} {reply}").into_bytes();
        key.sign_reply(request, 0, &mut reply);
        reply
    };
    let other_key = SigningKey::new("web", &[8; 32]).unwrap();
    let other_request = signing_key().sign_request(1, &mut b"1 over_limit k".to_vec());
    vec![
        format!("{id} ok Y 9.0 1.0 1").into_bytes(),
        format!("{id} ok Y 9.0 1.0 1\nsigned {}", "0f".repeat(32)).into_bytes(),
        signed("ok Y 9.0 1.0 1", &other_key, &mac),
        signed("ok Y 9.0 1.0 1", &signing_key(), &other_request),
        signed("ok N 0.0 1.0 1", &signing_key(), &mac),
    ]
}

#[tokio::test]
async fn a_client_with_a_key_ignores_replies_that_are_not_signed_for_it() {
    let peer = Peer::start(reply_between_forgeries);
    let address = peer.addr.to_string();
    let expected = KeyAnswer::Answered(OverLimit::new(false, 0.0, 1.0, 1));
    let client = Client::with_timeout(&address, TEST_TIMEOUT).unwrap().with_key(signing_key());
    assert_eq!(client.over_limit("k").await.unwrap(), expected);
    let answer = tokio::task::spawn_blocking(move || {
        let client = blocking::Client::with_timeout(&address, TEST_TIMEOUT).unwrap();
        client.with_key(signing_key()).over_limit("k").unwrap()
    });
    assert_eq!(answer.await.unwrap(), expected);
}

#[test]
fn a_request_that_its_signature_makes_too_long_is_not_sent() {
    let client = blocking::Client::new("127.0.0.1").unwrap().with_key(signing_key());
    let error = client.over_limit("k".repeat(DATAGRAM_MAX - 100)).unwrap_err();
    assert!(matches!(error, ClientError::InvalidRequest(InvalidRequest::Text)), "{error}");
}

//! The Throttr clients, beside a peer that does what it is told to.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::task::JoinSet;
use tollway_client::throttr::{
    Change, Client, IN_FLIGHT_MAX, QuotaAttribute, QuotaInfo, QuotaRequest, QuotaTtl, ThrottrCommand,
    ThrottrReply, TtlUnit, blocking,
};
use tollway_client::wire::throttr::{decode, encode};
use tollway_client::{ClientError, InvalidRequest, InvalidResponse, InvalidThrottrReply};
use tollway_testbed::TEST_TIMEOUT;

/// Short, where it is silence that is waited for.
const IMPATIENCE: Duration = Duration::from_millis(50);

/// The work of a peer on one connection; connections come one after the other.
type Script = Box<dyn FnOnce(TcpStream) + Send>;

struct Peer {
    addr: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    fn start(scripts: Vec<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let thread = thread::spawn(move || {
            for script in scripts {
                let (stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
                script(stream);
            }
        });
        Self { addr, thread: Some(thread) }
    }

    fn blocking(&self) -> blocking::Client {
        blocking::Client::with_timeout(&self.addr.to_string(), TEST_TIMEOUT).unwrap()
    }

    fn client(&self) -> Client {
        Client::with_timeout(&self.addr.to_string(), TEST_TIMEOUT).unwrap()
    }

    /// Waits for the last connection to end.
    fn finish(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Answers every request with what it makes of it, and says how many reads it took.
fn serve(mut stream: TcpStream, answer: impl Fn(&ThrottrCommand, &[u8]) -> ThrottrReply) -> usize {
    let (mut inbox, mut buffer, mut reads) = (Vec::new(), vec![0; 1 << 20], 0);
    loop {
        let len = stream.read(&mut buffer).unwrap_or(0);
        if len == 0 {
            return reads;
        }
        reads += 1;
        inbox.extend_from_slice(&buffer[..len]);
        let (mut start, mut outbox) = (0, Vec::new());
        while let Some((request, len)) = decode(&inbox[start..]).unwrap() {
            encode(request.id, &answer(&request.command, request.key.consumer()), &mut outbox);
            start += len;
        }
        inbox.drain(..start);
        stream.write_all(&outbox).unwrap();
    }
}

/// The consumer's name is the number that is left.
fn by_name(command: &ThrottrCommand, consumer: &[u8]) -> ThrottrReply {
    let left = str::from_utf8(consumer).unwrap().parse().unwrap_or(0);
    match command {
        ThrottrCommand::Query if left == 0 => ThrottrReply::Status(false),
        ThrottrCommand::Query => {
            ThrottrReply::Quota { left, lifetime: QuotaTtl { value: 1500, unit: TtlUnit(1) } }
        }
        ThrottrCommand::Insert { quota, lifetime } => {
            ThrottrReply::Status(*quota == 5 && lifetime.value == 10 && lifetime.unit == TtlUnit(2))
        }
        ThrottrCommand::Update { attribute, change, value } => {
            ThrottrReply::Status((*attribute, *change, *value) == (QuotaAttribute::Ttl, Change::Decrease, 3))
        }
        ThrottrCommand::Purge => ThrottrReply::Status(left > 0),
        ThrottrCommand::UndefinedUpdate { .. } => ThrottrReply::Status(false),
    }
}

fn serving() -> Script {
    Box::new(|stream| {
        serve(stream, by_name);
    })
}

fn heard_something(stream: &mut TcpStream) {
    assert_ne!(stream.read(&mut [0; 100]).unwrap(), 0);
}

const TEN_SECONDS: Duration = Duration::from_secs(10);

fn quota(left: u64) -> (u64, QuotaTtl) {
    (left, QuotaTtl { value: 1500, unit: TtlUnit(1) })
}

fn seen(found: Option<QuotaInfo>) -> Option<(u64, QuotaTtl)> {
    found.map(|quota| (quota.left, quota.lifetime))
}

#[test]
fn a_blocking_client_asks_everything() {
    let peer = Peer::start(vec![serving()]);
    let client = peer.blocking();
    assert!(client.insert("c", "r", 5, TEN_SECONDS).unwrap().is_done());
    assert!(!client.insert("c", "r", 6, TEN_SECONDS).unwrap().is_done());
    assert_eq!(seen(client.query("42", b"r").unwrap()), Some(quota(42)));
    assert_eq!(client.query("42", b"r").unwrap().unwrap().ttl(), Duration::from_millis(1500));
    assert_eq!(client.query("0", [0, 255]).unwrap(), None);
    assert!(client.update("c", "r", QuotaAttribute::Ttl, Change::Decrease, 3).unwrap().is_done());
    assert!(!client.update("c", "r", QuotaAttribute::Quota, Change::Patch, 3).unwrap().is_done());
    assert!(client.purge("1", "").unwrap().is_done());
    drop(client);
    peer.finish();
}

#[tokio::test]
async fn an_async_client_asks_everything() {
    let peer = Peer::start(vec![serving()]);
    let client = peer.client();
    assert!(client.insert("c", "r", 5, TEN_SECONDS).await.unwrap().is_done());
    assert!(!client.insert("c", "r", 6, TEN_SECONDS).await.unwrap().is_done());
    assert_eq!(seen(client.query("42", b"r").await.unwrap()), Some(quota(42)));
    assert_eq!(client.query("0", [0, 255]).await.unwrap(), None);
    assert!(client.update("c", "r", QuotaAttribute::Ttl, Change::Decrease, 3).await.unwrap().is_done());
    assert!(!client.update("c", "r", QuotaAttribute::Quota, Change::Patch, 3).await.unwrap().is_done());
    assert!(client.purge("1", "").await.unwrap().is_done());
}

#[test]
fn a_pipeline_of_any_length_is_answered_in_order() {
    let peer = Peer::start(vec![serving()]);
    let client = peer.blocking();
    let names: Vec<_> = (0..3 * IN_FLIGHT_MAX + 7).map(|number| number.to_string()).collect();
    let requests: Vec<_> = names
        .iter()
        .flat_map(|name| [QuotaRequest::query(name, "r"), QuotaRequest::purge(name, "r")])
        .collect();
    let replies = client.pipeline(&requests).unwrap();
    assert_eq!(replies.len(), requests.len());
    for (request, reply) in requests.iter().zip(replies) {
        assert_eq!(reply, by_name(&request.command, request.consumer));
    }
    assert_eq!(client.pipeline(&[]).unwrap(), []);
}

#[tokio::test]
async fn an_async_pipeline_of_any_length_is_answered_in_order() {
    let peer = Peer::start(vec![serving()]);
    let client = peer.client();
    let names: Vec<_> = (0..3 * IN_FLIGHT_MAX + 7).map(|number| number.to_string()).collect();
    let requests: Vec<_> = names
        .iter()
        .flat_map(|name| [QuotaRequest::query(name, "r"), QuotaRequest::purge(name, "r")])
        .collect();
    // Two at a time have to share the permits.
    let (one, other) = tokio::join!(client.pipeline(&requests), client.pipeline(&requests));
    for replies in [one.unwrap(), other.unwrap()] {
        assert_eq!(replies.len(), requests.len());
        for (request, reply) in requests.iter().zip(replies) {
            assert_eq!(reply, by_name(&request.command, request.consumer));
        }
    }
    assert_eq!(client.pipeline(&[]).await.unwrap(), []);
}

#[tokio::test]
async fn an_async_pipeline_fails_unless_every_reply_arrives() {
    let one_of_two: Script = Box::new(|mut stream| {
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&[0, 0, 0, 0, 1]).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    });
    let peer = Peer::start(vec![one_of_two]);
    let client = peer.client();
    let purge = QuotaRequest::purge("c", "r");
    assert!(matches!(client.pipeline(&[purge, purge]).await, Err(ClientError::Disconnected { .. })));
}

#[tokio::test]
async fn many_callers_share_one_connection_and_one_write() {
    const CALLERS: usize = 500;
    let (sender, reads) = mpsc::channel();
    let peer = Peer::start(vec![Box::new(move |stream| sender.send(serve(stream, by_name)).unwrap())]);
    let client = peer.client();
    let mut calling = JoinSet::new();
    for number in 1..=CALLERS {
        let client = client.clone();
        calling.spawn(
            async move { (number, client.query(number.to_string(), "r").await.unwrap().unwrap().left) },
        );
    }
    for (number, left) in calling.join_all().await {
        assert_eq!(left, number as u64);
    }
    drop(client);
    // Aborted with the last client, the connection's task is gone when the runtime next looks.
    tokio::task::yield_now().await;
    let reads = tokio::task::spawn_blocking(move || reads.recv_timeout(TEST_TIMEOUT).unwrap()).await.unwrap();
    assert!(reads < CALLERS / 10, "{reads} reads for {CALLERS} requests");
}

#[tokio::test]
async fn a_server_that_hangs_up_is_said_to_and_the_next_call_finds_the_next() {
    let hang_up = || -> Script { Box::new(|mut stream| heard_something(&mut stream)) };
    let half_a_reply = || -> Script {
        Box::new(|mut stream| {
            heard_something(&mut stream);
            stream.write_all(&[0, 0, 0]).unwrap();
        })
    };
    let peer = Peer::start(vec![hang_up(), half_a_reply(), serving()]);
    let client = peer.blocking();
    for _ in 0..2 {
        assert!(matches!(client.query("7", "r"), Err(ClientError::Disconnected { .. })));
    }
    assert_eq!(seen(client.query("7", "r").unwrap()), Some(quota(7)));
    let peer = Peer::start(vec![hang_up(), half_a_reply(), serving()]);
    let client = peer.client();
    for _ in 0..2 {
        assert!(matches!(client.query("7", "r").await, Err(ClientError::Disconnected { .. })));
    }
    assert_eq!(seen(client.query("7", "r").await.unwrap()), Some(quota(7)));
}

#[tokio::test]
async fn what_was_answered_before_the_end_is_delivered() {
    let one_of_two: Script = Box::new(|mut stream| {
        let mut requests = [0; 18];
        stream.read_exact(&mut requests).unwrap();
        stream.write_all(&[0, 0, 0, 0, 1]).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    });
    let peer = Peer::start(vec![one_of_two]);
    let client = peer.client();
    let (one, other) = tokio::join!(client.purge("c", "r"), client.purge("c", "r"));
    assert!(one.unwrap().is_done());
    assert!(matches!(other, Err(ClientError::Disconnected { .. })));
}

#[tokio::test]
async fn silence_ends_at_the_deadline_and_a_dead_connection_is_left() {
    let (release, until) = mpsc::channel::<()>();
    // Open and silent for as long as the test takes; the next connection is served meanwhile.
    let silent: Script = Box::new(move |stream| {
        thread::spawn(move || {
            let _ = until.recv_timeout(TEST_TIMEOUT);
            drop(stream);
        });
    });
    let (release_other, until) = mpsc::channel::<()>();
    let also_silent: Script = Box::new(move |stream| {
        thread::spawn(move || {
            let _ = until.recv_timeout(TEST_TIMEOUT);
            drop(stream);
        });
    });
    let peer = Peer::start(vec![silent, also_silent, serving()]);
    let blocking = blocking::Client::with_timeout(&peer.addr.to_string(), IMPATIENCE).unwrap();
    assert!(matches!(blocking.query("7", "r"), Err(ClientError::TimedOut { timeout: IMPATIENCE, .. })));
    let client = Client::with_timeout(&peer.addr.to_string(), IMPATIENCE).unwrap();
    assert!(matches!(client.query("7", "r").await, Err(ClientError::TimedOut { timeout: IMPATIENCE, .. })));
    // Slow machines may need more than the one attempt, but not more than the one connection.
    let again = loop {
        match client.query("7", "r").await {
            Err(ClientError::TimedOut { .. }) => {}
            answer => break answer.unwrap(),
        }
    };
    assert_eq!(seen(again), Some(quota(7)));
    drop((release, release_other));
}

#[tokio::test]
async fn whoever_speaks_something_else_is_told_apart() {
    let saying = |bytes: &'static [u8]| -> Script {
        Box::new(move |mut stream| {
            heard_something(&mut stream);
            stream.write_all(bytes).unwrap();
            // Until the client has left: a reset could overtake what was said.
            let _ = stream.read(&mut [0; 100]);
        })
    };
    for (bytes, expected) in [
        (&b"HTTP/1.1 400 Bad Request"[..], "status"),
        (b"\x09\0\0\0\x01", "out of order"),
        (b"\0\0\0\0\x01\0\0\0\0\x01", "unrequested"),
    ] {
        let named = |error: ClientError| match error {
            ClientError::InvalidResponse { source: InvalidResponse::Throttr(invalid), .. } => match invalid {
                InvalidThrottrReply::Status(_) => "status",
                InvalidThrottrReply::OutOfOrder { .. } => "out of order",
                InvalidThrottrReply::Unrequested => "unrequested",
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        let peer = Peer::start(vec![saying(bytes), saying(bytes)]);
        let blocking = peer.blocking();
        assert_eq!(named(blocking.purge("c", "r").unwrap_err()), expected);
        let client = peer.client();
        match client.purge("c", "r").await {
            // What comes after the reply is the next caller's to find out.
            Ok(done) => assert!(done.is_done() && expected == "unrequested"),
            Err(error) => assert_eq!(named(error), expected),
        }
    }
}

#[tokio::test]
async fn patience_may_be_endless() {
    let peer = Peer::start(vec![serving(), serving()]);
    let blocking = blocking::Client::with_timeout(&peer.addr.to_string(), Duration::MAX).unwrap();
    assert!(blocking.purge("1", "r").unwrap().is_done());
    drop(blocking);
    let client = Client::with_timeout(&peer.addr.to_string(), Duration::MAX).unwrap();
    assert!(client.purge("1", "r").await.unwrap().is_done());
}

#[test]
fn an_address_without_a_port_has_the_default_one() {
    assert_eq!(Client::new("limiter").unwrap().address(), "limiter:9000");
    assert_eq!(blocking::Client::new("limiter").unwrap().address(), "limiter:9000");
    assert!(Client::new("tcp://limiter").is_err() && blocking::Client::new("").is_err());
}

#[tokio::test]
async fn nobody_there_is_said_at_once() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let blocking = blocking::Client::with_timeout(&gone, TEST_TIMEOUT).unwrap();
    assert!(matches!(blocking.query("c", "r"), Err(ClientError::Refused { .. })));
    let client = Client::with_timeout(&gone, TEST_TIMEOUT).unwrap();
    let error = client.query("c", "r").await.unwrap_err();
    assert!(matches!(error, ClientError::Refused { .. }));
    assert!(error.to_string().contains("no server at"));
}

#[tokio::test]
async fn no_more_are_in_flight_than_the_bound() {
    let (sender, seen) = mpsc::channel();
    let counting: Script = Box::new(move |mut stream| {
        let (mut bytes, mut buffer) = (0, vec![0; 1 << 16]);
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            bytes += len;
        }
        sender.send(bytes).unwrap();
    });
    let peer = Peer::start(vec![counting]);
    let client = Client::with_timeout(&peer.addr.to_string(), 4 * IMPATIENCE).unwrap();
    let mut calling = JoinSet::new();
    for _ in 0..IN_FLIGHT_MAX + 100 {
        let client = client.clone();
        calling.spawn(async move { client.purge("c", "r").await });
    }
    // The first to give up ends the silent connection, and nobody is left to take the next.
    while let Some(called) = calling.join_next().await {
        assert!(called.unwrap().is_err());
    }
    let bytes = tokio::task::spawn_blocking(move || seen.recv_timeout(TEST_TIMEOUT).unwrap()).await.unwrap();
    assert!(bytes <= IN_FLIGHT_MAX * 9, "{bytes} bytes");
}

#[tokio::test]
async fn an_id_that_does_not_fit_is_rejected_before_anything_is_sent() {
    let peer = Peer::start(vec![serving()]);
    let long = [b'x'; 256];
    let blocking = peer.blocking();
    let pipeline = [QuotaRequest::query("7", "r"), QuotaRequest::query("7", &long)];
    assert!(matches!(
        blocking.pipeline(&pipeline),
        Err(ClientError::InvalidRequest(InvalidRequest::Throttr(_)))
    ));
    let client = peer.client();
    assert!(matches!(
        client.query(long, "r").await,
        Err(ClientError::InvalidRequest(InvalidRequest::Throttr(_)))
    ));
    assert_eq!(seen(client.query("7", &long[1..]).await.unwrap()), Some(quota(7)));
}

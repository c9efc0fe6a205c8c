//! A toy gate, which shows what a gate over TCP consists of, and gates that fail.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::timeout;
use tollway::config::{Gates, HostNames, MaxConnections, ThrottrSettings, TrustedNetworks, WatchSettings};
use tollway::engine::Engine;
use tollway::{Clock, Config};
use tollway_core::Timestamp;
use tollway_testbed::{TEST_TIMEOUT, eventually};

use super::connection::{self, BufferPool, Missing, Next, Received, Session};
use super::stream::GateStream;
use super::tcp::{RETRY_PAUSE, ServeConnection, Sessions, TcpProtocol};
use super::text::TextGate;
use super::*;
use crate::audit::Auditor;
use crate::bounds::Bounds;
use crate::caller::Authenticator;
use crate::drain::{DrainSwitch, drain};
use crate::server::{GateAddresses, Server};
use crate::tap::Tap;
use crate::watch::{LiveFeed, Watch};
use crate::worker::{Health, Shared};

/// The toy: it answers every line `ping` with a line `pong`, and others with a question mark.
#[derive(Default)]
struct Ping {
    drained: Arc<AtomicBool>,
}

struct PingSession;

impl TcpProtocol for Ping {
    type Shared = Arc<AtomicBool>;
    type Session = PingSession;

    fn shared(&self, _worker: &Arc<Worker>) -> Arc<AtomicBool> {
        Arc::clone(&self.drained)
    }

    fn session(_shared: &Arc<Arc<AtomicBool>>, _peer: IpAddr, _is_reserved: bool) -> PingSession {
        PingSession
    }

    async fn drained(shared: &Arc<AtomicBool>) {
        yield_now().await;
        shared.store(true, Ordering::SeqCst);
    }
}

impl Session for PingSession {
    type Scratch = ();

    async fn receive(
        &mut self,
        arrived: &[u8],
        output: &mut Vec<u8>,
        (): &mut (),
        draining: bool,
    ) -> Received {
        let taken = arrived.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in arrived[..taken].split_inclusive(|byte| *byte == b'\n') {
            match line {
                b"ping\n" => output.extend_from_slice(b"pong\n"),
                b"panic\n" => panic!("as requested"),
                _ => output.extend_from_slice(b"?\n"),
            }
        }
        let next = match (taken == arrived.len(), draining) {
            (false, _) => Next::Read(Missing::Frame),
            (true, false) => Next::Read(Missing::Nothing),
            (true, true) => Next::Refuse,
        };
        Received { taken, next, at: Instant::now() }
    }
}

/// A gate whose task panics when it is told to, and which may have to be started three times.
#[derive(Default)]
struct Fragile {
    hard_to_start: bool,
    panic: Notify,
    started: AtomicUsize,
}

impl Gate for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }

    fn address(&self) -> SocketAddr {
        any_port()
    }

    fn serve(self: Arc<Self>, _socket: Socket, worker: Arc<Worker>) -> io::Result<GateFuture> {
        match self.started.fetch_add(1, Ordering::SeqCst) {
            0 if self.hard_to_start => panic!("as requested"),
            1 if self.hard_to_start => return Err(io::Error::other("as requested")),
            _ => {}
        }
        Ok(Box::pin(async move {
            tokio::select! {
                () = self.panic.notified() => panic!("as requested"),
                () = worker.drain.clone().started() => {}
            }
        }))
    }
}

/// A gate that never drains, and that panics where a worker asks it for its connections.
#[derive(Default)]
struct Stubborn {
    panics: AtomicBool,
}

impl Gate for Stubborn {
    fn name(&self) -> &'static str {
        "stubborn"
    }

    fn address(&self) -> SocketAddr {
        any_port()
    }

    fn serve(self: Arc<Self>, _socket: Socket, _worker: Arc<Worker>) -> io::Result<GateFuture> {
        Ok(Box::pin(std::future::pending()))
    }

    fn connection_limit(&self) -> Option<&ConnectionLimit> {
        assert!(!self.panics.load(Ordering::SeqCst), "as requested");
        None
    }
}

/// A text gate with a socket of the wrong kind, from which nothing can be received before it is connected.
struct Deaf {
    text: Arc<TextGate>,
    socket: Socket,
}

impl Gate for Deaf {
    fn name(&self) -> &'static str {
        "text"
    }

    fn address(&self) -> SocketAddr {
        any_port()
    }

    fn serve(self: Arc<Self>, _socket: Socket, worker: Arc<Worker>) -> io::Result<GateFuture> {
        Arc::clone(&self.text).serve(self.socket.try_clone()?, worker)
    }
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn settings() -> Settings {
    let limiter = Engine::open(Config::default(), Clock::monotonic()).unwrap();
    let gates = Gates { http: Some(any_port()), ..Gates::OFF };
    Settings { gates, workers: 1, ..Settings::new(Arc::new(limiter)) }
}

/// Starts the HTTP gate beside these.
fn start(settings: Settings, others: Vec<Arc<dyn Gate>>) -> Server {
    let mut listed = listed(&settings).unwrap();
    listed.gates.extend(others);
    Server::start_gates(settings, listed).unwrap()
}

fn ping_gate(total: usize) -> Arc<dyn Gate> {
    let limit = ConnectionLimit::new(&MaxConnections { total, per_address: None });
    Arc::new(TcpGate::new("ping", any_port(), limit, Ping::default()))
}

fn connect(server: &Server, gate: &str) -> TcpStream {
    let stream = TcpStream::connect(server.address_of(gate).unwrap()).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, request: &str, answer: &str) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut received = vec![0; answer.len()];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(String::from_utf8_lossy(&received), answer);
}

fn get(server: &Server, path: &str) -> String {
    let mut stream = connect(server, "http");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_gate_is_its_sessions_and_a_line_in_the_list() {
    let server = start(settings(), vec![ping_gate(10)]);
    let mut client = connect(&server, "ping");
    ask(&mut client, "ping\nwhat\nping\npi", "pong\n?\npong\n");
    ask(&mut client, "ng\n", "pong\n");
    let page = get(&server, "/metrics");
    assert!(page.contains("tollway_connections{gate=\"ping\"} 1\n"), "{page}");
    server.drain();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
}

#[test]
fn an_address_in_use_is_an_error_that_names_the_gate() {
    let taken = std::net::TcpListener::bind(any_port()).unwrap();
    let address = taken.local_addr().unwrap();
    let settings = settings();
    let gates = Gates { throttr: Some(address), ..settings.gates };
    let error = Server::start(Settings { gates, ..settings }).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let failed = error.get_ref().and_then(|inner| inner.downcast_ref::<BindError>()).unwrap();
    assert_eq!((failed.gate, failed.address), ("throttr", address));
}

#[test]
fn a_drain_waits_for_what_clients_sent_even_if_none_is_connected() {
    let ping = Ping::default();
    let drained = Arc::clone(&ping.drained);
    let limit = ConnectionLimit::new(&MaxConnections::DEFAULT);
    let server = start(settings(), vec![Arc::new(TcpGate::new("ping", any_port(), limit, ping))]);
    server.stop();
    assert!(drained.load(Ordering::SeqCst));
}

#[test]
fn a_panic_in_one_connection_ends_that_one() {
    let server = start(settings(), vec![ping_gate(10)]);
    let (mut bad, mut good) = (connect(&server, "ping"), connect(&server, "ping"));
    bad.write_all(b"panic\n").unwrap();
    assert_eq!(bad.read_to_end(&mut Vec::new()).unwrap(), 0);
    ask(&mut good, "ping\n", "pong\n");
    assert!(get(&server, "/healthz").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_full_gate_makes_room_by_closing_an_idle_connection() {
    let server = start(settings(), vec![ping_gate(2)]);
    let (mut first, mut second) = (connect(&server, "ping"), connect(&server, "ping"));
    ask(&mut first, "ping\n", "pong\n");
    ask(&mut second, "ping\nunfinished", "pong\n");
    let mut third = connect(&server, "ping");
    ask(&mut third, "ping\nunfinished", "pong\n");
    assert_eq!(first.read_to_end(&mut Vec::new()).unwrap(), 0, "it was idle for longest");
    let mut fourth = connect(&server, "ping");
    assert_eq!(fourth.read_to_end(&mut Vec::new()).unwrap(), 0, "nobody is idle");
    ask(&mut second, "\n", "?\n");
    let page = get(&server, "/metrics");
    for line in ["evicted_total{gate=\"ping\"} 1\n", "refused_total{gate=\"ping\",reason=\"gate\"} 1\n"] {
        assert!(page.contains(&format!("tollway_connections_{line}")), "{page}");
    }
}

#[test]
fn a_gate_that_panics_is_not_healthy_until_it_is_started_again() {
    for (pause, started, status) in [(TEST_TIMEOUT, 1, "503"), (Duration::ZERO, 2, "200")] {
        let settings = settings();
        let bounds = Bounds { restart_pause: pause, ..settings.bounds };
        let fragile = Arc::new(Fragile::default());
        let server = start(Settings { bounds, ..settings }, vec![Arc::clone(&fragile) as Arc<dyn Gate>]);
        assert!(get(&server, "/healthz").starts_with("HTTP/1.1 200 "));
        fragile.panic.notify_one();
        eventually(status, || {
            get(&server, "/healthz").starts_with(&format!("HTTP/1.1 {status} "))
                && fragile.started.load(Ordering::SeqCst) == started
        });
        server.stop();
    }
}

#[test]
fn a_gate_that_cannot_be_started_is_healthy_once_it_runs() {
    for (pause, started, status) in [(TEST_TIMEOUT, 1, "503"), (Duration::ZERO, 3, "200")] {
        let settings = settings();
        let bounds = Bounds { restart_pause: pause, ..settings.bounds };
        let fragile = Arc::new(Fragile { hard_to_start: true, ..Fragile::default() });
        let server = start(Settings { bounds, ..settings }, vec![Arc::clone(&fragile) as Arc<dyn Gate>]);
        eventually(status, || {
            get(&server, "/healthz").starts_with(&format!("HTTP/1.1 {status} "))
                && fragile.started.load(Ordering::SeqCst) == started
        });
        server.stop();
    }
}

#[test]
fn a_text_gate_that_cannot_receive_is_not_healthy_until_it_can_and_does_not_spin() {
    let began = Instant::now();
    let text = Arc::new(TextGate::new(any_port(), TrustedNetworks::LOCAL, 1));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let deaf = Deaf { text, socket: socket.try_clone().unwrap() };
    let server = start(settings(), vec![Arc::new(deaf)]);
    eventually("503", || get(&server, "/healthz").starts_with("HTTP/1.1 503 "));
    let page = get(&server, "/metrics");
    let counter = "tollway_text_errors_total{what=\"receive\"} ";
    let errors = page.lines().find_map(|line| line.strip_prefix(counter)).unwrap().parse::<u128>().unwrap();
    let most = began.elapsed().as_millis() / RETRY_PAUSE.as_millis() + 1;
    assert!((2..=most).contains(&errors), "{errors} errors, at most {most} are due");
    let listener = std::net::TcpListener::bind(any_port()).unwrap();
    // It is in progress, as for every socket that does not block.
    drop(socket.connect(&listener.local_addr().unwrap().into()));
    eventually("200", || get(&server, "/healthz").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_worker_that_panics_is_noticed() {
    let settings = settings();
    let bounds = Bounds { drain: Duration::ZERO, ..settings.bounds };
    let stubborn = Arc::new(Stubborn::default());
    let server = start(Settings { bounds, ..settings }, vec![Arc::clone(&stubborn) as Arc<dyn Gate>]);
    stubborn.panics.store(true, Ordering::SeqCst);
    server.drain();
    tollway::block_on(server.worker_failed());
    server.stop();
}

#[test]
fn a_bucket_that_is_full_again_is_swept_without_requests() {
    let clock = Clock::manual(Timestamp::EPOCH);
    let limiter = Arc::new(Engine::open(Config::default(), clock.clone()).unwrap());
    let server = start(Settings { limiter: Arc::clone(&limiter), ..settings() }, Vec::new());
    assert!(limiter.spend_now("demo", b"alice", 1).unwrap().unwrap().allowed());
    assert!(get(&server, "/metrics").contains("\ntollway_buckets 1\n"));
    clock.advance(Duration::from_secs(86_400));
    eventually("a sweep", || get(&server, "/metrics").contains("\ntollway_buckets 0\n"));
}

/// A session that always has something to send, and whose peer never ends.
struct Flood;

impl Session for Flood {
    type Scratch = ();
    const ENDLESS: bool = true;

    async fn receive(&mut self, arrived: &[u8], _: &mut Vec<u8>, (): &mut (), _: bool) -> Received {
        Received { taken: arrived.len(), next: Next::Read(Missing::Nothing), at: Instant::now() }
    }

    fn write_timeout(_: &Bounds) -> Option<Duration> {
        None
    }

    fn poll_push(&mut self, _: &mut Context<'_>, output: &mut Vec<u8>) -> Poll<()> {
        output.resize(1_000, 0);
        Poll::Ready(())
    }
}

/// Returns a worker that has no threads and no sockets.
fn worker(bounds: Bounds) -> (Arc<Worker>, DrainSwitch) {
    let (limiter, watch) = (settings().limiter, Arc::new(Watch::new(WatchSettings::DEFAULT, 1)));
    let shared = Shared {
        tap: Arc::new(Tap::new(Arc::clone(&limiter), bounds.recorders)),
        limiter: Arc::clone(&limiter),
        metrics: Arc::new(crate::metrics::Metrics::new(1)),
        bounds,
        gates: Vec::new(),
        addresses: GateAddresses::default(),
        health: Arc::new(Health::default()),
        watch: Arc::clone(&watch),
        auditor: Auditor::new(Arc::default(), limiter, watch),
        spans: None,
        feed: Arc::new(LiveFeed::new(bounds.watchers)),
        echo: false,
    };
    let (switch, drain) = drain();
    (Arc::new(Worker::new(0, Arc::new(shared), drain)), switch)
}

fn permit() -> limit::ConnectionPermit {
    let limit = Arc::new(ConnectionLimit::new(&MaxConnections::DEFAULT));
    limit.admit([127, 0, 0, 1].into()).unwrap()
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_cut() {
    let bounds = Bounds { write_time: Duration::from_millis(10), ..Bounds::default() };
    let (worker, _switch) = worker(bounds);
    let shared = Arc::new(http::Http::admin(&HostNames::NONE, Authenticator::open("admin")).shared(&worker));
    let session = http::Http::session(&shared, [127, 0, 0, 1].into(), false);
    let (stream, mut deaf) = duplex(64);
    deaf.write_all(b"GET /v1/live HTTP/1.0\r\n\r\n").await.unwrap();
    let buffers = BufferPool::new();
    let served = connection::serve(stream, session, permit(), &buffers, &worker);
    assert!(timeout(TEST_TIMEOUT, served).await.is_ok());
    assert_eq!(worker.metrics.cut_write.get(), 1);
    assert!(!worker.shared.feed.is_watched(), "its place is free again");
}

/// A session that answers nothing, and closes the connection.
struct Hasty;

impl Session for Hasty {
    type Scratch = ();

    async fn receive(&mut self, arrived: &[u8], _: &mut Vec<u8>, (): &mut (), _: bool) -> Received {
        Received { taken: arrived.len(), next: Next::Close, at: Instant::now() }
    }
}

/// A stream that has a close_notify to send, like that of TLS, and whose peer leaves no room for it.
struct NoRoomForFarewell(DuplexStream);

impl AsyncRead for NoRoomForFarewell {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for NoRoomForFarewell {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[tokio::test]
async fn a_peer_that_leaves_no_room_for_the_close_notify_is_cut() {
    let (worker, _switch) = worker(Bounds::default());
    let (stream, mut peer) = duplex(64);
    peer.write_all(b"close").await.unwrap();
    let buffers = BufferPool::new();
    let served = connection::serve(NoRoomForFarewell(stream), Hasty, permit(), &buffers, &worker);
    assert!(timeout(TEST_TIMEOUT, served).await.is_ok());
}

/// A peer that begins a transaction of Redis, and then has blank lines ready whenever it is asked.
struct AlwaysReady {
    first: &'static [u8],
    until: Instant,
}

impl AsyncRead for AlwaysReady {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let first = std::mem::take(&mut self.first);
        buffer.put_slice(first);
        if first.is_empty() && Instant::now() < self.until {
            let room = buffer.initialize_unfilled();
            room.fill(b'\n');
            let length = room.len();
            buffer.advance(length);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for AlwaysReady {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_peer_that_always_has_bytes_ready_is_cut_in_time() {
    let (worker, _switch) = worker(Bounds { idle: Duration::from_millis(10), ..Bounds::default() });
    let protocol = resp::Resp { allow_inline: true, auth: Authenticator::open("resp") };
    let session = resp::Resp::session(&Arc::new(protocol.shared(&worker)), [127, 0, 0, 1].into(), false);
    // Of a server that does not cut it, the peer ends the connection itself.
    let stream = AlwaysReady { first: b"MULTI\n", until: Instant::now() + TEST_TIMEOUT };
    connection::serve(stream, session, permit(), &BufferPool::new(), &worker).await;
    assert_eq!(worker.metrics.cut_idle.get(), 1);
}

#[tokio::test]
async fn a_drain_sleeps_while_a_peer_does_not_read() {
    let (worker, switch) = worker(Bounds::default());
    let (stream, _deaf) = duplex(64);
    let (permit, buffers) = (permit(), BufferPool::new());
    let mut polls = 0;
    let mut serving = pin!(connection::serve(stream, Flood, permit, &buffers, &worker));
    switch.start();
    let counted = std::future::poll_fn(|context| {
        polls += 1;
        serving.as_mut().poll(context)
    });
    // The timeout is for a failure of this test, in which it never ends.
    assert!(timeout(TEST_TIMEOUT, counted).await.is_ok());
    assert!(polls < 10, "woken {polls} times with nothing to do");
}

/// Returns the bytes of the task that serves one connection without TLS.
fn task_size<P: TcpProtocol>(protocol: P) -> usize {
    let (worker, _switch) = worker(Bounds::default());
    let (listener, limit) = (std::net::TcpListener::bind(any_port()).unwrap(), permit());
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nonblocking(true).unwrap();
    let stream = GateStream::Plain(tokio::net::TcpStream::from_std(client).unwrap());
    size_of_val(&Sessions::new(&protocol, &worker).serve(stream, [127, 0, 0, 1].into(), limit))
}

/// An idle connection keeps its task, and about a kilobyte of entries in tables and lists: 2.5 KB together for Throttr,
/// and 4 KB for HTTP, of which this is the part that a careless `await` makes grow.
#[tokio::test]
async fn the_task_of_a_connection_stays_small() {
    let throttr = task_size(throttr::Throttr { settings: ThrottrSettings::DEFAULT });
    let http = task_size(http::Http::admin(&HostNames::NONE, Authenticator::open("admin")));
    assert!(throttr <= 768, "the task of a Throttr connection has {throttr} bytes");
    assert!(http <= 1_280, "the task of an HTTP connection has {http} bytes");
}

/// Serves a connection that sends this and then nothing. Returns for how long, by the clock of the runtime.
async fn served_for<P: TcpProtocol>(protocol: P, worker: &Arc<Worker>, sent: &[u8]) -> Duration {
    let session = P::session(&Arc::new(protocol.shared(worker)), [127, 0, 0, 1].into(), false);
    let (stream, mut silent) = duplex(1_024);
    silent.write_all(sent).await.unwrap();
    let began = tokio::time::Instant::now();
    connection::serve(stream, session, permit(), &BufferPool::new(), worker).await;
    began.elapsed()
}

/// Returns whether a time is this many seconds, but for the milliseconds that the timers of the runtime count.
fn is_seconds(time: Duration, seconds: u64) -> bool {
    time.saturating_sub(Duration::from_secs(seconds)) <= Duration::from_millis(2)
        && time >= Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_message_is_waited_for_five_seconds() {
    let (worker, _switch) = worker(Bounds::default());
    let throttr = || throttr::Throttr { settings: ThrottrSettings::DEFAULT };
    let half = served_for(throttr(), &worker, b"\x02\x01\0\0").await;
    assert!(is_seconds(half, 5), "{half:?}");
    // A whole request before it does not change that.
    let half = served_for(throttr(), &worker, b"\x02\x01\0\0\0\x01\x01cr\x02\x01\0\0").await;
    assert!(is_seconds(half, 5), "{half:?}");
    let idle = served_for(throttr(), &worker, b"\x02\x01\0\0\0\x01\x01cr").await;
    assert!(is_seconds(idle, 75), "{idle:?}");
    let admin = http::Http::admin(&HostNames::NONE, Authenticator::open("admin"));
    let head = served_for(admin, &worker, b"GET / HTTP/1.1\r\nHost: a").await;
    // And one second in which the peer may read the answer.
    assert!(is_seconds(head, 6), "{head:?}");
    let metrics = &worker.metrics;
    assert_eq!((metrics.cut_frame.get(), metrics.cut_idle.get(), metrics.cut_head.get()), (2, 1, 1));
}

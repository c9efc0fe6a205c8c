//! Gates over TCP: accepts connections within the limits of the gate, and serves each in a task of its own.

use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{SockRef, Socket, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;
use tollway_core::LogThrottle;
use tracing::{error, warn};

use super::connection::{self, BufferPool, Session};
use super::limit::{ConnectionLimit, ConnectionPermit};
use super::stream::GateStream;
use super::tls::TlsServer;
use super::{Gate, GateFuture};
use crate::bounds::LOG_PAUSE;
use crate::metrics::Page;
use crate::worker::Worker;

/// The pause after an error of the system that may last, such as too many open files.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The time after which the system probes a silent peer, the time between probes, and the number that may fail. A
/// gatekeeper may have nothing to say for hours; one that is gone gives its place back after two minutes.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);

/// Defines a protocol over connections.
pub(super) trait TcpProtocol: Send + Sync + 'static {
    /// The state that the connections of one worker share.
    type Shared: Send + Sync + 'static;
    type Session: Session;

    /// Creates the state that the connections of one worker share.
    fn shared(&self, worker: &Arc<Worker>) -> Self::Shared;

    /// Creates the session of a new connection from `peer`. One that is reserved exists because the gate was full.
    fn session(shared: &Arc<Self::Shared>, peer: IpAddr, is_reserved: bool) -> Self::Session;

    /// Returns a task that runs beside the connections of one worker, if there is one.
    fn background(&self, _shared: &Arc<Self::Shared>) -> Option<GateFuture> {
        None
    }

    /// Returns when everything that the connections received before a drain has had its effect.
    fn drained(_shared: &Self::Shared) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Appends the metrics that are no counters of a worker.
    fn write_metrics(&self, _page: &mut Page) {}
}

/// Listens for the connections of one protocol.
pub(super) struct TcpGate<P> {
    name: &'static str,
    address: SocketAddr,
    limit: Arc<ConnectionLimit>,
    tls: Option<Arc<TlsServer>>,
    protocol: P,
}

impl<P: TcpProtocol> TcpGate<P> {
    pub(super) fn new(name: &'static str, address: SocketAddr, limit: ConnectionLimit, protocol: P) -> Self {
        Self { name, address, limit: Arc::new(limit), tls: None, protocol }
    }

    /// Sets the TLS of the gate, or `None` for plain text.
    pub(super) fn with_tls(self, tls: Option<Arc<TlsServer>>) -> Self {
        Self { tls, ..self }
    }
}

impl<P: TcpProtocol> Gate for TcpGate<P> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn serve(self: Arc<Self>, socket: Socket, worker: Arc<Worker>) -> io::Result<GateFuture> {
        let listener = TcpListener::from_std(socket.into())?;
        let sessions = Sessions::new(&self.protocol, &worker);
        let mut background = JoinSet::new();
        if let Some(task) = self.protocol.background(&sessions.shared) {
            background.spawn(task);
        }
        let acceptor = Acceptor::new(&self.limit, self.tls.as_ref(), sessions, worker);
        Ok(Box::pin(acceptor.run(listener, background)))
    }

    fn connection_limit(&self) -> Option<&ConnectionLimit> {
        Some(&self.limit)
    }

    fn tls(&self) -> Option<&TlsServer> {
        self.tls.as_deref()
    }

    fn write_metrics(&self, page: &mut Page) {
        self.protocol.write_metrics(page);
    }
}

/// Serves the connections of one gate on one worker.
pub(super) trait ServeConnection: Send + Sync + 'static {
    /// True if the peer never ends a connection by itself.
    const ENDLESS: bool;
    /// True if the system probes a silent peer, because nothing else notices that it is gone.
    const KEEP_ALIVE: bool = Self::ENDLESS;

    /// Returns the task that serves a connection until one side ends it or the server has drained.
    fn serve(
        &self,
        stream: GateStream,
        peer: IpAddr,
        permit: ConnectionPermit,
    ) -> impl Future<Output = ()> + Send + 'static;

    /// Returns when everything that the connections received before a drain has had its effect.
    fn drained(&self) -> impl Future<Output = ()> + Send {
        ready(())
    }
}

/// Serves connections by the sessions of a protocol.
pub(super) struct Sessions<P: TcpProtocol> {
    shared: Arc<P::Shared>,
    buffers: Arc<BufferPool<<P::Session as Session>::Scratch>>,
    worker: Arc<Worker>,
}

impl<P: TcpProtocol> Sessions<P> {
    pub(super) fn new(protocol: &P, worker: &Arc<Worker>) -> Self {
        let shared = Arc::new(protocol.shared(worker));
        Self { shared, buffers: Arc::new(BufferPool::new()), worker: Arc::clone(worker) }
    }
}

impl<P: TcpProtocol> ServeConnection for Sessions<P> {
    const ENDLESS: bool = P::Session::ENDLESS;
    const KEEP_ALIVE: bool = P::Session::KEEP_ALIVE;

    fn serve(
        &self,
        stream: GateStream,
        peer: IpAddr,
        permit: ConnectionPermit,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut session = P::session(&self.shared, peer, permit.is_reserved());
        if let Some(name) = stream.certificate_name() {
            session.set_certificate(name);
        }
        let (buffers, worker) = (Arc::clone(&self.buffers), Arc::clone(&self.worker));
        async move { connection::serve(stream, session, permit, &buffers, &worker).await }
    }

    fn drained(&self) -> impl Future<Output = ()> + Send {
        P::drained(&self.shared)
    }
}

/// Accepts the connections of one gate on one worker.
pub(super) struct Acceptor<S> {
    limit: Arc<ConnectionLimit>,
    tls: Option<Arc<TlsServer>>,
    server: Arc<S>,
    worker: Arc<Worker>,
    connections: JoinSet<()>,
}

impl<S: ServeConnection> Acceptor<S> {
    pub(super) fn new(
        limit: &Arc<ConnectionLimit>,
        tls: Option<&Arc<TlsServer>>,
        server: S,
        worker: Arc<Worker>,
    ) -> Self {
        let (limit, tls) = (Arc::clone(limit), tls.cloned());
        Self { limit, tls, server: Arc::new(server), worker, connections: JoinSet::new() }
    }

    /// Accepts connections until the drain starts, then waits until all have ended and what they sent has its effect.
    pub(super) async fn run(mut self, listener: TcpListener, mut background: JoinSet<()>) {
        let mut draining = pin!(self.worker.drain.clone().started());
        let throttle = LogThrottle::new(LOG_PAUSE, Instant::now());
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        self.admit(stream, peer);
                        if self.tls.is_some() {
                            // Otherwise up to 128 are accepted before open connections are looked at, and with
                            // what a handshake costs, their clients would wait for milliseconds.
                            yield_now().await;
                        }
                    }
                    Err(error) => pause(&error, &throttle).await,
                },
                Some(ended) = self.connections.join_next() => report(ended),
                Some(ended) = background.join_next() => propagate(ended),
                () = &mut draining => break,
            }
        }
        self.admit_waiting(listener);
        let mut drained = pin!(async {
            while let Some(ended) = self.connections.join_next().await {
                report(ended);
            }
            self.server.drained().await;
        });
        loop {
            tokio::select! {
                () = &mut drained => return,
                Some(ended) = background.join_next() => propagate(ended),
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        // A refused peer sees the connection closed: most protocols have no word for it.
        let Some(permit) = self.limit.admit(peer.ip()) else { return };
        // Without it, the second of two pipelined answers waits for the client's delayed acknowledgement: 40 ms.
        let _ = stream.set_nodelay(true);
        if S::KEEP_ALIVE {
            let _ = keep_alive(&stream);
        }
        let evictable = permit.evictable();
        let task = match &self.tls {
            None => {
                let serving = self.server.serve(GateStream::Plain(stream), peer.ip(), permit);
                self.connections.spawn(serving)
            }
            Some(tls) => {
                // The permit is taken before: a handshake is a connection.
                let Some(handshake) = tls.begin(peer.ip()) else { return };
                let (server, worker) = (Arc::clone(&self.server), Arc::clone(&self.worker));
                let evictable = handshake.evictable();
                let task = self.connections.spawn(async move {
                    if let Some(stream) = handshake.run(stream, &worker).await {
                        server.serve(GateStream::Tls(stream), peer.ip(), permit).await;
                    }
                });
                evictable.by_ending(task.clone());
                task
            }
        };
        evictable.by_ending(task);
    }

    /// Admits the connections that the kernel accepted before the drain: their requests get an answer.
    fn admit_waiting(&mut self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else { return };
        while !S::ENDLESS
            && let Ok((stream, peer)) = listener.accept()
        {
            if stream.set_nonblocking(true).is_ok()
                && let Ok(stream) = TcpStream::from_std(stream)
            {
                self.admit(stream, peer);
            }
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        error!("a connection task panicked; the others continue");
    }
}

/// Continues the panic of a task that serves the whole gate, so that the gate is started again.
pub(super) fn propagate(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        resume_unwind(panic);
    }
}

fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let (idle, interval, count) = KEEPALIVE;
    let probes = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(count);
    SockRef::from(stream).set_tcp_keepalive(&probes)
}

/// Pauses when the process is out of files or memory: open connections may be about to give some back. Other errors
/// concern one client only.
async fn pause(error: &io::Error, throttle: &LogThrottle) {
    let of_client =
        [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::Interrupted];
    if of_client.contains(&error.kind()) {
        return;
    }
    if let Some(held_back) = throttle.allow(Instant::now()) {
        warn!(%error, held_back, "cannot accept connections");
    }
    sleep(RETRY_PAUSE).await;
}

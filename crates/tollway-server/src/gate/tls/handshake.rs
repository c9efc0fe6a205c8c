//! One handshake: reads, lets a thread do the work, and writes, until both sides agree or time is over.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use rustls::ServerConnection;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tollway_core::ErrorChain;
use tracing::{debug, warn};

use super::TlsServer;
use super::stream::{self, TlsStream};
use crate::gate::limit::{ConnectionPermit, Evictable};
use crate::worker::Worker;

/// A handshake that has begun.
pub(in crate::gate) struct Handshake {
    server: Arc<TlsServer>,
    peer: IpAddr,
    permit: ConnectionPermit,
}

/// The reasons why a handshake ends without a connection.
#[derive(Debug, Error)]
enum HandshakeError {
    #[error("the client closed the connection")]
    HungUp,
    #[error("the connection failed")]
    Io(#[from] io::Error),
    #[error("the handshake failed")]
    Tls(#[from] rustls::Error),
    #[error("the work of the handshake panicked")]
    Panicked,
    #[error("the client took too long")]
    TimedOut,
    #[error("the server drains")]
    Drained,
    #[error("another handshake got the place of this one")]
    Evicted,
}

impl HandshakeError {
    /// Returns whether the client showed no certificate, or one that is not accepted.
    const fn refuses_certificate(&self) -> bool {
        use rustls::Error::{InvalidCertificate, NoCertificatesPresented};
        matches!(self, Self::Tls(InvalidCertificate(_) | NoCertificatesPresented))
    }
}

impl Handshake {
    pub(super) fn new(server: Arc<TlsServer>, peer: IpAddr, permit: ConnectionPermit) -> Self {
        Self { server, peer, permit }
    }

    /// Returns what makes this handshake one that can be ended to make room for another.
    pub(in crate::gate) fn evictable(&self) -> Evictable {
        self.permit.evictable()
    }

    /// Makes the handshake. Returns `None` if it fails or takes too long, which is counted.
    pub(in crate::gate) async fn run(self, mut socket: TcpStream, worker: &Worker) -> Option<TlsStream> {
        let bounds = worker.bounds();
        let drained = async {
            worker.drain.clone().started().await;
            // No request has been read yet, so none is lost.
            sleep(bounds.drain_idle).await;
        };
        let handshake = timeout(bounds.tls_handshake_time, self.exchange(&mut socket));
        let connection = tokio::select! {
            done = handshake => done.unwrap_or(Err(HandshakeError::TimedOut)),
            () = drained => Err(HandshakeError::Drained),
        };
        self.count(&connection);
        connection.ok().map(|connection| TlsStream::new(connection, socket))
    }

    async fn exchange(&self, socket: &mut TcpStream) -> Result<Box<ServerConnection>, HandshakeError> {
        let config = Arc::clone(&self.server.in_force.load().config);
        let mut connection = Box::new(ServerConnection::new(config)?);
        let began = Instant::now();
        loop {
            if stream::receive(&mut connection, socket).await? == 0 {
                return Err(HandshakeError::HungUp);
            }
            if !self.permit.set_busy() {
                return Err(HandshakeError::Evicted);
            }
            let processed = self.server.threads.process(connection).await;
            let (back, processed) = processed.ok_or(HandshakeError::Panicked)?;
            connection = back;
            // After an error, too: the alert tells the client what is wrong.
            let sent = stream::send_all(&mut connection, socket).await;
            processed?;
            sent?;
            if !connection.is_handshaking() {
                return Ok(connection);
            }
            // Since its start, not since its last bytes: a client that sends one at a time would never be the oldest.
            self.permit.set_idle(began);
        }
    }

    fn count<T>(&self, outcome: &Result<T, HandshakeError>) {
        let counters = &self.server.counters;
        let error = match outcome {
            Ok(_) => return counters.done.one(),
            // The limit has counted it.
            Err(HandshakeError::Evicted) => return,
            Err(error) => error,
        };
        let counter =
            if matches!(error, HandshakeError::TimedOut) { &counters.timed_out } else { &counters.failed };
        counter.one();
        let (now, server) = (Instant::now(), &self.server);
        if error.refuses_certificate() {
            // Nobody but the server knows the reason: a client only learns that it was refused.
            if let Some(held_back) = server.refusals.allow(now) {
                warn!(gate = server.gate, peer = %self.peer, held_back, "client certificate refused: {}", ErrorChain(error));
            }
        } else if let HandshakeError::Tls(_) = error {
            if let Some(held_back) = server.failures.allow(now) {
                warn!(gate = server.gate, peer = %self.peer, held_back, "no TLS connection: {}", ErrorChain(error));
            }
        } else if let Some(held_back) = server.early_ends.allow(now) {
            // Not louder: a health check that only connects ends like this, too.
            debug!(gate = server.gate, peer = %self.peer, held_back, "no TLS connection: {}", ErrorChain(error));
        }
    }
}

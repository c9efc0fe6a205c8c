//! Keeps many requests in flight over one socket, for programs on tokio.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::net::{UdpSocket, lookup_host};
use tokio::sync::{Mutex as AsyncMutex, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tollway_wire::text::{CheckLimit, DATAGRAM_MAX, TextCommand};

#[cfg(feature = "hmac")]
use super::SigningKey;
use super::codec::{datagram, first_id, key_answer, pong, raw_datagram, size, split_reply, stats};
use super::signing::{ReplyCheck, RequestSigner};
use super::{DEFAULT_PORT, DEFAULT_TIMEOUT, KeyAnswer, KeyStats, local_address_for};
use crate::address::host_and_port;
use crate::error::no_address;
use crate::{ClientError, InvalidAddress, InvalidRequest, InvalidResponse, TIMEOUT_MAX};

/// The number of requests of one async client that may wait for their replies. More requests wait for their turn,
/// within their timeout.
pub const IN_FLIGHT_MAX: usize = 4096;

/// The pause after the socket failed, so that a socket that fails at once does not keep a core busy.
const FAILURE_PAUSE: Duration = Duration::from_millis(10);

/// A client that asks one server, for programs on tokio. Clones share the socket, and any number of tasks may use it.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    timeout: Duration,
    signer: RequestSigner,
}

#[derive(Debug)]
struct Shared {
    address: String,
    next_id: AtomicU64,
    /// The permits to be in flight.
    permits: Semaphore,
    socket: OnceLock<ClientSocket>,
    /// Locked while the socket is opened.
    opening: Arc<AsyncMutex<()>>,
}

/// An open socket, and the task that receives replies from it. The task ends when this is dropped.
#[derive(Debug)]
struct ClientSocket {
    state: Arc<SocketState>,
    receiver: JoinHandle<()>,
}

#[derive(Debug)]
struct SocketState {
    socket: UdpSocket,
    pending: Mutex<PendingRequests>,
}

/// The requests that are in flight, by id.
type PendingRequests = HashMap<u64, PendingRequest>;

/// A request that waits for its reply.
#[derive(Debug)]
struct PendingRequest {
    check: ReplyCheck,
    sender: oneshot::Sender<Vec<u8>>,
}

impl Client {
    /// Creates a client of the server at `address`: `HOST`, or `HOST:PORT` if the port is not
    /// [`DEFAULT_PORT`](super::DEFAULT_PORT). No socket is opened yet.
    pub fn new(address: &str) -> Result<Self, InvalidAddress> {
        Self::with_timeout(address, DEFAULT_TIMEOUT)
    }

    /// Creates a client that waits for a reply for at most `timeout`, and never more than a day.
    pub fn with_timeout(address: &str, timeout: Duration) -> Result<Self, InvalidAddress> {
        let shared = Shared {
            address: host_and_port(address, DEFAULT_PORT)?,
            next_id: AtomicU64::new(first_id()),
            permits: Semaphore::new(IN_FLIGHT_MAX),
            socket: OnceLock::new(),
            opening: Arc::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            timeout: timeout.min(TIMEOUT_MAX),
            signer: RequestSigner::default(),
        })
    }

    /// Signs every request with `key`, and ignores replies that the server did not sign with it.
    #[cfg(feature = "hmac")]
    #[must_use]
    pub fn with_key(self, key: SigningKey) -> Self {
        Self { signer: RequestSigner::new(key), ..self }
    }

    /// Returns the address of the server: its host and port.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Counts one use of a key. Without a reply, the key counts as under its limit.
    pub async fn over_limit(&self, key: impl AsRef<[u8]>) -> Result<KeyAnswer, ClientError> {
        key_answer(self.command(TextCommand::OverLimit { key: key.as_ref() }).await)
    }

    /// Counts one use of the keys of a user agent, of an address and of everybody, up to the first over its limit.
    pub async fn check_limit(&self, check: CheckLimit<'_>) -> Result<KeyAnswer, ClientError> {
        key_answer(self.command(TextCommand::CheckLimit(check)).await)
    }

    /// Returns the statistics of a key.
    pub async fn get_stats(&self, key: impl AsRef<[u8]>) -> Result<KeyStats, ClientError> {
        self.decode(&self.command(TextCommand::GetStats { key: key.as_ref() }).await?, stats)
    }

    /// Returns the number of keys that the server remembers.
    pub async fn get_size(&self) -> Result<u64, ClientError> {
        self.decode(&self.command(TextCommand::GetSize).await?, size)
    }

    /// Returns without an error if the server replies.
    pub async fn ping(&self) -> Result<(), ClientError> {
        self.decode(&self.command(TextCommand::Ping).await?, pong)
    }

    /// Sends a command in the words of the protocol, such as `over_limit ws global`, and returns the words of the
    /// reply. The id is added to the command and removed from the reply.
    pub async fn ask(&self, command: &[u8]) -> Result<Vec<u8>, ClientError> {
        self.exchange(|id| raw_datagram(id, command)).await
    }

    async fn command(&self, command: TextCommand<'_>) -> Result<Vec<u8>, ClientError> {
        self.exchange(|id| datagram(id, command)).await
    }

    fn decode<T>(&self, reply: &[u8], read: fn(&[u8]) -> Option<T>) -> Result<T, ClientError> {
        read(reply).ok_or_else(|| {
            let source = InvalidResponse::Text { reply: String::from_utf8_lossy(reply).into_owned() };
            ClientError::InvalidResponse { address: self.address().to_owned(), source }
        })
    }

    async fn exchange(
        &self,
        datagram: impl FnOnce(u64) -> Result<Vec<u8>, InvalidRequest>,
    ) -> Result<Vec<u8>, ClientError> {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let (datagram, check) = self.signer.sign(datagram(id)?)?;
        match timeout(self.timeout, self.exchange_in_time(id, &datagram, check)).await {
            Ok(exchanged) => exchanged,
            Err(_) => {
                Err(ClientError::TimedOut { address: self.address().to_owned(), timeout: self.timeout })
            }
        }
    }

    async fn exchange_in_time(
        &self,
        id: u64,
        datagram: &[u8],
        check: ReplyCheck,
    ) -> Result<Vec<u8>, ClientError> {
        let failed = |error| ClientError::connecting(self.address(), self.timeout, error);
        // It is never closed, so this cannot fail.
        let _permit = self.shared.permits.acquire().await.map_err(|error| failed(io::Error::other(error)))?;
        let socket = match self.shared.socket.get() {
            Some(socket) => socket,
            None => Shared::open(&self.shared, self.timeout).await?,
        };
        socket.state.exchange(id, datagram, check).await.map_err(failed)
    }
}

impl Shared {
    /// Opens the socket, or waits until another call has opened it.
    async fn open(shared: &Arc<Self>, timeout: Duration) -> Result<&ClientSocket, ClientError> {
        let failed = |error| ClientError::connecting(&shared.address, timeout, error);
        let opening = Arc::clone(&shared.opening).lock_owned().await;
        if shared.socket.get().is_none() {
            let this = Arc::clone(shared);
            // A task of its own, because a lookup may take longer than the timeout of a call. Dropped with the call, it
            // would start again with each.
            let opened = tokio::spawn(async move {
                let opened = ClientSocket::open(&this.address, timeout).await;
                let opened = opened.map(|socket| drop(this.socket.set(socket)));
                drop(opening);
                opened
            });
            opened.await.map_err(|error| failed(io::Error::other(error)))??;
        }
        shared.socket.get().ok_or_else(|| failed(io::ErrorKind::NotConnected.into()))
    }
}

impl ClientSocket {
    async fn open(address: &str, timeout: Duration) -> Result<Self, ClientError> {
        let mut found = lookup_host(address).await.map_err(|error| ClientError::lookup(address, error))?;
        let server = found.next().ok_or_else(|| ClientError::lookup(address, no_address()))?;
        Self::connect(server).await.map_err(|error| ClientError::connecting(address, timeout, error))
    }

    async fn connect(server: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(local_address_for(server)).await?;
        // A connected socket receives datagrams of the server alone, and the system's word that nothing listens there.
        socket.connect(server).await?;
        let state = Arc::new(SocketState { socket, pending: Mutex::default() });
        let receiver = tokio::spawn(receive(Arc::clone(&state)));
        Ok(Self { state, receiver })
    }
}

impl Drop for ClientSocket {
    fn drop(&mut self) {
        self.receiver.abort();
    }
}

impl SocketState {
    async fn exchange(&self, id: u64, datagram: &[u8], check: ReplyCheck) -> io::Result<Vec<u8>> {
        let (sender, receiver) = oneshot::channel();
        self.pending().insert(id, PendingRequest { check, sender });
        // From here on a caller that gives up, for whatever reason, removes its request.
        let _registration = Registration { state: self, id };
        self.send(datagram).await?;
        receiver.await.map_err(|_| io::ErrorKind::ConnectionRefused.into())
    }

    async fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match self.socket.send(datagram).await {
            // This is about an earlier datagram. A server may have started since.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.socket.send(datagram).await
            }
            sent => sent,
        }?;
        Ok(())
    }

    /// Takes the request that a datagram replies to, with the words of the reply. A datagram with a wrong signature
    /// replies to nothing: the right one may still come.
    fn take_replied(&self, datagram: &[u8]) -> Option<(PendingRequest, Vec<u8>)> {
        let (id, _) = split_reply(datagram)?;
        let mut pending = self.pending();
        let (_, words) = split_reply(pending.get(&id)?.check.reply(datagram)?)?;
        Some((pending.remove(&id)?, words.to_vec()))
    }

    fn pending(&self) -> MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of a request in the pending requests, removed when dropped.
struct Registration<'a> {
    state: &'a SocketState,
    id: u64,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.state.pending().remove(&self.id);
    }
}

/// Hands every reply to its request, and ignores replies without one.
async fn receive(state: Arc<SocketState>) {
    let mut buffer = [0; DATAGRAM_MAX];
    loop {
        match state.socket.recv(&mut buffer).await {
            Ok(len) => {
                if let Some((request, words)) = state.take_replied(&buffer[..len]) {
                    // A caller that gave up in this moment has its answer already: N.
                    let _ = request.sender.send(words);
                }
            }
            // Nothing listens there, so no reply will come to any request so far.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => state.pending().clear(),
            Err(_) => sleep(FAILURE_PAUSE).await,
        }
    }
}

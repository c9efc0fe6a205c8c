//! Keeps many requests in flight over one socket, for programs on tokio.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{ToSocketAddrs, UdpSocket, lookup_host};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tollway_wire::text::{CheckLimit, DATAGRAM_MAX, TextCommand};

use super::codec::{datagram, first_id, key_answer, pong, raw_datagram, size, split_reply, stats};
use super::{KeyAnswer, KeyStats, TEXT_TIMEOUT, local_address_for};
use crate::{ClientError, InvalidRequest, InvalidResponse, TIMEOUT_MAX};

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
    /// Ends with the last clone.
    _receiver: Arc<ReceiverTask>,
}

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    server: SocketAddr,
    next_id: AtomicU64,
    /// The permits to be in flight.
    permits: Semaphore,
    pending: Mutex<PendingRequests>,
}

/// The requests that are in flight, by id.
type PendingRequests = HashMap<u64, oneshot::Sender<Vec<u8>>>;

/// The task that receives replies, ended when dropped.
#[derive(Debug)]
struct ReceiverTask(JoinHandle<()>);

impl Drop for ReceiverTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Client {
    /// Creates a client of the server at this address. It fails if the name has no address; whether a server listens
    /// there is known only after a call.
    pub async fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::with_timeout(address, TEXT_TIMEOUT).await
    }

    /// Creates a client that waits for a reply for at most `timeout`, and never more than a day.
    pub async fn with_timeout(address: impl ToSocketAddrs, timeout: Duration) -> io::Result<Self> {
        let no_address = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let server = lookup_host(address).await?.next().ok_or_else(no_address)?;
        let socket = UdpSocket::bind(local_address_for(server)).await?;
        // A connected socket receives datagrams of the server alone, and the system's word that nothing listens there.
        socket.connect(server).await?;
        let shared = Arc::new(Shared {
            socket,
            server,
            next_id: AtomicU64::new(first_id()),
            permits: Semaphore::new(IN_FLIGHT_MAX),
            pending: Mutex::default(),
        });
        let receiver = tokio::spawn(receive(Arc::clone(&shared)));
        let timeout = timeout.min(TIMEOUT_MAX);
        Ok(Self { shared, timeout, _receiver: Arc::new(ReceiverTask(receiver)) })
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
            ClientError::InvalidResponse { address: self.shared.server.to_string(), source }
        })
    }

    async fn exchange(
        &self,
        datagram: impl FnOnce(u64) -> Result<Vec<u8>, InvalidRequest>,
    ) -> Result<Vec<u8>, ClientError> {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let datagram = datagram(id)?;
        let address = || self.shared.server.to_string();
        match timeout(self.timeout, self.shared.exchange(id, &datagram)).await {
            Ok(exchanged) => {
                exchanged.map_err(|source| ClientError::Unreachable { address: address(), source })
            }
            Err(_) => Err(ClientError::TimedOut { address: address(), timeout: self.timeout }),
        }
    }
}

impl Shared {
    async fn exchange(&self, id: u64, datagram: &[u8]) -> io::Result<Vec<u8>> {
        let _permit = self.permits.acquire().await.map_err(io::Error::other)?;
        let (sender, receiver) = oneshot::channel();
        self.pending().insert(id, sender);
        // From here on a caller that gives up, for whatever reason, removes its request.
        let _registration = Registration { shared: self, id };
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

    fn pending(&self) -> MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of a request in the pending requests, removed when dropped.
struct Registration<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.shared.pending().remove(&self.id);
    }
}

/// Hands every reply to its request, and ignores replies without one.
async fn receive(shared: Arc<Shared>) {
    let mut buffer = [0; DATAGRAM_MAX];
    loop {
        match shared.socket.recv(&mut buffer).await {
            Ok(len) => {
                let Some((id, body)) = split_reply(&buffer[..len]) else { continue };
                let request = shared.pending().remove(&id);
                if let Some(request) = request {
                    // A caller that gave up in this moment has its answer already: N.
                    let _ = request.send(body.to_vec());
                }
            }
            // Nothing listens there, so no reply will come to any request so far.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => shared.pending().clear(),
            Err(_) => sleep(FAILURE_PAUSE).await,
        }
    }
}

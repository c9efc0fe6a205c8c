//! The client for programs on tokio: one socket, many questions at a time.

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

use super::blocking::any_port_beside;
use super::question::{datagram, decision, first_id, pong, raw_datagram, reply, size, stats};
use super::{AskError, Decision, KeyStats, TIMEOUT};

/// How many questions may wait for their answers at a time. Further ones wait for their turn, and not longer than for
/// an answer.
pub const IN_FLIGHT_MAX: usize = 4096;

/// How long to leave a socket alone that fails, rather than ask it again at once.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks one server. Clones share the socket, and any number of tasks may ask at a time.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    timeout: Duration,
    /// Stops listening with the last clone.
    _listening: Arc<Listening>,
}

#[derive(Debug)]
struct Shared {
    socket: UdpSocket,
    server: SocketAddr,
    next_id: AtomicU64,
    turns: Semaphore,
    awaited: Mutex<Awaited>,
}

/// Who waits for the answer to which id.
type Awaited = HashMap<u64, oneshot::Sender<Vec<u8>>>;

#[derive(Debug)]
struct Listening(JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Client {
    /// A client of the server at this address. That it can be asked does not mean that anybody is there.
    pub async fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::with_timeout(address, TIMEOUT).await
    }

    /// A client that waits this long for an answer.
    pub async fn with_timeout(address: impl ToSocketAddrs, timeout: Duration) -> io::Result<Self> {
        let no_address = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let server = lookup_host(address).await?.next().ok_or_else(no_address)?;
        let socket = UdpSocket::bind(any_port_beside(server)).await?;
        // Connected, the socket hears nobody else, and hears of it when there is nobody.
        socket.connect(server).await?;
        let shared = Arc::new(Shared {
            socket,
            server,
            next_id: AtomicU64::new(first_id()),
            turns: Semaphore::new(IN_FLIGHT_MAX),
            awaited: Mutex::default(),
        });
        let listening = tokio::spawn(listen(Arc::clone(&shared)));
        Ok(Self { shared, timeout, _listening: Arc::new(Listening(listening)) })
    }

    /// Makes one use of a key. Without an answer it is as though it were under its limit.
    pub async fn over_limit(&self, key: impl AsRef<[u8]>) -> Result<Decision, AskError> {
        decision(self.ask_command(TextCommand::OverLimit { key: key.as_ref() }).await)
    }

    /// Makes one use of the keys of a user agent, an address and everybody, up to the first that is over.
    pub async fn check_limit(&self, check: CheckLimit<'_>) -> Result<Decision, AskError> {
        decision(self.ask_command(TextCommand::CheckLimit(check)).await)
    }

    /// What the server knows about a key.
    pub async fn get_stats(&self, key: impl AsRef<[u8]>) -> Result<KeyStats, AskError> {
        stats(&self.ask_command(TextCommand::GetStats { key: key.as_ref() }).await?)
    }

    /// How many keys the server remembers.
    pub async fn get_size(&self) -> Result<u64, AskError> {
        size(&self.ask_command(TextCommand::GetSize).await?)
    }

    /// Is anybody there?
    pub async fn ping(&self) -> Result<(), AskError> {
        pong(&self.ask_command(TextCommand::Ping).await?)
    }

    /// Asks in the protocol's own words, `over_limit ws global`, and returns the words of the answer. An id is put in
    /// front of the one and taken off the other.
    pub async fn ask(&self, question: &[u8]) -> Result<Vec<u8>, AskError> {
        let id = self.shared.take_id();
        self.exchange(id, &raw_datagram(id, question)?).await
    }

    async fn ask_command(&self, command: TextCommand<'_>) -> Result<Vec<u8>, AskError> {
        let id = self.shared.take_id();
        self.exchange(id, &datagram(id, command)?).await
    }

    async fn exchange(&self, id: u64, datagram: &[u8]) -> Result<Vec<u8>, AskError> {
        let waited = self.timeout;
        let unanswered =
            |source| AskError::Unanswered { address: self.shared.server.to_string(), waited, source };
        match timeout(waited, self.shared.exchange(id, datagram)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(unanswered(Some(error))),
            Err(_) => Err(unanswered(None)),
        }
    }
}

impl Shared {
    fn take_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    async fn exchange(&self, id: u64, datagram: &[u8]) -> io::Result<Vec<u8>> {
        let _turn = self.turns.acquire().await.map_err(io::Error::other)?;
        let (sender, receiver) = oneshot::channel();
        self.awaited().insert(id, sender);
        // From here on whoever stops waiting, for whatever reason, is forgotten.
        let _awaiting = Awaiting { shared: self, id };
        self.send(datagram).await?;
        receiver.await.map_err(|_| io::ErrorKind::ConnectionRefused.into())
    }

    async fn send(&self, datagram: &[u8]) -> io::Result<()> {
        match self.socket.send(datagram).await {
            // Word that nobody got an earlier datagram. There may be somebody by now.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.socket.send(datagram).await
            }
            sent => sent,
        }?;
        Ok(())
    }

    fn awaited(&self) -> MutexGuard<'_, Awaited> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Awaiting<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.shared.awaited().remove(&self.id);
    }
}

/// Hands every answer to whoever awaits it, and lets go by what nobody does.
async fn listen(shared: Arc<Shared>) {
    let mut buffer = [0; DATAGRAM_MAX];
    loop {
        match shared.socket.recv(&mut buffer).await {
            Ok(len) => {
                let Some((id, body)) = reply(&buffer[..len]) else { continue };
                let awaiting = shared.awaited().remove(&id);
                if let Some(awaiting) = awaiting {
                    // Whoever no longer waits has its answer already: N.
                    let _ = awaiting.send(body.to_vec());
                }
            }
            // Nobody is there, so nobody will answer what was asked so far.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => shared.awaited().clear(),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

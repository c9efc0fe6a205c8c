//! The blocking text client: each call returns when its reply has arrived. It needs no runtime.
//!
//! ```no_run
//! use tollway_client::text::blocking::Client;
//!
//! let client = Client::new("127.0.0.1:2000")?;
//! let may_pass = !client.over_limit("ws ip=192.0.2.1")?.over();
//! # Ok::<(), tollway_client::ClientError>(())
//! ```

use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tollway_wire::text::{CheckLimit, DATAGRAM_MAX, TextCommand};

#[cfg(feature = "hmac")]
use super::SigningKey;
use super::codec::{datagram, first_id, key_answer, pong, raw_datagram, size, split_reply, stats};
use super::signing::{ReplyCheck, RequestSigner};
use super::{DEFAULT_PORT, DEFAULT_TIMEOUT, KeyAnswer, KeyStats, local_address_for};
use crate::address::host_and_port;
use crate::error::{is_timeout, no_address};
use crate::idle::IdleConnections;
use crate::{ClientError, InvalidAddress, InvalidRequest, InvalidResponse, TIMEOUT_MAX};

/// A client of one server whose calls block the thread. Clones share the sockets, and any number of threads may use it,
/// each on a socket of its own.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    timeout: Duration,
    signer: RequestSigner,
}

#[derive(Debug)]
struct Shared {
    address: String,
    idle: IdleConnections<BlockingSocket>,
}

/// A socket that is connected to the server, and the id of its next request.
#[derive(Debug)]
struct BlockingSocket {
    socket: UdpSocket,
    next_id: u64,
}

impl Client {
    /// Creates a client of the server at `address`: `HOST`, or `HOST:PORT` if the port is not
    /// [`DEFAULT_PORT`]. No socket is opened yet.
    pub fn new(address: &str) -> Result<Self, InvalidAddress> {
        Self::with_timeout(address, DEFAULT_TIMEOUT)
    }

    /// Creates a client that waits for a reply for at most `timeout`, and never more than a day. The time to resolve a
    /// name is not included: the system does not let it be limited.
    pub fn with_timeout(address: &str, timeout: Duration) -> Result<Self, InvalidAddress> {
        let address = host_and_port(address, DEFAULT_PORT)?;
        let shared = Shared { address, idle: IdleConnections::new() };
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
    pub fn over_limit(&self, key: impl AsRef<[u8]>) -> Result<KeyAnswer, ClientError> {
        key_answer(self.command(TextCommand::OverLimit { key: key.as_ref() }))
    }

    /// Counts one use of the keys of a user agent, of an address and of everybody, up to the first over its limit.
    pub fn check_limit(&self, check: CheckLimit<'_>) -> Result<KeyAnswer, ClientError> {
        key_answer(self.command(TextCommand::CheckLimit(check)))
    }

    /// Returns the statistics of a key.
    pub fn get_stats(&self, key: impl AsRef<[u8]>) -> Result<KeyStats, ClientError> {
        self.decode(&self.command(TextCommand::GetStats { key: key.as_ref() })?, stats)
    }

    /// Returns the number of keys that the server remembers.
    pub fn get_size(&self) -> Result<u64, ClientError> {
        self.decode(&self.command(TextCommand::GetSize)?, size)
    }

    /// Returns without an error if the server replies.
    pub fn ping(&self) -> Result<(), ClientError> {
        self.decode(&self.command(TextCommand::Ping)?, pong)
    }

    /// Sends a command in the words of the protocol, such as `over_limit ws global`, and returns the words of the
    /// reply. The id is added to the command and removed from the reply.
    pub fn ask(&self, command: &[u8]) -> Result<Vec<u8>, ClientError> {
        self.exchange(|id| raw_datagram(id, command))
    }

    fn command(&self, command: TextCommand<'_>) -> Result<Vec<u8>, ClientError> {
        self.exchange(|id| datagram(id, command))
    }

    fn decode<T>(&self, reply: &[u8], read: fn(&[u8]) -> Option<T>) -> Result<T, ClientError> {
        read(reply).ok_or_else(|| {
            let source = InvalidResponse::Text { reply: String::from_utf8_lossy(reply).into_owned() };
            ClientError::InvalidResponse { address: self.address().to_owned(), source }
        })
    }

    fn exchange(
        &self,
        datagram: impl FnOnce(u64) -> Result<Vec<u8>, InvalidRequest>,
    ) -> Result<Vec<u8>, ClientError> {
        let mut socket = match self.shared.idle.take(|_| true) {
            Some(socket) => socket,
            None => BlockingSocket::open(self.address(), self.timeout)?,
        };
        let id = socket.take_id();
        let signed = datagram(id).and_then(|datagram| self.signer.sign(datagram));
        let exchanged = signed.map(|(datagram, check)| socket.exchange(id, &datagram, &check, self.timeout));
        // After a failure too: a late reply has the id of its own request.
        self.shared.idle.put(socket);
        let failed = |error| ClientError::connecting(self.address(), self.timeout, error);
        let timed_out =
            || ClientError::TimedOut { address: self.address().to_owned(), timeout: self.timeout };
        exchanged?.map_err(failed)?.ok_or_else(timed_out)
    }
}

impl BlockingSocket {
    fn open(address: &str, timeout: Duration) -> Result<Self, ClientError> {
        let mut found = address.to_socket_addrs().map_err(|error| ClientError::lookup(address, error))?;
        let server = found.next().ok_or_else(|| ClientError::lookup(address, no_address()))?;
        Self::connect(server).map_err(|error| ClientError::connecting(address, timeout, error))
    }

    fn connect(server: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(local_address_for(server))?;
        // A connected socket receives datagrams of the server alone, and the system's word that nothing listens there.
        socket.connect(server)?;
        Ok(Self { socket, next_id: first_id() })
    }

    fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        id
    }

    fn exchange(
        &self,
        id: u64,
        datagram: &[u8],
        check: &ReplyCheck,
        timeout: Duration,
    ) -> io::Result<Option<Vec<u8>>> {
        match self.socket.send(datagram) {
            // This is about an earlier datagram. A server may have started since.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => self.socket.send(datagram),
            sent => sent,
        }?;
        self.receive(id, check, timeout)
    }

    /// Waits for the reply with this id, and ignores all others. Returns `None` at the timeout.
    fn receive(&self, id: u64, check: &ReplyCheck, timeout: Duration) -> io::Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + timeout;
        let mut buffer = [0; DATAGRAM_MAX];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.recv(&mut buffer) {
                Ok(len) => match check.reply(&buffer[..len]).and_then(split_reply) {
                    Some((to, body)) if to == id => return Ok(Some(body.to_vec())),
                    _ => {}
                },
                Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

//! One connection to a master, on which both have said what they are.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollway_wire::zmtp::{self, SocketType, ZmtpError, ZmtpEvent, ZmtpSession};

/// How long connecting and saying hello may take together.
const HELLO_MAX: Duration = Duration::from_secs(5);

/// A machine that vanishes says no goodbye. It is asked after this silence, and again, and given up after some more.
const SILENCE: Duration = Duration::from_secs(5);
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(2);
#[cfg(target_os = "linux")]
const UNANSWERED_MAX: Duration = Duration::from_secs(10);

/// How much is read at a time. An inbox is never longer than this and the longest message.
const READ_SIZE: usize = 16 << 10;

pub(super) struct Connection {
    stream: TcpStream,
    conversation: ZmtpSession,
    inbox: Vec<u8>,
}

/// Why a connection ended.
#[derive(Debug, Error)]
pub(super) enum Ended {
    #[error("the master hung up")]
    HungUp,
    #[error("no hello within {HELLO_MAX:?}")]
    NoHello,
    #[error(transparent)]
    Broken(#[from] io::Error),
    #[error(transparent)]
    Misunderstood(#[from] ZmtpError),
}

impl Connection {
    /// Connects as a socket of this kind and says `first`. What the master says after its hello is heard later.
    pub(super) async fn open(address: &str, ours: SocketType, first: &[u8]) -> Result<Self, Ended> {
        timeout(HELLO_MAX, Self::greet(address, ours, first)).await.map_err(|_| Ended::NoHello)?
    }

    async fn greet(address: &str, ours: SocketType, first: &[u8]) -> Result<Self, Ended> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE).with_interval(ASKED_AGAIN_AFTER))?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(UNANSWERED_MAX))?;
        let mut connection = Self { stream, conversation: ZmtpSession::new(ours), inbox: Vec::new() };
        let mut hello = Vec::new();
        zmtp::encode_handshake(ours, &mut hello);
        connection.write(&hello).await?;
        loop {
            connection.understand(|_| {})?;
            if connection.conversation.is_ready() {
                // Not before: libzmq hangs up on whoever says more than hello until it has answered.
                connection.write(first).await?;
                return Ok(connection);
            }
            connection.read().await?;
        }
    }

    /// Hears all that has been said, or waits until something is. May be given up at any moment.
    pub(super) async fn hear(&mut self, each: impl FnMut(ZmtpEvent<'_>)) -> Result<(), Ended> {
        self.read().await?;
        self.understand(each)
    }

    /// What was said before, without waiting for more.
    pub(super) fn understand(&mut self, mut each: impl FnMut(ZmtpEvent<'_>)) -> Result<(), Ended> {
        let mut taken = 0;
        while let Some((said, len)) = self.conversation.next(&self.inbox[taken..])? {
            taken += len;
            let is_hello = matches!(said, ZmtpEvent::Ready);
            each(said);
            if is_hello {
                break;
            }
        }
        self.inbox.drain(..taken);
        Ok(())
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        Ok(self.stream.write_all(bytes).await?)
    }

    async fn read(&mut self) -> Result<(), Ended> {
        self.inbox.reserve(READ_SIZE);
        match self.stream.read_buf(&mut self.inbox).await? {
            0 => Err(Ended::HungUp),
            _ => Ok(()),
        }
    }
}

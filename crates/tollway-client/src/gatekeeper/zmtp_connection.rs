//! Connects to a master over ZMTP, and reads and writes after the handshake.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tollway_wire::zmtp::{self, SocketType, ZmtpError, ZmtpEvent, ZmtpSession};

/// The time that connecting and the handshake may take together.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// A machine that loses its power does not close its connections. After this silence TCP sends a keep-alive probe.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
/// The time between probes without an answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// The time without an answer after which the connection is given up.
#[cfg(target_os = "linux")]
const UNANSWERED_MAX: Duration = Duration::from_secs(10);

/// The number of bytes that one read takes. An inbox is never longer than this and the longest message.
const READ_SIZE: usize = 16 << 10;

/// A connection whose handshake is done.
pub(super) struct ZmtpConnection {
    stream: TcpStream,
    session: ZmtpSession,
    inbox: Vec<u8>,
}

/// The reasons why a connection ended.
#[derive(Debug, Error)]
pub(super) enum ZmtpConnectionError {
    #[error("the master closed the connection")]
    Closed,
    #[error("no handshake within {HANDSHAKE_TIMEOUT:?}")]
    HandshakeTimedOut,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Protocol(#[from] ZmtpError),
}

impl ZmtpConnection {
    /// Connects as a socket of this type and sends `first`. Events after the handshake are left for
    /// [`events`](Self::events).
    pub(super) async fn open(
        address: &str,
        ours: SocketType,
        first: &[u8],
    ) -> Result<Self, ZmtpConnectionError> {
        timeout(HANDSHAKE_TIMEOUT, Self::handshake(address, ours, first))
            .await
            .map_err(|_| ZmtpConnectionError::HandshakeTimedOut)?
    }

    async fn handshake(address: &str, ours: SocketType, first: &[u8]) -> Result<Self, ZmtpConnectionError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        socket.set_tcp_keepalive(
            &TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_INTERVAL),
        )?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(UNANSWERED_MAX))?;
        let mut connection = Self { stream, session: ZmtpSession::new(ours), inbox: Vec::new() };
        let mut greeting = Vec::new();
        zmtp::encode_handshake(ours, &mut greeting);
        connection.write(&greeting).await?;
        loop {
            connection.events(|_| {})?;
            if connection.session.is_ready() {
                // Not before: libzmq closes a connection on which more than the greeting arrives before its own was
                // sent.
                connection.write(first).await?;
                return Ok(connection);
            }
            connection.read().await?;
        }
    }

    /// Waits until bytes arrive, and handles the events in them. The future may be dropped at any moment.
    pub(super) async fn next_events(
        &mut self,
        each: impl FnMut(ZmtpEvent<'_>),
    ) -> Result<(), ZmtpConnectionError> {
        self.read().await?;
        self.events(each)
    }

    /// Handles the events that have arrived, without waiting for more.
    pub(super) fn events(&mut self, mut each: impl FnMut(ZmtpEvent<'_>)) -> Result<(), ZmtpConnectionError> {
        let mut taken = 0;
        while let Some((event, len)) = self.session.next(&self.inbox[taken..])? {
            taken += len;
            let is_ready = matches!(event, ZmtpEvent::Ready);
            each(event);
            if is_ready {
                break;
            }
        }
        self.inbox.drain(..taken);
        Ok(())
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), ZmtpConnectionError> {
        Ok(self.stream.write_all(bytes).await?)
    }

    async fn read(&mut self) -> Result<(), ZmtpConnectionError> {
        self.inbox.reserve(READ_SIZE);
        match self.stream.read_buf(&mut self.inbox).await? {
            0 => Err(ZmtpConnectionError::Closed),
            _ => Ok(()),
        }
    }
}

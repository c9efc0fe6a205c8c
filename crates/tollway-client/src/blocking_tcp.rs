//! A TCP connection of a blocking client, on which every operation has a deadline. It can be inside of TLS.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::ClientError;
use crate::error::no_address;

/// The number of bytes that one read takes at most.
const READ_SIZE: usize = 16 << 10;

/// A connection that is open.
#[derive(Debug)]
pub(crate) struct BlockingConnection {
    stream: TcpStream,
    #[cfg(feature = "tls")]
    tls: Option<Box<rustls::ClientConnection>>,
}

impl BlockingConnection {
    /// Connects to `address`, a host and a port. Every IP address of the host is tried, each for what is left of the
    /// time. `timeout` is the time of the whole call, for errors.
    pub(crate) fn open(address: &str, timeout: Duration, deadline: Instant) -> Result<Self, ClientError> {
        let found = address.to_socket_addrs().map_err(|error| ClientError::lookup(address, error))?;
        let mut error = ClientError::lookup(address, no_address());
        for address_found in found {
            match Self::connect(address_found, deadline) {
                Ok(connection) => return Ok(connection),
                Err(failed) => error = ClientError::connecting(address, timeout, failed),
            }
        }
        Err(error)
    }

    fn connect(address: SocketAddr, deadline: Instant) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, time_left(deadline)?)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    /// Makes the TLS handshake with a server whose certificate has this name.
    #[cfg(feature = "tls")]
    pub(crate) fn secure(
        mut self,
        config: std::sync::Arc<rustls::ClientConfig>,
        name: rustls::pki_types::ServerName<'static>,
        deadline: Instant,
    ) -> io::Result<Self> {
        let mut tls = rustls::ClientConnection::new(config, name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut Timed { stream: &mut self.stream, deadline })?;
        }
        self.tls = Some(Box::new(tls));
        Ok(self)
    }

    /// Returns false if the server has closed the connection or sent something since the last response. Servers close
    /// connections that were idle for long, and a request written to a closed one would be lost.
    pub(crate) fn is_alive(&self) -> bool {
        let peeked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let silent = matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        silent && self.stream.set_nonblocking(false).is_ok()
    }

    /// Writes all of `bytes`.
    pub(crate) fn write(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        let mut socket = Timed { stream: &mut self.stream, deadline };
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            let mut secured = rustls::Stream::new(&mut **tls, &mut socket);
            secured.write_all(bytes)?;
            return secured.flush();
        }
        socket.write_all(bytes)
    }

    /// Appends the bytes that have arrived, one at least.
    pub(crate) fn read(&mut self, inbox: &mut Vec<u8>, deadline: Instant) -> io::Result<()> {
        let mut buffer = [0; READ_SIZE];
        loop {
            match self.read_some(&mut buffer, deadline) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    inbox.extend_from_slice(&buffer[..len]);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn read_some(&mut self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        let mut socket = Timed { stream: &mut self.stream, deadline };
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return rustls::Stream::new(&mut **tls, &mut socket).read(buffer);
        }
        socket.read(buffer)
    }
}

/// A socket whose reads and writes end at the deadline.
struct Timed<'a> {
    stream: &'a mut TcpStream,
    deadline: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(time_left(self.deadline)?))?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(time_left(self.deadline)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the time until the deadline. It is never zero: a socket rejects a timeout of zero.
fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

//! A TCP connection or a UDP socket that never blocks, behind one interface.

use std::io::{self, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use mio::net::{TcpStream, UdpSocket};
use mio::{Interest, Registry, Token};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};

use crate::protocol::Transport;
use crate::report::shown;

/// The time that a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The bytes that one buffer of datagrams receives: the kernel keeps at most 64 KiB together.
const DATAGRAMS_MAX: usize = 1 << 16;
/// The bytes that one read of a connection receives. A reply must fit.
const READ_MAX: usize = 256 << 10;
/// The bytes of datagrams that the kernel is asked to keep until they are read.
const SOCKET_BUFFER: usize = 4 << 20;
/// The most bytes that the kernel takes to split into datagrams.
const SEGMENTS_BYTES_MAX: usize = 65_507;

/// A socket that is connected to the server.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Udp { socket: UdpSocket, state: UdpSocketState, addr: SocketAddr, offload: bool },
}

impl Socket {
    /// Opens a socket, and registers it for both directions.
    pub(crate) fn open(
        transport: Transport,
        greeting: Option<(&[u8], &[u8])>,
        addr: SocketAddr,
        offload: bool,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match transport {
            Transport::Tcp => {
                let stream = std::net::TcpStream::connect_timeout(&addr, CONNECT_TIMEOUT)?;
                stream.set_nodelay(true)?;
                if let Some((sent, expected)) = greeting {
                    greet(&stream, sent, expected)?;
                }
                stream.set_nonblocking(true)?;
                let mut stream = TcpStream::from_std(stream);
                registry.register(&mut stream, token, interest)?;
                Ok(Self::Tcp(stream))
            }
            Transport::Udp => {
                let mut socket = UdpSocket::bind(match addr {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                })?;
                // Connected, so that the kernel drops datagrams of others, and reports if nothing listens.
                socket.connect(addr)?;
                let state = UdpSocketState::new((&socket).into())?;
                // A smaller buffer loses more datagrams, and the report counts them.
                let _ = state.set_recv_buffer_size((&socket).into(), SOCKET_BUFFER);
                let _ = state.set_send_buffer_size((&socket).into(), SOCKET_BUFFER);
                registry.register(&mut socket, token, interest)?;
                Ok(Self::Udp { socket, state, addr, offload })
            }
        }
    }

    /// Sends requests of `len` bytes each, and returns how many bytes of them were taken.
    #[inline]
    pub(crate) fn send(&mut self, requests: &[u8], len: usize) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(requests),
            Self::Udp { socket, state, addr, offload } => {
                let segments = if *offload { state.max_gso_segments() } else { 1 };
                let taken = requests.len().min(segments.min(SEGMENTS_BYTES_MAX / len).max(1) * len);
                let transmit = Transmit {
                    destination: *addr,
                    ecn: None,
                    contents: &requests[..taken],
                    segment_size: (taken > len).then_some(len),
                    src_ip: None,
                };
                match state.try_send((&*socket).into(), &transmit) {
                    // The network card cannot split batches. The next attempt sends single datagrams.
                    Err(_) if taken > len && state.max_gso_segments() == 1 => Ok(0),
                    sent => sent.map(|()| taken),
                }
            }
        }
    }
}

/// Sends the first bytes of a connection, and waits for the reply that must follow.
fn greet(mut stream: &std::net::TcpStream, sent: &[u8], expected: &[u8]) -> io::Result<()> {
    stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
    stream.write_all(sent)?;
    let mut reply = vec![0; expected.len()];
    stream.read_exact(&mut reply)?;
    if reply == expected {
        return Ok(());
    }
    // The rest of an error is a line.
    let mut rest = [0; 256];
    let len = stream.read(&mut rest)?;
    let text = [reply, rest[..len].to_vec()].concat();
    Err(io::Error::new(io::ErrorKind::PermissionDenied, shown(text.trim_ascii())))
}

/// The buffer that all sockets receive into.
pub(crate) struct ReceiveBuffer {
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    received: usize,
}

impl ReceiveBuffer {
    pub(crate) fn new(transport: Transport) -> Self {
        let len = if transport == Transport::Udp { BATCH_SIZE * DATAGRAMS_MAX } else { READ_MAX };
        Self { bytes: vec![0; len], metas: [RecvMeta::default(); BATCH_SIZE], received: 0 }
    }

    /// Reads from a connection, behind the beginning of a reply that arrived before. Returns everything, and whether
    /// there may be more.
    #[inline]
    pub(crate) fn read(&mut self, stream: &mut TcpStream, partial: &[u8]) -> io::Result<(&[u8], bool)> {
        let (kept, room) = self.bytes.split_at_mut(partial.len());
        let read = stream.read(room)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        kept.copy_from_slice(partial);
        let received = partial.len() + read;
        Ok((&self.bytes[..received], received == self.bytes.len()))
    }

    /// Receives [`datagrams`](Self::datagrams). Returns whether there may be more.
    pub(crate) fn receive(&mut self, socket: &UdpSocket, state: &UdpSocketState) -> io::Result<bool> {
        self.received = 0;
        let mut buffers = self.bytes.chunks_exact_mut(DATAGRAMS_MAX);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
        self.received = state.recv(socket.into(), &mut slices, &mut self.metas)?;
        Ok(self.received == BATCH_SIZE)
    }

    /// Returns the datagrams that were received last.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let buffers = self.bytes.chunks_exact(DATAGRAMS_MAX).zip(&self.metas[..self.received]);
        buffers.flat_map(|(buffer, meta)| buffer[..meta.len.min(DATAGRAMS_MAX)].chunks(meta.stride.max(1)))
    }
}

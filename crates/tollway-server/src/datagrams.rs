//! Sends and receives many datagrams at a time.
//!
//! One call receives what has arrived from everybody (`recvmmsg`), and one buffer may hold dozens of datagrams of one
//! peer that the kernel kept together (GRO). What goes to one peer goes out the same way (GSO), the rest together
//! (`sendmmsg`), and a datagram that is alone by a plain call. Datagrams have no order to keep, so those to one peer
//! are sorted by size, which is what GSO needs.

mod outbox;
mod system;

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket as StdSocket};

use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::yield_now;

pub(crate) use outbox::Outbox;

/// The size of one receive buffer: the kernel keeps at most 64 KiB together.
const BUFFER_SIZE: usize = 1 << 16;

/// A socket that receives and sends batches.
#[derive(Debug)]
pub(crate) struct Datagrams {
    socket: UdpSocket,
    state: UdpSocketState,
    /// True if the socket is bound to every address of the machine: an answer must name the one that it comes from.
    any_address: bool,
}

/// The peer that sent a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The address that the datagram came from.
    pub(crate) address: SocketAddr,
    /// The address of ours that the datagram was sent to, if it is known.
    pub(crate) local: Option<IpAddr>,
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self { address, local: None }
    }
}

impl Datagrams {
    /// Takes a bound socket, inside a runtime.
    pub(crate) fn new(socket: StdSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        system::enlarge_buffers(&socket);
        let any_address = socket.local_addr()?.ip().is_unspecified();
        Ok(Self { socket: UdpSocket::from_std(socket)?, state, any_address })
    }

    /// Waits until something arrives, and takes all of it that fits.
    pub(crate) async fn receive(&self, inbox: &mut Inbox) -> io::Result<()> {
        loop {
            self.socket.readable().await?;
            match self.try_receive(inbox) {
                // The other tasks get their turn: a socket that was shut down is called readable for ever.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => yield_now().await,
                received => return received,
            }
        }
    }

    /// Takes what has arrived; an error of the kind `WouldBlock` if nothing has.
    fn try_receive(&self, inbox: &mut Inbox) -> io::Result<()> {
        inbox.received = 0;
        let tried = self.socket.try_io(Interest::READABLE, || {
            inbox.fill(&self.state, &self.socket)?;
            // Room was left, so there is no more. Saying so spares the next call, which would only find that out.
            if inbox.received < BATCH_SIZE { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        if inbox.received > 0 { Ok(()) } else { tried }
    }

    /// Receives from the system, without asking the runtime, which may not know yet that something arrived.
    pub(crate) fn receive_now(&self, inbox: &mut Inbox) -> io::Result<()> {
        inbox.received = 0;
        inbox.fill(&self.state, &self.socket)
    }

    /// Sends and empties the outbox, and returns how many datagrams could not be sent. An unreachable peer does not
    /// affect the others.
    pub(crate) async fn send(&self, outbox: &mut Outbox) -> usize {
        outbox.arrange(self.state.max_gso_segments());
        let mut failed = 0;
        while !outbox.is_sent() {
            let attempt = || outbox.send_some(self, &mut failed);
            // It waits for a full socket, and counts what cannot be sent: the only error left is a runtime that ends.
            if self.socket.async_io(Interest::WRITABLE, attempt).await.is_err() {
                break;
            }
        }
        outbox.clear();
        failed
    }
}

/// The datagrams that arrived together.
#[derive(Debug)]
pub(crate) struct Inbox {
    buffers: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
    /// The sender of each buffer, which is passed on by reference because an address is long to copy.
    peers: [Peer; BATCH_SIZE],
    received: usize,
}

impl Inbox {
    /// Creates an inbox for as much as one call receives. Pages in which nothing ever arrived cost no memory.
    pub(crate) fn new() -> Self {
        let nobody = Peer::from(SocketAddr::from(([0, 0, 0, 0], 0)));
        Self {
            buffers: vec![0; BATCH_SIZE * BUFFER_SIZE],
            metas: [RecvMeta::default(); BATCH_SIZE],
            peers: [nobody; BATCH_SIZE],
            received: 0,
        }
    }

    /// Iterates over all datagrams, with their senders.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Peer, &[u8])> {
        let received = self.metas[..self.received].iter().zip(&self.peers);
        self.buffers.chunks_exact(BUFFER_SIZE).zip(received).flat_map(|(buffer, (meta, peer))| {
            let datagrams = split(&buffer[..meta.len.min(BUFFER_SIZE)], meta.stride);
            datagrams.map(move |datagram| (peer, datagram))
        })
    }

    fn fill(&mut self, state: &UdpSocketState, socket: &UdpSocket) -> io::Result<()> {
        let mut buffers = self.buffers.chunks_exact_mut(BUFFER_SIZE);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
        self.received = state.recv(socket.into(), &mut slices, &mut self.metas)?;
        for (peer, meta) in self.peers.iter_mut().zip(&self.metas[..self.received]) {
            *peer = Peer { address: meta.addr, local: meta.dst_ip };
        }
        Ok(())
    }
}

/// Splits a buffer into its datagrams. An empty buffer is a datagram, too.
fn split(buffer: &[u8], stride: usize) -> impl Iterator<Item = &[u8]> {
    let empty = buffer.is_empty().then_some(buffer);
    empty.into_iter().chain(buffer.chunks(stride.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_peer_that_cannot_be_reached_costs_the_others_nothing() {
        let datagrams = Datagrams::new(StdSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        let together = datagrams.state.max_gso_segments();
        let reached = StdSocket::bind("127.0.0.1:0").unwrap();
        let mut outbox = Outbox::new();
        for _ in 0..2 {
            // From a loopback address no other machine can be reached: the kernel calls that invalid.
            outbox.push(&SocketAddr::from(([192, 0, 2, 1], 9)).into(), |out| out.push(b'x'));
            assert_eq!(datagrams.send(&mut outbox).await, 1);
        }
        outbox.push(&reached.local_addr().unwrap().into(), |out| out.push(b'y'));
        assert_eq!(datagrams.send(&mut outbox).await, 0);
        let mut buffer = [0; 8];
        assert_eq!(reached.recv(&mut buffer).unwrap(), 1);
        assert_eq!(datagrams.state.max_gso_segments(), together, "GSO was given up for all peers");
    }
}

//! One ZeroMQ peer, of whom nothing is kept but half a message.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;
use tollway_wire::zmtp::{MESSAGE_MAX, SocketType, ZmtpEvent, ZmtpSession};

use crate::gate::Worker;

/// What one read brings at most: some hundreds of messages, before others get their turn.
const READ_SIZE: usize = 64 << 10;

/// What all peers of a worker are heard with, one at a time.
pub(in crate::gate) struct Ears(Box<[u8]>);

impl Ears {
    pub(in crate::gate) fn new() -> Self {
        // The longest half there is is that of a message, with the head of one frame more.
        Self(vec![0; MESSAGE_MAX + 16 + READ_SIZE].into())
    }
}

pub(super) struct Peer {
    conversation: ZmtpSession,
    half: Vec<u8>,
}

/// What became of the bytes that had arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    /// How many of them were understood.
    pub(super) taken: usize,
    /// What follows is no ZMTP: nothing after it can be understood.
    pub(super) broken: bool,
}

impl Peer {
    pub(super) fn new(ours: SocketType) -> Self {
        Self { conversation: ZmtpSession::new(ours), half: Vec::new() }
    }

    /// Is it about to say something, or yet to say what it is?
    pub(super) fn is_awaited(&self) -> bool {
        !self.half.is_empty() || !self.conversation.is_ready()
    }

    /// Reads what is there, as soon as something is, and has it understood. `None` if the peer has hung up.
    pub(super) async fn hear(
        &mut self,
        stream: &TcpStream,
        worker: &Worker,
        mut understand: impl FnMut(&mut ZmtpSession, &[u8]) -> Heard,
    ) -> io::Result<Option<Heard>> {
        poll_fn(|context| self.poll_hear(stream, worker, context, &mut understand)).await
    }

    fn poll_hear(
        &mut self,
        stream: &TcpStream,
        worker: &Worker,
        context: &mut Context<'_>,
        understand: &mut impl FnMut(&mut ZmtpSession, &[u8]) -> Heard,
    ) -> Poll<io::Result<Option<Heard>>> {
        loop {
            ready!(stream.poll_read_ready(context))?;
            let Ears(inbox) = &mut *worker.ears();
            let kept = self.half.len();
            let read = match stream.try_read(&mut inbox[kept..]) {
                Ok(0) => return Poll::Ready(Ok(None)),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Poll::Ready(Err(error)),
            };
            inbox[..kept].copy_from_slice(&self.half);
            let arrived = &inbox[..kept + read];
            let heard = understand(&mut self.conversation, arrived);
            self.half.clear();
            self.half.extend_from_slice(&arrived[heard.taken..]);
            if self.half.is_empty() {
                self.half = Vec::new();
            }
            return Poll::Ready(Ok(Some(heard)));
        }
    }
}

/// Hands over all that is said in `inbox`, one by one.
pub(super) fn all_said<'a>(
    conversation: &mut ZmtpSession,
    inbox: &'a [u8],
    mut said: impl FnMut(ZmtpEvent<'a>),
) -> Heard {
    let mut heard = Heard::default();
    loop {
        match conversation.next(&inbox[heard.taken..]) {
            Ok(Some((what, len))) => {
                heard.taken += len;
                said(what);
            }
            Ok(None) => return heard,
            Err(_) => {
                heard.broken = true;
                return heard;
            }
        }
    }
}

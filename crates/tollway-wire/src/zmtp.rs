//! ZMTP, the protocol that ZeroMQ sockets use over TCP: version 3, without encryption, for publishers and
//! subscribers.
//!
//! ```text
//! <-> ff 0000000000000001 7f 03 01 NULL…     both send a greeting of 64 bytes
//! <-> 04 19 READY Socket-Type PUB            both send their socket type
//! ->  00 01 01                               a subscriber subscribes to every topic
//! <-  01 05 hello 00 05 world                a message of two frames
//! ```
//!
//! A message is decoded in place in the read buffer, once all of it has arrived. A peer cannot make us reserve memory:
//! a length above [`MESSAGE_MAX`] ends the session before any of the message is stored.
//!
//! ```
//! use tollway_wire::zmtp::{self, ZmtpSession, ZmtpEvent, SocketType};
//!
//! let mut bytes = Vec::new();
//! zmtp::encode_handshake(SocketType::Pub, &mut bytes);
//! zmtp::encode(&[b"hello", b"world"], &mut bytes);
//!
//! let (mut session, mut inbox) = (ZmtpSession::new(SocketType::Sub), &bytes[..]);
//! while let Some((event, len)) = session.next(inbox)? {
//!     if let ZmtpEvent::Message(frames) = event {
//!         assert!(frames.eq([b"hello", b"world"]));
//!     }
//!     inbox = &inbox[len..];
//! }
//! # Ok::<(), zmtp::ZmtpError>(())
//! ```

mod frame;
mod handshake;

use thiserror::Error;

use self::frame::Frame;
pub use self::frame::{MessageFrames, encode, messages};
use self::handshake::{GREETING_LEN, read_greeting, read_ready};
pub use self::handshake::{SocketType, encode_handshake};

/// The longest message that is accepted, in bytes, with the headers of its frames.
pub const MESSAGE_MAX: usize = 64 * 1024;

/// Something that the peer sent.
#[derive(Clone, Debug)]
pub enum ZmtpEvent<'a> {
    /// The peer sent its greeting.
    Greeting,
    /// The peer sent its socket type, and the handshake is complete.
    Ready,
    /// The peer sent a message.
    Message(MessageFrames<'a>),
    /// The peer subscribed to messages whose first frame starts with this.
    Subscribe(&'a [u8]),
    /// The peer cancelled such a subscription.
    Cancel(&'a [u8]),
    /// The peer sent a heartbeat, and expects this context back in a pong; see [`encode_pong`].
    Ping(&'a [u8]),
    /// The peer sent something that needs no reaction.
    Ignored,
}

/// An error that ends a session.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ZmtpError {
    /// The peer uses another protocol.
    #[error("the peer does not speak ZMTP: its first bytes are not a ZeroMQ greeting")]
    NotZmtp,
    /// The peer uses a version before 3.0.
    #[error("the peer speaks ZMTP version {major}; version 3 is required")]
    Version {
        /// The major version that the peer sent.
        major: u8,
    },
    /// The peer wants encryption or a password.
    #[error("the peer requires a security mechanism; only NULL is supported")]
    Mechanism,
    /// The peer sent something other than READY after its greeting.
    #[error("the peer sent no READY command with its socket type")]
    NotReady,
    /// The two socket types cannot be connected to each other.
    #[error("the peer is a {found:?} socket, which cannot be connected to a {ours:?} socket")]
    SocketType {
        /// The type of the peer's socket.
        found: SocketType,
        /// The type of our socket.
        ours: SocketType,
    },
    /// The peer sent a message that is too long to be stored.
    #[error("the peer sent a message of more than {MESSAGE_MAX} bytes")]
    TooLong,
    /// The peer sent undefined flags, or a command in the middle of a message.
    #[error("the peer sent a malformed frame")]
    Malformed,
}

/// Decodes the bytes of one connection: first its handshake, then its messages. It stores no bytes.
#[derive(Clone, Debug)]
pub struct ZmtpSession {
    ours: SocketType,
    stage: HandshakeStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeStage {
    Greeting,
    Ready,
    Messages,
}

impl ZmtpSession {
    /// Creates the session of a new connection, for a socket of this type.
    pub const fn new(ours: SocketType) -> Self {
        Self { ours, stage: HandshakeStage::Greeting }
    }

    /// Returns true once the handshake is complete and messages may be sent.
    pub fn is_ready(&self) -> bool {
        self.stage == HandshakeStage::Messages
    }

    /// Decodes the event at the start of `inbox`, and returns it with its length in bytes. Returns `None` until all of
    /// it has arrived.
    #[inline]
    pub fn next<'a>(&mut self, inbox: &'a [u8]) -> Result<Option<(ZmtpEvent<'a>, usize)>, ZmtpError> {
        match self.stage {
            HandshakeStage::Messages => self.next_message(inbox),
            HandshakeStage::Greeting => {
                let Some(()) = read_greeting(inbox)? else { return Ok(None) };
                self.stage = HandshakeStage::Ready;
                Ok(Some((ZmtpEvent::Greeting, GREETING_LEN)))
            }
            HandshakeStage::Ready => {
                let Some((frame, len)) = Frame::read(inbox)? else { return Ok(None) };
                let found = frame.command().and_then(read_ready).ok_or(ZmtpError::NotReady)?;
                if !self.ours.is_compatible_with(found) {
                    return Err(ZmtpError::SocketType { found, ours: self.ours });
                }
                self.stage = HandshakeStage::Messages;
                Ok(Some((ZmtpEvent::Ready, len)))
            }
        }
    }

    #[inline]
    fn next_message<'a>(&self, inbox: &'a [u8]) -> Result<Option<(ZmtpEvent<'a>, usize)>, ZmtpError> {
        let Some((mut frame, mut end)) = Frame::read(inbox)? else { return incomplete(inbox) };
        if let Some(command) = frame.command() {
            return Ok(Some((command_event(command), end)));
        }
        if self.ours.publishes() && !frame.more {
            return Ok(Some((subscription_event(frame.body), end)));
        }
        while frame.more {
            let Some((next, len)) = Frame::read(&inbox[end..])? else { return incomplete(inbox) };
            (frame, end) = (next, end + len);
            if frame.command().is_some() {
                return Err(ZmtpError::Malformed);
            }
        }
        if end > MESSAGE_MAX {
            return Err(ZmtpError::TooLong);
        }
        Ok(Some((ZmtpEvent::Message(MessageFrames::new(&inbox[..end])), end)))
    }
}

/// Decodes a subscription that is sent as a message: ZMTP 3.0 does that, where 3.1 has commands.
fn subscription_event(message: &[u8]) -> ZmtpEvent<'_> {
    match message {
        [1, topic @ ..] => ZmtpEvent::Subscribe(topic),
        [0, topic @ ..] => ZmtpEvent::Cancel(topic),
        _ => ZmtpEvent::Ignored,
    }
}

fn incomplete(inbox: &[u8]) -> Result<Option<(ZmtpEvent<'_>, usize)>, ZmtpError> {
    if inbox.len() >= MESSAGE_MAX { Err(ZmtpError::TooLong) } else { Ok(None) }
}

fn command_event(command: &[u8]) -> ZmtpEvent<'_> {
    let after = |name: &[u8]| command.strip_prefix(name);
    if let Some(topic) = after(b"\x09SUBSCRIBE") {
        ZmtpEvent::Subscribe(topic)
    } else if let Some(topic) = after(b"\x06CANCEL") {
        ZmtpEvent::Cancel(topic)
    } else if let Some([_, _, context @ ..]) = after(b"\x04PING") {
        ZmtpEvent::Ping(context)
    } else {
        ZmtpEvent::Ignored
    }
}

/// Appends a subscription to messages whose first frame starts with `topic`, in the form that every version accepts.
pub fn encode_subscription(topic: &[u8], out: &mut Vec<u8>) {
    encode(&[&[&[1], topic].concat()], out);
}

/// Appends the reply to a ping.
pub fn encode_pong(context: &[u8], out: &mut Vec<u8>) {
    frame::encode_command(b"\x04PONG", context, out);
}

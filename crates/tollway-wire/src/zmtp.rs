//! ZMTP, what ZeroMQ's sockets say to each other over TCP: version 3, without encryption, for publishers and subscribers.
//!
//! ```text
//! <-> ff 0000000000000001 7f 03 01 NULL…     both greet, 64 bytes
//! <-> 04 19 READY Socket-Type PUB            both say what they are
//! ->  00 01 01                               a subscriber subscribes to all there is
//! <-  01 05 hello 00 05 world                a message of two frames
//! ```
//!
//! A message is understood where it has arrived, and only when all of it has. No announced length is believed: what is
//! longer than [`MESSAGE_MAX`] ends the conversation before any of it is kept.
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
pub use self::frame::{MessageFrames, encode};
use self::handshake::{GREETING_LEN, read_greeting, read_ready};
pub use self::handshake::{SocketType, encode_handshake};

/// The longest message that is listened to, with the heads of its frames.
pub const MESSAGE_MAX: usize = 64 * 1024;

/// What the peer says.
#[derive(Clone, Debug)]
pub enum ZmtpEvent<'a> {
    /// Greets.
    Greeting,
    /// Says what it is, and is ready for messages.
    Ready,
    /// Sends a message.
    Message(MessageFrames<'a>),
    /// Wants messages whose first frame starts like this.
    Subscribe(&'a [u8]),
    /// No longer wants them.
    Cancel(&'a [u8]),
    /// Asks whether anybody is there; wants this back by [`encode_pong`].
    Ping(&'a [u8]),
    /// Says what nobody needs to know.
    Ignored,
}

/// Why there is nothing more to say to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ZmtpError {
    /// Bytes of another protocol.
    #[error("the peer does not greet as ZeroMQ does")]
    NotZmtp,
    /// Before 3.0.
    #[error("the peer speaks version {major} of the protocol; 3 is needed")]
    Version {
        /// Its version.
        major: u8,
    },
    /// Encrypted, or with a password.
    #[error("the peer wants another security mechanism than NULL")]
    Mechanism,
    /// Something else than what must come first.
    #[error("the peer does not say what it is")]
    NotReady,
    /// A socket with which ours does not go together.
    #[error("the peer is a socket of type {found:?}, which does not go together with {ours:?}")]
    SocketType {
        /// What it is.
        found: SocketType,
        /// What we are.
        ours: SocketType,
    },
    /// A message that is too long to be kept.
    #[error("a message has more than {MESSAGE_MAX} bytes")]
    TooLong,
    /// A frame with flags that nobody defined, or a command in the middle of a message.
    #[error("a frame makes no sense")]
    Malformed,
}

/// What one connection has come to. It keeps none of what was said.
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
    /// One that has not begun, by a socket of this type.
    pub const fn new(ours: SocketType) -> Self {
        Self { ours, stage: HandshakeStage::Greeting }
    }

    /// May messages be sent?
    pub fn is_ready(&self) -> bool {
        self.stage == HandshakeStage::Messages
    }

    /// What `inbox` starts with and how many bytes that takes, or `None` until all of it has arrived.
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

/// Older subscribers say in a message what newer ones say in a command.
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

/// Appends a subscription to messages whose first frame starts with `topic`, as peers of every version understand it.
pub fn encode_subscription(topic: &[u8], out: &mut Vec<u8>) {
    encode(&[&[&[1], topic].concat()], out);
}

/// Appends the answer to a ping.
pub fn encode_pong(context: &[u8], out: &mut Vec<u8>) {
    frame::encode_command(b"\x04PONG", context, out);
}

//! The handshake that starts a connection: both sides send a greeting, then their socket type.

use super::ZmtpError;
use super::frame::encode_command;

pub(super) const GREETING_LEN: usize = 64;

/// The first bytes of every greeting. Peers of older versions read them as a frame of one byte.
const SIGNATURE: &[u8; 10] = b"\xff\0\0\0\0\0\0\0\x01\x7f";
const VERSION: [u8; 2] = [3, 1];
const MECHANISM: &[u8; 20] = b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// The type that a ZeroMQ socket has. Only the four types of publish-subscribe are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    /// A publisher, which sends to its subscribers.
    Pub,
    /// A subscriber, which receives what it subscribed to.
    Sub,
    /// A publisher that also receives the subscriptions, as a proxy does.
    XPub,
    /// A subscriber that forwards subscriptions, as a proxy does.
    XSub,
    /// Any other type, which cannot be connected to these.
    Other,
}

impl SocketType {
    const NAMES: [(&'static [u8], Self); 4] =
        [(b"PUB", Self::Pub), (b"SUB", Self::Sub), (b"XPUB", Self::XPub), (b"XSUB", Self::XSub)];

    pub(super) const fn is_compatible_with(self, other: Self) -> bool {
        use SocketType::{Pub, Sub, XPub, XSub};
        matches!((self, other), (Pub | XPub, Sub | XSub) | (Sub | XSub, Pub | XPub))
    }

    pub(super) const fn publishes(self) -> bool {
        matches!(self, Self::Pub | Self::XPub)
    }

    fn name(self) -> &'static [u8] {
        let named = Self::NAMES.iter().find(|(_, kind)| *kind == self);
        named.map_or(b"OTHER", |(name, _)| name)
    }
}

/// Appends the bytes that either side sends first: a greeting, and its socket type.
pub fn encode_handshake(ours: SocketType, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&VERSION);
    out.extend_from_slice(MECHANISM);
    out.resize(start + GREETING_LEN, 0);
    let name = ours.name();
    let len = u32::try_from(name.len()).expect("a name of at most five bytes");
    let properties = [b"\x0bSocket-Type", &len.to_be_bytes()[..], name].concat();
    encode_command(b"\x05READY", &properties, out);
}

/// Checks the greeting at the start of `inbox`. Returns `None` until all of it has arrived.
///
/// Bytes of another protocol are an error at once: such a peer may never send 64 of them.
pub(super) fn read_greeting(inbox: &[u8]) -> Result<Option<()>, ZmtpError> {
    let is = |at: usize, expected: u8| inbox.get(at).is_none_or(|found| *found == expected);
    if !is(0, SIGNATURE[0]) || !is(9, SIGNATURE[9]) {
        return Err(ZmtpError::NotZmtp);
    }
    if let Some(major) = inbox.get(10).copied().filter(|major| *major < VERSION[0]) {
        return Err(ZmtpError::Version { major });
    }
    let Some(greeting) = inbox.get(..GREETING_LEN) else { return Ok(None) };
    if greeting[12..32] == MECHANISM[..] { Ok(Some(())) } else { Err(ZmtpError::Mechanism) }
}

/// Returns the socket type that a READY command has among its properties.
pub(super) fn read_ready(command: &[u8]) -> Option<SocketType> {
    let mut rest = command.strip_prefix(b"\x05READY")?;
    while let [len, after @ ..] = rest {
        let (name, after) = after.split_at_checked(usize::from(*len))?;
        let (len, after) = after.split_first_chunk()?;
        let (value, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            let named = SocketType::NAMES.iter().find(|(name, _)| *name == value);
            return Some(named.map_or(SocketType::Other, |(_, kind)| *kind));
        }
        rest = after;
    }
    None
}

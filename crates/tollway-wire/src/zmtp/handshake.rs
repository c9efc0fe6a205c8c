//! How a connection begins: both greet, and both say what they are.

use super::ZmtpError;
use super::frame::encode_command;

pub(super) const GREETING_LEN: usize = 64;

/// The first bytes of a greeting: a frame of one byte, as older peers read them.
const SIGNATURE: &[u8; 10] = b"\xff\0\0\0\0\0\0\0\x01\x7f";
const VERSION: [u8; 2] = [3, 1];
const MECHANISM: &[u8; 20] = b"NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// What a socket is for. Those that never meet a limiter's are all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    /// Sends to whoever subscribed.
    Pub,
    /// Subscribes, and receives.
    Sub,
    /// Sends, and shows who subscribed: a router's side.
    XPub,
    /// Receives, and passes subscriptions on: a router's other side.
    XSub,
    /// Something else.
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

/// Appends what either side says first: a greeting, and what it is.
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

/// `None` until all of it has arrived; what is no greeting need not arrive first.
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

/// What the peer is, from a command that says so among other things.
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

//! Reads and writes ZMTP frames: flags, a length of one byte or eight, and the body.

use super::{MESSAGE_MAX, ZmtpError};

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// One frame, which is borrowed from the read buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) more: bool,
    is_command: bool,
    pub(super) body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Decodes the frame at the start of `inbox`, and returns it with its length in bytes. Returns `None` until all of
    /// it has arrived. A length above the maximum is an error at once, before the body arrives.
    #[inline]
    pub(super) fn read(inbox: &'a [u8]) -> Result<Option<(Self, usize)>, ZmtpError> {
        let [flags, rest @ ..] = inbox else { return Ok(None) };
        let is_command = flags & COMMAND != 0;
        let more = flags & MORE != 0;
        if flags & !(MORE | LONG | COMMAND) != 0 || (is_command && more) {
            return Err(ZmtpError::Malformed);
        }
        let (len, rest) = if flags & LONG == 0 {
            let [len, rest @ ..] = rest else { return Ok(None) };
            (usize::from(*len), rest)
        } else {
            let Some((len, rest)) = rest.split_first_chunk() else { return Ok(None) };
            (usize::try_from(u64::from_be_bytes(*len)).unwrap_or(usize::MAX), rest)
        };
        if len > MESSAGE_MAX {
            return Err(ZmtpError::TooLong);
        }
        let head = inbox.len() - rest.len();
        Ok(rest.get(..len).map(|body| (Self { more, is_command, body }, head + len)))
    }

    /// Returns the body if this is a command. It starts with the name of the command.
    pub(super) fn command(&self) -> Option<&'a [u8]> {
        self.is_command.then_some(self.body)
    }
}

/// Iterates over the frames of a message that has arrived.
#[derive(Clone, Debug)]
pub struct MessageFrames<'a> {
    rest: &'a [u8],
}

impl<'a> MessageFrames<'a> {
    /// Iterates over the frames of `message`, which a session has decoded before.
    pub const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Returns the bytes of the frames that are left, with their headers.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.rest
    }
}

/// Splits bytes that [`encode`] wrote into messages.
pub fn messages(bytes: &[u8]) -> impl Iterator<Item = MessageFrames<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (message, mut end) = (rest, 0);
        loop {
            let (frame, len) = Frame::read(&message[end..]).ok()??;
            end += len;
            if !frame.more {
                rest = &message[end..];
                return Some(MessageFrames::new(&message[..end]));
            }
        }
    })
}

impl<'a> Iterator for MessageFrames<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (frame, len) = Frame::read(self.rest).ok()??;
        self.rest = &self.rest[len..];
        Some(frame.body)
    }
}

/// Appends a message that consists of `frames`.
#[inline]
pub fn encode(frames: &[&[u8]], out: &mut Vec<u8>) {
    for (index, frame) in frames.iter().enumerate() {
        let more = if index + 1 < frames.len() { MORE } else { 0 };
        encode_head(more, frame.len(), out);
        out.extend_from_slice(frame);
    }
}

/// Appends a command. `name` starts with its own length.
pub(super) fn encode_command(name: &[u8], body: &[u8], out: &mut Vec<u8>) {
    encode_head(COMMAND, name.len() + body.len(), out);
    out.extend_from_slice(name);
    out.extend_from_slice(body);
}

fn encode_head(flags: u8, len: usize, out: &mut Vec<u8>) {
    match u8::try_from(len) {
        Ok(len) => out.extend_from_slice(&[flags, len]),
        Err(_) => {
            out.push(flags | LONG);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
}

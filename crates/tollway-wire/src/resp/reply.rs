//! Encodes replies, in the version of the protocol that the client has chosen.

use std::fmt::Display;
use std::io::Write;

use tollway_core::Nanos;

use super::words::put_length;
use crate::decimal::put_seconds;

/// A version that RESP has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RespVersion {
    /// The version that every connection begins with.
    #[default]
    Resp2,
    /// The version that has maps, booleans, doubles and nulls.
    Resp3,
}

impl RespVersion {
    /// Returns its number.
    pub const fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Appends replies to a write buffer.
#[derive(Debug)]
pub struct ReplyWriter<'o> {
    out: &'o mut Vec<u8>,
    version: RespVersion,
}

/// The line of an array of five integers, and the first of them if it is 0.
const FIRST: &[u8; 8] = b"*5\r\n:0\r\n";
/// The bytes that an integer takes at most, with its mark and its line end.
const INTEGER_MAX: usize = 23;
/// The bytes that five integers take at most, and what [`short_line`] has behind the last.
const FIVE_MAX: usize = FIRST.len() + 4 * INTEGER_MAX + size_of::<u64>();
/// The bytes that five integers of up to four digits take at most. They are copied as a whole: a copy of as many bytes
/// as there are would be a call.
const SHORT_FIVE_MAX: usize = FIRST.len() + 4 * size_of::<u64>();

impl<'o> ReplyWriter<'o> {
    /// Creates a writer that appends to `out`.
    pub const fn new(out: &'o mut Vec<u8>, version: RespVersion) -> Self {
        Self { out, version }
    }

    /// Writes in another version from the next reply on.
    pub const fn set_version(&mut self, version: RespVersion) {
        self.version = version;
    }

    /// Appends replies that were written before.
    pub fn written(&mut self, replies: &[u8]) {
        self.out.extend_from_slice(replies);
    }

    /// Appends a simple string, such as `OK`.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Appends an error. A line end in it would end the reply, so it becomes a space.
    pub fn error(&mut self, error: &dyn Display) {
        let start = self.out.len();
        self.out.push(b'-');
        // A `Vec` takes whatever is written to it.
        let _ = write!(self.out, "{error}");
        self.out[start..]
            .iter_mut()
            .filter(|byte| matches!(byte, b'\r' | b'\n'))
            .for_each(|byte| *byte = b' ');
        self.out.extend_from_slice(b"\r\n");
    }

    /// Appends an integer.
    pub fn integer(&mut self, number: i64) {
        self.line(b':', itoa::Buffer::new().format(number).as_bytes());
    }

    /// Appends an array of five integers in one piece, which is the reply that nearly every command gets. The first is
    /// 1 or 0.
    #[inline]
    pub fn five_integers(&mut self, first: bool, others: [i64; 4]) {
        let mut bytes = [0; FIVE_MAX];
        bytes[..FIRST.len()].copy_from_slice(if first { b"*5\r\n:1\r\n" } else { FIRST });
        let mut len = FIRST.len();
        for number in others {
            let place = &mut bytes[len..];
            len += match short_line(number) {
                Some((line, line_len)) => {
                    place[..size_of::<u64>()].copy_from_slice(&line.to_le_bytes());
                    line_len
                }
                None => put_long_line(place, number),
            };
        }
        if len > SHORT_FIVE_MAX {
            return self.out.extend_from_slice(&bytes[..len]);
        }
        let end = self.out.len() + len;
        self.out.extend_from_slice(&bytes[..SHORT_FIVE_MAX]);
        self.out.truncate(end);
    }

    /// Appends a string of any bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        put_length(b'$', bytes.len(), self.out);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Appends a text that people read.
    pub fn text(&mut self, text: &str) {
        match self.version {
            RespVersion::Resp2 => self.bulk(text.as_bytes()),
            RespVersion::Resp3 => {
                put_length(b'=', text.len() + 4, self.out);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Appends the start of an array of this many replies.
    pub fn array(&mut self, len: usize) {
        put_length(b'*', len, self.out);
    }

    /// Appends the start of a map of this many names and values; an array of both in version 2.
    pub fn map(&mut self, len: usize) {
        match self.version {
            RespVersion::Resp2 => put_length(b'*', 2 * len, self.out),
            RespVersion::Resp3 => put_length(b'%', len, self.out),
        }
    }

    /// Appends a null.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            RespVersion::Resp2 => b"$-1\r\n",
            RespVersion::Resp3 => b"_\r\n",
        });
    }

    /// Appends a boolean; a 1 or a 0 in version 2.
    pub fn boolean(&mut self, value: bool) {
        match self.version {
            RespVersion::Resp2 => self.integer(i64::from(value)),
            RespVersion::Resp3 => self.out.extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    /// Appends decimal seconds; a string in version 2, and a null if the span is for ever.
    pub fn seconds(&mut self, span: Nanos) {
        if span.is_forever() {
            return self.null();
        }
        match self.version {
            RespVersion::Resp2 => {
                let mut text = Vec::with_capacity(24);
                put_seconds(&mut text, span);
                self.bulk(&text);
            }
            RespVersion::Resp3 => {
                self.out.push(b',');
                put_seconds(self.out, span);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Returns the line of an integer of up to four digits, from the lowest byte on, and its length; `None` if the integer
/// is longer.
#[inline]
fn short_line(number: i64) -> Option<(u64, usize)> {
    if number == -1 {
        return Some((u64::from_le_bytes(*b":-1\r\n\0\0\0"), 5));
    }
    let number = usize::try_from(number).ok().filter(|number| *number <= 9_999)?;
    let digits = u32::from(PAIRS[number / 100]) | u32::from(PAIRS[number % 100]) << 16;
    // The last digit counts, also if it is a zero.
    let zeros = ((digits ^ u32::from_le_bytes(*b"0000")) | 1 << 31).trailing_zeros() / u8::BITS;
    let shown = 4 - zeros;
    let digits = u64::from(digits.wrapping_shr(zeros * u8::BITS));
    let line_end = u64::from(u16::from_le_bytes(*b"\r\n")).wrapping_shl((shown + 1) * u8::BITS);
    Some((u64::from(b':') | digits << u8::BITS | line_end, shown as usize + 3))
}

/// Writes the line of an integer of any length to the start of `place`, and returns its length.
#[inline(never)]
fn put_long_line(place: &mut [u8], number: i64) -> usize {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    let line = &mut place[..digits.len() + 3];
    line[0] = b':';
    line[1..=digits.len()].copy_from_slice(digits);
    line[digits.len() + 1..].copy_from_slice(b"\r\n");
    line.len()
}

/// The two digits of each number below 100, the first one in the lower byte.
const PAIRS: [u16; 100] = {
    let (mut pairs, mut number) = ([0; 100], 0_u8);
    while number < 100 {
        pairs[number as usize] = u16::from_le_bytes([b'0' + number / 10, b'0' + number % 10]);
        number += 1;
    }
    pairs
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_integers_are_an_array_of_them() {
        let borders = [0, 9, 10, 99, 100, 999, 1_000, 9_999, 10_000, i64::MAX];
        for number in borders.into_iter().chain(borders.map(|border| -border)).chain([-1, -2, i64::MIN]) {
            let (mut together, mut alone) = (Vec::new(), Vec::new());
            ReplyWriter::new(&mut together, RespVersion::Resp2).five_integers(number > 99, [number; 4]);
            let mut reply = ReplyWriter::new(&mut alone, RespVersion::Resp2);
            reply.array(5);
            reply.integer(i64::from(number > 99));
            (0..4).for_each(|_| reply.integer(number));
            assert_eq!(together, alone, "{number}");
        }
        for number in 0..=10_000 {
            let line = short_line(number).map(|(line, len)| line.to_le_bytes()[..len].to_vec());
            assert_eq!(line, (number < 10_000).then(|| format!(":{number}\r\n").into_bytes()));
        }
    }
}

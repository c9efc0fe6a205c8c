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

/// The bytes that five integers take at most, with the line of their array.
const FIVE_MAX: usize = 4 + 5 * 23;

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

    /// Appends an array of five integers in one piece, which is the reply that nearly every command gets.
    #[inline]
    pub fn five_integers(&mut self, numbers: [i64; 5]) {
        let mut buffer = [0; FIVE_MAX];
        buffer[..4].copy_from_slice(b"*5\r\n");
        let mut at = 4;
        for number in numbers {
            at += put_integer(&mut buffer[at..], number);
        }
        self.out.extend_from_slice(&buffer[..at]);
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

/// Writes the line of an integer to the start of `place`, and returns its length. The numbers that nearly every reply
/// has are written in place: a copy of a few digits costs more than the digits.
#[inline]
fn put_integer(place: &mut [u8], number: i64) -> usize {
    match number {
        -1 => {
            place[..5].copy_from_slice(b":-1\r\n");
            5
        }
        0..=9_999 => {
            let digits = 1 + usize::from(number > 9) + usize::from(number > 99) + usize::from(number > 999);
            let line = &mut place[..digits + 3];
            line[0] = b':';
            let mut rest = number.unsigned_abs();
            for digit in line[1..=digits].iter_mut().rev() {
                *digit = DIGITS[(rest % 10) as usize];
                rest /= 10;
            }
            line[digits + 1..].copy_from_slice(b"\r\n");
            line.len()
        }
        _ => {
            let mut digits = itoa::Buffer::new();
            let digits = digits.format(number).as_bytes();
            let line = &mut place[..digits.len() + 3];
            line[0] = b':';
            line[1..=digits.len()].copy_from_slice(digits);
            line[digits.len() + 1..].copy_from_slice(b"\r\n");
            line.len()
        }
    }
}

const DIGITS: &[u8; 10] = b"0123456789";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_integers_are_an_array_of_them() {
        let borders = [0, 9, 10, 99, 100, 999, 1_000, 9_999, 10_000, i64::MAX];
        for number in borders.into_iter().chain(borders.map(|border| -border)).chain([-1, -2, i64::MIN]) {
            let (mut together, mut alone) = (Vec::new(), b"*5\r\n".to_vec());
            ReplyWriter::new(&mut together, RespVersion::Resp2).five_integers([number; 5]);
            let mut reply = ReplyWriter::new(&mut alone, RespVersion::Resp2);
            (0..5).for_each(|_| reply.integer(number));
            assert_eq!(together, alone, "{number}");
        }
    }
}

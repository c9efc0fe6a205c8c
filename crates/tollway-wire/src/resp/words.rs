//! Splits the bytes of a client into the words of commands.

use std::ops::Deref;

use super::error::RespFramingError;
use super::plain_text;
use super::{COMMAND_MAX, SKIPPED_WORDS_MAX, WORDS_MAX};
use crate::decimal::put_u64;

/// The words of one command, borrowed from the read buffer. It is reused for the next command.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    words: [&'a [u8]; WORDS_MAX],
    len: usize,
    /// True if there were more words, which are skipped.
    is_cut: bool,
}

impl<'a> Words<'a> {
    /// Creates a place for words, without any.
    pub const fn new() -> Self {
        Self { words: [&[]; WORDS_MAX], len: 0, is_cut: false }
    }

    /// Adds a word, or skips it if there are [`WORDS_MAX`] already.
    #[inline]
    pub(super) fn push(&mut self, word: &'a [u8]) {
        match self.words.get_mut(self.len) {
            Some(free) => {
                *free = word;
                self.len += 1;
            }
            None => self.is_cut = true,
        }
    }

    /// Returns what the words are, when the last of them was added.
    #[inline]
    pub(super) const fn decoded(&self) -> Decoded {
        if self.is_cut { Decoded::TooManyWords } else { Decoded::Command }
    }
}

impl Default for Words<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Deref for Words<'a> {
    type Target = [&'a [u8]];

    #[inline]
    fn deref(&self) -> &[&'a [u8]] {
        &self.words[..self.len]
    }
}

/// The kinds of input that [`decode`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A command, whose words were written to the place for them.
    Command,
    /// A command with more than [`WORDS_MAX`] words, which gets an error. Its first words were written.
    TooManyWords,
    /// A blank line, which gets no reply.
    Blank,
}

/// Decodes what is at the start of `inbox`, and returns its length in bytes. Returns `None` until all of it has
/// arrived. After an error, the next command cannot be found.
#[inline]
pub fn decode<'a>(
    inbox: &'a [u8],
    words: &mut Words<'a>,
) -> Result<Option<(Decoded, usize)>, RespFramingError> {
    words.len = 0;
    words.is_cut = false;
    match inbox.first() {
        None => Ok(None),
        Some(b'*') => Ok(decode_array(inbox, words)?.map(|len| (words.decoded(), len))),
        Some(
            &found @ (b'$' | b':' | b'+' | b'-' | b'%' | b'~' | b'#' | b',' | b'_' | b'(' | b'=' | b'>'),
        ) => Err(RespFramingError::NoArray { found }),
        Some(_) => plain_text::decode(inbox, words),
    }
}

#[inline]
fn decode_array<'a>(inbox: &'a [u8], words: &mut Words<'a>) -> Result<Option<usize>, RespFramingError> {
    let Some((count, mut at)) = length(inbox, 1)? else { return Ok(None) };
    if count > SKIPPED_WORDS_MAX {
        return Err(RespFramingError::TooManyWords);
    }
    for _ in 0..count {
        match inbox.get(at) {
            Some(b'$') => {
                let Some((len, start)) = length(inbox, at + 1)? else { return Ok(None) };
                // Before the bytes have come: nobody waits for a word that is never accepted.
                if len > COMMAND_MAX - start.min(COMMAND_MAX) {
                    return Err(RespFramingError::TooLong);
                }
                let end = start + len;
                let Some(line_end) = inbox.get(end..end + 2) else { return Ok(None) };
                if line_end != b"\r\n" {
                    return Err(RespFramingError::NoLineEnd);
                }
                words.push(&inbox[start..end]);
                at = end + 2;
            }
            // Some clients send numbers as numbers.
            Some(b':') => {
                let Some(end) = line_end(inbox, at + 1)? else { return Ok(None) };
                words.push(&inbox[at + 1..end]);
                at = end + 2;
                if at > COMMAND_MAX {
                    return Err(RespFramingError::TooLong);
                }
            }
            Some(&found) => return Err(RespFramingError::NoString { found }),
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// The most digits that a length or a number can have, with a sign.
const DIGITS_MAX: usize = 20;

/// Parses the length at this place, and returns it with the place after its line. Nothing but digits is a length: a
/// negative one would stand for nothing, which no command has.
#[inline]
pub(super) fn length(inbox: &[u8], at: usize) -> Result<Option<(usize, usize)>, RespFramingError> {
    // Nearly every length has one digit or two. Looking at each byte for what it may be takes several times as long.
    match inbox.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(&[one @ b'0'..=b'9', b'\r', b'\n', _]) => Ok(Some((digit(one), at + 3))),
        Some(&[ten @ b'0'..=b'9', one @ b'0'..=b'9', b'\r', b'\n']) => {
            Ok(Some((digit(ten) * 10 + digit(one), at + 4)))
        }
        _ => any_length(inbox, at),
    }
}

#[inline]
const fn digit(byte: u8) -> usize {
    (byte - b'0') as usize
}

/// Parses a length of any digits, or one that has not arrived.
#[cold]
fn any_length(inbox: &[u8], at: usize) -> Result<Option<(usize, usize)>, RespFramingError> {
    let mut len = 0_usize;
    for (place, byte) in inbox.iter().enumerate().skip(at).take(DIGITS_MAX + 1) {
        match byte {
            b'0'..=b'9' => {
                // More than any bound is too long, however much more it is.
                len = len.saturating_mul(10).saturating_add(digit(*byte));
            }
            b'\r' if place > at => {
                return match inbox.get(place + 1) {
                    Some(b'\n') => Ok(Some((len, place + 2))),
                    Some(_) => Err(RespFramingError::InvalidLength),
                    None => Ok(None),
                };
            }
            _ => return Err(RespFramingError::InvalidLength),
        }
    }
    if inbox.len() > at + DIGITS_MAX { Err(RespFramingError::InvalidLength) } else { Ok(None) }
}

/// Returns the place where a short line ends.
fn line_end(inbox: &[u8], at: usize) -> Result<Option<usize>, RespFramingError> {
    let line = &inbox[at.min(inbox.len())..inbox.len().min(at + DIGITS_MAX + 2)];
    match line.iter().position(|byte| *byte == b'\r') {
        Some(end) => match line.get(end + 1) {
            Some(b'\n') => Ok(Some(at + end)),
            Some(_) => Err(RespFramingError::NoLineEnd),
            None if line.len() < DIGITS_MAX + 2 => Ok(None),
            None => Err(RespFramingError::NoLineEnd),
        },
        None if line.len() < DIGITS_MAX + 2 => Ok(None),
        None => Err(RespFramingError::NoLineEnd),
    }
}

/// Appends a command in the form that [`decode`] reads.
pub fn encode_command(words: &[&[u8]], out: &mut Vec<u8>) {
    put_length(b'*', words.len(), out);
    for word in words {
        put_length(b'$', word.len(), out);
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the line of a length.
pub(super) fn put_length(kind: u8, len: usize, out: &mut Vec<u8>) {
    out.push(kind);
    put_u64(out, len as u64);
    out.extend_from_slice(b"\r\n");
}

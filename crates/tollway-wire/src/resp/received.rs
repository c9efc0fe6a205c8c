//! Reads replies, for load generators and for people.

use std::fmt::Write;

use thiserror::Error;

/// The most replies inside of one reply that are read. Longer ones are no reply of a server of ours.
const PARTS_MAX: u64 = 1 << 20;
/// The longest string in a reply.
const STRING_MAX: u64 = 1 << 24;

/// An error for bytes that are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the bytes are no RESP reply")]
#[non_exhaustive]
pub struct ReplyError;

/// One line of a reply, with the string that follows it.
struct Part<'a> {
    kind: u8,
    line: &'a [u8],
    /// The string; `None` if none follows.
    string: Option<&'a [u8]>,
    /// The number of replies inside of this one.
    inside: u64,
    len: usize,
}

/// Returns the length of the reply at the start of `inbox`, in bytes, or `None` until all of it has arrived.
pub fn reply_len(inbox: &[u8]) -> Result<Option<usize>, ReplyError> {
    let (mut at, mut left) = (0, 1_u64);
    while left > 0 {
        let Some(part) = part(&inbox[at..])? else { return Ok(None) };
        at += part.len;
        left = (left - 1).saturating_add(part.inside);
        if left > PARTS_MAX {
            return Err(ReplyError);
        }
    }
    Ok(Some(at))
}

/// Returns a reply in one line, as traces have it: `*2 :1 "text"`. A string is in double quotes.
pub fn reply_text(mut reply: &[u8]) -> Result<String, ReplyError> {
    let mut text = String::new();
    while !reply.is_empty() {
        let part = part(reply)?.ok_or(ReplyError)?;
        if !text.is_empty() {
            text.push(' ');
        }
        match part.string {
            Some(string) => {
                text.push('"');
                put_escaped(string, "\\\"", &mut text);
                text.push('"');
            }
            None => {
                text.push(char::from(part.kind));
                put_escaped(part.line, "\"", &mut text);
            }
        }
        reply = &reply[part.len..];
    }
    Ok(text)
}

/// Appends bytes as printable text, and each double quote as `quote`.
fn put_escaped(bytes: &[u8], quote: &str, text: &mut String) {
    for byte in bytes {
        match byte {
            b'\'' => text.push('\''),
            b'"' => text.push_str(quote),
            // A `String` takes whatever is written to it.
            byte => drop(write!(text, "{}", byte.escape_ascii())),
        }
    }
}

fn part(inbox: &[u8]) -> Result<Option<Part<'_>>, ReplyError> {
    let Some((&kind, rest)) = inbox.split_first() else { return Ok(None) };
    let Some(end) = rest.iter().position(|byte| *byte == b'\r') else { return Ok(None) };
    let (line, start) = (&rest[..end], end + 3);
    match rest.get(end + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(ReplyError),
    }
    let one_line = Part { kind, line, string: None, inside: 0, len: start };
    match kind {
        b'+' | b'-' | b':' | b',' | b'#' | b'_' | b'(' => Ok(Some(one_line)),
        b'$' | b'=' | b'!' => {
            let Some(len) = length(line, STRING_MAX)? else { return Ok(Some(one_line)) };
            let len = usize::try_from(len).map_err(|_| ReplyError)?;
            let Some(line_end) = inbox.get(start + len..start + len + 2) else { return Ok(None) };
            if line_end != b"\r\n" {
                return Err(ReplyError);
            }
            Ok(Some(Part { string: Some(&inbox[start..start + len]), len: start + len + 2, ..one_line }))
        }
        b'*' | b'~' | b'>' => Ok(Some(Part { inside: length(line, PARTS_MAX)?.unwrap_or(0), ..one_line })),
        b'%' | b'|' => Ok(Some(Part { inside: 2 * length(line, PARTS_MAX)?.unwrap_or(0), ..one_line })),
        _ => Err(ReplyError),
    }
}

/// Parses a length; `None` is the null of version 2.
fn length(line: &[u8], max: u64) -> Result<Option<u64>, ReplyError> {
    if line == b"-1" {
        return Ok(None);
    }
    let text = std::str::from_utf8(line).map_err(|_| ReplyError)?;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let len = text.parse().ok().filter(|len| digits && *len <= max);
    len.map(Some).ok_or(ReplyError)
}

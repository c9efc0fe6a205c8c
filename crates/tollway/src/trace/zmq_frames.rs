//! Reads and writes ZeroMQ messages in a trace, where a message is a JSON array of its frames.
//!
//! ```text
//! ["default\u0000","ACCEPTED","10.0.0.1","3000","",""]         a message
//! [["default\u0000","DELAY_UNTIL","10.0.0.1","4000"]]          those that came back
//! ```
//!
//! A frame is bytes, but a JSON string is text. Valid UTF-8 is written as JSON escapes it, any other byte as `\xff`,
//! which no JSON parser accepts: hence the parser here.

use std::fmt::{self, Write};

use super::escape::hex_digit;
use super::parse::TraceProblem;

/// A ZeroMQ message, as the list of its frames.
pub type ZmqMessage = Vec<Vec<u8>>;

/// Parses one message, which has at least one frame. An error has the position of the mistake.
pub(super) fn decode(text: &str) -> Result<ZmqMessage, (usize, TraceProblem)> {
    let mut json = JsonReader { text: text.as_bytes(), at: 0 };
    let message = json.message()?;
    if message.is_empty() {
        return Err((0, TraceProblem::NoFrames));
    }
    json.end().map(|()| message)
}

/// Parses an array of messages, which may be empty.
pub(super) fn decode_all(text: &str) -> Result<Vec<ZmqMessage>, (usize, TraceProblem)> {
    let mut json = JsonReader { text: text.as_bytes(), at: 0 };
    let messages = json.array(JsonReader::message)?;
    json.end().map(|()| messages)
}

/// A parser that reads JSON arrays of strings. `text` is ASCII, and `at` the next byte to read.
struct JsonReader<'a> {
    text: &'a [u8],
    at: usize,
}

impl JsonReader<'_> {
    fn message(&mut self) -> Result<ZmqMessage, (usize, TraceProblem)> {
        self.array(Self::frame)
    }

    fn array<T>(
        &mut self,
        element: fn(&mut Self) -> Result<T, (usize, TraceProblem)>,
    ) -> Result<Vec<T>, (usize, TraceProblem)> {
        let mut elements = Vec::new();
        self.expect(b'[')?;
        if self.take(b']') {
            return Ok(elements);
        }
        loop {
            elements.push(element(self)?);
            if self.take(b']') {
                return Ok(elements);
            }
            self.expect(b',')?;
        }
    }

    fn frame(&mut self) -> Result<Vec<u8>, (usize, TraceProblem)> {
        self.expect(b'"')?;
        let mut frame = Vec::new();
        loop {
            match self.text.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => self.escape(&mut frame)?,
                Some(byte) => {
                    frame.push(*byte);
                    self.at += 1;
                }
                None => return Err((self.at, TraceProblem::NotFrames)),
            }
        }
        self.at += 1;
        Ok(frame)
    }

    fn escape(&mut self, frame: &mut Vec<u8>) -> Result<(), (usize, TraceProblem)> {
        let start = self.at;
        let unknown = (start, TraceProblem::FrameEscape);
        let kind = *self.text.get(start + 1).ok_or_else(|| unknown.clone())?;
        self.at += 2;
        match kind {
            b'"' | b'\\' | b'/' => frame.push(kind),
            b'n' => frame.push(b'\n'),
            b'r' => frame.push(b'\r'),
            b't' => frame.push(b'\t'),
            b'b' => frame.push(8),
            b'f' => frame.push(12),
            b'x' => frame.push(self.digits(2).and_then(|byte| u8::try_from(byte).ok()).ok_or(unknown)?),
            b'u' => {
                let text = self.character().ok_or(unknown)?;
                frame.extend_from_slice(text.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => return Err(unknown),
        }
        Ok(())
    }

    /// Reads the four digits of `\u`, and the second escape of a surrogate pair.
    fn character(&mut self) -> Option<char> {
        let first = self.digits(4)?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first);
        }
        if self.text.get(self.at..self.at + 2) != Some(b"\\u") {
            return None;
        }
        self.at += 2;
        let second = self.digits(4)?.checked_sub(0xdc00).filter(|second| *second < 0x400)?;
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + second)
    }

    fn digits(&mut self, count: usize) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + count)?;
        self.at += count;
        digits.iter().try_fold(0, |number, digit| Some(number << 4 | u32::from(hex_digit(*digit)?)))
    }

    /// Skips spaces, then takes `byte` if it comes next, and returns whether it did.
    fn take(&mut self, byte: u8) -> bool {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        let found = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), (usize, TraceProblem)> {
        if self.take(byte) { Ok(()) } else { Err((self.at, TraceProblem::NotFrames)) }
    }

    fn end(&self) -> Result<(), (usize, TraceProblem)> {
        if self.text[self.at..].trim_ascii().is_empty() {
            Ok(())
        } else {
            Err((self.at, TraceProblem::NotFrames))
        }
    }
}

/// Writes messages as an array of arrays.
pub(super) fn write_all(f: &mut fmt::Formatter<'_>, messages: &[ZmqMessage]) -> fmt::Result {
    write_array(f, messages, write)
}

/// Writes a message as an array of strings.
pub(super) fn write(f: &mut fmt::Formatter<'_>, message: &ZmqMessage) -> fmt::Result {
    write_array(f, message, write_frame)
}

fn write_array<T>(
    f: &mut fmt::Formatter<'_>,
    elements: &[T],
    write: fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_char('[')?;
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            f.write_char(',')?;
        }
        write(f, element)?;
    }
    f.write_char(']')
}

#[expect(clippy::ptr_arg, reason = "it is handed over as what writes an element of an array")]
fn write_frame(f: &mut fmt::Formatter<'_>, frame: &Vec<u8>) -> fmt::Result {
    f.write_char('"')?;
    for chunk in frame.utf8_chunks() {
        chunk.valid().chars().try_for_each(|character| write_character(f, character))?;
        chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
    }
    f.write_char('"')
}

fn write_character(f: &mut fmt::Formatter<'_>, character: char) -> fmt::Result {
    match character {
        '"' | '\\' => write!(f, "\\{character}"),
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        // `=>` would end the request, so `>` is always escaped.
        ' '..='~' if character != '>' => f.write_char(character),
        _ => character.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(f, "\\u{unit:04x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_an_array_of_strings() {
        for (text, frames, written) in [
            (r#"["a\u0000","","3000"]"#, &[&b"a\0"[..], b"", b"3000"][..], r#"["a\u0000","","3000"]"#),
            (r#" [ "a" , "b" ] "#, &[b"a", b"b"], r#"["a","b"]"#),
            (r#"["\u00e9\ud83d\ude00"]"#, &["é😀".as_bytes()], r#"["\u00e9\ud83d\ude00"]"#),
            (r#"["\xff\xc3(\b\f\/"]"#, &[b"\xff\xc3(\x08\x0c/"], r#"["\xff\xc3(\u0008\u000c/"]"#),
            (r#"["\"\\\n\r\t => "]"#, &[b"\"\\\n\r\t => "], r#"["\"\\\n\r\t =\u003e "]"#),
        ] {
            let message = decode(text).unwrap();
            assert_eq!(message, frames, "{text}");
            assert_eq!(fmt::from_fn(|f| write(f, &message)).to_string(), written);
            assert_eq!(decode(written).unwrap(), message);
        }
        assert_eq!(decode_all("[]"), Ok(vec![]));
        let two = decode_all(r#"[["a"],["b","c"]]"#).unwrap();
        assert_eq!(fmt::from_fn(|f| write_all(f, &two)).to_string(), r#"[["a"],["b","c"]]"#);
    }

    #[test]
    fn what_is_no_message_is_refused_where_it_stands() {
        let (not, escape) = (TraceProblem::NotFrames, TraceProblem::FrameEscape);
        for (text, at, problem) in [
            ("", 0, &not),
            ("[]", 0, &TraceProblem::NoFrames),
            ("a", 0, &not),
            (r#"["a""#, 4, &not),
            (r#"["a"#, 3, &not),
            (r#"["a",]"#, 5, &not),
            (r#"["a"]]"#, 5, &not),
            ("[1]", 1, &not),
            (r#"["\q"]"#, 2, &escape),
            (r#"["\u00g0"]"#, 2, &escape),
            (r#"["\ud800"]"#, 2, &escape),
            (r#"["\udc00"]"#, 2, &escape),
            (r#"["\ud800\u0041"]"#, 2, &escape),
            (r#"["\"#, 2, &escape),
        ] {
            assert_eq!(decode(text), Err((at, problem.clone())), "{text}");
        }
    }
}

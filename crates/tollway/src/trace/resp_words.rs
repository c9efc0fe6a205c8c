//! The words that a RESP command, or its reply, has in a line of a trace.
//!
//! ```text
//! CL.THROTTLE "a key" 15 30 60
//! *2 :1 "a string"
//! ```
//!
//! A word in quotes may have spaces, and may be empty. In double quotes `\"` is a quote; otherwise the escapes of
//! traces hold, in quotes and outside of them.

use std::fmt;

use super::escape::{unescape, write_escaped};
use super::parse::{LocatedProblem, TraceProblem};

/// One word, and whether it was in quotes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) bytes: Vec<u8>,
    is_quoted: bool,
}

/// Splits a text into its words.
pub(super) fn parse(text: &str) -> Result<Vec<Word>, LocatedProblem> {
    let (mut words, mut at) = (Vec::new(), 0);
    while let Some(start) = text[at..].find(|c: char| !c.is_ascii_whitespace()).map(|start| at + start) {
        let rest = &text[start..];
        let (is_quoted, inside, len) = match rest.as_bytes()[0] {
            quote @ (b'"' | b'\'') => {
                let end = closing(rest.as_bytes(), quote).ok_or((start, TraceProblem::OpenQuote))?;
                (true, &rest[1..end], end + 1)
            }
            _ => {
                let len = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
                (false, &rest[..len], len)
            }
        };
        let begin = start + usize::from(is_quoted);
        // The escape is as long as its place in the line: a quote that is written as a byte stays three places on.
        let plain = inside.replace("\\\"", "\\x22");
        let bytes = unescape(plain.as_bytes()).map_err(|bad| (begin + bad, TraceProblem::Escape))?;
        words.push(Word { bytes: bytes.into_owned(), is_quoted });
        at = start + len;
    }
    Ok(words)
}

/// Returns the place of the quote that closes the one at the start.
fn closing(text: &[u8], quote: u8) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'\\' => at += 2,
            byte if *byte == quote => return Some(at),
            _ => at += 1,
        }
    }
}

/// Writes words so that they are parsed back to the same bytes.
pub(super) fn write(f: &mut fmt::Formatter<'_>, words: &[Vec<u8>]) -> fmt::Result {
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            f.write_str(" ")?;
        }
        let needs_quotes =
            word.is_empty() || word.contains(&b' ') || word.contains(&b'\'') || word.contains(&b'"');
        let quotes = if needs_quotes { "\"" } else { "" };
        f.write_str(quotes)?;
        // An arrow between spaces would end the request.
        let arrow = |at: usize| word[..at].ends_with(b"=");
        write_escaped(f, word, |at, byte| match byte {
            b' ' => true,
            b'"' => false,
            b'>' => !arrow(at),
            _ => byte.is_ascii_graphic(),
        })?;
        f.write_str(quotes)?;
    }
    Ok(())
}

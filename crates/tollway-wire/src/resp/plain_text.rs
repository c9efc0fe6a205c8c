//! Commands that a person types: words in one line of plain text.
//!
//! ```text
//! CL.THROTTLE alice 15 30 60
//! ECHO "two words"
//! ```

use super::LINE_MAX;
use super::error::RespFramingError;
use super::words::{Decoded, Words};

/// Decodes the line at the start of `inbox`.
pub(super) fn decode<'a>(
    inbox: &'a [u8],
    words: &mut Words<'a>,
) -> Result<Option<(Decoded, usize)>, RespFramingError> {
    let searched = &inbox[..inbox.len().min(LINE_MAX)];
    let Some(end) = searched.iter().position(|byte| *byte == b'\n') else {
        return if inbox.len() < LINE_MAX { Ok(None) } else { Err(RespFramingError::LineTooLong) };
    };
    let mut rest = inbox[..end].trim_ascii();
    while !rest.is_empty() {
        let (word, after) = first_word(rest)?;
        words.push(word);
        rest = after.trim_ascii_start();
    }
    let decoded = if words.is_empty() { Decoded::Blank } else { words.decoded() };
    Ok(Some((decoded, end + 1)))
}

/// Splits off the first word, without its quotes. Escapes would have to be copied, so whoever needs them sends an
/// array.
fn first_word(text: &[u8]) -> Result<(&[u8], &[u8]), RespFramingError> {
    let Some(quote @ (b'"' | b'\'')) = text.first() else {
        let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
        return Ok(text.split_at(end));
    };
    let close = text[1..].iter().position(|byte| byte == quote).ok_or(RespFramingError::Quotes)?;
    let (word, after) = (&text[1..=close], &text[close + 2..]);
    let followed = after.first().is_some_and(|byte| !byte.is_ascii_whitespace());
    if followed || word.contains(&b'\\') { Err(RespFramingError::Quotes) } else { Ok((word, after)) }
}

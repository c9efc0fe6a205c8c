//! Escapes bytes in a trace: printable ASCII stays, other bytes become `\n`, `\r`, `\t`, `\\` or `\xff`.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// Returns the bytes that `token` stands for, or the position of an invalid escape.
pub(super) fn unescape(token: &[u8]) -> Result<Cow<'_, [u8]>, usize> {
    if !token.contains(&b'\\') {
        return Ok(Cow::Borrowed(token));
    }
    let mut bytes = Vec::with_capacity(token.len());
    let mut at = 0;
    while let Some(&byte) = token.get(at) {
        let (byte, taken) = if byte == b'\\' { escaped(&token[at..]).ok_or(at)? } else { (byte, 1) };
        bytes.push(byte);
        at += taken;
    }
    Ok(Cow::Owned(bytes))
}

/// Returns the byte that the escape at the start of `text` stands for, and the length of the escape.
fn escaped(text: &[u8]) -> Option<(u8, usize)> {
    Some(match *text.get(1)? {
        b'n' => (b'\n', 2),
        b'r' => (b'\r', 2),
        b't' => (b'\t', 2),
        b'\\' => (b'\\', 2),
        b'x' => (hex_digit(*text.get(2)?)? << 4 | hex_digit(*text.get(3)?)?, 4),
        _ => return None,
    })
}

/// Returns the value of a hexadecimal digit.
pub(super) const fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Writes bytes as one field of a line: spaces are escaped too.
pub(super) fn write_token(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    write_escaped(f, bytes, |_, byte| byte.is_ascii_graphic())
}

/// Writes the name of a limit, which ends at the first colon. One that begins with `rule=` would be taken for a rule.
pub(super) fn write_name(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    let equals = name.starts_with("rule=").then_some("rule".len());
    write_escaped(f, name.as_bytes(), |at, byte| {
        byte.is_ascii_graphic() && byte != b':' && Some(at) != equals
    })
}

/// Writes a text that may contain spaces. Those at its ends are escaped, because the parser trims them, and so is an
/// arrow, which would end the request.
pub(super) fn write_text(f: &mut fmt::Formatter<'_>, text: &[u8]) -> fmt::Result {
    let inside = 1..text.len().saturating_sub(1);
    write_escaped(f, text, |at, byte| match byte {
        b' ' => inside.contains(&at),
        b'>' => !matches!(text[..at], [b'='] | [.., b' ', b'=']),
        _ => byte.is_ascii_graphic(),
    })
}

/// Writes bytes; each for which `plain` returns false (given its index and value) is escaped.
pub(super) fn write_escaped(
    f: &mut fmt::Formatter<'_>,
    bytes: &[u8],
    plain: impl Fn(usize, u8) -> bool,
) -> fmt::Result {
    let plain = |at, byte| plain(at, byte) && byte != b'\\';
    if let Ok(text) = std::str::from_utf8(bytes)
        && bytes.iter().enumerate().all(|(at, byte)| plain(at, *byte))
    {
        return f.write_str(text);
    }
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            _ if plain(at, byte) => f.write_char(char::from(byte))?,
            b'\n' => f.write_str("\\n")?,
            b'\r' => f.write_str("\\r")?,
            b'\t' => f.write_str("\\t")?,
            b'\\' => f.write_str("\\\\")?,
            _ => write!(f, "\\x{byte:02x}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_bytes() {
        for (token, bytes) in [
            (&b"plain"[..], &b"plain"[..]),
            (b"a\\x20b", b"a b"),
            (b"\\n\\r\\t\\\\", b"\n\r\t\\"),
            (b"\\xfF\\x00", b"\xff\x00"),
            (b"\\\\x20", b"\\x20"),
        ] {
            assert_eq!(unescape(token).as_deref(), Ok(bytes));
        }
    }

    #[test]
    fn text_keeps_its_blanks_and_never_ends_early() {
        for (text, written) in [
            (&b"over_limit a  b"[..], "over_limit a  b"),
            (b" a b ", "\\x20a b\\x20"),
            (b" ", "\\x20"),
            (b"", ""),
            (b"a\tb\n", "a\\tb\\n"),
            (b"a => b", "a =\\x3e b"),
            (b"=>", "=\\x3e"),
            (b"a=> b", "a=> b"),
        ] {
            assert_eq!(fmt::from_fn(|f| write_text(f, text)).to_string(), written);
            assert_eq!(unescape(written.as_bytes()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_is_no_escape_is_refused_where_it_stands() {
        for (token, place) in
            [(&b"\\"[..], 0), (b"ab\\q", 2), (b"\\x", 0), (b"\\x1", 0), (b"\\x1g", 0), (b"\\\\\\", 2)]
        {
            assert_eq!(unescape(token), Err(place), "{}", token.escape_ascii());
        }
    }
}

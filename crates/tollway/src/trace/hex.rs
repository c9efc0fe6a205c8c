//! Reads and writes binary data in a trace: two hexadecimal digits a byte, in either case; spaces may separate bytes.

use std::fmt;

use super::escape::hex_digit;
use super::parse::TraceProblem;

/// Parses hexadecimal digits. An error has the position of the mistake.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, (usize, TraceProblem)> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut at = 0;
    while let Some(&first) = text.get(at) {
        if first.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let second = text.get(at + 1).filter(|byte| !byte.is_ascii_whitespace());
        let high = digit(first, at)?;
        let low = second.ok_or((at, TraceProblem::HalfByte)).and_then(|second| digit(*second, at + 1))?;
        bytes.push(high << 4 | low);
        at += 2;
    }
    Ok(bytes)
}

fn digit(byte: u8, at: usize) -> Result<u8, (usize, TraceProblem)> {
    hex_digit(byte).ok_or((at, TraceProblem::Digit { digit: char::from(byte) }))
}

/// Writes two lower-case digits a byte.
pub(super) fn write(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_digits_of_either_case_are_a_byte() {
        for (text, bytes) in [("", &b""[..]), ("00fF", b"\x00\xff"), ("01 02\t0a", b"\x01\x02\x0a")] {
            assert_eq!(decode(text.as_bytes()).as_deref(), Ok(bytes));
        }
        assert_eq!(fmt::from_fn(|f| write(f, b"\x00\xfa")).to_string(), "00fa");
    }

    #[test]
    fn what_is_no_byte_is_refused_where_it_stands() {
        let digit = |digit| TraceProblem::Digit { digit };
        for (text, at, problem) in [
            ("0", 0, TraceProblem::HalfByte),
            ("000", 2, TraceProblem::HalfByte),
            ("0 00", 0, TraceProblem::HalfByte),
            ("0g", 1, digit('g')),
            ("00x0", 2, digit('x')),
            ("00 0x", 4, digit('x')),
        ] {
            assert_eq!(decode(text.as_bytes()), Err((at, problem)), "{text}");
        }
    }
}

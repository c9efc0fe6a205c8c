//! Parses times that are sent as milliseconds since 1970, in decimal digits.

/// The latest time that fits into 64 bits of nanoseconds. It is in the year 2554.
const LATEST: u64 = u64::MAX / 1_000_000;

/// Parses a time, and cuts off its decimals. Returns `None` for anything that is not a number, is negative, or is above
/// [`LATEST`].
pub(super) fn parse(frame: &[u8]) -> Option<u64> {
    let (whole, decimals) = match frame.iter().position(|byte| *byte == b'.') {
        Some(point) => (&frame[..point], &frame[point + 1..]),
        None => (frame, &b""[..]),
    };
    let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    if whole.is_empty() || !digits(whole) || !digits(decimals) {
        return None;
    }
    let more = |millis: u64, digit: &u8| millis.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    whole.iter().try_fold(0, more).filter(|millis| *millis <= LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_milliseconds_and_decimals_are_cut_off() {
        for (text, expected) in [
            ("0", Some(0)),
            ("3000", Some(3_000)),
            ("0003000", Some(3_000)),
            ("3000.7", Some(3_000)),
            ("3000.", Some(3_000)),
            ("3000.999999999999999999999", Some(3_000)),
            ("18446744073709", Some(LATEST)),
            ("18446744073710", None),
            ("99999999999999999999999", None),
            ("", None),
            (".5", None),
            ("-1", None),
            ("+1", None),
            ("1e3", None),
            ("1.2.3", None),
            (" 1", None),
            ("NaN", None),
            ("inf", None),
            ("0x10", None),
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text}");
        }
    }
}

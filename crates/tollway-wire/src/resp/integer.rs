//! Parses the integers of commands.

/// Parses an optional sign and digits; `None` if it is anything else, or more than 64 bits.
#[inline]
pub(super) fn parse(word: &[u8]) -> Option<i64> {
    let (negative, digits) = match word {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    if digits.len() <= SHORT_MAX {
        let number = parse_short(digits)?;
        return Some(if negative { -number } else { number });
    }
    let mut number = 0_i64;
    for byte in digits {
        let digit = i64::from(byte.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        // Downwards, so that the lowest number fits, too.
        number = number.checked_mul(10)?.checked_sub(digit)?;
    }
    if negative { Some(number) } else { number.checked_neg() }
}

/// The most digits of which every number fits into 64 bits.
const SHORT_MAX: usize = 18;

/// Parses digits that are too few to overflow, without a check after each.
#[inline]
fn parse_short(digits: &[u8]) -> Option<i64> {
    let mut number = 0_i64;
    for byte in digits {
        let digit = i64::from(byte.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        number = number.wrapping_mul(10).wrapping_add(digit);
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_and_digits_are_an_integer() {
        for (word, expected) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("+1", Some(1)),
            ("007", Some(7)),
            ("-12", Some(-12)),
            ("999999999999999999", Some(999_999_999_999_999_999)),
            ("-999999999999999999", Some(-999_999_999_999_999_999)),
            ("1000000000000000000", Some(1_000_000_000_000_000_000)),
            ("99999999999999999x", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("", None),
            ("-", None),
            ("+", None),
            ("+-1", None),
            (" 1", None),
            ("1 ", None),
            ("1.5", None),
            ("0x1", None),
            ("1e3", None),
        ] {
            assert_eq!(parse(word.as_bytes()), expected, "{word:?}");
        }
    }
}

//! Numbers as text, exactly and without allocating.

use tollgate_core::Nanos;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Appends a whole number.
#[inline]
pub(crate) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a span as decimal seconds, `0.05`: what a double would print as 0.05000000000000001 stays what it is.
pub(crate) fn put_seconds(out: &mut Vec<u8>, span: Nanos) {
    put_u64(out, span.get() / NANOS_PER_SECOND);
    let fraction = span.get() % NANOS_PER_SECOND;
    if fraction == 0 {
        return;
    }
    // A one in front keeps the zeros that follow it; it stands where the point belongs.
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(NANOS_PER_SECOND + fraction).as_bytes();
    let point = out.len();
    out.extend_from_slice(digits);
    out[point] = b'.';
    while out.last() == Some(&b'0') {
        out.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact_and_trimmed() {
        for (nanos, text) in [
            (0, "0"),
            (1, "0.000000001"),
            (50_000_000, "0.05"),
            (1_500_000_000, "1.5"),
            (36_000_000_000, "36"),
            (10_000_000_010, "10.00000001"),
            (i64::MAX as u64, "9223372036.854775807"),
        ] {
            let mut out = Vec::new();
            put_seconds(&mut out, Nanos::new(nanos));
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}

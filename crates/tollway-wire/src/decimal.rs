//! Writes numbers as decimal text, exactly and without allocating.

use std::io::Write;

use tollway_core::Nanos;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Appends a whole number.
#[inline]
pub(crate) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a duration as decimal seconds, such as `0.05`. Integers are used throughout: a double would print
/// 0.05000000000000001.
pub(crate) fn put_seconds(out: &mut Vec<u8>, span: Nanos) {
    put_u64(out, span.get() / NANOS_PER_SECOND);
    let fraction = span.get() % NANOS_PER_SECOND;
    if fraction == 0 {
        return;
    }
    // The 1 in front keeps the leading zeros of the fraction. The decimal point then overwrites it.
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(NANOS_PER_SECOND + fraction).as_bytes();
    let point = out.len();
    out.extend_from_slice(digits);
    out[point] = b'.';
    while out.last() == Some(&b'0') {
        out.pop();
    }
}

/// Numbers below this take the fast path: ten times the number fits into 32 bits, with an error below a millionth.
const TENTHS_FAST_MAX: f64 = 1e8;
/// The distance from a tie that ten times the number must have for the fast path to round it correctly.
const TENTHS_DOUBT: f64 = 1e-4;

/// Appends a number as C's `%.1f` does: the double's exact value, rounded to the nearest tenth. Ties go to the even
/// digit.
#[inline]
pub(crate) fn put_tenths(out: &mut Vec<u8>, number: f64) {
    let Some(tenths) = tenths_of(number) else { return put_tenths_exactly(out, number) };
    let mut digits = [0; TENTHS_LEN];
    let start = write_tenths(&mut digits, tenths);
    out.extend_from_slice(&digits[start..]);
}

/// Returns a number in tenths, rounded as `%.1f` rounds it; `None` if only exact arithmetic can tell.
#[inline]
pub(crate) fn tenths_of(number: f64) -> Option<u32> {
    // Compared as bits, negative numbers and NaN are greater than every positive number, so one comparison is enough.
    if number.to_bits() >= TENTHS_FAST_MAX.to_bits() {
        return None;
    }
    let tenths = number * 10.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and below 2^32")]
    let whole = tenths as u32;
    // `floor` is avoided: it is a function call on processors without an instruction for it.
    let past_tie = tenths - f64::from(whole) - 0.5;
    (past_tie.abs() > TENTHS_DOUBT).then(|| whole + u32::from(past_tie > 0.0))
}

/// The most bytes that a number of tenths has: `100000000.0`.
pub(crate) const TENTHS_LEN: usize = 11;

/// Writes a number of tenths at the end of `text`, and returns where it starts. It is shorter than formatting the whole
/// part and the tenth by themselves: most rates have two or three digits.
#[inline]
pub(crate) fn write_tenths(text: &mut [u8; TENTHS_LEN], tenths: u32) -> usize {
    let digit = |number: u32| DIGITS[(number % 10) as usize];
    text[TENTHS_LEN - 1] = digit(tenths);
    text[TENTHS_LEN - 2] = b'.';
    let (mut start, mut whole) = (TENTHS_LEN - 3, tenths / 10);
    text[start] = digit(whole);
    while whole >= 10 && start > 0 {
        whole /= 10;
        start -= 1;
        text[start] = digit(whole);
    }
    start
}

const DIGITS: &[u8; 10] = b"0123456789";

/// Appends a number as `%.1f` does, slowly.
#[cold]
fn put_tenths_exactly(out: &mut Vec<u8>, number: f64) {
    write!(out, "{number:.1}").expect("writing to memory cannot fail");
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
    #[test]
    fn tenths_are_those_of_c() {
        for (number, text) in [
            (0.0, "0.0"),
            (1.4, "1.4"),
            (28.1, "28.1"),
            (2034.3, "2034.3"),
            (2500.0, "2500.0"),
            // The first two are ties and go to the even digit. The others only look like ties in decimal.
            (0.25, "0.2"),
            (0.75, "0.8"),
            (0.35, "0.3"),
            (0.45, "0.5"),
            (0.05, "0.1"),
            (0.15, "0.1"),
            (0.95, "0.9"),
            (9.95, "9.9"),
            (99.96, "100.0"),
            (0.049_999_999_999_999_996, "0.0"),
            (2_251_799_813_685_249.5, "2251799813685249.5"),
            (1e22, "10000000000000000000000.0"),
            (-0.0, "-0.0"),
            (-1.25, "-1.2"),
            (5e-324, "0.0"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(tenths(number), text);
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..proptest::prelude::ProptestConfig::with_cases(20_000) })]

        #[test]
        fn the_fast_path_agrees_with_the_exact_one(bits: u64, near in 0u64..40_000_000_000, ulps in -3i64..=3) {
            // Any double, one of everyday size, and the neighbours of a multiple of 1/20, where the ties are.
            #[expect(clippy::cast_precision_loss, reason = "any double will do")]
            let near = near as f64 / 20.0;
            let next = f64::from_bits(near.to_bits().saturating_add_signed(ulps));
            for number in [f64::from_bits(bits), near, next, (bits >> 11) as f64 / 1e9] {
                proptest::prop_assert_eq!(tenths(number), format!("{number:.1}"));
            }
        }
    }

    #[test]
    fn millions_of_rates_are_those_of_the_standard_library() {
        let mut expected = String::new();
        let mut out = Vec::new();
        let mut check = |number: f64| {
            use std::fmt::Write as _;
            expected.clear();
            out.clear();
            write!(expected, "{number:.1}").unwrap();
            put_tenths(&mut out, number);
            assert_eq!(out, expected.as_bytes(), "{number:e}");
        };
        // All multiples of 1/20 up to 50,000, where the ties and what looks like one are, with both neighbours of each.
        for twentieth in 0..1_000_000_u32 {
            let number = f64::from(twentieth) / 20.0;
            check(number);
            check(number.next_up());
            check(number.next_down().max(0.0));
        }
        // Numbers of all magnitudes below and beyond the fast path.
        let mut state = 1_u64;
        for _ in 0..1_000_000 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let magnitude = [1.0, 30.0, 2_500.0, 1e6, 1e8, 2e8][(state >> 32) as usize % 6];
            check((state >> 11) as f64 / 9_007_199_254_740_992.0 * magnitude);
        }
    }

    fn tenths(number: f64) -> String {
        let mut out = Vec::new();
        put_tenths(&mut out, number);
        String::from_utf8(out).unwrap()
    }
}

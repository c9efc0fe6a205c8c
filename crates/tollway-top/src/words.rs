//! Formats numbers for people: counts, shares and times.

/// The units of a long time, with their seconds.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];

/// Returns a number with a comma between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the bounds of a count as one number, or as two.
pub(crate) fn range(least: u64, most: u64) -> String {
    if least == most { count(most) } else { format!("{} to {}", count(least), count(most)) }
}

/// Returns a share as a percentage.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// Returns a time as a person says it, and as the console does: `0.046 s`, `41 s`, `5 min 41 s`, `3 d 4 h`.
pub(crate) fn duration(seconds: f64) -> String {
    if 0.0 < seconds && seconds < 1e-6 {
        return "<1 µs".to_owned();
    }
    if seconds < 10.0 {
        // Two digits, without zeros at the end.
        let rounded: f64 = format!("{seconds:.1e}").parse().unwrap_or(seconds);
        return format!("{rounded} s");
    }
    // A float that is too large for the integer is the largest one.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from a float saturates"
    )]
    let whole = seconds.ceil() as u64;
    let first = UNITS.iter().position(|(_, size)| whole >= *size).unwrap_or(UNITS.len() - 1);
    let (name, size) = UNITS[first];
    let most = format!("{} {name}", whole / size);
    match UNITS.get(first + 1) {
        Some((next, next_size)) if whole % size / next_size > 0 => {
            format!("{most} {} {next}", whole % size / next_size)
        }
        _ => most,
    }
}

/// Returns the time that an answer takes.
pub(crate) fn latency(seconds: f64) -> String {
    let micros = seconds * 1e6;
    if micros < 1_000.0 { format!("{micros:.0} µs") } else { format!("{:.1} ms", micros / 1e3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_words() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(count(number), text);
        }
        assert_eq!((range(5, 5), range(1_000, 1_200)), ("5".to_owned(), "1,000 to 1,200".to_owned()));
        assert_eq!((percent(Some(0.412)), percent(None)), ("41.2 %".to_owned(), "–".to_owned()));
        // The console has its own function, and a test with the same cases.
        let cases: Vec<(f64, String)> =
            serde_json::from_str(include_str!("../tests/durations.json")).unwrap();
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(duration(f64::INFINITY), "213503982334601 d 7 h");
        assert_eq!((latency(21e-6), latency(0.001_48)), ("21 µs".to_owned(), "1.5 ms".to_owned()));
    }
}

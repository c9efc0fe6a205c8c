//! Reads and writes times as RFC 3339 defines them: `2026-11-16T01:41:31.5Z`, to the nanosecond, without trailing
//! zeros.

use std::fmt::{self, Display};

use tollway_core::Timestamp;

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const SECONDS_PER_DAY: u64 = 86_400;
/// The number of days in the 400 years after which the calendar repeats.
const DAYS_PER_ERA: u64 = 146_097;
/// The number of days from the first of March of the year 0 to the Unix epoch.
const EPOCH_DAY: u64 = 719_468;

/// Displays a timestamp as RFC 3339 defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rfc3339(pub Timestamp);

impl Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (seconds, nanos) = (nanos / NANOS_PER_SECOND, nanos % NANOS_PER_SECOND);
        let (year, month, day) = date(seconds / SECONDS_PER_DAY);
        let second = seconds % SECONDS_PER_DAY;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if nanos > 0 {
            write!(f, ".{}", format!("{nanos:09}").trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// Parses what [`Rfc3339`] writes. Returns `None` for anything else, other time zones included.
pub(crate) fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = three(date, '-')?;
    let [hour, minute, second] = three(time, ':')?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = day_of(year, month, day).checked_sub(EPOCH_DAY)?;
    let seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    let scale = 10_u64.checked_pow(9_u32.checked_sub(u32::try_from(fraction.len()).ok()?)?)?;
    let nanos = seconds.checked_mul(NANOS_PER_SECOND)?.checked_add(digits(fraction)? * scale)?;
    (nanos <= Timestamp::MAX.as_nanos()).then(|| Timestamp::from_nanos(nanos))
}

/// Returns the year, month and day of a day that is counted from the Unix epoch.
///
/// Years start in March inside, so that a leap day is the last day of its year.
const fn date(day: u64) -> (u64, u64, u64) {
    let day = day + EPOCH_DAY;
    let (era, day) = (day / DAYS_PER_ERA, day % DAYS_PER_ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let in_january_or_february = month >= 10;
    let year = era * 400 + year + in_january_or_february as u64;
    let day = day - (153 * month + 2) / 5 + 1;
    (year, if in_january_or_february { month - 9 } else { month + 3 }, day)
}

/// Returns the day of a date, counted from the first of March of the year 0.
const fn day_of(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year.saturating_sub(1) } else { year };
    let (era, in_era) = (year / 400, year % 400);
    let month = if month > 2 { month - 3 } else { month + 9 };
    let in_year = (153 * month + 2) / 5 + day - 1;
    era * DAYS_PER_ERA + in_era * 365 + in_era / 4 - in_era / 100 + in_year
}

fn three(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator).map(digits);
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

fn digits(text: &str) -> Option<u64> {
    let fits = !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| fits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(nanos: u64) -> String {
        Rfc3339(Timestamp::from_nanos(nanos)).to_string()
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (nanos, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1, "1970-01-01T00:00:00.000000001Z"),
            (951_782_399_500_000_000, "2000-02-28T23:59:59.5Z"),
            (951_868_799_000_000_000, "2000-02-29T23:59:59Z"),
            (951_868_800_000_000_000, "2000-03-01T00:00:00Z"),
            (1_798_761_599_000_000_000, "2026-12-31T23:59:59Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00Z"),
            (i64::MAX as u64, "2262-04-11T23:47:16.854775807Z"),
        ] {
            assert_eq!(written(nanos), text);
            assert_eq!(parse_rfc3339(text), Some(Timestamp::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_none() {
        for text in [
            "",
            "Z",
            "2026-11-16",
            "2026-11-16T01:41:31",
            "2026-11-16T01:41:31+01:00",
            "2026-13-16T01:41:31Z",
            "2026-11-00T01:41:31Z",
            "2026-11-16T24:41:31Z",
            "2026-11-16T01:41:31.Z",
            "2026-11-16T01:41:31.1234567890Z",
            "1969-12-31T23:59:59Z",
            "2262-04-11T23:47:17Z",
            "999999999-04-11T23:47:17Z",
            "+026-11-16T01:41:31Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_moment_is_read_back(nanos in 0..=i64::MAX as u64) {
            prop_assert_eq!(parse_rfc3339(&written(nanos)), Some(Timestamp::from_nanos(nanos)));
        }

        #[test]
        fn any_text_is_a_moment_or_is_none(text in "[0-9]{0,10}-[0-9]{0,3}-[0-9]{0,3}T[0-9:.]{0,20}Z?|\\PC{0,30}") {
            let _ = parse_rfc3339(&text);
        }
    }
}

//! Reads single values of the YAML tree (numbers, durations, choices), with errors that say what would be right.

use std::ops::RangeInclusive;

use tollway_core::{Nanos, ParseNanosError, RateSpec, RateSpecError};

use super::did_you_mean::{did_you_mean, nearest};
use super::errors::ErrorCollector;
use super::yaml::{YamlEntry, YamlNode, YamlValue, shorten};

/// The entries of a mapping, found by the field names that it may have.
#[derive(Default)]
pub(super) struct YamlFields<'a>(Vec<(&'static str, &'a YamlEntry)>);

impl<'a> YamlFields<'a> {
    /// Looks up the fields in `names` and reports all others. Errors call the owner of the fields `whose`, as in "a
    /// limit".
    pub(super) fn read(
        entries: &'a [YamlEntry],
        whose: &str,
        names: &[&'static str],
        errors: &mut ErrorCollector,
    ) -> Self {
        let mut found = Self(Vec::with_capacity(entries.len()));
        let mut misspelt = Vec::new();
        for entry in entries {
            if let Some(name) = names.iter().find(|name| **name == entry.key.text) {
                found.0.push((name, entry));
            } else if let Some(meant) = unknown_field(entry, whose, names, errors) {
                misspelt.push((meant, entry));
            }
        }
        // A misspelt field is read as the field that was meant, so that its value is checked as well and it is not
        // reported as missing. Correctly spelt fields come first and win.
        found.0.extend(misspelt);
        found
    }

    pub(super) fn get(&self, name: &'static str) -> Option<&'a YamlEntry> {
        self.0.iter().find(|(found, _)| *found == name).map(|(_, entry)| *entry)
    }
}

/// Reports an unknown field and returns the field that was probably meant.
pub(super) fn unknown_field(
    entry: &YamlEntry,
    whose: &str,
    names: &[&'static str],
    errors: &mut ErrorCollector,
) -> Option<&'static str> {
    let meant = nearest(&entry.key.text, names.iter().copied());
    let hint = match meant {
        Some(meant) => format!(" (did you mean \"{meant}\"?)"),
        None => format!("; {whose} has {}", join_words(names, "and")),
    };
    errors.add(entry.key.at, format!("unknown field \"{}\"{hint}", entry.key.quoted()));
    meant
}

/// Returns the entries of a mapping; any other value is reported, with `example` as what is right.
pub(super) fn mapping<'a>(
    entry: &'a YamlEntry,
    example: &str,
    errors: &mut ErrorCollector,
) -> Option<&'a [YamlEntry]> {
    match &entry.value.value {
        YamlValue::Map(entries) => Some(entries),
        _ => refuse(entry, &format!("must be a mapping, such as {example}"), errors),
    }
}

/// Reports that the value of `entry` is wrong, and returns `None`.
pub(super) fn refuse<T>(entry: &YamlEntry, must_be: &str, errors: &mut ErrorCollector) -> Option<T> {
    let name = entry.key.quoted();
    match &entry.value.value {
        YamlValue::Refused => {}
        _ if entry.value.is_absent() => {
            errors.add(entry.key.at, format!("{name} {must_be}, but has no value"))
        }
        _ => errors.add(entry.value.at, format!("{name} {must_be}, not {}", entry.value.quoted())),
    }
    None
}

/// Returns the text of a scalar exactly as the file has it, whatever type YAML would give it.
pub(super) fn scalar_text(node: &YamlNode) -> Option<&str> {
    match &node.value {
        YamlValue::Scalar { text, .. } => Some(text),
        _ => None,
    }
}

/// Reads a whole number of plain digits. `1e3`, `0x10`, `1_000` and `"5"` are refused: parsers disagree about them.
pub(super) fn whole_number(
    entry: &YamlEntry,
    range: RangeInclusive<u64>,
    errors: &mut ErrorCollector,
) -> Option<u64> {
    let number = match &entry.value.value {
        YamlValue::Scalar { text, plain: true } => plain_digits(text),
        _ => None,
    };
    if let Some(number) = number.filter(|number| range.contains(number)) {
        return Some(number);
    }
    let must_be = format!("must be a whole number from {} to {}", range.start(), range.end());
    if let YamlValue::Scalar { text, plain: false } = &entry.value.value
        && plain_digits(text).is_some_and(|number| range.contains(&number))
    {
        errors.add(entry.value.at, format!("{} {must_be}; remove the quotes", entry.key.quoted()));
        return None;
    }
    if let Some(rate) = scalar_text(&entry.value).and_then(|text| text.parse::<RateSpec>().ok()) {
        let message = format!("{} {must_be}, not {}", entry.key.quoted(), entry.value.quoted());
        errors.add(entry.value.at, format!("{message} (did you mean \"rate: {rate}\"?)"));
        return None;
    }
    refuse(entry, &must_be, errors)
}

/// Reads a rate, such as `100/h`. A span without a unit has `bare_unit`, and is an error if that is empty.
pub(super) fn rate(entry: &YamlEntry, bare_unit: &str, errors: &mut ErrorCollector) -> Option<RateSpec> {
    let Some(text) = scalar_text(&entry.value).filter(|text| !text.is_empty()) else {
        return refuse(entry, "must be a rate, such as 100/h or 5 per minute", errors);
    };
    let unit = if text.ends_with(|last: char| last.is_ascii_digit()) { bare_unit } else { "" };
    let wrong = |error: RateSpecError| {
        let hint =
            suggest_rate(text).map(|meant| format!(" (did you mean \"{meant}\"?)")).unwrap_or_default();
        errors.add(entry.value.at, format!("{} {}: {error}{hint}", entry.key.quoted(), entry.value.quoted()));
    };
    format!("{text}{unit}").parse().map_err(wrong).ok()
}

/// Rewrites `10`, `10r/s`, `10 rps`, `10 requests a second` or `0.5/s` as a rate: `10/s`, `5/10s`.
fn suggest_rate(text: &str) -> Option<String> {
    const UNITS: [&str; 9] = ["requests", "request", "reqs", "req", "calls", "hits", "r", "q", "t"];
    const DIVIDERS: [&str; 9] = ["/", "per", "p", "an ", "a ", "each", "every", "in", ","];
    let text = text.trim().to_ascii_lowercase();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (count, rest) = (&text[..end], text[end..].trim_start());
    let rest = UNITS.iter().find_map(|unit| rest.strip_prefix(unit)).unwrap_or(rest).trim_start();
    let span = DIVIDERS.iter().find_map(|divider| rest.strip_prefix(divider)).unwrap_or(rest).trim();
    let span = if span.is_empty() { "s" } else { span };
    let (whole, decimals) = count.split_once('.').unwrap_or((count, ""));
    let factor = if decimals.is_empty() { String::new() } else { format!("1{}", "0".repeat(decimals.len())) };
    let meant: RateSpec = format!("{whole}{decimals}/{factor}{span}").parse().ok()?;
    Some(meant.to_string()).filter(|meant| meant.len() <= 40)
}

/// Reads a number above zero that may have decimals, such as `22` or `22.5`.
pub(super) fn decimal_number(entry: &YamlEntry, most: u64, errors: &mut ErrorCollector) -> Option<f64> {
    let in_range = |text: &str| plain_decimal(text).filter(|number| *number > 0.0 && *number <= most as f64);
    let must_be = format!("must be a number above 0 and at most {most}, such as 22 or 22.5");
    match &entry.value.value {
        YamlValue::Scalar { text, plain: true } if in_range(text).is_some() => in_range(text),
        YamlValue::Scalar { text, plain: false } if in_range(text).is_some() => {
            errors.add(entry.value.at, format!("{} {must_be}; remove the quotes", entry.key.quoted()));
            None
        }
        _ => refuse(entry, &must_be, errors),
    }
}

/// Parses digits that may be followed by a point and more digits.
fn plain_decimal(text: &str) -> Option<f64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let ambiguous = whole.len() > 1 && whole.starts_with('0');
    if digits(whole) && digits(decimals) && !ambiguous { text.parse().ok() } else { None }
}

fn plain_digits(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    // With a leading zero, some YAML parsers read an octal number.
    let ambiguous = text.len() > 1 && text.starts_with('0');
    if digits && !ambiguous { text.parse().ok() } else { None }
}

/// Reads `true` or `false`.
pub(super) fn flag(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<bool> {
    match &entry.value.value {
        YamlValue::Scalar { text, plain: true } if text == "true" => Some(true),
        YamlValue::Scalar { text, plain: true } if text == "false" => Some(false),
        _ => refuse(entry, "must be true or false", errors),
    }
}

/// Reads a flag of a file that is written for a program in Go: there, a field that is true or false accepts the words
/// of YAML 1.1 too.
pub(super) fn go_flag(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<bool> {
    if let YamlValue::Scalar { text, plain: true } = &entry.value.value
        && let Some(value) = go_word(text)
    {
        return Some(value);
    }
    flag(entry, errors)
}

/// Returns the value of a word that is a flag in YAML 1.1, but not here.
fn go_word(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "True" | "TRUE" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// Reads one of several words and returns the value that it stands for.
pub(super) fn choice<T: Copy>(
    entry: &YamlEntry,
    choices: &[(&'static str, T)],
    errors: &mut ErrorCollector,
) -> Option<T> {
    let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
    let must_be = format!("must be {}", join_words(&words, "or"));
    let Some(text) = scalar_text(&entry.value).filter(|text| !text.is_empty()) else {
        return refuse(entry, &must_be, errors);
    };
    if let Some((_, meaning)) = choices.iter().find(|(word, _)| *word == text) {
        return Some(*meaning);
    }
    let hint = did_you_mean(text, words);
    let message = format!("{} {must_be}, not {}{hint}", entry.key.quoted(), entry.value.quoted());
    errors.add(entry.value.at, message);
    None
}

/// Reads a duration above zero, such as `1h30m`.
pub(super) fn duration(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Nanos> {
    let span = duration_or_zero(entry, errors)?;
    if span > Nanos::ZERO {
        return Some(span);
    }
    let (name, given) = (entry.key.quoted(), entry.value.quoted());
    errors.add(entry.value.at, format!("{name} must be longer than {given}"));
    None
}

/// Reads a duration, which may be `0s`.
pub(super) fn duration_or_zero(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Nanos> {
    let must_be = "must be a duration such as 1s, 180m, 1h30m or 500ms";
    let Some(text) = scalar_text(&entry.value) else { return refuse(entry, must_be, errors) };
    let given = entry.value.quoted();
    let problem = match (text.parse::<Nanos>(), suggest_duration(text)) {
        (Ok(span), _) => return Some(span),
        (Err(ParseNanosError::NoUnit { .. }), Some(meant)) => {
            format!("{given} has no unit (did you mean \"{meant}\"?)")
        }
        (Err(_), Some(meant)) => format!("{must_be}, not {given} (did you mean \"{meant}\"?)"),
        (Err(ParseNanosError::Malformed), None) => return refuse(entry, must_be, errors),
        (Err(ParseNanosError::Unit { unit }), None) => {
            format!("{given}: {}", ParseNanosError::Unit { unit: shorten(&unit) })
        }
        (Err(error), None) => format!("{given}: {error}"),
    };
    errors.add(entry.value.at, format!("{} {problem}", entry.key.quoted()));
    None
}

/// Rewrites `10`, `5 min` or `hour` in the units of this file: `10s`, `5m`, `1h`.
fn suggest_duration(text: &str) -> Option<String> {
    const UNITS: [(&str, &[&str]); 5] = [
        ("ms", &["millis", "msec", "millisecond", "milliseconds"]),
        ("s", &["", "S", "sec", "secs", "second", "seconds"]),
        ("m", &["M", "min", "mins", "minute", "minutes"]),
        ("h", &["H", "hr", "hrs", "hour", "hours"]),
        ("d", &["D", "day", "days"]),
    ];
    let text = text.trim();
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let (number, unit) = match (number, unit.trim_start()) {
        ("", "") => return None,
        ("", unit) => ("1", unit),
        given => given,
    };
    let ours = UNITS.iter().find(|(ours, theirs)| *ours == unit || theirs.contains(&unit))?.0;
    let meant = format!("{number}{ours}");
    (meant.len() <= 40 && meant.parse::<Nanos>().is_ok()).then_some(meant)
}

/// Joins words into a list: `a, b and c`.
pub(super) fn join_words(words: &[&str], conjunction: &str) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_owned(),
        [words @ .., last] => format!("{} {conjunction} {last}", words.join(", ")),
    }
}

//! Parses the value of an update: `5`, `+5` or `-5`, in units or in time.

use std::str::FromStr;

use anyhow::bail;
use tollway::core::Nanos;
use tollway_client::throttr::{Change, TtlUnit};

/// A number, and the change to make with it.
#[derive(Clone)]
pub(super) struct Changed<T> {
    pub(super) change: Change,
    pub(super) by: T,
}

/// A number that must be whole.
#[derive(Clone)]
pub(super) struct Amount(pub(super) u64);

/// A time, or a number that counts in the unit of the quota.
#[derive(Clone, Copy)]
pub(super) enum Time {
    Units(u64),
    Span(Nanos),
}

impl<T: FromStr<Err = String>> FromStr for Changed<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (change, by) = match text.split_at_checked(1) {
            Some(("+", by)) => (Change::Increase, by),
            Some(("-", by)) => (Change::Decrease, by),
            _ => (Change::Patch, text),
        };
        Ok(Self { change, by: by.parse()? })
    }
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        whole(text).map(Self).ok_or_else(|| "must be a whole number, such as 5, +5 or -5".to_owned())
    }
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match whole(text) {
            Some(units) => Ok(Self::Units(units)),
            None => text.parse().map(Self::Span).map_err(|error| format!("{error}")),
        }
    }
}

/// Parses digits. `parse` alone would accept another sign.
fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Returns the time as a number of the unit, if it is a whole one.
pub(super) fn in_unit(span: Nanos, unit: TtlUnit) -> anyhow::Result<u64> {
    let nanos = match suffix(unit) {
        "ns" => 1,
        "ms" => 1_000_000,
        _ => 1_000_000_000,
    };
    if !span.get().is_multiple_of(nanos) {
        bail!("the unit of this quota is {}, and {span} is not a whole number of it", suffix(unit));
    }
    Ok(span.get() / nanos)
}

/// Returns the suffix of a unit. A unit that is neither nanoseconds nor milliseconds counts as seconds.
pub(super) const fn suffix(unit: TtlUnit) -> &'static str {
    match unit.0 {
        0 => "ns",
        1 => "ms",
        _ => "s",
    }
}

//! The reply of a script, parsed one value after another.

use std::vec;

use redis::Value;
use tollway_core::{Nanos, Timestamp};

use super::StoreError;

/// The values of an array, which are taken in their order. After the last one comes nil.
pub(super) struct ScriptReply(vec::IntoIter<Value>);

impl ScriptReply {
    pub(super) fn new(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(values) => Ok(Self(values.into_iter())),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes the next value.
    pub(super) fn value(&mut self) -> Value {
        self.0.next().unwrap_or(Value::Nil)
    }

    pub(super) fn number(&mut self) -> Result<u64, StoreError> {
        number(&self.value())
    }

    /// Takes a time in seconds and parts of a second, of which there are `parts` in a second.
    pub(super) fn moment(&mut self, parts: u64) -> Result<Timestamp, StoreError> {
        let (seconds, part) = (self.number()?, self.number()?);
        let nanos = Nanos::new(BILLION / parts).saturating_mul(part);
        Ok(Timestamp::EPOCH + Nanos::from_secs(seconds) + nanos)
    }

    /// Takes the time of the script, in seconds and nanoseconds.
    pub(super) fn now(&mut self) -> Result<Timestamp, StoreError> {
        self.moment(BILLION)
    }
}

const BILLION: u64 = 1_000_000_000;

/// Parses an integer, or the digits of one. More than 64 bits are the largest number.
pub(super) fn number(value: &Value) -> Result<u64, StoreError> {
    match value {
        Value::Int(number) => u64::try_from(*number).map_err(|_| unexpected(value)),
        Value::BulkString(digits) => digits_of(digits).ok_or_else(|| unexpected(value)),
        _ => Err(unexpected(value)),
    }
}

pub(super) fn digits_of(digits: &[u8]) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    all_digits.then(|| std::str::from_utf8(digits).ok()?.parse().ok().or(Some(u64::MAX)))?
}

pub(super) fn unexpected(value: &Value) -> StoreError {
    StoreError::UnexpectedReply { found: format!("{value:?}") }
}

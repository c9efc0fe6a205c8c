//! The messages as protocol buffers.

use std::borrow::Cow;

use thiserror::Error;
use tollway_core::bill::CHARGES_MAX;
use tollway_core::descriptor::{
    DescriptorStatus, ENTRIES_MAX, LimitOverride, RateLimitRequest, RateLimitRequestError, RateUnit,
    RequestDescriptor,
};

use super::RlsResponse;
use crate::http::rate_limit_headers::HeaderSink;

/// An error for bytes that are no request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RlsDecodeError {
    /// The message ends within a field.
    #[error("the message ends within a field")]
    Truncated,
    /// A number has more than 64 bits.
    #[error("a number of the message is longer than 64 bits")]
    TooLong,
    /// A field has a type that it cannot have.
    #[error("field {field} of the message has the wrong type")]
    WrongType {
        /// The number of the field.
        field: u64,
    },
    /// A text is not UTF-8.
    #[error("the domain, the keys and the values must be UTF-8")]
    NotUtf8,
    /// The request has too many descriptors or entries, or a limit without a unit.
    #[error(transparent)]
    Request(#[from] RateLimitRequestError),
}

/// Decodes a request. Strings are borrowed from the message, and lists are as long as what has arrived, up to their
/// bounds.
pub fn decode(message: &[u8]) -> Result<RateLimitRequest<'_>, RlsDecodeError> {
    let mut request = RateLimitRequest::default();
    let mut fields = Fields(message);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => request.domain = value.text(field)?,
            2 if request.descriptors.len() == CHARGES_MAX => {
                return Err(RateLimitRequestError::TooManyDescriptors.into());
            }
            2 => request.descriptors.push(decode_descriptor(value.bytes(field)?)?),
            3 => request.hits_addend = value.u32(field)?,
            _ => {}
        }
    }
    Ok(request)
}

fn decode_descriptor(message: &[u8]) -> Result<RequestDescriptor<'_>, RlsDecodeError> {
    let mut descriptor = RequestDescriptor::default();
    let mut limit = None;
    let mut fields = Fields(message);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 if descriptor.entries.len() == ENTRIES_MAX => {
                return Err(RateLimitRequestError::TooManyEntries.into());
            }
            1 => descriptor.entries.push(decode_entry(value.bytes(field)?)?),
            2 => decode_limit(value.bytes(field)?, limit.get_or_insert((0, 0)))?,
            3 => decode_hits(value.bytes(field)?, descriptor.hits_addend.get_or_insert(0))?,
            4 => descriptor.is_negative_hits = value.varint(field)? != 0,
            _ => {}
        }
    }
    if let Some((requests_per_unit, unit)) = limit {
        let unit = unit_of(unit).ok_or(RateLimitRequestError::NoUnit)?;
        descriptor.limit = Some(LimitOverride { requests_per_unit, unit });
    }
    Ok(descriptor)
}

fn decode_entry(message: &[u8]) -> Result<(Cow<'_, str>, Cow<'_, str>), RlsDecodeError> {
    let mut entry = (Cow::Borrowed(""), Cow::Borrowed(""));
    let mut fields = Fields(message);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => entry.0 = value.text(field)?,
            2 => entry.1 = value.text(field)?,
            _ => {}
        }
    }
    Ok(entry)
}

fn decode_limit(message: &[u8], limit: &mut (u32, u64)) -> Result<(), RlsDecodeError> {
    let mut fields = Fields(message);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => limit.0 = value.u32(field)?,
            2 => limit.1 = value.varint(field)?,
            _ => {}
        }
    }
    Ok(())
}

fn decode_hits(message: &[u8], hits: &mut u64) -> Result<(), RlsDecodeError> {
    let mut fields = Fields(message);
    while let Some((field, value)) = fields.next()? {
        if field == 1 {
            *hits = value.varint(field)?;
        }
    }
    Ok(())
}

/// Returns the unit that has this number in a message.
pub(super) const fn unit_of(number: u64) -> Option<RateUnit> {
    Some(match number {
        1 => RateUnit::Second,
        2 => RateUnit::Minute,
        3 => RateUnit::Hour,
        4 => RateUnit::Day,
        5 => RateUnit::Month,
        6 => RateUnit::Year,
        7 => RateUnit::Week,
        _ => return None,
    })
}

const fn unit_number(unit: RateUnit) -> u64 {
    match unit {
        RateUnit::Span(_) => 0,
        RateUnit::Second => 1,
        RateUnit::Minute => 2,
        RateUnit::Hour => 3,
        RateUnit::Day => 4,
        RateUnit::Month => 5,
        RateUnit::Year => 6,
        RateUnit::Week => 7,
    }
}

/// The fields of a message that have not been read yet.
struct Fields<'a>(&'a [u8]);

enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// A number of four or eight bytes, which no field that is known has.
    Fixed,
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, RlsDecodeError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field = tag >> 3;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(RlsDecodeError::WrongType { field }),
        };
        Ok(Some((field, value)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], RlsDecodeError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(RlsDecodeError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, RlsDecodeError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.take(1)? else { return Err(RlsDecodeError::Truncated) };
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if bits << shift >> shift != bits {
                return Err(RlsDecodeError::TooLong);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(RlsDecodeError::TooLong)
    }
}

impl<'a> Value<'a> {
    const fn bytes(self, field: u64) -> Result<&'a [u8], RlsDecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(RlsDecodeError::WrongType { field }),
        }
    }

    fn text(self, field: u64) -> Result<Cow<'a, str>, RlsDecodeError> {
        str::from_utf8(self.bytes(field)?).map(Cow::Borrowed).map_err(|_| RlsDecodeError::NotUtf8)
    }

    const fn varint(self, field: u64) -> Result<u64, RlsDecodeError> {
        match self {
            Self::Varint(number) => Ok(number),
            _ => Err(RlsDecodeError::WrongType { field }),
        }
    }

    fn u32(self, field: u64) -> Result<u32, RlsDecodeError> {
        u32::try_from(self.varint(field)?).map_err(|_| RlsDecodeError::TooLong)
    }
}

/// Appends an answer.
pub fn encode(response: &RlsResponse<'_>, out: &mut Vec<u8>) {
    put_number(out, 1, code(response.over_limit));
    for status in response.statuses {
        put_message(out, 2, |out| put_status(out, status));
    }
    response.add_headers(&mut MessageHeaders(out));
}

/// Adds headers to a message.
struct MessageHeaders<'a>(&'a mut Vec<u8>);

impl HeaderSink for MessageHeaders<'_> {
    fn add(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        put_message(self.0, 3, |out| {
            put_message(out, 1, |out| out.extend_from_slice(name.as_bytes()));
            put_message(out, 2, write);
        });
    }
}

fn put_status(out: &mut Vec<u8>, status: &DescriptorStatus<'_>) {
    put_number(out, 1, code(status.over_limit));
    if let Some(limit) = &status.limit {
        put_message(out, 2, |out| {
            put_number(out, 1, u64::from(limit.requests_per_unit));
            put_number(out, 2, unit_number(limit.unit));
            if !limit.name.is_empty() {
                put_message(out, 3, |out| out.extend_from_slice(limit.name.as_bytes()));
            }
        });
    }
    put_number(out, 3, u64::from(status.remaining));
    if status.limit.is_some() {
        put_message(out, 4, |out| put_number(out, 1, status.reset.as_secs_rounded_up()));
    }
}

const fn code(over_limit: bool) -> u64 {
    if over_limit { 2 } else { 1 }
}

/// Appends a number. Zero is what a message without the field means.
pub(super) fn put_number(out: &mut Vec<u8>, field: u8, number: u64) {
    if number != 0 {
        out.push(field << 3);
        put_varint(out, number);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a message or a text, with its length before it.
pub(super) fn put_message(out: &mut Vec<u8>, field: u8, put: impl FnOnce(&mut Vec<u8>)) {
    out.extend([field << 3 | 2, 0]);
    let start = out.len();
    put(out);
    let length = out.len() - start;
    if let Ok(length @ 0..0x80) = u8::try_from(length) {
        out[start - 1] = length;
        return;
    }
    // A long message, which is rare, is moved to make room for a longer length.
    let mut prefix = Vec::new();
    put_varint(&mut prefix, length as u64);
    out.splice(start - 1..start, prefix);
}

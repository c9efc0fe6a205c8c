//! The messages as JSON: as the service itself has them, and in the shorter form of traces.
//!
//! ```text
//! {"domain":"shop","descriptors":[{"entries":[{"key":"account","value":"alice"}],"hitsAddend":"2"}]}
//! {"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"requestsPerUnit":3,"unit":"MINUTE"},
//!     "limitRemaining":1,"durationUntilReset":"55s"}]}
//!
//! {"domain":"shop","descriptors":[{"entries":[["account","alice"]],"hits_addend":2}]}
//! {"overall_code":"OK","statuses":[{"code":"OK","current_limit":{"requests_per_unit":3,"unit":"MINUTE"},
//!     "limit_remaining":1,"duration_until_reset_s":55}]}
//! ```
//!
//! Requests can be in either form. Numbers may be texts, as the JSON of protocol buffers has long ones.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use tollway_core::descriptor::{
    DescriptorStatus, LimitOverride, RateLimitRequest, RateLimitRequestError, RateUnit, RequestDescriptor,
};

use super::RlsResponse;
use super::protobuf::unit_of;
use crate::decimal::put_u64;
use crate::http::rate_limit_headers::HeaderSink;
use crate::http::{MalformedRequest, ProblemDetails};
use crate::json::put_string;

/// Parses a request.
pub fn from_json(body: &[u8]) -> Result<RateLimitRequest<'_>, MalformedRequest> {
    let malformed = |detail: String| MalformedRequest { field: None, detail };
    // The parser would take an array for the fields of an object, in order.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(malformed("the body must be a JSON object with domain and descriptors".to_owned()));
    }
    let request: JsonRequest<'_> = serde_json::from_slice(body)
        .map_err(|error| malformed(format!("the body is not a request: {error}")))?;
    Ok(RateLimitRequest {
        domain: request.domain,
        descriptors: request.descriptors.into_iter().map(JsonDescriptor::into_descriptor).collect(),
        hits_addend: request.hits_addend.map_or(0, |hits| hits.0),
    })
}

impl From<RateLimitRequestError> for ProblemDetails {
    fn from(error: RateLimitRequestError) -> Self {
        MalformedRequest { field: None, detail: error.to_string() }.into()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonRequest<'a> {
    #[serde(borrow, default)]
    domain: Cow<'a, str>,
    #[serde(borrow, default)]
    descriptors: Vec<JsonDescriptor<'a>>,
    #[serde(default, alias = "hitsAddend")]
    hits_addend: Option<JsonU32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonDescriptor<'a> {
    #[serde(borrow, default)]
    entries: Vec<JsonEntry<'a>>,
    #[serde(default)]
    limit: Option<JsonLimit>,
    #[serde(default, alias = "hitsAddend")]
    hits_addend: Option<JsonNumber>,
    #[serde(default, alias = "isNegativeHits")]
    is_negative_hits: bool,
}

impl<'a> JsonDescriptor<'a> {
    fn into_descriptor(self) -> RequestDescriptor<'a> {
        let limit = self.limit.map(|JsonLimit { requests_per_unit, unit }| LimitOverride {
            requests_per_unit: requests_per_unit.0,
            unit: unit.0,
        });
        RequestDescriptor {
            entries: self.entries.into_iter().map(|entry| (entry.0, entry.1)).collect(),
            limit,
            hits_addend: self.hits_addend.map(|hits| hits.0),
            is_negative_hits: self.is_negative_hits,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonLimit {
    #[serde(alias = "requestsPerUnit")]
    requests_per_unit: JsonU32,
    unit: JsonUnit,
}

/// A key and a value, as an object or as an array of both.
struct JsonEntry<'a>(Cow<'a, str>, Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonEntry<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntryVisitor;

        impl<'de> Visitor<'de> for EntryVisitor {
            type Value = JsonEntry<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an entry, such as {\"key\":\"account\",\"value\":\"alice\"}")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut next = || items.next_element::<JsonText<'de>>();
                match (next()?, next()?, next()?) {
                    (Some(key), Some(value), None) => Ok(JsonEntry(key.0, value.0)),
                    _ => Err(A::Error::custom("an entry is a key and a value")),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
                let mut entry = JsonEntry(Cow::Borrowed(""), Cow::Borrowed(""));
                while let Some(name) = fields.next_key::<JsonText<'de>>()? {
                    match &*name.0 {
                        "key" => entry.0 = fields.next_value::<JsonText<'de>>()?.0,
                        "value" => entry.1 = fields.next_value::<JsonText<'de>>()?.0,
                        other => return Err(de::Error::unknown_field(other, &["key", "value"])),
                    }
                }
                Ok(entry)
            }
        }

        deserializer.deserialize_any(EntryVisitor)
    }
}

/// A text that is borrowed from the input unless it has escapes.
#[derive(Deserialize)]
struct JsonText<'a>(#[serde(borrow)] Cow<'a, str>);

/// A whole number, or a text that is one.
struct JsonNumber(u64);

impl<'de> Deserialize<'de> for JsonNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberVisitor;

        impl Visitor<'_> for NumberVisitor {
            type Value = JsonNumber;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 0")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<JsonNumber, E> {
                Ok(JsonNumber(number))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<JsonNumber, E> {
                text.parse().map(JsonNumber).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(NumberVisitor)
    }
}

/// A whole number of 32 bits, as the messages have it. A larger one is refused here as it is there.
struct JsonU32(u32);

impl<'de> Deserialize<'de> for JsonU32 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let JsonNumber(number) = JsonNumber::deserialize(deserializer)?;
        let too_large = |_| D::Error::invalid_value(de::Unexpected::Unsigned(number), &"at most 4294967295");
        u32::try_from(number).map(Self).map_err(too_large)
    }
}

/// The name of a unit in any case, or its number.
struct JsonUnit(RateUnit);

impl<'de> Deserialize<'de> for JsonUnit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UnitVisitor;

        impl Visitor<'_> for UnitVisitor {
            type Value = JsonUnit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one of SECOND, MINUTE, HOUR, DAY, WEEK, MONTH and YEAR")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<JsonUnit, E> {
                unit_of(number)
                    .map(JsonUnit)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<JsonUnit, E> {
                RateUnit::named(name)
                    .map(JsonUnit)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(name), &self))
            }
        }

        deserializer.deserialize_any(UnitVisitor)
    }
}

/// The names of the fields of an answer, in one of its two forms.
struct Names {
    overall_code: &'static str,
    current_limit: &'static str,
    requests_per_unit: &'static str,
    limit_remaining: &'static str,
    /// The name of the time, and what is around its seconds.
    reset: [&'static str; 3],
}

/// Appends an answer in the form of the service, with the headers that a proxy adds.
pub fn put_json(out: &mut Vec<u8>, response: &RlsResponse<'_>) {
    let names = Names {
        overall_code: "overallCode",
        current_limit: "currentLimit",
        requests_per_unit: "requestsPerUnit",
        limit_remaining: "limitRemaining",
        reset: ["durationUntilReset", "\"", "s\""],
    };
    put_answer(out, response, &names);
    let mut headers = JsonHeaders { out, count: 0 };
    response.add_headers(&mut headers);
    let end: &[u8] = if headers.count > 0 { b"]}" } else { b"}" };
    out.extend_from_slice(end);
}

/// Adds headers to a JSON object.
struct JsonHeaders<'a> {
    out: &'a mut Vec<u8>,
    count: usize,
}

impl HeaderSink for JsonHeaders<'_> {
    fn add(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        let before = if self.count > 0 { ",{\"key\":" } else { ",\"responseHeadersToAdd\":[{\"key\":" };
        self.count += 1;
        self.out.extend_from_slice(before.as_bytes());
        put_string(self.out, name);
        self.out.extend_from_slice(b",\"value\":");
        let mut value = Vec::new();
        write(&mut value);
        put_string(self.out, &String::from_utf8_lossy(&value));
        self.out.push(b'}');
    }
}

/// Appends a request in the form of traces, in printable ASCII and without an arrow.
pub fn put_trace_request(out: &mut Vec<u8>, request: &RateLimitRequest<'_>) {
    let start = out.len();
    put_name(out, b"{", "domain");
    put_string(out, &request.domain);
    put_name(out, b",", "descriptors");
    for (index, descriptor) in request.descriptors.iter().enumerate() {
        out.push(if index == 0 { b'[' } else { b',' });
        put_descriptor(out, descriptor);
    }
    out.extend_from_slice(if request.descriptors.is_empty() { b"[]" } else { b"]" });
    if request.hits_addend > 0 {
        put_name(out, b",", "hits_addend");
        put_u64(out, u64::from(request.hits_addend));
    }
    out.push(b'}');
    escape_for_trace(out, start);
}

fn put_descriptor(out: &mut Vec<u8>, descriptor: &RequestDescriptor<'_>) {
    put_name(out, b"{", "entries");
    out.push(b'[');
    for (index, (key, value)) in descriptor.entries.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"[" } else { b",[" });
        put_string(out, key);
        out.push(b',');
        put_string(out, value);
        out.push(b']');
    }
    out.push(b']');
    if let Some(LimitOverride { requests_per_unit, unit }) = &descriptor.limit {
        put_name(out, b",", "limit");
        put_name(out, b"{", "requests_per_unit");
        put_u64(out, u64::from(*requests_per_unit));
        put_name(out, b",", "unit");
        put_string(out, unit.name());
        out.push(b'}');
    }
    if let Some(hits) = descriptor.hits_addend {
        put_name(out, b",", "hits_addend");
        put_u64(out, hits);
    }
    if descriptor.is_negative_hits {
        put_name(out, b",", "is_negative_hits");
        out.extend_from_slice(b"true");
    }
    out.push(b'}');
}

/// Escapes what a line of a trace cannot have in the JSON from `start` on: bytes that are not printable ASCII, and the
/// arrow, which would end a request. Both are only in strings.
fn escape_for_trace(out: &mut Vec<u8>, start: usize) {
    let json = &out[start..];
    if json.iter().all(|byte| matches!(byte, b' '..=b'~')) && !json.windows(2).any(|pair| pair == b"=>") {
        return;
    }
    let json = String::from_utf8(out.split_off(start)).expect("JSON is text");
    let (mut units, mut is_arrow) = ([0; 2], false);
    for character in json.chars() {
        match character {
            ' '..='~' if !(is_arrow && character == '>') => out.push(character as u8),
            _ => {
                for unit in character.encode_utf16(&mut units) {
                    // Writing to memory cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
        is_arrow = character == '=';
    }
}

/// Appends an answer in the form of traces, in printable ASCII.
pub fn put_trace_json(out: &mut Vec<u8>, response: &RlsResponse<'_>) {
    let start = out.len();
    let names = Names {
        overall_code: "overall_code",
        current_limit: "current_limit",
        requests_per_unit: "requests_per_unit",
        limit_remaining: "limit_remaining",
        reset: ["duration_until_reset_s", "", ""],
    };
    put_answer(out, response, &names);
    out.push(b'}');
    escape_for_trace(out, start);
}

/// Appends everything but the brace at the end.
fn put_answer(out: &mut Vec<u8>, response: &RlsResponse<'_>, names: &Names) {
    out.push(b'{');
    put_code(out, names.overall_code, response.over_limit);
    out.extend_from_slice(b",\"statuses\":[");
    for (index, status) in response.statuses.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        put_status(out, status, names);
    }
    out.push(b']');
}

fn put_status(out: &mut Vec<u8>, status: &DescriptorStatus<'_>, names: &Names) {
    out.push(b'{');
    put_code(out, "code", status.over_limit);
    if let Some(limit) = &status.limit {
        put_name(out, b",", names.current_limit);
        put_name(out, b"{", names.requests_per_unit);
        put_u64(out, u64::from(limit.requests_per_unit));
        put_name(out, b",", "unit");
        put_string(out, limit.unit.name());
        if !limit.name.is_empty() {
            put_name(out, b",", "name");
            put_string(out, limit.name);
        }
        out.push(b'}');
    }
    if status.limit.is_some() || status.remaining > 0 {
        put_name(out, b",", names.limit_remaining);
        put_u64(out, u64::from(status.remaining));
    }
    if status.limit.is_some() {
        let [name, before, after] = names.reset;
        put_name(out, b",", name);
        out.extend_from_slice(before.as_bytes());
        put_u64(out, status.reset.as_secs_rounded_up());
        out.extend_from_slice(after.as_bytes());
    }
    out.push(b'}');
}

fn put_code(out: &mut Vec<u8>, name: &str, over_limit: bool) {
    put_name(out, b"", name);
    put_string(out, if over_limit { "OVER_LIMIT" } else { "OK" });
}

fn put_name(out: &mut Vec<u8>, before: &[u8], name: &str) {
    out.extend_from_slice(before);
    put_string(out, name);
    out.push(b':');
}

//! Envoy's rate limit service: what a real Envoy sends, what a naive encoder writes, and bytes that are no message.

use proptest::collection::vec;
use proptest::prelude::*;
use tollway_core::Decision;
use tollway_core::descriptor::{
    LimitOverride, RateLimitRequest, RateLimitRequestError, RateUnit, RequestDescriptor,
};
use tollway_wire::rls::{self, RlsDecodeError, RlsResponse};

/// The requests that Envoy 1.40 sent for 36 requests of clients: each message, and what it says.
const ENVOY_REQUESTS: &str = include_str!("envoy_requests.txt");

fn bytes(hexadecimal: &str) -> Vec<u8> {
    (0..hexadecimal.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn what_envoy_sends_is_understood() {
    assert!(ENVOY_REQUESTS.lines().count() > 20);
    for line in ENVOY_REQUESTS.lines() {
        let (message, json) = line.split_once(' ').unwrap();
        let message = bytes(message);
        assert_eq!(rls::decode(&message).unwrap(), rls::from_json(json.as_bytes()).unwrap(), "{json}");
        for end in 0..message.len() {
            // A part of a message is another message, or an error. Nothing else is promised.
            let _ = rls::decode(&message[..end]);
        }
    }
}

/// Writes a message the long way: a field at a time, with what the standard says.
fn naive(request: &RateLimitRequest<'_>) -> Vec<u8> {
    let mut out = text(1, &request.domain);
    for descriptor in &request.descriptors {
        let mut message = Vec::new();
        for (key, value) in &descriptor.entries {
            message.extend(field(1, &[text(1, key), text(2, value)].concat()));
        }
        if let Some(LimitOverride { requests_per_unit, unit }) = &descriptor.limit {
            let units = ["SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"];
            let unit = 1 + units.iter().position(|name| *name == unit.name()).unwrap() as u64;
            message.extend(field(2, &[number(1, u64::from(*requests_per_unit)), number(2, unit)].concat()));
        }
        if let Some(hits) = descriptor.hits_addend {
            message.extend(field(3, &number(1, hits)));
        }
        message.extend(number(4, u64::from(descriptor.is_negative_hits)));
        out.extend(field(2, &message));
    }
    out.extend(number(3, u64::from(request.hits_addend)));
    out
}

fn text(number: u8, text: &str) -> Vec<u8> {
    field(number, text.as_bytes())
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(bytes.len() as u64), bytes].concat()
}

fn number(field: u8, number: u64) -> Vec<u8> {
    [&[field << 3], &*varint(number)].concat()
}

fn varint(number: u64) -> Vec<u8> {
    let low = u8::try_from(number & 127).unwrap();
    if number < 128 { vec![low] } else { [vec![low | 128], varint(number >> 7)].concat() }
}

fn descriptor() -> impl Strategy<Value = RequestDescriptor<'static>> {
    let limit = (any::<u32>(), proptest::sample::select(&RateUnit::NAMED[..]));
    let limit = limit.prop_map(|(requests_per_unit, unit)| LimitOverride { requests_per_unit, unit });
    let entry = (any::<String>(), any::<String>()).prop_map(|(key, value)| (key.into(), value.into()));
    let parts =
        (vec(entry, 0..4), proptest::option::of(limit), proptest::option::of(any::<u64>()), any::<bool>());
    parts.prop_map(|(entries, limit, hits_addend, is_negative_hits)| RequestDescriptor {
        entries,
        limit,
        hits_addend,
        is_negative_hits,
    })
}

proptest! {
    #[test]
    fn every_request_is_read_back(
        domain: String,
        descriptors in vec(descriptor(), 0..5),
        hits_addend: u32,
    ) {
        let request = RateLimitRequest { domain: domain.into(), descriptors, hits_addend };
        let message = naive(&request);
        prop_assert_eq!(rls::decode(&message).unwrap(), request);
    }

    #[test]
    fn no_bytes_break_the_decoder(bytes in vec(any::<u8>(), 0..200)) {
        let _ = rls::decode(&bytes);
        let _ = rls::from_json(&bytes);
    }

    #[test]
    fn a_damaged_message_is_read_or_refused(at: usize, byte: u8) {
        let line = ENVOY_REQUESTS.lines().max_by_key(|line| line.len()).unwrap();
        let mut message = bytes(line.split_once(' ').unwrap().0);
        let at = at % message.len();
        message[at] = byte;
        let _ = rls::decode(&message);
    }
}

#[test]
fn what_is_no_request_is_refused() {
    use RlsDecodeError::{NotUtf8, Request, TooLong, Truncated, WrongType};
    for (message, error) in [
        (&b"\x0a"[..], Truncated),
        (b"\x0a\x05abc", Truncated),
        // A length of almost 2^64.
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", Truncated),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", TooLong),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", TooLong),
        (b"\x0a\x02\xc3\x28", NotUtf8),
        (b"\x08\x01", WrongType { field: 1 }),
        (b"\x12\x02\x08\x01", WrongType { field: 1 }),
        (b"\x1a\x00", WrongType { field: 3 }),
        (b"\x18\xff\xff\xff\xff\x7f", TooLong),
        // A group, which no message has any more.
        (b"\x0b", WrongType { field: 1 }),
        (b"\x12\x02\x12\x00", Request(RateLimitRequestError::NoUnit)),
    ] {
        assert_eq!(rls::decode(message), Err(error), "{message:?}");
    }
    let many = b"\x12\x00".repeat(10_000);
    assert_eq!(rls::decode(&many), Err(Request(RateLimitRequestError::TooManyDescriptors)));
    let deep = field(2, &b"\x0a\x00".repeat(10_000));
    assert_eq!(rls::decode(&deep), Err(Request(RateLimitRequestError::TooManyEntries)));
}

#[test]
fn fields_that_are_not_known_are_skipped() {
    let message = b"\x9d\x01abcd\x99\x01abcdefgh\x90\x01\x05\x92\x01\x03abc\x0a\x03dom";
    assert_eq!(rls::decode(message).unwrap().domain, "dom");
}

#[test]
fn json_is_read_in_both_forms() {
    let long = r#"{"domain":"d","hitsAddend":3,"descriptors":[{"entries":[{"key":"k","value":"v"},{"key":"e"}],"limit":{"requestsPerUnit":5,"unit":"HOUR"},"hitsAddend":"7","isNegativeHits":true}]}"#;
    let short = r#"{"domain":"d","hits_addend":"3","descriptors":[{"entries":[["k","v"],["e",""]],"limit":{"requests_per_unit":5,"unit":"hour"},"hits_addend":7,"is_negative_hits":true}]}"#;
    assert_eq!(rls::from_json(long.as_bytes()), rls::from_json(short.as_bytes()));
    for wrong in [
        "",
        "[]",
        r#"{"domain":7}"#,
        r#"{"domain":"d","more":1}"#,
        r#"{"descriptors":[{"entries":[["k"]]}]}"#,
        r#"{"descriptors":[{"entries":[{"name":"k"}]}]}"#,
        r#"{"descriptors":[{"limit":{"requests_per_unit":5}}]}"#,
        r#"{"descriptors":[{"limit":{"requests_per_unit":5,"unit":"fortnight"}}]}"#,
        r#"{"hits_addend":-1}"#,
        r#"{"hits_addend":"x"}"#,
        r#"{"hits_addend":4294967296}"#,
        r#"{"descriptors":[{"limit":{"requests_per_unit":"4294967296","unit":"hour"}}]}"#,
    ] {
        assert!(rls::from_json(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn an_answer_without_statuses_is_two_bytes() {
    let mut out = Vec::new();
    let response = RlsResponse::new(true, &[], &[], &Decision::UNLIMITED);
    rls::encode(&response, &mut out);
    assert_eq!(out, b"\x08\x02");
    out.clear();
    rls::put_json(&mut out, &response);
    assert_eq!(str::from_utf8(&out).unwrap(), r#"{"overallCode":"OVER_LIMIT","statuses":[]}"#);
}

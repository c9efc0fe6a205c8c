//! Envoy's rate limit service: what a real Envoy sends, what a naive encoder writes, and bytes that are no message.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tollway_core::algorithm::FixedWindow;
use tollway_core::descriptor::{
    Descriptor, DescriptorBill, DescriptorLimit, DescriptorOutcome, DescriptorTree, LimitOverride,
    RateLimitRequest, RateLimitRequestError, RateUnit, RequestDescriptor,
};
use tollway_core::{Algorithm, Decision, Limit, Nanos, Policy, Timestamp, Verdict};
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
        prop_assert_eq!(&rls::decode(&message).unwrap(), &request);
        let mut json = Vec::new();
        rls::put_trace_request(&mut json, &request);
        prop_assert_eq!(&rls::from_json(&json).unwrap(), &request);
        prop_assert!(json.iter().all(|byte| matches!(byte, b' '..=b'~')));
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
fn a_request_of_a_trace_is_printable_and_has_no_arrow() {
    let entries = vec![("account".into(), "é => \"\u{1f600}\" =>".into()), ("ip".into(), "".into())];
    let limit = Some(LimitOverride { requests_per_unit: 5, unit: RateUnit::Hour });
    let descriptor =
        RequestDescriptor { entries, limit, hits_addend: Some(u64::MAX), is_negative_hits: true };
    let descriptors = vec![descriptor, RequestDescriptor::default()];
    let request = RateLimitRequest { domain: "a=b > c".into(), descriptors, hits_addend: 3 };
    let mut json = Vec::new();
    rls::put_trace_request(&mut json, &request);
    let expected = r#"{"domain":"a=b > c","descriptors":[{"entries":[["account","\u00e9 =\u003e \"\ud83d\ude00\" =\u003e"],["ip",""]],"limit":{"requests_per_unit":5,"unit":"HOUR"},"hits_addend":18446744073709551615,"is_negative_hits":true},{"entries":[]}],"hits_addend":3}"#;
    assert_eq!(String::from_utf8(json).unwrap(), expected);
    assert_eq!(rls::from_json(expected.as_bytes()).unwrap(), request);
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

/// Returns a policy with a limit of three a minute for each value of `account`, and no limit for `free`.
fn policy() -> Policy {
    let window = FixedWindow::new(3, Duration::from_secs(60), Duration::ZERO).unwrap();
    let shown = DescriptorLimit {
        rate: Some((3, RateUnit::Minute)),
        name: "accounts".into(),
        ..DescriptorLimit::default()
    };
    let limited = Descriptor {
        shown: Some(shown),
        limit: Some(Limit::new("shop_account").unwrap().with_default(Algorithm::FixedWindow(window))),
        ..Descriptor::new("account", "")
    };
    let mut tree = DescriptorTree::default();
    tree.add_domain("shop", vec![limited, Descriptor::new("free", "")]);
    Policy::new(Vec::new()).unwrap().with_descriptors(tree).unwrap()
}

/// Returns the answer to a request about an account and a descriptor without a limit, in all three forms.
fn answers(decision: Decision) -> (Vec<u8>, String, String) {
    let policy = policy();
    let json =
        br#"{"domain":"shop","descriptors":[{"entries":[["account","alice"]]},{"entries":[["free","x"]]}]}"#;
    let request = rls::from_json(json).unwrap();
    let bill = DescriptorBill::new(&policy, &request).unwrap();
    let outcome = DescriptorOutcome::new(decision, vec![decision], Vec::new(), Timestamp::EPOCH);
    let (statuses, charges): (Vec<_>, _) = (bill.statuses(&outcome).collect(), bill.charges());
    let response = RlsResponse::new(bill.is_over_limit(&outcome), &statuses, &charges, &outcome.decision);
    let (mut message, mut json, mut trace) = (Vec::new(), Vec::new(), Vec::new());
    rls::encode(&response, &mut message);
    rls::put_json(&mut json, &response);
    rls::put_trace_json(&mut trace, &response);
    (message, String::from_utf8(json).unwrap(), String::from_utf8(trace).unwrap())
}

#[test]
fn an_answer_has_a_status_for_each_descriptor_in_every_form() {
    let allowed = Decision::new(Verdict::Allow, 2, Nanos::ZERO, Nanos::from_millis(54_500));
    let (message, json, trace) = answers(allowed);
    // Code 1 is OK; the limit has three a minute (unit 2) and a name; two are left, and 55 seconds. Then a status
    // without a limit.
    let limit = [number(1, 3), number(2, 2), text(3, "accounts")].concat();
    let status = [number(1, 1), field(2, &limit), number(3, 2), field(4, &number(1, 55))].concat();
    let expected = [number(1, 1), field(2, &status), field(2, &number(1, 1))].concat();
    assert!(message.starts_with(&expected), "{message:?}");
    assert!(String::from_utf8_lossy(&message[expected.len()..]).contains("RateLimit"), "headers follow");
    let status = r#"{"code":"OK","currentLimit":{"requestsPerUnit":3,"unit":"MINUTE","name":"accounts"},"limitRemaining":2,"durationUntilReset":"55s"}"#;
    let expected = format!(
        r#"{{"overallCode":"OK","statuses":[{status},{{"code":"OK"}}],"responseHeadersToAdd":[{{"key":"RateLimit"#
    );
    assert!(json.starts_with(&expected), "{json}");
    assert!(json.ends_with("}]}") && !json.contains("X-RateLimit"), "Envoy makes these by itself: {json}");
    let expected = r#"{"overall_code":"OK","statuses":[{"code":"OK","current_limit":{"requests_per_unit":3,"unit":"MINUTE","name":"accounts"},"limit_remaining":2,"duration_until_reset_s":55},{"code":"OK"}]}"#;
    assert_eq!(trace, expected);
}

#[test]
fn an_answer_over_the_limit_says_so_and_when_to_come_again() {
    let denied = Decision::new(Verdict::Deny, 0, Nanos::from_secs(12), Nanos::from_secs(12));
    let (message, json, trace) = answers(denied);
    assert!(message.starts_with(&number(1, 2)), "code 2 is OVER_LIMIT: {message:?}");
    assert!(json.starts_with(r#"{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","#), "{json}");
    assert!(json.contains(r#"{"key":"Retry-After","value":"12"}"#), "{json}");
    assert!(trace.contains(r#"},{"code":"OK"}]"#), "the other descriptor is not over a limit: {trace}");
    // No waiting helps, so there are no headers about it.
    let never = Decision::new(Verdict::Deny, 0, Nanos::FOREVER, Nanos::FOREVER);
    assert!(answers(never).1.ends_with("]}") && !answers(never).1.contains("responseHeadersToAdd"));
}

#[test]
fn units_have_a_name_and_a_number() {
    for (number, name) in
        [(1, "second"), (2, "MINUTE"), (3, "hour"), (4, "day"), (5, "month"), (6, "year"), (7, "Week")]
    {
        let with = |unit: &str| {
            format!(r#"{{"descriptors":[{{"entries":[],"limit":{{"requests_per_unit":1,"unit":{unit}}}}}]}}"#)
        };
        let (by_number, by_name) = (with(&number.to_string()), with(&format!("\"{name}\"")));
        assert_eq!(rls::from_json(by_number.as_bytes()), rls::from_json(by_name.as_bytes()));
        assert!(rls::from_json(by_number.as_bytes()).is_ok(), "{by_number}");
    }
    let error =
        rls::from_json(br#"{"descriptors":[{"limit":{"requests_per_unit":1,"unit":8}}]}"#).unwrap_err();
    assert!(error.detail.contains("one of SECOND, MINUTE, HOUR"), "{}", error.detail);
    let error = rls::from_json(br#"{"descriptors":[{"entries":[7]}]}"#).unwrap_err();
    assert!(
        error.detail.contains(r#"an entry, such as {"key":"account","value":"alice"}"#),
        "{}",
        error.detail
    );
}

/// Returns the fields of a message: their numbers and their bytes; numbers of varints are left out.
fn fields(mut message: &[u8]) -> Vec<(u8, &[u8])> {
    let varint = |message: &mut &[u8]| {
        let mut number = 0_usize;
        for shift in (0..).step_by(7) {
            let (byte, rest) = message.split_first().unwrap();
            *message = rest;
            number |= usize::from(byte & 127) << shift;
            if *byte < 128 {
                break;
            }
        }
        number
    };
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let value = varint(&mut message);
        if tag & 7 == 2 {
            let (bytes, rest) = message.split_at(value);
            fields.push((u8::try_from(tag >> 3).unwrap(), bytes));
            message = rest;
        }
    }
    fields
}

#[test]
fn reflection_describes_the_service_and_everything_that_it_uses() {
    let set = rls::file_descriptor_set();
    let files = fields(&set);
    let texts = |message, number| {
        fields(message).into_iter().filter(move |(field, _)| *field == number).map(|(_, bytes)| bytes)
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut known = Vec::new();
    for (_, file) in &files {
        for dependency in texts(file, 3) {
            assert!(known.contains(&text(dependency)), "a file comes after what it depends on");
        }
        known.push(text(texts(file, 1).next().unwrap()));
        assert_eq!(texts(file, 12).map(text).collect::<Vec<_>>(), ["proto3"]);
    }
    let services: Vec<_> = files.iter().flat_map(|(_, file)| texts(file, 6).collect::<Vec<_>>()).collect();
    let [service] = services[..] else { panic!("{} services", services.len()) };
    let package = text(texts(files.last().unwrap().1, 2).next().unwrap());
    assert_eq!(format!("{package}.{}", text(texts(service, 1).next().unwrap())), rls::SERVICE);
    let method = texts(service, 2).next().unwrap();
    let names: Vec<_> = fields(method).into_iter().map(|(_, bytes)| text(bytes)).collect();
    assert_eq!(format!("/{}/{}", rls::SERVICE, names[0]), rls::SHOULD_RATE_LIMIT);
    let messages: Vec<_> =
        texts(files.last().unwrap().1, 4).map(|message| text(texts(message, 1).next().unwrap())).collect();
    assert_eq!(messages, ["RateLimitRequest", "RateLimitResponse"]);
}

//! Property tests of the Throttr codec: any bytes, in any pieces, never panic and read the same.

use proptest::prelude::*;
use tollway_core::algorithm::{Change, QuotaTtl, TtlUnit};
use tollway_wire::throttr::{
    FRAME_MAX, QuotaAttribute, REPLY_MAX, ThrottrCommand, ThrottrReply, UnknownType, decode, decode_reply,
    encode, encode_request,
};

/// Returns the requests that are found in `bytes` when they arrive in pieces that end at `cuts`.
fn found(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> (Vec<String>, Result<usize, UnknownType>) {
    let (mut found, mut start) = (Vec::new(), 0);
    for end in cuts.chain([bytes.len()]) {
        loop {
            match decode(&bytes[start..end.clamp(start, bytes.len())]) {
                Ok(Some((request, len))) => {
                    assert!((7..=FRAME_MAX).contains(&len));
                    found.push(format!("{request:?}"));
                    start += len;
                }
                Ok(None) => break,
                Err(unknown) => return (found, Err(unknown)),
            }
        }
    }
    (found, Ok(start))
}

fn command() -> impl Strategy<Value = ThrottrCommand> {
    prop_oneof![
        any::<(u64, u64, u8)>().prop_map(|(quota, value, unit)| {
            ThrottrCommand::Insert { quota, lifetime: QuotaTtl { value, unit: TtlUnit(unit) } }
        }),
        Just(ThrottrCommand::Query),
        (attribute(), change(), any::<u64>()).prop_map(|(attribute, change, value)| ThrottrCommand::Update {
            attribute,
            change,
            value
        }),
        (2..=u8::MAX, any::<u8>(), any::<u64>()).prop_map(|(attribute, change, value)| {
            ThrottrCommand::UndefinedUpdate { attribute, change, value }
        }),
        Just(ThrottrCommand::Purge),
    ]
}

fn attribute() -> impl Strategy<Value = QuotaAttribute> {
    prop_oneof![Just(QuotaAttribute::Quota), Just(QuotaAttribute::Ttl)]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![Just(Change::Patch), Just(Change::Increase), Just(Change::Decrease)]
}

fn request() -> impl Strategy<Value = (u32, ThrottrCommand, Vec<u8>, Vec<u8>)> {
    let bytes = |max: usize| prop::collection::vec(any::<u8>(), 0..=max);
    let name = move || prop_oneof![3 => bytes(8), 1 => bytes(255)];
    (any::<u32>(), command(), name(), name())
}

/// Generates complete requests, and now and then other bytes.
fn traffic() -> impl Strategy<Value = Vec<u8>> {
    let whole = request().prop_map(|(id, command, consumer, resource)| {
        let mut frame = Vec::new();
        encode_request(id, &command, &consumer, &resource, &mut frame).expect("short ids");
        frame
    });
    let piece = prop_oneof![8 => whole, 1 => prop::collection::vec(any::<u8>(), 0..30)];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn reply() -> impl Strategy<Value = ThrottrReply> {
    prop_oneof![
        any::<bool>().prop_map(ThrottrReply::Status),
        any::<(u64, u64, u8)>().prop_map(|(left, value, unit)| {
            ThrottrReply::Quota { left, lifetime: QuotaTtl { value, unit: TtlUnit(unit) } }
        }),
    ]
}

#[test]
fn every_type_of_every_size_is_a_request_or_waits() {
    for (kind, header) in [(1, 24), (2, 7), (3, 17), (4, 7)] {
        for size in 1..=1100 {
            let mut bytes = vec![255; size];
            bytes[0] = kind;
            let len = header + 510;
            let decoded = decode(&bytes).expect("a type that is known").map(|(_, len)| len);
            assert_eq!(decoded, (size >= len).then_some(len), "type {kind}, {size} bytes");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn requests_survive_the_wire((id, command, consumer, resource) in request(), more in prop::collection::vec(any::<u8>(), 0..30)) {
        let mut inbox = Vec::new();
        encode_request(id, &command, &consumer, &resource, &mut inbox).expect("short ids");
        let whole = inbox.len();
        inbox.extend(more);
        let (request, len) = decode(&inbox).expect("a known type").expect("all there");
        prop_assert_eq!((request.id, request.command, len), (id, command, whole));
        prop_assert_eq!((request.key.consumer(), request.key.resource()), (&consumer[..], &resource[..]));
        prop_assert_eq!(request.key.bytes(), &inbox[whole - 2 - consumer.len() - resource.len()..whole]);
    }

    #[test]
    fn a_request_waits_until_its_last_byte((id, command, consumer, resource) in request()) {
        let mut frame = Vec::new();
        encode_request(id, &command, &consumer, &resource, &mut frame).expect("short ids");
        for cut in 0..frame.len() {
            prop_assert_eq!(decode(&frame[..cut]), Ok(None));
        }
    }

    #[test]
    fn pieces_do_not_change_what_is_read(bytes in traffic(), mut cuts in prop::collection::vec(0usize..2000, 0..30)) {
        cuts.sort_unstable();
        let at_once = found(&bytes, std::iter::empty());
        prop_assert_eq!(&at_once, &found(&bytes, cuts.into_iter()));
        prop_assert_eq!(&at_once, &found(&bytes, 0..bytes.len()));
    }

    #[test]
    fn any_bytes_are_requests_or_an_unknown_type(bytes in prop::collection::vec(any::<u8>(), 0..1100)) {
        let _ = found(&bytes, std::iter::empty());
        for to_query in [false, true] {
            let _ = decode_reply(&bytes, to_query);
        }
    }

    #[test]
    fn replies_survive_the_wire(id: u32, reply in reply(), more in prop::collection::vec(any::<u8>(), 0..30)) {
        let (mut inbox, to_query) = (Vec::new(), matches!(reply, ThrottrReply::Quota { .. }));
        encode(id, &reply, &mut inbox);
        let whole = inbox.len();
        prop_assert!(whole <= REPLY_MAX);
        for cut in 0..whole {
            prop_assert_eq!(decode_reply(&inbox[..cut], to_query), Ok(None));
        }
        inbox.extend(more);
        prop_assert_eq!(decode_reply(&inbox, to_query), Ok(Some((id, reply, whole))));
    }
}

//! Checks that any bytes of a client are the same requests however they are cut, and that these are encoded to the same
//! bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway_wire::throttr::{FRAME_MAX, ThrottrReply, decode, decode_reply, encode, encode_request};

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    assert_eq!(requests(bytes, bytes.len()), requests(bytes, usize::from(piece)));
    for to_query in [false, true] {
        replies(bytes, to_query);
    }
});

/// Returns the number of requests in `bytes`, which arrive `piece` at a time, their length, and whether an unknown type
/// ended them.
fn requests(bytes: &[u8], piece: usize) -> (usize, usize, bool) {
    let (mut start, mut count) = (0, 0);
    for end in (0..bytes.len()).step_by(piece.max(1)).skip(1).chain([bytes.len()]) {
        loop {
            match decode(&bytes[start..end.max(start)]) {
                Ok(Some((request, len))) => {
                    assert!(len <= FRAME_MAX);
                    let (consumer, resource) = (request.key.consumer(), request.key.resource());
                    let mut again = Vec::new();
                    encode_request(request.id, &request.command, consumer, resource, &mut again)
                        .expect("ids out of a request fit into one");
                    assert_eq!(again, bytes[start..start + len]);
                    assert!(again.ends_with(request.key.bytes()));
                    start += len;
                    count += 1;
                }
                Ok(None) => {
                    assert!(end.saturating_sub(start) < FRAME_MAX);
                    break;
                }
                Err(_) => return (count, start, true),
            }
        }
    }
    (count, start, false)
}

fn replies(mut inbox: &[u8], to_query: bool) {
    while let Ok(Some((id, reply, len))) = decode_reply(inbox, to_query) {
        assert!(to_query || matches!(reply, ThrottrReply::Status(_)));
        let mut again = Vec::new();
        encode(id, &reply, &mut again);
        assert_eq!(again, inbox[..len]);
        inbox = &inbox[len..];
    }
}

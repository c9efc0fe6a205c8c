//! Checks that any bytes of a Throttr server are replies that are encoded to the same bytes, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway_wire::throttr::{ThrottrReply, decode_reply, encode};

fuzz_target!(|input: (bool, &[u8])| {
    let (to_query, bytes) = input;
    replies(bytes, to_query);
});

fn replies(mut inbox: &[u8], to_query: bool) {
    let mut again = Vec::new();
    while let Ok(Some((id, reply, len))) = decode_reply(inbox, to_query) {
        assert!(to_query || matches!(reply, ThrottrReply::Status(_)));
        again.clear();
        encode(id, &reply, &mut again);
        assert_eq!(again, inbox[..len]);
        inbox = &inbox[len..];
    }
}

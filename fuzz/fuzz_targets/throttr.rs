//! Checks that any bytes of a client are the same requests however they are cut, and that these are encoded to the same
//! bytes.
#![no_main]

mod pieces;

use libfuzzer_sys::fuzz_target;
use tollway_wire::throttr::{FRAME_MAX, decode, encode_request};

use crate::pieces::ends;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    assert_eq!(requests(bytes, bytes.len()), requests(bytes, usize::from(piece)));
});

/// Returns the number of requests in `bytes`, which arrive `piece` at a time, their length, and whether an unknown type
/// ended them.
fn requests(bytes: &[u8], piece: usize) -> (usize, usize, bool) {
    let (mut start, mut count, mut again) = (0, 0, Vec::new());
    for end in ends(bytes.len(), piece) {
        loop {
            match decode(&bytes[start..end.max(start)]) {
                Ok(Some((request, len))) => {
                    assert!(len <= FRAME_MAX);
                    let (consumer, resource) = (request.key.consumer(), request.key.resource());
                    again.clear();
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

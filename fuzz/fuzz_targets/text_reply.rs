//! Checks that any datagram of a server is a reply that reads back as it was encoded, or none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway_wire::text::{DATAGRAM_MAX, ReceivedReply, TextReply, decode_reply, encode};

fuzz_target!(|datagram: &[u8]| {
    if let Some((id, reply)) = decode_reply(datagram) {
        read_again(id, reply);
    }
});

/// Checks that a reply that was read is one that a server could have sent: encoded, it reads back the same.
fn read_again(id: Option<&[u8]>, received: ReceivedReply<'_>) {
    let reply = match received {
        ReceivedReply::OverLimit(over_limit) => TextReply::OverLimit(over_limit),
        ReceivedReply::Stats { stats, key } => TextReply::Stats { stats, key },
        ReceivedReply::Size { keys } => TextReply::Size { keys },
        ReceivedReply::Pong => TextReply::Pong,
        ReceivedReply::CheckLimit { .. } => return,
    };
    let mut out = Vec::new();
    encode(id, &reply, &mut out);
    if out.len() == DATAGRAM_MAX {
        return;
    }
    match (decode_reply(&out).expect("a reply we wrote"), received) {
        // One decimal is kept of a rate and a limit.
        ((again, ReceivedReply::OverLimit(one)), ReceivedReply::OverLimit(other)) => {
            assert_eq!((again, one.over, one.period), (id, other.over, other.period));
        }
        (again, received) => assert_eq!(again, (id, received)),
    }
}

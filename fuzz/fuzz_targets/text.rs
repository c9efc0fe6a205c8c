//! Checks that any datagram is ignored or is a message that reads back as it was written and has a reply within bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway_wire::text::{
    CheckKey, DATAGRAM_MAX, KeyStats, OverLimit, TextCommand, TextReply, TextRequest, decode, decode_reply,
    encode,
};

fuzz_target!(|datagram: &[u8]| {
    if let Some(message) = decode(datagram) {
        read_again(&message);
        answered(&message);
    }
});

fn read_again(message: &TextRequest<'_>) {
    let mut again = Vec::new();
    message.encode(&mut again);
    // Written out in full, a `check_limit` may no longer fit.
    if again.len() <= DATAGRAM_MAX {
        assert_eq!(decode(&again).as_ref(), Some(message));
    } else {
        assert!(matches!(message.command, TextCommand::CheckLimit(_)));
    }
}

/// Every message has a reply within bounds, with its id in front.
fn answered(message: &TextRequest<'_>) {
    let tried = [OverLimit::new(false, 0.25, 2500.0, 10); 2];
    let keys = keys(message);
    let [key, ip, global] = &keys;
    let reply = match message.command {
        TextCommand::OverLimit { .. } => TextReply::OverLimit(tried[0]),
        TextCommand::GetStats { .. } => TextReply::Stats { stats: KeyStats::new(2, 1, 0), key },
        TextCommand::CheckLimit(_) => TextReply::CheckLimit { keys: [key, ip, global], tried: &tried },
        TextCommand::GetSize => TextReply::Size { keys: 7 },
        TextCommand::Ping => TextReply::Pong,
    };
    let mut out = Vec::new();
    encode(message.id, &reply, &mut out);
    assert!(out.len() <= DATAGRAM_MAX);
    // A long id may leave no room for the reply.
    if message.id.is_none_or(|id| id.len() < DATAGRAM_MAX / 2) {
        assert_eq!(decode_reply(&out).expect("a reply").0, message.id);
    }
}

/// The keys that it asks about: one, or the three of a `check_limit`.
fn keys(message: &TextRequest<'_>) -> [Vec<u8>; 3] {
    match &message.command {
        TextCommand::OverLimit { key } | TextCommand::GetStats { key } => {
            [key.to_vec(), Vec::new(), Vec::new()]
        }
        TextCommand::CheckLimit(check) => CheckKey::ALL.map(|which| {
            let mut key = Vec::new();
            check.put_key(which, &mut key);
            key
        }),
        TextCommand::GetSize | TextCommand::Ping => Default::default(),
    }
}

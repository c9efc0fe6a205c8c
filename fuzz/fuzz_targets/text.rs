//! Whatever a datagram says, it is silence or a message that is read back as it is written, and so are replies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollway_wire::text::{
    Answer, CheckKey, Command, DATAGRAM_MAX, KeyStats, Message, OverLimit, Reply, decode, decode_reply,
    encode,
};

fuzz_target!(|datagram: &[u8]| {
    if let Some(message) = decode(datagram) {
        read_again(&message);
        answered(&message);
    }
    if let Some((id, answer)) = decode_reply(datagram) {
        answered_again(id, answer);
    }
});

fn read_again(message: &Message<'_>) {
    let mut again = Vec::new();
    message.encode(&mut again);
    // Written out in full, a `check_limit` may no longer fit.
    if again.len() <= DATAGRAM_MAX {
        assert_eq!(decode(&again).as_ref(), Some(message));
    } else {
        assert!(matches!(message.command, Command::CheckLimit(_)));
    }
}

/// Every message has a reply within bounds, with its id in front.
fn answered(message: &Message<'_>) {
    let tried = [OverLimit { over: false, rate: 0.25, limit: 2500.0, period: 10 }; 2];
    let keys = keys(message);
    let [key, ip, global] = &keys;
    let reply = match message.command {
        Command::OverLimit { .. } => Reply::OverLimit(tried[0]),
        Command::GetStats { .. } => {
            Reply::Stats { stats: KeyStats { n_req: 2, n_over: 1, last_max_rate: 0 }, key }
        }
        Command::CheckLimit(_) => Reply::CheckLimit { keys: [key, ip, global], tried: &tried },
        Command::GetSize => Reply::Size { keys: 7 },
        Command::Ping => Reply::Pong,
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
fn keys(message: &Message<'_>) -> [Vec<u8>; 3] {
    match &message.command {
        Command::OverLimit { key } | Command::GetStats { key } => [key.to_vec(), Vec::new(), Vec::new()],
        Command::CheckLimit(check) => CheckKey::ALL.map(|which| {
            let mut key = Vec::new();
            check.put_key(which, &mut key);
            key
        }),
        Command::GetSize | Command::Ping => Default::default(),
    }
}

/// What was understood of a reply, a server could have said.
fn answered_again(id: Option<&[u8]>, answer: Answer<'_>) {
    let reply = match answer {
        Answer::OverLimit(over_limit) => Reply::OverLimit(over_limit),
        Answer::Stats { stats, key } => Reply::Stats { stats, key },
        Answer::Size { keys } => Reply::Size { keys },
        Answer::Pong => Reply::Pong,
        Answer::CheckLimit { .. } => return,
    };
    let mut out = Vec::new();
    encode(id, &reply, &mut out);
    if out.len() == DATAGRAM_MAX {
        return;
    }
    match (decode_reply(&out).expect("a reply we wrote"), answer) {
        // One decimal is kept of a rate and a limit.
        ((again, Answer::OverLimit(one)), Answer::OverLimit(other)) => {
            assert_eq!((again, one.over, one.period), (id, other.over, other.period));
        }
        (again, answer) => assert_eq!(again, (id, answer)),
    }
}

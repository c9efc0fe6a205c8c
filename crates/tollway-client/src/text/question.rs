//! What both clients send, and what they make of what comes back.

use std::hash::{BuildHasher, RandomState};

use tollway_wire::text::{
    DATAGRAM_MAX, ReceivedReply, TextCommand, TextRequest, decode, decode_reply, split_id,
};

use super::{AskError, Decision, KeyStats};

/// Where a client's ids start. Not at zero, so that what is still on its way to an earlier client, whose port this one
/// has got, is not taken for an answer.
pub(super) fn first_id() -> u64 {
    // Room to count: the upper half of all ids is never started from.
    RandomState::new().hash_one(()) >> 1
}

/// The datagram that asks this, if whoever reads it will understand the same.
pub(super) fn datagram(id: u64, command: TextCommand<'_>) -> Result<Vec<u8>, AskError> {
    let digits = id.to_string();
    let message = TextRequest { id: Some(digits.as_bytes()), command };
    let mut datagram = Vec::new();
    message.encode(&mut datagram);
    let understood = datagram.len() <= DATAGRAM_MAX && decode(&datagram).as_ref() == Some(&message);
    if understood { Ok(datagram) } else { Err(AskError::Unsendable) }
}

/// The datagram that asks whatever this is.
pub(super) fn raw_datagram(id: u64, question: &[u8]) -> Result<Vec<u8>, AskError> {
    let datagram = [id.to_string().as_bytes(), b" ", question].concat();
    if datagram.len() <= DATAGRAM_MAX { Ok(datagram) } else { Err(AskError::Unsendable) }
}

/// The id that a client gave, and what was answered to it.
pub(super) fn reply(datagram: &[u8]) -> Option<(u64, &[u8])> {
    let (id, body) = split_id(datagram);
    let digits = std::str::from_utf8(id?).ok()?;
    let id: u64 = digits.parse().ok()?;
    // `007` is not an id of ours, though it is 7.
    (id.to_string() == digits).then_some((id, body))
}

/// Nobody to say otherwise is as though the answer were N. What could not be asked is the caller's mistake.
pub(super) fn decision(reply: Result<Vec<u8>, AskError>) -> Result<Decision, AskError> {
    let reply = match reply {
        Ok(reply) => reply,
        Err(AskError::Unsendable) => return Err(AskError::Unsendable),
        Err(_) => return Ok(Decision::Unanswered),
    };
    Ok(match decode_reply(&reply) {
        Some((None, ReceivedReply::OverLimit(said) | ReceivedReply::CheckLimit { last: said, .. })) => {
            Decision::Answered(said)
        }
        _ => Decision::Unanswered,
    })
}

pub(super) fn stats(reply: &[u8]) -> Result<KeyStats, AskError> {
    match decode_reply(reply) {
        Some((None, ReceivedReply::Stats { stats, .. })) => Ok(stats),
        _ => Err(misunderstood(reply)),
    }
}

pub(super) fn size(reply: &[u8]) -> Result<u64, AskError> {
    match decode_reply(reply) {
        Some((None, ReceivedReply::Size { keys })) => Ok(keys),
        _ => Err(misunderstood(reply)),
    }
}

pub(super) fn pong(reply: &[u8]) -> Result<(), AskError> {
    match decode_reply(reply) {
        Some((None, ReceivedReply::Pong)) => Ok(()),
        _ => Err(misunderstood(reply)),
    }
}

fn misunderstood(reply: &[u8]) -> AskError {
    AskError::Misunderstood { reply: String::from_utf8_lossy(reply).into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_understood_as_something_else_is_not_sent() {
        let long = vec![b'x'; DATAGRAM_MAX];
        for key in [&b"two\nlines"[..], b"a line\n", &long] {
            assert!(matches!(datagram(7, TextCommand::OverLimit { key }), Err(AskError::Unsendable)));
        }
        assert!(matches!(raw_datagram(7, &long), Err(AskError::Unsendable)));
        assert_eq!(
            datagram(7, TextCommand::OverLimit { key: b"ws global" }).unwrap(),
            b"7 over_limit ws global"
        );
    }

    #[test]
    fn only_ids_of_our_own_spelling_are_ours() {
        for (datagram, id) in [
            (&b"7 pong"[..], Some((7, &b"pong"[..]))),
            (b"0 pong", Some((0, b"pong"))),
            (b"18446744073709551615 ", Some((u64::MAX, b""))),
            (b"18446744073709551616 pong", None),
            (b"007 pong", None),
            (b"+7 pong", None),
            (b"pong", None),
            (b"", None),
        ] {
            assert_eq!(reply(datagram), id, "{}", datagram.escape_ascii());
        }
    }
}

//! Writes the datagrams of both clients, and reads the replies.

use std::hash::{BuildHasher, RandomState};

use tollway_wire::text::{
    DATAGRAM_MAX, ReceivedReply, TextCommand, TextRequest, decode, decode_reply, split_id,
};

use super::{KeyAnswer, KeyStats};
use crate::{ClientError, InvalidRequest};

/// Returns the id of a client's first request.
///
/// It is random, so that a reply still on its way to an earlier client, whose port this one got, matches no request.
pub(super) fn first_id() -> u64 {
    // The lower half, which leaves room to count.
    RandomState::new().hash_one(()) >> 1
}

/// Returns the datagram of a command, if a server would read the same command from it.
pub(super) fn datagram(id: u64, command: TextCommand<'_>) -> Result<Vec<u8>, InvalidRequest> {
    let digits = id.to_string();
    let request = TextRequest { id: Some(digits.as_bytes()), command };
    let mut datagram = Vec::new();
    request.encode(&mut datagram);
    let same = datagram.len() <= DATAGRAM_MAX && decode(&datagram).as_ref() == Some(&request);
    if same { Ok(datagram) } else { Err(InvalidRequest::Text) }
}

/// Returns the datagram of a command in the words of the protocol.
pub(super) fn raw_datagram(id: u64, command: &[u8]) -> Result<Vec<u8>, InvalidRequest> {
    let datagram = [id.to_string().as_bytes(), b" ", command].concat();
    if datagram.len() <= DATAGRAM_MAX { Ok(datagram) } else { Err(InvalidRequest::Text) }
}

/// Splits a reply into the id of its request and the rest.
pub(super) fn split_reply(datagram: &[u8]) -> Option<(u64, &[u8])> {
    let (id, body) = split_id(datagram);
    let digits = std::str::from_utf8(id?).ok()?;
    let id: u64 = digits.parse().ok()?;
    // No client writes `007`, though it is 7.
    (id.to_string() == digits).then_some((id, body))
}

/// Maps a reply to the answer. Every failure but an invalid request counts as no reply.
pub(super) fn key_answer(reply: Result<Vec<u8>, ClientError>) -> Result<KeyAnswer, ClientError> {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error @ ClientError::InvalidRequest(_)) => return Err(error),
        Err(_) => return Ok(KeyAnswer::Unanswered),
    };
    Ok(match decode_reply(&reply) {
        Some((None, ReceivedReply::OverLimit(last) | ReceivedReply::CheckLimit { last, .. })) => {
            KeyAnswer::Answered(last)
        }
        _ => KeyAnswer::Unanswered,
    })
}

pub(super) fn stats(reply: &[u8]) -> Option<KeyStats> {
    match decode_reply(reply) {
        Some((None, ReceivedReply::Stats { stats, .. })) => Some(stats),
        _ => None,
    }
}

pub(super) fn size(reply: &[u8]) -> Option<u64> {
    match decode_reply(reply) {
        Some((None, ReceivedReply::Size { keys })) => Some(keys),
        _ => None,
    }
}

pub(super) fn pong(reply: &[u8]) -> Option<()> {
    match decode_reply(reply) {
        Some((None, ReceivedReply::Pong)) => Some(()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_understood_as_something_else_is_not_sent() {
        let long = vec![b'x'; DATAGRAM_MAX];
        for key in [&b"two\nlines"[..], b"a line\n", &long] {
            assert!(matches!(datagram(7, TextCommand::OverLimit { key }), Err(InvalidRequest::Text)));
        }
        assert!(matches!(raw_datagram(7, &long), Err(InvalidRequest::Text)));
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
            assert_eq!(split_reply(datagram), id, "{}", datagram.escape_ascii());
        }
    }
}

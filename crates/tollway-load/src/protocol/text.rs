//! Writes `over_limit` requests of the UDP text protocol: `0000042 over_limit ws ip=000123`, all of one size.

use std::ops::Range;

use tollway_wire::text::{TextCommand, TextRequest};

use super::{NotAReply, Protocol, Reply, ReplyKind, Transport};
use crate::keys::KeySpace;
use crate::template::{Template, differing, write_digits};

/// The number of digits of an id.
const ID_DIGITS: usize = 7;

/// Asks whether keys are over their limits.
#[derive(Debug)]
pub struct TextOverLimit {
    template: Template,
    id: Range<usize>,
}

impl TextOverLimit {
    /// Asks about these keys.
    pub fn new(keys: &KeySpace) -> Self {
        let encode = |id_digit: u8, key: &str| {
            let mut datagram = Vec::new();
            let command = TextCommand::OverLimit { key: key.as_bytes() };
            TextRequest { id: Some(&[id_digit; ID_DIGITS]), command }.encode(&mut datagram);
            datagram
        };
        let id = differing(&encode(b'0', ""), &encode(b'9', ""));
        Self { template: Template::new(keys, |key| encode(b'0', key)), id }
    }
}

impl Protocol for TextOverLimit {
    const NAME: &'static str = "the text protocol";
    const TRANSPORT: Transport = Transport::Udp;
    // Far more than are ever in flight on one socket.
    const NUMBERS: u64 = 10_000_000;

    fn template(&self) -> &Template {
        &self.template
    }

    #[inline]
    fn write_number(&self, frame: &mut [u8], number: u64) {
        write_digits(&mut frame[self.id.clone()], number);
    }

    #[inline]
    fn read_number(&self, frame: &[u8]) -> u64 {
        number(&frame[self.id.clone()]).unwrap_or_default()
    }

    #[inline]
    fn reply<'a>(&self, received: &'a [u8]) -> Result<Option<Reply<'a>>, NotAReply> {
        let (id, rest) = received.split_at_checked(ID_DIGITS).ok_or(NotAReply)?;
        let kind = match rest {
            [b' ', b'o', b'k', b' ', b'N', b' ', ..] => ReplyKind::Allowed,
            [b' ', b'o', b'k', b' ', b'Y', b' ', ..] => ReplyKind::Denied,
            _ => return Err(NotAReply),
        };
        Ok(Some(Reply { len: received.len(), number: number(id).ok_or(NotAReply)?, kind }))
    }
}

#[inline]
fn number(digits: &[u8]) -> Option<u64> {
    digits
        .iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use tollway_wire::text::{OverLimit, TextReply, decode, encode};

    use super::super::Echo;
    use super::super::tests::request;
    use super::*;

    fn over_limit() -> TextOverLimit {
        TextOverLimit::new(&KeySpace { format: "ws ip={}".parse().unwrap(), count: 1_000_000 })
    }

    #[test]
    fn a_request_is_what_the_codec_reads() {
        for (id, key, expected_id, expected_key) in [
            (0, 0, "0000000", "ws ip=000000"),
            (1_234_567, 999_999, "1234567", "ws ip=999999"),
            (42, 7, "0000042", "ws ip=000007"),
        ] {
            let frame = request(&over_limit(), id, key);
            let message = decode(&frame).unwrap();
            assert_eq!(message.id, Some(expected_id.as_bytes()));
            assert_eq!(message.command, TextCommand::OverLimit { key: expected_key.as_bytes() });
        }
    }

    #[test]
    fn a_reply_is_what_the_codec_writes() {
        for (over, kind) in [(false, ReplyKind::Allowed), (true, ReplyKind::Denied)] {
            let mut reply = Vec::new();
            encode(Some(b"0000042"), &TextReply::OverLimit(OverLimit::new(over, 1.5, 22.0, 20)), &mut reply);
            assert_eq!(over_limit().reply(&reply), Ok(Some(Reply { len: reply.len(), number: 42, kind })));
            assert_eq!(Echo::new(over_limit()).reply(&reply), Err(NotAReply));
        }
        for other in
            ["", "42", "0000042", "0000042 pong", "x000042 ok N 1.0 2.0 3", "0000042 over_limit ws ip=000001"]
        {
            assert_eq!(over_limit().reply(other.as_bytes()), Err(NotAReply), "{other}");
        }
    }

    #[test]
    fn an_echo_is_the_request() {
        let echo = Echo::new(over_limit());
        let sent = request(&echo, 77, 5);
        let reply = Reply { len: sent.len(), number: 77, kind: ReplyKind::Allowed };
        assert_eq!(echo.reply(&sent), Ok(Some(reply)));
    }
}

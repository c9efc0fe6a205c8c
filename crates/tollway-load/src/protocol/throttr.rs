//! Requests of the Throttr protocol: binary and numbered, with replies in the same order.

use tollway_core::algorithm::{Change, QuotaTtl, TtlUnit};
use tollway_wire::throttr::{
    IdTooLong, QuotaAttribute, ThrottrCommand, ThrottrReply, decode_reply, encode_request,
};

use super::{NotAReply, Protocol, Reply, ReplyKind};
use crate::keys::KeySpace;
use crate::template::{Template, differing};

/// The resource of every quota; the key is the consumer.
const RESOURCE: &[u8] = b"r";
/// A quota that no run uses up.
const QUOTA: u64 = 1 << 62;
/// The time to live of a quota, a day.
const LIFETIME: QuotaTtl = QuotaTtl { value: 86_400, unit: TtlUnit(2) };

/// The request to send about quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottrAsk {
    /// Take 1 from the quota.
    Update,
    /// Query the quota.
    Query,
    /// Insert the quota.
    Insert,
}

impl From<ThrottrAsk> for ThrottrCommand {
    fn from(ask: ThrottrAsk) -> Self {
        match ask {
            ThrottrAsk::Update => {
                Self::Update { attribute: QuotaAttribute::Quota, change: Change::Decrease, value: 1 }
            }
            ThrottrAsk::Query => Self::Query,
            ThrottrAsk::Insert => Self::Insert { quota: QUOTA, lifetime: LIFETIME },
        }
    }
}

/// Asks about the quotas of many consumers.
#[derive(Debug)]
pub struct ThrottrQuotas {
    template: Template,
    number_at: usize,
    queries: bool,
}

impl ThrottrQuotas {
    /// Sends this request, with the keys as consumers. Fails if a key is longer than the protocol allows.
    pub fn new(ask: ThrottrAsk, keys: &KeySpace) -> Result<Self, IdTooLong> {
        let command = ask.into();
        let encode = |number: u32, key: &str| {
            let mut frame = Vec::new();
            encode_request(number, &command, key.as_bytes(), RESOURCE, &mut frame)?;
            Ok(frame)
        };
        let number_at = differing(&encode(0, &keys.all('0'))?, &encode(u32::MAX, &keys.all('0'))?).start;
        let template =
            Template::new(keys, |key| encode(0, key).expect("keys are of one width, and one did fit"));
        Ok(Self { template, number_at, queries: ask == ThrottrAsk::Query })
    }
}

impl Protocol for ThrottrQuotas {
    const NAME: &'static str = "the Throttr protocol";
    const NUMBERS: u64 = 1 << u32::BITS;

    fn template(&self) -> &Template {
        &self.template
    }

    #[expect(clippy::cast_possible_truncation, reason = "numbers start again after 2^32")]
    #[inline]
    fn write_number(&self, frame: &mut [u8], number: u64) {
        frame[self.number_at..][..4].copy_from_slice(&(number as u32).to_le_bytes());
    }

    #[inline]
    fn read_number(&self, frame: &[u8]) -> u64 {
        frame[self.number_at..].first_chunk().map_or(0, |number| u32::from_le_bytes(*number).into())
    }

    #[inline]
    fn reply<'a>(&self, received: &'a [u8]) -> Result<Option<Reply<'a>>, NotAReply> {
        let reply = decode_reply(received, self.queries).map_err(|_| NotAReply)?;
        Ok(reply.map(|(number, reply, len)| {
            let denied = reply == ThrottrReply::Status(false);
            let kind = if denied { ReplyKind::Denied } else { ReplyKind::Allowed };
            Reply { len, number: number.into(), kind }
        }))
    }
}

#[cfg(test)]
mod tests {
    use tollway_wire::throttr::{decode, encode};

    use super::super::Echo;
    use super::super::tests::{read_all, request};
    use super::*;

    const ASKS: [ThrottrAsk; 3] = [ThrottrAsk::Update, ThrottrAsk::Query, ThrottrAsk::Insert];

    fn quotas(ask: ThrottrAsk) -> ThrottrQuotas {
        ThrottrQuotas::new(ask, &KeySpace { format: "k{}".parse().unwrap(), count: 1_000_000 }).unwrap()
    }

    #[test]
    fn a_request_is_what_the_codec_makes_and_reads() {
        for ask in ASKS {
            for (number, key) in [(0, 0), (1, 7), (u32::MAX, 999_999), (0x0102_0304, 120_034)] {
                let frame = request(&quotas(ask), number.into(), key);
                let mut encoded = Vec::new();
                let consumer = format!("k{key:06}");
                encode_request(number, &ask.into(), consumer.as_bytes(), b"r", &mut encoded).unwrap();
                assert_eq!(frame, encoded, "{ask:?} {number} {key}");
                assert_eq!(quotas(ask).read_number(&frame), u64::from(number));
                let (read, len) = decode(&frame).unwrap().unwrap();
                assert_eq!((read.id, read.key.consumer(), len), (number, consumer.as_bytes(), frame.len()));
            }
        }
        assert_eq!(quotas(ThrottrAsk::Update).template().frame().len(), 25);
    }

    #[test]
    fn replies_are_recognized() {
        for ask in ASKS {
            let mut replies = Vec::new();
            for (id, done) in [(u32::MAX, true), (0, false), (1, true)] {
                let reply = match (done, ask) {
                    (true, ThrottrAsk::Query) => ThrottrReply::Quota { left: 9, lifetime: LIFETIME },
                    _ => ThrottrReply::Status(done),
                };
                encode(id, &reply, &mut replies);
            }
            let expected =
                [(u32::MAX.into(), ReplyKind::Allowed), (0, ReplyKind::Denied), (1, ReplyKind::Allowed)];
            assert_eq!(read_all(&quotas(ask), &replies), expected, "{ask:?}");
        }
    }

    #[test]
    fn other_bytes_are_not_a_reply() {
        for ask in ASKS {
            for other in [&b"\0\0\0\0\x02"[..], b"HTTP/1.1 400 Bad Request"] {
                assert_eq!(quotas(ask).reply(other), Err(NotAReply), "{}", other.escape_ascii());
            }
        }
    }

    #[test]
    fn an_echo_is_the_request() {
        let echo = Echo::new(quotas(ThrottrAsk::Update));
        let sent = [request(&echo, 3, 7), request(&echo, 4, 999_999)].concat();
        assert_eq!(read_all(&echo, &sent), [(3, ReplyKind::Allowed), (4, ReplyKind::Allowed)]);
        assert_eq!(echo.reply(b"\0\0\0\0\x01"), Err(NotAReply));
    }

    #[test]
    fn a_key_that_fits_no_frame_is_an_error() {
        let format = format!("{}{{}}", "k".repeat(250)).parse().unwrap();
        assert!(ThrottrQuotas::new(ThrottrAsk::Query, &KeySpace { format, count: 1_000_000 }).is_err());
    }
}

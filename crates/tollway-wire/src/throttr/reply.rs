//! What is answered.

use thiserror::Error;
use tollway_core::algorithm::{QuotaTtl, TtlUnit};

use super::REPLY_MAX;

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottrReply {
    /// Was it done? To a query: no, there is no such quota.
    Status(bool),
    /// To a query: what there is.
    Quota {
        /// How many are left.
        left: u64,
        /// For how long, in the unit that the quota was made with.
        lifetime: QuotaTtl,
    },
}

const STATUS_LEN: usize = 5;

/// Appends the reply to the request with this id.
#[inline]
pub fn encode(id: u32, reply: &ThrottrReply, out: &mut Vec<u8>) {
    match *reply {
        ThrottrReply::Status(done) => {
            let [a, b, c, d] = id.to_le_bytes();
            out.extend_from_slice(&[a, b, c, d, u8::from(done)]);
        }
        ThrottrReply::Quota { left, lifetime } => {
            let mut bytes = [0; REPLY_MAX];
            bytes[..4].copy_from_slice(&id.to_le_bytes());
            bytes[4] = 1;
            bytes[5..13].copy_from_slice(&left.to_le_bytes());
            bytes[13] = lifetime.unit.0;
            bytes[14..].copy_from_slice(&lifetime.value.to_le_bytes());
            out.extend_from_slice(&bytes);
        }
    }
}

/// A status that is neither done nor not done: whoever answers speaks something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a reply has the status {found:#04x}, which is neither 0 nor 1")]
pub struct UnknownStatus {
    /// The byte in its place.
    pub found: u8,
}

/// The id and the answer that `inbox` starts with and how many bytes they take, or `None` until all have arrived.
///
/// A reply does not say what it answers: whoever asked must know whether that was a query.
#[inline]
pub fn decode_reply(
    inbox: &[u8],
    to_query: bool,
) -> Result<Option<(u32, ThrottrReply, usize)>, UnknownStatus> {
    let Some(&[a, b, c, d, status]) = inbox.first_chunk::<STATUS_LEN>() else { return Ok(None) };
    let id = u32::from_le_bytes([a, b, c, d]);
    match status {
        1 if to_query => Ok(decode_quota(&inbox[STATUS_LEN..]).map(|reply| (id, reply, REPLY_MAX))),
        0 | 1 => Ok(Some((id, ThrottrReply::Status(status == 1), STATUS_LEN))),
        found => Err(UnknownStatus { found }),
    }
}

fn decode_quota(rest: &[u8]) -> Option<ThrottrReply> {
    let (left, rest) = rest.split_first_chunk()?;
    let (unit, rest) = rest.split_first()?;
    let value = rest.first_chunk()?;
    let lifetime = QuotaTtl { value: u64::from_le_bytes(*value), unit: TtlUnit(*unit) };
    Some(ThrottrReply::Quota { left: u64::from_le_bytes(*left), lifetime })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_those_of_the_protocol() {
        let nine_seconds = QuotaTtl { value: 9, unit: TtlUnit(2) };
        for (id, reply, bytes) in [
            (1, ThrottrReply::Status(true), &b"\x01\0\0\0\x01"[..]),
            (0x0403_0201, ThrottrReply::Status(false), b"\x01\x02\x03\x04\0"),
            (
                2,
                ThrottrReply::Quota { left: 5, lifetime: nine_seconds },
                b"\x02\0\0\0\x01\x05\0\0\0\0\0\0\0\x02\x09\0\0\0\0\0\0\0",
            ),
        ] {
            let mut out = b"before it".to_vec();
            encode(id, &reply, &mut out);
            assert_eq!(out.strip_prefix(b"before it"), Some(bytes));
            let to_query = matches!(reply, ThrottrReply::Quota { .. });
            for cut in 0..bytes.len() {
                assert_eq!(decode_reply(&bytes[..cut], to_query), Ok(None));
            }
            assert_eq!(
                decode_reply(&[bytes, b"and more"].concat(), to_query),
                Ok(Some((id, reply, bytes.len())))
            );
        }
    }

    #[test]
    fn a_query_that_finds_nothing_gets_five_bytes() {
        assert_eq!(decode_reply(b"\x01\0\0\0\0", true), Ok(Some((1, ThrottrReply::Status(false), 5))));
    }

    #[test]
    fn a_status_nobody_sends_is_an_error() {
        for found in 2..=u8::MAX {
            for to_query in [false, true] {
                assert_eq!(decode_reply(&[1, 0, 0, 0, found], to_query), Err(UnknownStatus { found }));
            }
        }
    }
}

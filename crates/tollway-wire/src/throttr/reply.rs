//! Encodes and decodes Throttr replies.

use thiserror::Error;
use tollway_core::algorithm::{QuotaTtl, TtlUnit};

use super::REPLY_MAX;

/// The reply that a server sends to a request.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThrottrReply {
    /// True if the command was done. `false` also answers a query for a quota that does not exist.
    Status(bool),
    /// Answers a query with the quota that was found.
    Quota {
        /// The number of units that are left.
        left: u64,
        /// The time until the quota expires, in the unit that it was inserted with.
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

/// An error for a reply status that is not defined: the peer uses another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the server replied with status {found:#04x} instead of 0 or 1; it may not be a Throttr server, or it uses TLS"
)]
#[non_exhaustive]
pub struct UnknownStatus {
    /// The byte that was found.
    pub found: u8,
}

/// Decodes the reply at the start of `inbox`. Returns its request id, the reply, and its length in bytes; or `None`
/// until all of it has arrived.
///
/// A reply does not carry the type of its request, so the caller must pass whether that was a query.
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

//! Encodes and decodes Throttr requests.

use thiserror::Error;
use tollway_core::algorithm::{Change, QuotaTtl, TtlUnit};

/// A decoded request, whose key is borrowed from the read buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottrRequest<'a> {
    /// The number that the caller chose. The reply repeats it.
    pub id: u32,
    /// The command to run.
    pub command: ThrottrCommand,
    /// The consumer and the resource whose quota is meant.
    pub key: ThrottrKey<'a>,
}

/// A command that reads or changes one quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottrCommand {
    /// Creates a quota.
    Insert {
        /// The number of units that it starts with.
        quota: u64,
        /// The time after which it expires.
        lifetime: QuotaTtl,
    },
    /// Reads what is left of a quota.
    Query,
    /// Changes a quota.
    Update {
        /// The number to change.
        attribute: QuotaAttribute,
        /// The kind of change.
        change: Change,
        /// The amount to add or subtract, or the new value.
        value: u64,
    },
    /// Changes nothing, because a byte has no meaning. A server replies that it was not done.
    UndefinedUpdate {
        /// The byte in the place of the attribute.
        attribute: u8,
        /// The byte in the place of the change.
        change: u8,
        /// The value.
        value: u64,
    },
    /// Deletes a quota.
    Purge,
}

/// The part of a quota that an update changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaAttribute {
    /// The number of units that are left. The value of the update is a number of units.
    Quota,
    /// The time until the quota expires. The value of the update is in the unit that the quota was inserted with: for a
    /// quota that was inserted with 10 s a value of 3 is 3 seconds, and for one that was inserted with 1500 ms it is 3
    /// milliseconds. A query returns the unit.
    Ttl,
}

/// The byte of each attribute, which is its place.
const ATTRIBUTES: [(u8, QuotaAttribute); 2] = [(0, QuotaAttribute::Quota), (1, QuotaAttribute::Ttl)];
/// The byte of each change, which is its place.
const CHANGES: [(u8, Change); 3] = [(0, Change::Patch), (1, Change::Increase), (2, Change::Decrease)];

#[inline]
fn decode_update(attribute: u8, change: u8, value: u64) -> ThrottrCommand {
    match (ATTRIBUTES.get(usize::from(attribute)), CHANGES.get(usize::from(change))) {
        (Some((_, attribute)), Some((_, change))) => {
            ThrottrCommand::Update { attribute: *attribute, change: *change, value }
        }
        _ => ThrottrCommand::UndefinedUpdate { attribute, change, value },
    }
}

fn byte_of<T: PartialEq>(bytes: &[(u8, T)], meaning: &T) -> u8 {
    bytes.iter().find(|(_, other)| other == meaning).expect("every meaning has a byte").0
}

/// The key of a quota, which consists of a consumer and a resource. Each is 0 to 255 bytes of any value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThrottrKey<'a>(&'a [u8]);

impl<'a> ThrottrKey<'a> {
    /// Returns the sizes and the ids as they are encoded. They differ for different keys: (`ab`, `c`) is not (`a`,
    /// `bc`).
    #[inline]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the id of the consumer.
    #[inline]
    pub fn consumer(self) -> &'a [u8] {
        &self.0[2..self.resource_start()]
    }

    /// Returns the id of the resource.
    #[inline]
    pub fn resource(self) -> &'a [u8] {
        &self.0[self.resource_start()..]
    }

    fn resource_start(self) -> usize {
        2 + usize::from(self.0[0])
    }
}

/// An error for a request type that is not defined. The next request cannot be found after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("request type {found:#04x} does not exist; types are 0x01 to 0x04")]
#[non_exhaustive]
pub struct UnknownType {
    /// The byte that was found.
    pub found: u8,
}

const INSERT: u8 = 1;
const QUERY: u8 = 2;
const UPDATE: u8 = 3;
const PURGE: u8 = 4;

/// Decodes the request at the start of `inbox`, and returns it with its length in bytes. Returns `None` until all of it
/// has arrived.
#[inline]
pub fn decode(inbox: &[u8]) -> Result<Option<(ThrottrRequest<'_>, usize)>, UnknownType> {
    match inbox.first() {
        None => Ok(None),
        Some(&kind @ INSERT..=PURGE) => Ok(decode_known(kind, inbox)),
        Some(&found) => Err(UnknownType { found }),
    }
}

#[inline]
fn decode_known(kind: u8, inbox: &[u8]) -> Option<(ThrottrRequest<'_>, usize)> {
    let (_, rest) = inbox.split_first()?;
    let (id, rest) = rest.split_first_chunk()?;
    let (command, rest) = match kind {
        INSERT => {
            let (quota, rest) = rest.split_first_chunk()?;
            let (unit, rest) = rest.split_first()?;
            let (value, rest) = rest.split_first_chunk()?;
            let lifetime = QuotaTtl { value: u64::from_le_bytes(*value), unit: TtlUnit(*unit) };
            (ThrottrCommand::Insert { quota: u64::from_le_bytes(*quota), lifetime }, rest)
        }
        QUERY => (ThrottrCommand::Query, rest),
        UPDATE => {
            let ([attribute, change], rest) = rest.split_first_chunk()?;
            let (value, rest) = rest.split_first_chunk()?;
            (decode_update(*attribute, *change, u64::from_le_bytes(*value)), rest)
        }
        _ => (ThrottrCommand::Purge, rest),
    };
    let [consumer, resource] = rest.first_chunk()?;
    let key = rest.get(..2 + usize::from(*consumer) + usize::from(*resource))?;
    let len = inbox.len() - rest.len() + key.len();
    Some((ThrottrRequest { id: u32::from_le_bytes(*id), command, key: ThrottrKey(key) }, len))
}

/// An error for an id whose size does not fit into one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an id of {len} bytes is too long; use at most 255")]
#[non_exhaustive]
pub struct IdTooLong {
    /// The length of the id in bytes.
    pub len: usize,
}

impl IdTooLong {
    /// Creates the error for an id of `len` bytes.
    pub const fn new(len: usize) -> Self {
        Self { len }
    }
}

/// Appends a request in the form that [`decode`] reads. Appends nothing if an id is too long.
#[inline]
pub fn encode_request(
    id: u32,
    command: &ThrottrCommand,
    consumer: &[u8],
    resource: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), IdTooLong> {
    let sizes = [id_size(consumer)?, id_size(resource)?];
    let put_head = |kind: u8, out: &mut Vec<u8>| {
        out.push(kind);
        out.extend_from_slice(&id.to_le_bytes());
    };
    match command {
        ThrottrCommand::Insert { quota, lifetime } => {
            put_head(INSERT, out);
            out.extend_from_slice(&quota.to_le_bytes());
            out.push(lifetime.unit.0);
            out.extend_from_slice(&lifetime.value.to_le_bytes());
        }
        ThrottrCommand::Query => put_head(QUERY, out),
        ThrottrCommand::Update { attribute, change, value } => {
            put_head(UPDATE, out);
            out.extend_from_slice(&[byte_of(&ATTRIBUTES, attribute), byte_of(&CHANGES, change)]);
            out.extend_from_slice(&value.to_le_bytes());
        }
        ThrottrCommand::UndefinedUpdate { attribute, change, value } => {
            put_head(UPDATE, out);
            out.extend_from_slice(&[*attribute, *change]);
            out.extend_from_slice(&value.to_le_bytes());
        }
        ThrottrCommand::Purge => put_head(PURGE, out),
    }
    for part in [&sizes, consumer, resource] {
        out.extend_from_slice(part);
    }
    Ok(())
}

fn id_size(id: &[u8]) -> Result<u8, IdTooLong> {
    u8::try_from(id.len()).map_err(|_| IdTooLong { len: id.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttr::FRAME_MAX;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<_> = text.bytes().filter(|byte| *byte != b' ').collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn requests_are_those_of_the_protocol() {
        let seconds = |value| QuotaTtl { value, unit: TtlUnit(2) };
        for (bytes, id, command, consumer, resource) in [
            (
                "01 01000000 0500000000000000 02 0a00000000000000 01 01 63 72",
                1,
                ThrottrCommand::Insert { quota: 5, lifetime: seconds(10) },
                &b"c"[..],
                &b"r"[..],
            ),
            ("02 02000000 01 01 63 72", 2, ThrottrCommand::Query, b"c", b"r"),
            ("04 ffffffff 00 00", u32::MAX, ThrottrCommand::Purge, b"", b""),
            ("02 00000000 02 01 616263", 0, ThrottrCommand::Query, b"ab", b"c"),
            ("02 00000000 01 02 616263", 0, ThrottrCommand::Query, b"a", b"bc"),
            (
                "03 78563412 01 02 0807060504030201 00 01 ff",
                0x1234_5678,
                ThrottrCommand::Update {
                    attribute: QuotaAttribute::Ttl,
                    change: Change::Decrease,
                    value: 0x0102_0304_0506_0708,
                },
                b"",
                b"\xff",
            ),
            (
                "03 00000000 07 ff ffffffffffffffff 00 00",
                0,
                ThrottrCommand::UndefinedUpdate { attribute: 7, change: 255, value: u64::MAX },
                b"",
                b"",
            ),
        ] {
            let frame = hex(bytes);
            let (request, len) = decode(&frame).unwrap().unwrap();
            assert_eq!((request.id, request.command, len), (id, command, frame.len()), "{bytes}");
            assert_eq!((request.key.consumer(), request.key.resource()), (consumer, resource), "{bytes}");
            let mut again = Vec::new();
            encode_request(id, &command, consumer, resource, &mut again).unwrap();
            assert_eq!(again, frame, "{bytes}");
        }
    }

    #[test]
    fn two_keys_never_have_the_same_bytes() {
        let frames = [hex("02 00000000 02 01 616263"), hex("02 00000000 01 02 616263")];
        let [one, other] = frames.each_ref().map(|frame| decode(frame).unwrap().unwrap().0.key);
        assert_ne!(one.bytes(), other.bytes());
    }

    #[test]
    fn an_unknown_type_is_known_by_its_first_byte() {
        for found in (0..=u8::MAX).filter(|kind| !(INSERT..=PURGE).contains(kind)) {
            assert_eq!(decode(&[found]), Err(UnknownType { found }));
            assert_eq!(decode(&[found, 0, 0]), Err(UnknownType { found }));
        }
    }

    #[test]
    fn the_longest_ids_make_the_longest_frame() {
        let (id, mut frame) = ([b'x'; 256], Vec::new());
        let insert = ThrottrCommand::Insert { quota: 0, lifetime: QuotaTtl { value: 0, unit: TtlUnit(0) } };
        assert_eq!(encode_request(0, &insert, &id, b"", &mut frame), Err(IdTooLong { len: 256 }));
        assert_eq!(encode_request(0, &insert, b"", &id, &mut frame), Err(IdTooLong { len: 256 }));
        assert!(frame.is_empty());
        encode_request(0, &insert, &id[1..], &id[1..], &mut frame).unwrap();
        assert_eq!(frame.len(), FRAME_MAX);
        assert_eq!(decode(&frame).unwrap().unwrap().0.key.resource(), &id[1..]);
    }
}

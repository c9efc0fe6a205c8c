//! The requests of both clients, and the replies that are expected to them.

use std::time::Duration;

use tollway_core::algorithm::{Change, QuotaTtl, TtlUnit};
use tollway_wire::throttr::{
    ID_MAX, IdTooLong, QuotaAttribute, ThrottrCommand, ThrottrReply, decode_reply, encode_request,
};

use crate::{InvalidRequest, InvalidThrottrReply};

/// One request that a client sends, alone or in a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaRequest<'a> {
    /// The command, as the protocol has it.
    pub command: ThrottrCommand,
    /// The consumer that the quota belongs to, at most 255 bytes.
    pub consumer: &'a [u8],
    /// The resource that the quota is for, at most 255 bytes.
    pub resource: &'a [u8],
}

impl<'a> QuotaRequest<'a> {
    /// Creates a request that makes a quota. The time is sent in the largest unit that it is a whole number of.
    pub fn insert(
        consumer: &'a (impl AsRef<[u8]> + ?Sized),
        resource: &'a (impl AsRef<[u8]> + ?Sized),
        quota: u64,
        ttl: Duration,
    ) -> Self {
        Self::new(ThrottrCommand::Insert { quota, lifetime: lifetime(ttl) }, consumer, resource)
    }

    /// Creates a request that returns what is left of a quota.
    pub fn query(
        consumer: &'a (impl AsRef<[u8]> + ?Sized),
        resource: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Self {
        Self::new(ThrottrCommand::Query, consumer, resource)
    }

    /// Creates a request that changes a quota. The unit of `value` is described at [`QuotaAttribute`].
    pub fn update(
        consumer: &'a (impl AsRef<[u8]> + ?Sized),
        resource: &'a (impl AsRef<[u8]> + ?Sized),
        attribute: QuotaAttribute,
        change: Change,
        value: u64,
    ) -> Self {
        Self::new(ThrottrCommand::Update { attribute, change, value }, consumer, resource)
    }

    /// Creates a request that deletes a quota.
    pub fn purge(
        consumer: &'a (impl AsRef<[u8]> + ?Sized),
        resource: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Self {
        Self::new(ThrottrCommand::Purge, consumer, resource)
    }

    fn new(
        command: ThrottrCommand,
        consumer: &'a (impl AsRef<[u8]> + ?Sized),
        resource: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Self {
        Self { command, consumer: consumer.as_ref(), resource: resource.as_ref() }
    }

    /// Returns an error if the request cannot be sent.
    pub(super) fn check(&self) -> Result<(), InvalidRequest> {
        match self.consumer.len().max(self.resource.len()) {
            len if len > ID_MAX => Err(IdTooLong::new(len).into()),
            _ => Ok(()),
        }
    }

    /// Appends the request with this id, and returns the reply that is expected to it.
    pub(super) fn encode(&self, id: u32, out: &mut Vec<u8>) -> Result<ExpectedReply, InvalidRequest> {
        encode_request(id, &self.command, self.consumer, self.resource, out)?;
        Ok(ExpectedReply { id, to_query: self.command == ThrottrCommand::Query })
    }
}

/// The answer to an insert, an update or a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum QuotaStatus {
    /// The server did it.
    Done,
    /// The server changed nothing: for an insert a live quota exists, for an update or a purge none does.
    NotDone,
}

impl QuotaStatus {
    /// Returns true if the server did what the request asks for.
    pub const fn is_done(self) -> bool {
        matches!(self, Self::Done)
    }
}

/// A live quota, as a query returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct QuotaInfo {
    /// The number of units that are left.
    pub left: u64,
    /// The time that the quota still lives, in the unit that it was made with.
    pub lifetime: QuotaTtl,
}

const MILLISECONDS: TtlUnit = TtlUnit(1);
const SECONDS: TtlUnit = TtlUnit(2);
const NANOSECONDS: TtlUnit = TtlUnit(0);

impl QuotaInfo {
    /// Returns the time that the quota still lives.
    pub const fn ttl(&self) -> Duration {
        let QuotaTtl { value, unit } = self.lifetime;
        match unit {
            NANOSECONDS => Duration::from_nanos(value),
            MILLISECONDS => Duration::from_millis(value),
            _ => Duration::from_secs(value),
        }
    }
}

/// Converts a time to the largest unit that it is a whole number of. After 584 years nanoseconds overflow; then it is
/// converted to the smallest unit that does not, and cut.
fn lifetime(ttl: Duration) -> QuotaTtl {
    let nanos = u64::try_from(ttl.as_nanos()).ok();
    let millis = u64::try_from(ttl.as_millis()).ok();
    match (nanos, millis) {
        _ if ttl.subsec_nanos() == 0 => QuotaTtl { value: ttl.as_secs(), unit: SECONDS },
        (_, Some(value)) if ttl.subsec_nanos().is_multiple_of(1_000_000) => {
            QuotaTtl { value, unit: MILLISECONDS }
        }
        (Some(value), _) => QuotaTtl { value, unit: NANOSECONDS },
        (None, Some(value)) => QuotaTtl { value, unit: MILLISECONDS },
        (None, None) => QuotaTtl { value: ttl.as_secs(), unit: SECONDS },
    }
}

/// The reply that is expected next on a connection: replies come in the order of the requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedReply {
    pub(super) id: u32,
    /// A reply to a query is longer, and the reply itself does not tell.
    pub(super) to_query: bool,
}

impl ExpectedReply {
    /// Reads the reply at the front of `inbox` and its length, or returns `None` until all of it has arrived.
    pub(super) fn decode(self, inbox: &[u8]) -> Result<Option<(ThrottrReply, usize)>, InvalidThrottrReply> {
        match decode_reply(inbox, self.to_query)? {
            Some((found, _, _)) if found != self.id => {
                Err(InvalidThrottrReply::OutOfOrder { expected: self.id, found })
            }
            reply => Ok(reply.map(|(_, reply, len)| (reply, len))),
        }
    }
}

/// Returns the status of the reply to an insert, an update or a purge.
pub(super) const fn quota_status(reply: ThrottrReply) -> QuotaStatus {
    match reply {
        ThrottrReply::Status(false) => QuotaStatus::NotDone,
        _ => QuotaStatus::Done,
    }
}

/// Returns the quota of the reply to a query.
pub(super) const fn quota_info(reply: ThrottrReply) -> Option<QuotaInfo> {
    match reply {
        ThrottrReply::Quota { left, lifetime } => Some(QuotaInfo { left, lifetime }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tollway_wire::throttr::UnknownStatus;

    use super::*;

    #[test]
    fn a_time_is_sent_in_the_largest_unit_that_it_is_a_whole_number_of() {
        let nanos = Duration::from_nanos;
        for (ttl, value, unit) in [
            (Duration::ZERO, 0, SECONDS),
            (Duration::from_secs(10), 10, SECONDS),
            (Duration::from_millis(1500), 1500, MILLISECONDS),
            (nanos(1_000_001), 1_000_001, NANOSECONDS),
            (Duration::from_secs(u64::MAX), u64::MAX, SECONDS),
            (Duration::from_secs(1 << 40) + nanos(1), (1 << 40) * 1000, MILLISECONDS),
            (Duration::MAX, u64::MAX, SECONDS),
        ] {
            assert_eq!(lifetime(ttl), QuotaTtl { value, unit }, "{ttl:?}");
        }
    }

    #[test]
    fn a_reply_to_another_request_is_invalid() {
        let expected = QuotaRequest::purge("c", "r").encode(7, &mut Vec::new()).unwrap();
        assert_eq!(expected.decode(&[7, 0, 0, 0]), Ok(None));
        assert_eq!(expected.decode(&[7, 0, 0, 0, 1, 9]), Ok(Some((ThrottrReply::Status(true), 5))));
        let out_of_order = InvalidThrottrReply::OutOfOrder { expected: 7, found: 8 };
        assert_eq!(expected.decode(&[8, 0, 0, 0, 1]), Err(out_of_order));
        let status = expected.decode(&[7, 0, 0, 0, 7]);
        assert!(matches!(status, Err(InvalidThrottrReply::Status(UnknownStatus { found: 7, .. }))));
    }
}

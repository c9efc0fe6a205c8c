//! What both clients ask, and what they make of what comes back.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tollway_core::algorithm::{Change, QuotaTtl, TtlUnit};
use tollway_wire::throttr::{
    ID_MAX, IdTooLong, ThrottrCommand, ThrottrReply, UnknownStatus, decode_reply, encode_request,
};

/// One request of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// What is asked.
    pub command: ThrottrCommand,
    /// Of whom, at most 255 bytes.
    pub consumer: &'a [u8],
    /// For what, at most 255 bytes.
    pub resource: &'a [u8],
}

impl<'a> Request<'a> {
    /// Makes a quota. The time is told in the largest unit that it is a whole number of.
    pub fn insert(
        consumer: &'a (impl AsRef<[u8]> + ?Sized),
        resource: &'a (impl AsRef<[u8]> + ?Sized),
        quota: u64,
        ttl: Duration,
    ) -> Self {
        Self::new(ThrottrCommand::Insert { quota, lifetime: lifetime(ttl) }, consumer, resource)
    }

    /// What is left of a quota.
    pub fn query(
        consumer: &'a (impl AsRef<[u8]> + ?Sized),
        resource: &'a (impl AsRef<[u8]> + ?Sized),
    ) -> Self {
        Self::new(ThrottrCommand::Query, consumer, resource)
    }

    /// Changes a quota. A time is in the unit that the quota was made with.
    pub fn update(
        consumer: &'a (impl AsRef<[u8]> + ?Sized),
        resource: &'a (impl AsRef<[u8]> + ?Sized),
        attribute: Attribute,
        change: Change,
        value: u64,
    ) -> Self {
        let change = match change {
            Change::Patch => ThrottrCommand::CHANGE_PATCH,
            Change::Increase => ThrottrCommand::CHANGE_INCREASE,
            Change::Decrease => ThrottrCommand::CHANGE_DECREASE,
        };
        Self::new(ThrottrCommand::Update { attribute: attribute.byte(), change, value }, consumer, resource)
    }

    /// Forgets a quota.
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

    /// Can it be sent at all?
    pub(super) fn fits(&self) -> Result<(), CallError> {
        match self.consumer.len().max(self.resource.len()) {
            len if len > ID_MAX => Err(IdTooLong { len }.into()),
            _ => Ok(()),
        }
    }

    /// Appends it as request number `id`, and says what reply is due.
    pub(super) fn put(&self, id: u32, out: &mut Vec<u8>) -> Result<Due, CallError> {
        encode_request(id, &self.command, self.consumer, self.resource, out)?;
        Ok(Due { id, to_query: self.command == ThrottrCommand::Query })
    }
}

/// What an update changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// How many are left.
    Quota,
    /// How long it lives.
    Ttl,
}

impl Attribute {
    const fn byte(self) -> u8 {
        match self {
            Self::Quota => ThrottrCommand::ATTRIBUTE_QUOTA,
            Self::Ttl => ThrottrCommand::ATTRIBUTE_TTL,
        }
    }
}

/// What there is of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// How many are left.
    pub left: u64,
    /// For how long, in the unit it was made with.
    pub lifetime: QuotaTtl,
}

const MILLISECONDS: TtlUnit = TtlUnit(1);
const SECONDS: TtlUnit = TtlUnit(2);
const NANOSECONDS: TtlUnit = TtlUnit(0);

impl Quota {
    /// For how long.
    pub const fn ttl(&self) -> Duration {
        let QuotaTtl { value, unit } = self.lifetime;
        match unit {
            NANOSECONDS => Duration::from_nanos(value),
            MILLISECONDS => Duration::from_millis(value),
            _ => Duration::from_secs(value),
        }
    }
}

/// The time in the largest unit that it is a whole number of. Where the numbers end, after 584 years of nanoseconds, it is
/// in the smallest unit that can still say it.
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

/// Why there is no reply. What was asked may have been done or not, unless it says otherwise.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// An id that does not fit into a request. Nothing was sent.
    #[error(transparent)]
    IdTooLong(#[from] IdTooLong),
    /// Nobody took the connection. Nothing was sent.
    #[error("{address} cannot be reached")]
    Unreachable {
        /// Where the server should be.
        address: String,
        /// What happened.
        source: io::Error,
    },
    /// No reply came in time.
    #[error("no reply from {address} within {waited:?}")]
    TimedOut {
        /// Who was asked.
        address: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The connection ended before the reply came.
    #[error("{address} hung up before it replied")]
    HungUp {
        /// Who was asked.
        address: String,
        /// What happened, if it was not in good order.
        source: Option<io::Error>,
    },
    /// What came is no reply to this.
    #[error("{address} does not speak Throttr")]
    Misunderstood {
        /// Who was asked.
        address: String,
        /// What is wrong with it.
        source: Misunderstanding,
    },
}

/// What is wrong with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misunderstanding {
    /// Neither yes nor no.
    #[error(transparent)]
    Status(#[from] UnknownStatus),
    /// Of another request than the one whose turn it is.
    #[error("a reply to request {found} came where that to {expected} was due")]
    OutOfOrder {
        /// Whose turn it is.
        expected: u32,
        /// The request it answers.
        found: u32,
    },
    /// Nothing was asked.
    #[error("a reply came to no request")]
    Unasked,
}

/// What waits for a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) id: u32,
    pub(super) to_query: bool,
}

impl Due {
    /// The reply at the front of `inbox` and its length, or `None` until it has all arrived.
    pub(super) fn take(self, inbox: &[u8]) -> Result<Option<(ThrottrReply, usize)>, Misunderstanding> {
        match decode_reply(inbox, self.to_query)? {
            Some((found, _, _)) if found != self.id => {
                Err(Misunderstanding::OutOfOrder { expected: self.id, found })
            }
            reply => Ok(reply.map(|(_, reply, len)| (reply, len))),
        }
    }
}

/// Was it done?
pub(super) const fn done(reply: ThrottrReply) -> bool {
    match reply {
        ThrottrReply::Status(done) => done,
        ThrottrReply::Quota { .. } => true,
    }
}

/// What a query found.
pub(super) const fn found(reply: ThrottrReply) -> Option<Quota> {
    match reply {
        ThrottrReply::Status(_) => None,
        ThrottrReply::Quota { left, lifetime } => Some(Quota { left, lifetime }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_the_largest_unit_that_says_it() {
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
    fn a_reply_to_another_request_is_none() {
        let due = Request::purge("c", "r").put(7, &mut Vec::new()).unwrap();
        assert_eq!(due.take(&[7, 0, 0, 0]), Ok(None));
        assert_eq!(due.take(&[7, 0, 0, 0, 1, 9]), Ok(Some((ThrottrReply::Status(true), 5))));
        assert_eq!(due.take(&[8, 0, 0, 0, 1]), Err(Misunderstanding::OutOfOrder { expected: 7, found: 8 }));
        assert_eq!(due.take(&[7, 0, 0, 0, 7]), Err(Misunderstanding::Status(UnknownStatus { found: 7 })));
    }
}

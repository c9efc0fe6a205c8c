//! Defines the counters of the Smockron gate.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tollway_wire::smockron::AccountingStatus;

use super::{Counter, Waits};

/// Counts the messages of the Smockron gate.
#[derive(Debug, Default)]
pub(crate) struct SmockronCounters {
    pub(super) domains: Mutex<BTreeMap<Box<str>, Arc<DomainCounters>>>,
    /// The messages that were no accounting message, by [`Malformed`].
    pub(crate) malformed: [Counter; Malformed::ALL.len()],
    /// The accounting messages that were dropped because the master was overloaded.
    pub(crate) overload: Counter,
    pub(crate) published: Counter,
    /// The messages that were dropped because the queue of a subscriber was full.
    pub(crate) lost: Counter,
    /// The delays that were not kept, for want of room.
    pub(crate) delays_forgotten: Counter,
    /// The subscriptions that were refused: too many, or too long.
    pub(crate) topics_refused: Counter,
    /// The connections that were closed because their bytes were no ZeroMQ that the gate supports.
    pub(crate) broken: Counter,
    /// The requests that StatsD was not told of.
    pub(crate) statsd_lost: Counter,
    pub(crate) delays: Waits,
}

/// Counts the reports of one domain on one worker.
#[derive(Debug, Default)]
pub(crate) struct DomainCounters {
    pub(super) accepted: Counter,
    pub(super) delayed: Counter,
    pub(super) rejected: Counter,
}

/// The reason why a message is no accounting message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// The message has too few frames.
    Frames,
    /// The domain is not configured.
    Domain,
    /// The status is none of the three.
    Status,
    /// A time is not a number.
    Time,
}

impl Malformed {
    /// All reasons, each at the index that it has as a number.
    pub(super) const ALL: [Self; 4] = [Self::Frames, Self::Domain, Self::Status, Self::Time];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::Domain => "domain",
            Self::Status => "status",
            Self::Time => "time",
        }
    }
}

impl SmockronCounters {
    /// Returns the counters of the domain of this name, the same before and after a reload.
    pub(crate) fn domain(&self, name: &str) -> Arc<DomainCounters> {
        let mut domains = self.domains.lock().expect("nobody panics while counting");
        Arc::clone(domains.entry(name.into()).or_default())
    }

    /// Returns the number of requests that were reported.
    pub(super) fn requests(&self) -> u64 {
        let domains = self.domains.lock().expect("nobody panics while counting");
        let requests = |domain: &Arc<DomainCounters>| {
            domain.accepted.get() + domain.delayed.get() + domain.rejected.get()
        };
        domains.values().map(requests).sum()
    }
}

impl DomainCounters {
    pub(crate) fn requested(&self, status: AccountingStatus) {
        match status {
            AccountingStatus::Accepted { .. } => &self.accepted,
            AccountingStatus::Delayed { .. } => &self.delayed,
            AccountingStatus::Rejected { .. } => &self.rejected,
        }
        .one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_place() {
        for (index, reason) in Malformed::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}

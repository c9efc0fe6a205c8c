//! What the Smockron gate counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tollway_wire::smockron::AccountingStatus;

use super::{Counter, Waits};

/// The counters of the Smockron gate.
#[derive(Debug, Default)]
pub(crate) struct SmockronCounters {
    pub(super) domains: Mutex<BTreeMap<Box<str>, Arc<DomainCounters>>>,
    /// Messages that were no accounting, by [`Malformed`].
    pub(crate) malformed: [Counter; Malformed::ALL.len()],
    /// Accounting for which there was no time.
    pub(crate) overload: Counter,
    pub(crate) published: Counter,
    /// Messages that a gatekeeper had no room for.
    pub(crate) lost: Counter,
    /// Delays that there was no room to remember.
    pub(crate) delays_forgotten: Counter,
    /// Subscriptions that were too many, or too long.
    pub(crate) topics_refused: Counter,
    /// Connections closed because what came was no ZeroMQ that is spoken here.
    pub(crate) broken: Counter,
    /// Requests that were not told to StatsD.
    pub(crate) statsd_lost: Counter,
    pub(crate) delays: Waits,
}

/// The counters of one domain on one worker.
#[derive(Debug, Default)]
pub(crate) struct DomainCounters {
    pub(super) accepted: Counter,
    pub(super) delayed: Counter,
    pub(super) rejected: Counter,
}

/// Why a message is no accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Too few of them.
    Frames,
    /// One that nobody configured.
    Domain,
    /// None of the three.
    Status,
    /// No number where one is due.
    Time,
}

impl Malformed {
    /// Each at its place.
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
    /// The counters of the domain of this name, the same before and after a reload.
    pub(crate) fn domain(&self, name: &str) -> Arc<DomainCounters> {
        let mut domains = self.domains.lock().expect("nobody panics while counting");
        Arc::clone(domains.entry(name.into()).or_default())
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

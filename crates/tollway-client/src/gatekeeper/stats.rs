//! The numbers that a gatekeeper counts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The numbers of a gatekeeper since its start, and its state now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct GatekeeperStats {
    /// The number of requests that passed at once.
    pub accepted: u64,
    /// The number of requests that had to wait and were reported as delayed.
    pub delayed: u64,
    /// The number of requests that were rejected.
    pub rejected: u64,
    /// The number of accounting messages that were dropped, because the master was unreachable or too slow.
    pub dropped_accounting: u64,
    /// The number of requests that wait now.
    pub waiting: usize,
    /// The number of delays that are remembered now.
    pub known_delays: usize,
    /// True if both connections to the master are open. Without them no new delay arrives, and requests pass.
    pub connected: bool,
}

/// The counters from which [`GatekeeperStats`] are read.
#[derive(Debug, Default)]
pub(super) struct GatekeeperCounters {
    pub(super) accepted: AtomicU64,
    pub(super) delayed: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) dropped: AtomicU64,
    /// True while a master is subscribed to accounting.
    pub(super) accounting_connected: AtomicBool,
    /// True while the subscription to delays is open.
    pub(super) control_connected: AtomicBool,
}

impl GatekeeperCounters {
    pub(super) fn read(&self, waiting: usize, known_delays: usize) -> GatekeeperStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        GatekeeperStats {
            accepted: count(&self.accepted),
            delayed: count(&self.delayed),
            rejected: count(&self.rejected),
            dropped_accounting: count(&self.dropped),
            waiting,
            known_delays,
            connected: is(&self.accounting_connected) && is(&self.control_connected),
        }
    }
}

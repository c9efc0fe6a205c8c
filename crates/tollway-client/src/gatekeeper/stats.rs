//! What happened, in numbers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a gatekeeper did since it began, and how it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// How many requests passed at once.
    pub accepted: u64,
    /// How many were given a place to wait for.
    pub delayed: u64,
    /// How many were turned away.
    pub rejected: u64,
    /// How many accounting messages were dropped: nobody was there, or too slow.
    pub dropped_accounting: u64,
    /// How many requests wait now.
    pub waiting: usize,
    /// How many delays are remembered now.
    pub known: usize,
    /// Does a master listen, and can it be heard? What is not heard delays nobody.
    pub connected: bool,
}

/// The same, while it is being counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) accepted: AtomicU64,
    pub(super) delayed: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) dropped: AtomicU64,
    /// A master listens to accounting.
    pub(super) heard: AtomicBool,
    /// A master can be heard.
    pub(super) hears: AtomicBool,
}

impl Tally {
    pub(super) fn read(&self, waiting: usize, known: usize) -> Counts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        Counts {
            accepted: count(&self.accepted),
            delayed: count(&self.delayed),
            rejected: count(&self.rejected),
            dropped_accounting: count(&self.dropped),
            waiting,
            known,
            connected: is(&self.heard) && is(&self.hears),
        }
    }
}

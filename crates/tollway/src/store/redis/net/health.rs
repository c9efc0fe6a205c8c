//! How the nodes are, for whoever watches.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::store::redis::Address;
use crate::store::{Health, NodeHealth};

/// What the I/O thread writes on, and everybody reads.
#[derive(Debug, Default)]
pub(super) struct Board {
    /// How many calls wait for their reply.
    pub(super) waiting: AtomicUsize,
    pub(super) calls: Count,
    pub(super) timeouts: Count,
    pub(super) refusals: Count,
    pub(super) redirects: Count,
    pub(super) reconnects: Count,
    pub(super) breaker_openings: Count,
    /// Which connection to the only node there is, is open; 0 is none, or many nodes.
    pub(super) life: AtomicU64,
    only_node: Mutex<Option<Address>>,
    nodes: Mutex<Vec<NodeHealth>>,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Board {
    /// Says where the only node is, and which connection to it is open.
    pub(super) fn show_only_node(&self, address: Address, life: u64) {
        *self.only_node.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
        self.life.store(life, Ordering::Release);
    }

    /// Where the only node is, if there is only one.
    pub(super) fn only_node(&self) -> Option<Address> {
        self.only_node.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows the nodes as they are now.
    pub(super) fn show(&self, nodes: Vec<NodeHealth>) {
        // Whoever panicked while it held this did so between two whole lists.
        *self.nodes.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    pub(super) fn read(&self) -> Health {
        Health {
            nodes: self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            calls: self.calls.read(),
            timeouts: self.timeouts.read(),
            refusals: self.refusals.read(),
            redirects: self.redirects.read(),
            reconnects: self.reconnects.read(),
            breaker_openings: self.breaker_openings.read(),
        }
    }
}

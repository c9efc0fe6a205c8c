//! The state of the nodes and the counters of calls, which the driver writes and everybody reads.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::WAITING_MAX;
use crate::store::redis::Address;
use crate::store::{Health, NodeHealth};

/// The health of a store, shared by its driver and its callers.
#[derive(Debug, Default)]
pub(super) struct SharedHealth {
    waiting: AtomicUsize,
    pub(super) calls: Count,
    pub(super) timeouts: Count,
    pub(super) shed: Count,
    pub(super) refusals: Count,
    pub(super) redirects: Count,
    pub(super) reconnects: Count,
    pub(super) breaker_openings: Count,
    pub(super) rejected_connections: Count,
    /// The generation of the open connection to the only node; 0 if none is open, or if there are several nodes.
    pub(super) generation: AtomicU64,
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

/// Some calls that wait for their replies. They count as waiting until this is dropped, whatever became of them.
#[derive(Debug)]
pub(super) struct WaitingCalls {
    health: Arc<SharedHealth>,
    count: usize,
}

impl WaitingCalls {
    /// Counts calls as waiting. If too many wait already, returns how many do.
    pub(super) fn begin(health: &Arc<SharedHealth>, count: usize) -> Result<Self, usize> {
        let waiting = health.waiting.fetch_add(count, Ordering::Relaxed);
        let calls = Self { health: Arc::clone(health), count };
        if waiting < WAITING_MAX { Ok(calls) } else { Err(waiting) }
    }
}

impl Drop for WaitingCalls {
    fn drop(&mut self) {
        self.health.waiting.fetch_sub(self.count, Ordering::Relaxed);
    }
}

impl SharedHealth {
    /// Returns the number of calls that wait for their reply.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Publishes the address of the only node, and the generation of its open connection.
    pub(super) fn set_only_node(&self, address: Address, generation: u64) {
        *self.only_node.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
        self.generation.store(generation, Ordering::Release);
    }

    /// Returns the address of the only node, if there is only one.
    pub(super) fn only_node(&self) -> Option<Address> {
        self.only_node.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Publishes the state of the nodes.
    pub(super) fn set_nodes(&self, nodes: Vec<NodeHealth>) {
        // A panic while the lock was held left a complete list.
        *self.nodes.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    pub(super) fn read(&self) -> Health {
        Health {
            nodes: self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            calls: self.calls.read(),
            timeouts: self.timeouts.read(),
            shed: self.shed.read(),
            refusals: self.refusals.read(),
            redirects: self.redirects.read(),
            reconnects: self.reconnects.read(),
            breaker_openings: self.breaker_openings.read(),
            rejected_connections: self.rejected_connections.read(),
        }
    }
}

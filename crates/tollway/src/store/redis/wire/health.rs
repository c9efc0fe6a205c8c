//! How the nodes are, for whoever watches.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::store::redis::Address;

/// How a store is: its nodes, and what has been counted since it was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Health {
    /// Every primary that is known, or the one that is looked for.
    pub nodes: Vec<NodeHealth>,
    /// How many commands were asked for.
    pub calls: u64,
    /// How many of them got no answer in time.
    pub timeouts: u64,
    /// How many a node refused.
    pub refusals: u64,
    /// How many were sent on to another node, because slots had moved.
    pub redirects: u64,
    /// How many connections were opened anew after the first.
    pub reconnects: u64,
    /// How often a node was silent for so long that it was left alone.
    pub breaker_openings: u64,
}

/// How one node is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeHealth {
    /// Where it is.
    pub address: String,
    /// Whether it can be asked.
    pub state: NodeState,
}

/// Whether a node can be asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NodeState {
    /// A connection is on its way; what is asked waits for it.
    Opening,
    /// It is there.
    Up,
    /// It is not, and what is asked of it fails at once. It is probed.
    Away {
        /// Since when.
        since: Instant,
        /// What was seen last.
        reason: String,
    },
}

impl Health {
    /// Can every node be asked?
    pub fn is_well(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| matches!(node.state, NodeState::Up))
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening => f.write_str("opening"),
            Self::Up => f.write_str("up"),
            Self::Away { since, reason } => write!(f, "away for {:.1?}: {reason}", since.elapsed()),
        }
    }
}

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

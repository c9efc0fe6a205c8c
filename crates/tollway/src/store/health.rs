//! The health of a shared store: its nodes, and counters of its calls.

use std::fmt;
use std::time::Instant;

/// The state of a store's nodes, and what it has counted since it was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
#[must_use]
pub struct Health {
    /// Every primary that is known, or the one that is looked for.
    pub nodes: Vec<NodeHealth>,
    /// The number of calls.
    pub calls: u64,
    /// The number of calls that got no answer in time.
    pub timeouts: u64,
    /// The number of calls that were shed because too many were pending, or because they waited too long to be sent.
    pub shed: u64,
    /// The number of calls that a node refused.
    pub refusals: u64,
    /// The number of calls that were redirected to another node, because slots had moved.
    pub redirects: u64,
    /// The number of connections that were opened after the first.
    pub reconnects: u64,
    /// The number of times that a node's circuit breaker opened.
    pub breaker_openings: u64,
    /// The number of connections that failed because the password, the user or the certificate was not accepted.
    pub rejected_connections: u64,
}

/// The state that one node is in.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use]
pub struct NodeHealth {
    /// The node's address.
    pub address: String,
    /// The state of the connection to it.
    pub state: NodeState,
}

/// The state that the connection to a node is in.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use]
pub enum NodeState {
    /// A connection is being opened; calls wait for it.
    Opening,
    /// A connection is open.
    Up,
    /// The node is unreachable: its circuit breaker is open, calls fail at once, and it is probed.
    Unreachable {
        /// The time when the circuit breaker opened.
        since: Instant,
        /// The last failure.
        reason: String,
    },
}

impl Health {
    /// Returns true if calls can be sent to every node.
    pub fn is_well(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(|node| matches!(node.state, NodeState::Up))
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opening => f.write_str("opening"),
            Self::Up => f.write_str("up"),
            Self::Unreachable { since, reason } => {
                write!(f, "unreachable for {:.1?}: {reason}", since.elapsed())
            }
        }
    }
}

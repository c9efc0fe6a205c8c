//! One node: whether it can be asked, and what waits for it.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tollway_core::Backoff;

use super::parcel::{Errand, PARCEL_CALLS};
use super::patience::Patience;
use crate::cause::Cause;
use crate::store::redis::{Address, StoreError};
use crate::store::{NodeHealth, NodeState};

/// The place of a node among all.
pub(super) type NodeId = usize;

/// How many writes may be on their way to one node. What comes later waits here, where it can be put together into one write,
/// and where it is forgotten unsent if its time runs out.
const PARCELS_MAX: usize = 8;

/// A connection that has been idle for so long is asked for a sign of life, before somebody needs it.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// The first pause after a node could not be reached.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The longest pause: a node that is back is found well within two seconds.
const PAUSE_MAX: Duration = Duration::from_millis(800);

/// How often the log is told that a node refuses what is asked. It may be every request, until somebody gives it memory or us
/// a right.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: Address,
    pub(super) state: State,
    /// What waits to be sent.
    pub(super) queue: Vec<Errand>,
    pub(super) backoff: Backoff,
    /// Counts connections, so that news of an earlier one is known to be old.
    pub(super) life: u64,
    /// What opens the next connection.
    pub(super) dialing: Option<AbortHandle>,
    /// It has no slots any more: it is left when it owes nothing.
    pub(super) retired: bool,
    /// When the log was last told that it refuses.
    pub(super) complained: Option<Instant>,
}

#[derive(Debug)]
pub(super) enum State {
    /// Calls wait for the connection.
    Opening,
    /// Calls are sent.
    Up(Session),
    /// Calls fail.
    Away { since: Instant, reason: String },
}

/// An open connection. It closes when this is dropped.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: MultiplexedConnection,
    pub(super) patience: Patience,
    pub(super) driver: AbortHandle,
    pub(super) opened: Instant,
    pub(super) used: Instant,
}

impl Node {
    pub(super) fn new(address: Address) -> Self {
        Self {
            address,
            state: State::Opening,
            queue: Vec::new(),
            backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX),
            life: 0,
            dialing: None,
            retired: false,
            complained: None,
        }
    }

    /// The connection, if calls can be sent now.
    pub(super) fn session(&mut self) -> Option<&mut Session> {
        match &mut self.state {
            State::Up(session) => Some(session),
            State::Opening | State::Away { .. } => None,
        }
    }

    /// Is there something to send, and a connection with room for it?
    pub(super) fn is_loaded(&self) -> bool {
        let State::Up(session) = &self.state else { return false };
        !self.queue.is_empty() && session.patience.owed() < PARCELS_MAX
    }

    /// Takes the next errands to send, if a connection has room for them.
    pub(super) fn load(&mut self) -> Option<Vec<Errand>> {
        if !self.is_loaded() {
            return None;
        }
        let rest = self.queue.split_off(self.queue.len().min(PARCEL_CALLS));
        Some(std::mem::replace(&mut self.queue, rest))
    }

    /// When it has to be looked at again.
    pub(super) fn alarm(&self) -> Option<Instant> {
        let State::Up(session) = &self.state else { return None };
        session.patience.runs_out().or(Some(session.used + IDLE_MAX))
    }

    pub(super) fn away(&self) -> StoreError {
        StoreError::CircuitOpen { address: self.address.to_string() }
    }

    pub(super) fn unreachable(&self, source: Cause) -> StoreError {
        StoreError::Unreachable { address: self.address.to_string(), source }
    }

    /// It refuses something. Is that to be told?
    pub(super) fn complain(&mut self, now: Instant) -> bool {
        let told = self.complained.is_some_and(|last| now - last < COMPLAIN_EVERY);
        if !told {
            self.complained = Some(now);
        }
        !told
    }

    pub(super) fn refused(&self, reason: String) -> StoreError {
        StoreError::Refused { address: self.address.to_string(), reason }
    }

    pub(super) fn health(&self) -> NodeHealth {
        let state = match &self.state {
            State::Opening => NodeState::Opening,
            State::Up(_) => NodeState::Up,
            State::Away { since, reason } => {
                NodeState::Unreachable { since: since.into_std(), reason: reason.clone() }
            }
        };
        NodeHealth { address: self.address.to_string(), state }
    }
}

impl Session {
    /// Notes that something is sent now.
    pub(super) fn sent(&mut self, now: Instant) {
        self.patience.sent(now);
        self.used = now;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_once_a_minute() {
        let mut node = Node::new(Address { host: "h".to_owned(), port: 1 });
        let began = Instant::now();
        let told =
            [0, 1, 59, 60, 61, 119, 120].map(|second| node.complain(began + Duration::from_secs(second)));
        assert_eq!(told, [true, false, false, true, false, false, true]);
    }
}

//! A Cluster: which node has which slot, and when the slot map is read again.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::jitter::jittered;
use super::node::NodeId;
use super::pending::PendingCall;
use super::slots::Slots;
use crate::cause::Cause;
use crate::store::redis::{Address, StoreError};
use crate::store::{NodeHealth, NodeState};

/// The pause before the slot map is read after a sign that slots have moved. Many clients see the same sign at once.
const REFRESH_SOON: Duration = Duration::from_millis(100);

/// The pause between two reads while a primary is unreachable: a replica takes over without telling anybody.
const REFRESH_FAILOVER: Duration = Duration::from_millis(100);

/// The pause between two reads if no replica took over within [`FAILOVER_MAX`].
const REFRESH_ABANDONED: Duration = Duration::from_secs(1);

/// The longest time that a failover is expected to take.
const FAILOVER_MAX: Duration = Duration::from_secs(30);

/// The slot map, as far as it is known.
#[derive(Debug)]
pub(super) struct Cluster {
    seeds: Vec<Address>,
    slots: Slots,
    map: MapState,
    refresh: Refresh,
    /// The calls that wait for the first slot map.
    parked: Vec<PendingCall>,
}

#[derive(Debug)]
enum MapState {
    /// No node has answered yet: calls wait.
    NotYet,
    Known,
    /// No node answered the first time: calls fail.
    Unreachable {
        since: Instant,
        reason: String,
    },
}

#[derive(Debug)]
enum Refresh {
    Idle,
    Due(Instant),
    Running,
    /// The map is being read, and slots may have moved since that began.
    RunningAndDue,
}

/// The place where the calls for a slot go.
#[derive(Debug)]
pub(super) enum Place {
    Node(NodeId),
    /// The slot map is not known yet.
    Unknown,
    Nowhere(StoreError),
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Address>, now: Instant) -> Self {
        let refresh = Refresh::Due(now);
        Self { seeds, slots: Slots::empty(), map: MapState::NotYet, refresh, parked: Vec::new() }
    }

    pub(super) fn seeds(&self) -> &[Address] {
        &self.seeds
    }

    /// Returns the place of the calls for a slot.
    pub(super) fn place(&self, slot: u16) -> Place {
        match (self.slots.owner(slot), &self.map) {
            (Some(node), _) => Place::Node(node),
            (None, MapState::NotYet) => Place::Unknown,
            (None, MapState::Unreachable { .. }) => {
                Place::Nowhere(StoreError::CircuitOpen { address: self.to_string() })
            }
            (None, MapState::Known) => Place::Nowhere(StoreError::Refused {
                address: self.to_string(),
                reason: format!("no node has slot {slot}"),
            }),
        }
    }

    /// Returns the nodes that have slots, in the order of their first slots.
    pub(super) fn primaries(&self) -> Vec<NodeId> {
        self.slots.owners()
    }

    /// Notes that one slot has moved.
    pub(super) fn moved(&mut self, slot: u16, to: NodeId, now: Instant) {
        self.slots.assign(slot..=slot, to);
        self.refresh_soon(now);
    }

    /// Keeps a call until the slot map is known.
    pub(super) fn park(&mut self, call: PendingCall) {
        self.parked.push(call);
    }

    /// Returns the parked calls that are due.
    pub(super) fn give_up(&mut self, now: Instant) -> Vec<PendingCall> {
        self.parked.extract_if(.., |call| call.due() <= now).collect()
    }

    /// Returns the time when a parked call is due, or the slot map has to be read.
    pub(super) fn alarm(&self) -> Option<Instant> {
        let refresh = match self.refresh {
            Refresh::Due(due) => Some(due),
            Refresh::Idle | Refresh::Running | Refresh::RunningAndDue => None,
        };
        self.parked.iter().map(PendingCall::due).chain(refresh).min()
    }

    /// Plans to read the slot map soon, after a sign that slots have moved.
    pub(super) fn refresh_soon(&mut self, now: Instant) {
        self.refresh_by(now + jittered(REFRESH_SOON));
    }

    fn refresh_by(&mut self, due: Instant) {
        self.refresh = match self.refresh {
            Refresh::Idle => Refresh::Due(due),
            Refresh::Due(sooner) => Refresh::Due(due.min(sooner)),
            Refresh::Running | Refresh::RunningAndDue => Refresh::RunningAndDue,
        };
    }

    /// Returns true if the slot map has to be read now. The caller reads it.
    pub(super) fn begin_refresh(&mut self, now: Instant) -> bool {
        let begins = matches!(self.refresh, Refresh::Due(due) if due <= now);
        if begins {
            self.refresh = Refresh::Running;
        }
        begins
    }

    /// Takes a new slot map, and returns the calls that waited for the first.
    pub(super) fn set_slots(&mut self, slots: Slots, now: Instant) -> Vec<PendingCall> {
        self.slots = slots;
        if let MapState::Unreachable { since, .. } = std::mem::replace(&mut self.map, MapState::Known) {
            tracing::info!(after = ?now - since, "redis cluster {self} is reachable again; circuit closed");
        }
        std::mem::take(&mut self.parked)
    }

    /// Notes that no node sent a slot map. Returns the calls that waited for the first, and their error.
    pub(super) fn set_unreachable(
        &mut self,
        source: Cause,
        misconfigured: bool,
        now: Instant,
    ) -> (Vec<PendingCall>, StoreError) {
        tracing::debug!(reason = %source, "redis cluster {self}: no node sent the slot map");
        if let MapState::NotYet = self.map {
            if misconfigured {
                tracing::error!(reason = %source, "redis cluster {self} refuses the connection; correct the store's settings");
            } else {
                tracing::warn!(reason = %source, "redis cluster {self} is unreachable; circuit open, probing");
            }
            self.map = MapState::Unreachable { since: now, reason: source.to_string() };
        }
        let error = StoreError::Unreachable { address: self.to_string(), source };
        (std::mem::take(&mut self.parked), error)
    }

    /// Ends a read of the slot map, and plans the next one. `unreachable_since` is the latest time when a primary
    /// became unreachable.
    pub(super) fn end_refresh(&mut self, unreachable_since: Option<Instant>, now: Instant) {
        let again = matches!(std::mem::replace(&mut self.refresh, Refresh::Idle), Refresh::RunningAndDue);
        let all = match self.map {
            MapState::Unreachable { since, .. } => Some(since),
            MapState::NotYet | MapState::Known => None,
        };
        if let Some(since) = unreachable_since.max(all) {
            let abandoned = now - since > FAILOVER_MAX;
            self.refresh_by(now + jittered(if abandoned { REFRESH_ABANDONED } else { REFRESH_FAILOVER }));
        } else if again {
            self.refresh_soon(now);
        }
    }

    /// Returns the state of the Cluster while no node is known.
    pub(super) fn health(&self) -> NodeHealth {
        let state = match &self.map {
            MapState::Unreachable { since, reason } => {
                NodeState::Unreachable { since: since.into_std(), reason: reason.clone() }
            }
            MapState::NotYet | MapState::Known => NodeState::Opening,
        };
        NodeHealth { address: self.to_string(), state }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds: Vec<_> = self.seeds.iter().map(ToString::to_string).collect();
        f.write_str(&seeds.join(","))
    }
}

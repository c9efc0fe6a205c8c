//! A Cluster: who has which slots, and how that is found out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, timeout};
use tollway_core::ErrorChain;

use super::chance::{jittered, random};
use super::dial::{DialError, Dialer};
use super::node::{NodeId, State};
use super::parcel::Errand;
use super::slots::{self, Share, Slots};
use super::switchboard::{Event, Layout, Switchboard};
use crate::cause::Cause;
use crate::store::redis::{Address, StoreError};
use crate::store::{NodeHealth, NodeState};

/// How soon slots are asked for after a sign that they have moved. Many see the same sign at the same moment.
const REFRESH_SOON: Duration = Duration::from_millis(100);

/// How often, while a node that has slots is away: a replica takes over at some moment, and nobody tells us.
const REFRESH_AWAY: Duration = Duration::from_millis(100);

/// And how often when none has done so for some time.
const REFRESH_FORSAKEN: Duration = Duration::from_secs(1);

/// How long it may take until one does.
const FAILOVER_MAX: Duration = Duration::from_secs(30);

/// How long one node may take to answer.
const ANSWER_MAX: Duration = Duration::from_millis(250);

/// The slots, as far as they are known.
#[derive(Debug)]
pub(super) struct Cluster {
    seeds: Vec<Address>,
    pub(super) slots: Slots,
    /// Before anybody has answered, calls wait; when nobody does, they fail.
    known: Known,
    refresh: Refresh,
    /// What waits for the first answer.
    pub(super) homeless: Vec<Errand>,
}

#[derive(Debug)]
enum Known {
    NotYet,
    Yes,
    Lost { since: Instant, reason: String },
}

#[derive(Debug)]
enum Refresh {
    Idle,
    Due(Instant),
    Running,
    /// Running, and something has happened since it began.
    RunningAndDue,
}

/// Where the calls for a slot go.
pub(super) enum Place {
    Node(NodeId),
    /// It will be known in a moment.
    Unknown,
    Nobody(StoreError),
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Address>) -> Self {
        let slots = Slots::nobodys();
        Self { seeds, slots, known: Known::NotYet, refresh: Refresh::Idle, homeless: Vec::new() }
    }

    /// Where the calls for a slot go.
    pub(super) fn place(&self, slot: u16) -> Place {
        match (self.slots.owner(slot), &self.known) {
            (Some(node), _) => Place::Node(node),
            (None, Known::NotYet) => Place::Unknown,
            (None, Known::Lost { .. }) => {
                Place::Nobody(StoreError::CircuitOpen { address: self.to_string() })
            }
            (None, Known::Yes) => Place::Nobody(StoreError::Refused {
                address: self.to_string(),
                reason: format!("no node has slot {slot}"),
            }),
        }
    }

    /// Everybody who has slots, in their order; nothing before it is known.
    pub(super) fn primaries(&self) -> Vec<NodeId> {
        self.slots.owners()
    }

    pub(super) fn alarm(&self) -> Option<Instant> {
        match self.refresh {
            Refresh::Due(due) => Some(due),
            Refresh::Idle | Refresh::Running | Refresh::RunningAndDue => None,
        }
    }

    /// How it is while no node is known.
    pub(super) fn health(&self) -> NodeHealth {
        let state = match &self.known {
            Known::Lost { since, reason } => {
                NodeState::Unreachable { since: since.into_std(), reason: reason.clone() }
            }
            Known::NotYet | Known::Yes => NodeState::Opening,
        };
        NodeHealth { address: self.to_string(), state }
    }

    /// Asks for the slots within a time, unless that is to happen sooner anyway.
    fn refresh_by(&mut self, due: Instant) {
        self.refresh = match self.refresh {
            Refresh::Idle => Refresh::Due(due),
            Refresh::Due(sooner) => Refresh::Due(due.min(sooner)),
            Refresh::Running | Refresh::RunningAndDue => Refresh::RunningAndDue,
        };
    }

    /// Notes that the slots were asked for. Says whether they are to be asked for again.
    fn refreshed(&mut self) -> bool {
        matches!(std::mem::replace(&mut self.refresh, Refresh::Idle), Refresh::RunningAndDue)
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seeds: Vec<_> = self.seeds.iter().map(ToString::to_string).collect();
        f.write_str(&seeds.join(","))
    }
}

impl Switchboard {
    /// Something suggests that slots have moved.
    pub(super) fn refresh_soon(&mut self) {
        self.refresh_within(jittered(REFRESH_SOON));
    }

    pub(super) fn refresh_within(&mut self, pause: Duration) {
        if let Layout::Cluster(cluster) = &mut self.layout {
            cluster.refresh_by(Instant::now() + pause);
        }
    }

    /// Asks one node after the other for the slots, until one answers: those that are up first, over the connections that there are,
    /// then the others, and those that were configured.
    pub(super) fn refresh_if_due(&mut self, now: Instant) {
        let Layout::Cluster(cluster) = &mut self.layout else { return };
        if cluster.alarm().is_none_or(|due| due > now) {
            return;
        }
        cluster.refresh = Refresh::Running;
        let known = self.nodes.iter_mut().filter(|node| !node.retired);
        let mut known: Vec<_> = known
            .map(|node| (node.address.clone(), node.session().map(|session| session.connection.clone())))
            .collect();
        let mut seeds: Vec<_> = cluster.seeds.iter().map(|seed| (seed.clone(), None)).collect();
        shuffle(&mut known);
        shuffle(&mut seeds);
        known.sort_by_key(|(_, connection)| connection.is_none());
        known.append(&mut seeds);
        let dialer = Arc::clone(&self.dialer);
        self.events.spawn(async move { Event::Mapped(ask_in_turn(&dialer, known).await) });
    }

    /// Somebody has said who has which slots.
    pub(super) fn mapped(&mut self, shares: Result<Vec<Share>, DialError>) {
        match shares {
            Ok(shares) => self.share_out(shares),
            Err(error) => self.unmapped(Cause::new(error)),
        }
        let again = if let Layout::Cluster(cluster) = &mut self.layout { cluster.refreshed() } else { false };
        if let Some(since) = self.away_since() {
            let forsaken = since.elapsed() > FAILOVER_MAX;
            self.refresh_within(jittered(if forsaken { REFRESH_FORSAKEN } else { REFRESH_AWAY }));
        } else if again {
            self.refresh_soon();
        }
        self.show();
        self.serve_orders();
    }

    fn share_out(&mut self, shares: Vec<Share>) {
        let mut slots = Slots::nobodys();
        for (range, address) in shares {
            let id = self.node_at(address);
            slots.give(range, id);
        }
        let Layout::Cluster(cluster) = &mut self.layout else { return };
        let owners = slots.owners();
        cluster.slots = slots;
        if let Known::Lost { since, .. } = std::mem::replace(&mut cluster.known, Known::Yes) {
            tracing::info!(after = ?since.elapsed(), "redis cluster {cluster} is reachable again; circuit closed");
        }
        let mut waiting = std::mem::take(&mut cluster.homeless);
        for (id, node) in self.nodes.iter_mut().enumerate() {
            node.retired = !owners.contains(&id);
            // What waits for a node that lost its slots may have a better place to wait.
            if node.session().is_none() {
                waiting.append(&mut node.queue);
            }
        }
        (0..self.nodes.len()).for_each(|id| self.leave_if_retired(id));
        waiting.into_iter().for_each(|errand| self.route(errand));
    }

    fn unmapped(&mut self, source: Cause) {
        let Layout::Cluster(cluster) = &mut self.layout else { return };
        tracing::debug!(reason = %source, "redis cluster {cluster}: no node sent the slot map");
        if let Known::NotYet = cluster.known {
            tracing::warn!(reason = %source, "redis cluster {cluster} is unreachable; circuit open, probing");
            cluster.known = Known::Lost { since: Instant::now(), reason: source.to_string() };
        }
        let error = StoreError::Unreachable { address: cluster.to_string(), source };
        for errand in std::mem::take(&mut cluster.homeless) {
            self.sheaves.fill(errand.ticket, Err(error.clone()));
        }
    }

    /// Since when the node that left last has been away, or all of them.
    fn away_since(&self) -> Option<Instant> {
        let nodes = self.nodes.iter().filter(|node| !node.retired).filter_map(|node| match node.state {
            State::Away { since, .. } => Some(since),
            State::Opening | State::Up(_) => None,
        });
        let all = match &self.layout {
            Layout::Cluster(Cluster { known: Known::Lost { since, .. }, .. }) => Some(*since),
            _ => None,
        };
        nodes.chain(all).max()
    }
}

/// Some node, and the connection to it if there is one.
type Candidate = (Address, Option<MultiplexedConnection>);

async fn ask_in_turn(dialer: &Dialer, nodes: Vec<Candidate>) -> Result<Vec<Share>, DialError> {
    let mut reasons = Vec::new();
    for (address, connection) in nodes {
        let answer = timeout(ANSWER_MAX, ask(dialer, &address, connection)).await;
        match answer.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_MAX:?}").into())) {
            Ok(shares) => return Ok(shares),
            Err(error) => reasons.push(format!("{address}: {}", ErrorChain(&*error))),
        }
    }
    Err(reasons.join("; ").into())
}

async fn ask(
    dialer: &Dialer,
    address: &Address,
    connection: Option<MultiplexedConnection>,
) -> Result<Vec<Share>, DialError> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let answer = match connection {
        Some(mut connection) => connection.send_packed_command(&question).await?,
        None => dialer.ask_once(address, &question).await?,
    };
    Ok(slots::read(&answer, address)?)
}

/// Puts them into any order.
fn shuffle<T>(items: &mut [T]) {
    for rest in (1..items.len()).rev() {
        items.swap(rest, random() as usize % (rest + 1));
    }
}

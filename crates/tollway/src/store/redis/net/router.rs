//! Decides what the driver does: events with their time come in, actions go out. It has no socket and no clock.
//!
//! ```text
//! calls ─> route ─> queue of a node ─> Action::Send ─> … ─> on_answered ─> the caller's reply
//!                                                               └─ not executed: route again, until the deadline
//! ```
//!
//! A call is repeated only if a node *answered* that it did not execute it. A call that was sent and got no answer may
//! have been executed, and is never sent again.

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisResult, Value};
use tokio::time::Instant;

use super::admin::{AdminCommand, AdminCommands};
use super::cluster::{Cluster, Place};
use super::disposition::Disposition;
use super::health::SharedHealth;
use super::node::{Node, NodeAlarm, NodeId};
use super::pending::{Batch, PendingBatches, PendingCall};
use super::pipeline::Pipeline;
use super::slots::{SlotRange, Slots};
use crate::cause::Cause;
use crate::store::redis::{Address, RedisUrl, StoreError, Topology};

/// An order that the router gives the driver.
#[derive(Debug)]
pub(super) enum Action {
    /// Open a connection to a node after a pause, in place of an attempt that has not ended.
    Dial { node: NodeId, generation: u64, address: Address, pause: Duration },
    /// Use the connection that was just opened for a node, and close the one that it had.
    Use { node: NodeId, generation: u64 },
    /// Close the connection to a node, and stop dialing it.
    Close { node: NodeId },
    /// Write a pipeline to a node.
    Send { node: NodeId, number: u64, pipeline: Pipeline },
    /// Hand calls back after a short pause.
    Rest(Vec<PendingCall>),
    /// Read the slot map from these nodes, in their order, until one answers.
    ReadSlots(Vec<(Address, Option<NodeId>)>),
    /// Ask the Sentinels later whether the primary is still at this address.
    CheckPrimary { generation: u64, address: Address },
    /// Send a command of an operator to nodes. Those that are unreachable have no connection.
    RunAdmin(AdminCommand, Vec<(Address, Option<NodeId>)>),
}

/// A connection attempt that failed.
#[derive(Debug)]
pub(super) struct ConnectFailure {
    pub(super) source: Cause,
    /// True if the configuration is wrong: the password, the user or the certificate.
    pub(super) misconfigured: bool,
}

/// The nodes, the pending calls and the topology of one store.
pub(super) struct Router {
    layout: Layout,
    nodes: Vec<Node>,
    pending: PendingBatches,
    admin: AdminCommands,
    health: Arc<SharedHealth>,
    deadline: Duration,
    /// The last number that was given to a connection or a pipeline.
    sequence: u64,
    resting: Vec<PendingCall>,
    actions: Vec<Action>,
}

enum Layout {
    /// There is one node, the first.
    Single,
    /// There is one node, the first, at the address that the Sentinels give.
    Sentinel,
    Cluster(Cluster),
}

impl Router {
    /// Starts to connect.
    pub(super) fn new(url: &RedisUrl, health: Arc<SharedHealth>, now: Instant) -> Self {
        let (layout, address) = match &url.topology {
            Topology::Single(address) => (Layout::Single, Some(address.clone())),
            // The name stands for the address until the Sentinels have given it.
            Topology::Sentinel { primary, .. } => {
                (Layout::Sentinel, Some(Address { host: primary.clone(), port: 0 }))
            }
            Topology::Cluster(seeds) => (Layout::Cluster(Cluster::new(seeds.clone(), now)), None),
        };
        let mut router = Self {
            layout,
            nodes: address.map(|address| Node::new(address, url.deadline)).into_iter().collect(),
            pending: PendingBatches::default(),
            admin: AdminCommands::default(),
            health,
            deadline: url.deadline,
            sequence: 0,
            resting: Vec::new(),
            actions: Vec::new(),
        };
        if !router.nodes.is_empty() {
            router.dial(0, Duration::ZERO);
        }
        router.publish_health();
        router
    }

    /// Moves the actions that the events since the last time call for to the end of `actions`.
    pub(super) fn take_actions(&mut self, actions: &mut Vec<Action>) {
        actions.append(&mut self.actions);
    }

    /// Returns true if a node has room for more calls that wait.
    pub(super) fn has_work(&self) -> bool {
        self.nodes.iter().any(Node::has_work)
    }

    /// Takes a batch of calls.
    pub(super) fn on_calls(&mut self, batch: Batch, now: Instant) {
        self.health.calls.add(batch.calls.len() as u64);
        self.pending.open(batch, now).for_each(|call| self.route(call, now));
    }

    /// Takes a command of an operator.
    pub(super) fn on_admin(&mut self, command: AdminCommand) {
        self.admin.push(command);
        self.run_admin();
    }

    /// Takes calls that have rested.
    pub(super) fn on_rested(&mut self, calls: Vec<PendingCall>, now: Instant) {
        calls.into_iter().for_each(|call| self.route(call, now));
    }

    /// Queues a call at the node that has its slot.
    fn route(&mut self, mut call: PendingCall, now: Instant) {
        let Layout::Cluster(cluster) = &mut self.layout else { return self.enqueue(0, call, now) };
        match cluster.place(call.call.slot) {
            Place::Node(node) => self.enqueue(node, call, now),
            Place::Unknown => {
                call.start_deadline(now, self.deadline);
                cluster.park(call);
            }
            Place::Nowhere(error) => self.pending.fill(call.slot, Err(error)),
        }
    }

    fn enqueue(&mut self, id: NodeId, call: PendingCall, now: Instant) {
        let node = &mut self.nodes[id];
        if let Some(slot) = node.enqueue(call, now) {
            self.pending.fill(slot, Err(node.circuit_open()));
        }
    }

    /// Sends what has gathered: one pipeline to each node, and the rest in the next round.
    pub(super) fn flush(&mut self, now: Instant) {
        for (id, node) in self.nodes.iter_mut().enumerate() {
            let number = self.sequence + 1;
            let is_awaited = |call: &PendingCall| !self.pending.close_unless_awaited(call.slot);
            if let Some(pipeline) = node.next_pipeline(number, now, is_awaited) {
                self.sequence = number;
                self.actions.push(Action::Send { node: id, number, pipeline });
            }
        }
        if !self.resting.is_empty() {
            self.actions.push(Action::Rest(std::mem::take(&mut self.resting)));
        }
    }

    /// Takes the replies to a pipeline, or the error that ended its connection.
    pub(super) fn on_answered(
        &mut self,
        id: NodeId,
        generation: u64,
        number: u64,
        pipeline: Pipeline,
        replies: RedisResult<Vec<Value>>,
        now: Instant,
    ) {
        let calls = self.nodes[id].answered(number, now);
        match replies {
            Ok(replies) => {
                pipeline.unpack(calls, replies).for_each(|(call, reply)| self.settle(id, call, reply, now));
                self.close_if_retired(id);
            }
            // The calls may have been executed: nobody knows, so nobody repeats them.
            Err(error) => {
                let source = Cause::new(error);
                let error = self.nodes[id].unreachable(source.clone());
                calls.iter().for_each(|call| self.pending.fill(call.slot, Err(error.clone())));
                self.on_lost(id, generation, source, now);
            }
        }
    }

    /// Gives the reply to the caller, or repeats a call that was not executed.
    fn settle(&mut self, id: NodeId, call: PendingCall, reply: Value, now: Instant) {
        let disposition = match Disposition::of(reply, self.nodes[id].address()) {
            Disposition::Answer(value) => return self.pending.fill(call.slot, Ok(value)),
            Disposition::Refused(reason) => return self.refuse(id, &call, reason, now),
            Disposition::NoScript if call.call.script.is_none() => {
                return self.refuse(id, &call, "NOSCRIPT, although the call has no script".to_owned(), now);
            }
            Disposition::Moved { .. } | Disposition::Ask(_) if !matches!(self.layout, Layout::Cluster(_)) => {
                let advice = "it is a cluster node; use redis+cluster:// in the store URL";
                return self.refuse(id, &call, advice.to_owned(), now);
            }
            disposition => disposition,
        };
        if self.pending.close_unless_awaited(call.slot) {
            return;
        }
        let slot = call.slot;
        let Some(mut call) = call.retry() else {
            let error = self.refusal(id, format!("{disposition:?}, again and again"), now);
            return self.pending.fill(slot, Err(error));
        };
        match disposition {
            Disposition::Answer(_) | Disposition::Refused(_) => {}
            Disposition::NoScript => {
                call.with_script = true;
                self.route(call, now);
            }
            Disposition::Moved { slot, to } => {
                self.health.redirects.add(1);
                let to = self.node_at(to);
                if let Layout::Cluster(cluster) = &mut self.layout {
                    cluster.moved(slot, to, now);
                }
                self.enqueue(to, call, now);
            }
            Disposition::Ask(to) => {
                self.health.redirects.add(1);
                let to = self.node_at(to);
                call.asking = true;
                self.enqueue(to, call, now);
            }
            Disposition::Unfit(reason) => {
                // At the same address another node may answer next time, or the same one in a better state.
                let generation = self.nodes[id].generation();
                self.on_lost(id, generation, Cause::new(reason), now);
                self.route(call, now);
            }
            Disposition::Later(_) => {
                self.refresh_soon(now);
                // A call that pauses before each attempt keeps no node busy.
                call.forget_attempts();
                self.resting.push(call);
            }
        }
    }

    fn refuse(&mut self, id: NodeId, call: &PendingCall, reason: String, now: Instant) {
        let error = self.refusal(id, reason, now);
        self.pending.fill(call.slot, Err(error));
    }

    fn refusal(&mut self, id: NodeId, reason: String, now: Instant) -> StoreError {
        self.health.refusals.add(1);
        self.nodes[id].refused(reason, now)
    }

    /// Dials a node. All calls share the connection, and there is never more than one attempt at a node.
    fn dial(&mut self, node: NodeId, pause: Duration) {
        self.sequence += 1;
        let generation = self.sequence;
        self.nodes[node].dialing(generation);
        let address = self.nodes[node].address().clone();
        self.actions.push(Action::Dial { node, generation, address, pause });
    }

    /// Sends the calls that waited for a connection, or fails them if it could not be opened.
    pub(super) fn on_connected(
        &mut self,
        id: NodeId,
        generation: u64,
        outcome: Result<Address, ConnectFailure>,
        now: Instant,
    ) {
        if self.nodes[id].generation() != generation || self.nodes[id].is_retired() {
            return;
        }
        match outcome {
            Ok(address) => self.use_connection(id, generation, address, now),
            Err(failure) => {
                self.set_unreachable(id, failure, now);
                let pause = self.nodes[id].failed(now);
                self.dial(id, pause);
            }
        }
        self.publish_health();
        self.run_admin();
    }

    fn use_connection(&mut self, id: NodeId, generation: u64, address: Address, now: Instant) {
        self.actions.push(Action::Use { node: id, generation });
        if let Layout::Sentinel = self.layout {
            self.actions.push(Action::CheckPrimary { generation, address: address.clone() });
        }
        self.nodes[id].connected(address, now);
    }

    /// Takes what the Sentinels said about the primary of a connection: the address of another one, whose connection is
    /// open, or nothing.
    pub(super) fn on_primary_checked(&mut self, generation: u64, elsewhere: Option<Address>, now: Instant) {
        // A newer connection was opened where the Sentinels said, and has its own checks.
        if self.nodes[0].generation() != generation {
            return;
        }
        let Some(address) = elsewhere else {
            let address = self.nodes[0].address().clone();
            return self.actions.push(Action::CheckPrimary { generation, address });
        };
        tracing::info!("redis primary moved from {} to {address}", self.nodes[0].address());
        self.health.reconnects.add(1);
        self.sequence += 1;
        self.nodes[0].dialing(self.sequence);
        self.use_connection(0, self.sequence, address, now);
        self.publish_health();
    }

    /// Opens another connection after one has ended, or was of no use. Calls wait for it.
    pub(super) fn on_lost(&mut self, id: NodeId, generation: u64, source: Cause, now: Instant) {
        let node = &mut self.nodes[id];
        if node.generation() != generation || !node.is_up() {
            return;
        }
        self.reconnect(id, source, false, now);
    }

    /// Closes the connection that a node had, and dials again. The circuit opens if the node is stalled, or if the
    /// connection was open for a moment only.
    fn reconnect(&mut self, id: NodeId, source: Cause, stalled: bool, now: Instant) {
        let pause = self.nodes[id].lost(now);
        self.actions.push(Action::Close { node: id });
        if self.nodes[id].is_retired() {
            // The node that has its slots now is a better place to wait.
            let queue = self.nodes[id].take_queue();
            return queue.into_iter().for_each(|call| self.route(call, now));
        }
        if stalled || pause.is_err() {
            self.set_unreachable(id, ConnectFailure { source, misconfigured: false }, now);
        }
        self.health.breaker_openings.add(stalled.into());
        self.health.reconnects.add(1);
        let (Ok(pause) | Err(pause)) = pause;
        self.dial(id, pause);
        self.refresh_soon(now);
        self.publish_health();
    }

    /// Opens the circuit of a node, and fails the calls that wait for it.
    fn set_unreachable(&mut self, id: NodeId, failure: ConnectFailure, now: Instant) {
        let ConnectFailure { source, misconfigured } = failure;
        self.health.rejected_connections.add(misconfigured.into());
        let node = &mut self.nodes[id];
        let queue = node.set_unreachable(&source, misconfigured, now);
        let error = node.unreachable(source);
        // Before a caller learns of it.
        self.publish_health();
        queue.iter().for_each(|call| self.pending.fill(call.slot, Err(error.clone())));
        self.refresh_soon(now);
    }

    fn refresh_soon(&mut self, now: Instant) {
        if let Layout::Cluster(cluster) = &mut self.layout {
            cluster.refresh_soon(now);
        }
    }

    /// Takes the slot map that a node sent, or the error if none did.
    pub(super) fn on_slots(&mut self, ranges: Result<Vec<SlotRange>, ConnectFailure>, now: Instant) {
        match ranges {
            Ok(ranges) => self.assign_slots(ranges, now),
            Err(ConnectFailure { source, misconfigured }) => {
                let Layout::Cluster(cluster) = &mut self.layout else { return };
                self.health.rejected_connections.add(misconfigured.into());
                let (parked, error) = cluster.set_unreachable(source, misconfigured, now);
                parked.iter().for_each(|call| self.pending.fill(call.slot, Err(error.clone())));
            }
        }
        let nodes = self.nodes.iter().filter(|node| !node.is_retired());
        let unreachable_since = nodes.filter_map(Node::unreachable_since).max();
        if let Layout::Cluster(cluster) = &mut self.layout {
            cluster.end_refresh(unreachable_since, now);
        }
        self.publish_health();
        self.run_admin();
    }

    fn assign_slots(&mut self, ranges: Vec<SlotRange>, now: Instant) {
        let mut slots = Slots::empty();
        for (range, address) in ranges {
            let id = self.node_at(address);
            slots.assign(range, id);
        }
        let Layout::Cluster(cluster) = &mut self.layout else { return };
        let owners = slots.owners();
        let mut waiting = cluster.set_slots(slots, now);
        for (id, node) in self.nodes.iter_mut().enumerate() {
            waiting.extend(node.set_retired(!owners.contains(&id)));
        }
        (0..self.nodes.len()).for_each(|id| self.close_if_retired(id));
        waiting.into_iter().for_each(|call| self.route(call, now));
    }

    /// Returns the node at an address, which is dialed if it is new.
    fn node_at(&mut self, address: Address) -> NodeId {
        let known = self.nodes.iter().position(|node| *node.address() == address);
        let id = known.unwrap_or_else(|| {
            let mut node = Node::new(address, self.deadline);
            let _ = node.set_retired(true);
            // Containers come and go with their addresses: a node that has gone leaves its place to another.
            let id = self.nodes.iter().position(Node::is_gone).unwrap_or(self.nodes.len());
            match self.nodes.get_mut(id) {
                Some(place) => *place = node,
                None => self.nodes.push(node),
            }
            id
        });
        if self.nodes[id].revive() {
            self.dial(id, Duration::ZERO);
        }
        id
    }

    fn close_if_retired(&mut self, id: NodeId) {
        if self.nodes[id].close_if_retired() {
            self.actions.push(Action::Close { node: id });
        }
    }

    /// Begins the commands of operators, once every primary is known to be reachable or not.
    fn run_admin(&mut self) {
        let primaries = match &self.layout {
            Layout::Single | Layout::Sentinel => vec![0],
            Layout::Cluster(cluster) => cluster.primaries(),
        };
        let known = !primaries.is_empty() && !primaries.iter().any(|&id| self.nodes[id].is_connecting());
        for (command, ids) in self.admin.ready(known.then_some(&*primaries)) {
            let asked = ids.into_iter().map(|id| (id, &self.nodes[id]));
            let asked = asked.map(|(id, node)| (node.address().clone(), node.is_up().then_some(id)));
            self.actions.push(Action::RunAdmin(command, asked.collect()));
        }
    }

    /// Returns the time when [`on_alarm`](Self::on_alarm) has something to do, if nothing happens before.
    pub(super) fn alarm(&self) -> Option<Instant> {
        let cluster = match &self.layout {
            Layout::Single | Layout::Sentinel => None,
            Layout::Cluster(cluster) => cluster.alarm(),
        };
        self.nodes.iter().filter_map(Node::alarm).chain(cluster).chain(self.admin.alarm()).min()
    }

    /// Gives up calls that are due, leaves nodes that are stalled, pings idle ones, and reads the slot map.
    pub(super) fn on_alarm(&mut self, now: Instant) {
        for id in 0..self.nodes.len() {
            let (address, mut overdue) = (self.nodes[id].address().to_string(), Vec::new());
            let alarm = self.nodes[id].on_alarm(now, |call| overdue.push((call.slot, call.is_late())));
            for (slot, is_late) in overdue {
                let error = self.give_up(&address, is_late);
                self.pending.fill(slot, Err(error));
            }
            match alarm {
                NodeAlarm::Nothing => {}
                NodeAlarm::Ping => {
                    self.sequence += 1;
                    self.nodes[id].sent(self.sequence, Vec::new(), now);
                    let (number, pipeline) = (self.sequence, Pipeline::ping());
                    self.actions.push(Action::Send { node: id, number, pipeline });
                }
                NodeAlarm::Stalled => {
                    self.reconnect(id, Cause::new("it did not answer a ping"), true, now);
                }
            }
        }
        let name = self.name();
        if let Layout::Cluster(cluster) = &mut self.layout {
            let parked = cluster.give_up(now);
            if cluster.begin_refresh(now) {
                self.read_slots();
            }
            for call in parked {
                let error = self.give_up(&name, call.is_late());
                self.pending.fill(call.slot, Err(error));
            }
        }
        self.admin.give_up(now, || StoreError::CircuitOpen { address: name.clone() });
    }

    /// Counts a call that is given up: the store was late, or there were too many calls before it.
    fn give_up(&self, address: &str, is_late: bool) -> StoreError {
        if is_late {
            self.health.timeouts.add(1);
            return StoreError::TimedOut { address: address.to_owned(), waited: self.deadline };
        }
        self.health.shed.add(1);
        StoreError::Busy { waiting: self.health.waiting() }
    }

    /// Orders to read the slot map from the known nodes, and then from the configured ones.
    fn read_slots(&mut self) {
        let Layout::Cluster(cluster) = &self.layout else { return };
        let known = self.nodes.iter().enumerate().filter(|(_, node)| !node.is_retired());
        let known = known.map(|(id, node)| (node.address().clone(), node.is_up().then_some(id)));
        let seeds = cluster.seeds().iter().map(|seed| (seed.clone(), None));
        self.actions.push(Action::ReadSlots(known.chain(seeds).collect()));
    }

    /// Returns the address of the only node.
    #[cfg(feature = "simulation")]
    pub(super) fn address(&self) -> &Address {
        self.nodes[0].address()
    }

    /// Returns the name of the store in errors.
    fn name(&self) -> String {
        match &self.layout {
            Layout::Single | Layout::Sentinel => self.nodes[0].address().to_string(),
            Layout::Cluster(cluster) => cluster.to_string(),
        }
    }

    fn publish_health(&self) {
        let nodes = self.nodes.iter().filter(|node| !node.is_retired());
        let mut nodes: Vec<_> = nodes.map(Node::health).collect();
        match &self.layout {
            Layout::Cluster(cluster) if nodes.is_empty() => nodes.push(cluster.health()),
            Layout::Cluster(_) => {}
            Layout::Single | Layout::Sentinel => {
                let node = &self.nodes[0];
                let generation = if node.is_up() { node.generation() } else { 0 };
                self.health.set_only_node(node.address().clone(), generation);
            }
        }
        self.health.set_nodes(nodes);
    }
}

//! The I/O thread: everything that happens, one after the other.
//!
//! ```text
//! callers ── Ask ──> accept ─ route ─> queue of a node ── flush ──> Parcel ── one write ──> Redis
//! callers <─ Replies ─ Sheaves <─ settle <────────────────────────── Event::Answered <──────┘
//!                                   └─ not executed: route again, until the deadline
//! ```
//!
//! Connections are opened, written and awaited in tasks of their own, and each tells what came of it in one [`Event`]. So nothing
//! here waits for a node, all state has one owner, and all that has gathered while one round was served leaves in one write.
//!
//! A call is repeated only if a node *answered* that it did not execute it. One that was sent and got no answer may have been
//! executed, and is never sent again.

use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{self, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::cluster::Cluster;
use super::dial::{DialError, Dialer, Line};
use super::health::Board;
use super::node::{Node, NodeId, State};
use super::parcel::{Errand, Parcel};
use super::people::Order;
use super::sentinel::Sentinels;
use super::sheaf::Sheaves;
use super::slots::Share;
use super::{Reply, cluster};
use crate::cause::Cause;
use crate::store::redis::call::Call;
use crate::store::redis::{Address, RedisUrl, StoreError, Topology};

/// How many asks are taken at a time, before replies get their turn.
const INBOX: usize = 1024;

/// How long a call rests that is to be repeated in a moment.
const REST: Duration = Duration::from_millis(2);

/// What somebody wants.
#[derive(Debug)]
pub(super) enum Ask {
    /// A batch of calls.
    Calls { calls: Vec<Call>, asked: Instant, reply: oneshot::Sender<Vec<Reply>> },
    /// Something that may take its time.
    Order(Order),
}

/// What has come of something that was begun.
pub(super) enum Event {
    /// A node answered, or its connection ended before it did.
    Answered { node: NodeId, life: u64, parcel: Parcel, replies: Result<Vec<Value>, RedisError> },
    /// A connection is open, or could not be opened.
    Opened { node: NodeId, life: u64, line: Result<(Address, Line), DialError> },
    /// A connection has ended.
    Lost { node: NodeId, life: u64 },
    /// Sentinels were asked whether a primary is still the one; if not, the other is open.
    Watched { life: u64, elsewhere: Option<(Address, Line)> },
    /// Errands have rested.
    Rested(Vec<Errand>),
    /// Somebody has said who has which slots.
    Mapped(Result<Vec<Share>, DialError>),
    /// Somebody got what they wanted.
    Done,
}

/// Everything that the I/O thread knows.
pub(super) struct Switchboard {
    pub(super) layout: Layout,
    pub(super) nodes: Vec<Node>,
    pub(super) dialer: Arc<Dialer>,
    pub(super) events: JoinSet<Event>,
    pub(super) sheaves: Sheaves,
    pub(super) orders: Vec<Order>,
    pub(super) board: Arc<Board>,
    pub(super) deadline: Duration,
    pub(super) lives: u64,
    pub(super) resting: Vec<Errand>,
}

/// How the nodes hang together.
pub(super) enum Layout {
    /// One node, the first.
    Single,
    /// One node, the first, wherever the Sentinels say it is.
    Watched(Arc<Sentinels>),
    /// Many.
    Cluster(Cluster),
}

impl Switchboard {
    pub(super) fn new(url: &RedisUrl, dialer: Arc<Dialer>, board: Arc<Board>) -> Self {
        let (layout, nodes) = match &url.topology {
            Topology::Single(address) => (Layout::Single, vec![Node::new(address.clone())]),
            Topology::Sentinel { sentinels, primary } => {
                let sentinels = Sentinels::new(sentinels.clone(), primary.clone());
                let somewhere = sentinels.somewhere();
                (Layout::Watched(Arc::new(sentinels)), vec![Node::new(somewhere)])
            }
            Topology::Cluster(seeds) => (Layout::Cluster(Cluster::new(seeds.clone())), Vec::new()),
        };
        let switchboard = Self {
            layout,
            nodes,
            dialer,
            events: JoinSet::new(),
            sheaves: Sheaves::new(Arc::clone(&board)),
            orders: Vec::new(),
            board,
            deadline: url.deadline,
            lives: 0,
            resting: Vec::new(),
        };
        switchboard.show();
        switchboard
    }

    /// Serves until everybody who could ask has gone.
    pub(super) async fn run(mut self, mut asks: mpsc::UnboundedReceiver<Ask>) {
        self.begin();
        let mut inbox = Vec::with_capacity(INBOX);
        let alarm = sleep_until(Instant::now());
        tokio::pin!(alarm);
        loop {
            let due = self.alarm();
            if due.is_some_and(|due| due <= Instant::now()) {
                self.ring().await;
            } else if self.nodes.iter().any(Node::is_loaded) {
                // The write before goes out first, and not together with the next.
                task::yield_now().await;
            } else {
                // It is moved only when that makes a difference: it may go off too early, and then nothing is due.
                if let Some(due) = due.filter(|due| alarm.is_elapsed() || *due < alarm.deadline()) {
                    alarm.as_mut().reset(due);
                }
                tokio::select! {
                    biased;
                    Some(event) = self.events.join_next() => self.hear(event),
                    count = asks.recv_many(&mut inbox, INBOX) => if count == 0 { return },
                    () = &mut alarm, if !alarm.is_elapsed() => {}
                }
            }
            self.hear_all();
            while inbox.len() < INBOX
                && let Ok(ask) = asks.try_recv()
            {
                inbox.push(ask);
            }
            for ask in inbox.drain(..) {
                self.accept(ask);
            }
            self.flush();
        }
    }

    fn begin(&mut self) {
        match self.layout {
            Layout::Single | Layout::Watched(_) => self.dial(0, Duration::ZERO),
            Layout::Cluster(_) => self.refresh_within(Duration::ZERO),
        }
    }

    fn hear_all(&mut self) {
        while let Some(event) = self.events.try_join_next() {
            self.hear(event);
        }
    }

    fn hear(&mut self, event: Result<Event, task::JoinError>) {
        // Whatever was aborted has nothing to tell.
        let Ok(event) = event else { return };
        match event {
            Event::Answered { node, life, parcel, replies } => self.answered(node, life, parcel, replies),
            Event::Opened { node, life, line } => self.opened(node, life, line),
            Event::Lost { node, life } => self.lost(node, life, Cause::new("the connection was closed")),
            Event::Watched { life, elsewhere } => self.watched(life, elsewhere),
            Event::Rested(errands) => errands.into_iter().for_each(|errand| self.route(errand)),
            Event::Mapped(shares) => self.mapped(shares),
            Event::Done => {}
        }
    }

    fn accept(&mut self, ask: Ask) {
        match ask {
            Ask::Calls { calls, asked, reply } => {
                self.board.calls.add(calls.len() as u64);
                let tickets = self.sheaves.open(calls.len(), asked, reply);
                calls
                    .into_iter()
                    .zip(tickets)
                    .for_each(|(call, ticket)| self.route(Errand::new(call, ticket)));
            }
            Ask::Order(order) => {
                self.orders.push(order);
                self.serve_orders();
            }
        }
    }

    /// Gives an errand to the node that has its slot.
    pub(super) fn route(&mut self, errand: Errand) {
        match &mut self.layout {
            Layout::Single | Layout::Watched(_) => self.give(0, errand),
            Layout::Cluster(cluster) => match cluster.place(errand.call.slot) {
                cluster::Place::Node(node) => self.give(node, errand),
                cluster::Place::Unknown => cluster.homeless.push(errand),
                cluster::Place::Nobody(error) => self.sheaves.fill(errand.ticket, Err(error)),
            },
        }
    }

    /// Has an errand wait for a node, or fail if the node is away.
    pub(super) fn give(&mut self, id: NodeId, errand: Errand) {
        let node = &mut self.nodes[id];
        if let State::Away { .. } = node.state {
            self.sheaves.fill(errand.ticket, Err(node.away()));
        } else {
            self.sheaves.expect_from(errand.ticket, id);
            node.queue.push(errand);
        }
    }

    /// Sends what has gathered: one write for each node, and what does not fit in it with the next round.
    fn flush(&mut self) {
        let now = Instant::now();
        for id in 0..self.nodes.len() {
            if let Some(mut errands) = self.nodes[id].load() {
                // Whose time ran out here was never sent, and nobody has to wonder.
                errands.retain(|errand| self.sheaves.is_awaited(errand.ticket));
                if !errands.is_empty() {
                    self.send(id, Parcel::pack(errands), now);
                }
            }
        }
        if !self.resting.is_empty() {
            let errands = std::mem::take(&mut self.resting);
            self.events.spawn(async move {
                tokio::time::sleep(REST).await;
                Event::Rested(errands)
            });
        }
    }

    pub(super) fn send(&mut self, id: NodeId, parcel: Parcel, now: Instant) {
        let node = &mut self.nodes[id];
        let life = node.life;
        let Some(session) = node.session() else { return };
        session.sent(now);
        let connection = session.connection.clone();
        self.events.spawn(async move {
            let replies = parcel.send(connection).await;
            Event::Answered { node: id, life, parcel, replies }
        });
    }

    /// What the store as a whole is called.
    pub(super) fn name(&self) -> String {
        match &self.layout {
            Layout::Single | Layout::Watched(_) => self.nodes[0].address.to_string(),
            Layout::Cluster(cluster) => cluster.to_string(),
        }
    }

    /// When something has to be done next, if nothing happens before.
    fn alarm(&self) -> Option<Instant> {
        let expiry = self.sheaves.oldest().map(|asked| asked + self.deadline);
        let nodes = self.nodes.iter().filter_map(Node::alarm);
        let layout = match &self.layout {
            Layout::Single | Layout::Watched(_) => None,
            Layout::Cluster(cluster) => cluster.alarm(),
        };
        let orders = self.orders.iter().map(|order| order.until);
        nodes.chain(expiry).chain(layout).chain(orders).min()
    }

    async fn ring(&mut self) {
        // If this thread was kept from running, answers may be here that only have to be read: they come first.
        task::yield_now().await;
        task::yield_now().await;
        self.hear_all();
        let now = Instant::now();
        if let Some(until) = now.checked_sub(self.deadline) {
            let (nodes, name, waited) = (&self.nodes, self.name(), self.deadline);
            self.sheaves.expire(until, |id| StoreError::TimedOut {
                address: id.map_or_else(|| name.clone(), |id| nodes[id].address.to_string()),
                waited,
            });
        }
        self.watch_nodes(now);
        self.refresh_if_due(now);
        self.expire_orders(now);
    }
}

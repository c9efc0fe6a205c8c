//! Nodes that come and go.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::chance::{random, up_to};
use super::dial::{DialError, Line};
use super::node::{Node, NodeId, Session, State};
use super::parcel::Parcel;
use super::patience::Patience;
use super::switchboard::{Event, Layout, Switchboard};
use crate::cause::Cause;
use crate::store::redis::Address;

/// A connection that ends sooner was no good, and the next one will hardly be better: it is not opened at once.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// Everybody who shares a server loses it at the same moment, and should not come back at the same moment. But whoever waits has
/// no more than a deadline.
const RECONNECT_SPREAD: Duration = Duration::from_millis(4);

impl Switchboard {
    /// Begins to open a connection, after a pause. All calls share it; there is never more than one attempt at a node.
    pub(super) fn dial(&mut self, id: NodeId, pause: Duration) {
        self.lives += 1;
        let (life, dialer) = (self.lives, Arc::clone(&self.dialer));
        let address = self.nodes[id].address.clone();
        let sentinels = match &self.layout {
            Layout::Watched(sentinels) => Some(Arc::clone(sentinels)),
            Layout::Single | Layout::Cluster(_) => None,
        };
        let dialing = self.events.spawn(async move {
            sleep(pause).await;
            let line = match sentinels {
                None => dialer.open(&address).await.map(|line| (address, line)),
                Some(sentinels) => sentinels.open_primary(&dialer).await,
            };
            Event::Opened { node: id, life, line }
        });
        let node = &mut self.nodes[id];
        node.life = life;
        if let Some(earlier) = node.dialing.replace(dialing) {
            earlier.abort();
        }
    }

    /// A connection is open: what waited is sent. Or it could not be opened: what waited fails.
    pub(super) fn opened(&mut self, id: NodeId, life: u64, line: Result<(Address, Line), DialError>) {
        let node = &mut self.nodes[id];
        if node.life != life || node.retired {
            return;
        }
        match line {
            Ok((address, line)) => {
                self.up(id, address, line);
                self.ask_again_later();
            }
            Err(error) => {
                self.away(id, Cause::new(error));
                let pause = self.nodes[id].backoff.failed(random());
                self.dial(id, pause);
            }
        }
        self.show();
        self.serve_orders();
    }

    fn up(&mut self, id: NodeId, address: Address, line: Line) {
        let node = &mut self.nodes[id];
        let life = node.life;
        let ended = line.driver;
        let driver = self.events.spawn(async move {
            ended.await;
            Event::Lost { node: id, life }
        });
        let now = Instant::now();
        if let State::Away { since, .. } = node.state {
            tracing::info!(after = ?now - since, "redis {address} is reachable again; circuit closed");
        }
        node.address = address;
        node.dialing = None;
        let patience = Patience::new(self.deadline);
        node.state =
            State::Up(Session { connection: line.connection, patience, driver, opened: now, used: now });
    }

    /// Takes a connection to another place for the node; the one it had is closed.
    pub(super) fn switch(&mut self, id: NodeId, address: Address, line: Line) {
        self.lives += 1;
        self.nodes[id].life = self.lives;
        self.board.reconnects.add(1);
        self.up(id, address, line);
        self.ask_again_later();
        self.show();
    }

    /// Leaves a node alone until a probe finds it well.
    fn away(&mut self, id: NodeId, source: Cause) {
        let node = &mut self.nodes[id];
        let queue = std::mem::take(&mut node.queue);
        let reason = source.to_string();
        let error = node.unreachable(source);
        let since = match node.state {
            State::Away { since, .. } => since,
            State::Opening | State::Up(_) => {
                tracing::warn!(%reason, "redis {} is unreachable; circuit open, probing", node.address);
                Instant::now()
            }
        };
        node.state = State::Away { since, reason };
        // Before anybody hears of it.
        self.show();
        for errand in queue {
            self.sheaves.fill(errand.ticket, Err(error.clone()));
        }
        self.refresh_soon();
    }

    /// A connection has ended, or is of no use: another is opened at once, and calls wait for it.
    pub(super) fn lost(&mut self, id: NodeId, life: u64, source: Cause) {
        let node = &mut self.nodes[id];
        if node.life != life {
            return;
        }
        let Some(session) = node.session() else { return };
        let short = session.opened.elapsed() < SHORT_LIFE;
        node.state = State::Opening;
        if node.retired {
            // Whoever has its slots now is a better place to wait.
            let queue = std::mem::take(&mut node.queue);
            return queue.into_iter().for_each(|errand| self.route(errand));
        }
        if short {
            self.away(id, source);
        }
        self.dial_again(id, short);
        self.refresh_soon();
        self.show();
    }

    /// Opens a connection after another, soon if that one was good for something.
    fn dial_again(&mut self, id: NodeId, short: bool) {
        self.board.reconnects.add(1);
        let backoff = &mut self.nodes[id].backoff;
        if short {
            let pause = backoff.failed(random());
            self.dial(id, pause);
        } else {
            backoff.succeeded();
            self.dial(id, up_to(RECONNECT_SPREAD));
        }
    }

    /// Leaves nodes that have been silent for too long, and looks after those that have been idle.
    pub(super) fn watch_nodes(&mut self, now: Instant) {
        for id in 0..self.nodes.len() {
            if self.nodes[id].alarm().is_none_or(|due| due > now) {
                continue;
            }
            let retired = self.nodes[id].retired;
            let Some(session) = self.nodes[id].session() else { continue };
            if session.patience.owed() == 0 {
                self.send(id, Parcel::ping(), now);
            } else if retired {
                self.nodes[id].state = State::Opening;
            } else {
                let short = now - session.opened < SHORT_LIFE;
                self.board.breaker_openings.add(1);
                self.away(id, Cause::new("it did not answer a ping"));
                self.dial_again(id, short);
            }
        }
    }

    /// Shows everybody how the nodes are.
    pub(super) fn show(&self) {
        let mut shown: Vec<_> = self.nodes.iter().filter(|node| !node.retired).map(Node::health).collect();
        if let Layout::Cluster(cluster) = &self.layout
            && shown.is_empty()
        {
            shown.push(cluster.health());
        }
        if let Layout::Single | Layout::Watched(_) = &self.layout {
            let node = &self.nodes[0];
            let life = if matches!(node.state, State::Up(_)) { node.life } else { 0 };
            self.board.show_only_node(node.address.clone(), life);
        }
        self.board.show(shown);
    }
}

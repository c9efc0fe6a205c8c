//! Calls that a node sends on to another, and nodes that come into the Cluster and leave it.

use std::time::Duration;

use super::node::{Node, NodeId, State};
use super::parcel::Errand;
use super::switchboard::{Layout, Switchboard};
use crate::store::redis::Address;

impl Switchboard {
    /// A slot has another node: the call goes there, and everything else of that slot as well.
    pub(super) fn moved(&mut self, slot: u16, to: Address, errand: Errand) {
        self.board.redirects.add(1);
        let id = self.node_at(to);
        if let Layout::Cluster(cluster) = &mut self.layout {
            cluster.slots.give(slot..=slot, id);
        }
        self.refresh_soon();
        self.give(id, errand);
    }

    /// A slot is on its way, and this call's keys are at the other end already. The others may not be.
    pub(super) fn ask(&mut self, to: Address, errand: Errand) {
        self.board.redirects.add(1);
        let id = self.node_at(to);
        self.give(id, Errand { asking: true, ..errand });
    }

    /// The node at an address, which is opened if it was not known.
    pub(super) fn node_at(&mut self, address: Address) -> NodeId {
        let known = self.nodes.iter().position(|node| node.address == address);
        let id = known.unwrap_or_else(|| {
            // Addresses come and go where containers do; the place of one that has gone is free.
            let free = self.nodes.iter_mut().position(|node| node.retired && node.session().is_none());
            let id = free.unwrap_or(self.nodes.len());
            match self.nodes.get_mut(id) {
                Some(node) => *node = Node { retired: true, ..Node::new(address) },
                None => self.nodes.push(Node { retired: true, ..Node::new(address) }),
            }
            id
        });
        let node = &mut self.nodes[id];
        if std::mem::replace(&mut node.retired, false) && node.session().is_none() {
            node.state = State::Opening;
            self.dial(id, Duration::ZERO);
        }
        id
    }

    /// Closes the connection to a node that has no slots, once it owes no answers.
    pub(super) fn leave_if_retired(&mut self, id: NodeId) {
        let node = &mut self.nodes[id];
        if !node.retired
            || !node.queue.is_empty()
            || node.session().is_some_and(|session| session.patience.owed() > 0)
        {
            return;
        }
        node.state = State::Opening;
        node.backoff.succeeded();
        if let Some(dialing) = node.dialing.take() {
            dialing.abort();
        }
    }
}

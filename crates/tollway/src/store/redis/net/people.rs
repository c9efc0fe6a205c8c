//! What people ask, which may take its time: how many keys there are, and which.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::Reply;
use super::node::{NodeId, State};
use super::switchboard::{Event, Layout, Switchboard};
use crate::cause::Cause;
use crate::store::redis::StoreError;

/// How long people wait for all primaries together.
pub(super) const ORDER_MAX: Duration = Duration::from_secs(5);

/// A command for primaries.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) command: Cmd,
    /// Only the one in this place; all of them otherwise.
    pub(super) only: Option<usize>,
    pub(super) until: Instant,
    pub(super) reply: oneshot::Sender<Vec<Reply>>,
}

impl Switchboard {
    /// Begins every order whose primaries are known and either up or away. The others wait.
    pub(super) fn serve_orders(&mut self) {
        for order in std::mem::take(&mut self.orders) {
            match self.primaries_for(&order) {
                Some(primaries) => self.begin_order(order, &primaries),
                None => self.orders.push(order),
            }
        }
    }

    /// Whom an order is for, or nothing while that, or how they are, is still to be found out.
    fn primaries_for(&self, order: &Order) -> Option<Vec<NodeId>> {
        let all = match &self.layout {
            Layout::Single | Layout::Watched(_) => vec![0],
            Layout::Cluster(cluster) => cluster.primaries(),
        };
        if all.is_empty() || all.iter().any(|&id| matches!(self.nodes[id].state, State::Opening)) {
            return None;
        }
        Some(match order.only {
            None => all,
            Some(nth) => all.get(nth).copied().into_iter().collect(),
        })
    }

    fn begin_order(&mut self, order: Order, primaries: &[NodeId]) {
        let Order { command, until, reply, .. } = order;
        let asked: Vec<_> = primaries.iter().map(|&id| self.open_for_people(id)).collect();
        self.events.spawn(async move {
            let mut replies = Vec::with_capacity(asked.len());
            for (address, connection) in asked {
                replies.push(match connection {
                    Ok(connection) => ask(&address, connection, &command, until).await,
                    Err(error) => Err(error),
                });
            }
            // Whoever asked may have gone.
            let _ = reply.send(replies);
            Event::Done
        });
    }

    fn open_for_people(&mut self, id: NodeId) -> (String, Result<MultiplexedConnection, StoreError>) {
        let node = &mut self.nodes[id];
        let away = node.away();
        let connection = node.session().map(|session| session.connection.clone());
        (node.address.to_string(), connection.ok_or(away))
    }

    /// Gives up on orders that have waited long enough for somebody to take them.
    pub(super) fn expire_orders(&mut self, now: Instant) {
        for order in std::mem::take(&mut self.orders) {
            if order.until > now {
                self.orders.push(order);
            } else {
                let _ = order.reply.send(vec![Err(StoreError::CircuitOpen { address: self.name() })]);
            }
        }
    }
}

async fn ask(address: &str, mut connection: MultiplexedConnection, command: &Cmd, until: Instant) -> Reply {
    match timeout_at(until, connection.send_packed_command(command)).await {
        Ok(Ok(Value::ServerError(error))) => {
            Err(StoreError::Refused { address: address.to_owned(), reason: error.to_string() })
        }
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            Err(StoreError::Unreachable { address: address.to_owned(), source: Cause::new(error) })
        }
        Err(_) => Err(StoreError::TimedOut { address: address.to_owned(), waited: ORDER_MAX }),
    }
}

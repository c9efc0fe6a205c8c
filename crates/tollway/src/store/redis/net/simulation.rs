//! Drives the router of a store without sockets, threads or a clock, for the simulator.
//!
//! The bytes that a socket would carry come out of it and go into it, with the time of each event. Everything between
//! them and the callers is what a server runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisError, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::driver::Request;
use super::health::SharedHealth;
use super::node::NodeId;
use super::pending::PendingCall;
use super::pipeline::Pipeline;
use super::router::{Action, ConnectFailure, Router};
use super::{Net, RedisUrl, Topology, jitter};
use crate::cause::Cause;
use crate::store::redis::call::Script;

/// The router of one store, and the pipelines that it has sent. Times count from its start.
pub struct SimulatedDriver {
    router: Router,
    requests: mpsc::UnboundedReceiver<Request>,
    started: Instant,
    sent: HashMap<u64, (NodeId, u64, Pipeline)>,
    resting: Vec<PendingCall>,
    generation: u64,
}

/// An order that the router gives: what a driver would do with sockets.
#[derive(Debug)]
pub enum NetAction {
    /// Open a connection after a pause. Its generation identifies it.
    Dial {
        /// The number of the connection.
        generation: u64,
        /// The time to wait first.
        pause: Duration,
    },
    /// Use the connection that was just opened.
    Use {
        /// The number of the connection.
        generation: u64,
    },
    /// Close the connection.
    Close,
    /// Write these commands to the connection, each with the batch of its call.
    Send {
        /// The number of the connection.
        generation: u64,
        /// The number that the replies must name.
        number: u64,
        /// The bytes of each command.
        commands: Vec<(Option<u64>, Vec<u8>)>,
    },
    /// Call [`SimulatedDriver::run`] again after a short pause.
    Rest,
}

impl SimulatedDriver {
    /// Makes the two ends of a store with a single node.
    pub(crate) fn start(url: &RedisUrl, seed: u64) -> (Net, Self) {
        debug_assert!(matches!(url.topology, Topology::Single(_)), "only a single node is simulated");
        jitter::seed(seed);
        let (health, started) = (Arc::<SharedHealth>::default(), Instant::now());
        let router = Router::new(url, Arc::clone(&health), started);
        let (sender, requests) = mpsc::unbounded_channel();
        let driver =
            Self { router, requests, started, sent: HashMap::new(), resting: Vec::new(), generation: 0 };
        (Net { requests: sender, health, direct: None, is_cluster: false }, driver)
    }

    /// Takes the calls that have come, serves alarms that are due, and returns what is to be done.
    pub fn run(&mut self, at: Duration) -> Vec<NetAction> {
        let now = self.started + at;
        if self.router.alarm().is_some_and(|due| due <= now) {
            self.router.on_alarm(now);
        }
        while let Ok(request) = self.requests.try_recv() {
            if let Request::Calls(batch) = request {
                self.router.on_calls(batch, now);
            }
        }
        let mut orders = Vec::new();
        loop {
            self.router.flush(now);
            let mut actions = Vec::new();
            self.router.take_actions(&mut actions);
            if actions.is_empty() {
                return orders;
            }
            orders.extend(actions.into_iter().filter_map(|action| self.order(action)));
        }
    }

    fn order(&mut self, action: Action) -> Option<NetAction> {
        match action {
            Action::Dial { generation, pause, .. } => Some(NetAction::Dial { generation, pause }),
            Action::Use { generation, .. } => {
                self.generation = generation;
                Some(NetAction::Use { generation })
            }
            Action::Close { .. } => Some(NetAction::Close),
            Action::Send { node, number, pipeline } => {
                let (generation, commands) = (self.generation, pipeline.to_wire());
                self.sent.insert(number, (node, generation, pipeline));
                Some(NetAction::Send { generation, number, commands })
            }
            Action::Rest(calls) => {
                self.resting.extend(calls);
                Some(NetAction::Rest)
            }
            // A single node has no slots and no Sentinels, and no operator asks.
            Action::ReadSlots(_) | Action::CheckPrimary { .. } | Action::RunAdmin(..) => None,
        }
    }

    /// Returns the time at which [`run`](Self::run) has something to do, if nothing happens before.
    pub fn alarm(&self) -> Option<Duration> {
        self.router.alarm().map(|due| due.saturating_duration_since(self.started))
    }

    /// Tells that a connection is open, or why it could not be opened.
    pub fn connected(&mut self, generation: u64, outcome: Result<(), &str>, at: Duration) {
        let address = self.router.address().clone();
        let failure = |reason| ConnectFailure { source: Cause::new(reason), misconfigured: false };
        let outcome = outcome.map(|()| address).map_err(|reason| failure(reason.to_owned()));
        self.router.on_connected(0, generation, outcome, self.started + at);
    }

    /// Tells that a connection has ended. Its pipelines get no answer.
    pub fn lost(&mut self, generation: u64, at: Duration) {
        let now = self.started + at;
        let mut numbers: Vec<_> =
            self.sent.iter().filter(|(_, sent)| sent.1 == generation).map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        for number in numbers {
            if let Some((node, generation, pipeline)) = self.sent.remove(&number) {
                let error = RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
                self.router.on_answered(node, generation, number, pipeline, Err(error), now);
            }
        }
        self.router.on_lost(0, generation, Cause::new("the connection was closed"), now);
    }

    /// Takes the replies to all commands of a pipeline, as the bytes that a node sends.
    pub fn answered(&mut self, number: u64, replies: &[Vec<u8>], at: Duration) {
        let Some((node, generation, pipeline)) = self.sent.remove(&number) else { return };
        let values = replies.iter().skip(pipeline.scripts()).map(|bytes| redis::parse_redis_value(bytes));
        let replies: Result<Vec<Value>, RedisError> = values.collect();
        self.router.on_answered(node, generation, number, pipeline, replies, self.started + at);
    }

    /// Hands back the calls that have rested.
    pub fn rested(&mut self, at: Duration) {
        let calls = std::mem::take(&mut self.resting);
        self.router.on_rested(calls, self.started + at);
    }
}

/// Returns the hash that a node gives a script.
pub fn script_sha(source: &str) -> String {
    Script::new(source.to_owned()).sha
}

impl std::fmt::Debug for SimulatedDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedDriver").field("sent", &self.sent.len()).finish_non_exhaustive()
    }
}

//! The driver: one thread that does the I/O of a store. It matches events and applies the actions of the [`Router`].
//!
//! Connections are opened, written and awaited in tasks, and each task ends in one [`Event`]. So nothing here waits for
//! a node, all state has one owner, and the calls that gathered while one round was served leave in one write.

use std::panic;
use std::sync::{Arc, mpsc as channel};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tokio::sync::mpsc;
use tokio::task::{self, AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use super::admin::AdminCommand;
use super::dial::{DialError, Dialer, Misconfigured, OpenConnection};
use super::node::NodeId;
use super::pending::{Batch, PendingCall};
use super::pipeline::Pipeline;
use super::router::{Action, ConnectFailure, Router};
use super::sentinel::Sentinels;
use super::slots::SlotRange;
use crate::cause::Cause;
use crate::store::redis::Address;

/// The number of requests that are taken at a time, before replies get their turn.
const INBOX: usize = 1024;

/// The pause before a call is repeated whose slot is being moved.
const REST: Duration = Duration::from_millis(2);

/// An alarm that rings later than this was late because of this thread, not because of a node.
const LAG_MIN: Duration = Duration::from_millis(3);

/// The longest time that alarms are put off because this thread was kept from running.
const LAG_MAX: Duration = Duration::from_secs(1);

/// A request that a caller sends to the driver.
#[derive(Debug)]
pub(super) enum Request {
    /// A batch of calls.
    Calls(Batch),
    /// A command of an operator.
    Admin(AdminCommand),
}

/// The event that a task ends with.
enum Event {
    /// A node answered a pipeline, or its connection ended before it did.
    Answered {
        node: NodeId,
        generation: u64,
        number: u64,
        pipeline: Pipeline,
        replies: Result<Vec<Value>, RedisError>,
    },
    /// A connection is open, or could not be opened.
    Connected { node: NodeId, generation: u64, outcome: Result<(Address, OpenConnection), DialError> },
    /// A connection has ended.
    Lost { node: NodeId, generation: u64 },
    /// The Sentinels were asked about the primary; if it is another one, its connection is open.
    PrimaryChecked { generation: u64, elsewhere: Option<(Address, OpenConnection)> },
    /// Calls have rested.
    Rested(Vec<PendingCall>),
    /// A node sent the slot map, or none did.
    Slots(Result<Vec<SlotRange>, DialError>),
    /// A command of an operator was answered.
    Done,
}

/// The outcome of the first connection attempt, for the caller that opens the store.
pub(super) type FirstAttempt = channel::SyncSender<Result<(), Misconfigured>>;

/// Owns the sockets and tasks of one store.
pub(super) struct Driver {
    router: Router,
    dialer: Arc<Dialer>,
    sentinels: Option<Arc<Sentinels>>,
    /// The connection of each node.
    connections: Vec<NodeConnection>,
    /// A connection that was opened by the event that is handled now.
    opened: Option<OpenConnection>,
    events: JoinSet<Event>,
    /// The actions of one round, kept for its memory.
    actions: Vec<Action>,
    lag: Lag,
    first_attempt: Option<FirstAttempt>,
}

/// The tasks that open a connection to a node, and that keep it.
#[derive(Default)]
struct NodeConnection {
    dialing: Option<AbortHandle>,
    open: Option<(MultiplexedConnection, AbortHandle, u64)>,
}

impl Driver {
    pub(super) fn new(
        router: Router,
        dialer: Arc<Dialer>,
        sentinels: Option<Arc<Sentinels>>,
        deadline: Duration,
        first_attempt: FirstAttempt,
    ) -> Self {
        Self {
            router,
            dialer,
            sentinels,
            connections: Vec::new(),
            opened: None,
            events: JoinSet::new(),
            actions: Vec::new(),
            lag: Lag { deadline, put_off_until: None },
            first_attempt: Some(first_attempt),
        }
    }

    /// Serves until every handle that could send a request is gone.
    pub(super) async fn run(mut self, requests: &mut mpsc::UnboundedReceiver<Request>) {
        let mut inbox = Vec::with_capacity(INBOX);
        let alarm = sleep_until(Instant::now());
        tokio::pin!(alarm);
        loop {
            self.apply();
            let due = self.router.alarm().map(|due| self.lag.put_off(due));
            if due.is_some_and(|due| due <= Instant::now()) {
                self.ring().await;
            } else if self.router.has_work() {
                // The write before goes out first, and not together with the next.
                task::yield_now().await;
            } else {
                // It is moved only when that makes a difference: if it rings too early, nothing is due.
                if let Some(due) = due.filter(|due| alarm.is_elapsed() || *due < alarm.deadline()) {
                    alarm.as_mut().reset(due);
                }
                tokio::select! {
                    biased;
                    Some(event) = self.events.join_next() => self.on_event(event),
                    count = requests.recv_many(&mut inbox, INBOX) => if count == 0 { return },
                    () = &mut alarm, if !alarm.is_elapsed() => {}
                }
            }
            self.drain_events();
            while inbox.len() < INBOX
                && let Ok(request) = requests.try_recv()
            {
                inbox.push(request);
            }
            let now = Instant::now();
            for request in inbox.drain(..) {
                match request {
                    Request::Calls(batch) => self.router.on_calls(batch, now),
                    Request::Admin(command) => self.router.on_admin(command),
                }
            }
            self.router.flush(now);
        }
    }

    /// Handles the events that have come, and returns whether there were any.
    fn drain_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.events.try_join_next() {
            self.on_event(event);
            any = true;
        }
        any
    }

    fn on_event(&mut self, event: Result<Event, task::JoinError>) {
        let event = match event {
            Ok(event) => event,
            // A node may wait for the event of a task that panicked, for ever: the driver has to start again.
            Err(error) if error.is_panic() => panic::resume_unwind(error.into_panic()),
            // A task that was aborted has nothing to report.
            Err(_) => return,
        };
        let (now, mut first_attempt) = (Instant::now(), None);
        match event {
            Event::Answered { node, generation, number, pipeline, replies } => {
                self.router.on_answered(node, generation, number, pipeline, replies, now);
            }
            Event::Connected { node, generation, outcome } => {
                first_attempt = Some(outcome.as_ref().err().and_then(Misconfigured::of));
                let outcome = outcome.map_err(failure).map(|(address, opened)| {
                    self.opened = Some(opened);
                    address
                });
                self.router.on_connected(node, generation, outcome, now);
            }
            Event::Lost { node, generation } => {
                self.router.on_lost(node, generation, Cause::new("the connection was closed"), now);
            }
            Event::PrimaryChecked { generation, elsewhere } => {
                let elsewhere = elsewhere.map(|(address, opened)| {
                    self.opened = Some(opened);
                    address
                });
                self.router.on_primary_checked(generation, elsewhere, now);
            }
            Event::Rested(calls) => self.router.on_rested(calls, now),
            Event::Slots(ranges) => {
                first_attempt = Some(ranges.as_ref().err().and_then(Misconfigured::of));
                self.router.on_slots(ranges.map_err(failure), now);
            }
            Event::Done => {}
        }
        self.apply();
        // A connection that no action uses is closed.
        self.opened = None;
        // Last: whoever has opened the store finds the state that the first attempt has led to.
        if let Some(mistake) = first_attempt {
            self.report_first_attempt(mistake);
        }
    }

    /// Tells the caller that opens the store about the first attempt.
    fn report_first_attempt(&mut self, mistake: Option<Misconfigured>) {
        if let Some(first_attempt) = self.first_attempt.take() {
            // The caller may not have waited for it.
            let _ = first_attempt.send(mistake.map_or(Ok(()), Err));
        }
    }

    fn apply(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        self.router.take_actions(&mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Dial { node, generation, address, pause } => {
                    self.dial(node, generation, address, pause)
                }
                Action::Use { node, generation } => self.use_opened(node, generation),
                Action::Close { node } => *self.connection(node) = NodeConnection::default(),
                Action::Send { node, number, pipeline } => self.send(node, number, pipeline),
                Action::Rest(calls) => {
                    self.events.spawn(async move {
                        sleep(REST).await;
                        Event::Rested(calls)
                    });
                }
                Action::ReadSlots(nodes) => {
                    let nodes =
                        nodes.into_iter().map(|(address, node)| (address, self.open_connection(node)));
                    let (nodes, dialer) = (nodes.collect(), Arc::clone(&self.dialer));
                    self.events.spawn(async move { Event::Slots(dialer.read_slots(nodes).await) });
                }
                Action::CheckPrimary { generation, address } => {
                    let Some(sentinels) = self.sentinels.clone() else { continue };
                    let dialer = Arc::clone(&self.dialer);
                    self.events.spawn(async move {
                        let elsewhere = sentinels.find_elsewhere(&dialer, &address).await;
                        Event::PrimaryChecked { generation, elsewhere }
                    });
                }
                Action::RunAdmin(command, nodes) => {
                    let nodes =
                        nodes.into_iter().map(|(address, node)| (address, self.open_connection(node)));
                    let run = command.run(nodes.collect());
                    self.events.spawn(async move {
                        run.await;
                        Event::Done
                    });
                }
            }
        }
        self.actions = actions;
    }

    fn open_connection(&self, node: Option<NodeId>) -> Option<MultiplexedConnection> {
        self.connections.get(node?)?.open.as_ref().map(|(connection, ..)| connection.clone())
    }

    fn connection(&mut self, node: NodeId) -> &mut NodeConnection {
        if self.connections.len() <= node {
            self.connections.resize_with(node + 1, NodeConnection::default);
        }
        &mut self.connections[node]
    }

    fn dial(&mut self, node: NodeId, generation: u64, address: Address, pause: Duration) {
        let (dialer, sentinels) = (Arc::clone(&self.dialer), self.sentinels.clone());
        let dialing = self.events.spawn(async move {
            sleep(pause).await;
            let outcome = match sentinels {
                None => dialer.open(&address).await.map(|opened| (address, opened)),
                Some(sentinels) => sentinels.open_primary(&dialer).await,
            };
            Event::Connected { node, generation, outcome }
        });
        if let Some(earlier) = self.connection(node).dialing.replace(dialing) {
            earlier.abort();
        }
    }

    fn use_opened(&mut self, node: NodeId, generation: u64) {
        let Some(OpenConnection { connection, driver, .. }) = self.opened.take() else { return };
        let keeps = self.events.spawn(async move {
            driver.await;
            Event::Lost { node, generation }
        });
        *self.connection(node) =
            NodeConnection { dialing: None, open: Some((connection, keeps, generation)) };
    }

    fn send(&mut self, node: NodeId, number: u64, pipeline: Pipeline) {
        let Some((connection, _, generation)) = &self.connection(node).open else { return };
        let (connection, generation) = (connection.clone(), *generation);
        self.events.spawn(async move {
            let replies = pipeline.send(connection).await;
            Event::Answered { node, generation, number, pipeline, replies }
        });
    }

    /// Serves an alarm, after everything that the nodes have answered was read: this thread may have been kept from
    /// running, and then it is not the nodes that are late.
    async fn ring(&mut self) {
        loop {
            // One pass for the sockets, one for the tasks that they wake.
            task::yield_now().await;
            task::yield_now().await;
            if !self.drain_events() {
                break;
            }
        }
        let now = Instant::now();
        if let Some(due) = self.router.alarm()
            && self.lag.is_on_time(due, now)
        {
            self.router.on_alarm(now);
        }
    }
}

impl Drop for NodeConnection {
    fn drop(&mut self) {
        let tasks = self.dialing.iter().chain(self.open.iter().map(|(_, keeps, _)| keeps));
        tasks.for_each(AbortHandle::abort);
    }
}

fn failure(error: DialError) -> ConnectFailure {
    let misconfigured = Misconfigured::of(&error).is_some();
    ConnectFailure { source: Cause::new(error), misconfigured }
}

/// Puts alarms off by the time that this thread was kept from running: a busy machine is not a silent node.
#[derive(Debug)]
struct Lag {
    deadline: Duration,
    put_off_until: Option<Instant>,
}

impl Lag {
    fn put_off(&self, due: Instant) -> Instant {
        self.put_off_until.map_or(due, |until| until.max(due))
    }

    /// Returns true if an alarm may be served at `now`. Otherwise it is put off by the time that it is late.
    fn is_on_time(&mut self, due: Instant, now: Instant) -> bool {
        let late = now.saturating_duration_since(self.put_off(due));
        let on_time = late <= LAG_MIN || now.saturating_duration_since(due) >= LAG_MAX;
        self.put_off_until = (!on_time).then(|| now + late.min(self.deadline));
        on_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_wait_for_as_long_as_the_thread_did() {
        let (due, deadline) = (Instant::now(), Duration::from_millis(50));
        let after = |millis| due + Duration::from_millis(millis);
        let mut lag = Lag { deadline, put_off_until: None };
        assert!(lag.is_on_time(due, after(1)));
        assert!(!lag.is_on_time(due, after(20)));
        assert_eq!(lag.put_off(due), after(40));
        assert!(!lag.is_on_time(due, after(300)), "the thread was kept from running again");
        assert_eq!(lag.put_off(due), after(350), "a deadline later at most");
        assert!(lag.is_on_time(due, after(351)));
        assert!(lag.is_on_time(due, after(1000)), "not for ever");
    }
}

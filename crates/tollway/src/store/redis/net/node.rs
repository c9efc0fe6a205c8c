//! One Redis node: whether calls can be sent to it, which calls wait for it, and which are in flight.
//!
//! ```text
//! Connecting ── connected ──> Up ── lost ──> Connecting, or Unreachable if it was up for a moment only
//!      └──── failed ──> Unreachable: calls fail at once, and the circuit breaker says when to dial again
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;
use tollway_core::{Backoff, CircuitBreaker};

use super::jitter::{random, up_to};
use super::pending::{PendingCall, ReplySlot};
use super::pipeline::{PIPELINE_CALLS, Pipeline};
use super::stall::PipelinesInFlight;
use crate::cause::Cause;
use crate::store::redis::{Address, StoreError};
use crate::store::{NodeHealth, NodeState};

/// The index that identifies a node.
pub(super) type NodeId = usize;

/// The number of writes that may be in flight to one node. Later calls wait in the queue, where they join one write,
/// and where they are dropped unsent if they are given up.
const IN_FLIGHT_MAX: usize = 8;

/// A connection that was idle for this time is pinged, so that its end is noticed before a call needs it.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// A connection that dies within this time counts as a failed attempt, so the next one waits for the backoff.
const MIN_LIFETIME: Duration = Duration::from_secs(1);

/// The spread of reconnections: all processes that share a server lose it at the same moment. It is short, because
/// pending calls have no more than a deadline.
const RECONNECT_SPREAD: Duration = Duration::from_millis(4);

/// The pauses between two attempts to reach a node: a node that is back is found well within two seconds.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(800));

/// The shortest time between two log lines about refused calls. Every call may be refused until somebody gives Redis
/// memory, or us a permission.
const REFUSAL_LOG_EVERY: Duration = Duration::from_secs(60);

/// One node, with the calls that wait for it.
#[derive(Debug)]
pub(super) struct Node {
    address: Address,
    status: Status,
    breaker: CircuitBreaker,
    /// The number of the newest connection or attempt, so that events of an earlier one are ignored.
    generation: u64,
    queue: VecDeque<PendingCall>,
    /// The time when the first queued call may have to be given up; perhaps too early, never too late.
    queue_due: Option<Instant>,
    in_flight: Vec<InFlight>,
    /// True if the node has no slots any more: it is closed when nothing is in flight.
    retired: bool,
    refusal_logged: Option<Instant>,
    deadline: Duration,
}

#[derive(Debug)]
enum Status {
    Connecting,
    Up { opened: Instant, used: Instant, pipelines: PipelinesInFlight },
    Unreachable { since: Instant, reason: String, misconfigured: bool },
}

/// The calls of a pipeline that was sent.
#[derive(Debug)]
struct InFlight {
    number: u64,
    generation: u64,
    calls: Vec<PendingCall>,
    /// The time when a call is late, until all were given up.
    due: Option<Instant>,
}

/// The need of a connection whose alarm has rung.
#[derive(Debug, PartialEq)]
pub(super) enum NodeAlarm {
    /// Nothing but giving up calls.
    Nothing,
    /// The connection was idle.
    Ping,
    /// The connection is stalled.
    Stalled,
}

impl Node {
    pub(super) fn new(address: Address, deadline: Duration) -> Self {
        Self {
            address,
            status: Status::Connecting,
            breaker: CircuitBreaker::new(1, PAUSES),
            generation: 0,
            queue: VecDeque::new(),
            queue_due: None,
            in_flight: Vec::new(),
            retired: false,
            refusal_logged: None,
            deadline,
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.status, Status::Up { .. })
    }

    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.status, Status::Connecting)
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired
    }

    /// Returns the time since when the node has been unreachable.
    pub(super) fn unreachable_since(&self) -> Option<Instant> {
        match self.status {
            Status::Unreachable { since, .. } => Some(since),
            Status::Connecting | Status::Up { .. } => None,
        }
    }

    /// Queues a call, or returns its slot if the circuit is open.
    pub(super) fn enqueue(&mut self, mut call: PendingCall, now: Instant) -> Option<ReplySlot> {
        match self.status {
            Status::Unreachable { .. } => return Some(call.slot),
            Status::Connecting => call.start_deadline(now, self.deadline),
            Status::Up { .. } => {}
        }
        self.queue_due = Some(self.queue_due.map_or(call.due(), |due| due.min(call.due())));
        self.queue.push_back(call);
        None
    }

    /// Returns true if a pipeline can be sent now.
    pub(super) fn has_work(&self) -> bool {
        let Status::Up { pipelines, .. } = &self.status else { return false };
        !self.queue.is_empty() && pipelines.in_flight() < IN_FLIGHT_MAX
    }

    /// Takes the next pipeline off the queue, without calls that nobody awaits. It is in flight from now on.
    pub(super) fn next_pipeline(
        &mut self,
        number: u64,
        now: Instant,
        is_awaited: impl FnMut(&PendingCall) -> bool,
    ) -> Option<Pipeline> {
        if !self.has_work() {
            return None;
        }
        let deadline = self.deadline;
        let taken = self.queue.drain(..self.queue.len().min(PIPELINE_CALLS)).filter(is_awaited);
        let mut calls: Vec<_> = taken.collect();
        if self.queue.is_empty() {
            self.queue_due = None;
        }
        if calls.is_empty() {
            return None;
        }
        calls.iter_mut().for_each(|call| call.start_deadline(now, deadline));
        let pipeline = Pipeline::pack(&mut calls);
        self.sent(number, calls, now);
        Some(pipeline)
    }

    /// Records a pipeline that is sent now.
    pub(super) fn sent(&mut self, number: u64, calls: Vec<PendingCall>, now: Instant) {
        let Status::Up { used, pipelines, .. } = &mut self.status else { return };
        pipelines.sent(now);
        *used = now;
        let due = calls.iter().map(PendingCall::due).min();
        self.in_flight.push(InFlight { number, generation: self.generation, calls, due });
    }

    /// Records the end of a pipeline, and returns the calls that were in it.
    pub(super) fn answered(&mut self, number: u64, now: Instant) -> Vec<PendingCall> {
        let Some(position) = self.in_flight.iter().position(|pipeline| pipeline.number == number) else {
            return Vec::new();
        };
        let InFlight { generation, calls, .. } = self.in_flight.remove(position);
        if let Status::Up { pipelines, .. } = &mut self.status
            && generation == self.generation
        {
            pipelines.answered(now);
        }
        calls
    }

    /// Begins a connection attempt with this number.
    pub(super) fn dialing(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// Records that the connection is open.
    pub(super) fn connected(&mut self, address: Address, now: Instant) {
        if let Status::Unreachable { since, .. } = self.status {
            tracing::info!(after = ?now - since, "redis {address} is reachable again; circuit closed");
        }
        self.address = address;
        self.status = Status::Up { opened: now, used: now, pipelines: PipelinesInFlight::new(self.deadline) };
    }

    /// Records that the connection is gone, and returns the pause before the next attempt: `Err` if the connection was
    /// open so shortly that the node counts as unreachable.
    pub(super) fn lost(&mut self, now: Instant) -> Result<Duration, Duration> {
        let lived = match self.status {
            Status::Up { opened, .. } => now - opened,
            Status::Connecting | Status::Unreachable { .. } => Duration::ZERO,
        };
        self.status = Status::Connecting;
        self.queue.iter_mut().for_each(|call| call.start_deadline(now, self.deadline));
        self.queue_due = self.queue.iter().map(PendingCall::due).min();
        if lived < MIN_LIFETIME {
            return Err(self.failed(now));
        }
        self.breaker.record_success();
        Ok(up_to(RECONNECT_SPREAD))
    }

    /// Counts a failed attempt, and returns the pause before the next one.
    pub(super) fn failed(&mut self, now: Instant) -> Duration {
        self.breaker.record_failure(now.into_std(), random()).unwrap_or_default()
    }

    /// Opens the circuit: calls fail until a connection is open. Returns the calls that waited. An outage is logged
    /// when it begins, and a mistake in the configuration when it is first seen.
    pub(super) fn set_unreachable(
        &mut self,
        source: &Cause,
        misconfigured: bool,
        now: Instant,
    ) -> VecDeque<PendingCall> {
        let reason = source.to_string();
        let before = match &self.status {
            Status::Unreachable { since, misconfigured, .. } => Some((*since, *misconfigured)),
            Status::Connecting | Status::Up { .. } => None,
        };
        match before {
            _ if misconfigured && before.is_none_or(|(_, known)| !known) => {
                tracing::error!(%reason, "redis {} refuses the connection; correct the store's settings", self.address);
            }
            None => tracing::warn!(%reason, "redis {} is unreachable; circuit open, probing", self.address),
            Some(_) => {}
        }
        let since = before.map_or(now, |(since, _)| since);
        self.status = Status::Unreachable { since, reason, misconfigured };
        self.queue_due = None;
        std::mem::take(&mut self.queue)
    }

    /// Returns the time when [`on_alarm`](Self::on_alarm) has something to do.
    pub(super) fn alarm(&self) -> Option<Instant> {
        let connection = match &self.status {
            Status::Up { used, pipelines, .. } => pipelines.stalled_at().or(Some(*used + IDLE_MAX)),
            Status::Connecting | Status::Unreachable { .. } => None,
        };
        let in_flight = self.in_flight.iter().filter_map(|pipeline| self.late_at(pipeline));
        in_flight.chain(connection).chain(self.queue_due).min()
    }

    /// Calls `give_up` for each call that is due, and returns what the connection needs.
    pub(super) fn on_alarm(&mut self, now: Instant, mut give_up: impl FnMut(&PendingCall)) -> NodeAlarm {
        for index in 0..self.in_flight.len() {
            if self.late_at(&self.in_flight[index]).is_none_or(|late_at| late_at > now) {
                continue;
            }
            let pipeline = &mut self.in_flight[index];
            pipeline.calls.iter().filter(|call| call.due() <= now).for_each(&mut give_up);
            pipeline.due = pipeline.calls.iter().map(PendingCall::due).filter(|due| *due > now).min();
        }
        if self.queue_due.is_some_and(|due| due <= now) {
            self.queue.iter().filter(|call| call.due() <= now).for_each(&mut give_up);
            self.queue.retain(|call| call.due() > now);
            self.queue_due = self.queue.iter().map(PendingCall::due).min();
        }
        match &self.status {
            Status::Up { pipelines, .. } if pipelines.stalled_at().is_some_and(|at| at <= now) => {
                NodeAlarm::Stalled
            }
            Status::Up { used, pipelines, .. } if pipelines.in_flight() == 0 && *used + IDLE_MAX <= now => {
                NodeAlarm::Ping
            }
            _ => NodeAlarm::Nothing,
        }
    }

    /// Returns the time when a pipeline is late. A node that answers those before it is not silent.
    fn late_at(&self, pipeline: &InFlight) -> Option<Instant> {
        let silent = match &self.status {
            Status::Up { pipelines, .. } if pipeline.generation == self.generation => pipelines.late_at(),
            _ => None,
        };
        pipeline.due.map(|due| silent.map_or(due, |silent| silent.max(due)))
    }

    /// Sets whether the node has slots. Returns the calls that wait for a connection that is not open: another node may
    /// have their slots now.
    pub(super) fn set_retired(&mut self, retired: bool) -> VecDeque<PendingCall> {
        self.retired = retired;
        if self.is_up() { VecDeque::new() } else { self.take_queue() }
    }

    /// Returns true if the node was retired and has slots again, so that it must be dialed.
    pub(super) fn revive(&mut self) -> bool {
        let dials = std::mem::replace(&mut self.retired, false) && !self.is_up();
        if dials {
            self.status = Status::Connecting;
        }
        dials
    }

    pub(super) fn take_queue(&mut self) -> VecDeque<PendingCall> {
        self.queue_due = None;
        std::mem::take(&mut self.queue)
    }

    /// Closes a retired node that nothing waits for. Returns true if it is closed.
    pub(super) fn close_if_retired(&mut self) -> bool {
        let closes = self.retired && self.queue.is_empty() && self.in_flight.is_empty();
        if closes {
            self.status = Status::Connecting;
            self.breaker.record_success();
        }
        closes
    }

    /// Returns true if another node can have the place of this one.
    pub(super) fn is_gone(&self) -> bool {
        self.retired && !self.is_up() && self.in_flight.is_empty() && self.queue.is_empty()
    }

    /// Records a refused call, and logs it once a minute.
    pub(super) fn refused(&mut self, reason: String, now: Instant) -> StoreError {
        if self.logs_refusal(now) {
            tracing::warn!(%reason, "redis {} refuses calls", self.address);
        }
        StoreError::Refused { address: self.address.to_string(), reason }
    }

    fn logs_refusal(&mut self, now: Instant) -> bool {
        let logs = self.refusal_logged.is_none_or(|last| now - last >= REFUSAL_LOG_EVERY);
        if logs {
            self.refusal_logged = Some(now);
        }
        logs
    }

    pub(super) fn circuit_open(&self) -> StoreError {
        StoreError::CircuitOpen { address: self.address.to_string() }
    }

    pub(super) fn unreachable(&self, source: Cause) -> StoreError {
        StoreError::Unreachable { address: self.address.to_string(), source }
    }

    pub(super) fn health(&self) -> NodeHealth {
        let state = match &self.status {
            Status::Connecting => NodeState::Opening,
            Status::Up { .. } => NodeState::Up,
            Status::Unreachable { since, reason, .. } => {
                NodeState::Unreachable { since: since.into_std(), reason: reason.clone() }
            }
        };
        NodeHealth { address: self.address.to_string(), state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_logged_once_a_minute() {
        let mut node = Node::new(Address { host: "h".to_owned(), port: 1 }, Duration::from_millis(50));
        let began = Instant::now();
        let logged =
            [0, 1, 59, 60, 61, 119, 120].map(|second| node.logs_refusal(began + Duration::from_secs(second)));
        assert_eq!(logged, [true, false, false, true, false, false, true]);
    }
}

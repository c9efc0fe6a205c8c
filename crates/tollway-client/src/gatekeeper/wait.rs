//! A request that waits for its time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::{Instant, sleep_until};
use tollway_core::Timestamp;

use super::delay_table::{IdentifierHash, QueueOutcome, QueuePosition, QueueStatus};
use super::shared::{Shared, reject};
use super::{Admission, AdmissionDecision};

/// The longest timer. A longer wait sets another one.
const TIMER_MAX: Duration = Duration::from_secs(3600);

/// A request that must wait. It counts towards `max_delayed` until it is dropped; dropping it gives up.
#[derive(Debug)]
#[must_use = "a wait that is dropped is given up"]
pub struct Wait {
    shared: Arc<Shared>,
    key: IdentifierHash,
    arrived: Timestamp,
    until: Timestamp,
    state: WaitState,
}

/// The state that a wait is in.
#[derive(Debug)]
pub(super) enum WaitState {
    /// The request has a slot, which was reported to the master.
    Slot,
    /// The request is queued for a slot, or passes without one.
    Queued { position: QueuePosition, request: Arc<DelayedRequest>, outcome: oneshot::Receiver<QueueOutcome> },
    /// The queue is gone: the request passes when its time comes.
    Dequeued { request: Arc<DelayedRequest> },
    /// The slot would be too late.
    Rejected,
}

/// The side of a queued request that the delay table holds.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) request: Arc<DelayedRequest>,
    pub(super) outcome: oneshot::Sender<QueueOutcome>,
}

/// The parts of a request that are reported to the master.
#[derive(Debug)]
pub(super) struct DelayedRequest {
    pub(super) identifier: Box<[u8]>,
    pub(super) log_info: Box<[u8]>,
    pub(super) received: u64,
}

impl Waiter {
    /// Creates a waiter, and the two parts of it that the wait keeps.
    pub(super) fn new(
        identifier: &[u8],
        log_info: &[u8],
        received: u64,
    ) -> (Self, Arc<DelayedRequest>, oneshot::Receiver<QueueOutcome>) {
        let request = DelayedRequest { identifier: identifier.into(), log_info: log_info.into(), received };
        let (request, (outcome, receiver)) = (Arc::new(request), oneshot::channel());
        (Self { request: Arc::clone(&request), outcome }, request, receiver)
    }

    /// Sends the outcome to the wait. If it is given up in this moment, its slot stays unused.
    pub(super) fn settle((waiter, outcome): (Self, QueueOutcome)) -> (Arc<DelayedRequest>, QueueOutcome) {
        let _ = waiter.outcome.send(outcome);
        (waiter.request, outcome)
    }
}

impl Wait {
    pub(super) fn new(
        shared: Arc<Shared>,
        key: IdentifierHash,
        arrived: Timestamp,
        until: Timestamp,
        state: WaitState,
    ) -> Self {
        Self { shared, key, arrived, until, state }
    }

    /// Returns the time at which to call [`check`](Self::check). It may get later, if earlier requests still wait then.
    pub fn until(&self) -> std::time::Instant {
        self.timer().into_std()
    }

    /// Returns the same time by the clock of the simulator.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn until_steady(&self) -> Timestamp {
        self.until
    }

    fn timer(&self) -> Instant {
        let soon = || Instant::now() + TIMER_MAX;
        self.shared.clock.instant(self.until).unwrap_or_else(soon)
    }

    /// Decides again: the request passes, waits on, or is rejected because its slot is too late.
    pub fn check(mut self) -> AdmissionDecision {
        self.receive();
        let now = self.shared.clock.now();
        if let WaitState::Rejected = self.state {
            return reject(now, self.until);
        }
        if now.steady < self.until {
            return AdmissionDecision::Wait(self);
        }
        if let WaitState::Queued { position, request, .. } = &self.state {
            let request = Arc::clone(request);
            let status = self.shared.delays().status(self.key, *position, now.steady);
            match status {
                QueueStatus::Pass => self.state = WaitState::Dequeued { request },
                QueueStatus::Queued(until) => {
                    self.until = until;
                    return AdmissionDecision::Wait(self);
                }
                // Its outcome was sent in this moment.
                QueueStatus::Gone => return self.check(),
            }
        }
        if let WaitState::Dequeued { request } = &self.state {
            let until = now.to_wall(self.until);
            self.shared.delayed(request.received, until, &request.identifier, &request.log_info);
        }
        AdmissionDecision::Pass
    }

    /// Waits, with tokio's timers, until the request passes or is rejected.
    pub async fn finish(mut self) -> Admission {
        let (shared, arrived) = (Arc::clone(&self.shared), self.arrived);
        loop {
            self.sleep().await;
            match self.check() {
                AdmissionDecision::Wait(wait) => self = wait,
                AdmissionDecision::Pass => {
                    return Admission::Delayed { by: shared.clock.now().steady.since(arrived).into() };
                }
                AdmissionDecision::Reject { until, retry_after } => {
                    return Admission::Rejected { until, retry_after };
                }
            }
        }
    }

    /// Sleeps until the time has come or the outcome arrives.
    async fn sleep(&mut self) {
        let time = sleep_until(self.timer().min(Instant::now() + TIMER_MAX));
        let received = match &mut self.state {
            WaitState::Queued { outcome, .. } => tokio::select! {
                () = time => return,
                received = outcome => received.ok(),
            },
            WaitState::Slot | WaitState::Dequeued { .. } => return time.await,
            WaitState::Rejected => return,
        };
        self.settle(received);
    }

    /// Takes the outcome, if it has arrived.
    fn receive(&mut self) {
        if let WaitState::Queued { outcome, .. } = &mut self.state {
            match outcome.try_recv() {
                Ok(outcome) => self.settle(Some(outcome)),
                Err(TryRecvError::Closed) => self.settle(None),
                Err(TryRecvError::Empty) => {}
            }
        }
    }

    fn settle(&mut self, outcome: Option<QueueOutcome>) {
        match (outcome, &self.state) {
            (Some(QueueOutcome::Slot(until)), _) => (self.until, self.state) = (until, WaitState::Slot),
            (Some(QueueOutcome::Reject(until)), _) => (self.until, self.state) = (until, WaitState::Rejected),
            (None, WaitState::Queued { request, .. }) => {
                self.state = WaitState::Dequeued { request: Arc::clone(request) };
            }
            (None, _) => {}
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let position = match &self.state {
            WaitState::Queued { position, .. } => Some(*position),
            _ => None,
        };
        self.shared.delays().leave(self.key, position);
    }
}

//! The state that requests share with the thread that talks to the master.
//!
//! Requests never wait for that thread: every lock is held for a lookup in a table or the copy of a message.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use tollway_core::Timestamp;
use tollway_wire::smockron::{AccountingMessage, AccountingStatus, ControlMessage};

use super::accounting_queue::AccountingQueue;
use super::clock::{ClockReading, GatekeeperClock};
use super::delay_table::{DelayDecision, DelayTable, QueueOutcome};
use super::stats::{GatekeeperCounters, GatekeeperStats};
use super::wait::{DelayedRequest, WaitState, Waiter};
use super::{AdmissionDecision, GatekeeperBuilder, RejectedReports, Wait};

/// The number of past delays that one sweep removes, so that no request waits long for the lock.
const SWEPT_AT_ONCE: usize = 1_000;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) address: String,
    pub(super) domain: String,
    report_rejected: RejectedReports,
    pub(super) clock: GatekeeperClock,
    delays: Mutex<DelayTable<Waiter>>,
    /// True while there is no delay at all. It saves the lock.
    quiet: AtomicBool,
    pub(super) accounting: AccountingQueue,
    pub(super) counters: GatekeeperCounters,
}

impl Shared {
    pub(super) fn new(builder: GatekeeperBuilder, address: String) -> Self {
        Self {
            address,
            domain: builder.domain,
            report_rejected: builder.report_rejected,
            clock: GatekeeperClock::start(),
            delays: Mutex::new(DelayTable::new(builder.bounds)),
            quiet: AtomicBool::new(true),
            accounting: AccountingQueue::default(),
            counters: GatekeeperCounters::default(),
        }
    }

    pub(super) fn decide(shared: &Arc<Self>, identifier: &[u8], log_info: &[u8]) -> AdmissionDecision {
        let now = shared.clock.now();
        if shared.quiet.load(Ordering::Acquire) {
            shared.accepted(now, identifier, log_info);
            return AdmissionDecision::Pass;
        }
        let mut queued = None;
        let mut delays = shared.delays();
        let key = delays.hash(identifier);
        let decision = delays.decide(key, now.steady, || {
            let (waiter, request, outcome) = Waiter::new(identifier, log_info, now.millis());
            queued = Some((request, outcome));
            waiter
        });
        drop(delays);
        let wait = |until, state| {
            AdmissionDecision::Wait(Wait::new(Arc::clone(shared), key, now.steady, until, state))
        };
        match (decision, queued) {
            (DelayDecision::Pass, _) => {
                shared.accepted(now, identifier, log_info);
                AdmissionDecision::Pass
            }
            (DelayDecision::Slot(until), _) => {
                shared.delayed(now.millis(), now.to_wall(until), identifier, log_info);
                wait(until, WaitState::Slot)
            }
            (DelayDecision::Queue(until, position), Some((request, outcome))) => {
                wait(until, WaitState::Queued { position, request, outcome })
            }
            // It was queued a moment ago, so there is a waiter.
            (DelayDecision::Queue(until, _), None) => wait(until, WaitState::Slot),
            (DelayDecision::Reject(until), _) => {
                shared.rejected(now.millis(), identifier, log_info);
                reject(now, until)
            }
        }
    }

    /// Records a delay that the master published.
    pub(super) fn record(&self, control: &ControlMessage<'_>) {
        let now = self.clock.now();
        let mut delays = self.delays();
        let key = delays.hash(control.identifier);
        let settled = delays.record(key, now.local_time(control.delay_until), now.steady);
        self.quiet.store(delays.known() == 0, Ordering::Release);
        // While the table is locked: a request that is no longer queued finds its outcome.
        let settled: Vec<_> = settled.into_iter().map(Waiter::settle).collect();
        drop(delays);
        for (request, outcome) in settled {
            let DelayedRequest { identifier, log_info, received } = &*request;
            match outcome {
                QueueOutcome::Slot(until) => {
                    self.delayed(*received, now.to_wall(until), identifier, log_info)
                }
                QueueOutcome::Reject(_) => self.rejected(*received, identifier, log_info),
            }
        }
    }

    /// Starts a session with a master, after its connection was opened.
    pub(super) fn start_session(&self) {
        self.delays().start_session();
    }

    pub(super) fn sweep(&self) {
        let now = self.clock.now();
        let mut delays = self.delays();
        delays.sweep(now.steady, SWEPT_AT_ONCE);
        self.quiet.store(delays.known() == 0, Ordering::Release);
    }

    pub(super) fn stats(&self) -> GatekeeperStats {
        let (waiting, known) = {
            let delays = self.delays();
            (delays.waiting(), delays.known())
        };
        self.counters.read(waiting, known)
    }

    pub(super) fn delays(&self) -> MutexGuard<'_, DelayTable<Waiter>> {
        // Nothing in there panics halfway.
        self.delays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accepted(&self, now: ClockReading, identifier: &[u8], log_info: &[u8]) {
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        self.account(AccountingStatus::Accepted { received: now.millis() }, identifier, log_info);
    }

    pub(super) fn delayed(&self, received: u64, until: u64, identifier: &[u8], log_info: &[u8]) {
        self.counters.delayed.fetch_add(1, Ordering::Relaxed);
        self.account(AccountingStatus::Delayed { received, until }, identifier, log_info);
    }

    fn rejected(&self, received: u64, identifier: &[u8], log_info: &[u8]) {
        let before = self.counters.rejected.fetch_add(1, Ordering::Relaxed);
        let is_reported = match self.report_rejected {
            RejectedReports::All => true,
            RejectedReports::None => false,
            RejectedReports::OneIn(many) => before.is_multiple_of(u64::from(many.max(1))),
        };
        if is_reported {
            self.account(AccountingStatus::Rejected { received }, identifier, log_info);
        }
    }

    fn account(&self, status: AccountingStatus, identifier: &[u8], log_info: &[u8]) {
        let domain = self.domain.as_bytes();
        if !self.accounting.put(&AccountingMessage { domain, status, identifier, log_info }) {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the rejection of a request that would pass at `until`.
pub(super) fn reject(now: ClockReading, until: Timestamp) -> AdmissionDecision {
    let wall = UNIX_EPOCH.checked_add(Duration::from_millis(now.to_wall(until)));
    AdmissionDecision::Reject {
        until: wall.unwrap_or(UNIX_EPOCH),
        retry_after: until.since(now.steady).into(),
    }
}

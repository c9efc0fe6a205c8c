//! What requests and the thread that talks to the master have in common. Requests never wait for it: every lock is held for
//! a look into a table or the copying of a message.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use tollway_core::Timestamp;
use tollway_wire::smockron::{AccountingMessage, AccountingStatus, ControlMessage};

use super::book::{Book, Fate, Ruling};
use super::clock::{Clock, Now};
use super::counts::{Counts, Tally};
use super::outbox::Outbox;
use super::wait::{Request, Stand, Waiter};
use super::{Gate, GatekeeperBuilder, RejectedAccounting, Wait};

/// How many delays that are over are forgotten at a time, so that nobody waits for it.
const SWEPT_AT_ONCE: usize = 1_000;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) domain: String,
    rejected: RejectedAccounting,
    pub(super) clock: Clock,
    book: Mutex<Book<Waiter>>,
    /// Nobody is delayed, which is seen without a lock.
    quiet: AtomicBool,
    pub(super) outbox: Outbox,
    pub(super) tally: Tally,
}

impl Shared {
    pub(super) fn new(builder: GatekeeperBuilder) -> Self {
        Self {
            domain: builder.domain,
            rejected: builder.rejected,
            clock: Clock::start(),
            book: Mutex::new(Book::new(builder.bounds)),
            quiet: AtomicBool::new(true),
            outbox: Outbox::default(),
            tally: Tally::default(),
        }
    }

    pub(super) fn decide(shared: &Arc<Self>, identifier: &[u8], log_info: &[u8]) -> Gate {
        let now = shared.clock.now();
        if shared.quiet.load(Ordering::Acquire) {
            shared.accepted(now, identifier, log_info);
            return Gate::Pass;
        }
        let mut fate = None;
        let mut book = shared.book();
        let key = book.key(identifier);
        let ruling = book.decide(key, now.steady, || {
            let (waiter, request, told) = Waiter::new(identifier, log_info, now.millis());
            fate = Some((request, told));
            waiter
        });
        drop(book);
        let wait = |until, stand| Gate::Wait(Wait::new(Arc::clone(shared), key, now.steady, until, stand));
        match (ruling, fate) {
            (Ruling::Pass, _) => {
                shared.accepted(now, identifier, log_info);
                Gate::Pass
            }
            (Ruling::Place(until), _) => {
                shared.delayed(now.millis(), now.called(until), identifier, log_info);
                wait(until, Stand::Place)
            }
            (Ruling::Line(until, ticket), Some((request, fate))) => {
                wait(until, Stand::Line { ticket, request, fate })
            }
            // It was put in line a moment ago, so there is a waiter.
            (Ruling::Line(until, _), None) => wait(until, Stand::Place),
            (Ruling::Reject(until), _) => {
                shared.rejected(now.millis(), identifier, log_info);
                reject(now, until)
            }
        }
    }

    /// The master said something.
    pub(super) fn told(&self, control: &ControlMessage<'_>) {
        let now = self.clock.now();
        let mut book = self.book();
        let key = book.key(control.identifier);
        let settled = book.told(key, now.heard(control.delay_until), now.steady);
        self.quiet.store(book.known() == 0, Ordering::Release);
        // While the book is locked: who is no longer in line knows why.
        let settled: Vec<_> = settled.into_iter().map(Waiter::tell).collect();
        drop(book);
        for (request, fate) in settled {
            let Request { identifier, log_info, received } = &*request;
            match fate {
                Fate::Place(until) => self.delayed(*received, now.called(until), identifier, log_info),
                Fate::Reject(_) => self.rejected(*received, identifier, log_info),
            }
        }
    }

    /// A master is there, again or for the first time.
    pub(super) fn met(&self) {
        self.book().met();
    }

    pub(super) fn sweep(&self) {
        let now = self.clock.now();
        let mut book = self.book();
        book.sweep(now.steady, SWEPT_AT_ONCE);
        self.quiet.store(book.known() == 0, Ordering::Release);
    }

    pub(super) fn counts(&self) -> Counts {
        let (waiting, known) = {
            let book = self.book();
            (book.waiting(), book.known())
        };
        self.tally.read(waiting, known)
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book<Waiter>> {
        // Nothing in there panics halfway.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accepted(&self, now: Now, identifier: &[u8], log_info: &[u8]) {
        self.tally.accepted.fetch_add(1, Ordering::Relaxed);
        self.account(AccountingStatus::Accepted { received: now.millis() }, identifier, log_info);
    }

    pub(super) fn delayed(&self, received: u64, until: u64, identifier: &[u8], log_info: &[u8]) {
        self.tally.delayed.fetch_add(1, Ordering::Relaxed);
        self.account(AccountingStatus::Delayed { received, until }, identifier, log_info);
    }

    fn rejected(&self, received: u64, identifier: &[u8], log_info: &[u8]) {
        let before = self.tally.rejected.fetch_add(1, Ordering::Relaxed);
        let is_told = match self.rejected {
            RejectedAccounting::Send => true,
            RejectedAccounting::Off => false,
            RejectedAccounting::OneIn(many) => before.is_multiple_of(u64::from(many.max(1))),
        };
        if is_told {
            self.account(AccountingStatus::Rejected { received }, identifier, log_info);
        }
    }

    fn account(&self, status: AccountingStatus, identifier: &[u8], log_info: &[u8]) {
        let domain = self.domain.as_bytes();
        if !self.outbox.put(&AccountingMessage { domain, status, identifier, log_info }) {
            self.tally.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Turned away, for as long as people are told.
pub(super) fn reject(now: Now, until: Timestamp) -> Gate {
    let wall = UNIX_EPOCH.checked_add(Duration::from_millis(now.called(until)));
    Gate::Reject { until: wall.unwrap_or(UNIX_EPOCH), retry_after: until.since(now.steady).into() }
}

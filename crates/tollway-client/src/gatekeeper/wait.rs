//! A request that waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::{Instant, sleep_until};
use tollway_core::Timestamp;

use super::book::{Fate, Key, Standing, Ticket};
use super::shared::{Shared, reject};
use super::{Admission, Gate};

/// How long a timer is set at most: a wait may be longer, and is looked at again then.
const TIMER_MAX: Duration = Duration::from_secs(3600);

/// A request that must wait. It counts towards `max_delayed` until it is dropped, which is also how to give up.
#[derive(Debug)]
#[must_use = "who drops it has given up"]
pub struct Wait {
    shared: Arc<Shared>,
    key: Key,
    came: Timestamp,
    until: Timestamp,
    stand: Stand,
}

/// Where it stands.
#[derive(Debug)]
pub(super) enum Stand {
    /// It has a place, and the master knows.
    Place,
    /// It will have one, or pass without.
    Line { ticket: Ticket, request: Arc<Request>, fate: oneshot::Receiver<Fate> },
    /// The line is gone: it passes when its time comes.
    Forgotten { request: Arc<Request> },
    /// It would be too late.
    TurnedAway,
}

/// One in line, as others see it.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) request: Arc<Request>,
    pub(super) fate: oneshot::Sender<Fate>,
}

/// What the master will be told.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) identifier: Box<[u8]>,
    pub(super) log_info: Box<[u8]>,
    pub(super) received: u64,
}

impl Waiter {
    /// And how it will be told its fate.
    pub(super) fn new(
        identifier: &[u8],
        log_info: &[u8],
        received: u64,
    ) -> (Self, Arc<Request>, oneshot::Receiver<Fate>) {
        let request = Request { identifier: identifier.into(), log_info: log_info.into(), received };
        let (request, (fate, told)) = (Arc::new(request), oneshot::channel());
        (Self { request: Arc::clone(&request), fate }, request, told)
    }

    /// Tells it. Whoever gives up in this very moment leaves a place that nobody takes.
    pub(super) fn tell((waiter, fate): (Self, Fate)) -> (Arc<Request>, Fate) {
        let _ = waiter.fate.send(fate);
        (waiter.request, fate)
    }
}

impl Wait {
    pub(super) fn new(
        shared: Arc<Shared>,
        key: Key,
        came: Timestamp,
        until: Timestamp,
        stand: Stand,
    ) -> Self {
        Self { shared, key, came, until, stand }
    }

    /// When to [`look`](Self::look) again. It may be later then, if requests that came before are still waiting.
    pub fn until(&self) -> std::time::Instant {
        self.timer().into_std()
    }

    fn timer(&self) -> Instant {
        let soon = || Instant::now() + TIMER_MAX;
        self.shared.clock.instant(self.until).unwrap_or_else(soon)
    }

    /// How it is now: its time has come, it must wait on, or it would take too long after all.
    pub fn look(mut self) -> Gate {
        self.hear();
        let now = self.shared.clock.now();
        if let Stand::TurnedAway = self.stand {
            return reject(now, self.until);
        }
        if now.steady < self.until {
            return Gate::Wait(self);
        }
        if let Stand::Line { ticket, request, .. } = &self.stand {
            let request = Arc::clone(request);
            let standing = self.shared.book().look(self.key, *ticket, now.steady);
            match standing {
                Standing::Pass => self.stand = Stand::Forgotten { request },
                Standing::Line(until) => {
                    self.until = until;
                    return Gate::Wait(self);
                }
                // It was told its fate in this moment.
                Standing::Gone => return self.look(),
            }
        }
        if let Stand::Forgotten { request } = &self.stand {
            let until = now.called(self.until);
            self.shared.delayed(request.received, until, &request.identifier, &request.log_info);
        }
        Gate::Pass
    }

    /// Waits until it is over, by tokio's timers.
    pub async fn over(mut self) -> Admission {
        let (shared, came) = (Arc::clone(&self.shared), self.came);
        loop {
            self.rest().await;
            match self.look() {
                Gate::Wait(wait) => self = wait,
                Gate::Pass => return Admission::Delayed { by: shared.clock.now().steady.since(came).into() },
                Gate::Reject { until, retry_after } => return Admission::Rejected { until, retry_after },
            }
        }
    }

    /// Until there is something to look at.
    async fn rest(&mut self) {
        let time = sleep_until(self.timer().min(Instant::now() + TIMER_MAX));
        let told = match &mut self.stand {
            Stand::Line { fate, .. } => tokio::select! {
                () = time => return,
                told = fate => told.ok(),
            },
            Stand::Place | Stand::Forgotten { .. } => return time.await,
            Stand::TurnedAway => return,
        };
        self.settle(told);
    }

    /// Has it been told its fate?
    fn hear(&mut self) {
        if let Stand::Line { fate, .. } = &mut self.stand {
            match fate.try_recv() {
                Ok(fate) => self.settle(Some(fate)),
                Err(TryRecvError::Closed) => self.settle(None),
                Err(TryRecvError::Empty) => {}
            }
        }
    }

    fn settle(&mut self, fate: Option<Fate>) {
        match (fate, &self.stand) {
            (Some(Fate::Place(until)), _) => (self.until, self.stand) = (until, Stand::Place),
            (Some(Fate::Reject(until)), _) => (self.until, self.stand) = (until, Stand::TurnedAway),
            (None, Stand::Line { request, .. }) => {
                self.stand = Stand::Forgotten { request: Arc::clone(request) };
            }
            (None, _) => {}
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let ticket = match &self.stand {
            Stand::Line { ticket, .. } => Some(*ticket),
            _ => None,
        };
        self.shared.book().leave(self.key, ticket);
    }
}

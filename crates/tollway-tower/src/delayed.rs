//! Delays requests that are over their limit until it is their turn, instead of rejecting them.
//!
//! ```
//! use std::time::Duration;
//! use tollway::Limiter;
//! use tollway_tower::{AdmissionLayer, Delayed, LocalLimit};
//!
//! let limiter = Limiter::from_yaml("limits: { PerClient: { burst: 10, count: 5, period: 1s } }")?;
//! let limit = LocalLimit::new(limiter, "PerClient")?;
//! let layer = AdmissionLayer::new(Delayed::new(limit, Duration::from_secs(2)).max_delayed(500));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A wait is a timer, and it ends when the client disconnects. Requests of one client pass in the order in which they
//! came. A request that cannot pass before the longest delay is rejected at once.

mod queue;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::time::{Instant, sleep_until, timeout_at};
use tollway_core::Decision;

use self::queue::{DelayQueues, QueuedRequest};
use crate::LogInfo;
use crate::admit::{Admit, AdmitFuture, AdmitOutcome, AdmitReply};

/// The default for the number of requests that may wait at a time. Each keeps its request in memory meanwhile.
pub const DEFAULT_MAX_DELAYED: usize = 1_000;
/// The longest delay: a day. A moment that lies farther ahead may be more than a clock can express.
const MAX_DELAY: Duration = Duration::from_secs(86_400);
/// The shortest wait: timers of tokio have a resolution of one millisecond.
const TICK: Duration = Duration::from_millis(1);

/// Makes requests that `A` rejects wait and try again, up to a longest delay. It needs a tokio runtime with timers.
///
/// A gatekeeper delays by itself and needs no such wrapper.
pub struct Delayed<A> {
    inner: Arc<DelayedInner<A>>,
}

struct DelayedInner<A> {
    admit: A,
    max_delay: Duration,
    queues: DelayQueues,
}

impl<A: Admit> Delayed<A> {
    /// Delays a request that `admit` rejects, if it can pass within `max_delay`, which is at most a day.
    pub fn new(admit: A, max_delay: Duration) -> Self {
        Self {
            inner: Arc::new(DelayedInner {
                admit,
                max_delay: max_delay.min(MAX_DELAY),
                queues: DelayQueues::new(DEFAULT_MAX_DELAYED),
            }),
        }
    }

    /// Sets the number of requests that may wait at a time, of all clients together (default: 1000).
    ///
    /// Further requests are rejected.
    pub fn max_delayed(self, max: usize) -> Self {
        self.inner.queues.set_max(max);
        self
    }
}

/// Clones share their queues: requests that wait at one clone hold up those at another.
impl<A> Clone for Delayed<A> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<A: fmt::Debug> fmt::Debug for Delayed<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DelayedInner { admit, max_delay, queues } = &*self.inner;
        f.debug_struct("Delayed")
            .field("admit", admit)
            .field("max_delay", max_delay)
            .field("waiting", &queues.waiting())
            .finish()
    }
}

impl<A: Admit> Admit for Delayed<A> {
    fn admit(&self, id: &[u8]) -> AdmitFuture {
        self.admit_with(id, |admit| admit.admit(id))
    }

    fn admit_with_log_info(&self, id: &[u8], log_info: &LogInfo<'_>) -> AdmitFuture {
        self.admit_with(id, |admit| admit.admit_with_log_info(id, log_info))
    }

    fn add_headers(&self, id: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        self.inner.admit.add_headers(id, decision, headers);
    }

    fn status(&self) -> StatusCode {
        self.inner.admit.status()
    }

    fn waiting(&self) -> usize {
        self.inner.queues.waiting()
    }

    fn interval(&self, id: &[u8]) -> Option<Duration> {
        self.inner.admit.interval(id)
    }
}

impl<A: Admit> Delayed<A> {
    fn admit_with(&self, id: &[u8], ask: impl FnOnce(&A) -> AdmitFuture) -> AdmitFuture {
        let inner = &self.inner;
        // A new request must queue behind those that wait, or it would overtake them.
        match inner.queues.join_existing(id, Instant::now() + inner.max_delay) {
            Some(Ok(queued)) => return AdmitFuture::Pending(Box::pin(Arc::clone(inner).wait(queued, None))),
            Some(Err(retry_after)) => return AdmitFuture::Ready(rejected(retry_after)),
            None => {}
        }
        let pending = match ask(&inner.admit) {
            AdmitFuture::Ready(reply) => return DelayedInner::delay_if_rejected(inner, id, reply),
            AdmitFuture::Pending(pending) => pending,
        };
        let (inner, id) = (Arc::clone(inner), id.to_vec());
        AdmitFuture::Pending(Box::pin(async move {
            let reply = pending.await;
            DelayedInner::delay_if_rejected(&inner, &id, reply).reply().await
        }))
    }
}

impl<A: Admit> DelayedInner<A> {
    /// Returns the reply, or queues the request if the reply is a rejection that a wait can lift.
    fn delay_if_rejected(this: &Arc<Self>, id: &[u8], reply: AdmitReply) -> AdmitFuture {
        let AdmitOutcome::Rejected { retry_after: Some(retry_after) } = reply.outcome else {
            return AdmitFuture::Ready(reply);
        };
        if retry_after > this.max_delay {
            return AdmitFuture::Ready(reply);
        }
        let now = Instant::now();
        let at = now + retry_after.max(TICK);
        let interval = this.admit.interval(id).unwrap_or_default();
        match this.queues.join_or_create(id, at, interval, now + this.max_delay) {
            Some(queued) => AdmitFuture::Pending(Box::pin(Arc::clone(this).wait(queued, Some(at)))),
            None => AdmitFuture::Ready(reply),
        }
    }

    /// Waits until the request is first in its queue and may pass, or until the deadline.
    async fn wait(self: Arc<Self>, queued: QueuedRequest, mut at: Option<Instant>) -> AdmitReply {
        let began = Instant::now();
        let deadline = began + self.max_delay;
        let Ok(_turn) = timeout_at(deadline, queued.wait_for_turn()).await else {
            return rejected(queued.next_expected_at().saturating_duration_since(deadline));
        };
        loop {
            if let Some(at) = at {
                sleep_until(at).await;
            }
            let reply = self.admit.admit(queued.id()).reply().await;
            match reply.outcome {
                AdmitOutcome::Passed => {
                    let outcome = AdmitOutcome::Delayed { by: began.elapsed() };
                    return AdmitReply { outcome, ..reply };
                }
                AdmitOutcome::Rejected { retry_after: Some(wait) } if Instant::now() + wait <= deadline => {
                    let again = Instant::now() + wait.max(TICK);
                    queued.set_expected_at(again);
                    at = Some(again);
                }
                _ => return reply,
            }
        }
    }
}

fn rejected(retry_after: Duration) -> AdmitReply {
    AdmitOutcome::Rejected { retry_after: Some(retry_after) }.into()
}

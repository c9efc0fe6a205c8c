//! Requests that come too fast wait for their turn, instead of being rejected.
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
//! A wait is a timer, and whoever hangs up stops waiting. Requests of one id pass in the order they came, and one that
//! could not pass in time is rejected at once: it does not wait in vain.

mod queue;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::time::{Instant, sleep_until, timeout_at};
use tollway_core::Decision;

use self::queue::{DelayQueues, QueuedRequest};
use crate::admit::{Admit, AdmitFuture, AdmitOutcome, AdmitReply};

/// How many may wait at a time unless told otherwise. Each keeps its request in memory meanwhile.
pub const DEFAULT_MAX_DELAYED: usize = 1_000;
/// The shortest wait: a timer has no finer.
const TICK: Duration = Duration::from_millis(1);

/// Asks again when the time has come, up to a longest delay. Needs tokio's timers.
///
/// A gatekeeper delays by itself, and needs none of this.
pub struct Delayed<A> {
    inner: Arc<Inner<A>>,
}

struct Inner<A> {
    admit: A,
    max_delay: Duration,
    queues: DelayQueues,
}

impl<A: Admit> Delayed<A> {
    /// What `admit` would reject waits, if it is for no longer than `max_delay`.
    pub fn new(admit: A, max_delay: Duration) -> Self {
        Self { inner: Arc::new(Inner { admit, max_delay, queues: DelayQueues::new(DEFAULT_MAX_DELAYED) }) }
    }

    /// So many may wait at a time, of all identifiers together. Further ones are rejected.
    pub fn max_delayed(self, max: usize) -> Self {
        self.inner.queues.set_max(max);
        self
    }

    /// How many wait now.
    pub fn waiting(&self) -> usize {
        self.inner.queues.waiting()
    }
}

/// The same one: those who wait at a clone wait in the same line.
impl<A> Clone for Delayed<A> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<A: Admit> Admit for Delayed<A> {
    const STATUS: StatusCode = A::STATUS;

    fn admit(&self, id: &[u8]) -> AdmitFuture {
        let inner = &self.inner;
        // Who comes while others wait for the same would overtake them.
        match inner.queues.join_existing(id, Instant::now() + inner.max_delay) {
            Some(Ok(queued)) => return AdmitFuture::Pending(Box::pin(Arc::clone(inner).wait(queued, None))),
            Some(Err(retry_after)) => return AdmitFuture::Ready(rejected(retry_after)),
            None => {}
        }
        let asking = match inner.admit.admit(id) {
            AdmitFuture::Ready(answer) => return Inner::consider(inner, id, answer),
            AdmitFuture::Pending(asking) => asking,
        };
        let (inner, id) = (Arc::clone(inner), id.to_vec());
        AdmitFuture::Pending(Box::pin(async move {
            let answer = asking.await;
            Inner::consider(&inner, &id, answer).answer().await
        }))
    }

    fn add_headers(&self, id: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        self.inner.admit.add_headers(id, decision, headers);
    }

    fn interval(&self, id: &[u8]) -> Option<Duration> {
        self.inner.admit.interval(id)
    }
}

impl<A: Admit> Inner<A> {
    /// Passes an answer on, or waits because of it.
    fn consider(this: &Arc<Self>, id: &[u8], answer: AdmitReply) -> AdmitFuture {
        let AdmitOutcome::Rejected { retry_after: Some(retry_after) } = answer.outcome else {
            return AdmitFuture::Ready(answer);
        };
        if retry_after > this.max_delay {
            return AdmitFuture::Ready(answer);
        }
        let now = Instant::now();
        let at = now + retry_after.max(TICK);
        let interval = this.admit.interval(id).unwrap_or_default();
        match this.queues.join(id, at, interval, now + this.max_delay) {
            Some(queued) => AdmitFuture::Pending(Box::pin(Arc::clone(this).wait(queued, Some(at)))),
            None => AdmitFuture::Ready(answer),
        }
    }

    /// Waits for its turn in line, and then until the time has come.
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
            let answer = self.admit.admit(queued.id()).answer().await;
            match answer.outcome {
                AdmitOutcome::Passed => {
                    let outcome = AdmitOutcome::Delayed { by: began.elapsed() };
                    return AdmitReply { outcome, ..answer };
                }
                AdmitOutcome::Rejected { retry_after: Some(wait) } if Instant::now() + wait <= deadline => {
                    let again = Instant::now() + wait.max(TICK);
                    queued.set_expected_at(again);
                    at = Some(again);
                }
                _ => return answer,
            }
        }
    }
}

impl AdmitFuture {
    async fn answer(self) -> AdmitReply {
        match self {
            Self::Ready(answer) => answer,
            Self::Pending(awaiting) => awaiting.await,
        }
    }
}

fn rejected(retry_after: Duration) -> AdmitReply {
    AdmitOutcome::Rejected { retry_after: Some(retry_after) }.into()
}

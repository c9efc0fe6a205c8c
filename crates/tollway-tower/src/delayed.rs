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
//! A wait is a timer, and whoever hangs up stops waiting. Requests of one identifier pass in the order they came, and one that
//! could not pass in time is rejected at once: it does not wait in vain.

mod line;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tokio::time::{Instant, sleep_until, timeout_at};
use tollway_core::Decision;

use self::line::{Lines, Place};
use crate::admit::{Admission, Admit, Answer, Asked};

/// How many may wait at a time unless told otherwise. Each keeps its request in memory meanwhile.
pub const MAX_DELAYED: usize = 1_000;
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
    lines: Lines,
}

impl<A: Admit> Delayed<A> {
    /// What `admit` would reject waits, if it is for no longer than `max_delay`.
    pub fn new(admit: A, max_delay: Duration) -> Self {
        Self { inner: Arc::new(Inner { admit, max_delay, lines: Lines::new(MAX_DELAYED) }) }
    }

    /// So many may wait at a time, of all identifiers together. Further ones are rejected.
    pub fn max_delayed(self, max: usize) -> Self {
        self.inner.lines.set_max(max);
        self
    }

    /// How many wait now.
    pub fn waiting(&self) -> usize {
        self.inner.lines.waiting()
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

    fn ask(&self, identifier: &[u8]) -> Asked {
        let inner = &self.inner;
        // Who comes while others wait for the same would overtake them.
        match inner.lines.follow(identifier, Instant::now() + inner.max_delay) {
            Some(Ok(place)) => return Asked::Awaiting(Box::pin(Arc::clone(inner).wait(place, None))),
            Some(Err(retry_after)) => return Asked::Answered(rejected(retry_after)),
            None => {}
        }
        let asking = match inner.admit.ask(identifier) {
            Asked::Answered(answer) => return Inner::consider(inner, identifier, answer),
            Asked::Awaiting(asking) => asking,
        };
        let (inner, identifier) = (Arc::clone(inner), identifier.to_vec());
        Asked::Awaiting(Box::pin(async move {
            let answer = asking.await;
            Inner::consider(&inner, &identifier, answer).answer().await
        }))
    }

    fn describe(&self, identifier: &[u8], decision: &Decision, headers: &mut HeaderMap) {
        self.inner.admit.describe(identifier, decision, headers);
    }

    fn interval(&self, identifier: &[u8]) -> Option<Duration> {
        self.inner.admit.interval(identifier)
    }
}

impl<A: Admit> Inner<A> {
    /// Passes an answer on, or waits because of it.
    fn consider(this: &Arc<Self>, identifier: &[u8], answer: Answer) -> Asked {
        let Admission::Rejected { retry_after: Some(retry_after) } = answer.admission else {
            return Asked::Answered(answer);
        };
        if retry_after > this.max_delay {
            return Asked::Answered(answer);
        }
        let now = Instant::now();
        let at = now + retry_after.max(TICK);
        let interval = this.admit.interval(identifier).unwrap_or_default();
        match this.lines.join(identifier, at, interval, now + this.max_delay) {
            Some(place) => Asked::Awaiting(Box::pin(Arc::clone(this).wait(place, Some(at)))),
            None => Asked::Answered(answer),
        }
    }

    /// Waits for its turn in line, and then until the time has come.
    async fn wait(self: Arc<Self>, place: Place, mut at: Option<Instant>) -> Answer {
        let began = Instant::now();
        let deadline = began + self.max_delay;
        let Ok(_turn) = timeout_at(deadline, place.turn()).await else {
            return rejected(place.expected().saturating_duration_since(deadline));
        };
        loop {
            if let Some(at) = at {
                sleep_until(at).await;
            }
            let answer = self.admit.ask(place.identifier()).answer().await;
            match answer.admission {
                Admission::Passed => {
                    let admission = Admission::Delayed { by: began.elapsed() };
                    return Answer { admission, ..answer };
                }
                Admission::Rejected { retry_after: Some(wait) } if Instant::now() + wait <= deadline => {
                    let again = Instant::now() + wait.max(TICK);
                    place.expect(again);
                    at = Some(again);
                }
                _ => return answer,
            }
        }
    }
}

impl Asked {
    async fn answer(self) -> Answer {
        match self {
            Self::Answered(answer) => answer,
            Self::Awaiting(awaiting) => awaiting.await,
        }
    }
}

fn rejected(retry_after: Duration) -> Answer {
    Admission::Rejected { retry_after: Some(retry_after) }.into()
}

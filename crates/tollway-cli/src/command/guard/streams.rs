//! Runs each HTTP/2 request as a task with a stall timeout of its own, because flow control is per stream: a client
//! that grants no window for one response takes nothing of it, however much its connection moves.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use hyper::rt::Executor;

use super::pace::{Pace, Patience};

tokio::task_local! {
    static STREAM: Arc<Taking>;
}

/// Runs requests until they are answered, or their client is too slow to take the answer.
#[derive(Clone)]
pub(super) struct Streams {
    pub(super) patience: Patience,
}

/// How a client takes an answer.
#[derive(Default)]
pub(super) struct Taking {
    given: AtomicU64,
    /// It has been given something, and has not asked for more.
    is_waited_for: AtomicBool,
}

impl Taking {
    /// That of the request which this is called for, if it has one to itself.
    pub(super) fn of_this_request() -> Option<Arc<Self>> {
        STREAM.try_with(Arc::clone).ok()
    }

    pub(super) fn asked(&self) {
        self.is_waited_for.store(false, Ordering::Relaxed);
    }

    pub(super) fn gave(&self, bytes: u64) {
        self.given.fetch_add(bytes, Ordering::Relaxed);
        self.is_waited_for.store(true, Ordering::Relaxed);
    }
}

impl<F: Future + Send + 'static> Executor<F> for Streams {
    fn execute(&self, request: F) {
        let (taking, pace) = (Arc::<Taking>::default(), Pace::new(self.patience.clone()));
        tokio::spawn(STREAM.scope(Arc::clone(&taking), attend(request, taking, pace)));
    }
}

/// To drop a request that is not over resets its stream.
async fn attend<F: Future>(request: F, taking: Arc<Taking>, mut pace: Pace) {
    let mut request = pin!(request);
    poll_fn(|context| {
        if request.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        if !taking.is_waited_for.load(Ordering::Relaxed) {
            pace.rest();
            return Poll::Pending;
        }
        pace.poll_too_slow(context, taking.given.load(Ordering::Relaxed))
    })
    .await;
}

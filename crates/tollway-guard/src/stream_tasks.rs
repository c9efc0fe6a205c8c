//! Runs each HTTP/2 request as a task with a stall timeout of its own, because flow control is per stream: a client
//! that grants no window for one response takes nothing of it, however much its connection moves.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use hyper::rt::Executor;

use crate::stall_timer::{StallTimeout, StallTimer};

tokio::task_local! {
    static STREAM: Arc<StreamProgress>;
}

/// Runs requests until they are answered, or until their client stops taking the answer.
#[derive(Clone)]
pub(crate) struct StreamTasks {
    pub(crate) timeout: StallTimeout,
}

/// The progress of a client that takes a response.
#[derive(Default)]
pub(crate) struct StreamProgress {
    given: AtomicU64,
    /// True if the client was given something, and has not asked for more.
    is_taking: AtomicBool,
}

impl StreamProgress {
    /// Returns the progress of the request that the caller runs for, if it has a task of its own.
    pub(crate) fn of_this_request() -> Option<Arc<Self>> {
        STREAM.try_with(Arc::clone).ok()
    }

    pub(crate) fn asked(&self) {
        self.is_taking.store(false, Ordering::Relaxed);
    }

    pub(crate) fn gave(&self, bytes: u64) {
        self.given.fetch_add(bytes, Ordering::Relaxed);
        self.is_taking.store(true, Ordering::Relaxed);
    }
}

impl<F: Future + Send + 'static> Executor<F> for StreamTasks {
    fn execute(&self, request: F) {
        let (progress, timer) = (Arc::<StreamProgress>::default(), StallTimer::new(self.timeout.clone()));
        tokio::spawn(STREAM.scope(Arc::clone(&progress), run(request, progress, timer)));
    }
}

/// Runs a request until it ends or its client stalls. Dropping a request before its end resets its stream.
async fn run<F: Future>(request: F, progress: Arc<StreamProgress>, mut timer: StallTimer) {
    let mut request = pin!(request);
    poll_fn(|cx| {
        if request.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !progress.is_taking.load(Ordering::Relaxed) {
            timer.stop();
            return Poll::Pending;
        }
        timer.poll_stalled(cx, progress.given.load(Ordering::Relaxed))
    })
    .await;
}

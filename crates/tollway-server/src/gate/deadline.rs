//! Tells when the deadline of a connection has passed.
//!
//! One timer per connection, which is moved only when it fires or would fire too late: a busy connection gets a new
//! deadline with every request, and touches the timer once a minute.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

pub(super) struct DeadlineTimer {
    timer: Pin<Box<Sleep>>,
}

impl DeadlineTimer {
    pub(super) fn new(first: Duration) -> Self {
        Self { timer: Box::pin(tokio::time::sleep(first)) }
    }

    /// Returns ready when `deadline` has passed.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        if self.timer.deadline().into_std() > deadline {
            self.timer.as_mut().reset(deadline.into());
        }
        while self.timer.as_mut().poll(context).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(deadline.into());
        }
        Poll::Pending
    }
}

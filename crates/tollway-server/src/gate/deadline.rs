//! Tells when the deadline of a connection has passed.
//!
//! One timer per connection, which is moved only when it fires or would fire too late: a busy connection gets a new
//! deadline with every request, and touches the timer once a minute.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::task::coop::has_budget_remaining;
use tokio::time::Sleep;

use super::connection::now;

pub(super) struct DeadlineTimer {
    timer: Pin<Box<Sleep>>,
    /// True once the timer wakes the task at its present time.
    is_polled: bool,
}

impl DeadlineTimer {
    pub(super) fn new(first: Duration) -> Self {
        Self { timer: Box::pin(tokio::time::sleep(first)), is_polled: false }
    }

    /// Returns ready when `deadline` has passed. A task has the same waker all its life, so a timer that wakes it need
    /// not be told again: every request waits for the next one here.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        if self.timer.deadline().into_std() > deadline {
            self.reset(deadline);
        }
        while !self.is_polled || self.timer.is_elapsed() {
            // A task that has used up its turn is told nothing but to come back: the timer does not know it yet.
            self.is_polled = has_budget_remaining();
            if self.timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if now() >= deadline {
                return Poll::Ready(());
            }
            self.reset(deadline);
        }
        Poll::Pending
    }

    fn reset(&mut self, deadline: Instant) {
        self.timer.as_mut().reset(deadline.into());
        self.is_polled = false;
    }
}

//! Waiting for a client, but not for ever.
//!
//! One timer per connection, moved only when it goes off or would go off too late: a busy connection pushes its
//! deadline with every request and touches the timer once a minute.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

pub(super) struct Patience {
    timer: Pin<Box<Sleep>>,
}

/// Why waiting ended without what was waited for.
pub(super) enum OutOfPatience {
    TooSlow,
    /// The connection is gone.
    Failed,
}

impl Patience {
    pub(super) fn new(first: Duration) -> Self {
        Self { timer: Box::pin(tokio::time::sleep(first)) }
    }

    /// Waits for bytes, or for what is made of them; `None` if `interrupt` comes first.
    pub(super) async fn read<T>(
        &mut self,
        until: Instant,
        read: impl Future<Output = io::Result<T>>,
        mut interrupt: Option<Pin<&mut impl Future<Output = ()>>>,
    ) -> Result<Option<T>, OutOfPatience> {
        let mut read = pin!(read);
        poll_fn(|context| {
            if let Poll::Ready(read) = read.as_mut().poll(context) {
                return Poll::Ready(read.map(Some).map_err(|_| OutOfPatience::Failed));
            }
            if let Some(interrupt) = &mut interrupt
                && interrupt.as_mut().poll(context).is_ready()
            {
                return Poll::Ready(Ok(None));
            }
            self.poll_late(context, until).map(|()| Err(OutOfPatience::TooSlow))
        })
        .await
    }

    /// Waits for room.
    pub(super) async fn write(
        &mut self,
        until: Instant,
        write: impl Future<Output = io::Result<()>>,
    ) -> Result<(), OutOfPatience> {
        let mut write = pin!(write);
        poll_fn(|context| match write.as_mut().poll(context) {
            Poll::Ready(written) => Poll::Ready(written.map_err(|_| OutOfPatience::Failed)),
            Poll::Pending => self.poll_late(context, until).map(|()| Err(OutOfPatience::TooSlow)),
        })
        .await
    }

    /// Ready when it is too late.
    fn poll_late(&mut self, context: &mut Context<'_>, until: Instant) -> Poll<()> {
        if self.timer.deadline().into_std() > until {
            self.timer.as_mut().reset(until.into());
        }
        while self.timer.as_mut().poll(context).is_ready() {
            if Instant::now() >= until {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(until.into());
        }
        Poll::Pending
    }
}

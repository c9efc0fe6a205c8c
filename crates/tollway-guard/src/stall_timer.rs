//! Ends the wait for a peer that makes no progress, or too little while other clients need its connection.
//!
//! A timer runs only while the peer is waited for: a connection that is quiet because nothing is due does not stall.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::bounds::SLOW_RATE;
use crate::permits::Permits;

/// The number of checks within one timeout.
const CHECKS: u32 = 6;

/// The resolution of timers.
const TICK: Duration = Duration::from_millis(1);

/// The time for which a peer may make no progress.
#[derive(Clone)]
pub(crate) struct StallTimeout {
    pub(crate) after: Duration,
    /// While all of these are in use, a peer below [`SLOW_RATE`] has stalled as well. `None` if nobody waits for it.
    pub(crate) permits: Option<Arc<Permits>>,
}

/// Watches the progress of one peer.
pub(crate) struct StallTimer {
    timeout: StallTimeout,
    check_every: Duration,
    is_running: bool,
    timer: Option<Pin<Box<Sleep>>>,
    /// The number of bytes at the last check, and the time since when it has not changed.
    moved: u64,
    since: Instant,
}

impl StallTimer {
    pub(crate) fn new(timeout: StallTimeout) -> Self {
        let check_every = (timeout.after / CHECKS).max(TICK);
        Self { timeout, check_every, is_running: false, timer: None, moved: 0, since: Instant::now() }
    }

    /// Makes two timers that check equally often, because either peer may be the one that is waited for.
    pub(crate) fn pair(one: StallTimeout, other: StallTimeout) -> (Self, Self) {
        let (mut one, mut other) = (Self::new(one), Self::new(other));
        let check_every = one.check_every.min(other.check_every);
        (one.check_every, other.check_every) = (check_every, check_every);
        (one, other)
    }

    /// Stops the timer: nothing is due from the peer now.
    pub(crate) fn stop(&mut self) {
        self.is_running = false;
    }

    /// Returns ready when the peer has stalled. `moved` is the number of bytes that it has sent or taken so far.
    pub(crate) fn poll_stalled(&mut self, cx: &mut Context<'_>, moved: u64) -> Poll<()> {
        if !self.is_running {
            (self.is_running, self.moved, self.since) = (true, moved, Instant::now());
            self.schedule_check();
        }
        loop {
            let Some(timer) = &mut self.timer else { return Poll::Pending };
            ready!(timer.as_mut().poll(cx));
            if self.has_stalled(moved) {
                return Poll::Ready(());
            }
            self.schedule_check();
        }
    }

    fn has_stalled(&mut self, moved: u64) -> bool {
        let more = moved - self.moved;
        if more > 0 {
            (self.moved, self.since) = (moved, Instant::now());
        }
        let enough = SLOW_RATE as f64 * self.check_every.as_secs_f64();
        let others_wait = self.timeout.permits.as_ref().is_some_and(|permits| permits.are_all_in_use());
        self.since.elapsed() >= self.timeout.after || others_wait && (more as f64) < enough
    }

    fn schedule_check(&mut self) {
        let at = Instant::now() + self.check_every;
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(at),
            None => self.timer = Some(Box::pin(sleep_until(at))),
        }
    }
}

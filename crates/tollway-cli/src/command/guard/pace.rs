//! Ends the wait for a peer that makes no progress, or too little while other clients need its connection.
//!
//! Whoever makes no progress for as long as our patience lasts is too slow. So is, while no place is left for others, whoever
//! makes less than [`SLOW`]. A connection that is quiet because nobody expects anything of it is none of this.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::bounds::SLOW;
use super::places::Places;

/// How often we look during our patience.
const LOOKS: u32 = 6;

/// A timer has no finer.
const SHORTEST: Duration = Duration::from_millis(1);

#[derive(Clone)]
pub(super) struct Patience {
    /// How long nothing may happen.
    pub(super) lasts: Duration,
    /// Who else may need the place, if that matters.
    pub(super) places: Option<Arc<Places>>,
}

/// How somebody gets on while we wait for it.
pub(super) struct Pace {
    patience: Patience,
    look_every: Duration,
    waits: bool,
    timer: Option<Pin<Box<Sleep>>>,
    /// What had been moved when we last looked, and since when no more has.
    moved: u64,
    since: Instant,
}

impl Pace {
    pub(super) fn new(patience: Patience) -> Self {
        let look_every = (patience.lasts / LOOKS).max(SHORTEST);
        Self { patience, look_every, waits: false, timer: None, moved: 0, since: Instant::now() }
    }

    /// Two that must be looked at as often, because either may be the one that is waited for.
    pub(super) fn both(one: Patience, other: Patience) -> (Self, Self) {
        let (mut one, mut other) = (Self::new(one), Self::new(other));
        let look_every = one.look_every.min(other.look_every);
        (one.look_every, other.look_every) = (look_every, look_every);
        (one, other)
    }

    /// Nothing is expected of it now.
    pub(super) fn rest(&mut self) {
        self.waits = false;
    }

    /// Ready when it is too slow. `moved` is how much it has sent, or taken, so far.
    pub(super) fn poll_too_slow(&mut self, context: &mut Context<'_>, moved: u64) -> Poll<()> {
        if !self.waits {
            (self.waits, self.moved, self.since) = (true, moved, Instant::now());
            self.look_again();
        }
        loop {
            let Some(timer) = &mut self.timer else { return Poll::Pending };
            ready!(timer.as_mut().poll(context));
            if self.is_too_slow(moved) {
                return Poll::Ready(());
            }
            self.look_again();
        }
    }

    fn is_too_slow(&mut self, moved: u64) -> bool {
        let more = moved - self.moved;
        if more > 0 {
            (self.moved, self.since) = (moved, Instant::now());
        }
        let enough = SLOW as f64 * self.look_every.as_secs_f64();
        let others_wait = self.patience.places.as_ref().is_some_and(|places| places.are_all_taken());
        self.since.elapsed() >= self.patience.lasts || others_wait && (more as f64) < enough
    }

    fn look_again(&mut self) {
        let at = Instant::now() + self.look_every;
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(at),
            None => self.timer = Some(Box::pin(sleep_until(at))),
        }
    }
}

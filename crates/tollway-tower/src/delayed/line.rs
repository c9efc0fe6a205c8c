//! Those who wait, one line for each identifier.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Everybody who waits.
#[derive(Clone)]
pub(super) struct Lines(Arc<All>);

struct All {
    max: AtomicUsize,
    waiting: AtomicUsize,
    lines: Mutex<HashMap<Box<[u8]>, Line>>,
}

/// Those of one identifier. There is a line as long as somebody is in it.
struct Line {
    waiting: u32,
    /// Has the one who is first. It is handed on in the order they came.
    turn: Arc<Semaphore>,
    /// When the first is expected to pass, and how long after it each of the others.
    first_at: Instant,
    interval: Duration,
}

/// A place in line. It is free again when this is dropped, for whatever reason.
pub(super) struct Place {
    all: Arc<All>,
    identifier: Box<[u8]>,
    turn: Arc<Semaphore>,
}

impl Lines {
    pub(super) fn new(max: usize) -> Self {
        let (max, waiting) = (AtomicUsize::new(max), AtomicUsize::new(0));
        Self(Arc::new(All { max, waiting, lines: Mutex::default() }))
    }

    pub(super) fn set_max(&self, max: usize) {
        self.0.max.store(max, Ordering::Relaxed);
    }

    pub(super) fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// The last place in a line that there is. An error is how long it would take, which is beyond the deadline, or that
    /// there is no room.
    pub(super) fn follow(&self, identifier: &[u8], deadline: Instant) -> Option<Result<Place, Duration>> {
        // Nearly always nobody waits, and then this is all that is looked at.
        if self.waiting() == 0 {
            return None;
        }
        let mut lines = self.0.lines();
        let line = lines.get_mut(identifier)?;
        let expected = line.expected();
        if expected > deadline || !self.0.enter() {
            return Some(Err(expected.saturating_duration_since(Instant::now())));
        }
        Some(Ok(self.place(identifier, line)))
    }

    /// A place for somebody who knows when the next may pass. `None` if it could not pass before the deadline, or there is no
    /// room.
    pub(super) fn join(
        &self,
        identifier: &[u8],
        at: Instant,
        interval: Duration,
        deadline: Instant,
    ) -> Option<Place> {
        let mut lines = self.0.lines();
        if lines.get(identifier).is_some_and(|line| line.expected() > deadline) || !self.0.enter() {
            return None;
        }
        let line = lines.entry(identifier.into()).or_insert_with(|| Line::new(at, interval));
        Some(self.place(identifier, line))
    }

    fn place(&self, identifier: &[u8], line: &mut Line) -> Place {
        line.waiting += 1;
        Place { all: Arc::clone(&self.0), identifier: identifier.into(), turn: Arc::clone(&line.turn) }
    }
}

impl All {
    fn lines(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        let one_more = |waiting| (waiting < max).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    fn leave(&self, identifier: &[u8]) {
        let mut lines = self.lines();
        if let Some(line) = lines.get_mut(identifier) {
            line.waiting -= 1;
            if line.waiting == 0 {
                lines.remove(identifier);
            }
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Line {
    fn new(first_at: Instant, interval: Duration) -> Self {
        Self { waiting: 0, turn: Arc::new(Semaphore::new(1)), first_at, interval }
    }

    /// When whoever comes next would pass.
    fn expected(&self) -> Instant {
        let others = self.interval.saturating_mul(self.waiting);
        self.first_at.checked_add(others).unwrap_or(self.first_at)
    }
}

impl Place {
    /// Waits to be the first in line, and stays it until the permit is dropped.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes it, so there always is one.
        Arc::clone(&self.turn).acquire_owned().await.ok()
    }

    pub(super) fn identifier(&self) -> &[u8] {
        &self.identifier
    }

    /// When whoever comes next would pass.
    pub(super) fn expected(&self) -> Instant {
        self.all.lines().get(&self.identifier).map_or_else(Instant::now, Line::expected)
    }

    /// From the first in line: it will pass at this moment.
    pub(super) fn expect(&self, at: Instant) {
        if let Some(line) = self.all.lines().get_mut(&self.identifier) {
            line.first_at = at;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.leave(&self.identifier);
    }
}

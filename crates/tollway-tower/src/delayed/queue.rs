//! Queues of delayed requests, one for each client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Holds the queues of all clients, and counts the requests in them. Clones share them.
#[derive(Clone)]
pub(super) struct DelayQueues(Arc<SharedQueues>);

struct SharedQueues {
    max: AtomicUsize,
    waiting: AtomicUsize,
    queues: Mutex<HashMap<Box<[u8]>, DelayQueue>>,
}

/// The queue of one client, which exists as long as a request is in it.
struct DelayQueue {
    waiting: u32,
    /// The permit that the first request holds. A semaphore hands it on in the order in which requests came.
    turn: Arc<Semaphore>,
    /// The time at which the first request is expected to pass.
    first_at: Instant,
    /// The time between two requests of this queue.
    interval: Duration,
}

/// A request that stands in a queue. Dropping it, also because the client disconnected, removes it from the queue.
pub(super) struct QueuedRequest {
    shared: Arc<SharedQueues>,
    id: Box<[u8]>,
    turn: Arc<Semaphore>,
}

impl DelayQueues {
    pub(super) fn new(max: usize) -> Self {
        let (max, waiting) = (AtomicUsize::new(max), AtomicUsize::new(0));
        Self(Arc::new(SharedQueues { max, waiting, queues: Mutex::default() }))
    }

    pub(super) fn set_max(&self, max: usize) {
        self.0.max.store(max, Ordering::Relaxed);
    }

    pub(super) fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Adds a request to the client's queue. Returns `None` if the client has no queue.
    ///
    /// The error is the expected wait, if that ends after the deadline or too many requests wait already.
    pub(super) fn join_existing(
        &self,
        id: &[u8],
        deadline: Instant,
    ) -> Option<Result<QueuedRequest, Duration>> {
        // Usually no request waits: this load saves the lock on the way of every request.
        if self.waiting() == 0 {
            return None;
        }
        let mut queues = self.0.queues();
        let queue = queues.get_mut(id)?;
        let expected = queue.next_expected_at();
        if expected > deadline || !self.0.enter() {
            return Some(Err(expected.saturating_duration_since(Instant::now())));
        }
        Some(Ok(self.queued(id, queue)))
    }

    /// Adds a request to the client's queue, or to a new one whose first request may pass at `at`.
    ///
    /// Returns `None` if it could not pass before the deadline, or if too many requests wait already.
    pub(super) fn join_or_create(
        &self,
        id: &[u8],
        at: Instant,
        interval: Duration,
        deadline: Instant,
    ) -> Option<QueuedRequest> {
        let mut queues = self.0.queues();
        if queues.get(id).is_some_and(|queue| queue.next_expected_at() > deadline) || !self.0.enter() {
            return None;
        }
        let queue = queues.entry(id.into()).or_insert_with(|| DelayQueue::new(at, interval));
        Some(self.queued(id, queue))
    }

    fn queued(&self, id: &[u8], queue: &mut DelayQueue) -> QueuedRequest {
        queue.waiting += 1;
        QueuedRequest { shared: Arc::clone(&self.0), id: id.into(), turn: Arc::clone(&queue.turn) }
    }
}

impl SharedQueues {
    fn queues(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, DelayQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        let one_more = |waiting| (waiting < max).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    fn leave(&self, id: &[u8]) {
        let mut queues = self.queues();
        if let Some(queue) = queues.get_mut(id) {
            queue.waiting -= 1;
            if queue.waiting == 0 {
                queues.remove(id);
            }
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DelayQueue {
    fn new(first_at: Instant, interval: Duration) -> Self {
        Self { waiting: 0, turn: Arc::new(Semaphore::new(1)), first_at, interval }
    }

    /// Returns the time at which one more request would be expected to pass.
    fn next_expected_at(&self) -> Instant {
        let others = self.interval.saturating_mul(self.waiting);
        self.first_at.checked_add(others).unwrap_or(self.first_at)
    }
}

impl QueuedRequest {
    /// Waits until the request is the first of its queue. It stays first until the permit is dropped.
    pub(super) async fn wait_for_turn(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed, so this is always `Some`.
        Arc::clone(&self.turn).acquire_owned().await.ok()
    }

    pub(super) fn id(&self) -> &[u8] {
        &self.id
    }

    /// Returns the time at which one more request would be expected to pass.
    pub(super) fn next_expected_at(&self) -> Instant {
        self.shared.queues().get(&self.id).map_or_else(Instant::now, DelayQueue::next_expected_at)
    }

    /// Sets the time at which the first request of the queue is expected to pass.
    pub(super) fn set_expected_at(&self, at: Instant) {
        if let Some(queue) = self.shared.queues().get_mut(&self.id) {
            queue.first_at = at;
        }
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        self.shared.leave(&self.id);
    }
}

//! Bounds the number of connections. When all permits are in use, idle clients are asked to give theirs up, the
//! longest idle first.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The time after which a client that waits for a permit asks the next idle client for one.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The permit that one connection holds, or one more request on it.
pub(crate) type Permit = OwnedSemaphorePermit;

/// Holds the permits of all connections.
pub(crate) struct Permits {
    free: Arc<Semaphore>,
    /// Wakes idle connections one at a time, in the order in which they became idle.
    wanted: Notify,
}

impl Permits {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self { free: Arc::new(Semaphore::new(max)), wanted: Notify::new() })
    }

    /// Waits for a permit, and meanwhile asks idle clients for theirs.
    pub(crate) async fn acquire(&self) -> Permit {
        loop {
            if let Some(permit) = self.try_acquire() {
                return permit;
            }
            self.wanted.notify_one();
            if let Ok(Ok(permit)) = timeout(ASK_AGAIN_AFTER, Arc::clone(&self.free).acquire_owned()).await {
                return permit;
            }
        }
    }

    pub(crate) fn try_acquire(&self) -> Option<Permit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    pub(crate) fn are_all_in_use(&self) -> bool {
        self.free.available_permits() == 0
    }

    /// Waits until somebody needs the permit of the caller, which is idle.
    pub(crate) async fn wanted(&self) {
        loop {
            self.wanted.notified().await;
            // A notification may be left from a time when nobody was idle.
            if self.are_all_in_use() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_client_that_was_idle_longest_gives_its_permit_up() {
        let permits = Permits::new(2);
        let (first, second) = (permits.acquire().await, permits.acquire().await);
        let idle = |permit: Permit| {
            let permits = Arc::clone(&permits);
            async move {
                permits.wanted().await;
                drop(permit);
            }
        };
        let (first, second) = (tokio::spawn(idle(first)), tokio::spawn(idle(second)));
        tokio::task::yield_now().await;
        let _third = permits.acquire().await;
        first.await.unwrap();
        assert!(!second.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_request_for_a_permit_disconnects_nobody() {
        let permits = Permits::new(1);
        let first = permits.acquire().await;
        assert!(timeout(ASK_AGAIN_AFTER / 2, permits.acquire()).await.is_err());
        drop(first);
        assert!(timeout(Duration::from_secs(60), permits.wanted()).await.is_err());
    }
}

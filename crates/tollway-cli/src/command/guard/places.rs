//! Places for clients, of which there are so many. When none is left, whoever has no request under way makes room, the longest
//! idle first.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How soon it is tried again to find somebody who makes room.
const AGAIN: Duration = Duration::from_secs(1);

pub(super) type Place = OwnedSemaphorePermit;

pub(super) struct Places {
    free: Arc<Semaphore>,
    /// Whoever waits here may be asked to leave. They are asked in the order in which they came.
    wanted: Notify,
}

impl Places {
    pub(super) fn new(many: usize) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(many)), wanted: Notify::new() })
    }

    /// A place, as soon as there is one.
    pub(super) async fn take(&self) -> Place {
        loop {
            if let Some(place) = self.try_take() {
                return place;
            }
            self.wanted.notify_one();
            if let Ok(Ok(place)) = timeout(AGAIN, Arc::clone(&self.free).acquire_owned()).await {
                return place;
            }
        }
    }

    pub(super) fn try_take(&self) -> Option<Place> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    pub(super) fn are_all_taken(&self) -> bool {
        self.free.available_permits() == 0
    }

    /// Ends when the place of whoever awaits this is wanted.
    pub(super) async fn wanted(&self) {
        loop {
            self.wanted.notified().await;
            // It may have been wanted before, when nobody could leave.
            if self.are_all_taken() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_is_idle_longest_makes_room() {
        let places = Places::new(2);
        let (first, second) = (places.take().await, places.take().await);
        let leave = |place: Place| {
            let places = Arc::clone(&places);
            async move {
                places.wanted().await;
                drop(place);
            }
        };
        let (first, second) = (tokio::spawn(leave(first)), tokio::spawn(leave(second)));
        tokio::task::yield_now().await;
        let _third = places.take().await;
        first.await.unwrap();
        assert!(!second.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_leaves_because_of_who_wanted_a_place_before() {
        let places = Places::new(1);
        let first = places.take().await;
        assert!(timeout(AGAIN / 2, places.take()).await.is_err());
        drop(first);
        let leaving = timeout(Duration::from_secs(60), places.wanted());
        assert!(leaving.await.is_err());
    }
}

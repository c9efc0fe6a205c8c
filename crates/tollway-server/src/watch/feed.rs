//! Hands each snapshot to everybody who watches: bounded watchers, and one snapshot that waits for each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tollway_wire::http::LiveEvent;

use super::history::History;

/// The last snapshot, and those who wait for the next.
#[derive(Debug)]
pub(crate) struct LiveFeed {
    state: Mutex<FeedState>,
    history: Mutex<History>,
}

#[derive(Debug)]
struct FeedState {
    /// The number of the last snapshot.
    number: u64,
    /// The last snapshot as it is sent. It is shared, so a watcher that does not read costs no memory.
    event: Arc<[u8]>,
    /// A place for each watcher that is allowed, with the task that waits.
    watchers: Vec<Option<Option<Waker>>>,
}

/// One watcher. Its place is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct LiveWatcher {
    feed: Arc<LiveFeed>,
    place: usize,
    seen: u64,
}

impl LiveFeed {
    /// Creates a feed that at most this many can watch.
    pub(crate) fn new(max_watchers: usize) -> Self {
        let state = FeedState { number: 0, event: Arc::default(), watchers: vec![None; max_watchers] };
        Self { state: Mutex::new(state), history: Mutex::default() }
    }

    /// Adds a watcher, and appends the history as its first event. Returns `None` if there are enough already.
    pub(crate) fn join(self: &Arc<Self>, output: &mut Vec<u8>) -> Option<LiveWatcher> {
        let mut state = self.state();
        let place = state.watchers.iter().position(Option::is_none)?;
        state.watchers[place] = Some(None);
        let seen = state.number;
        drop(state);
        let watcher = LiveWatcher { feed: Arc::clone(self), place, seen };
        let history = self.history().report();
        LiveEvent::History(history).put_event(output);
        Some(watcher)
    }

    /// Returns whether somebody watches. Otherwise no snapshot has to be made.
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers() > 0
    }

    /// Returns the number of watchers.
    pub(crate) fn watchers(&self) -> usize {
        self.state().watchers.iter().flatten().count()
    }

    /// Hands the next snapshot to all watchers. One that has not read the last never gets that one.
    pub(crate) fn publish(&self, event: &LiveEvent) {
        let mut bytes = Vec::new();
        event.put_event(&mut bytes);
        let mut state = self.state();
        state.number += 1;
        state.event = bytes.into();
        let waiting: Vec<Waker> = state.watchers.iter_mut().flatten().filter_map(Option::take).collect();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveWatcher {
    /// Appends the last snapshot, or wakes the task when there is one.
    pub(crate) fn poll_take(&mut self, context: &mut Context<'_>, output: &mut Vec<u8>) -> Poll<()> {
        let mut state = self.feed.state();
        if state.number == self.seen {
            state.watchers[self.place] = Some(Some(context.waker().clone()));
            return Poll::Pending;
        }
        self.seen = state.number;
        let event = Arc::clone(&state.event);
        drop(state);
        output.extend_from_slice(&event);
        Poll::Ready(())
    }
}

impl Drop for LiveWatcher {
    fn drop(&mut self) {
        self.feed.state().watchers[self.place] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(until: f64) -> LiveEvent {
        LiveEvent::History(tollway_wire::http::LiveHistory { until, ..Default::default() })
    }

    #[test]
    fn a_slow_watcher_gets_the_last_snapshot_only() {
        let feed = Arc::new(LiveFeed::new(1));
        let mut output = Vec::new();
        let mut watcher = feed.join(&mut output).unwrap();
        assert!(output.starts_with(b"event: history\ndata: "));
        let context = &mut Context::from_waker(Waker::noop());
        output.clear();
        assert!(watcher.poll_take(context, &mut output).is_pending());
        for until in [1.0, 2.0, 3.0] {
            feed.publish(&snapshot(until));
        }
        assert!(watcher.poll_take(context, &mut output).is_ready());
        let text = String::from_utf8(output).unwrap();
        assert!(text.contains("\"until\":3.0") && !text.contains("\"until\":2.0"), "{text}");
        assert!(watcher.poll_take(context, &mut Vec::new()).is_pending());
    }

    #[test]
    fn the_number_of_watchers_is_bounded() {
        let feed = Arc::new(LiveFeed::new(2));
        let output = &mut Vec::new();
        let (first, second) = (feed.join(output).unwrap(), feed.join(output).unwrap());
        assert_eq!(feed.watchers(), 2);
        output.clear();
        assert!(feed.join(output).is_none() && output.is_empty());
        drop(first);
        let third = feed.join(output).unwrap();
        drop((second, third));
        assert!(!feed.is_watched());
    }
}

//! Hands each snapshot to everybody who watches. The number of watchers is bounded, and all share the last snapshot.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tollway_wire::http::LiveEvent;

use super::history::History;
use crate::metrics::DecisionCounts;

/// The last snapshot, and those who wait for the next.
#[derive(Debug)]
pub(crate) struct LiveFeed {
    state: Mutex<FeedState>,
    history: Mutex<History>,
}

#[derive(Debug)]
struct FeedState {
    /// The number of the last second that is in the history.
    recorded: u64,
    /// The number of the second that the last snapshot is of.
    published: u64,
    /// The last snapshot as it is sent. It is shared, so a watcher that does not read costs no memory.
    event: Arc<[u8]>,
    /// The places of watchers. One that is `None` is free, and a taken one has the task that waits for a snapshot.
    watchers: Vec<Option<Option<Waker>>>,
}

/// One watcher. Its place is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct LiveWatcher {
    feed: Arc<LiveFeed>,
    place: usize,
    /// The number of the last second that the watcher has, from the history or from a snapshot.
    seen: u64,
}

impl LiveFeed {
    /// Creates a feed that at most this many can watch.
    pub(crate) fn new(max_watchers: usize) -> Self {
        let watchers = vec![None; max_watchers];
        let state = FeedState { recorded: 0, published: 0, event: Arc::default(), watchers };
        Self { state: Mutex::new(state), history: Mutex::default() }
    }

    /// Adds a watcher, and appends the history as its first event. Returns `None` if there are enough already.
    pub(crate) fn join(self: &Arc<Self>, output: &mut Vec<u8>) -> Option<LiveWatcher> {
        // Locked before the state, as in `record`: a second is then in the history, or its snapshot follows.
        let history = self.history();
        let mut state = self.state();
        let place = state.watchers.iter().position(Option::is_none)?;
        state.watchers[place] = Some(None);
        let seen = state.recorded;
        drop(state);
        let watcher = LiveWatcher { feed: Arc::clone(self), place, seen };
        LiveEvent::History(history.report()).put_event(output);
        Some(watcher)
    }

    /// Returns how many can watch at once.
    pub(crate) fn max(&self) -> usize {
        self.state().watchers.len()
    }

    /// Returns whether one more can watch.
    pub(crate) fn has_place(&self) -> bool {
        self.state().watchers.iter().any(Option::is_none)
    }

    /// Returns whether somebody watches. Otherwise no snapshot has to be made.
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers() > 0
    }

    /// Returns the number of watchers.
    pub(crate) fn watchers(&self) -> usize {
        self.state().watchers.iter().flatten().count()
    }

    /// Adds the counts of one second, which ended at this time, to the history.
    pub(super) fn record(&self, at: f64, second: &DecisionCounts) {
        let mut history = self.history();
        history.push(at, second);
        self.state().recorded += 1;
    }

    /// Hands the snapshot of the last second to all watchers. One that has not read the last never gets that one.
    pub(crate) fn publish(&self, event: &LiveEvent) {
        let mut bytes = Vec::new();
        event.put_event(&mut bytes);
        let mut state = self.state();
        state.published = state.recorded;
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
        if state.published <= self.seen {
            state.watchers[self.place] = Some(Some(context.waker().clone()));
            return Poll::Pending;
        }
        self.seen = state.published;
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

    fn publish(feed: &LiveFeed, until: f64) {
        feed.publish(&LiveEvent::History(tollway_wire::http::LiveHistory { until, ..Default::default() }));
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
            feed.record(until, &DecisionCounts::default());
            publish(&feed, until);
        }
        assert!(watcher.poll_take(context, &mut output).is_ready());
        let text = String::from_utf8(output).unwrap();
        assert!(text.contains("\"until\":3.0") && !text.contains("\"until\":2.0"), "{text}");
        assert!(watcher.poll_take(context, &mut Vec::new()).is_pending());
    }

    #[test]
    fn a_second_that_is_in_the_history_is_not_sent_again() {
        let feed = Arc::new(LiveFeed::new(1));
        let (mut output, context) = (Vec::new(), &mut Context::from_waker(Waker::noop()));
        feed.record(1.0, &DecisionCounts::default());
        let mut watcher = feed.join(&mut output).unwrap();
        assert!(String::from_utf8_lossy(&output).contains("\"until\":1.0"));
        publish(&feed, 1.0);
        assert!(watcher.poll_take(context, &mut output).is_pending());
        feed.record(2.0, &DecisionCounts::default());
        assert!(watcher.poll_take(context, &mut output).is_pending());
        publish(&feed, 2.0);
        assert!(watcher.poll_take(context, &mut output).is_ready());
    }

    #[test]
    fn the_number_of_watchers_is_bounded() {
        let feed = Arc::new(LiveFeed::new(2));
        let output = &mut Vec::new();
        let (first, second) = (feed.join(output).unwrap(), feed.join(output).unwrap());
        assert_eq!(feed.watchers(), 2);
        output.clear();
        assert!(feed.join(output).is_none() && output.is_empty() && !feed.has_place());
        drop(first);
        assert!(feed.has_place());
        let third = feed.join(output).unwrap();
        drop((second, third));
        assert!(!feed.is_watched());
    }
}

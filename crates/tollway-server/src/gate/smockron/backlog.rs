//! Messages that have been read and not yet recorded, up to a bound in bytes.
//!
//! Reading never waits for recording: otherwise reports would age in the buffers of the system, which nobody bounds for
//! all gatekeepers together. Messages without room are dropped, and those are the newest: a delay that is published
//! late helps nobody, and a report that is not recorded delays nobody.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};
use tollway_wire::zmtp::MessageFrames;

use super::accounting::AccountingShared;
use crate::gate::tcp::propagate;

/// The time for which recording goes on before reading gets its turn: as long as reading from tens of connections
/// takes, so that a good part of the time is spent on what was read, whatever arrives.
const TURN: Duration = Duration::from_millis(1);

pub(super) struct Backlog {
    bytes_max: usize,
    state: Mutex<State>,
    added: Notify,
    emptied: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Messages>,
    /// The memory that these take, and those that are being recorded.
    bytes: usize,
}

/// Messages that arrived together.
#[derive(Debug, Default)]
pub(super) struct Messages {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Messages {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::new() }
    }

    pub(super) fn push(&mut self, message: &MessageFrames<'_>) {
        self.bytes.extend_from_slice(message.as_bytes());
        self.ends.push(self.bytes.len());
    }

    pub(super) const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the memory that it takes. It had room for all that was read together, of which little may be messages.
    const fn size(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    fn iter(&self) -> impl Iterator<Item = MessageFrames<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| MessageFrames::new(&self.bytes[start..*end]))
    }
}

impl Backlog {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: Mutex::default(), added: Notify::new(), emptied: Notify::new() }
    }

    /// Adds messages. Returns false if there is no room for them.
    pub(super) fn put(&self, messages: Messages) -> bool {
        let mut state = self.lock();
        if messages.size() > self.bytes_max - state.bytes {
            return false;
        }
        state.bytes += messages.size();
        state.waiting.push_back(messages);
        self.added.notify_one();
        true
    }

    /// Returns when everything that was put here has been recorded.
    pub(super) async fn emptied(&self) {
        loop {
            let mut emptied = pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.lock().bytes == 0 {
                return;
            }
            emptied.await;
        }
    }

    async fn take(&self) -> Messages {
        loop {
            if let Some(messages) = self.lock().waiting.pop_front() {
                return messages;
            }
            self.added.notified().await;
        }
    }

    fn recorded(&self, bytes: usize) {
        let mut state = self.lock();
        state.bytes -= bytes;
        if state.bytes == 0 {
            self.emptied.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records what waits, in the order in which it came, for as long as it is polled. If the store is shared, messages are
/// recorded while earlier ones still wait for their answer.
pub(super) async fn record_all(shared: &Arc<AccountingShared>) {
    let mut in_flight = JoinSet::new();
    let mut turn = Instant::now();
    loop {
        let messages = shared.backlog.take().await;
        if shared.worker.awaits_store() {
            while let Some(ended) = in_flight.try_join_next() {
                propagate(ended);
            }
            in_flight.spawn(record(Arc::clone(shared), messages));
        } else {
            record(Arc::clone(shared), messages).await;
        }
        if turn.elapsed() > TURN {
            yield_now().await;
            turn = Instant::now();
        }
    }
}

async fn record(shared: Arc<AccountingShared>, messages: Messages) {
    let recording = Recording { shared, messages };
    let AccountingShared { master, service, .. } = &*recording.shared;
    master.account(service, recording.messages.iter()).await;
}

/// Gives the room of the messages back, however recording ends.
struct Recording {
    shared: Arc<AccountingShared>,
    messages: Messages,
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.shared.backlog.recorded(self.messages.size());
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    /// Returns one message that arrived with room for this many bytes.
    fn arrived(room: usize, bytes: &[u8]) -> Messages {
        let mut messages = Messages::with_capacity(room);
        messages.push(&MessageFrames::new(bytes));
        messages
    }

    #[tokio::test]
    async fn the_newest_messages_are_dropped() {
        let backlog = Backlog::new(2 * arrived(8, b"").size());
        for (bytes, fits) in [(&b"1234"[..], true), (b"5678", true), (b"no", false)] {
            assert_eq!(backlog.put(arrived(8, bytes)), fits, "{}", bytes.escape_ascii());
        }
        let taken = backlog.take().await;
        assert_eq!(taken.bytes, b"1234");
        assert!(!backlog.put(arrived(8, b"a")), "what is being recorded still counts");
        backlog.recorded(taken.size());
        assert!(!backlog.put(arrived(9, b"a")), "room that is not used counts");
        assert!(backlog.put(arrived(8, b"a")));
    }

    #[tokio::test]
    async fn it_is_empty_when_everything_is_recorded() {
        let backlog = Backlog::new(1_000);
        backlog.emptied().await;
        assert!(backlog.put(arrived(8, b"12345")));
        let taken = backlog.take().await;
        let mut emptied = pin!(backlog.emptied());
        let mut context = Context::from_waker(Waker::noop());
        assert!(emptied.as_mut().poll(&mut context).is_pending());
        backlog.recorded(taken.size());
        assert!(emptied.as_mut().poll(&mut context).is_ready());
    }
}

//! The accounting messages that wait to be sent, up to a bound. While no master is subscribed they are dropped.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tollway_wire::smockron::AccountingMessage;
use tollway_wire::zmtp::MESSAGE_MAX;

/// The number of bytes that may wait: some ten thousand messages, so that a master may pause for a moment.
const WAITING_MAX: usize = 1 << 20;

/// The longest log info that is sent; longer ones are cut. It is for people who read logs.
const LOG_INFO_MAX: usize = 4096;

/// The longest identifier that is sent: with everything else it must fit into a message that a peer accepts.
const IDENTIFIER_MAX: usize = MESSAGE_MAX - 2 * LOG_INFO_MAX;

#[derive(Debug, Default)]
pub(super) struct AccountingQueue {
    state: Mutex<QueueState>,
    not_empty: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    /// True while a master is subscribed.
    open: bool,
    bytes: Vec<u8>,
    messages: u64,
    /// The number of messages that were taken and may not be sent yet.
    taken: u64,
}

impl AccountingQueue {
    /// Queues a message. Returns false if it was dropped.
    pub(super) fn put(&self, accounting: &AccountingMessage<'_>) -> bool {
        let log_info = &accounting.log_info[..accounting.log_info.len().min(LOG_INFO_MAX)];
        if accounting.identifier.len() > IDENTIFIER_MAX {
            return false;
        }
        let mut state = self.lock();
        if !state.open || state.bytes.len() >= WAITING_MAX {
            return false;
        }
        let was_empty = state.bytes.is_empty();
        AccountingMessage { log_info, ..*accounting }.encode(&mut state.bytes);
        state.messages += 1;
        drop(state);
        if was_empty {
            self.not_empty.notify_one();
        }
        true
    }

    /// Opens or closes the queue. Closing drops the messages that wait, and those that were taken and never
    /// [sent](Self::sent), and returns their number.
    pub(super) fn set_open(&self, open: bool) -> u64 {
        let mut state = self.lock();
        state.open = open;
        if open {
            return 0;
        }
        state.bytes = Vec::new();
        mem::take(&mut state.messages) + mem::take(&mut state.taken)
    }

    /// Waits for messages and moves all of them into `batch`, which must be empty; its memory is reused. They count as
    /// lost until they are [sent](Self::sent).
    pub(super) async fn take(&self, batch: &mut Vec<u8>) {
        loop {
            {
                let mut state = self.lock();
                if !state.bytes.is_empty() {
                    state.taken = mem::take(&mut state.messages);
                    mem::swap(&mut state.bytes, batch);
                    return;
                }
            }
            self.not_empty.notified().await;
        }
    }

    /// Marks the messages that were taken last as sent.
    pub(super) fn sent(&self) {
        self.lock().taken = 0;
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Nothing in there panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tollway_wire::smockron::AccountingStatus;

    use super::*;

    fn put(queue: &AccountingQueue, identifier: &[u8], log_info: &[u8]) -> bool {
        let status = AccountingStatus::Accepted { received: 0 };
        queue.put(&AccountingMessage { domain: b"d", status, identifier, log_info })
    }

    #[test]
    fn without_a_subscriber_messages_are_dropped() {
        let queue = AccountingQueue::default();
        assert!(!put(&queue, b"a", b""));
        queue.set_open(true);
        assert!(put(&queue, b"a", b"") && put(&queue, b"a", b""));
        assert_eq!(queue.set_open(false), 2);
        assert!(!put(&queue, b"a", b""));
    }

    #[test]
    fn the_newest_is_dropped_at_the_bound_and_no_message_is_longer_than_a_peer_takes() {
        let queue = AccountingQueue::default();
        queue.set_open(true);
        let long = vec![b'x'; IDENTIFIER_MAX];
        assert!(!put(&queue, &[&long[..], b"x"].concat(), b""));
        assert!(put(&queue, &long, &vec![b'i'; 1 << 20]));
        assert!(queue.lock().bytes.len() <= MESSAGE_MAX);
        let more = (0..10_000).filter(|_| put(&queue, &long, b"")).count();
        assert!(more < 100, "{more}");
        assert!(queue.lock().bytes.len() < WAITING_MAX + MESSAGE_MAX);
    }

    #[tokio::test]
    async fn all_messages_are_taken_at_once() {
        let queue = AccountingQueue::default();
        queue.set_open(true);
        put(&queue, b"a", b"");
        put(&queue, b"b", b"");
        let mut batch = Vec::new();
        queue.take(&mut batch).await;
        assert!(batch.windows(3).any(|bytes| bytes == b"\x01\x01b"));
        queue.sent();
        assert_eq!(queue.set_open(false), 0);
    }

    #[tokio::test]
    async fn messages_taken_and_not_sent_count_as_dropped() {
        let queue = AccountingQueue::default();
        queue.set_open(true);
        put(&queue, b"a", b"");
        put(&queue, b"b", b"");
        queue.take(&mut Vec::new()).await;
        put(&queue, b"c", b"");
        assert_eq!(queue.set_open(false), 3);
        assert_eq!(queue.set_open(false), 0, "once");
    }
}

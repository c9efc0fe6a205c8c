//! What is on its way to the master: bytes, up to a bound, and nothing while there is no master.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tollway_wire::smockron::AccountingMessage;
use tollway_wire::zmtp::MESSAGE_MAX;

/// How many bytes may wait. Some ten thousand messages: what a master that pauses for a moment catches up with.
const WAITING_MAX: usize = 1 << 20;

/// The longest log info that is sent; what is longer is cut. It is for people who read logs.
const LOG_INFO_MAX: usize = 4096;

/// The longest identifier that is sent: with all else it must be a message that a peer listens to.
const IDENTIFIER_MAX: usize = MESSAGE_MAX - 2 * LOG_INFO_MAX;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Does anybody want what is put here?
    open: bool,
    bytes: Vec<u8>,
    messages: u64,
    /// How many were taken and may not have gone out yet.
    taken: u64,
}

impl Outbox {
    /// Puts a message on its way; false if it was dropped.
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
            self.news.notify_one();
        }
        true
    }

    /// From now on somebody wants what is put here, or nobody does. What then still waits is dropped, and counted, and so
    /// is what was taken and never [sent](Self::sent).
    pub(super) fn set_open(&self, open: bool) -> u64 {
        let mut state = self.lock();
        state.open = open;
        if open {
            return 0;
        }
        state.bytes = Vec::new();
        mem::take(&mut state.messages) + mem::take(&mut state.taken)
    }

    /// All that waits, once there is something. `batch` must be empty; its memory is used for what comes next. It is as good
    /// as lost until it is [sent](Self::sent).
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
            self.news.notified().await;
        }
    }

    /// What was taken last has gone out.
    pub(super) fn sent(&self) {
        self.lock().taken = 0;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in there panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tollway_wire::smockron::AccountingStatus;

    use super::*;

    fn put(outbox: &Outbox, identifier: &[u8], log_info: &[u8]) -> bool {
        let status = AccountingStatus::Accepted { received: 0 };
        outbox.put(&AccountingMessage { domain: b"d", status, identifier, log_info })
    }

    #[test]
    fn nothing_waits_for_nobody() {
        let outbox = Outbox::default();
        assert!(!put(&outbox, b"a", b""));
        outbox.set_open(true);
        assert!(put(&outbox, b"a", b"") && put(&outbox, b"a", b""));
        assert_eq!(outbox.set_open(false), 2);
        assert!(!put(&outbox, b"a", b""));
    }

    #[test]
    fn the_newest_is_dropped_at_the_bound_and_no_message_is_longer_than_a_peer_takes() {
        let outbox = Outbox::default();
        outbox.set_open(true);
        let long = vec![b'x'; IDENTIFIER_MAX];
        assert!(!put(&outbox, &[&long[..], b"x"].concat(), b""));
        assert!(put(&outbox, &long, &vec![b'i'; 1 << 20]));
        assert!(outbox.lock().bytes.len() <= MESSAGE_MAX);
        let more = (0..10_000).filter(|_| put(&outbox, &long, b"")).count();
        assert!(more < 100, "{more}");
        assert!(outbox.lock().bytes.len() < WAITING_MAX + MESSAGE_MAX);
    }

    #[tokio::test]
    async fn what_waits_is_taken_at_once() {
        let outbox = Outbox::default();
        outbox.set_open(true);
        put(&outbox, b"a", b"");
        put(&outbox, b"b", b"");
        let mut batch = Vec::new();
        outbox.take(&mut batch).await;
        assert!(batch.windows(3).any(|bytes| bytes == b"\x01\x01b"));
        outbox.sent();
        assert_eq!(outbox.set_open(false), 0);
    }

    #[tokio::test]
    async fn what_was_taken_and_not_sent_counts_as_dropped() {
        let outbox = Outbox::default();
        outbox.set_open(true);
        put(&outbox, b"a", b"");
        put(&outbox, b"b", b"");
        outbox.take(&mut Vec::new()).await;
        put(&outbox, b"c", b"");
        assert_eq!(outbox.set_open(false), 3);
        assert_eq!(outbox.set_open(false), 0, "once");
    }
}

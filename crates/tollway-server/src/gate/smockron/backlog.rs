//! What gatekeepers said and is yet to be entered: bytes, up to a bound.
//!
//! Reading never waits for entering, so that no gatekeeper's words grow old in the system's buffers, which nobody bounds for all
//! gatekeepers together. What finds no room is dropped, and it is the newest: a delay that is told late helps nobody, and
//! whoever is not entered is not delayed.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};
use tollway_wire::zmtp::{ZmtpEvent, ZmtpSession};

use super::peer::all_said;
use crate::gate::Worker;

/// How long entering goes on before those who read have their turn: as long as it takes to read from tens of them, so
/// that whatever arrives, a good part of the time is spent on what was let in.
const TURN: Duration = Duration::from_millis(1);

pub(in crate::gate) struct Backlog {
    bytes_max: usize,
    state: Mutex<State>,
    arrived: Notify,
    emptied: Notify,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Piece>,
    /// Of these, and of what is being entered.
    bytes: usize,
}

/// Whole messages, as they arrived.
struct Piece {
    /// What it had come to before them.
    conversation: ZmtpSession,
    bytes: Vec<u8>,
}

impl Backlog {
    pub(in crate::gate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: Mutex::default(), arrived: Notify::new(), emptied: Notify::new() }
    }

    /// Puts whole messages last, with what the conversation had come to before them; false if there is no room.
    pub(super) fn put(&self, conversation: ZmtpSession, bytes: &[u8]) -> bool {
        let mut state = self.lock();
        if bytes.len() > self.bytes_max - state.bytes {
            return false;
        }
        state.bytes += bytes.len();
        state.pieces.push_back(Piece { conversation, bytes: bytes.to_vec() });
        self.arrived.notify_one();
        true
    }

    /// Returns when all that was put here has been entered.
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

    async fn take(&self) -> Piece {
        loop {
            if let Some(piece) = self.lock().pieces.pop_front() {
                return piece;
            }
            self.arrived.notified().await;
        }
    }

    fn entered(&self, bytes: usize) {
        let mut state = self.lock();
        state.bytes -= bytes;
        if state.bytes == 0 {
            self.emptied.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in there panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Piece {
    fn messages(&self) -> Vec<impl Iterator<Item = &[u8]>> {
        let mut messages = Vec::new();
        all_said(&mut self.conversation.clone(), &self.bytes, |said| {
            if let ZmtpEvent::Message(frames) = said {
                messages.push(frames);
            }
        });
        messages
    }
}

/// Enters what waits, in the order in which it came, for as long as it is polled. Where the store is something to wait for, one
/// piece need not be entered before the next is on its way.
pub(in crate::gate) async fn enter_for_ever(worker: Arc<Worker>) {
    let mut under_way = JoinSet::new();
    let mut turn = Instant::now();
    loop {
        let piece = worker.backlog.take().await;
        if worker.smockron.waits() {
            while under_way.try_join_next().is_some() {}
            under_way.spawn(enter(Arc::clone(&worker), piece));
        } else {
            enter(Arc::clone(&worker), piece).await;
        }
        if turn.elapsed() > TURN {
            yield_now().await;
            turn = Instant::now();
        }
    }
}

async fn enter(worker: Arc<Worker>, piece: Piece) {
    let entering = Entering { worker, piece };
    entering.worker.smockron.account(entering.piece.messages()).await;
}

/// Gives the room back, however entering ends.
struct Entering {
    worker: Arc<Worker>,
    piece: Piece,
}

impl Drop for Entering {
    fn drop(&mut self) {
        self.worker.backlog.entered(self.piece.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tollway_wire::zmtp::SocketType;

    use super::*;

    fn put(backlog: &Backlog, bytes: &[u8]) -> bool {
        backlog.put(ZmtpSession::new(SocketType::Sub), bytes)
    }

    #[tokio::test]
    async fn what_finds_no_room_is_the_newest() {
        let backlog = Backlog::new(10);
        let all = [(&b"12345"[..], true), (b"6789", true), (b"no", false), (b"0", true), (b"no", false)];
        for (bytes, fits) in all {
            assert_eq!(put(&backlog, bytes), fits, "{}", bytes.escape_ascii());
        }
        assert_eq!(backlog.take().await.bytes, b"12345");
        assert!(!put(&backlog, b"a"), "what is being entered still counts");
        backlog.entered(5);
        assert!(put(&backlog, b"abcde"));
    }

    #[tokio::test]
    async fn it_is_empty_when_all_has_been_entered() {
        let backlog = Backlog::new(10);
        backlog.emptied().await;
        assert!(put(&backlog, b"12345"));
        let taken = backlog.take().await;
        let mut emptied = pin!(backlog.emptied());
        let mut context = Context::from_waker(Waker::noop());
        assert!(emptied.as_mut().poll(&mut context).is_pending());
        backlog.entered(taken.bytes.len());
        assert!(emptied.as_mut().poll(&mut context).is_ready());
    }
}

//! One connection: requests go out in batches, replies come back in order.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::Instant;
use tollway_wire::throttr::ThrottrReply;

use super::call::{CallError, Due, Misunderstanding, Request};

/// How much is read at a time.
const READ_SIZE: usize = 16 << 10;

/// An open connection, closed when dropped.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    conversation: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There is something to write.
    asked: Notify,
}

#[derive(Debug)]
struct State {
    /// Bounded, as is all that waits, by the turns that callers take.
    outbox: Vec<u8>,
    waiting: VecDeque<Waiting>,
    next_id: u32,
    heard_at: Instant,
    ended: bool,
}

/// Whoever waits for a reply. It keeps its place, and its turn, when its caller has given up: the reply is still to come.
#[derive(Debug)]
struct Waiting {
    due: Due,
    reply: oneshot::Sender<Result<ThrottrReply, End>>,
    _turn: OwnedSemaphorePermit,
}

/// A request on its way.
pub(super) struct Asked {
    pub(super) reply: oneshot::Receiver<Result<ThrottrReply, End>>,
    pub(super) at: Instant,
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The server closed it, or it broke in some way.
    HungUp { kind: Option<io::ErrorKind> },
    /// What came is no reply.
    Misunderstood(Misunderstanding),
}

impl Connection {
    pub(super) fn over(stream: TcpStream) -> Self {
        let state = State {
            outbox: Vec::new(),
            waiting: VecDeque::new(),
            next_id: 0,
            heard_at: Instant::now(),
            ended: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), asked: Notify::new() });
        let conversation = tokio::spawn(converse(Arc::clone(&shared), stream));
        Self { shared, conversation }
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.shared.state().ended
    }

    /// Puts a request into the next write, with the turn that its caller has taken. `None`, and the turn left alone, if the
    /// connection is over.
    pub(super) fn ask(
        &self,
        request: &Request<'_>,
        turn: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Option<Asked>, CallError> {
        let mut state = self.shared.state();
        let Some(turn) = turn.take_if(|_| !state.ended) else { return Ok(None) };
        let id = state.next_id;
        let due = request.put(id, &mut state.outbox)?;
        state.next_id = id.wrapping_add(1);
        let (sender, reply) = oneshot::channel();
        state.waiting.push_back(Waiting { due, reply: sender, _turn: turn });
        drop(state);
        self.shared.asked.notify_one();
        Ok(Some(Asked { reply, at: Instant::now() }))
    }

    /// Gives up on a server that has said nothing at all since then. TCP alone would go on trying for a quarter of an hour.
    pub(super) fn end_if_silent_since(&self, asked_at: Instant) {
        if self.shared.state().heard_at < asked_at {
            self.conversation.abort();
            self.shared.end(End::HungUp { kind: Some(io::ErrorKind::TimedOut) });
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.conversation.abort();
    }
}

impl Shared {
    /// Hands the replies in `inbox` to those who wait for them, and says how many bytes they took.
    fn settle(&self, inbox: &[u8]) -> Result<usize, Misunderstanding> {
        let mut state = self.state();
        state.heard_at = Instant::now();
        let mut taken = 0;
        while taken < inbox.len() {
            let next = state.waiting.front().ok_or(Misunderstanding::Unasked)?;
            let Some((reply, len)) = next.due.take(&inbox[taken..])? else { break };
            taken += len;
            if let Some(waiting) = state.waiting.pop_front() {
                // Whoever has given up is not told.
                let _ = waiting.reply.send(Ok(reply));
            }
        }
        Ok(taken)
    }

    fn end(&self, end: End) {
        let waiting = {
            let mut state = self.state();
            state.ended = true;
            mem::take(&mut state.waiting)
        };
        for waiting in waiting {
            let _ = waiting.reply.send(Err(end));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes and reads until either can no more.
async fn converse(shared: Arc<Shared>, stream: TcpStream) {
    let (reader, writer) = stream.into_split();
    let end = tokio::select! {
        end = write_requests(&shared, writer) => end,
        end = read_replies(&shared, reader) => end,
    };
    shared.end(end);
}

async fn write_requests(shared: &Shared, mut writer: OwnedWriteHalf) -> End {
    let mut batch = Vec::new();
    loop {
        shared.asked.notified().await;
        // Whoever is about to ask too gets into the same write.
        yield_now().await;
        mem::swap(&mut batch, &mut shared.state().outbox);
        if let Err(error) = writer.write_all(&batch).await {
            return End::HungUp { kind: Some(error.kind()) };
        }
        batch.clear();
    }
}

async fn read_replies(shared: &Shared, mut reader: OwnedReadHalf) -> End {
    let mut inbox = vec![0; READ_SIZE];
    let mut filled = 0;
    loop {
        // A reply that has not all arrived leaves room for more: it is shorter than a read.
        match reader.read(&mut inbox[filled..]).await {
            Ok(0) => return End::HungUp { kind: None },
            Ok(len) => filled += len,
            Err(error) => return End::HungUp { kind: Some(error.kind()) },
        }
        match shared.settle(&inbox[..filled]) {
            Ok(taken) => {
                inbox.copy_within(taken..filled, 0);
                filled -= taken;
            }
            Err(misunderstanding) => return End::Misunderstood(misunderstanding),
        }
    }
}

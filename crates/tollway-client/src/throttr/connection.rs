//! One connection of the async client: requests go out in batches, replies come back in order.

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

use super::request::{ExpectedReply, QuotaRequest};
use crate::{InvalidRequest, InvalidThrottrReply};

/// The number of bytes that one read takes at most.
const READ_SIZE: usize = 16 << 10;

/// An open connection, closed when dropped.
#[derive(Debug)]
pub(super) struct ThrottrConnection {
    shared: Arc<Shared>,
    driver: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<ConnectionState>,
    /// Wakes the writer.
    has_requests: Notify,
}

#[derive(Debug)]
struct ConnectionState {
    /// The requests that are not written yet. Its length is bounded by the permits of the callers.
    outbox: Vec<u8>,
    unanswered: VecDeque<UnansweredRequest>,
    next_id: u32,
    last_read_at: Instant,
    closed: bool,
}

/// A request that has no reply yet. It stays, with its permit, when its caller gives up: the reply is still to come,
/// and the replies after it must find their requests.
#[derive(Debug)]
struct UnansweredRequest {
    expected: ExpectedReply,
    reply: oneshot::Sender<Result<ThrottrReply, CloseReason>>,
    _permit: OwnedSemaphorePermit,
}

/// A request that was sent, as its caller holds it.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) reply: oneshot::Receiver<Result<ThrottrReply, CloseReason>>,
    pub(super) sent_at: Instant,
}

/// The reasons why a connection ended.
#[derive(Clone, Debug)]
pub(super) enum CloseReason {
    /// The server closed the connection, or the system reported an error, which all pending calls share.
    Closed { error: Option<Arc<io::Error>> },
    /// The bytes that arrived are not the reply that was expected.
    InvalidReply(InvalidThrottrReply),
}

impl CloseReason {
    /// The end of a connection that the server closed in order.
    pub(super) const CLOSED: Self = Self::Closed { error: None };

    fn failed(error: impl Into<io::Error>) -> Self {
        Self::Closed { error: Some(Arc::new(error.into())) }
    }
}

impl ThrottrConnection {
    pub(super) fn new(stream: TcpStream) -> Self {
        let state = ConnectionState {
            outbox: Vec::new(),
            unanswered: VecDeque::new(),
            next_id: 0,
            last_read_at: Instant::now(),
            closed: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), has_requests: Notify::new() });
        let driver = tokio::spawn(drive(Arc::clone(&shared), stream));
        Self { shared, driver }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.shared.state().closed
    }

    /// Puts a request into the next write, with the permit of its caller. Returns `None`, and leaves the permit, if the
    /// connection has ended.
    pub(super) fn send(
        &self,
        request: &QuotaRequest<'_>,
        permit: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Option<PendingCall>, InvalidRequest> {
        let mut state = self.shared.state();
        let Some(permit) = permit.take_if(|_| !state.closed) else { return Ok(None) };
        let id = state.next_id;
        let expected = request.encode(id, &mut state.outbox)?;
        state.next_id = id.wrapping_add(1);
        let (sender, reply) = oneshot::channel();
        state.unanswered.push_back(UnansweredRequest { expected, reply: sender, _permit: permit });
        drop(state);
        self.shared.has_requests.notify_one();
        Ok(Some(PendingCall { reply, sent_at: Instant::now() }))
    }

    /// Closes the connection if nothing at all has arrived since then. TCP alone would retry for a quarter of an hour.
    pub(super) fn close_if_silent_since(&self, sent_at: Instant) {
        if self.shared.state().last_read_at < sent_at {
            self.driver.abort();
            self.shared.close(&CloseReason::failed(io::ErrorKind::TimedOut));
        }
    }
}

impl Drop for ThrottrConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Shared {
    /// Hands the replies in `inbox` to their requests, and returns the number of bytes that they took.
    fn deliver(&self, inbox: &[u8]) -> Result<usize, InvalidThrottrReply> {
        let mut state = self.state();
        state.last_read_at = Instant::now();
        let mut taken = 0;
        while taken < inbox.len() {
            let oldest = state.unanswered.front().ok_or(InvalidThrottrReply::Unrequested)?;
            let Some((reply, len)) = oldest.expected.decode(&inbox[taken..])? else { break };
            taken += len;
            if let Some(request) = state.unanswered.pop_front() {
                // The caller may have given up.
                let _ = request.reply.send(Ok(reply));
            }
        }
        Ok(taken)
    }

    fn close(&self, reason: &CloseReason) {
        let unanswered = {
            let mut state = self.state();
            state.closed = true;
            mem::take(&mut state.unanswered)
        };
        for request in unanswered {
            let _ = request.reply.send(Err(reason.clone()));
        }
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes and reads until one of the two fails.
async fn drive(shared: Arc<Shared>, stream: TcpStream) {
    let (reader, writer) = stream.into_split();
    let reason = tokio::select! {
        reason = write_requests(&shared, writer) => reason,
        reason = read_replies(&shared, reader) => reason,
    };
    shared.close(&reason);
}

async fn write_requests(shared: &Shared, mut writer: OwnedWriteHalf) -> CloseReason {
    let mut batch = Vec::new();
    loop {
        shared.has_requests.notified().await;
        // Other tasks that are about to send get into the same write.
        yield_now().await;
        mem::swap(&mut batch, &mut shared.state().outbox);
        if let Err(error) = writer.write_all(&batch).await {
            return CloseReason::failed(error);
        }
        batch.clear();
    }
}

async fn read_replies(shared: &Shared, mut reader: OwnedReadHalf) -> CloseReason {
    let mut inbox = vec![0; READ_SIZE];
    let mut filled = 0;
    loop {
        // There is always room: a reply of which a part is missing is shorter than the inbox.
        match reader.read(&mut inbox[filled..]).await {
            Ok(0) => return CloseReason::CLOSED,
            Ok(len) => filled += len,
            Err(error) => return CloseReason::failed(error),
        }
        match shared.deliver(&inbox[..filled]) {
            Ok(taken) => {
                inbox.copy_within(taken..filled, 0);
                filled -= taken;
            }
            Err(invalid) => return CloseReason::InvalidReply(invalid),
        }
    }
}

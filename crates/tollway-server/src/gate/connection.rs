//! The one loop that serves a connection: read, handle, send, until one side ends it.
//!
//! The bytes go to a [`Session`], which knows the protocol. The loop knows deadlines, drains and buffers. Buffers
//! belong to the worker and are borrowed while bytes are handled: an idle connection keeps nothing but an unfinished
//! request. The stream can be anything that reads and writes bytes: a socket, or TLS between it and the loop.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{io, mem};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::coop::has_budget_remaining;
use tokio::task::yield_now;
use tokio::time::timeout;
use tollway::block_on;

use super::deadline::DeadlineTimer;
use super::limit::ConnectionPermit;
use crate::bounds::Bounds;
use crate::metrics::WorkerMetrics;
use crate::worker::Worker;

/// The time that stands for no deadline.
const NEVER: Duration = Duration::from_secs(365 * 86_400);
/// Buffers above this size are freed when they are empty, so that one large message does not cost memory for ever.
const KEEP_SIZE: usize = 128 << 10;
/// The size above which the buffer of one connection's unfinished request is freed. There are many connections.
const KEEP_UNFINISHED: usize = 1 << 10;
/// The size from which on an unfinished request grows where it is. Below it, copying is cheaper than its own buffer.
const GROWS_IN_PLACE: usize = 16 << 10;
/// The number of unused buffers that one worker keeps for one gate. It needs more than one only if the store is shared.
const KEEP_BUFFERS: usize = 4;

/// One connection's side of a protocol: it gets bytes and gives bytes.
pub(super) trait Session: Send + 'static {
    /// The buffers that are needed only while bytes are handled, and are kept to save allocations.
    type Scratch: Default + Send;
    /// The number of bytes that are read at once, before other connections get their turn.
    const READ_SIZE: usize = 16 << 10;
    /// True if the peer never ends a connection by itself. Then a drain ends it, even in the middle of a message, and
    /// it yields to other connections after each read.
    const ENDLESS: bool = false;
    /// True if the system probes a silent peer, because nothing else notices that it is gone.
    const KEEP_ALIVE: bool = Self::ENDLESS;

    /// Handles what has arrived, and appends what is to be sent. `draining` is true if the server accepts no more
    /// requests after these.
    fn receive(
        &mut self,
        arrived: &[u8],
        output: &mut Vec<u8>,
        scratch: &mut Self::Scratch,
        draining: bool,
    ) -> impl Future<Output = Received> + Send;

    /// Sets the name that the certificate of the client gives it, before anything else.
    fn set_certificate(&mut self, _name: Arc<str>) {}

    /// Appends what a new connection sends before it has received anything, and returns what it waits for.
    fn open(&mut self, _output: &mut Vec<u8>) -> Missing {
        Missing::Nothing
    }

    /// Returns the time that the peer has to send what is missing, or `None` if it has for ever: of an endless
    /// connection, the system notices if the peer is gone.
    fn read_timeout(&self, missing: Missing, bounds: &Bounds) -> Option<Duration> {
        (missing != Missing::Nothing || !Self::ENDLESS).then(|| missing.time(bounds))
    }

    /// Returns the time that the peer has to take what is sent, or `None` if it has until a drain.
    fn write_timeout(bounds: &Bounds) -> Option<Duration> {
        Some(bounds.write_time)
    }

    /// Appends what is sent without a request, or returns pending and wakes the task when there is something.
    fn poll_push(&mut self, _context: &mut Context<'_>, _output: &mut Vec<u8>) -> Poll<()> {
        Poll::Pending
    }

    /// Returns whether the session ends although neither side has ended the connection. It is asked before each push.
    fn is_over(&mut self) -> bool {
        false
    }

    /// Returns whether a full gate may close this connection while nothing is missing.
    fn is_idle(&self) -> bool {
        true
    }

    /// Appends the answer to a peer that did not send in time what was missing.
    fn time_out(&mut self, _missing: Missing, _output: &mut Vec<u8>, _scratch: &mut Self::Scratch) {}

    /// Returns the time for which a drain still reads from an idle connection.
    fn drain_time(bounds: &Bounds) -> Duration {
        bounds.drain_idle
    }
}

/// The part of a message that has not arrived yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// No message has begun.
    Nothing,
    /// The rest of the head of an HTTP request.
    Head,
    /// The rest of the body of an HTTP request.
    Body,
    /// The rest of a frame of another protocol.
    Frame,
}

impl Missing {
    /// Returns the time that a peer usually has to send it.
    pub(super) const fn time(self, bounds: &Bounds) -> Duration {
        match self {
            Self::Nothing => bounds.idle,
            Self::Head => bounds.head_time,
            Self::Body => bounds.body_time,
            Self::Frame => bounds.frame_time,
        }
    }
}

/// Reports what became of bytes that had arrived.
pub(super) struct Received {
    /// The number of bytes that were handled. The others stay for the next call.
    pub(super) taken: usize,
    pub(super) next: Next,
    /// A time after the bytes were handled. Reading the clock takes as long as a decision, so it is read once.
    pub(super) at: Instant,
}

/// Tells the loop what follows after the output has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// More is read.
    Read(Missing),
    /// The rest of what has arrived is handled: there was no room for more output.
    Again,
    /// The connection is closed.
    Close,
    /// The connection is closed, but the peer may still be sending, and must be able to read the output.
    Refuse,
}

/// Holds what was read, and what is sent for it.
pub(super) struct Buffers<T> {
    /// The buffer that is read into. All of it is initialized, so that no zeros are written first.
    input: Vec<u8>,
    filled: usize,
    output: Vec<u8>,
    scratch: T,
}

impl<T: Default> Buffers<T> {
    fn with_input(input: Vec<u8>) -> Self {
        Self { filled: input.len(), input, output: Vec::new(), scratch: T::default() }
    }
}

/// Keeps the unused buffers of one gate on one worker. They are boxed, so that a connection that holds some is small,
/// and taking and returning them moves a pointer.
pub(super) struct BufferPool<T>(Mutex<Vec<Box<Buffers<T>>>>);

impl<T: Default> BufferPool<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn take(&self) -> Box<Buffers<T>> {
        let unused = self.lock().pop();
        unused.unwrap_or_else(|| Box::new(Buffers::with_input(Vec::new())))
    }

    fn put(&self, mut buffers: Box<Buffers<T>>) {
        buffers.output.clear();
        buffers.output.shrink_to(KEEP_SIZE);
        // The capacity: of a long message, only the part that had arrived is its length.
        if buffers.input.capacity() > KEEP_SIZE + KEEP_SIZE / 2 {
            buffers.input = Vec::new();
        }
        let mut unused = self.lock();
        if unused.len() < KEEP_BUFFERS {
            unused.push(buffers);
        }
    }

    /// The lock is never contended: one thread serves all connections of a worker.
    fn lock(&self) -> MutexGuard<'_, Vec<Box<Buffers<T>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the time of the runtime's clock, which a test can move.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Serves one connection until its peer hangs up, breaks the protocol or is too slow, or the server drains.
pub(super) async fn serve<S: Session>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    mut session: S,
    permit: ConnectionPermit,
    pool: &BufferPool<S::Scratch>,
    worker: &Worker,
) {
    let mut opening = Vec::new();
    let missing = session.open(&mut opening);
    let timer = DeadlineTimer::new(session.read_timeout(missing, worker.bounds()).unwrap_or(NEVER));
    let mut connection = Connection {
        stream,
        session,
        permit,
        pool,
        worker,
        unfinished: Vec::new(),
        timer,
        drain: Box::pin(worker.drain.clone().started()),
        drain_polled: false,
        drain_started: false,
        draining: false,
    };
    let end = connection.run(opening, missing).await;
    end.count(&worker.metrics);
    if matches!(end, End::Refused | End::TooSlow(Missing::Head | Missing::Body)) {
        // On the heap: its buffer would otherwise be part of every connection.
        Box::pin(connection.linger()).await;
    } else {
        // By TLS, the peer is told that nothing is missing. This is tried once: one that has gone, or that does not
        // read, may leave no room for it, and would keep its place at the gate.
        poll_fn(|context| Poll::Ready(Pin::new(&mut connection.stream).poll_shutdown(context).is_ready()))
            .await;
    }
}

/// Names the ways in which a connection ends.
enum End {
    /// Both sides know that it is closed.
    Closed,
    /// The peer has its output, and may still be sending.
    Refused,
    /// The peer did not send the rest of a message.
    TooSlow(Missing),
    /// The peer did not take its output.
    Stalled,
}

impl End {
    fn count(&self, metrics: &WorkerMetrics) {
        match self {
            Self::Closed | Self::Refused => {}
            Self::TooSlow(Missing::Nothing) => metrics.cut_idle.one(),
            Self::TooSlow(Missing::Head) => metrics.cut_head.one(),
            Self::TooSlow(Missing::Body) => metrics.cut_body.one(),
            Self::TooSlow(Missing::Frame) => metrics.cut_frame.one(),
            Self::Stalled => metrics.cut_write.one(),
        }
    }
}

/// The event that a waiting connection got.
enum Waited<T> {
    Input(Box<Buffers<T>>),
    Push(Box<Buffers<T>>),
    HungUp,
    Drain,
    TimedOut,
}

struct Connection<'w, S: Session, Io> {
    stream: Io,
    session: S,
    permit: ConnectionPermit,
    pool: &'w BufferPool<S::Scratch>,
    worker: &'w Worker,
    /// The start of a message whose rest has not arrived.
    unfinished: Vec<u8>,
    timer: DeadlineTimer,
    drain: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// True once the future of the drain wakes this task.
    drain_polled: bool,
    /// True once the drain has started, so that its future is not polled again.
    drain_started: bool,
    /// True once the deadline is that of the drain.
    draining: bool,
}

impl<S: Session, Io: AsyncRead + AsyncWrite + Unpin + Send> Connection<'_, S, Io> {
    async fn run(&mut self, mut opening: Vec<u8>, mut missing: Missing) -> End {
        let bounds = self.worker.bounds();
        let mut deadline = self.deadline(now(), missing);
        if let Err(end) = self.flush(&mut opening).await {
            return end;
        }
        loop {
            let buffers = match self.wait(deadline, may_end::<S>(missing)).await {
                Waited::Input(buffers) => buffers,
                Waited::Push(mut buffers) => match self.flush(&mut buffers.output).await {
                    Ok(()) => {
                        self.pool.put(buffers);
                        continue;
                    }
                    Err(end) => return end,
                },
                Waited::HungUp => return End::Closed,
                Waited::Drain => {
                    self.draining = true;
                    deadline = now() + S::drain_time(bounds);
                    continue;
                }
                Waited::TimedOut => return self.end_late(missing).await,
            };
            if !self.permit.set_busy() {
                return End::Closed;
            }
            let (handled, next, at) = match self.handle(buffers).await {
                Ok(handled) => handled,
                Err(end) => return end,
            };
            let now_missing = match next {
                Next::Read(missing) => missing,
                Next::Refuse => return End::Refused,
                Next::Close | Next::Again => return End::Closed,
            };
            // A part that is still missing keeps its deadline: otherwise every byte would earn another.
            let begins = now_missing == Missing::Nothing || now_missing != missing || handled;
            if begins && !(self.draining && S::ENDLESS) {
                deadline = self.deadline(at, now_missing);
            }
            missing = now_missing;
            if missing == Missing::Nothing && self.session.is_idle() {
                self.permit.set_idle(at);
            }
            if S::ENDLESS {
                // A read is never pending while more has arrived, so others would not get their turn.
                yield_now().await;
            }
            // A client that always has bytes ready never lets `wait` poll its timer, so the deadline is also checked
            // here.
            if at >= deadline {
                return self.end_late(missing).await;
            }
        }
    }

    /// Waits until bytes have arrived or are to be pushed, or a reason to end comes first.
    async fn wait(&mut self, deadline: Instant, notice_drain: bool) -> Waited<S::Scratch> {
        poll_fn(|context| {
            let mut buffers = self.pool.take();
            match self.poll_read(context, &mut buffers) {
                Poll::Ready(Ok(1..)) => return Poll::Ready(Waited::Input(buffers)),
                Poll::Ready(_) => return Poll::Ready(Waited::HungUp),
                Poll::Pending => {}
            }
            if self.session.is_over() {
                return Poll::Ready(Waited::HungUp);
            }
            if self.session.poll_push(context, &mut buffers.output).is_ready() {
                return Poll::Ready(Waited::Push(buffers));
            }
            self.pool.put(buffers);
            if notice_drain && !self.draining && self.poll_drain(context) {
                return Poll::Ready(Waited::Drain);
            }
            self.timer.poll(context, deadline).map(|()| Waited::TimedOut)
        })
        .await
    }

    /// Returns whether the drain has started, and wakes the task when it does. A task has the same waker all its life,
    /// so the future is polled once, and then again only if there is news: every request waits for the next one here.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> bool {
        if !self.drain_started && (!self.drain_polled || self.worker.drain.has_news()) {
            // A task that has used up its turn is told nothing but to come back: the drain does not know it yet.
            self.drain_polled = has_budget_remaining();
            self.drain_started = self.drain.as_mut().poll(context).is_ready();
        }
        self.drain_started
    }

    /// Reads behind what is unfinished, and returns the number of bytes.
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut Buffers<S::Scratch>,
    ) -> Poll<io::Result<usize>> {
        let kept = self.unfinished.len();
        if kept >= GROWS_IN_PLACE {
            return self.poll_read_in_place(context, buffers);
        }
        if buffers.input.len() < kept + S::READ_SIZE {
            buffers.input.resize(kept + S::READ_SIZE, 0);
        }
        let (before, room) = buffers.input.split_at_mut(kept);
        let mut room = ReadBuf::new(&mut room[..S::READ_SIZE]);
        Pin::new(&mut self.stream).poll_read(context, &mut room).map_ok(|()| {
            let read = room.filled().len();
            before.copy_from_slice(&self.unfinished);
            buffers.filled = kept + read;
            read
        })
    }

    /// Reads behind a long message, in its own buffer, which then is the input. If it was copied for each part that
    /// arrives, a client that sends single bytes would make us copy a megabyte for each of them.
    fn poll_read_in_place(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut Buffers<S::Scratch>,
    ) -> Poll<io::Result<usize>> {
        let kept = self.unfinished.len();
        self.unfinished.resize(kept + S::READ_SIZE, 0);
        let mut room = ReadBuf::new(&mut self.unfinished[kept..]);
        let polled = Pin::new(&mut self.stream).poll_read(context, &mut room);
        let read = room.filled().len();
        self.unfinished.truncate(kept + read);
        polled.map_ok(|()| {
            mem::swap(&mut self.unfinished, &mut buffers.input);
            buffers.filled = kept + read;
            read
        })
    }

    /// Handles everything that has arrived, and sends the output. Returns whether a whole message was among it, what
    /// follows, and a time after it.
    async fn handle(&mut self, buffers: Box<Buffers<S::Scratch>>) -> Result<(bool, Next, Instant), End> {
        let awaits_store = self.worker.awaits_store();
        let mut buffers = if awaits_store { self.only_arrived(buffers) } else { buffers };
        let mut taken = 0;
        let (next, at) = loop {
            let Buffers { input, filled, output, scratch } = &mut *buffers;
            let draining = self.draining || self.worker.drain.has_started();
            let arrived = &input[taken..*filled];
            let received = if awaits_store {
                // On the heap, so that connections without a request are small.
                Box::pin(self.session.receive(arrived, output, scratch, draining)).await
            } else {
                block_on(self.session.receive(arrived, output, scratch, draining))
            };
            taken += received.taken;
            self.flush(output).await?;
            match received.next {
                Next::Again => {}
                next => break (next, received.at),
            }
        };
        keep_rest(&mut self.unfinished, &mut buffers.input, taken..buffers.filled, S::READ_SIZE);
        if !awaits_store {
            self.pool.put(buffers);
        }
        Ok((taken > 0, next, at))
    }

    /// Returns buffers with nothing but what has arrived, and gives back those with room for a whole read. Thousands of
    /// connections may wait for a shared store at once: at 16 KB each, the memory of a busy moment would never be
    /// returned to the system. A long message is not copied: it may have a part of its buffer free, and no more.
    fn only_arrived(&self, buffers: Box<Buffers<S::Scratch>>) -> Box<Buffers<S::Scratch>> {
        if buffers.filled >= GROWS_IN_PLACE {
            return buffers;
        }
        let arrived = buffers.input[..buffers.filled].to_vec();
        self.pool.put(buffers);
        Box::new(Buffers::with_input(arrived))
    }

    /// Sends the output. Nearly always all of it fits at once, and no clock is read.
    async fn flush(&mut self, output: &mut Vec<u8>) -> Result<(), End> {
        let bounds = self.worker.bounds();
        let (mut sent, mut deadline) = (0, None);
        let written = poll_fn(|context| {
            match self.poll_send(context, &output[..], &mut sent) {
                Poll::Ready(sent) => return Poll::Ready(sent.map_err(|_| End::Closed)),
                Poll::Pending => {}
            }
            let limit = match S::write_timeout(bounds) {
                Some(limit) => limit,
                None if self.poll_drain(context) => bounds.drain_idle,
                None => return Poll::Pending,
            };
            let deadline = *deadline.get_or_insert_with(|| now() + limit);
            self.timer.poll(context, deadline).map(|()| Err(End::Stalled))
        });
        written.await?;
        output.clear();
        Ok(())
    }

    /// Sends what is behind the first `sent` bytes.
    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        output: &[u8],
        sent: &mut usize,
    ) -> Poll<io::Result<()>> {
        while *sent < output.len() {
            match Pin::new(&mut self.stream).poll_write(context, &output[*sent..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(more)) => *sent += more,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        // TLS may have taken the bytes without having sent them.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// Ends the connection after its deadline, which is that of a drain or of what is missing.
    async fn end_late(&mut self, missing: Missing) -> End {
        if self.draining && may_end::<S>(missing) {
            self.push_last().await
        } else {
            self.time_out(missing).await
        }
    }

    /// Sends what was pushed until the end of a drain.
    async fn push_last(&mut self) -> End {
        let mut output = Vec::new();
        while poll_fn(|context| Poll::Ready(self.session.poll_push(context, &mut output).is_ready())).await {
            if let Err(end) = self.flush(&mut output).await {
                return end;
            }
        }
        End::Closed
    }

    async fn time_out(&mut self, missing: Missing) -> End {
        let mut buffers = self.pool.take();
        self.session.time_out(missing, &mut buffers.output, &mut buffers.scratch);
        match self.flush(&mut buffers.output).await {
            Ok(()) => End::TooSlow(missing),
            Err(end) => end,
        }
    }

    /// Reads on for a moment: closing with unread bytes would reset the connection, and the peer would lose the output.
    async fn linger(&mut self) {
        let mut ignored = [0; 1024];
        let drained = async {
            let _ = self.stream.shutdown().await;
            while self.stream.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
        };
        let _ = timeout(self.worker.bounds().linger, drained).await;
    }

    fn deadline(&self, from: Instant, missing: Missing) -> Instant {
        from + self.session.read_timeout(missing, self.worker.bounds()).unwrap_or(NEVER)
    }
}

/// Returns whether a drain ends a connection that waits for this.
fn may_end<S: Session>(missing: Missing) -> bool {
    missing == Missing::Nothing || S::ENDLESS
}

/// Keeps what has arrived and was not handled. A long message keeps the buffer that it was read into, because copying
/// it for each part would be slow. A buffer much larger than the message is not kept: it was grown for another
/// connection.
fn keep_rest(unfinished: &mut Vec<u8>, input: &mut Vec<u8>, rest: Range<usize>, read_size: usize) {
    let is_long = rest.start == 0 && rest.end >= GROWS_IN_PLACE;
    // A buffer that grew for this message has at most twice its length, or room for one read behind it.
    if is_long && input.capacity() <= 2 * (rest.end + read_size) {
        input.truncate(rest.end);
        mem::swap(unfinished, input);
    } else {
        keep_unfinished(unfinished, &input[rest]);
    }
}

/// Keeps the start of a message whose rest has not arrived, in hardly more memory than it needs: the buffer may be that
/// of a long message before it.
fn keep_unfinished(unfinished: &mut Vec<u8>, rest: &[u8]) {
    unfinished.clear();
    if unfinished.capacity() > KEEP_UNFINISHED.max(2 * rest.len()) {
        *unfinished = Vec::new();
    }
    unfinished.reserve_exact(rest.len());
    unfinished.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_of_a_long_message_is_not_kept_for_a_short_one() {
        let mut unfinished = vec![0; 1 << 20];
        keep_unfinished(&mut unfinished, b"GET / HT");
        assert_eq!(unfinished, b"GET / HT");
        assert!(unfinished.capacity() <= KEEP_UNFINISHED, "{}", unfinished.capacity());
        let long = vec![1; 600 << 10];
        unfinished = Vec::with_capacity(1 << 20);
        keep_unfinished(&mut unfinished, &long);
        assert_eq!(
            (unfinished.len(), unfinished.capacity()),
            (long.len(), 1 << 20),
            "it is kept where it fits"
        );
        keep_unfinished(&mut unfinished, b"");
        assert!(unfinished.capacity() <= KEEP_UNFINISHED);
    }

    #[test]
    fn a_long_message_keeps_its_buffer_and_none_that_is_far_larger() {
        let (mut unfinished, mut input) = (Vec::new(), vec![7; 2 * GROWS_IN_PLACE]);
        let read_into = input.as_ptr();
        keep_rest(&mut unfinished, &mut input, 0..GROWS_IN_PLACE, 16 << 10);
        assert_eq!((unfinished.len(), unfinished.as_ptr()), (GROWS_IN_PLACE, read_into), "it is not copied");
        // The buffer of a long message of another connection.
        let mut input = vec![7; KEEP_SIZE];
        keep_rest(&mut unfinished, &mut input, 0..GROWS_IN_PLACE, 16 << 10);
        assert_eq!(unfinished, [7; GROWS_IN_PLACE]);
        assert!(unfinished.capacity() <= 4 * GROWS_IN_PLACE, "{}", unfinished.capacity());
    }

    #[test]
    fn the_pool_keeps_no_buffer_of_a_long_message() {
        let pool = BufferPool::<()>::new();
        let mut buffers = pool.take();
        buffers.input = Vec::with_capacity(1 << 20);
        buffers.input.resize(KEEP_SIZE, 0);
        pool.put(buffers);
        assert_eq!(pool.take().input.capacity(), 0);
    }
}

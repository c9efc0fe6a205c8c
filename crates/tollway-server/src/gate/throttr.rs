//! The Throttr protocol over TCP: reads what has arrived, answers all of it, writes once.
//!
//! The buffers are the worker's and not the connection's: an idle connection keeps nothing but half a request, if that.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tollway::block_on;
use tollway_core::algorithm::QuotaOutcome;
use tollway_wire::throttr::FRAME_MAX;

use super::patience::{OutOfPatience, Patience};
use super::{Worker, linger};
use crate::service::ThrottrHeard;

/// What one read brings at most: some hundreds of requests, whose replies are then written before others get their turn.
const READ_SIZE: usize = 16 << 10;

/// What all connections of a worker answer with, one at a time.
pub(super) struct Workbench {
    inbox: Box<[u8]>,
    outbox: Vec<u8>,
    outcomes: Vec<QuotaOutcome>,
}

impl Workbench {
    pub(super) fn new() -> Self {
        Self { inbox: vec![0; FRAME_MAX + READ_SIZE].into(), outbox: Vec::new(), outcomes: Vec::new() }
    }
}

/// How a conversation ended.
enum End {
    /// Both sides know.
    Closed,
    /// The client has its replies, and may still be sending: what is no request, or what comes after the drain began.
    Cut,
    Idle,
    /// Half a request, and never the rest.
    HalfAFrame,
    /// The client does not read.
    Stalled,
}

impl From<OutOfPatience> for End {
    fn from(error: OutOfPatience) -> Self {
        match error {
            OutOfPatience::TooSlow => Self::Stalled,
            OutOfPatience::Failed => Self::Closed,
        }
    }
}

/// Talks to one client until it hangs up, breaks the protocol, is too slow, or the server drains.
pub(super) async fn converse(mut stream: TcpStream, worker: &Worker) {
    let metrics = &worker.metrics;
    match run(&mut stream, worker).await {
        End::Closed => {}
        End::Cut => linger(&mut stream, worker.shared.bounds.linger).await,
        End::Idle => metrics.cut_idle.one(),
        End::HalfAFrame => metrics.cut_frame.one(),
        End::Stalled => metrics.cut_write.one(),
    }
}

async fn run(stream: &mut TcpStream, worker: &Worker) -> End {
    let bounds = &worker.shared.bounds;
    let mut drain = pin!(worker.drain.clone().started());
    let mut draining = false;
    let mut patience = Patience::new(bounds.idle);
    let mut client = Client { worker, half: Vec::new(), unsent: Vec::new(), broken: false };
    let mut until = Instant::now() + bounds.idle;
    loop {
        let idle = client.half.is_empty();
        let serve = poll_fn(|context| client.poll_serve(stream, context));
        let interrupt = (idle && !draining).then_some(drain.as_mut());
        let Served { mut completed } = match patience.read(until, serve, interrupt).await {
            Ok(Some(None)) | Err(OutOfPatience::Failed) => return End::Closed,
            Ok(Some(Some(served))) => served,
            Ok(None) => {
                draining = true;
                until = Instant::now() + bounds.drain_idle;
                continue;
            }
            Err(OutOfPatience::TooSlow) if draining && idle => return End::Closed,
            Err(OutOfPatience::TooSlow) if idle => return End::Idle,
            Err(OutOfPatience::TooSlow) => return End::HalfAFrame,
        };
        if worker.throttr.waits() {
            completed = client.answer().await;
        }
        if !client.unsent.is_empty() {
            let until = Instant::now() + bounds.write_time;
            if let Err(error) = patience.write(until, stream.write_all(&client.unsent)).await {
                return error.into();
            }
            client.unsent = Vec::new();
        }
        if client.broken {
            worker.metrics.throttr.unknown_type.one();
            return End::Cut;
        }
        if client.half.is_empty() {
            if draining || worker.drain.has_started() {
                return End::Cut;
            }
            until = Instant::now() + bounds.idle;
        } else if completed || idle {
            // Only when another frame begins: every byte would else earn another deadline.
            until = Instant::now() + bounds.frame_time;
        }
    }
}

/// What is kept of one client from one read to the next.
struct Client<'w> {
    worker: &'w Worker,
    /// The beginning of a request; where answers are waited for, all that has arrived until they are there.
    half: Vec<u8>,
    /// Replies that the client had no room for.
    unsent: Vec<u8>,
    broken: bool,
}

/// What a read came to.
struct Served {
    /// Was there a whole request in it?
    completed: bool,
}

impl Client<'_> {
    /// Reads, answers and writes, as soon as there is something to read. `None` if the client has hung up.
    fn poll_serve(
        &mut self,
        stream: &mut TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Served>>> {
        let mut workbench = self.worker.workbench();
        let Workbench { inbox, outbox, outcomes } = &mut *workbench;
        let (half, room) = inbox.split_at_mut(self.half.len());
        let mut room = ReadBuf::new(room);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut room))?;
        let read = room.filled().len();
        if read == 0 {
            return Poll::Ready(Ok(None));
        }
        if self.worker.throttr.waits() && !self.worker.shared.echo {
            // Others need the workbench meanwhile.
            self.half.extend_from_slice(room.filled());
            return Poll::Ready(Ok(Some(Served { completed: false })));
        }
        half.copy_from_slice(&self.half);
        let arrived = &inbox[..self.half.len() + read];
        outbox.clear();
        let heard = if self.worker.shared.echo {
            outbox.extend_from_slice(arrived);
            ThrottrHeard { taken: arrived.len(), broken: false }
        } else {
            block_on(self.worker.throttr.answer(arrived, outbox, outcomes))
        };
        self.broken = heard.broken;
        self.half.clear();
        self.half.extend_from_slice(&arrived[heard.taken..]);
        let written = if outbox.is_empty() { 0 } else { stream.try_write(outbox).unwrap_or(0) };
        self.unsent.extend_from_slice(&outbox[written..]);
        Poll::Ready(Ok(Some(Served { completed: heard.taken > 0 })))
    }

    /// Waits for the answers to all that has arrived, and says whether there was a whole request in it.
    async fn answer(&mut self) -> bool {
        let heard = self.worker.throttr.answer(&self.half, &mut self.unsent, &mut Vec::new()).await;
        self.broken = heard.broken;
        self.half.drain(..heard.taken);
        self.half.shrink_to_fit();
        heard.taken > 0
    }
}

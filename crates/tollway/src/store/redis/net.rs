//! Commands to whichever nodes there are, and their replies by the deadline.
//!
//! ```ignore
//! let net = Net::start(&url)?;                    // Redis may be away
//! let replies = net.send(vec![call, another]).await; // in the order of the calls, after 15 ms at the latest
//! ```
//!
//! All callers share one connection to each node, on a thread of its own that does nothing else: what many ask at the same time
//! leaves in one write and comes back in one read. A node that falls silent is left alone after a moment, and calls for it fail at
//! once, until a probe has found it well.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::{io, thread};

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use self::dial::Dialer;
use self::health::Board;
use self::in_person::InPerson;
use self::people::{ORDER_MAX, Order};
use self::switchboard::{Ask, Switchboard};
use super::call::Call;
use super::{Health, RedisUrl, StoreError, Topology};
use crate::cause::Cause;

mod chance;
mod cluster;
mod dial;
mod health;
mod in_person;
mod meaning;
mod node;
mod opening;
mod parcel;
mod patience;
mod people;
mod redirect;
mod replies;
mod sentinel;
mod sheaf;
mod slots;
mod switchboard;
mod tls;

/// How many calls may wait before no more are taken. A node answers a tenth of it within the deadline; the rest is room for a
/// burst, and more would only be memory for calls that time out. One batch is taken whole.
const WAITING_MAX: usize = 16_384;

/// What a node answered, or why there is no answer.
pub(crate) type Reply = Result<redis::Value, StoreError>;

/// The nodes of one store. All callers share it.
#[derive(Debug)]
pub(crate) struct Net {
    asks: mpsc::UnboundedSender<Ask>,
    board: Arc<Board>,
    in_person: Option<Box<InPerson>>,
    cluster: bool,
}

impl Net {
    /// Starts to look for the nodes, and waits for none of them: they may all be away.
    pub(crate) fn start(url: &RedisUrl) -> io::Result<Self> {
        let board = Arc::<Board>::default();
        let dialer = Arc::new(Dialer::new(url)?);
        let cluster = matches!(url.topology, Topology::Cluster(_));
        let in_person = (!cluster && !url.tls)
            .then(|| Box::new(InPerson::new(Arc::clone(&dialer), Arc::clone(&board), url.deadline)));
        let switchboard = Switchboard::new(url, dialer, Arc::clone(&board));
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (asks, asked) = mpsc::unbounded_channel();
        let serve = move || runtime.block_on(switchboard.run(asked));
        thread::Builder::new().name("tollway-redis".to_owned()).spawn(serve)?;
        Ok(Self { asks, board, in_person, cluster })
    }

    /// Do keys have slots that matter?
    pub(crate) fn is_cluster(&self) -> bool {
        self.cluster
    }

    /// Sends every call on its own. The replies come in the order of the calls, each by the deadline at the latest. Calls of
    /// one slot are executed in their order, unless one of them had to be repeated because it was not executed.
    pub(crate) fn send(&self, calls: Vec<Call>) -> Replies {
        let count = calls.len();
        let waiting = self.board.waiting.fetch_add(count, Ordering::Relaxed);
        if waiting >= WAITING_MAX || count == 0 {
            self.board.waiting.fetch_sub(count, Ordering::Relaxed);
            return Replies::ready(calls.iter().map(|_| Err(StoreError::Busy { waiting })).collect());
        }
        let (reply, replies) = oneshot::channel();
        // If the thread is gone, so is the other end of the reply, and that says it.
        let _ = self.asks.send(Ask::Calls { calls, asked: Instant::now(), reply });
        Replies { replies, count }
    }

    /// Sends calls as [`send`](Self::send) does, for a caller that sleeps until they are answered. A single call may be
    /// sent and answered on the caller's own thread before this returns: handing it to the store's thread takes longer.
    pub(crate) fn send_blocking(&self, calls: Vec<Call>) -> Replies {
        if let ([call], Some(in_person)) = (&*calls, &self.in_person)
            && let Some(answer) = in_person.ask(call)
        {
            return Replies::ready(vec![answer]);
        }
        self.send(calls)
    }

    /// Sends a plain command to every primary and gathers what they answer, in the order of their first slots. It may take
    /// seconds: this is for people, not for requests.
    pub(crate) fn send_to_all(&self, command: redis::Cmd) -> Replies {
        self.order(command, None)
    }

    /// Sends a plain command to the `nth` primary, in the order of `send_to_all`; `None` if there are not as many.
    pub(crate) async fn send_to_nth(&self, nth: usize, command: redis::Cmd) -> Option<Reply> {
        self.order(command, Some(nth)).await.pop()
    }

    /// How the nodes are.
    pub(crate) fn health(&self) -> Health {
        self.board.read()
    }

    fn order(&self, command: redis::Cmd, only: Option<usize>) -> Replies {
        let (reply, replies) = oneshot::channel();
        let until = Instant::now() + ORDER_MAX;
        let _ = self.asks.send(Ask::Order(Order { command, only, until, reply }));
        Replies { replies, count: 1 }
    }
}

/// The replies to come. Any executor can wait for them.
#[derive(Debug)]
pub(crate) struct Replies {
    replies: oneshot::Receiver<Vec<Reply>>,
    count: usize,
}

impl Replies {
    fn ready(answers: Vec<Reply>) -> Self {
        let (reply, replies) = oneshot::channel();
        let count = answers.len();
        // The other end is in hand, so it cannot be gone.
        let _ = reply.send(answers);
        Self { replies, count }
    }
}

impl Future for Replies {
    type Output = Vec<Reply>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.replies).poll(context).map(|replies| {
            replies.unwrap_or_else(|_| {
                let source = Cause::new("its I/O thread has ended");
                vec![Err(StoreError::Unreachable { address: "client".to_owned(), source }); self.count]
            })
        })
    }
}

#[cfg(test)]
mod tests;

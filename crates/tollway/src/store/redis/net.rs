//! Sends commands to the nodes of a store, and returns their replies.
//!
//! ```ignore
//! let net = Net::start(&url)?;                       // Redis may be unreachable
//! let replies = net.send(vec![call, another]).await; // in the order of the calls
//! ```
//!
//! All callers share one connection to each node, and one thread that reads and writes them: calls that are made at the
//! same time leave in one write, and their replies come back in one read. If a node does not answer, its circuit
//! breaker opens, and calls for it fail at once until a probe succeeds.
//!
//! The deadline of a call runs while the call waits for Redis: from the moment when it is written, or while there is no
//! connection. It does not run while the call waits in a queue of this process, whose bounds are [`WAITING_MAX`] and
//! [`QUEUE_MAX`](pending::QUEUE_MAX).

use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, thread};

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use self::admin::{ADMIN_MAX, AdminCommand};
use self::dial::Dialer;
use self::direct::DirectConnection;
use self::driver::{Driver, Request};
use self::health::{SharedHealth, WaitingCalls};
use self::pending::Batch;
use self::router::Router;
use self::sentinel::Sentinels;
use super::call::Call;
use super::{Health, RedisUrl, StoreError, Topology};
use crate::cause::Cause;

mod admin;
mod cluster;
mod dial;
mod direct;
mod disposition;
mod driver;
mod health;
mod jitter;
mod node;
mod pending;
mod pipeline;
mod router;
mod sentinel;
#[cfg(feature = "simulation")]
pub(super) mod simulation;
mod slots;
mod stall;
mod tls;

/// The number of calls that may be pending before new ones are shed. It has room for a burst: a node answers as many in
/// some tenths of a second. A batch is taken as a whole.
const WAITING_MAX: usize = 16_384;

/// The longest time that opening a store waits for the outcome of the first connection attempt.
const START_MAX: Duration = Duration::from_millis(500);

/// The pause before a driver that panicked starts again, so that one that always does keeps no core busy. Callers wait
/// meanwhile.
const RESTART_PAUSE: Duration = Duration::from_millis(50);

/// The answer of a node, or the error if there is none.
pub(crate) type Reply = Result<redis::Value, StoreError>;

/// Sends calls to the nodes of one store. All callers share it.
#[derive(Debug)]
pub(crate) struct Net {
    requests: mpsc::UnboundedSender<Request>,
    health: Arc<SharedHealth>,
    direct: Option<Box<DirectConnection>>,
    is_cluster: bool,
}

impl Net {
    /// Starts the driver. A Redis that is unreachable is an outage, and the store starts without it. One that refuses
    /// the password, the user or the certificate, or whose certificate is not trusted, is a mistake and an error.
    pub(crate) fn start(url: &RedisUrl) -> io::Result<Self> {
        let health = Arc::<SharedHealth>::default();
        let dialer = Arc::new(Dialer::new(url)?);
        let is_cluster = matches!(url.topology, Topology::Cluster(_));
        let direct = (!is_cluster && !url.tls)
            .then(|| Box::new(DirectConnection::new(Arc::clone(&dialer), Arc::clone(&health), url.deadline)));
        let sentinels = match &url.topology {
            Topology::Sentinel { sentinels, primary } => {
                Some(Arc::new(Sentinels::new(sentinels.clone(), primary.clone())))
            }
            Topology::Single(_) | Topology::Cluster(_) => None,
        };
        let (first_attempt, outcome) = std::sync::mpsc::sync_channel(1);
        let start = {
            let (url, health) = (url.clone(), Arc::clone(&health));
            move || {
                let router = Router::new(&url, Arc::clone(&health), Instant::now());
                Driver::new(
                    router,
                    Arc::clone(&dialer),
                    sentinels.clone(),
                    url.deadline,
                    first_attempt.clone(),
                )
            }
        };
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (requests, requested) = mpsc::unbounded_channel();
        let serve = move || serve(&runtime, start, requested);
        thread::Builder::new().name("tollway-redis".to_owned()).spawn(serve)?;
        match outcome.recv_timeout(START_MAX) {
            Ok(Err(mistake)) => Err(io::Error::other(mistake)),
            Ok(Ok(())) | Err(_) => Ok(Self { requests, health, direct, is_cluster }),
        }
    }

    /// Returns true if keys have slots, so that a bill may be split.
    pub(crate) fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Sends each call on its own. The replies come in the order of the calls. Calls of one slot are executed in their
    /// order, unless one of them was repeated because it was not executed. Calls are shed if too many are pending.
    pub(crate) fn send(&self, calls: Vec<Call>) -> Replies {
        let count = calls.len();
        if count == 0 {
            return Replies::ready(Vec::new());
        }
        let waiting = match WaitingCalls::begin(&self.health, count) {
            Ok(waiting) => waiting,
            Err(waiting) => {
                self.health.shed.add(count as u64);
                return Replies::ready(vec![Err(StoreError::Busy { waiting }); count]);
            }
        };
        let (caller, replies) = oneshot::channel();
        // If the driver is gone, so is `caller`, and that is an error of its own.
        let _ = self.requests.send(Request::Calls(Batch { calls, waiting, caller }));
        Replies { replies, count }
    }

    /// Sends calls as [`send`](Self::send) does, for a thread that sleeps until they are answered. A single call may be
    /// sent and answered on that thread before this returns, because waking the driver takes longer.
    pub(crate) fn send_blocking(&self, calls: Vec<Call>) -> Replies {
        if let ([call], Some(direct)) = (&*calls, &self.direct)
            && let Some(reply) = direct.call(call)
        {
            return Replies::ready(vec![reply]);
        }
        self.send(calls)
    }

    /// Sends a command of an operator to every primary, and returns the replies in the order of their first slots. It
    /// may take seconds.
    pub(crate) fn send_to_all(&self, command: redis::Cmd) -> Replies {
        self.send_admin(command, None)
    }

    /// Sends a command of an operator to the `nth` primary, in the order of `send_to_all`. Returns `None` if there are
    /// not as many.
    pub(crate) async fn send_to_nth(&self, nth: usize, command: redis::Cmd) -> Option<Reply> {
        self.send_admin(command, Some(nth)).await.pop()
    }

    /// Returns the state of the nodes, and the counters.
    pub(crate) fn health(&self) -> Health {
        self.health.read()
    }

    fn send_admin(&self, command: redis::Cmd, only: Option<usize>) -> Replies {
        let (reply, replies) = oneshot::channel();
        let until = Instant::now() + ADMIN_MAX;
        let _ = self.requests.send(Request::Admin(AdminCommand { command, only, until, reply }));
        Replies { replies, count: 1 }
    }
}

/// Runs the driver until all callers have gone. If it panics, its pending calls fail, and another one starts.
fn serve(
    runtime: &runtime::Runtime,
    start: impl Fn() -> Driver,
    mut requested: mpsc::UnboundedReceiver<Request>,
) {
    let mut driver = start();
    // Nothing outlives a driver that panicked but counters, and the requests that it has not taken.
    while let Err(_panic) =
        panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(driver.run(&mut requested))))
    {
        tracing::error!("the redis driver panicked; its pending calls fail, and it starts again");
        // The new driver says at once that it has no connection, so that the store does not count as well meanwhile.
        driver = start();
        thread::sleep(RESTART_PAUSE);
    }
}

/// The replies to come. Any executor can await them.
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
                let source = Cause::new("its driver has ended");
                vec![Err(StoreError::Unreachable { address: "client".to_owned(), source }); self.count]
            })
        })
    }
}

#[cfg(test)]
mod tests;

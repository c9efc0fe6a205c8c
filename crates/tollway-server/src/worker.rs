//! Runs one worker: a thread with its own runtime, its own sockets and its own counters.
//!
//! Every gate is one task on every worker. A task that panics is started again after a pause; meanwhile the server is
//! not healthy, and `/healthz` says so. It says the same while a gate fails to receive for longer than a moment.
//! Connections are tasks of their gate: a panic in one ends that one.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use socket2::Socket;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tollway::engine::Engine;
use tracing::{error, warn};

use crate::audit::Auditor;
use crate::bounds::Bounds;
use crate::drain::Drain;
use crate::gate::{Gate, GateFuture};
use crate::metrics::{Metrics, WorkerMetrics};
use crate::server::GateAddresses;
use crate::service::Service;
use crate::spans::Spans;
use crate::tap::Tap;
use crate::watch::{LiveFeed, Watch};

/// The interval at which each worker sweeps the store, and the number of slots each time. It takes some tens of
/// microseconds, and a round over ten million buckets takes three minutes even while there are no requests.
const SWEEP_EVERY: Duration = Duration::from_millis(100);
const SWEEP_SLOTS: usize = 8_192;

/// The state that all workers of a server share.
pub(crate) struct Shared {
    pub(crate) limiter: Arc<Engine>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) bounds: Bounds,
    pub(crate) gates: Vec<Arc<dyn Gate>>,
    pub(crate) addresses: GateAddresses,
    pub(crate) health: Arc<Health>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) auditor: Auditor,
    pub(crate) spans: Option<Arc<Spans>>,
    pub(crate) feed: Arc<LiveFeed>,
    pub(crate) tap: Arc<Tap>,
    /// True if the text and the Throttr gate send back what they get, without deciding.
    pub(crate) echo: bool,
}

/// Knows whether everything that must run does.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failed_tasks: AtomicUsize,
    draining: AtomicBool,
    worker_failed: Notify,
}

/// A task that does not do its work. The server is not healthy until this is dropped.
#[derive(Debug)]
pub(crate) struct FailedTask(Arc<Health>);

impl Drop for FailedTask {
    fn drop(&mut self) {
        self.0.failed_tasks.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Health {
    pub(crate) fn is_good(&self) -> bool {
        self.failed_tasks.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Marks the server as one that cannot recover.
    pub(crate) fn fail_worker(&self) {
        self.failed_tasks.fetch_add(1, Ordering::Relaxed);
        self.worker_failed.notify_one();
    }

    pub(crate) async fn worker_failed(&self) {
        self.worker_failed.notified().await;
    }

    /// Marks the server as not healthy for as long as the caller keeps what is returned.
    pub(crate) fn fail_task(self: &Arc<Self>) -> FailedTask {
        self.failed_tasks.fetch_add(1, Ordering::Relaxed);
        FailedTask(Arc::clone(self))
    }
}

/// The state that the gates of one worker share.
pub(crate) struct Worker {
    /// The number of this worker, from 0.
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) service: Arc<Service>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) drain: Drain,
}

impl Worker {
    pub(crate) fn new(index: usize, shared: Arc<Shared>, drain: Drain) -> Self {
        let metrics = Arc::clone(&shared.metrics.workers[index]);
        let service = Service::new(
            Arc::clone(&shared.limiter),
            Arc::clone(&metrics),
            Arc::clone(&shared.watch),
            Arc::clone(&shared.tap),
            shared.auditor.clone(),
            index,
        );
        let service = Arc::new(service.with_spans(shared.spans.clone()));
        Self { index, shared, service, metrics, drain }
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.shared.bounds
    }

    /// Returns whether an answer can take time. In memory it does only if it waits for the disk of a journal.
    pub(crate) fn awaits_store(&self) -> bool {
        self.shared.limiter.is_awaited()
    }

    /// Serves each gate at its socket, until all have drained.
    pub(crate) async fn run(self: Arc<Self>, sockets: Vec<Socket>) {
        let mut tasks = JoinSet::new();
        for (gate, socket) in self.shared.gates.iter().cloned().zip(sockets) {
            let worker = Arc::clone(&self);
            // The socket itself stays with the closure, so that the gate can be started again.
            let start = move || Arc::clone(&gate).serve(socket.try_clone()?, Arc::clone(&worker));
            tasks.spawn(Arc::clone(&self).supervise(start));
        }
        let worker = Arc::clone(&self);
        tasks.spawn(Arc::clone(&self).supervise(move || Ok(Box::pin(sweep(Arc::clone(&worker))))));
        self.drain.clone().started().await;
        let drained = async { while tasks.join_next().await.is_some() {} };
        if timeout(self.bounds().drain, drained).await.is_err() {
            let limits = self.shared.gates.iter().filter_map(|gate| gate.connection_limit());
            let connections: usize = limits.map(|limit| limit.open()).sum();
            warn!(connections, "drain timed out; closing the remaining connections");
        }
    }

    /// Runs a task until the server has drained, and starts it again when it panics or cannot be started.
    async fn supervise(self: Arc<Self>, mut start: impl FnMut() -> io::Result<GateFuture>) {
        let mut failed = None;
        loop {
            let mut task = JoinSet::new();
            let started = catch_unwind(AssertUnwindSafe(&mut start));
            match started.unwrap_or_else(|_| Err(io::Error::other("it panicked"))) {
                Ok(future) => {
                    task.spawn(future);
                    failed = None;
                }
                Err(error) => error!(%error, "cannot start a task that serves all clients; trying again"),
            }
            let ended = tokio::select! {
                ended = task.join_next() => ended,
                () = self.drain.clone().started() => {
                    // Closes the socket, so that nobody connects any more.
                    drop(start);
                    task.join_next().await;
                    return;
                }
            };
            match ended {
                Some(Ok(())) => return,
                Some(Err(_)) => error!("a task that serves all clients panicked; it is started again"),
                None => {}
            }
            failed.get_or_insert_with(|| self.shared.health.fail_task());
            tokio::select! {
                () = sleep(self.bounds().restart_pause) => {}
                () = self.drain.clone().started() => return,
            }
        }
    }
}

/// Sweeps the store until the server drains.
async fn sweep(worker: Arc<Worker>) {
    let mut ticks = interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut draining = pin!(worker.drain.clone().started());
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                worker.shared.limiter.sweep(SWEEP_SLOTS);
            }
            () = &mut draining => return,
        }
    }
}

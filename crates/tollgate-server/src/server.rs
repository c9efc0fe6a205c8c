//! Starting, and stopping.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{fmt, io};

use tollgate::Limiter;
use tollgate::config::{Gates, Watch};
use tracing::error;

use crate::bounds::Bounds;
use crate::drain::{DrainSwitch, drain};
use crate::gate::{self, Slots};
use crate::metrics::Metrics;
use crate::reload::Reloader;
use crate::service::Service;

/// What to serve, and where.
pub struct Settings {
    /// What decides.
    pub limiter: Arc<Limiter>,
    /// Where the HTTP gate listens; port 0 is any free port.
    pub http: Option<SocketAddr>,
    /// How many threads serve.
    pub workers: usize,
    /// How much of everything.
    pub bounds: Bounds,
    /// The file the policy came from, and a watch that began before it was read. Without one, nothing is reloaded.
    pub config: Option<(PathBuf, Watch)>,
}

impl Settings {
    /// Every gate at its default address, a worker for each core, nothing to reload.
    pub fn new(limiter: Arc<Limiter>) -> Self {
        let workers = thread::available_parallelism().map_or(1, Into::into);
        Self { limiter, http: Gates::default().http, workers, bounds: Bounds::default(), config: None }
    }
}

/// A running server. It stops when it is dropped.
pub struct Server {
    http_addr: Option<SocketAddr>,
    workers: Vec<Worker>,
    reloader: Reloader,
}

struct Worker {
    drain: DrainSwitch,
    thread: Option<JoinHandle<()>>,
}

/// What all workers of a server share.
pub(crate) struct Shared {
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) bounds: Bounds,
    pub(crate) slots: Slots,
}

impl Server {
    /// Listens, and returns when connections are accepted. The error says which address could not be had.
    pub fn start(settings: Settings) -> io::Result<Self> {
        let Settings { limiter, http, workers, bounds, config } = settings;
        let workers = workers.max(1);
        let metrics = Arc::new(Metrics::new(workers));
        gate::allow_connections(bounds.connections);
        let listeners = http.map_or(Ok(Vec::new()), |address| gate::listen(address, workers))?;
        let http_addr = listeners.first().map(std::net::TcpListener::local_addr).transpose()?;
        let reloader = Reloader::start(config, Arc::clone(&limiter), Arc::clone(&metrics))?;
        let slots = Slots::new(bounds.connections);
        let shared = Arc::new(Shared { limiter, metrics, bounds, slots });
        let mut server = Self { http_addr, workers: Vec::with_capacity(workers), reloader };
        for (index, listener) in listeners.into_iter().enumerate() {
            server.workers.push(Worker::start(index, listener, Arc::clone(&shared))?);
        }
        Ok(server)
    }

    /// Where the HTTP gate listens.
    pub const fn http_addr(&self) -> Option<SocketAddr> {
        self.http_addr
    }

    /// Reads the configuration file again, soon.
    pub fn reload(&self) {
        self.reloader.request();
    }

    /// Accepts no more connections, answers what was read, and closes the rest. Returns at once; see [`join`](Self::join).
    pub fn drain(&self) {
        self.workers.iter().for_each(|worker| worker.drain.start());
    }

    /// Waits until a drain is done.
    pub fn join(mut self) {
        self.join_workers();
    }

    /// Drains, and waits until that is done.
    pub fn stop(self) {
        self.drain();
        self.join();
    }

    fn join_workers(&mut self) {
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take()
                && thread.join().is_err()
            {
                error!("a worker panicked");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.drain();
        self.join_workers();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("http_addr", &self.http_addr).finish_non_exhaustive()
    }
}

impl Worker {
    fn start(index: usize, listener: std::net::TcpListener, shared: Arc<Shared>) -> io::Result<Self> {
        let (switch, drain) = drain();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let metrics = Arc::clone(&shared.metrics.workers[index]);
        let service = Service::new(Arc::clone(&shared.limiter), Arc::clone(&metrics));
        let serve = move || runtime.block_on(gate::serve(listener, shared, service, metrics, drain));
        let thread = thread::Builder::new().name(format!("tollgate-{index}")).spawn(serve)?;
        Ok(Self { drain: switch, thread: Some(thread) })
    }
}

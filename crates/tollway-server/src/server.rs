//! Starts and stops a server.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{fmt, io};

use socket2::Socket;
use tollway::config::{Gates, OtelSettings, WatchSettings};
use tollway::engine::Engine;
use tracing::error;

use crate::audit::{AuditLog, AuditWriter, Auditor, check_audit_file};
use crate::bounds::Bounds;
use crate::drain::{DrainSwitch, drain};
use crate::gate::{self, ConnectionLimit, Gate, Listed, ReservedPorts, size_file_table, smockron};
use crate::metrics::Metrics;
use crate::reload::{ConfigFile, Reloader};
use crate::spans::{SpanThread, Spans};
use crate::tap::Tap;
use crate::watch::{LiveFeed, Sampler, Watch};
use crate::worker::{Health, Shared, Worker};

/// Configures what a server serves, and where.
pub struct Settings {
    /// The engine that decides.
    pub limiter: Arc<Engine>,
    /// The gates with their addresses; port 0 is any free port.
    pub gates: Gates,
    /// True if the text and the Throttr gate send back what they get, without deciding. It shows the cost of the I/O.
    pub echo: bool,
    /// The number of threads that serve.
    pub workers: usize,
    /// The settings of what is shown about ids.
    pub watch: WatchSettings,
    /// The file to which a line is appended for each reset, refund, override and reload.
    pub audit: Option<PathBuf>,
    /// True if the server must not start with a gate that everybody may use, unless it is on loopback.
    pub require_auth: bool,
    /// The settings of spans for OpenTelemetry. They need the feature `otel`.
    pub otel: Option<OtelSettings>,
    /// The bounds of everything that grows.
    pub bounds: Bounds,
    /// The file that the policy came from. Without one, nothing is reloaded.
    pub config: Option<ConfigFile>,
    /// The ports at which clients wait already.
    pub reserved: ReservedPorts,
}

impl Settings {
    /// Returns the default settings: every gate at its default address, a worker for each core, nothing to reload.
    pub fn new(limiter: Arc<Engine>) -> Self {
        let workers = thread::available_parallelism().map_or(1, Into::into);
        let (gates, bounds) = (Gates::default(), Bounds::default());
        let (watch, audit, otel) = (WatchSettings::DEFAULT, None, None);
        Self {
            limiter,
            gates,
            echo: false,
            workers,
            watch,
            audit,
            otel,
            require_auth: false,
            bounds,
            config: None,
            reserved: ReservedPorts::default(),
        }
    }
}

/// The parts of [`Settings`] that can be checked before there is an engine.
#[derive(Clone, Copy, Debug)]
pub struct StartChecks<'a> {
    /// The gates.
    pub gates: &'a Gates,
    /// True if no gate may be one that everybody may use.
    pub require_auth: bool,
    /// The file of the audit log.
    pub audit: Option<&'a Path>,
    /// The settings of spans for OpenTelemetry.
    pub otel: Option<&'a OtelSettings>,
}

impl StartChecks<'_> {
    /// Checks what would keep a server from starting: open gates, the files of certificates, tokens and keys, the file
    /// of the audit log, which is made if it does not exist, and the endpoint of spans. The error is the one that
    /// [`Server::start`] would have. After this succeeds, it is safe to stop a running server and start this one.
    pub fn run(self) -> io::Result<()> {
        gate::check_access(self.gates, self.require_auth)?;
        self.audit.map_or(Ok(()), check_audit_file)?;
        self.otel.map_or(Ok(()), Spans::check)
    }
}

/// A running server. It stops when it is dropped.
pub struct Server {
    addresses: GateAddresses,
    workers: Vec<WorkerThread>,
    reloader: Reloader,
    sampler: Option<Sampler>,
    health: Arc<Health>,
    limiter: Arc<Engine>,
    /// One of the last fields, so that it is dropped after everything that records spans.
    _spans: Option<SpanThread>,
    /// The last field, so that it is dropped after everything that records lines.
    _audit: AuditWriter,
}

/// The addresses at which the gates listen, by name. A port that was 0 is the one that the system chose.
#[derive(Clone, Debug, Default)]
pub(crate) struct GateAddresses(Vec<(&'static str, SocketAddr)>);

impl GateAddresses {
    /// Returns the address of the gate with this name.
    pub(crate) fn of(&self, gate: &str) -> Option<SocketAddr> {
        self.0.iter().find(|(name, _)| *name == gate).map(|(_, address)| *address)
    }
}

struct WorkerThread {
    drain: DrainSwitch,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and returns when connections are accepted. The error names the address that could not be bound.
    pub fn start(settings: Settings) -> io::Result<Self> {
        gate::check_open(&settings)?;
        let listed = gate::listed(&settings)?;
        Self::start_gates(settings, listed)
    }

    /// Starts these gates instead of those that are configured.
    pub(crate) fn start_gates(settings: Settings, listed: Listed) -> io::Result<Self> {
        let Listed { gates, mut files, .. } = listed;
        let Settings { limiter, echo, workers, watch, audit, otel, bounds, config, mut reserved, .. } =
            settings;
        let workers = workers.max(1);
        let metrics = Arc::new(Metrics::new(workers));
        let limits = gates.iter().filter_map(|gate| gate.connection_limit()).map(ConnectionLimit::max);
        // Hardly anybody fills every gate, so no more is needed than for the largest.
        size_file_table(limits.clone().sum(), limits.max().unwrap_or(0));
        let mut addresses = Vec::with_capacity(gates.len());
        let mut by_worker: Vec<Vec<Socket>> = (0..workers).map(|_| Vec::new()).collect();
        for gate in &gates {
            let sockets = gate::bind(&**gate, workers, &mut reserved)?;
            let bound = sockets[0].local_addr()?.as_socket();
            addresses.push((gate.name(), bound.unwrap_or_else(|| gate.address())));
            by_worker.iter_mut().zip(sockets).for_each(|(of_worker, socket)| of_worker.push(socket));
        }
        let addresses = GateAddresses(addresses);
        let places = operators_connections(&gates);
        let feed = Arc::new(LiveFeed::new(bounds.watchers.min(places / 2)));
        let tap = Arc::new(Tap::new(Arc::clone(&limiter), bounds.recorders.min(places / 4)));
        let watch = Arc::new(Watch::new(watch, workers));
        let (log, writer) = AuditLog::start(audit.as_deref())?;
        let auditor = Auditor::new(Arc::new(log), Arc::clone(&limiter), Arc::clone(&watch));
        files.extend(config.map(|file| file.reloadable(Arc::clone(&limiter))));
        let reloader = Reloader::start(files, auditor.clone(), Arc::clone(&metrics))?;
        let health = Arc::new(Health::default());
        let spans = otel.map(|otel| Spans::start(&otel, workers, Arc::clone(&metrics))).transpose()?;
        let (spans, span_thread) = spans.unzip();
        let mut server = Self {
            addresses: addresses.clone(),
            workers: Vec::with_capacity(workers),
            reloader,
            sampler: None,
            health: Arc::clone(&health),
            limiter: Arc::clone(&limiter),
            _spans: span_thread,
            _audit: writer,
        };
        let shared = Shared {
            limiter,
            metrics,
            bounds,
            gates,
            addresses,
            health,
            watch,
            auditor,
            spans,
            feed,
            tap,
            echo,
        };
        let shared = Arc::new(shared);
        for (index, sockets) in by_worker.into_iter().enumerate() {
            server.workers.push(WorkerThread::start(index, sockets, &shared)?);
        }
        server.sampler = Some(Sampler::start(shared)?);
        Ok(server)
    }

    /// Returns the address of the gate with this name.
    pub(crate) fn address_of(&self, gate: &str) -> Option<SocketAddr> {
        self.addresses.of(gate)
    }

    /// Returns the address of the HTTP gate.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.address_of("http")
    }

    /// Returns the address of the admin gate.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.address_of("admin")
    }

    /// Returns the address of the text gate.
    pub fn text_addr(&self) -> Option<SocketAddr> {
        self.address_of("text")
    }

    /// Returns the address of the Throttr gate.
    pub fn throttr_addr(&self) -> Option<SocketAddr> {
        self.address_of("throttr")
    }

    /// Returns the address of the RESP gate.
    pub fn resp_addr(&self) -> Option<SocketAddr> {
        self.address_of("resp")
    }

    /// Returns the address of the gate for Envoy's rate limit service.
    pub fn rls_addr(&self) -> Option<SocketAddr> {
        self.address_of("rls")
    }

    /// Returns the address to which gatekeepers report.
    pub fn smockron_addr(&self) -> Option<SocketAddr> {
        self.address_of(smockron::ACCOUNTING)
    }

    /// Returns the address at which gatekeepers hear of delays.
    pub fn smockron_control_addr(&self) -> Option<SocketAddr> {
        self.address_of(smockron::CONTROL)
    }

    /// Reloads the configuration file soon.
    pub fn reload(&self) {
        self.reloader.request();
    }

    /// Starts to drain: the server accepts no more connections, answers what was read, and closes the rest. Returns at
    /// once; [`join`](Self::join) waits.
    pub fn drain(&self) {
        self.health.start_draining();
        self.workers.iter().for_each(|worker| worker.drain.start());
    }

    /// Waits until the server has drained.
    pub fn join(mut self) {
        self.join_workers();
    }

    /// Returns when a worker has panicked and the server should be stopped.
    pub(crate) async fn worker_failed(&self) {
        self.health.worker_failed().await;
    }

    /// Drains, and waits until that is done.
    pub fn stop(self) {
        self.drain();
        self.join();
    }

    fn join_workers(&mut self) {
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()) {
            let _ = thread.join();
        }
        // Every decision has been made, so the journal gets all of them.
        self.limiter.close_journal();
    }
}

/// Returns the number of connections that the gate for operators accepts. Its reserve is not among them.
fn operators_connections(gates: &[Arc<dyn Gate>]) -> usize {
    let limit_of = |name| gates.iter().find(|gate| gate.name() == name)?.connection_limit();
    limit_of("admin").or_else(|| limit_of("http")).map_or(0, ConnectionLimit::total)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.drain();
        self.join_workers();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl WorkerThread {
    fn start(index: usize, sockets: Vec<Socket>, shared: &Arc<Shared>) -> io::Result<Self> {
        let (switch, drain) = drain();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let worker = Arc::new(Worker::new(index, Arc::clone(shared), drain));
        let health = Arc::clone(&shared.health);
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| runtime.block_on(worker.run(sockets)))).is_err() {
                error!("a worker panicked; the server stops");
                health.fail_worker();
            }
        };
        let thread = thread::Builder::new().name(format!("tollway-{index}")).spawn(run)?;
        Ok(Self { drain: switch, thread: Some(thread) })
    }
}

//! Starting, and stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::{fmt, io};

use socket2::{Protocol, Socket};
use tokio::net::TcpListener;
use tollway::config::{Gates, OnInsert};
use tollway::engine::Engine;
use tracing::error;

use crate::bounds::Bounds;
use crate::datagrams::Datagrams;
use crate::drain::{DrainSwitch, drain};
use crate::gate::{self, Doors, Slots};
use crate::metrics::Metrics;
use crate::reload::{ConfigFile, Reloader};
use crate::service::{Hub, Service, Statsd, TextService};
use crate::stats::Stats;

/// How many batches of datagrams each worker answers at a time, where answers are waited for: while one is on its way, the
/// others are received.
const TEXT_WAITING: usize = 8;

/// What to serve, and where.
pub struct Settings {
    /// What decides.
    pub limiter: Arc<Engine>,
    /// Where each gate listens; port 0 is any free port.
    pub gates: Gates,
    /// Do the text and the Throttr gate send back what they get, and decide nothing? It shows what the way there costs.
    pub echo: bool,
    /// How many threads serve.
    pub workers: usize,
    /// How much of everything.
    pub bounds: Bounds,
    /// The file the policy came from. Without one, nothing is reloaded.
    pub config: Option<ConfigFile>,
}

impl Settings {
    /// Every gate at its default address, a worker for each core, nothing to reload.
    pub fn new(limiter: Arc<Engine>) -> Self {
        let workers = thread::available_parallelism().map_or(1, Into::into);
        Self {
            limiter,
            gates: Gates::default(),
            echo: false,
            workers,
            bounds: Bounds::default(),
            config: None,
        }
    }
}

/// A running server. It stops when it is dropped.
pub struct Server {
    gates: Gates,
    workers: Vec<Worker>,
    reloader: Reloader,
}

struct Worker {
    drain: DrainSwitch,
    thread: Option<JoinHandle<()>>,
}

/// What all workers of a server share.
pub(crate) struct Shared {
    pub(crate) limiter: Arc<Engine>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) bounds: Bounds,
    pub(crate) slots: Slots,
    pub(crate) on_insert: OnInsert,
    pub(crate) echo: bool,
    pub(crate) hub: Arc<Hub>,
    pub(crate) statsd: Option<Statsd>,
    stats: Arc<Stats>,
}

impl Server {
    /// Listens, and returns when connections are accepted. The error says which address could not be had.
    pub fn start(settings: Settings) -> io::Result<Self> {
        let Settings { limiter, mut gates, echo, workers, bounds, config } = settings;
        let workers = workers.max(1);
        let metrics = Arc::new(Metrics::new(workers));
        gate::allow_connections(bounds.connections);
        let sockets = Sockets::bind(&mut gates, workers)?;
        let reloader = Reloader::start(config, Arc::clone(&limiter), Arc::clone(&metrics))?;
        let (slots, on_insert) = (Slots::new(bounds.connections), gates.on_insert);
        let stats = Arc::new(Stats::new(workers));
        let hub = Arc::new(Hub::new(&bounds));
        let statsd = gates.smockron.as_ref().and_then(|gate| gate.statsd.as_deref());
        let statsd = statsd.map(Statsd::find).transpose()?;
        let shared =
            Arc::new(Shared { limiter, metrics, bounds, slots, on_insert, echo, hub, statsd, stats });
        let mut server = Self { gates, workers: Vec::with_capacity(workers), reloader };
        for (index, sockets) in sockets.into_iter().enumerate() {
            server.workers.push(Worker::start(index, sockets, Arc::clone(&shared))?);
        }
        Ok(server)
    }

    /// Where the HTTP gate listens.
    pub const fn http_addr(&self) -> Option<SocketAddr> {
        self.gates.http
    }

    /// Where the text gate listens.
    pub const fn text_addr(&self) -> Option<SocketAddr> {
        self.gates.text
    }

    /// Where the Throttr gate listens.
    pub const fn throttr_addr(&self) -> Option<SocketAddr> {
        self.gates.throttr
    }

    /// Where gatekeepers say what they let through.
    pub fn smockron_addr(&self) -> Option<SocketAddr> {
        self.gates.smockron.as_ref().map(|gate| gate.accounting)
    }

    /// Where gatekeepers hear whom to delay.
    pub fn smockron_control_addr(&self) -> Option<SocketAddr> {
        self.gates.smockron.as_ref()?.control()
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
                error!("a worker thread panicked");
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
        f.debug_struct("Server").field("gates", &self.gates).finish_non_exhaustive()
    }
}

/// One worker's sockets, bound and not yet served.
struct Sockets {
    http: Option<std::net::TcpListener>,
    throttr: Option<std::net::TcpListener>,
    accounting: Option<std::net::TcpListener>,
    control: Option<std::net::TcpListener>,
    text: Option<std::net::UdpSocket>,
}

impl Sockets {
    /// Sockets for every worker. A port that was left open is told to `gates`.
    fn bind(gates: &mut Gates, workers: usize) -> io::Result<Vec<Self>> {
        let http = bind(&mut gates.http, workers, Protocol::TCP)?;
        let throttr = bind(&mut gates.throttr, workers, Protocol::TCP)?;
        let text = bind(&mut gates.text, workers, Protocol::UDP)?;
        let (mut at, mut control_at) = match &gates.smockron {
            Some(gate) => (Some(gate.accounting), gate.control()),
            None => (None, None),
        };
        let accounting = bind(&mut at, workers, Protocol::TCP)?;
        let control = bind(&mut control_at, workers, Protocol::TCP)?;
        if let (Some(gate), Some(at)) = (&mut gates.smockron, at) {
            (gate.accounting, gate.control) = (at, control_at);
        }
        let sockets = http.into_iter().zip(throttr).zip(text).zip(accounting.into_iter().zip(control));
        Ok(sockets
            .map(|(((http, throttr), text), (accounting, control))| Self {
                http,
                throttr,
                accounting,
                control,
                text,
            })
            .collect())
    }

    /// Makes them a runtime's, inside it.
    fn open(self, text: Vec<TextService>) -> io::Result<Doors> {
        let listener = |socket: Option<std::net::TcpListener>| socket.map(TcpListener::from_std).transpose();
        Ok(Doors {
            http: listener(self.http)?,
            throttr: listener(self.throttr)?,
            accounting: listener(self.accounting)?,
            control: listener(self.control)?,
            text: self.text.map(Datagrams::new).transpose()?.map(|datagrams| (datagrams, text)),
        })
    }
}

/// A socket of one gate for every worker, if the gate is on.
fn bind<S: From<Socket>>(
    gate: &mut Option<SocketAddr>,
    workers: usize,
    by: Protocol,
) -> io::Result<Vec<Option<S>>> {
    let Some(address) = gate else { return Ok((0..workers).map(|_| None).collect()) };
    let sockets = gate::listen(*address, workers, by)?;
    *address = sockets[0].local_addr()?.as_socket().unwrap_or(*address);
    Ok(sockets.into_iter().map(|socket| Some(S::from(socket))).collect())
}

impl Worker {
    fn start(index: usize, sockets: Sockets, shared: Arc<Shared>) -> io::Result<Self> {
        let (switch, drain) = drain();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let metrics = Arc::clone(&shared.metrics.workers[index]);
        let service = Arc::new(Service::new(Arc::clone(&shared.limiter), metrics));
        // In memory one is always done before the next datagrams are received.
        let desks = if shared.limiter.is_shared() { TEXT_WAITING } else { 1 };
        let text = || TextService::new(Arc::clone(&service), Arc::clone(&shared.stats), index);
        let text = (0..desks).map(|_| text()).collect();
        let doors = {
            let _inside = runtime.enter();
            sockets.open(text)?
        };
        let worker = gate::Worker::new(index, shared, service, drain);
        let serve = move || runtime.block_on(gate::serve(doors, worker));
        let thread = thread::Builder::new().name(format!("tollway-{index}")).spawn(serve)?;
        Ok(Self { drain: switch, thread: Some(thread) })
    }
}

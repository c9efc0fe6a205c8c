//! Doors: listening, accepting, and how many may be inside.

mod http;
mod patience;
mod smockron;
mod text;
mod throttr;

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, sleep, timeout};
use tracing::{error, warn};

use crate::datagrams::Datagrams;
use crate::drain::Drain;
use crate::metrics::{Gauges, WorkerMetrics};
use crate::occasion::Occasion;
use crate::server::Shared;
use crate::service::{Service, SmockronService, TextService, ThrottrService};

/// Connections that wait to be accepted, per worker. The kernel has a bound of its own, usually higher.
const BACKLOG: i32 = 1024;
/// Files that are not connections: sockets that listen, what the runtimes wait with, the configuration.
const OTHER_FILES: u64 = 64;
/// How long accepting pauses when the process is out of file descriptors.
const OUT_OF_FILES: Duration = Duration::from_millis(50);
/// How often, and how many slots at a time, each worker sweeps the store: some tens of microseconds, and a round over ten
/// million buckets in three minutes even while nobody asks anything.
const SWEEP_EVERY: Duration = Duration::from_millis(100);
const SWEEP_SLOTS: usize = 8_192;
/// How many refused connections are waited for, per worker, until they have read the refusal.
const LINGERING_MAX: usize = 128;

/// A socket for each worker, all on one address: the kernel spreads what comes over them.
pub(crate) fn listen(address: SocketAddr, workers: usize, by: Protocol) -> io::Result<Vec<Socket>> {
    let explain = |error: io::Error| {
        let what = if error.kind() == io::ErrorKind::AddrInUse { ": the port is in use" } else { "" };
        io::Error::new(error.kind(), format!("cannot listen on {address}{what} ({error})"))
    };
    // Sockets that share a port would share it with another Tollway's, too. One that does not share finds out.
    if address.port() != 0 {
        bind(address, by, false).map_err(explain)?;
    }
    let first = bind(address, by, true).map_err(explain)?;
    let bound = first.local_addr()?.as_socket().unwrap_or(address);
    let rest = (1..workers).map(|_| bind(bound, by, true).map_err(explain));
    std::iter::once(Ok(first)).chain(rest).collect()
}

/// Makes room for so many connections, as far as the system lets us: many give a process 1024 files and let it ask for more.
pub fn allow_connections(connections: usize) {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHER_FILES);
    let limits = getrlimit(Resource::Nofile);
    let Some(current) = limits.current.filter(|current| *current < wanted) else { return };
    let current = limits.maximum.map_or(wanted, |maximum| maximum.min(wanted)).max(current);
    // What cannot be raised stays, and is said.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limits });
    if current < wanted {
        warn!(
            files = current,
            wanted, "the open file limit is lower than the connection limit; raise it with ulimit -n"
        );
    }
}

fn bind(address: SocketAddr, by: Protocol, shared: bool) -> io::Result<Socket> {
    let kind = if by == Protocol::UDP { Type::DGRAM } else { Type::STREAM };
    let socket = Socket::new(Domain::for_address(address), kind, Some(by))?;
    // Lets a port be had again at once after a restart; for datagrams it would let two servers have one.
    socket.set_reuse_address(by == Protocol::TCP)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    if by == Protocol::TCP {
        socket.listen(BACKLOG)?;
    }
    Ok(socket)
}

/// Places for connections, counted over all workers.
pub(crate) struct Slots {
    taken: AtomicUsize,
    max: usize,
}

impl Slots {
    pub(crate) const fn new(max: usize) -> Self {
        Self { taken: AtomicUsize::new(0), max }
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) const fn max(&self) -> usize {
        self.max
    }

    fn take(&self) -> bool {
        let fits = |taken| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

/// Where one worker is asked.
pub(crate) struct Doors {
    pub(crate) http: Option<TcpListener>,
    pub(crate) throttr: Option<TcpListener>,
    pub(crate) accounting: Option<TcpListener>,
    pub(crate) control: Option<TcpListener>,
    /// And who answers there, each a batch at a time.
    pub(crate) text: Option<(Datagrams, Vec<TextService>)>,
}

/// What one worker's connections have in common.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    service: Arc<Service>,
    metrics: Arc<WorkerMetrics>,
    drain: Drain,
    throttr: ThrottrService,
    workbench: Mutex<throttr::Workbench>,
    smockron: SmockronService,
    ears: Mutex<smockron::Ears>,
    backlog: smockron::Backlog,
    /// Does this worker what is done once for all?
    keeps: bool,
}

impl Worker {
    pub(crate) fn new(index: usize, shared: Arc<Shared>, service: Arc<Service>, drain: Drain) -> Self {
        let smockron =
            SmockronService::new(Arc::clone(&service), Arc::clone(&shared.hub), shared.statsd.clone());
        Self {
            metrics: Arc::clone(service.metrics()),
            drain,
            throttr: ThrottrService::new(Arc::clone(&service), shared.on_insert),
            workbench: Mutex::new(throttr::Workbench::new()),
            smockron,
            ears: Mutex::new(smockron::Ears::new()),
            backlog: smockron::Backlog::new(shared.bounds.accounting),
            keeps: index == 0,
            shared,
            service,
        }
    }

    fn gauges(&self) -> Gauges {
        let (slots, hub) = (&self.shared.slots, &self.shared.hub);
        Gauges {
            connections: slots.taken(),
            connections_max: slots.max(),
            subscribers: hub.subscribers(),
            delays: hub.delays(),
        }
    }

    /// The lock is never waited for: one thread answers all connections of a worker, and awaits nothing meanwhile.
    fn workbench(&self) -> MutexGuard<'_, throttr::Workbench> {
        self.workbench.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As little waited for.
    fn ears(&self) -> MutexGuard<'_, smockron::Ears> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place, given back when the connection ends, however it ends.
struct Inside(Arc<Worker>);

impl Inside {
    /// A place for one more, if there is one.
    fn take(stream: &TcpStream, worker: &Arc<Worker>) -> Option<Self> {
        // Without it, the second of two pipelined answers waits for the client's delayed acknowledgement: 40 ms.
        let _ = stream.set_nodelay(true);
        let taken = worker.shared.slots.take();
        if taken {
            worker.metrics.connections.one()
        } else {
            worker.metrics.connections_shed.one()
        }
        taken.then(|| Self(Arc::clone(worker)))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.shared.slots.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Who is inside, and who is being told that there is no room.
#[derive(Default)]
struct Guests {
    inside: JoinSet<()>,
    lingering: JoinSet<()>,
}

/// Accepts connections until the drain starts, then waits for those inside.
pub(crate) async fn serve(doors: Doors, worker: Worker) {
    let worker = Arc::new(worker);
    let Doors { http, throttr, accounting, control, text } = doors;
    let mut guests = Guests::default();
    if let Some((datagrams, services)) = text {
        let datagrams = Arc::new(datagrams);
        for service in services {
            let (datagrams, worker) = (Arc::clone(&datagrams), Arc::clone(&worker));
            guests.inside.spawn(async move { text::converse(&datagrams, &worker, service).await });
        }
    }
    if worker.keeps && accounting.is_some() {
        let worker = Arc::clone(&worker);
        guests.inside.spawn(async move { smockron::keep(&worker).await });
    }
    // Ends with the runtime: whoever has said something waits until it is entered.
    let mut entering = JoinSet::new();
    let enter = || smockron::enter_for_ever(Arc::clone(&worker));
    if accounting.is_some() {
        entering.spawn(enter());
    }
    let mut draining = pin!(worker.drain.clone().started());
    let mut trouble = Occasion::default();
    let mut sweep = tokio::time::interval(SWEEP_EVERY);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = sweep.tick() => {
                worker.shared.limiter.sweep(SWEEP_SLOTS);
            }
            accepted = accept(http.as_ref()) => match accepted {
                Ok(stream) => guests.admit_http(stream, &worker),
                Err(error) => pause(&error, &mut trouble).await,
            },
            accepted = accept(throttr.as_ref()) => match accepted {
                Ok(stream) => guests.admit_throttr(stream, &worker),
                Err(error) => pause(&error, &mut trouble).await,
            },
            accepted = accept(accounting.as_ref()) => match accepted {
                Ok(stream) => guests.admit_accounting(stream, &worker),
                Err(error) => pause(&error, &mut trouble).await,
            },
            accepted = accept(control.as_ref()) => match accepted {
                Ok(stream) => guests.admit_control(stream, &worker),
                Err(error) => pause(&error, &mut trouble).await,
            },
            Some(ended) = guests.inside.join_next() => report(ended),
            Some(_) = guests.lingering.join_next() => {}
            Some(ended) = entering.join_next() => {
                report(ended);
                entering.spawn(enter());
            }
            () = &mut draining => break,
        }
    }
    waiting(http).for_each(|stream| guests.admit_http(stream, &worker));
    waiting(throttr).for_each(|stream| guests.admit_throttr(stream, &worker));
    drop((accounting, control));
    let all_gone = async {
        while let Some(ended) = guests.inside.join_next().await {
            report(ended)
        }
    };
    if timeout(worker.shared.bounds.drain, all_gone).await.is_err() {
        warn!(connections = guests.inside.len(), "drain timed out; closing the remaining connections");
    }
}

/// The next connection; where there is no door, nobody ever comes.
async fn accept(door: Option<&TcpListener>) -> io::Result<TcpStream> {
    match door {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// Whoever was let in by the kernel before the door closed has been promised an answer.
fn waiting(door: Option<TcpListener>) -> impl Iterator<Item = TcpStream> {
    let listener = door.and_then(|listener| listener.into_std().ok());
    std::iter::from_fn(move || listener.as_ref()?.accept().ok()).filter_map(|(stream, _)| {
        stream.set_nonblocking(true).ok()?;
        TcpStream::from_std(stream).ok()
    })
}

impl Guests {
    fn admit_http(&mut self, stream: TcpStream, worker: &Arc<Worker>) {
        if let Some(place) = Inside::take(&stream, worker) {
            self.inside.spawn(async move { http::converse(stream, &place.0).await });
        } else if self.lingering.len() < LINGERING_MAX {
            let worker = Arc::clone(worker);
            self.lingering.spawn(async move { http::turn_away(stream, &worker).await });
        }
    }

    /// Without a place the connection is closed: this protocol has no word for it.
    fn admit_throttr(&mut self, stream: TcpStream, worker: &Arc<Worker>) {
        if let Some(place) = Inside::take(&stream, worker) {
            self.inside.spawn(async move { throttr::converse(stream, &place.0).await });
        }
    }

    fn admit_accounting(&mut self, stream: TcpStream, worker: &Arc<Worker>) {
        if let Some(place) = Inside::take(&stream, worker) {
            self.inside.spawn(async move { smockron::account(stream, &place.0).await });
        }
    }

    fn admit_control(&mut self, stream: TcpStream, worker: &Arc<Worker>) {
        if let Some(place) = Inside::take(&stream, worker) {
            self.inside.spawn(async move { smockron::control(stream, &place.0).await });
        }
    }
}

/// Reads on for a moment: closing with bytes unread would reset the connection and take the refusal with it.
async fn linger(stream: &mut TcpStream, limit: Duration) {
    let mut ignored = [0; 1024];
    let drained = async {
        let _ = stream.shutdown().await;
        while stream.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
    };
    let _ = tokio::time::timeout(limit, drained).await;
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        error!("a connection task panicked; the others continue");
    }
}

/// Out of files or memory: those inside may be about to give some back. Other errors are the client's own.
async fn pause(error: &io::Error, trouble: &mut Occasion) {
    let own = [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::Interrupted];
    if own.contains(&error.kind()) {
        return;
    }
    if let Some(times) = trouble.now() {
        warn!(%error, times, "cannot accept connections");
    }
    sleep(OUT_OF_FILES).await;
}

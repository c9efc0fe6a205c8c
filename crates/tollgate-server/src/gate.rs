//! Doors: listening, accepting, and how many may be inside.

mod http;

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, sleep, timeout};
use tracing::{error, warn};

use crate::drain::Drain;
use crate::metrics::{Gauges, WorkerMetrics};
use crate::server::Shared;
use crate::service::Service;

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

/// A socket for each worker, all on one address: the kernel spreads connections over them.
pub(crate) fn listen(address: SocketAddr, workers: usize) -> io::Result<Vec<StdListener>> {
    let explain = |error: io::Error| {
        let what =
            if error.kind() == io::ErrorKind::AddrInUse { ": something listens there already" } else { "" };
        io::Error::new(error.kind(), format!("cannot listen on {address}{what} ({error})"))
    };
    // Sockets that share a port would share it with another Tollgate's, too. One that does not share finds out.
    if address.port() != 0 {
        bind(address, false).map_err(explain)?;
    }
    let first = bind(address, true).map_err(explain)?;
    let address = first.local_addr()?;
    let rest = (1..workers).map(|_| bind(address, true).map_err(explain));
    std::iter::once(Ok(first)).chain(rest).collect()
}

/// Makes room for so many connections, as far as the system lets us: many give a process 1024 files and let it ask for more.
pub(crate) fn allow_connections(connections: usize) {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHER_FILES);
    let limits = getrlimit(Resource::Nofile);
    let Some(current) = limits.current.filter(|current| *current < wanted) else { return };
    let current = limits.maximum.map_or(wanted, |maximum| maximum.min(wanted)).max(current);
    // What cannot be raised stays, and is said.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limits });
    if current < wanted {
        warn!(
            files = current,
            wanted, "the system allows fewer open files than connections; raise its limit (ulimit -n)"
        );
    }
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
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

/// What one worker's connections have in common.
struct Worker {
    shared: Arc<Shared>,
    service: Service,
    metrics: Arc<WorkerMetrics>,
    drain: Drain,
}

impl Worker {
    fn gauges(&self) -> Gauges {
        Gauges { connections: self.shared.slots.taken(), connections_max: self.shared.slots.max() }
    }
}

/// A connection's place, given back when the connection ends, however it ends.
struct Inside(Arc<Worker>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.shared.slots.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts connections until the drain starts, then waits for those inside.
pub(crate) async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    service: Service,
    metrics: Arc<WorkerMetrics>,
    drain: Drain,
) {
    let worker = Arc::new(Worker { shared, service, metrics, drain: drain.clone() });
    let (mut inside, mut lingering) = (JoinSet::new(), JoinSet::new());
    let mut draining = std::pin::pin!(drain.started());
    let mut complaint = Complaint::default();
    let mut sweep = tokio::time::interval(SWEEP_EVERY);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = sweep.tick() => {
                worker.shared.limiter.sweep(SWEEP_SLOTS);
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => admit(stream, &worker, &mut inside, &mut lingering),
                Err(error) => complaint.pause(&error).await,
            },
            Some(ended) = inside.join_next() => report(ended),
            Some(_) = lingering.join_next() => {}
            () = &mut draining => break,
        }
    }
    admit_waiting(listener, &worker, &mut inside, &mut lingering);
    let all_gone = async {
        while let Some(ended) = inside.join_next().await {
            report(ended)
        }
    };
    if timeout(worker.shared.bounds.drain, all_gone).await.is_err() {
        warn!(connections = inside.len(), "cut off: the drain took too long");
    }
}

/// Whoever was let in by the kernel before the door closed has been promised an answer.
fn admit_waiting(
    listener: TcpListener,
    worker: &Arc<Worker>,
    inside: &mut JoinSet<()>,
    lingering: &mut JoinSet<()>,
) {
    let Ok(listener) = listener.into_std() else { return };
    while let Ok((stream, _)) = listener.accept() {
        if stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            admit(stream, worker, inside, lingering);
        }
    }
}

fn admit(stream: TcpStream, worker: &Arc<Worker>, inside: &mut JoinSet<()>, lingering: &mut JoinSet<()>) {
    // Without it, the second of two pipelined answers waits for the client's delayed acknowledgement: 40 ms.
    let _ = stream.set_nodelay(true);
    if worker.shared.slots.take() {
        worker.metrics.connections.one();
        let place = Inside(Arc::clone(worker));
        inside.spawn(async move { http::converse(stream, &place.0).await });
    } else {
        worker.metrics.connections_shed.one();
        if lingering.len() < LINGERING_MAX {
            let worker = Arc::clone(worker);
            lingering.spawn(async move { http::turn_away(stream, &worker).await });
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        error!("a connection's task panicked; the others go on");
    }
}

/// What is said when connections cannot be accepted, at most once a second.
#[derive(Default)]
struct Complaint {
    said: Option<Instant>,
}

impl Complaint {
    /// Out of files or memory: those inside may be about to give some back. Other errors are the client's own.
    async fn pause(&mut self, error: &io::Error) {
        let own =
            [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::Interrupted];
        if own.contains(&error.kind()) {
            return;
        }
        if self.said.is_none_or(|said| said.elapsed() >= Duration::from_secs(1)) {
            warn!(%error, "cannot accept connections");
            self.said = Some(Instant::now());
        }
        sleep(OUT_OF_FILES).await;
    }
}

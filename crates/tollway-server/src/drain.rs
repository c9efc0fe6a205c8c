//! Stopping without dropping anything.
//!
//! A drain closes the door first, then lets everybody inside finish: what was read is answered, an idle connection is
//! closed, and after [`Bounds::drain`](crate::Bounds::drain) whoever is left is cut off.

use std::io;

use thiserror::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::info;

use crate::server::Server;

/// Starts one worker's drain.
#[derive(Debug)]
pub(crate) struct DrainSwitch(watch::Sender<bool>);

/// Tells one worker and its connections when its drain starts.
#[derive(Clone, Debug)]
pub(crate) struct Drain(watch::Receiver<bool>);

/// A switch and what it switches.
pub(crate) fn drain() -> (DrainSwitch, Drain) {
    let (sender, receiver) = watch::channel(false);
    (DrainSwitch(sender), Drain(receiver))
}

impl DrainSwitch {
    pub(crate) fn start(&self) {
        self.0.send_replace(true);
    }
}

impl Drain {
    /// Returns when the drain starts, or when nobody is left to start it.
    pub(crate) async fn started(mut self) {
        let _ = self.0.wait_for(|started| *started).await;
    }

    /// Returns whether the drain has started, or nobody is left to start it. It reads one atomic number.
    pub(crate) fn has_news(&self) -> bool {
        !matches!(self.0.has_changed(), Ok(false))
    }

    pub(crate) fn has_started(&self) -> bool {
        *self.0.borrow()
    }
}

/// SIGTERM, SIGINT and SIGHUP, caught from the moment this is made: until then they end the process, so it comes before
/// anybody is told that there is a server to signal.
pub struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Catches them.
    pub fn catch() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let hang_up = signal(SignalKind::hangup())?;
        drop(entered);
        Ok(Self { runtime, terminate, interrupt, hang_up })
    }

    /// Serves until SIGTERM or SIGINT, then drains. SIGHUP reloads. A second SIGTERM or SIGINT ends the drain at once.
    /// The server also drains if one of its workers panicked, which is an error.
    pub fn run(self, server: Server) -> Result<(), WorkerPanicked> {
        let Self { runtime, mut terminate, mut interrupt, mut hang_up } = self;
        let result = runtime.block_on(async {
            loop {
                tokio::select! {
                    () = either(&mut terminate, &mut interrupt) => return Ok(()),
                    _ = hang_up.recv() => server.reload(),
                    () = server.worker_failed() => return Err(WorkerPanicked),
                }
            }
        });
        info!("draining: accepting no new connections, answering pending requests");
        server.drain();
        let joined = runtime.spawn_blocking(move || server.join());
        runtime.block_on(async {
            tokio::select! {
                _ = joined => info!("drained"),
                () = either(&mut terminate, &mut interrupt) => info!("stopped by a second signal before the drain was complete"),
            }
        });
        runtime.shutdown_background();
        result
    }
}

/// The error that a server stopped because one of its workers panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a worker of the server panicked; the log has more")]
#[non_exhaustive]
pub struct WorkerPanicked;

async fn either(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

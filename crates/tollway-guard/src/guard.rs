//! The proxy: its worker threads, its port for metrics, and how it stops.

use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;
use tollway_tower::{
    AdmissionLayer, Admit, ByAddress, ByHeader, ByHeaderOrAddress, ClientId, Identify, RequestHead,
    Unidentified,
};
use tracing::info;

use crate::metrics::{self, Metrics};
use crate::permits::Permits;
use crate::stall_timer::StallTimeout;
use crate::tls::{self, TlsError};
use crate::{settings::GuardSettings, worker};

/// A reverse proxy that listens, and serves its clients once [`serve`](Self::serve) is awaited.
pub struct Guard {
    shared: Arc<Shared>,
    listener: TcpListener,
    metrics_listener: Option<TcpListener>,
}

/// The reasons why a proxy does not start, or stops.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The address is in use, or not one of this machine.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address that was given.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The certificate authorities for the upstream cannot be read.
    #[error("TLS to the upstream cannot be set up")]
    Tls(#[from] TlsError),
    /// The system has no more threads or files for the proxy itself.
    #[error("a worker cannot be started")]
    Worker(#[from] io::Error),
    /// A worker thread panicked, and its connections are lost.
    #[error("a worker thread panicked")]
    WorkerPanicked,
}

/// The settings and state that all workers share.
pub(crate) struct Shared {
    pub(crate) settings: GuardSettings,
    /// Opens TLS to an `https://` upstream.
    pub(crate) tls: Option<TlsConnector>,
    pub(crate) layer: AdmissionLayer<Arc<dyn Admit>, Identification>,
    /// Finds the address of a client, which the upstream is told.
    pub(crate) address: ByAddress,
    pub(crate) permits: Arc<Permits>,
    pub(crate) metrics: Metrics,
}

impl Shared {
    /// Returns the stall timeout for clients, which is shorter in effect while others wait for a connection.
    pub(crate) fn client_stall(&self) -> StallTimeout {
        StallTimeout { after: self.settings.client_timeout, permits: Some(Arc::clone(&self.permits)) }
    }

    /// Returns the stall timeout for the upstream.
    pub(crate) fn upstream_stall(&self) -> StallTimeout {
        StallTimeout { after: self.settings.upstream_timeout, permits: None }
    }
}

impl Guard {
    /// Listens, for a proxy that forwards the requests that `admit` lets pass.
    pub fn bind(settings: GuardSettings, admit: impl Admit) -> Result<Self, GuardError> {
        let ca = settings.upstream_ca.as_deref();
        let tls = settings.upstream.is_tls().then(|| tls::connector(ca)).transpose()?;
        let listener = listen(settings.listen)?;
        let metrics_listener = settings.metrics.map(listen).transpose()?;
        let address = ByAddress::peer().trust_proxies(settings.trusted_proxies.iter().copied());
        let identification = match &settings.header {
            None => Identification::Address(address.clone()),
            Some(name) => Identification::Header(ByHeader::new(name.clone()).or_address(address.clone())),
        };
        let admit: Arc<dyn Admit> = Arc::new(admit);
        let shared = Shared {
            tls,
            layer: AdmissionLayer::new(admit).identify(identification),
            address,
            permits: Permits::new(settings.max_connections),
            metrics: Metrics::new(),
            settings,
        };
        Ok(Self { shared: Arc::new(shared), listener, metrics_listener })
    }

    /// Returns the address at which the proxy listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the address of `/metrics` and `/healthz`, if they are served.
    pub fn metrics_address(&self) -> io::Result<Option<SocketAddr>> {
        self.metrics_listener.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// Serves clients until `shutdown` resolves. Then it accepts no more, and answers the requests that it has.
    ///
    /// The clients are served by threads of their own, each with a runtime.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), GuardError> {
        let Self { shared, listener, metrics_listener } = self;
        let workers = shared.settings.workers.max(1);
        let (drain, draining) = watch::channel(false);
        let (ended, results) = mpsc::unbounded_channel();
        for number in 0..workers {
            let (listener, shared, draining) = (listener.try_clone()?, Arc::clone(&shared), draining.clone());
            let ended = ended.clone();
            let work = move || {
                let worked = catch_unwind(AssertUnwindSafe(|| worker::run(listener, &shared, draining)));
                let result = worked.map_err(|_| GuardError::WorkerPanicked);
                let _ = ended.send(result.and_then(|result| Ok(result?)));
            };
            thread::Builder::new().name(format!("guard-{number}")).spawn(work)?;
        }
        // From here on only the workers listen: when they stop, the port is closed.
        drop((listener, ended));
        let stopped = async {
            stop(shutdown, &drain, results, &shared.metrics).await?;
            info!("stopped");
            Ok(())
        };
        let metrics = async {
            match metrics_listener {
                Some(listener) => metrics::serve(listener, Arc::clone(&shared), draining).await,
                None => pending().await,
            }
        };
        tokio::select! {
            stopped = stopped => stopped,
            Err(error) = metrics => Err(error.into()),
        }
    }
}

/// Drains the workers on shutdown, or when one of them has failed, and returns the first failure when all have ended.
async fn stop(
    shutdown: impl Future<Output = ()>,
    drain: &watch::Sender<bool>,
    mut results: mpsc::UnboundedReceiver<Result<(), GuardError>>,
    metrics: &Metrics,
) -> Result<(), GuardError> {
    let mut result = tokio::select! {
        () = shutdown => Ok(()),
        Some(failed) = results.recv() => failed,
    };
    info!(open_requests = metrics.open_requests(), "draining: no new connections");
    drain.send_replace(true);
    while let Some(ended) = results.recv().await {
        result = result.and(ended);
    }
    result
}

fn listen(address: SocketAddr) -> Result<TcpListener, GuardError> {
    let failed = |source| GuardError::Bind { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Identifies clients by their address, or by a header first.
pub(crate) enum Identification {
    Address(ByAddress),
    Header(ByHeaderOrAddress),
}

impl Identify for Identification {
    fn identify(&self, head: RequestHead<'_>) -> Result<ClientId, Unidentified> {
        match self {
            Self::Address(address) => address.identify(head),
            Self::Header(header) => header.identify(head),
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_fails_drains_the_others_and_is_an_error() {
        let metrics = Metrics::new();
        let (drain, mut draining) = watch::channel(false);
        let (ended, results) = mpsc::unbounded_channel();
        ended.send(Err(GuardError::WorkerPanicked)).unwrap();
        let other = async {
            let _ = draining.wait_for(|draining| *draining).await;
            ended.send(Ok(())).unwrap();
            drop(ended);
        };
        let (stopped, ()) = tokio::join!(stop(pending(), &drain, results, &metrics), other);
        assert!(matches!(stopped, Err(GuardError::WorkerPanicked)), "{stopped:?}");
    }
}

//! Defines the settings of a proxy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use hyper::header::HeaderName;
use tollway_client::gatekeeper::Gatekeeper;
use tollway_tower::Network;

use crate::upstream::Upstream;

/// The settings that a [`Guard`](crate::Guard) is made with. [`GuardSettings::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct GuardSettings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The service to protect.
    pub upstream: Upstream,
    /// The PEM file of the certificate authorities of an `https://` upstream; those of the system if `None`.
    pub upstream_ca: Option<PathBuf>,
    /// The header that identifies clients; their address if it is `None`, or missing in a request.
    pub header: Option<HeaderName>,
    /// The networks of proxies whose `X-Forwarded` headers are trusted.
    pub trusted_proxies: Vec<Network>,
    /// The time in which the upstream must make progress.
    pub upstream_timeout: Duration,
    /// The time in which a client must make progress, or send its next request.
    pub client_timeout: Duration,
    /// The maximum number of client connections. Beyond it, idle and slow clients are disconnected.
    pub max_connections: usize,
    /// The address of `/metrics` and `/healthz`, if they are served.
    pub metrics: Option<SocketAddr>,
    /// The gatekeeper whose metrics are shown, if one decides.
    pub gatekeeper: Option<Gatekeeper>,
    /// The number of worker threads.
    pub workers: usize,
}

impl GuardSettings {
    /// Returns settings with the defaults of `tollway guard`.
    pub fn new(listen: SocketAddr, upstream: Upstream) -> Self {
        Self {
            listen,
            upstream,
            upstream_ca: None,
            header: None,
            trusted_proxies: Vec::new(),
            upstream_timeout: Duration::from_secs(60),
            client_timeout: Duration::from_secs(60),
            max_connections: 10_000,
            metrics: None,
            gatekeeper: None,
            workers: thread::available_parallelism().map_or(1, Into::into),
        }
    }
}

//! The TLS of one gate: its certificate, and the handshakes of its clients.
//!
//! A handshake takes far more work than a request. A worker that did this work would keep its other clients waiting, so
//! it only reads and writes; threads with a low priority do the work ([`HandshakeThreads`]). When the
//! handshake is done, the connection belongs to its worker alone, and takes the same loop as one in plain text
//! ([`TlsStream`]).
//!
//! Handshakes are bounded in number and in time. When there are too many, the oldest that waits for its client is
//! closed, so clients that never finish theirs do not keep others out. One address can have a part of them
//! only: otherwise it could begin so many that those of others never end.

mod files;
mod handshake;
mod stream;
mod threads;

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use thiserror::Error;
use tollway::config::{ContentWatch, MaxConnections, TlsSettings};
use tollway_core::{ErrorChain, LogThrottle};
use tracing::{error, info, warn};

use super::limit::ConnectionLimit;
use crate::bounds::{Bounds, LOG_PAUSE};
use crate::metrics::Counter;
use crate::reload::Reloadable;

use self::files::TlsFiles;
pub use self::files::{TlsFileError, TlsFileWarning, check_tls_files};
pub(super) use self::handshake::Handshake;
pub(super) use self::stream::TlsStream;
pub(crate) use self::threads::HandshakeThreads;

/// The error that the TLS of a gate cannot be set up. It is inside of the [`io::Error`] of a server's start.
#[derive(Debug, Error)]
#[error("the {gate} gate cannot use TLS")]
#[non_exhaustive]
pub struct GateTlsError {
    /// The name of the gate.
    pub gate: &'static str,
    /// The reason, which names the file.
    pub source: TlsFileError,
}

impl From<GateTlsError> for io::Error {
    fn from(error: GateTlsError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// The protocols inside of TLS that a gate offers to its clients, in the words of ALPN.
pub(super) type Protocols = &'static [&'static [u8]];

/// The TLS of one gate. All workers share it.
pub(crate) struct TlsServer {
    in_force: ArcSwap<InForce>,
    /// The handshakes in progress. Those that wait for their client are idle.
    handshakes: Arc<ConnectionLimit>,
    threads: Arc<HandshakeThreads>,
    counters: HandshakeCounters,
    gate: &'static str,
    /// Holds back lines about connections that end before the handshake is done.
    early_ends: LogThrottle,
    /// Holds back lines about handshakes in which the two sides do not agree.
    failures: LogThrottle,
    /// Holds back lines about refused certificates, whatever other handshakes fail.
    refusals: LogThrottle,
}

/// The certificate that new connections get.
struct InForce {
    config: Arc<ServerConfig>,
    expires_at: Option<SystemTime>,
}

/// Counts the handshakes of one gate by their ends.
#[derive(Debug, Default)]
pub(crate) struct HandshakeCounters {
    done: Counter,
    failed: Counter,
    timed_out: Counter,
}

impl TlsServer {
    /// Reads the files of a gate. Also returns what reads them again when they change.
    pub(super) fn open(
        gate: &'static str,
        settings: &TlsSettings,
        protocols: Protocols,
        bounds: &Bounds,
        threads: &Arc<HandshakeThreads>,
    ) -> io::Result<(Arc<Self>, Box<dyn Reloadable>)> {
        let mut watch = ContentWatch::default();
        let files = TlsFiles::read(settings, protocols, &mut watch)
            .map_err(|source| GateTlsError { gate, source })?;
        warn_of(gate, &files);
        let max = MaxConnections { total: bounds.tls_handshakes, per_address: None };
        let server = Arc::new(Self {
            in_force: ArcSwap::from_pointee(files.into()),
            handshakes: Arc::new(ConnectionLimit::new(&max).with_share(bounds.tls_handshakes_per_address)),
            threads: Arc::clone(threads),
            counters: HandshakeCounters::default(),
            gate,
            early_ends: LogThrottle::new(LOG_PAUSE, Instant::now()),
            failures: LogThrottle::new(LOG_PAUSE, Instant::now()),
            refusals: LogThrottle::new(LOG_PAUSE, Instant::now()),
        });
        let settings = settings.clone();
        let reload = TlsReload { gate, settings, protocols, watch, server: Arc::clone(&server) };
        Ok((server, Box::new(reload)))
    }

    /// Begins a handshake, or returns `None` if this address has too many, or if there are too many and none of them
    /// waits for its client.
    pub(super) fn begin(self: &Arc<Self>, peer: IpAddr) -> Option<Handshake> {
        let permit = self.handshakes.admit(peer)?;
        Some(Handshake::new(Arc::clone(self), peer, permit))
    }

    /// Returns the number of handshakes by how they ended.
    pub(crate) fn handshakes(&self) -> [(&'static str, u64); 5] {
        let HandshakeCounters { done, failed, timed_out } = &self.counters;
        let limit = &self.handshakes;
        [
            ("ok", done.get()),
            ("failed", failed.get()),
            ("timeout", timed_out.get()),
            ("evicted", limit.evicted.get()),
            ("refused", limit.refused_gate.get() + limit.refused_address.get()),
        ]
    }

    /// Returns when the certificate expires.
    pub(crate) fn expires_at(&self) -> Option<SystemTime> {
        self.in_force.load().expires_at
    }
}

impl From<TlsFiles> for InForce {
    fn from(files: TlsFiles) -> Self {
        Self { config: Arc::new(files.config), expires_at: files.expires_at }
    }
}

/// The files of one gate's TLS, which are read again when they change.
struct TlsReload {
    gate: &'static str,
    settings: TlsSettings,
    protocols: Protocols,
    watch: ContentWatch,
    server: Arc<TlsServer>,
}

impl Reloadable for TlsReload {
    fn path(&self) -> &Path {
        &self.settings.cert
    }

    fn changed(&mut self) -> bool {
        self.watch.changed()
    }

    fn reload(&mut self) -> bool {
        let Self { gate, settings, protocols, watch, server } = self;
        watch.clear();
        match TlsFiles::read(settings, protocols, watch) {
            Ok(files) => {
                warn_of(gate, &files);
                server.in_force.store(Arc::new(files.into()));
                info!(gate, cert = %settings.cert.display(), "certificate reloaded");
                true
            }
            Err(failed) => {
                error!(gate, "certificate not reloaded; the old one stays in force: {}", ErrorChain(&failed));
                false
            }
        }
    }
}

fn warn_of(gate: &str, files: &TlsFiles) {
    for warning in &files.warnings {
        warn!(gate, "{warning}");
    }
}

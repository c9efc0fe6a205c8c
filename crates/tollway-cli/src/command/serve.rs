//! `tollway serve`: starts the server.

mod banner;
mod port_owner;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use tollway::config::{FileWatch, Gates, NamedFile, SmockronGate, StoreUrl};
use tollway::engine::Engine;
use tollway::journal::{JournalOwner, JournalSettings};
use tollway::store::memory::{BoundsError, MemoryBounds};
use tollway::{Clock, Config};
use tollway_server::{
    BindError, ConfigFile, GateTlsError, KeyFileError, ReservedPorts, Server, Settings, Signals, StartChecks,
    TokenFileError,
};
use tracing::info;

use super::arguments::GateFlag;
use super::{Outcome, store};
use crate::logging::LogFlags;
use crate::output::OutputError;

/// Start the server
///
/// Without a configuration file, the server listens on loopback with a small built-in policy, so that you can try it.
/// The file is reloaded when it changes and on SIGHUP; if it is invalid, its errors are logged and the old policy
/// stays. On SIGTERM and SIGINT the server drains: it accepts no new connections, answers pending requests, and exits
/// with 0.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway serve
  tollway serve --config tollway.yaml --http 0.0.0.0:8080 --text off
  TOLLWAY_CONFIG=/etc/tollway/tollway.yaml RUST_LOG=debug tollway serve
  tollway serve --data /var/lib/tollway --take-over     # replaces the server that runs, with its buckets

An address is an IP address and a port, localhost:8080, or :8080 for every interface (IPv6 and IPv4).
A flag overrides its environment variable, and both override the file. TOLLWAY_STORE_PASSWORD is the password of the
store. Logs go to standard error; RUST_LOG filters them (info, or warn,tollway_server=debug).")]
pub(crate) struct Serve {
    /// The configuration file [default: the built-in configuration]
    #[arg(short, long, value_name = "FILE", env = "TOLLWAY_CONFIG")]
    config: Option<PathBuf>,
    /// The store: memory, or a URL such as redis://cache:6379 or redis+cluster://a,b
    #[arg(long, value_name = "URL", env = "TOLLWAY_STORE", hide_env_values = true)]
    store: Option<String>,
    /// The directory of the journal, which keeps the buckets in memory across restarts [default: none]
    #[arg(long, value_name = "DIR", env = "TOLLWAY_DATA")]
    data: Option<PathBuf>,
    /// Takes over from the server that uses the journal: ends it, and goes on with its buckets while clients wait
    #[arg(long, env = "TOLLWAY_TAKE_OVER")]
    take_over: bool,
    /// The maximum number of buckets in memory
    #[arg(long, value_name = "N", env = "TOLLWAY_MAX_BUCKETS", value_parser = buckets)]
    max_buckets: Option<usize>,
    /// The maximum number of those buckets that clients can make without a configured limit [default: half]
    #[arg(long, value_name = "N", env = "TOLLWAY_MAX_CLIENT_BUCKETS", value_parser = buckets)]
    max_client_buckets: Option<usize>,
    /// The address and port of the HTTP gate, or off
    #[arg(long, value_name = "ADDR|off", env = "TOLLWAY_HTTP", value_parser = GateFlag::http)]
    http: Option<GateFlag>,
    /// The address and port of the admin gate for operators (HTTP), or off
    #[arg(long, value_name = "ADDR|off", env = "TOLLWAY_ADMIN", value_parser = GateFlag::admin)]
    admin: Option<GateFlag>,
    /// The address and port of the text gate (UDP), or off
    #[arg(long, value_name = "ADDR|off", env = "TOLLWAY_TEXT", value_parser = GateFlag::text)]
    text: Option<GateFlag>,
    /// The address and port of the Throttr gate, or off
    #[arg(long, value_name = "ADDR|off", env = "TOLLWAY_THROTTR", value_parser = GateFlag::throttr)]
    throttr: Option<GateFlag>,
    /// The address and port of the RESP gate for Redis clients, or off
    #[arg(long, value_name = "ADDR|off", env = "TOLLWAY_RESP", value_parser = GateFlag::resp)]
    resp: Option<GateFlag>,
    /// The address and port of the Smockron gate for accounting, or off; control uses the next port
    #[arg(long, value_name = "ADDR|off", env = "TOLLWAY_SMOCKRON", value_parser = GateFlag::smockron)]
    smockron: Option<GateFlag>,
    /// The address and port of the gate for Envoy's rate limit service (gRPC), or off
    #[arg(long, value_name = "ADDR|off", env = "TOLLWAY_RLS", value_parser = GateFlag::rls)]
    rls: Option<GateFlag>,
    /// Refuses to start if a gate that is not on loopback asks for neither tokens nor certificates of clients
    #[arg(long, env = "TOLLWAY_REQUIRE_AUTH")]
    require_auth: bool,
    /// The number of worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    #[command(flatten)]
    log: LogFlags,
}

/// The longest time for the server that is replaced to drain and to write its journal.
const TAKE_OVER_MAX: Duration = Duration::from_secs(60);

/// Ends the server that uses the journal, if there is one, and returns the ports at which its clients wait meanwhile.
/// They are bound before it ends, so that no client is refused.
fn take_over(
    journal: Option<&JournalSettings>,
    gates: &Gates,
    config: Option<&Path>,
) -> anyhow::Result<ReservedPorts> {
    let Some(journal) = journal else {
        bail!("--take-over needs a journal, from which the buckets are taken over; add --data DIR")
    };
    let Some(owner) = JournalOwner::find(&journal.dir)? else { return Ok(ReservedPorts::default()) };
    let reserved = ReservedPorts::bind(gates).map_err(|error| cannot_start(error, &[], config))?;
    info!(pid = owner.pid(), "taking over: the server that uses the journal is told to end");
    owner.end(TAKE_OVER_MAX)?;
    Ok(reserved)
}

fn buckets(text: &str) -> Result<usize, String> {
    let buckets = text.parse().ok().filter(|buckets| *buckets > 0);
    buckets.ok_or_else(|| "must be a whole number of at least 1".to_owned())
}

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        self.log.start()?;
        let mut watch = self.config.as_ref().map(FileWatch::new);
        let config = watch.as_mut().map_or_else(|| Ok(Config::default()), FileWatch::read)?;
        let watched = watch.map(|watch| ConfigFile::new(watch, &config));
        let memory_bounds = self.memory_bounds(config.memory_bounds)?;
        let store = store::chosen(self.store.as_deref(), config.store.clone())?;
        let journal = self.journal(&store, config.journal.clone())?;
        let gates = self.gates(config.gates.clone());
        if gates.are_off() {
            bail!("every gate is off; turn one on, such as --http {}", Gates::HTTP);
        }
        let reserved = if self.take_over {
            // Check first: if this server cannot start, the running one must stay.
            let (audit, otel) = (config.audit.as_deref(), config.otel.as_ref());
            StartChecks { gates: &gates, require_auth: self.require_auth, audit, otel }
                .run()
                .map_err(|error| cannot_start(error, &config.named_files, self.config.as_deref()))?;
            take_over(journal.as_ref(), &gates, self.config.as_deref())?
        } else {
            ReservedPorts::default()
        };
        let workers = self.workers.map_or_else(cores, usize::from);
        let (show, audit, otel) = (config.watch, config.audit.clone(), config.otel.clone());
        let named_files = config.named_files.clone();
        let config = Config { store: store.clone(), journal: journal.clone(), memory_bounds, ..config };
        let limiter = Engine::open(config, Clock::monotonic());
        let limiter = Arc::new(limiter.with_context(|| format!("cannot open the store {store}"))?);
        let settings = Settings {
            gates: gates.clone(),
            workers,
            watch: show,
            audit,
            otel,
            require_auth: self.require_auth,
            config: watched,
            reserved,
            ..Settings::new(Arc::clone(&limiter))
        };
        let signals = Signals::catch().context("cannot handle signals")?;
        let server = Server::start(settings)
            .map_err(|error| cannot_start(error, &named_files, self.config.as_deref()))?;
        let from = self
            .config
            .map_or_else(|| "the built-in configuration".to_owned(), |path| path.display().to_string());
        let mut out = io::stdout().lock();
        let journal = journal.map(|journal| journal.dir);
        let banner = banner::banner(&limiter, &from, &store, journal.as_deref(), &gates, &server);
        out.write_all(banner.as_bytes()).and_then(|()| out.flush()).map_err(OutputError::from)?;
        drop(out);
        info!(version = env!("CARGO_PKG_VERSION"), config = from, %store, workers, "server started");
        signals.run(server)?;
        Ok(Outcome::Yes)
    }

    /// Returns the bounds of the file, changed by flags.
    fn memory_bounds(&self, configured: MemoryBounds) -> Result<MemoryBounds, BoundsError> {
        let max_buckets = self.max_buckets.unwrap_or(configured.max_buckets);
        let max_client_buckets = self.max_client_buckets.or(configured.max_client_buckets);
        MemoryBounds { max_buckets, max_client_buckets }.checked()
    }

    /// Returns the journal of the file, in the directory of the flag.
    fn journal(
        &self,
        store: &StoreUrl,
        configured: Option<JournalSettings>,
    ) -> anyhow::Result<Option<JournalSettings>> {
        match (&self.data, store) {
            (None, StoreUrl::Memory) => Ok(configured),
            (Some(_), _) if *store != StoreUrl::Memory => {
                bail!("--data is for buckets in memory, but the store is {store}; leave out one of the two")
            }
            (Some(dir), _) => {
                let sync = configured.map_or(JournalSettings::SYNC, |journal| journal.sync);
                Ok(Some(JournalSettings { dir: dir.clone(), sync }))
            }
            (None, _) => Ok(None),
        }
    }

    /// Returns the gates of the file, moved by flags.
    fn gates(&self, configured: Gates) -> Gates {
        let moved = |flag: Option<GateFlag>, address| flag.map_or(address, |gate| gate.0);
        // A port of its own for control was chosen beside another one for accounting, and stays.
        let accounting = moved(self.smockron, configured.smockron.as_ref().map(|gate| gate.accounting));
        let smockron = accounting.map(|accounting| match &configured.smockron {
            Some(gate) => SmockronGate { accounting, ..gate.clone() },
            None => SmockronGate::at(accounting),
        });
        Gates {
            smockron,
            http: moved(self.http, configured.http),
            admin: moved(self.admin, configured.admin),
            text: moved(self.text, configured.text),
            throttr: moved(self.throttr, configured.throttr),
            rls: moved(self.rls, configured.rls),
            resp: moved(self.resp, configured.resp),
            ..configured
        }
    }
}

/// Returns why the server did not start. If a port is in use: by which process, for which gate, and what to do. If a
/// file of a gate is wrong: which line of the configuration names it.
fn cannot_start(error: io::Error, named: &[NamedFile], config: Option<&Path>) -> anyhow::Error {
    let failed = error.get_ref().and_then(|inner| inner.downcast_ref::<BindError>());
    if let (Some(path), Some(config)) = (wrong_file(&error), config)
        && let Some(NamedFile { line, column, .. }) = named.iter().find(|named| named.path == path)
    {
        let place = format!("{}:{line}:{column}", config.display());
        return anyhow!(error).context(format!("cannot start the server: {place}"));
    }
    let Some(BindError { gate, address, .. }) = failed.filter(|_| error.kind() == io::ErrorKind::AddrInUse)
    else {
        return anyhow!(error).context("cannot start the server");
    };
    // A part of a gate, as `smockron (control)`, has the flag of the gate.
    let flag = gate.split(' ').next().unwrap_or(gate);
    let owner = port_owner::find(address.port()).map(|owner| format!(" by {owner}")).unwrap_or_default();
    anyhow!(
        "the {gate} gate cannot listen on {address}: the port is in use{owner}; stop it, or choose another address with \
         --{flag} ADDR"
    )
}

/// Returns the path of the file that kept a server from starting.
fn wrong_file(error: &io::Error) -> Option<&Path> {
    let inner = error.get_ref()?;
    let tls = || inner.downcast_ref::<GateTlsError>().and_then(|error| error.source.path());
    let tokens = || inner.downcast_ref::<TokenFileError>().map(TokenFileError::path);
    let keys = || inner.downcast_ref::<KeyFileError>().map(KeyFileError::path);
    tls().or_else(tokens).or_else(keys)
}

pub(super) fn cores() -> usize {
    thread::available_parallelism().map_or(1, Into::into)
}

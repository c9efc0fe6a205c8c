//! `tollway guard`: the arguments of the reverse proxy, which is in `tollway-guard`.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::{ArgGroup, Args};
use http::HeaderName;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tollway::config::listen_address;
use tollway::core::Nanos;
use tollway::{AsyncLimiter, Clock, Config};
use tollway_client::gatekeeper::{Gatekeeper, RejectedReports};
use tollway_guard::{GuardSettings, Upstream};
use tollway_server::allow_connections;
use tollway_tower::{Admit, Delayed, LocalLimit, LocalRule, Network};
use tracing::info;

use super::Outcome;
use crate::logging::LogFlags;
use crate::output::OutputError;

/// Start a reverse proxy that rate-limits an HTTP service
///
/// A request is passed to the upstream at once or after a delay, or rejected with Retry-After. A domain of a master
/// decides (--domain): without a round trip, and every request passes if the master is unreachable. Or a limit or a
/// rule of a configuration file decides (--limit, --rule), in memory or in the store of the file. Bodies are streamed;
/// WebSocket and other upgrades pass through, and so does HTTP/2 without TLS. On SIGTERM and SIGINT the proxy drains:
/// it accepts no new connections, answers pending requests, and exits with 0.
#[derive(Args)]
#[command(group = ArgGroup::new("decides").required(true).args(["domain", "limit", "rule"]))]
#[command(after_help = "\
Examples:
  tollway guard --listen 0.0.0.0:8000 --upstream http://127.0.0.1:3000 --limit PerClient --config tollway.yaml
  tollway guard --listen [::]:80 --upstream http://app:3000 --domain api --master limits:10004 --max-delay 2s
  tollway guard --listen :8000 --upstream h2c://grpc:50051 --domain grpc --identify header:x-api-key
  tollway guard --listen :8000 --upstream https://app.example --domain api --trust-proxy 10.0.0.0/8 --metrics :9100

An address to listen on is an IP address and a port, localhost:8000, or :8000 for every interface (IPv6 and IPv4).
The client address is limited (for IPv6, its /64 network). Behind a load balancer, name its network with --trust-proxy:
X-Forwarded-For is read only from trusted proxies. The master is \"tollway serve\" with the domain in its configuration, or
any other server that speaks Smockron.")]
pub(crate) struct Guard {
    /// The address and port to listen on
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    listen: SocketAddr,
    /// The service to protect: http://HOST:PORT, https://HOST:PORT, or h2c://HOST:PORT for HTTP/2 without TLS
    #[arg(long, value_name = "URL")]
    upstream: Upstream,
    /// A PEM file with the certificate authorities of an https:// upstream [default: those of the system]
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
    /// The domain in the configuration of the master
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// The limit in the configuration file
    #[arg(long, value_name = "NAME", requires = "config")]
    limit: Option<String>,
    /// The rule in the configuration file; the identifier is the value of each of its selectors
    #[arg(long, value_name = "NAME", requires = "config")]
    rule: Option<String>,
    /// The configuration file of --limit or --rule, read at start
    #[arg(short, long, value_name = "FILE", env = "TOLLWAY_CONFIG")]
    config: Option<PathBuf>,
    /// The address of the master for accounting
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:10004")]
    master: String,
    /// The address of the master for control [default: the port after --master]
    #[arg(long, value_name = "HOST:PORT")]
    control: Option<String>,
    /// The identifier of a request: address, or header:NAME (the address if the header is missing)
    #[arg(long, value_name = "WHO", default_value = "address", value_parser = identify)]
    identify: Identify,
    /// A network of trusted proxies, whose X-Forwarded headers are read; can be repeated
    #[arg(long, value_name = "CIDR")]
    trust_proxy: Vec<Network>,
    /// The maximum delay; requests that need a longer one are rejected
    #[arg(long, value_name = "TIME", default_value = "5s")]
    max_delay: Nanos,
    /// The maximum number of delayed requests; others are rejected
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = count)]
    max_delayed: usize,
    /// The maximum number of delays of the master to remember
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = count)]
    max_known: usize,
    /// Report rejected requests to the master: send, off, or a sample such as 1/100
    #[arg(long, value_name = "HOW", default_value = "send", value_parser = rejected)]
    rejected: RejectedReports,
    /// The timeout for the response head of the upstream
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    timeout: Nanos,
    /// The timeout for a client that sends or receives nothing, also between two requests
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    client_timeout: Nanos,
    /// The maximum number of client connections; beyond it, idle and slow clients are disconnected
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = connections)]
    max_connections: usize,
    /// The address and port for Prometheus metrics, at /metrics, and /healthz
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    metrics: Option<SocketAddr>,
    /// The number of worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    #[command(flatten)]
    log: LogFlags,
}

/// The identification that was chosen; `None` is by address.
type Identify = Option<HeaderName>;

fn identify(text: &str) -> Result<Identify, String> {
    match text.strip_prefix("header:").map(str::parse) {
        Some(Ok(name)) => Ok(Some(name)),
        None if text == "address" => Ok(None),
        _ => Err("must be address, or header:NAME".to_owned()),
    }
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    let address = listen_address(text);
    address.ok_or_else(|| "must be an address and a port, such as 127.0.0.1:8000 or :8000".to_owned())
}

fn rejected(text: &str) -> Result<RejectedReports, String> {
    match text {
        "send" => Ok(RejectedReports::All),
        "off" => Ok(RejectedReports::None),
        _ => match text.strip_prefix("1/").and_then(|many| many.parse().ok()) {
            Some(many @ 1..) => Ok(RejectedReports::OneIn(many)),
            _ => Err("must be send, off, or a sample such as 1/100".to_owned()),
        },
    }
}

/// Parses a timeout.
fn time(text: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|error| format!("{error}"))?;
    let possible = (Nanos::from_millis(1)..=Nanos::from_secs(86_400)).contains(&time);
    possible.then_some(time).ok_or_else(|| "must be from 1ms to 24h".to_owned())
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "must be a whole number".to_owned())
}

fn connections(text: &str) -> Result<usize, String> {
    let connections = text.parse().ok().filter(|number| (1..=Semaphore::MAX_PERMITS).contains(number));
    connections.ok_or_else(|| "must be a whole number of at least 1".to_owned())
}

impl Guard {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        self.log.start()?;
        let guard = self.bind()?;
        // A client needs one file, and the connection to the upstream another.
        allow_connections(self.max_connections.saturating_mul(2));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            // Before the addresses are printed: whoever reads them may send a signal.
            let [mut terminate, mut interrupt] = signals().context("cannot handle signals")?;
            self.announce(&guard).map_err(OutputError::from)?;
            info!(version = env!("CARGO_PKG_VERSION"), listen = %guard.address()?, "proxy started");
            let shutdown = async move {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            };
            guard.serve(shutdown).await?;
            Ok(Outcome::Yes)
        })
    }

    /// Makes a proxy whose requests the master, a limit or a rule decides.
    fn bind(&self) -> anyhow::Result<tollway_guard::Guard> {
        let defaults = GuardSettings::new(self.listen, self.upstream.clone());
        let mut settings = GuardSettings {
            upstream_ca: self.upstream_ca.clone(),
            header: self.identify.clone(),
            trusted_proxies: self.trust_proxy.clone(),
            upstream_timeout: self.timeout.into(),
            client_timeout: self.client_timeout.into(),
            max_connections: self.max_connections,
            metrics: self.metrics,
            workers: self.workers.map_or(defaults.workers, usize::from),
            ..defaults
        };
        if let Some(domain) = &self.domain {
            let gatekeeper = self.gatekeeper(domain)?;
            settings.gatekeeper = Some(gatekeeper.clone());
            return Ok(tollway_guard::Guard::bind(settings, gatekeeper)?);
        }
        let file = self.config.as_deref().context("--limit and --rule need --config")?;
        let config = Config::from_file(file)?;
        let store = config.store.clone();
        let limiter = AsyncLimiter::open(config, Clock::monotonic());
        let limiter = limiter.with_context(|| format!("cannot open the store {store}"))?;
        let in_file = || file.display().to_string();
        match &self.limit {
            Some(limit) => {
                self.bind_delayed(settings, LocalLimit::new(limiter, limit).with_context(in_file)?)
            }
            None => {
                let rule = self.rule.as_deref().unwrap_or_default();
                self.bind_delayed(settings, LocalRule::new(limiter, rule).with_context(in_file)?)
            }
        }
    }

    fn bind_delayed(
        &self,
        settings: GuardSettings,
        admit: impl Admit,
    ) -> anyhow::Result<tollway_guard::Guard> {
        let delayed = Delayed::new(admit, self.max_delay.into()).max_delayed(self.max_delayed);
        Ok(tollway_guard::Guard::bind(settings, delayed)?)
    }

    fn gatekeeper(&self, domain: &str) -> anyhow::Result<Gatekeeper> {
        let mut builder = Gatekeeper::builder(&self.master, domain)
            .max_delay(self.max_delay.into())
            .max_delayed(self.max_delayed)
            .max_known_delays(self.max_known)
            .report_rejected(self.rejected);
        if let Some(control) = &self.control {
            builder = builder.control_address(control);
        }
        Ok(builder.build()?)
    }

    fn announce(&self, guard: &tollway_guard::Guard) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "tollway guard {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(out, "  listens   http://{}", guard.address()?)?;
        writeln!(out, "  upstream  {}", self.upstream)?;
        let config = self.config.as_deref().map(|file| file.display().to_string()).unwrap_or_default();
        match (&self.domain, &self.limit, &self.rule) {
            (Some(domain), ..) => writeln!(out, "  domain    {domain}, master {}", self.master)?,
            (_, Some(limit), _) => writeln!(out, "  limit     {limit}, of {config}")?,
            (.., rule) => writeln!(out, "  rule      {}, of {config}", rule.as_deref().unwrap_or_default())?,
        }
        if let Some(metrics) = guard.metrics_address()? {
            writeln!(out, "  metrics   http://{metrics}/metrics")?;
        }
        out.flush()
    }
}

/// Catches the signals that stop the proxy.
fn signals() -> io::Result<[Signal; 2]> {
    Ok([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?])
}

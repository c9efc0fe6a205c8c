//! `tollway guard`: a reverse proxy with a gatekeeper in it.

mod body;
mod bounds;
mod conversation;
mod headers;
mod metrics;
mod pace;
mod patient;
mod places;
mod pool;
mod proxy;
mod refusal;
mod sockets;
mod streams;
mod tunnel;
mod upstream;
mod who;
mod worker;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tollway::core::Nanos;
use tollway_client::gatekeeper::{Gatekeeper, RejectedReports};
use tollway_server::allow_connections;
use tollway_tower::Network;

use self::metrics::Metrics;
use self::places::Places;
use self::proxy::Settings;
use self::upstream::Upstream;
use self::who::{Who, Whom};
use super::Outcome;
use super::serve::{cores, log_to_stderr};
use crate::output::OutputError;

/// Start a reverse proxy that rate-limits an HTTP service
///
/// A request is passed to the upstream at once or after a delay, or rejected with 503 and Retry-After, according to the last
/// message of the master. The decision needs no round trip, and without a master every request passes. Bodies are streamed;
/// WebSocket and other upgrades pass through, and so does HTTP/2 without TLS. On SIGTERM and SIGINT the proxy drains: it accepts
/// no new connections, answers pending requests, and exits with 0.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway guard --listen 0.0.0.0:8000 --upstream http://127.0.0.1:3000 --domain api
  tollway guard --listen [::]:80 --upstream http://app:3000 --domain api --master limits:10004 --max-delay 2s
  tollway guard --listen :8000 --upstream h2c://grpc:50051 --domain grpc --identify header:x-api-key
  tollway guard --listen :8000 --upstream http://app:3000 --domain api --trust-proxy 10.0.0.0/8 --metrics :9100

The client address is limited (for IPv6, its /64 network). Behind a load balancer, name its network with --trust-proxy:
X-Forwarded-For is read only from trusted proxies. The master is \"tollway serve\" with the domain in its configuration, or
any other server that speaks Smockron.")]
pub(crate) struct Guard {
    /// The address and port to listen on
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    listen: SocketAddr,
    /// The service to protect: http://HOST:PORT, or h2c://HOST:PORT for HTTP/2 without TLS
    #[arg(long, value_name = "URL")]
    upstream: Upstream,
    /// The domain in the configuration of the master
    #[arg(long, value_name = "NAME")]
    domain: String,
    /// The address of the master for accounting
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:10004")]
    master: String,
    /// The address of the master for control [default: the port after --master]
    #[arg(long, value_name = "HOST:PORT")]
    control: Option<String>,
    /// The identifier of a request: address, or header:NAME (the address if the header is missing)
    #[arg(long, value_name = "WHO", default_value = "address")]
    identify: Whom,
    /// A network of trusted proxies, whose X-Forwarded-For is read; can be repeated
    #[arg(long, value_name = "CIDR")]
    trust_proxy: Vec<Network>,
    /// The maximum delay; requests that need a longer one are rejected
    #[arg(long, value_name = "TIME", default_value = "5s")]
    max_delay: Nanos,
    /// The maximum number of delayed requests; others are rejected
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = count)]
    max_delayed: usize,
    /// The maximum number of delays to remember
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
    patience: Nanos,
    /// The maximum number of client connections; beyond it, idle and slow clients are disconnected
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clients)]
    max_connections: usize,
    /// The address and port for Prometheus metrics, at /metrics
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    metrics: Option<SocketAddr>,
    /// The number of worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
}

/// An address and a port; `:8000` is every address.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let everywhere = text.strip_prefix(':').map(|port| format!("[::]:{port}"));
    let address = everywhere.as_deref().unwrap_or(text).parse();
    address.map_err(|_| "must be an address and a port, such as 127.0.0.1:8000 or :8000".to_owned())
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

/// A time in which something may happen, and after which it is too late.
fn time(text: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|error| format!("{error}"))?;
    let possible = (Nanos::from_millis(1)..=Nanos::from_secs(86_400)).contains(&time);
    possible.then_some(time).ok_or_else(|| "must be from 1ms to 24h".to_owned())
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "must be a whole number".to_owned())
}

fn clients(text: &str) -> Result<usize, String> {
    let clients = text.parse().ok().filter(|clients| (1..=Semaphore::MAX_PERMITS).contains(clients));
    clients.ok_or_else(|| "must be a whole number of at least 1".to_owned())
}

impl Guard {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        log_to_stderr();
        let listener = bind(self.listen)?;
        let metrics_listener = self.metrics.map(bind).transpose()?;
        let gatekeeper = self.gatekeeper()?;
        let metrics = Arc::new(Metrics::new(gatekeeper.clone()));
        let settings = Arc::new(Settings {
            gatekeeper,
            who: Who::new(self.identify.clone(), &self.trust_proxy),
            upstream: self.upstream.clone(),
            timeout: Duration::from(self.timeout),
            metrics,
            places: Places::new(self.max_connections),
            patience: Duration::from(self.patience),
        });
        // Each may need one to the upstream, too.
        allow_connections(self.max_connections.saturating_mul(2));
        let (drain, draining) = watch::channel(false);
        // Before anything is announced: whoever reads that may send a signal.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = { runtime.block_on(async { Signals::catch() }).context("cannot handle signals")? };
        let mut workers = Vec::new();
        for number in 0..self.workers.map_or_else(cores, usize::from) {
            let (listener, settings, draining) =
                (listener.try_clone()?, Arc::clone(&settings), draining.clone());
            let work = move || worker::run(listener, &settings, draining);
            workers.push(thread::Builder::new().name(format!("guard-{number}")).spawn(work)?);
        }
        self.announce(&listener, metrics_listener.as_ref()).map_err(OutputError::from)?;
        // The workers have theirs: when they leave, nobody is to listen.
        drop(listener);
        runtime.block_on(async {
            match metrics_listener {
                Some(listener) => tokio::select! {
                    () = signals.come() => Ok(()),
                    ended = metrics::serve(listener, Arc::clone(&settings.metrics)) => ended,
                },
                None => {
                    signals.come().await;
                    Ok(())
                }
            }
        })?;
        drain.send_replace(true);
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker thread panicked"))??;
        }
        Ok(Outcome::Yes)
    }

    fn gatekeeper(&self) -> anyhow::Result<Gatekeeper> {
        let mut builder = Gatekeeper::builder(&self.master, &self.domain)
            .max_delay(self.max_delay.into())
            .max_delayed(self.max_delayed)
            .max_known_delays(self.max_known)
            .report_rejected(self.rejected);
        if let Some(control) = &self.control {
            builder = builder.control_address(control);
        }
        Ok(builder.build()?)
    }

    fn announce(&self, listener: &TcpListener, metrics: Option<&TcpListener>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "tollway guard {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(out, "  listens   http://{}", listener.local_addr()?)?;
        writeln!(out, "  upstream  {}", self.upstream)?;
        writeln!(out, "  domain    {}, master {}", self.domain, self.master)?;
        if let Some(metrics) = metrics {
            writeln!(out, "  metrics   http://{}/metrics", metrics.local_addr()?)?;
        }
        out.flush()
    }
}

fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What ends a server.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn come(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

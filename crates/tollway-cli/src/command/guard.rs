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
use tollway_client::gatekeeper::{Gatekeeper, RejectedAccounting};
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

/// Protect an HTTP service with a gatekeeper, without changing it
///
/// Requests pass to the upstream at once, after a wait, or are answered 503 with Retry-After, as the master of the domain
/// last said. Nobody is asked while a request waits, and without a master everything passes. Bodies are streamed, upgrades such
/// as WebSocket and HTTP/2 (without TLS) pass through, and a client that hangs up while it waits gives up its place.
/// SIGTERM and SIGINT drain: no new connections, requests that are here are answered, then exit 0.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway guard --listen 0.0.0.0:8000 --upstream http://127.0.0.1:3000 --domain api
  tollway guard --listen [::]:80 --upstream http://app:3000 --domain api --master limits:10004 --max-delay 2s
  tollway guard --listen :8000 --upstream h2c://grpc:50051 --domain grpc --identify header:x-api-key
  tollway guard --listen :8000 --upstream http://app:3000 --domain api --trust-proxy 10.0.0.0/8 --metrics :9100

Who is limited is the client's address, of an IPv6 address the /64. Behind a load balancer name its network with
--trust-proxy: only what a trusted proxy says in X-Forwarded-For is believed. The master is `tollway serve` with the domain in
its configuration, or any other that speaks Smockron.")]
pub(crate) struct Guard {
    /// Where to listen: an address and a port
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    listen: SocketAddr,
    /// What is protected: http://HOST:PORT, or h2c://HOST:PORT for one that speaks HTTP/2 without TLS
    #[arg(long, value_name = "URL")]
    upstream: Upstream,
    /// The master's name for what is protected
    #[arg(long, value_name = "NAME")]
    domain: String,
    /// Where the master takes accounting
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:10004")]
    master: String,
    /// Where the master publishes delays; the port after that for accounting if not given
    #[arg(long, value_name = "HOST:PORT")]
    control: Option<String>,
    /// Whose request it is: `address`, or `header:NAME`, and the address where that header is missing
    #[arg(long, value_name = "WHO", default_value = "address")]
    identify: Whom,
    /// A network of proxies whose X-Forwarded-For is believed; may be given several times
    #[arg(long, value_name = "CIDR")]
    trust_proxy: Vec<Network>,
    /// Who would have to wait longer is rejected
    #[arg(long, value_name = "TIME", default_value = "5s")]
    max_delay: Nanos,
    /// How many requests may wait at a time; others are rejected
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = count)]
    max_delayed: usize,
    /// How many delays are remembered
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = count)]
    max_known: usize,
    /// Whether the master hears of rejections: `send`, `off`, or one in so many, as 1/100
    #[arg(long, value_name = "HOW", default_value = "send", value_parser = rejected)]
    rejected: RejectedAccounting,
    /// How long the upstream may take to begin its answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    timeout: Nanos,
    /// How long a client may be silent: between two requests, in the middle of one, and without taking what it is sent
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    patience: Nanos,
    /// How many clients may be connected at a time; others wait to be accepted
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clients)]
    max_connections: usize,
    /// Serve metrics for Prometheus there, at /metrics
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    metrics: Option<SocketAddr>,
    /// How many threads serve; one for each core if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
}

/// An address and a port; `:8000` is every address.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let everywhere = text.strip_prefix(':').map(|port| format!("[::]:{port}"));
    let address = everywhere.as_deref().unwrap_or(text).parse();
    address.map_err(|_| "must be an address and a port, such as 127.0.0.1:8000 or :8000".to_owned())
}

fn rejected(text: &str) -> Result<RejectedAccounting, String> {
    match text {
        "send" => Ok(RejectedAccounting::Send),
        "off" => Ok(RejectedAccounting::Off),
        _ => match text.strip_prefix("1/").and_then(|many| many.parse().ok()) {
            Some(many @ 1..) => Ok(RejectedAccounting::OneIn(many)),
            _ => Err("must be `send`, `off`, or one in so many, such as 1/100".to_owned()),
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
    clients.ok_or_else(|| "must be a whole number above zero".to_owned())
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
        let signals = { runtime.block_on(async { Signals::catch() }).context("signals cannot be caught")? };
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
            worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
        }
        Ok(Outcome::Yes)
    }

    fn gatekeeper(&self) -> anyhow::Result<Gatekeeper> {
        let mut builder = Gatekeeper::builder(&self.master, &self.domain)
            .max_delay(self.max_delay.into())
            .max_delayed(self.max_delayed)
            .max_known(self.max_known)
            .rejected(self.rejected);
        if let Some(control) = &self.control {
            builder = builder.control(control);
        }
        Ok(builder.connect()?)
    }

    fn announce(&self, listener: &TcpListener, metrics: Option<&TcpListener>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "tollway guard {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(out, "  listens   http://{}", listener.local_addr()?)?;
        writeln!(out, "  upstream  {}", self.upstream)?;
        writeln!(out, "  domain    {}, as the master at {} says", self.domain, self.master)?;
        if let Some(metrics) = metrics {
            writeln!(out, "  metrics   http://{}/metrics", metrics.local_addr()?)?;
        }
        out.flush()
    }
}

fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
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

//! `tollway serve`: the limiter, for whoever asks.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, bail};
use clap::Args;
use tollway::config::{FileWatch, GateAddressError, Gates, SmockronGate, StoreUrl};
use tollway::core::{IdFormat, Limit};
use tollway::engine::Engine;
use tollway::{Clock, Config};
use tollway_server::{ConfigFile, Server, Settings, Signals};
use tracing_subscriber::EnvFilter;

use super::{Outcome, store};
use crate::output::OutputError;

/// Start the server
///
/// Without a configuration file, the server listens on loopback with a small built-in policy, so that you can try it. The file
/// is reloaded when it changes and on SIGHUP; if it is invalid, its errors are logged and the old policy stays. On SIGTERM
/// and SIGINT the server drains: it accepts no new connections, answers pending requests, and exits with 0.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway serve
  tollway serve --config tollway.yaml --http 0.0.0.0:8080 --text off
  TOLLWAY_CONFIG=/etc/tollway/tollway.yaml RUST_LOG=debug tollway serve

A flag overrides its environment variable, and both override the file. TOLLWAY_STORE_PASSWORD is the password of the
store. Logs go to standard error; RUST_LOG sets their level.")]
pub(crate) struct Serve {
    /// The configuration file [default: the built-in configuration]
    #[arg(short, long, value_name = "FILE", env = "TOLLWAY_CONFIG")]
    config: Option<PathBuf>,
    /// The store: memory, or a URL such as redis://cache:6379 or redis+cluster://a,b
    #[arg(long, value_name = "URL", env = "TOLLWAY_STORE", hide_env_values = true)]
    store: Option<String>,
    /// The maximum number of buckets in memory
    #[arg(long, value_name = "N", env = "TOLLWAY_MAX_BUCKETS", value_parser = buckets)]
    max_buckets: Option<usize>,
    /// The address and port of the HTTP gate, or off
    #[arg(long, value_name = "ADDR|off", env = "TOLLWAY_HTTP", value_parser = http_gate)]
    http: Option<Gate>,
    /// The address and port of the text gate (UDP), or off
    #[arg(long, value_name = "ADDR|off", env = "TOLLWAY_TEXT", value_parser = text_gate)]
    text: Option<Gate>,
    /// The address and port of the Throttr gate, or off
    #[arg(long, value_name = "ADDR|off", env = "TOLLWAY_THROTTR", value_parser = throttr_gate)]
    throttr: Option<Gate>,
    /// The address and port of the Smockron gate for accounting, or off; control uses the next port
    #[arg(long, value_name = "ADDR|off", env = "TOLLWAY_SMOCKRON", value_parser = smockron_gate)]
    smockron: Option<Gate>,
    /// The number of worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
}

/// Where a gate listens; `None` is nowhere.
#[derive(Clone, Copy)]
struct Gate(Option<SocketAddr>);

fn http_gate(text: &str) -> Result<Gate, GateAddressError> {
    Gates::address(text, Gates::HTTP).map(Gate)
}

fn text_gate(text: &str) -> Result<Gate, GateAddressError> {
    Gates::address(text, Gates::TEXT).map(Gate)
}

fn throttr_gate(text: &str) -> Result<Gate, GateAddressError> {
    Gates::address(text, Gates::THROTTR).map(Gate)
}

fn smockron_gate(text: &str) -> Result<Gate, GateAddressError> {
    Gates::address(text, SmockronGate::ACCOUNTING).map(Gate)
}

fn buckets(text: &str) -> Result<usize, String> {
    let buckets = text.parse().ok().filter(|buckets| *buckets > 0);
    buckets.ok_or_else(|| "must be a whole number of at least 1".to_owned())
}

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        log_to_stderr();
        let mut watch = self.config.as_ref().map(FileWatch::new);
        let config = watch.as_mut().map_or_else(|| Ok(Config::default()), FileWatch::read)?;
        let watched = watch.map(|watch| ConfigFile::new(watch, &config));
        let max_buckets = self.max_buckets.unwrap_or(config.max_buckets);
        let store = store::chosen(self.store.as_deref(), config.store.clone())?;
        let gates = self.gates(config.gates.clone());
        if gates.are_off() {
            bail!("every gate is off; turn one on, such as --http {}", Gates::HTTP);
        }
        let workers = self.workers.map_or_else(cores, usize::from);
        let config = Config { store: store.clone(), max_buckets, ..config };
        let limiter = Engine::open(config, Clock::monotonic());
        let limiter = Arc::new(limiter.with_context(|| format!("cannot open the store {store}"))?);
        let settings = Settings { gates, workers, config: watched, ..Settings::new(Arc::clone(&limiter)) };
        let signals = Signals::catch().context("cannot handle signals")?;
        let server = Server::start(settings).context("cannot start the server")?;
        let from = self
            .config
            .map_or_else(|| "the built-in configuration".to_owned(), |path| path.display().to_string());
        announce(&limiter, &from, &store, &server).map_err(OutputError::from)?;
        signals.run(server)?;
        Ok(Outcome::Yes)
    }

    /// The gates of the file, moved by flags.
    fn gates(&self, configured: Gates) -> Gates {
        let moved = |flag: Option<Gate>, address| flag.map_or(address, |gate| gate.0);
        // A port of its own for control was chosen beside another one for accounting, and stays.
        let accounting = moved(self.smockron, configured.smockron.as_ref().map(|gate| gate.accounting));
        let smockron = accounting.map(|accounting| match &configured.smockron {
            Some(gate) => SmockronGate { accounting, ..gate.clone() },
            None => SmockronGate::at(accounting),
        });
        Gates {
            smockron,
            http: moved(self.http, configured.http),
            text: moved(self.text, configured.text),
            throttr: moved(self.throttr, configured.throttr),
            ..configured
        }
    }
}

pub(super) fn cores() -> usize {
    thread::available_parallelism().map_or(1, Into::into)
}

pub(super) fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    builder.with_ansi(io::stderr().is_terminal()).init();
}

/// What listens where, and lines to try it.
fn announce(limiter: &Engine, from: &str, store: &StoreUrl, server: &Server) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let policy = limiter.policy();
    let limits = policy.limits();
    let counted = |n: usize, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let rules = match policy.rules().len() {
        0 => String::new(),
        rules => format!(" and {}", counted(rules, "rule")),
    };
    writeln!(out, "tollway {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "  {}{rules} from {from}", counted(limits.len(), "limit"))?;
    match store {
        StoreUrl::Memory => writeln!(out, "  at most {} buckets in memory", limiter.stats().max_buckets)?,
        store => writeln!(out, "  buckets in {store}")?,
    }
    if let Some(address) = server.http_addr() {
        writeln!(out, "  http     http://{address}")?;
    }
    if let Some(address) = server.text_addr() {
        writeln!(out, "  text     udp {address}")?;
    }
    if let Some(address) = server.throttr_addr() {
        writeln!(out, "  throttr  tcp {address}")?;
    }
    if let (Some(accounting), Some(control)) = (server.smockron_addr(), server.smockron_control_addr()) {
        writeln!(out, "  smockron zmq tcp://{accounting}, control tcp://{control}")?;
    }
    writeln!(out, "Try:")?;
    if let Some(address) = server.text_addr() {
        writeln!(out, "  tollway text --addr {address} 'over_limit ws global'")?;
    }
    if let Some(address) = server.throttr_addr() {
        writeln!(out, "  tollway throttr query alice api --addr {address}")?;
    }
    if let (Some(address), Some(limit)) = (server.http_addr(), limits.first()) {
        let body = format!(r#"{{"limit":"{}","id":"{}"}}"#, limit.name(), example_id(limit));
        writeln!(out, "  curl -d '{body}' http://{address}/v1/spend")?;
    }
    if let (Some(address), Some(rule)) = (server.http_addr(), policy.rules().first()) {
        let logs = rule.keyed().limit().rule().logs().iter();
        let selectors: Vec<_> =
            logs.filter_map(|log| Some(format!(r#""{}":"alice""#, log.selector()?))).collect();
        let body = format!(r#"{{"selectors":{{{}}}}}"#, selectors.join(","));
        writeln!(out, "  curl -d '{body}' http://{address}/v1/rules/{}", rule.name())?;
    }
    out.flush()
}

/// An id that the limit takes.
fn example_id(limit: &Limit) -> &'static str {
    match limit.ids() {
        IdFormat::Any => "alice",
        IdFormat::Ip(_) | IdFormat::IpAddress => "192.0.2.1",
        IdFormat::Ipv6Range => "2001:db8:1::/48",
        IdFormat::RegId => "12345678",
        IdFormat::Domain => "example.com",
        IdFormat::FqdnSet => "example.com,example.org",
        IdFormat::RegIdDomain => "12345678:example.com",
        IdFormat::RegIdFqdnSet => "12345678:example.com,example.org",
    }
}

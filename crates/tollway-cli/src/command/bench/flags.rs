//! The flags that all load tests share, and the run that they describe.

use std::io::{self, Write};
use std::net::ToSocketAddrs;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use tokio::signal::unix::SignalKind;
use tollway::core::Nanos;
use tollway_load::{Echo, KeyFormat, KeyOrder, KeySpace, Load, Protocol, RunLength, RunProgress};
use tollway_server::allow_connections;

use super::progress::ProgressLine;
use super::report;
use crate::command::Outcome;
use crate::command::interrupt::Interrupt;
use crate::output::OutputError;

#[derive(Args)]
pub(super) struct LoadFlags {
    /// The address of the server [default: this machine, at the default port of the protocol]
    #[arg(long, value_name = "ADDR")]
    addr: Option<String>,
    /// The number of connections, or of UDP sockets
    #[arg(short, long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// The number of requests that a connection sends at once
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pipeline: u16,
    /// The number of different keys
    #[arg(short, long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(super) keys: u64,
    /// The exponent of a Zipf distribution of keys; 0 uses all keys equally
    #[arg(short, long, value_name = "S", default_value_t = 0.0, value_parser = exponent)]
    pub(super) zipf: f64,
    /// The duration of the run
    #[arg(short, long, value_name = "D", default_value = "5s")]
    duration: Nanos,
    /// The number of requests, instead of a duration
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "warmup"], value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Requests per second in an open loop: they are sent on schedule, and latency counts from the scheduled time.
    /// Without it the loop is closed: a connection sends again when its last batch is answered
    #[arg(short, long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rate: Option<u64>,
    /// Send requests for this time first, without counting them
    #[arg(long, value_name = "D", default_value = "0s")]
    warmup: Nanos,
    /// The server is "tollway bench echo", which sends back what it receives
    #[arg(long)]
    pub(super) echo: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn exponent(text: &str) -> Result<f64, String> {
    let exponent = text.parse().ok().filter(|exponent| (0.0..=10.0).contains(exponent));
    exponent.ok_or_else(|| "must be a number from 0 to 10".to_owned())
}

/// The beginnings of the URLs of gates with TLS.
const TLS_SCHEMES: [&str; 2] = ["https://", "rediss://"];

impl LoadFlags {
    /// Returns the load of these flags, on a server that is at `default_addr` unless they say otherwise.
    pub(super) fn load(&self, default_addr: &str) -> anyhow::Result<Load> {
        let text = self.addr.as_deref().unwrap_or(default_addr);
        if TLS_SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            bail!("\"{text}\" is a gate with TLS, and load is sent in plain text; use wrk or h2load for it");
        }
        let mut found = text
            .to_socket_addrs()
            .with_context(|| format!("\"{text}\" is not an address and a port, such as {default_addr}"))?;
        let addr = found.next().ok_or_else(|| anyhow!("host \"{text}\" has no address"))?;
        let (time, zipf) = (RunLength::Time(self.duration.into()), KeyOrder::Zipf(self.zipf));
        Ok(Load {
            connections: self.connections,
            pipeline: self.pipeline,
            key_order: if self.zipf == 0.0 { KeyOrder::Uniform } else { zipf },
            length: self.requests.map_or(time, RunLength::Requests),
            warmup: self.warmup.into(),
            rate: self.rate,
            ..Load::new(addr)
        })
    }

    pub(super) fn keys(&self, format: KeyFormat) -> KeySpace {
        KeySpace { format, count: self.keys }
    }

    /// Runs the load and prints its report. A run that ended early prints what it measured before the error.
    pub(super) fn run(&self, name: &str, load: &Load, protocol: impl Protocol) -> anyhow::Result<Outcome> {
        let interrupt = Interrupt::catch(&[SignalKind::interrupt()])?;
        allow_connections(load.connections.into());
        let mut line = ProgressLine::on_terminal();
        let mut observe = |progress: &RunProgress<'_>| {
            line.update(progress);
            interrupt.check()
        };
        let report = if self.echo {
            load.run(&Echo::new(protocol), &mut observe)?
        } else {
            load.run(&protocol, &mut observe)?
        };
        line.clear();
        if report.stats.replies > 0 || report.failure.is_none() {
            let text = if self.json {
                format!("{}\n", report::json(name, self, load, &report))
            } else {
                report::text(name, self, load, &report)
            };
            io::stdout().write_all(text.as_bytes()).map_err(OutputError::from)?;
        }
        let outcome = if report.is_all_errors() { Outcome::No } else { Outcome::Yes };
        report.failure.map_or(Ok(outcome), |failure| Err(failure.into()))
    }
}

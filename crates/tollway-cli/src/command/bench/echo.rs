//! `tollway bench echo`: an echo server that has the I/O of the gates, as a baseline.

use std::io::{self, Write};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use tollway::Clock;
use tollway::config::{Config, Gates};
use tollway::engine::Engine;
use tollway::store::memory::Memory;
use tollway_server::{Server, Settings, Signals};

use crate::command::Outcome;
use crate::command::arguments::GateFlag;
use crate::output::OutputError;

/// The size of the store, which is never used.
const BUCKETS: usize = 1;

/// Start a server that sends back what it receives, as a baseline
///
/// It uses the I/O of the text, the Throttr and the RESP gate. Load-test it with --echo; the difference to a real gate
/// is the cost of decoding, deciding and encoding.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway bench echo --throttr 127.0.0.1:9001 --text off
  tollway bench throttr --echo --addr 127.0.0.1:9001 --pipeline 64")]
pub(crate) struct Echo {
    /// The address and port for TCP with the I/O of the Throttr gate, or off
    #[arg(long, value_name = "ADDR|off", default_value = "127.0.0.1:9001", value_parser = GateFlag::throttr)]
    throttr: GateFlag,
    /// The address and port for UDP, or off
    #[arg(long, value_name = "ADDR|off", default_value = "127.0.0.1:2001", value_parser = GateFlag::text)]
    text: GateFlag,
    /// The address and port for TCP with the I/O of the RESP gate, or off
    #[arg(long, value_name = "ADDR|off", default_value = "off", value_parser = GateFlag::resp)]
    resp: GateFlag,
    /// The address and port for gRPC, or off; every call to Envoy's rate limit service gets the answer OK
    #[arg(long, value_name = "ADDR|off", default_value = "off", value_parser = GateFlag::rls)]
    rls: GateFlag,
    /// The number of worker threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
}

impl Echo {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let (text, throttr) = (self.text.0, self.throttr.0);
        let gates = Gates { text, throttr, resp: self.resp.0, rls: self.rls.0, ..Gates::OFF };
        if gates.are_off() {
            bail!("every gate is off; turn one on, such as --throttr 127.0.0.1:9001");
        }
        let limiter = Engine::with(Config::default().policy, Memory::new(BUCKETS), Clock::monotonic());
        let workers = self.workers.into();
        let settings = Settings { gates, echo: true, workers, ..Settings::new(Arc::new(limiter)) };
        let signals = Signals::catch().context("cannot handle signals")?;
        let server = Server::start(settings).context("cannot start the echo server")?;
        announce(&server).map_err(OutputError::from)?;
        signals.run(server)?;
        Ok(Outcome::Yes)
    }
}

fn announce(server: &Server) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "tollway bench echo")?;
    if let Some(address) = server.text_addr() {
        writeln!(out, "  text     udp {address}")?;
    }
    if let Some(address) = server.throttr_addr() {
        writeln!(out, "  throttr  tcp {address}")?;
    }
    if let Some(address) = server.resp_addr() {
        writeln!(out, "  resp     tcp {address}")?;
    }
    if let Some(address) = server.rls_addr() {
        writeln!(out, "  rls      grpc {address}")?;
    }
    out.flush()
}

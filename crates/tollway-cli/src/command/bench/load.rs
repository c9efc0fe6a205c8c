//! The flags that all load tests share, and the run that they describe.

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, anyhow};
use clap::Args;
use tollway::Clock;
use tollway::core::Nanos;

use super::course::{Course, Stop};
use super::interrupt::Interrupt;
use super::keys::Draw;
use super::protocol::{Echo, Protocol};
use super::report::Report;
use super::stream::Streams;
use super::tally::Tally;
use crate::command::Outcome;
use crate::output::OutputError;

/// How much, of what, for how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct Load {
    /// The address of the server [default: this machine, at the default port of the protocol]
    #[arg(long, value_name = "ADDR")]
    pub(super) addr: Option<String>,
    /// The number of connections, or of UDP sockets
    #[arg(short, long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) connections: u16,
    /// The number of requests that a connection sends at once
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(super) pipeline: u16,
    /// The number of different keys
    #[arg(short, long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(super) keys: u64,
    /// The exponent of a Zipf distribution of keys; 0 uses all keys equally
    #[arg(short, long, value_name = "S", default_value_t = 0.0, value_parser = exponent)]
    pub(super) zipf: f64,
    /// The duration of the run
    #[arg(short, long, value_name = "D", default_value = "5s")]
    pub(super) duration: Nanos,
    /// The number of requests, instead of a duration
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "warmup"], value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) requests: Option<u64>,
    /// Requests per second in an open loop: they are sent on schedule, and latency counts from the scheduled time.
    /// Without it the loop is closed: a connection sends again when its last batch is answered
    #[arg(short, long, value_name = "R", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(super) rate: Option<u64>,
    /// Send requests for this time first, without counting them
    #[arg(long, value_name = "D", default_value = "0s")]
    pub(super) warmup: Nanos,
    /// The server is "tollway bench echo", which sends back what it receives
    #[arg(long)]
    pub(super) echo: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,
}

fn exponent(text: &str) -> Result<f64, String> {
    let exponent = text.parse().ok().filter(|exponent| (0.0..=10.0).contains(exponent));
    exponent.ok_or_else(|| "must be a number from 0 to 10".to_owned())
}

impl Load {
    /// Puts a server that speaks `protocol` under this load, and prints what came of it.
    pub(super) fn run(
        &self,
        name: &'static str,
        default_addr: &str,
        protocol: impl Protocol,
    ) -> anyhow::Result<Outcome> {
        let interrupt = Interrupt::catch()?;
        let addr = self.addr(default_addr)?;
        let draw = Draw::new(self.keys, self.zipf);
        let (course, tally) = if self.echo {
            self.stream(addr, Echo(protocol), draw, &interrupt)?
        } else {
            self.stream(addr, protocol, draw, &interrupt)?
        };
        self.print(name, addr, course, tally)
    }

    /// Over connections.
    pub(super) fn stream<P: Protocol>(
        &self,
        addr: SocketAddr,
        protocol: P,
        draw: Draw,
        interrupt: &Interrupt,
    ) -> anyhow::Result<(Course, Tally)> {
        let mut streams = Streams::connect(addr, self, protocol, draw)?;
        let course = streams.run(Course::new(Clock::monotonic(), self), interrupt);
        Ok((course, streams.into_tally()))
    }

    /// Says what came of it. A run that ended before its time still has its figures, and then its reason.
    pub(super) fn print(
        &self,
        name: &'static str,
        addr: SocketAddr,
        course: Course,
        tally: Tally,
    ) -> anyhow::Result<Outcome> {
        let report = Report { name, addr, load: self, course: &course, tally: &tally };
        if tally.replies > 0 || course.stopped().is_none() {
            let text = if self.json { format!("{}\n", report.json()) } else { report.to_string() };
            io::stdout().write_all(text.as_bytes()).map_err(OutputError::from)?;
        }
        match course.into_stopped() {
            None | Some(Stop::Interrupted) => Ok(Outcome::Yes),
            Some(stop) => Err(stop.into_error(addr)),
        }
    }

    /// Where the server is.
    pub(super) fn addr(&self, default: &str) -> anyhow::Result<SocketAddr> {
        let text = self.addr.as_deref().unwrap_or(default);
        let found = text
            .to_socket_addrs()
            .with_context(|| format!("\"{text}\" is not an address and a port, such as 127.0.0.1:8080"))?
            .next();
        found.ok_or_else(|| anyhow!("host \"{text}\" has no address"))
    }
}

//! `tollway bench`: how much a server takes, and how long it lets callers wait.

mod course;
mod echo;
mod http;
mod interrupt;
mod keys;
mod load;
mod pace;
mod progress;
mod protocol;
mod redis;
mod report;
mod sockets;
mod stream;
mod tally;
mod template;
mod text;
mod throttr;
mod waiting;
mod zipf;

use clap::{Args, Subcommand};

use super::Outcome;

/// Put a server under load and say how it bore it
///
/// One thread asks over many connections. In a closed loop, which is the default, each connection sends a batch, waits
/// for its answers and sends the next: the rate is what the server can take. With --rate the loop is open: requests leave on
/// schedule whatever the answers do, and their latency counts from the scheduled instant, so that a pause of
/// the server shows in full. Ctrl-C ends a run early and prints what there is so far.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway bench throttr --pipeline 64 --keys 1000000
  tollway bench http --limit demo --rate 20000
  tollway bench redis --pipeline 64 --keys 1000000

Exit status: 0 if the run was made, 2 if nothing listens there, the server hung up or its replies are not the protocol's.")]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Text(text::Text),
    Throttr(throttr::Throttr),
    Http(http::Http),
    Redis(redis::Redis),
    Echo(echo::Echo),
}

impl Bench {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.what {
            What::Text(text) => text.run(),
            What::Throttr(throttr) => throttr.run(),
            What::Http(http) => http.run(),
            What::Redis(redis) => redis.run(),
            What::Echo(echo) => echo.run(),
        }
    }
}

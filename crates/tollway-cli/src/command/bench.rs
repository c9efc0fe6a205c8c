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

/// Load-test a server
///
/// One thread sends requests over many connections. By default the loop is closed: each connection sends a batch, waits for
/// the replies and sends the next, which measures the highest rate of the server. With --rate the loop is open: requests are
/// sent on schedule, and latency counts from the scheduled time, so that a pause of the server shows in full. Ctrl-C
/// ends a run early and prints the result so far.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway bench throttr --pipeline 64 --keys 1000000
  tollway bench http --limit demo --rate 20000
  tollway bench redis --pipeline 64 --keys 1000000

Exit status: 0 success, 2 error: no server, a lost connection, or replies of another protocol.")]
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

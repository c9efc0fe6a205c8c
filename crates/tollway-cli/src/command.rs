//! The subcommands.

mod ask;
mod bench;
mod completions;
mod explain;
mod guard;
mod inspect;
mod keys;
mod replay;
mod serve;
mod store;
mod text;
mod throttr;
mod validate;

use std::path::Path;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tollway::config::{Config, ConfigErrors};
use tollway_client::http::blocking::Client;

/// A rate limiter that decides exactly, answers fast, and costs a denied request nothing.
#[derive(Parser)]
#[command(name = "tollway", version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Exit status: 0 yes, 1 no (denied, invalid, or not as expected), 2 the question could not be answered.
`tollway help COMMAND` explains each command, with examples.";

#[derive(Subcommand)]
pub(crate) enum Command {
    Serve(serve::Serve),
    Guard(Box<guard::Guard>),
    Spend(ask::Spend),
    Check(ask::Check),
    Refund(ask::Refund),
    Reset(ask::Reset),
    Inspect(inspect::Inspect),
    Explain(explain::Explain),
    Keys(keys::Keys),
    Text(text::Text),
    Throttr(throttr::Throttr),
    Replay(replay::Replay),
    Bench(bench::Bench),
    Validate(validate::Validate),
    Completions(completions::Completions),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self {
            Self::Serve(serve) => serve.run(),
            Self::Guard(guard) => guard.run(),
            Self::Spend(spend) => spend.run(),
            Self::Check(check) => check.run(),
            Self::Refund(refund) => refund.run(),
            Self::Reset(reset) => reset.run(),
            Self::Inspect(inspect) => inspect.run(),
            Self::Explain(explain) => explain.run(),
            Self::Keys(keys) => keys.run(),
            Self::Text(text) => text.run(),
            Self::Throttr(throttr) => throttr.run(),
            Self::Replay(replay) => replay.run(),
            Self::Bench(bench) => bench.run(),
            Self::Validate(validate) => validate.run(),
            Self::Completions(completions) => completions.run(),
        }
    }
}

/// How a command went, as its exit code tells. A question that could not be answered is an error instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit code 0.
    Yes,
    /// Exit code 1.
    No,
}

/// The time that a command waits for the HTTP gate. Longer than a program would: a person waits, and a page of keys is
/// read from Redis.
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates the client of the HTTP gate at `address`.
fn client(address: &str) -> Client {
    Client::with_timeout(address, HTTP_TIMEOUT)
}

/// The configuration in `file`, or the built-in one.
fn configured(file: Option<&Path>) -> Result<Config, ConfigErrors> {
    file.map_or_else(|| Ok(Config::default()), Config::from_file)
}

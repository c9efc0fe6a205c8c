//! Defines the subcommands, and runs the one that was given.

mod arguments;
mod ask;
mod bench;
mod buckets;
mod completions;
mod explain;
mod guard;
mod import;
mod inspect;
mod interrupt;
mod keys;
mod record;
mod replay;
mod serve;
mod store;
mod text;
mod throttr;
mod tls_flags;
mod token;
mod token_flags;
mod top;
mod validate;

use std::path::Path;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tollway::config::{Config, ConfigErrors};
use tollway_client::http::blocking::Client;

use tls_flags::TlsFlags;
use token_flags::TokenFlags;

/// A fast and exact rate limiter: a server, a client and tools
#[derive(Parser)]
#[command(name = "tollway", version, arg_required_else_help = true, after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  tollway serve                         Start a server with the built-in limits
  tollway spend demo:alice              Take one unit from the bucket of \"alice\" under the limit \"demo\"
  tollway top                           Watch a server: who is limited, by which limit, and for how long
  tollway validate tollway.yaml         Check a configuration file

Exit status: 0 yes or done; 1 denied, not found, invalid, or a reply that differs; 2 error.
Run \"tollway help COMMAND\" for the options and examples of a command.";

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
    Buckets(buckets::Buckets),
    Top(top::Top),
    Text(text::Text),
    Throttr(throttr::Throttr),
    Record(record::Record),
    Replay(replay::Replay),
    Bench(bench::Bench),
    Validate(validate::Validate),
    Import(import::Import),
    Token(token::Token),
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
            Self::Buckets(buckets) => buckets.run(),
            Self::Top(top) => top.run(),
            Self::Text(text) => text.run(),
            Self::Throttr(throttr) => throttr.run(),
            Self::Record(record) => record.run(),
            Self::Replay(replay) => replay.run(),
            Self::Bench(bench) => bench.run(),
            Self::Validate(validate) => validate.run(),
            Self::Import(import) => import.run(),
            Self::Token(token) => token.run(),
            Self::Completions(completions) => completions.run(),
        }
    }
}

/// The outcome of a command without an error, which is its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Exit code 0.
    Yes,
    /// Exit code 1.
    No,
}

/// The timeout for the HTTP gate and the admin gate. It is longer than that of a program: a person waits, and a page of
/// keys is read from Redis.
const HTTP_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates the client of the HTTP gate or the admin gate at `address`.
fn client(address: &str, tls: &TlsFlags, token: &TokenFlags) -> anyhow::Result<Client> {
    let mut client = Client::with_timeout(address, HTTP_TIMEOUT)?;
    if let Some(tls) = tls.read()? {
        client = client.with_tls(tls);
    }
    Ok(match token.read()? {
        Some(token) => client.with_token(&token)?,
        None => client,
    })
}

/// Returns the configuration in `file`, or the built-in one.
fn configured(file: Option<&Path>) -> Result<Config, ConfigErrors> {
    file.map_or_else(|| Ok(Config::default()), Config::from_file)
}

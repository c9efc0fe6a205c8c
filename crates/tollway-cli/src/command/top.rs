//! `tollway top`: shows a server live in a terminal.

use std::env;
use std::io::{self, IsTerminal};

use anyhow::{Context, bail};
use clap::Args;
use tokio::signal::unix::SignalKind;
use tollway_client::ClientError;
use tollway_client::http::blocking::Client;
use tollway_client::http::{EventStream, LiveEvent};
use tollway_top::{App, Theme};

use super::Outcome;
use super::arguments::AdminServer;
use super::interrupt::{Interrupt, exit_on_hangup};
use crate::output::print_line;

/// The columns of a screen as text, if standard output is not a terminal.
const TEXT_WIDTH: u16 = 100;

/// Watch a server live: who is denied, by which limit, and when they are free again
///
/// Shows what the console shows, in the terminal, once a second: how many requests are allowed, denied, and decided
/// without the store; each limit with its numbers, its last ten minutes and the share that it denies; the ids that are
/// denied most or spend most; the last denials; the store and the gates. If the server restarts, the last screen stays
/// until the server is back.
///
/// Keys: q quits, s sorts the limits, / filters, d and p list the ids that are denied or spend most, tab and the arrow
/// keys scroll, space pauses, ? shows all keys. NO_COLOR=1 turns colors off.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway top
  tollway top --addr 10.0.0.5:8082
  tollway top --once                   # one screen as text, for a pipe or a mail
  tollway top --json --once | jq '.top_denied[0]'
  tollway top --json | jq -c '[.at, .totals.denied]'

Exit status: 0 success, 2 error.")]
pub(crate) struct Top {
    #[command(flatten)]
    server: AdminServer,
    /// Print one screen as text, and end
    #[arg(long)]
    once: bool,
    /// Print each snapshot of the server as JSON, one a line; with --once, only the first
    #[arg(long)]
    json: bool,
    /// The columns of the text that --once prints [default: those of the terminal, or 100]
    #[arg(long, value_name = "N", requires = "once", conflicts_with = "json")]
    width: Option<u16>,
}

impl Top {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let client = self.server.client()?;
        let is_terminal = io::stdout().is_terminal();
        if !self.once && !self.json && !is_terminal {
            bail!(
                "standard output is not a terminal; print one screen with --once, or snapshots with --json"
            );
        }
        let stream = watch(&client)?;
        if self.json {
            print_snapshots(stream, self.once)?;
        } else if self.once {
            let width = self.width.or_else(|| terminal_width(is_terminal)).unwrap_or(TEXT_WIDTH);
            print_line(tollway_top::text(&first_screen(stream)?, width).as_bytes())?;
        } else {
            let interrupt = Interrupt::catch(&[SignalKind::interrupt(), SignalKind::terminate()])?;
            exit_on_hangup(tollway_top::restore)?;
            let theme = Theme { has_colors: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) };
            let should_stop = || interrupt.check().is_break();
            tollway_top::run(client, stream, theme, should_stop).context("cannot use this terminal")?;
        }
        Ok(Outcome::Yes)
    }
}

/// Starts to watch, and says what to do if the server does not let us.
fn watch(client: &Client) -> anyhow::Result<EventStream> {
    let address = client.address();
    client.live().map_err(|error| match error {
        ClientError::Problem { status: 404, .. } => anyhow::Error::from(error).context(format!(
            "{address} has no live figures; check that it is the admin gate of a server that is not older than this \
             program"
        )),
        error => error.into(),
    })
}

/// Prints the data of snapshots as the server sent it.
fn print_snapshots(mut stream: EventStream, once: bool) -> anyhow::Result<()> {
    loop {
        let event = stream.next_event()?;
        if event.name != LiveEvent::SNAPSHOT {
            continue;
        }
        print_line(event.data.as_bytes())?;
        if once {
            return Ok(());
        }
    }
}

/// Returns the first screen that has figures.
fn first_screen(mut stream: EventStream) -> anyhow::Result<App> {
    let mut app = App::default();
    while !app.has_snapshot() {
        let event =
            LiveEvent::from_event(&stream.next_event()?).context("cannot read an event of the server")?;
        if let Some(event) = event {
            app.apply(event);
        }
    }
    Ok(app)
}

fn terminal_width(is_terminal: bool) -> Option<u16> {
    let columns = || env::var("COLUMNS").ok()?.parse().ok();
    if is_terminal { tollway_top::terminal_width() } else { columns() }
}

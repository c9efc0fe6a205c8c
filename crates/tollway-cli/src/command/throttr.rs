//! `tollway throttr`: make, ask for, change and forget quotas over the Throttr protocol.

mod change;

use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use tollway::core::Nanos;
use tollway_client::throttr::blocking::Client;
use tollway_client::throttr::{QuotaAttribute, QuotaInfo};

use self::change::{Amount, Changed, Time, suffix};
use super::Outcome;
use crate::output::print_line;

/// Make, ask for, change and forget quotas over the Throttr protocol
///
/// A quota belongs to a consumer and a resource, and lives for a time. The server counts nothing down by itself: whoever uses
/// a quota says so by an update.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway throttr insert alice /downloads --quota 100 --ttl 1h
  tollway throttr update alice /downloads --quota=-1
  tollway throttr query alice /downloads
  tollway throttr purge alice /downloads

Exit status: 0 done or found, 1 not, 2 no answer.")]
pub(crate) struct Throttr {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Insert(Insert),
    Query(Query),
    Update(Update),
    Purge(Purge),
}

/// Make a quota
///
/// A live one stays as it is, unless the server is configured to start it over (`on_insert: reset`).
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway throttr insert alice /downloads --quota 100 --ttl 1h
  tollway throttr insert alice /downloads --quota 5 --ttl 1500ms

The time is sent in the largest of s, ms and ns that it is a whole number of, and the server counts in that.

Exit status: 0 made, 1 there is a live one, 2 no answer.")]
struct Insert {
    #[command(flatten)]
    pair: Pair,
    /// How many there are
    #[arg(long, value_name = "N")]
    quota: u64,
    /// How long it lives
    #[arg(long, value_name = "TIME")]
    ttl: Nanos,
}

/// Say what is left of a quota, and for how long
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway throttr query alice /downloads
  tollway throttr query alice /downloads --json

Exit status: 0 there is a live one, 1 there is none, 2 no answer.")]
struct Query {
    #[command(flatten)]
    pair: Pair,
    /// Print JSON; `null` if there is none
    #[arg(long)]
    json: bool,
}

/// Change what is left of a quota, or how long it lives
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway throttr update alice /downloads --quota=-1     one less, down to 0
  tollway throttr update alice /downloads --quota=+50    50 more
  tollway throttr update alice /downloads --quota=100    100 from now on
  tollway throttr update alice /downloads --ttl=+10m     10 minutes longer
  tollway throttr update alice /downloads --ttl=60       60 of the unit that it was made with

A server takes a time in the unit that the quota was made with; to tell it one such as 10m, that is asked for first.

Exit status: 0 changed, 1 there is no live one, 2 no answer.")]
struct Update {
    #[command(flatten)]
    pair: Pair,
    #[command(flatten)]
    by: By,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct By {
    /// What is left: N, or +N more, or -N less
    #[arg(long, value_name = "[+|-]N", allow_hyphen_values = true)]
    quota: Option<Changed<Amount>>,
    /// How long it lives from now: TIME, or +TIME longer, or -TIME shorter
    #[arg(long, value_name = "[+|-]TIME", allow_hyphen_values = true)]
    ttl: Option<Changed<Time>>,
}

/// Forget a quota
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway throttr purge alice /downloads

Exit status: 0 forgotten, 1 there was no live one, 2 no answer.")]
struct Purge {
    #[command(flatten)]
    pair: Pair,
}

/// What every request has.
#[derive(Args)]
struct Pair {
    /// Whose quota, at most 255 bytes
    consumer: String,
    /// For what, at most 255 bytes
    resource: String,
    /// The server's Throttr gate
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9000", env = "TOLLWAY_THROTTR_ADDR")]
    addr: String,
    /// How long to wait for the reply
    #[arg(long, value_name = "TIME", default_value = "1s", env = "TOLLWAY_THROTTR_TIMEOUT")]
    timeout: Nanos,
}

impl Throttr {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.what {
            What::Insert(insert) => insert.run(),
            What::Query(query) => query.run(),
            What::Update(update) => update.run(),
            What::Purge(purge) => purge.run(),
        }
    }
}

impl Insert {
    fn run(self) -> anyhow::Result<Outcome> {
        let Pair { consumer, resource, .. } = &self.pair;
        let made = self.pair.client().insert(consumer, resource, self.quota, Duration::from(self.ttl))?;
        say(made, "ok", "there is a live one")
    }
}

impl Query {
    fn run(self) -> anyhow::Result<Outcome> {
        let Pair { consumer, resource, .. } = &self.pair;
        let found = self.pair.client().query(consumer, resource)?;
        let (json, words) = match found {
            Some(quota) => (as_json(&quota), in_words(&quota)),
            None => ("null".to_owned(), NONE.to_owned()),
        };
        let line = if self.json { json } else { words };
        say(found.is_some(), &line, &line)
    }
}

impl Update {
    fn run(self) -> anyhow::Result<Outcome> {
        let Pair { consumer, resource, .. } = &self.pair;
        let client = self.pair.client();
        let (attribute, change, value) = match (self.by.quota, self.by.ttl) {
            (Some(Changed { change, by: Amount(value) }), _) => (QuotaAttribute::Quota, change, value),
            (_, Some(Changed { change, by: Time::Units(value) })) => (QuotaAttribute::Ttl, change, value),
            (_, Some(Changed { change, by: Time::Span(span) })) => {
                let Some(quota) = client.query(consumer, resource)? else { return say(false, "", NONE) };
                (QuotaAttribute::Ttl, change, change::in_unit(span, quota.lifetime.unit)?)
            }
            (None, None) => bail!("nothing is to be changed"),
        };
        say(client.update(consumer, resource, attribute, change, value)?, "ok", NONE)
    }
}

impl Purge {
    fn run(self) -> anyhow::Result<Outcome> {
        let Pair { consumer, resource, .. } = &self.pair;
        say(self.pair.client().purge(consumer, resource)?, "ok", NONE)
    }
}

impl Pair {
    fn client(&self) -> Client {
        Client::with_timeout(&self.addr, self.timeout.into())
    }
}

const NONE: &str = "there is none";

fn say(done: bool, yes: &str, no: &str) -> anyhow::Result<Outcome> {
    print_line(if done { yes } else { no }.as_bytes())?;
    Ok(if done { Outcome::Yes } else { Outcome::No })
}

fn in_words(quota: &QuotaInfo) -> String {
    format!("quota={} ttl={}{}", quota.left, quota.lifetime.value, suffix(quota.lifetime.unit))
}

fn as_json(quota: &QuotaInfo) -> String {
    let (value, unit) = (quota.lifetime.value, suffix(quota.lifetime.unit));
    format!(r#"{{"quota":{},"ttl":{value},"ttl_type":"{unit}"}}"#, quota.left)
}

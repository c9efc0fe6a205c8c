//! `tollway throttr`: creates, queries, updates and deletes quotas over the Throttr protocol.

mod change;

use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use tollway::core::Nanos;
use tollway_client::InvalidAddress;
use tollway_client::throttr::blocking::Client;
use tollway_client::throttr::{QuotaAttribute, QuotaInfo};

use self::change::{Amount, Changed, Time, suffix};
use super::Outcome;
use crate::output::print_line;

/// Create, query, update and delete quotas over the Throttr protocol
///
/// A quota belongs to a consumer and a resource, and expires after its time to live. A query does not change it: use an
/// update to take from it. The protocol has no place for a token, and this command speaks plain text: for a gate with
/// TLS, use a tunnel such as stunnel or socat.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway throttr insert alice /downloads --quota 100 --ttl 1h
  tollway throttr update alice /downloads --quota=-1
  tollway throttr query alice /downloads
  tollway throttr purge alice /downloads

Exit status: 0 done or found, 1 not done or not found, 2 error.")]
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

/// Create a quota
///
/// An existing quota is not changed, unless the server is configured to replace it (on_insert: reset).
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway throttr insert alice /downloads --quota 100 --ttl 1h
  tollway throttr insert alice /downloads --quota 5 --ttl 1500ms

The time is sent in the largest unit of s, ms and ns in which it is a whole number, and the quota keeps that unit.

Exit status: 0 created, 1 the quota exists, 2 error.")]
struct Insert {
    #[command(flatten)]
    pair: Pair,
    /// The number of units
    #[arg(long, value_name = "N")]
    quota: u64,
    /// The time to live, such as 1h
    #[arg(long, value_name = "TIME")]
    ttl: Nanos,
}

/// Show what is left of a quota, and its time to live
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway throttr query alice /downloads
  tollway throttr query alice /downloads --json

Exit status: 0 found, 1 not found, 2 error.")]
struct Query {
    #[command(flatten)]
    pair: Pair,
    /// Print JSON, or null if the quota does not exist
    #[arg(long)]
    json: bool,
}

/// Change what is left of a quota, or its time to live
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway throttr update alice /downloads --quota=-1     take 1, down to 0
  tollway throttr update alice /downloads --quota=+50    add 50
  tollway throttr update alice /downloads --quota=100    set to 100
  tollway throttr update alice /downloads --ttl=+10m     extend by 10 minutes
  tollway throttr update alice /downloads --ttl=60       set to 60, in the unit of the quota

The protocol sends a time in the unit of the quota, so a time such as 10m needs a query first.

Exit status: 0 changed, 1 not found, 2 error.")]
struct Update {
    #[command(flatten)]
    pair: Pair,
    #[command(flatten)]
    by: By,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct By {
    /// The units left: N sets them, +N adds, -N takes
    #[arg(long, value_name = "[+|-]N", allow_hyphen_values = true)]
    quota: Option<Changed<Amount>>,
    /// The time to live from now: TIME sets it, +TIME extends, -TIME shortens
    #[arg(long, value_name = "[+|-]TIME", allow_hyphen_values = true)]
    ttl: Option<Changed<Time>>,
}

/// Delete a quota
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway throttr purge alice /downloads

Exit status: 0 deleted, 1 not found, 2 error.")]
struct Purge {
    #[command(flatten)]
    pair: Pair,
}

/// The arguments that every request has.
#[derive(Args)]
struct Pair {
    /// The consumer, at most 255 bytes
    consumer: String,
    /// The resource, at most 255 bytes
    resource: String,
    /// The address of the server's Throttr gate
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9000", env = "TOLLWAY_THROTTR_ADDR")]
    addr: String,
    /// The timeout for a reply
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
        let made = self.pair.client()?.insert(consumer, resource, self.quota, Duration::from(self.ttl))?;
        say(made.is_done(), "ok", "the quota exists")
    }
}

impl Query {
    fn run(self) -> anyhow::Result<Outcome> {
        let Pair { consumer, resource, .. } = &self.pair;
        let found = self.pair.client()?.query(consumer, resource)?;
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
        let client = self.pair.client()?;
        let (attribute, change, value) = match (self.by.quota, self.by.ttl) {
            (Some(Changed { change, by: Amount(value) }), _) => (QuotaAttribute::Quota, change, value),
            (_, Some(Changed { change, by: Time::Units(value) })) => (QuotaAttribute::Ttl, change, value),
            (_, Some(Changed { change, by: Time::Span(span) })) => {
                let Some(quota) = client.query(consumer, resource)? else { return say(false, "", NONE) };
                (QuotaAttribute::Ttl, change, change::in_unit(span, quota.lifetime.unit)?)
            }
            (None, None) => bail!("nothing to change; give --quota or --ttl"),
        };
        say(client.update(consumer, resource, attribute, change, value)?.is_done(), "ok", NONE)
    }
}

impl Purge {
    fn run(self) -> anyhow::Result<Outcome> {
        let Pair { consumer, resource, .. } = &self.pair;
        say(self.pair.client()?.purge(consumer, resource)?.is_done(), "ok", NONE)
    }
}

impl Pair {
    fn client(&self) -> Result<Client, InvalidAddress> {
        Client::with_timeout(&self.addr, self.timeout.into())
    }
}

const NONE: &str = "the quota does not exist";

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

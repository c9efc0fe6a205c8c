//! `tollway keys`: which buckets there are.

use clap::Args;
use tollway_client::http::blocking::Client;
use tollway_client::http::{KeysPage, KeysQuery};

use super::Outcome;
use super::arguments::AdminServer;
use crate::output::print_line;

/// List the buckets that a running server keeps in Redis
///
/// Prints one bucket a line, in no order, of one limit or of all. Buckets that are created or deleted meanwhile may be
/// missing, and a bucket may be listed twice. The memory store keeps no ids, so it cannot list buckets.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tollway keys
  tollway keys LoginsPerAccount --count 20

Exit status: 0 success, 2 error.")]
pub(crate) struct Keys {
    /// List only the buckets of this limit
    #[arg(value_name = "LIMIT")]
    limit: Option<String>,
    /// Stop after N buckets
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    server: AdminServer,
    /// Print the server's answers as JSON, one page a line
    #[arg(long)]
    json: bool,
}

impl Keys {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let client = self.server.client()?;
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut cursor = Some(0);
        while let Some(from) = cursor.filter(|_| left > 0) {
            let page = self.page(&client, from, &mut left)?;
            cursor = page.cursor;
        }
        Ok(Outcome::Yes)
    }

    /// Prints one page, as far as there are any `left` to print.
    fn page(&self, client: &Client, cursor: u64, left: &mut u64) -> anyhow::Result<KeysPage> {
        let count = usize::try_from(*left).unwrap_or(usize::MAX).min(KeysQuery::COUNT_MAX);
        let asked = KeysQuery { limit: self.limit.as_deref().map(Into::into), cursor, count };
        let response = client.keys_raw(&asked)?;
        if self.json {
            print_line(&response.body)?;
        }
        let page = response.keys_page()?;
        let keys = page.keys.iter().take(usize::try_from(*left).unwrap_or(usize::MAX));
        if !self.json {
            keys.clone().try_for_each(|key| print_line(key.as_bytes()))?;
        }
        *left -= keys.count() as u64;
        Ok(page)
    }
}

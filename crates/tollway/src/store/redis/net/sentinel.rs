//! Sentinels, which know the address of the primary.

use std::time::Duration;

use redis::Value;
use tokio::time::sleep;

use super::dial::{ANSWER_MAX, DialError, Dialer, ErrorAt, Failures, OpenConnection, within};
use super::jitter::{jittered, random};
use crate::store::redis::Address;

/// The pause between two checks of an open connection. A primary that was replaced may not know it, and go on answering
/// clients that can still reach it: what is spent there is lost.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// The Sentinels that watch one primary.
#[derive(Debug)]
pub(super) struct Sentinels {
    addresses: Vec<Address>,
    name: String,
}

impl Sentinels {
    pub(super) fn new(addresses: Vec<Address>, name: String) -> Self {
        Self { addresses, name }
    }

    /// Waits, and asks for the primary. Opens a connection to it if it is not at `here` any more.
    pub(super) async fn find_elsewhere(
        &self,
        dialer: &Dialer,
        here: &Address,
    ) -> Option<(Address, OpenConnection)> {
        sleep(jittered(CHECK_EVERY)).await;
        let address = self.primary(dialer).await.ok().filter(|address| address != here)?;
        Some((address.clone(), dialer.open(&address).await.ok()?))
    }

    /// Asks for the primary, and opens a connection to it.
    pub(super) async fn open_primary(&self, dialer: &Dialer) -> Result<(Address, OpenConnection), DialError> {
        let address = self.primary(dialer).await?;
        // Right after a failover the Sentinels may still name the old primary, or one that has not been told yet.
        match dialer.open(&address).await {
            Ok(opened) => Ok((address, opened)),
            Err(source) => Err(ErrorAt { at: address.to_string(), source }.into()),
        }
    }

    /// Asks one Sentinel after the other, beginning with a random one.
    async fn primary(&self, dialer: &Dialer) -> Result<Address, DialError> {
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let count = self.addresses.len();
        let first = random() as usize % count.max(1);
        let mut failures = Failures::default();
        for address in self.addresses.iter().cycle().skip(first).take(count) {
            let asked = async {
                let answer = dialer.ask_sentinel(address, &question).await?;
                parse(&answer).ok_or_else(|| format!("it knows no primary {}", self.name).into())
            };
            match within(ANSWER_MAX, asked).await {
                Ok(primary) => return Ok(primary),
                Err(error) => failures.add(address, error),
            }
        }
        Err(failures.into_error())
    }
}

/// Parses a host and a port, both as text.
fn parse(answer: &Value) -> Option<Address> {
    let Value::Array(parts) = answer else { return None };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return None };
    let host = String::from_utf8(host.clone()).ok()?;
    Some(Address { host, port: std::str::from_utf8(port).ok()?.parse().ok()? })
}

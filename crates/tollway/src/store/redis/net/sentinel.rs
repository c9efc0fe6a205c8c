//! Sentinels, who know where the primary is.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep_until, timeout};
use tollway_core::ErrorChain;

use super::chance::{jittered, random};
use super::dial::{DialError, Dialer, ErrorAt, Line};
use super::switchboard::{Event, Layout, Switchboard};
use crate::store::redis::Address;

/// How long one Sentinel may take to answer.
const ANSWER_MAX: Duration = Duration::from_millis(250);

/// How often they are asked while all is well. A primary that has been replaced may not know it, and go on answering whoever can
/// still reach it: what is spent there is lost.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Sentinels who watch one primary.
#[derive(Debug)]
pub(super) struct Sentinels {
    addresses: Vec<Address>,
    name: String,
}

impl Sentinels {
    pub(super) fn new(addresses: Vec<Address>, name: String) -> Self {
        Self { addresses, name }
    }

    /// What the primary is called before its address is known.
    pub(super) fn somewhere(&self) -> Address {
        Address { host: self.name.clone(), port: 0 }
    }

    /// Opens a connection to the primary, if it is not at `here` any more.
    async fn open_elsewhere(&self, dialer: &Dialer, here: &Address) -> Option<(Address, Line)> {
        let address = self.primary(dialer).await.ok().filter(|address| address != here)?;
        Some((address.clone(), dialer.open(&address).await.ok()?))
    }

    /// Asks where the primary is, and opens a connection to it.
    pub(super) async fn open_primary(&self, dialer: &Dialer) -> Result<(Address, Line), DialError> {
        let address = self.primary(dialer).await?;
        // Right after a failover the Sentinels may still name the old primary, or one that does not know its luck.
        match dialer.open(&address).await {
            Ok(line) => Ok((address, line)),
            Err(source) => Err(ErrorAt { at: address.to_string(), source }.into()),
        }
    }

    /// Asks one Sentinel after the other, beginning anywhere.
    async fn primary(&self, dialer: &Dialer) -> Result<Address, DialError> {
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let first = random() as usize % self.addresses.len().max(1);
        let mut reasons = Vec::new();
        for address in self.addresses.iter().cycle().skip(first).take(self.addresses.len()) {
            let answer = timeout(ANSWER_MAX, dialer.ask_sentinel(address, &question)).await;
            match answer.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_MAX:?}").into())) {
                Ok(answer) => match read(&answer) {
                    Some(primary) => return Ok(primary),
                    None => reasons.push(format!("{address}: it knows no primary {}", self.name)),
                },
                Err(error) => reasons.push(format!("{address}: {}", ErrorChain(&*error))),
            }
        }
        Err(reasons.join("; ").into())
    }
}

impl Switchboard {
    /// Asks the Sentinels from time to time whether the primary is still the one that we know.
    pub(super) fn ask_again_later(&mut self) {
        let Layout::Watched(sentinels) = &self.layout else { return };
        let (sentinels, dialer) = (Arc::clone(sentinels), Arc::clone(&self.dialer));
        let (here, life) = (self.nodes[0].address.clone(), self.nodes[0].life);
        let due = Instant::now() + jittered(ASK_EVERY);
        self.events.spawn(async move {
            sleep_until(due).await;
            Event::Watched { life, elsewhere: sentinels.open_elsewhere(&dialer, &here).await }
        });
    }

    /// The Sentinels were asked about the connection that had this number.
    pub(super) fn watched(&mut self, life: u64, elsewhere: Option<(Address, Line)>) {
        // Whoever opened another in the meantime has asked them, and asks them again.
        if self.nodes[0].life != life {
            return;
        }
        match elsewhere {
            None => self.ask_again_later(),
            Some((address, line)) => {
                tracing::info!("redis primary moved from {} to {address}", self.nodes[0].address);
                self.switch(0, address, line);
            }
        }
    }
}

/// Reads a host and a port, both as text.
fn read(answer: &Value) -> Option<Address> {
    let Value::Array(parts) = answer else { return None };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return None };
    let host = String::from_utf8(host.clone()).ok()?;
    Some(Address { host, port: std::str::from_utf8(port).ok()?.parse().ok()? })
}

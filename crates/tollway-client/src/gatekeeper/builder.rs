//! What a gatekeeper is told before it begins.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tollway_core::Nanos;

use super::Gatekeeper;
use super::book::Bounds;

/// Where masters listen for accounting unless told otherwise.
const PORT: u16 = 10_004;

/// How long a domain may be. A topic must fit into a message with everything else.
const DOMAIN_MAX: usize = 255;

/// A gatekeeper that is not yet at work. What is not said is as [`Gatekeeper::connect`] has it.
#[derive(Clone, Debug)]
#[must_use = "nothing is guarded until `connect`"]
pub struct GatekeeperBuilder {
    pub(super) address: String,
    pub(super) control: Option<String>,
    pub(super) domain: String,
    pub(super) bounds: Bounds,
    pub(super) rejected: RejectedAccounting,
}

/// Whether the master hears of requests that were rejected. It counts them and delays nobody for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectedAccounting {
    /// Of each.
    #[default]
    Send,
    /// Of none.
    Off,
    /// Of one in so many.
    OneIn(u32),
}

/// Why there is no gatekeeper. A master that is away is no reason: it may come later.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Something else than a host and a port.
    #[error("{address:?} is no address: write host:10004")]
    Address {
        /// What was given.
        address: String,
    },
    /// The accounting port is the last there is, and no other address for control was given.
    #[error("there is no port after {address:?} for control: say which it is")]
    NoControlPort {
        /// What was given.
        address: String,
    },
    /// Empty, too long, or with a NUL in it.
    #[error("{domain:?} is no domain: 1 to 255 bytes without a NUL")]
    Domain {
        /// What was given.
        domain: String,
    },
    /// The system gave no thread.
    #[error("no thread can be started to talk to the master")]
    Thread(#[from] io::Error),
}

impl GatekeeperBuilder {
    pub(super) fn new(address: &str, domain: &str) -> Self {
        let bounds = Bounds { max_delay: Nanos::from_secs(5), max_delayed: 1_000, max_known: 100_000 };
        Self {
            address: address.to_owned(),
            control: None,
            domain: domain.to_owned(),
            bounds,
            rejected: RejectedAccounting::default(),
        }
    }

    /// Where the master publishes delays, if it is not the port after that for accounting.
    pub fn control(mut self, address: &str) -> Self {
        self.control = Some(address.to_owned());
        self
    }

    /// A request that would have to wait longer is rejected. 5 s unless said otherwise.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.bounds.max_delay = Nanos::new(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
        self
    }

    /// How many requests may wait at a time, whosever they are; others are rejected. 1,000 unless said otherwise.
    pub fn max_delayed(mut self, requests: usize) -> Self {
        self.bounds.max_delayed = requests;
        self
    }

    /// How many delays are remembered, at some hundred bytes each. At the bound the one that ends first is forgotten, and its
    /// identifier passes. 100,000 unless said otherwise.
    pub fn max_known(mut self, delays: usize) -> Self {
        self.bounds.max_known = delays;
        self
    }

    /// Whether the master hears of requests that were rejected.
    pub fn rejected(mut self, accounting: RejectedAccounting) -> Self {
        self.rejected = accounting;
        self
    }

    /// Begins. Nobody need be there yet.
    pub fn connect(self) -> Result<Gatekeeper, ConnectError> {
        let domain = self.domain.as_bytes();
        if domain.is_empty() || domain.len() > DOMAIN_MAX || domain.contains(&0) {
            return Err(ConnectError::Domain { domain: self.domain });
        }
        let accounting = Address::parse(&self.address, PORT)?;
        let control = match &self.control {
            Some(address) => Address::parse(address, PORT + 1)?,
            None => accounting.next_port()?,
        };
        let (accounting, control) = (accounting.text(), control.text());
        Gatekeeper::start(self, accounting, control)
    }
}

struct Address<'a> {
    host: &'a str,
    port: u16,
}

impl<'a> Address<'a> {
    /// As people write it, with ZeroMQ's scheme or without, and with brackets around an IPv6 address.
    fn parse(text: &'a str, usual_port: u16) -> Result<Self, ConnectError> {
        let wrong = || ConnectError::Address { address: text.to_owned() };
        let bare = text.strip_prefix("tcp://").unwrap_or(text);
        let (host, port) = match bare.rsplit_once(':') {
            Some((host, port)) if !bare.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (bare, usual_port),
        };
        let bracketed = host.starts_with('[') && host.ends_with(']');
        if host.is_empty() || host == "*" || port == 0 || (host.contains(':') && !bracketed) {
            return Err(wrong());
        }
        Ok(Self { host, port })
    }

    fn next_port(&self) -> Result<Self, ConnectError> {
        let port = self.port.checked_add(1);
        let port = port.ok_or_else(|| ConnectError::NoControlPort { address: self.text() })?;
        Ok(Self { host: self.host, port })
    }

    fn text(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (text, expected) in [
            ("master:10004", Some("master:10004 master:10005")),
            ("tcp://10.0.0.1:7", Some("10.0.0.1:7 10.0.0.1:8")),
            ("master", Some("master:10004 master:10005")),
            ("[::1]:7", Some("[::1]:7 [::1]:8")),
            ("[::1]", Some("[::1]:10004 [::1]:10005")),
            ("::1", None),
            ("master:", None),
            ("master:http", None),
            ("master:0", None),
            ("master:65536", None),
            ("*:10004", None),
            (":10004", None),
            ("", None),
        ] {
            let both = Address::parse(text, PORT)
                .ok()
                .map(|address| format!("{} {}", address.text(), address.next_port().unwrap().text()));
            assert_eq!(both.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_work_is_said_at_once() {
        let error = |address: &str, domain: &str| {
            GatekeeperBuilder::new(address, domain).connect().err().map(|error| error.to_string())
        };
        assert_eq!(error("a:b", "d").unwrap(), r#""a:b" is no address: write host:10004"#);
        assert!(error("a:65535", "d").unwrap().starts_with("there is no port after"));
        for domain in ["", "a\0", &"x".repeat(256)] {
            assert!(error("a:1", domain).unwrap().contains("is no domain"), "{domain:?}");
        }
    }
}

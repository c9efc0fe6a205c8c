//! Builds a gatekeeper from its settings, and checks them.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tollway_core::Nanos;

use super::Gatekeeper;
use super::delay_table::DelayBounds;

/// The port on which masters listen for accounting by default.
const PORT: u16 = 10_004;

/// The longest domain, in bytes. A topic must fit into a message with everything else.
const DOMAIN_MAX: usize = 255;

/// A gatekeeper that is not started yet, with the settings of [`Gatekeeper::connect`] unless they are changed.
#[derive(Clone, Debug)]
#[must_use = "nothing is limited until `connect`"]
pub struct GatekeeperBuilder {
    pub(super) address: String,
    pub(super) control: Option<String>,
    pub(super) domain: String,
    pub(super) bounds: DelayBounds,
    pub(super) rejected: RejectedAccounting,
}

/// The choice of rejected requests that are reported to the master. It counts them and delays no request for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectedAccounting {
    /// Every rejected request is reported.
    #[default]
    Send,
    /// No rejected request is reported.
    Off,
    /// One of this many rejected requests is reported.
    OneIn(u32),
}

/// The reasons why a gatekeeper cannot start. An unreachable master is not one: the gatekeeper connects when it is
/// back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not a host and a port.
    #[error("invalid address {address:?}; write it as host:10004")]
    Address {
        /// The address that was given.
        address: String,
    },
    /// The accounting port is 65535, so there is no next port for control, and no address for control was set.
    #[error("there is no port after {address:?} for control; set the control address")]
    NoControlPort {
        /// The address that was given.
        address: String,
    },
    /// The domain is empty, too long, or has a NUL.
    #[error("invalid domain {domain:?}; it must have 1 to 255 bytes and no NUL")]
    Domain {
        /// The domain that was given.
        domain: String,
    },
    /// The system refused a thread.
    #[error("the thread for the connections to the master cannot be started")]
    Thread(#[from] io::Error),
}

impl GatekeeperBuilder {
    pub(super) fn new(address: &str, domain: &str) -> Self {
        let bounds = DelayBounds { max_delay: Nanos::from_secs(5), max_delayed: 1_000, max_known: 100_000 };
        Self {
            address: address.to_owned(),
            control: None,
            domain: domain.to_owned(),
            bounds,
            rejected: RejectedAccounting::default(),
        }
    }

    /// Sets the address where the master publishes delays (default: the port after the one for accounting).
    pub fn control(mut self, address: &str) -> Self {
        self.control = Some(address.to_owned());
        self
    }

    /// Sets the longest wait (default: 5 s). A request that would wait longer is rejected.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.bounds.max_delay = Nanos::new(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
        self
    }

    /// Sets the number of requests that may wait, of all identifiers together (default: 1,000). Others are rejected.
    pub fn max_delayed(mut self, requests: usize) -> Self {
        self.bounds.max_delayed = requests;
        self
    }

    /// Sets the number of delays that are remembered, at some hundred bytes each (default: 100,000). At the bound the
    /// delay that ends first is removed, and its identifier passes.
    pub fn max_known(mut self, delays: usize) -> Self {
        self.bounds.max_known = delays;
        self
    }

    /// Sets which rejected requests are reported to the master (default: every one).
    pub fn rejected(mut self, accounting: RejectedAccounting) -> Self {
        self.rejected = accounting;
        self
    }

    /// Starts the gatekeeper. It connects to the master in the background, and again whenever the connection ends.
    pub fn connect(self) -> Result<Gatekeeper, ConnectError> {
        let domain = self.domain.as_bytes();
        if domain.is_empty() || domain.len() > DOMAIN_MAX || domain.contains(&0) {
            return Err(ConnectError::Domain { domain: self.domain });
        }
        let accounting = HostPort::parse(&self.address, PORT)?;
        let control = match &self.control {
            Some(address) => HostPort::parse(address, PORT + 1)?,
            None => accounting.next_port()?,
        };
        let (accounting, control) = (accounting.text(), control.text());
        Gatekeeper::start(self, accounting, control)
    }
}

/// The host and the port that an address consists of.
struct HostPort<'a> {
    host: &'a str,
    port: u16,
}

impl<'a> HostPort<'a> {
    /// Parses an address with or without `tcp://` and the port, and with brackets around an IPv6 address.
    fn parse(text: &'a str, default_port: u16) -> Result<Self, ConnectError> {
        let wrong = || ConnectError::Address { address: text.to_owned() };
        let bare = text.strip_prefix("tcp://").unwrap_or(text);
        let (host, port) = match bare.rsplit_once(':') {
            Some((host, port)) if !bare.ends_with(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (bare, default_port),
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
            let both = HostPort::parse(text, PORT)
                .ok()
                .map(|address| format!("{} {}", address.text(), address.next_port().unwrap().text()));
            assert_eq!(both.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_settings_are_errors_at_once() {
        let error = |address: &str, domain: &str| {
            GatekeeperBuilder::new(address, domain).connect().err().map(|error| error.to_string())
        };
        assert_eq!(error("a:b", "d").unwrap(), r#"invalid address "a:b"; write it as host:10004"#);
        assert!(error("a:65535", "d").unwrap().starts_with("there is no port after"));
        for domain in ["", "a\0", &"x".repeat(256)] {
            assert!(error("a:1", domain).unwrap().starts_with("invalid domain"), "{domain:?}");
        }
    }
}

//! Builds a gatekeeper from its settings, and checks them.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tollway_core::Nanos;

use super::delay_table::DelayBounds;
use super::{DEFAULT_PORT, Gatekeeper};
use crate::InvalidAddress;
use crate::address::{HostPort, invalid};

/// The longest domain, in bytes. A topic must fit into a message with everything else.
const DOMAIN_MAX: usize = 255;

/// A gatekeeper that is not started yet, with the settings of [`Gatekeeper::new`] unless they are changed.
#[derive(Clone, Debug)]
#[must_use = "nothing is limited until `connect`"]
pub struct GatekeeperBuilder {
    pub(super) address: String,
    pub(super) control_address: Option<String>,
    pub(super) domain: String,
    pub(super) bounds: DelayBounds,
    pub(super) report_rejected: RejectedReports,
}

/// The rejected requests that are reported to the master, which counts them and delays no request for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectedReports {
    /// Every rejected request is reported.
    #[default]
    All,
    /// No rejected request is reported.
    None,
    /// One of this many rejected requests is reported.
    OneIn(u32),
}

/// The reasons why a gatekeeper cannot start. An unreachable master is not one: the gatekeeper connects when it is
/// back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GatekeeperError {
    /// The address of the master, or the one for control, is not a host and a port.
    #[error(transparent)]
    Address(#[from] InvalidAddress),
    /// The accounting port is 65535, so there is no next port for control, and no address for control was set.
    #[error("there is no port after {address:?} for control; set control_address")]
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
    /// The system did not start a thread.
    #[error("the thread for the connections to the master cannot be started")]
    Thread(#[from] io::Error),
}

impl GatekeeperBuilder {
    pub(super) fn new(address: &str, domain: &str) -> Self {
        let bounds =
            DelayBounds { max_delay: Nanos::from_secs(5), max_delayed: 1_000, max_known_delays: 100_000 };
        Self {
            address: address.to_owned(),
            control_address: None,
            domain: domain.to_owned(),
            bounds,
            report_rejected: RejectedReports::default(),
        }
    }

    /// Sets the address where the master publishes delays (default: the port after the one for accounting).
    pub fn control_address(mut self, address: &str) -> Self {
        self.control_address = Some(address.to_owned());
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

    /// Sets the number of published delays that are remembered, at some hundred bytes each (default: 100,000). At the
    /// bound the delay that ends first is removed, and its identifier passes.
    pub fn max_known_delays(mut self, delays: usize) -> Self {
        self.bounds.max_known_delays = delays;
        self
    }

    /// Sets which rejected requests are reported to the master (default: every one).
    pub fn report_rejected(mut self, reports: RejectedReports) -> Self {
        self.report_rejected = reports;
        self
    }

    /// Creates the gatekeeper. It connects to the master in the background, and again whenever the connection ends.
    pub fn build(self) -> Result<Gatekeeper, GatekeeperError> {
        let domain = self.domain.as_bytes();
        if domain.is_empty() || domain.len() > DOMAIN_MAX || domain.contains(&0) {
            return Err(GatekeeperError::Domain { domain: self.domain });
        }
        let accounting = parse(&self.address, DEFAULT_PORT)?;
        let control = match &self.control_address {
            Some(address) => parse(address, DEFAULT_PORT + 1)?,
            None => next_port(accounting)?,
        };
        let (accounting, control) = (accounting.to_string(), control.to_string());
        Gatekeeper::start(self, accounting, control)
    }
}

/// Parses an address with or without the `tcp://` that ZeroMQ writes in front.
fn parse(address: &str, default_port: u16) -> Result<HostPort<'_>, InvalidAddress> {
    let bare = address.strip_prefix("tcp://").unwrap_or(address);
    HostPort::parse(bare, default_port).ok_or_else(|| invalid(address, default_port))
}

fn next_port(accounting: HostPort<'_>) -> Result<HostPort<'_>, GatekeeperError> {
    let port = accounting.port.checked_add(1);
    let port = port.ok_or_else(|| GatekeeperError::NoControlPort { address: accounting.to_string() })?;
    Ok(HostPort { port, ..accounting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_is_at_the_next_port() {
        for (text, expected) in [
            ("master:10004", Some("master:10004 master:10005")),
            ("tcp://10.0.0.1:7", Some("10.0.0.1:7 10.0.0.1:8")),
            ("master", Some("master:10004 master:10005")),
            ("[::1]:7", Some("[::1]:7 [::1]:8")),
            ("http://master", None),
        ] {
            let both = parse(text, DEFAULT_PORT)
                .ok()
                .map(|address| format!("{address} {}", next_port(address).unwrap()));
            assert_eq!(both.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_settings_are_errors_at_once() {
        let error = |address: &str, domain: &str| {
            GatekeeperBuilder::new(address, domain).build().err().map(|error| error.to_string())
        };
        assert_eq!(
            error("a:b", "d").unwrap(),
            r#"invalid address "a:b"; write it as HOST or HOST:PORT, such as 127.0.0.1:10004"#
        );
        assert!(error("a:65535", "d").unwrap().starts_with("there is no port after"));
        for domain in ["", "a\0", &"x".repeat(256)] {
            assert!(error("a:1", domain).unwrap().starts_with("invalid domain"), "{domain:?}");
        }
    }
}

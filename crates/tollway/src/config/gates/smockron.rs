//! The gate that has two doors: `smockron: 127.0.0.1:10004`, or
//! `smockron: { accounting: 127.0.0.1:10004, control: 127.0.0.1:10005, statsd: 127.0.0.1:8125 }`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::read_address;
use crate::config::errors::Errors;
use crate::config::fields::{Fields, literal, refuse};
use crate::config::yaml::{YamlEntry, YamlValue};

/// Where the master listens, and whom it tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmockronGate {
    /// Where gatekeepers say what they let through.
    pub accounting: SocketAddr,
    /// Where they hear whom to delay; the port after that of `accounting` if not given.
    pub control: Option<SocketAddr>,
    /// The host and port of a StatsD that is sent every request.
    pub statsd: Option<String>,
}

impl SmockronGate {
    /// Where gatekeepers say what they let through unless told otherwise.
    pub const ACCOUNTING: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10004);
    /// Where they hear whom to delay unless told otherwise.
    const CONTROL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10005);

    /// Accounting at this address, and control at the port after it.
    pub const fn at(accounting: SocketAddr) -> Self {
        Self { accounting, control: None, statsd: None }
    }

    /// Where gatekeepers hear whom to delay. Beside any free port it is another; beside the last there is none.
    pub fn control(&self) -> Option<SocketAddr> {
        let after = match self.accounting.port() {
            0 => Some(0),
            port => port.checked_add(1),
        };
        self.control.or_else(|| Some(SocketAddr::new(self.accounting.ip(), after?)))
    }
}

/// `None` for what is wrong, `Some(None)` for `off`.
pub(super) fn read(entry: &YamlEntry, errors: &mut Errors) -> Option<Option<SmockronGate>> {
    let gate = match &entry.value.value {
        YamlValue::Map(entries) => read_fields(entries, errors)?,
        _ => read_address(entry, SmockronGate::ACCOUNTING, errors)?.map(SmockronGate::at),
    };
    if gate.as_ref().is_some_and(|gate| gate.control().is_none()) {
        return refuse(entry, "has no port after its own; give control an address too", errors);
    }
    Some(gate)
}

fn read_fields(entries: &[YamlEntry], errors: &mut Errors) -> Option<Option<SmockronGate>> {
    let fields = Fields::read(entries, "smockron", &["accounting", "control", "statsd"], errors);
    let mut address = |name, usual| fields.get(name).map(|entry| read_address(entry, usual, errors));
    let accounting = address("accounting", SmockronGate::ACCOUNTING);
    let control = address("control", SmockronGate::CONTROL);
    let statsd = fields.get("statsd").map(|entry| read_statsd(entry, errors));
    let (control, statsd) = (control.unwrap_or(Some(None))?, statsd.unwrap_or(Some(None))?);
    if let Some(entry) = fields.get("control").filter(|_| control.is_none()) {
        return refuse(entry, "must be an address: gatekeepers that hear nothing delay nobody", errors);
    }
    let accounting = accounting.unwrap_or(Some(Some(SmockronGate::ACCOUNTING)))?;
    Some(accounting.map(|accounting| SmockronGate { accounting, control, statsd }))
}

fn read_statsd(entry: &YamlEntry, errors: &mut Errors) -> Option<Option<String>> {
    let text = literal(&entry.value).unwrap_or_default();
    if text == "off" {
        return Some(None);
    }
    let names_one =
        |(host, port): (&str, &str)| !host.is_empty() && port.parse().is_ok_and(|port: u16| port > 0);
    if text.rsplit_once(':').is_some_and(names_one) {
        return Some(Some(text.to_owned()));
    }
    refuse(entry, "must be a host and a port, such as 127.0.0.1:8125, or off", errors)
}

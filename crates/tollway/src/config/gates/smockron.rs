//! Reads the addresses of the Smockron gate, which has two sockets and can send to StatsD.
//!
//! ```yaml
//! smockron: 127.0.0.1:10004
//! smockron: { accounting: 127.0.0.1:10004, control: 127.0.0.1:10005, statsd: 127.0.0.1:8125 }
//! smockron: { accounting: 0.0.0.0:10004, trusted_networks: [10.0.0.0/8] }
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::max_connections::{MaxConnections, PER_ADDRESS, TOTAL};
use super::read_address;
use super::trusted_networks::{TRUSTED_NETWORKS, TrustedNetworks};
use crate::config::errors::ErrorCollector;
use crate::config::fields::{YamlFields, refuse, scalar_text};
use crate::config::yaml::{YamlEntry, YamlValue};

/// The addresses that a Smockron master uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmockronGate {
    /// The address at which the master receives reports from gatekeepers.
    pub accounting: SocketAddr,
    /// The address at which the master publishes delays; without it, the port that follows the port of `accounting`.
    pub control: Option<SocketAddr>,
    /// The host and port of a StatsD server that gets a count for every request.
    pub statsd: Option<String>,
    /// The number of connections that each of the two addresses accepts.
    pub connections: MaxConnections,
    /// The networks from which gatekeepers may connect to either address.
    pub trusted_networks: TrustedNetworks,
}

impl SmockronGate {
    /// The address at which the master receives reports by default.
    pub const ACCOUNTING: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10004);
    /// The address at which the master publishes delays by default.
    const CONTROL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10005);

    /// Returns a gate with accounting at this address, and control at the port that follows.
    pub const fn at(accounting: SocketAddr) -> Self {
        Self {
            accounting,
            control: None,
            statsd: None,
            connections: MaxConnections::DEFAULT,
            trusted_networks: TrustedNetworks::LOCAL,
        }
    }

    /// Returns the address at which the master publishes delays. If the port of `accounting` is 0 (any free port), so
    /// is this one; after port 65535 there is none.
    pub fn control(&self) -> Option<SocketAddr> {
        let after = match self.accounting.port() {
            0 => Some(0),
            port => port.checked_add(1),
        };
        self.control.or_else(|| Some(SocketAddr::new(self.accounting.ip(), after?)))
    }
}

/// Reads the gate. Returns `None` after an error, and `Some(None)` for `off`.
pub(super) fn read(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Option<SmockronGate>> {
    let gate = match &entry.value.value {
        YamlValue::Map(entries) => read_fields(entries, errors)?,
        _ => read_address(entry, SmockronGate::ACCOUNTING, errors)?.map(SmockronGate::at),
    };
    if gate.as_ref().is_some_and(|gate| gate.control().is_none()) {
        return refuse(entry, "must have a port below 65535, or a control address of its own", errors);
    }
    Some(gate)
}

fn read_fields(entries: &[YamlEntry], errors: &mut ErrorCollector) -> Option<Option<SmockronGate>> {
    let names = ["accounting", "control", "statsd", TRUSTED_NETWORKS, TOTAL, PER_ADDRESS];
    let fields = YamlFields::read(entries, "smockron", &names, errors);
    let mut address = |name, usual| fields.get(name).map(|entry| read_address(entry, usual, errors));
    let accounting = address("accounting", SmockronGate::ACCOUNTING);
    let control = address("control", SmockronGate::CONTROL);
    let statsd = fields.get("statsd").map(|entry| read_statsd(entry, errors));
    let connections = MaxConnections::read(&fields, errors);
    let trusted_networks = fields
        .get(TRUSTED_NETWORKS)
        .map_or(Some(TrustedNetworks::LOCAL), |entry| TrustedNetworks::read(entry, errors));
    let (connections, trusted_networks) = (connections?, trusted_networks?);
    let (control, statsd) = (control.unwrap_or(Some(None))?, statsd.unwrap_or(Some(None))?);
    if let Some(entry) = fields.get("control").filter(|_| control.is_none()) {
        return refuse(entry, "must be an address, where gatekeepers learn of delays", errors);
    }
    let accounting = accounting.unwrap_or(Some(Some(SmockronGate::ACCOUNTING)))?;
    let gate = |accounting| SmockronGate { accounting, control, statsd, connections, trusted_networks };
    Some(accounting.map(gate))
}

fn read_statsd(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Option<String>> {
    let text = scalar_text(&entry.value).unwrap_or_default();
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

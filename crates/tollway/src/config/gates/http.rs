//! Reads the settings of the HTTP gate.
//!
//! ```yaml
//! http: { listen: 10.0.0.5:8080, trusted_proxies: [10.0.0.0/8], inline: allow, throttlecrab: true, gate: off }
//! ```

use tollway_core::Network;

use super::host_names::{HOSTS, HostNames};
use super::inline_access::{INLINE, InlineAccess};
use super::trusted_networks::read_networks;
use crate::config::errors::ErrorCollector;
use crate::config::fields::{YamlFields, choice};

/// The names of the settings.
pub(super) const NAMES: [&str; 5] = ["trusted_proxies", INLINE, "throttlecrab", "gate", HOSTS];

/// The settings of the HTTP gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpSettings {
    /// The proxies whose headers tell `/v1/gate` about the original request. By default there are none: a header that
    /// anybody can send would let a client choose its id.
    pub trusted_proxies: Vec<Network>,
    /// The clients that may bring the numbers of limits.
    pub inline: InlineAccess,
    /// True if `/throttle` answers clients of throttlecrab, which bring the numbers of their limits.
    pub throttlecrab: bool,
    /// True if `/v1/gate` is off, because no proxy asks this gate.
    pub gate_off: bool,
    /// The names by which browsers may ask the gate.
    pub hosts: HostNames,
}

impl HttpSettings {
    /// Trusts no proxy, and takes numbers on loopback only.
    pub const DEFAULT: Self = Self {
        trusted_proxies: Vec::new(),
        inline: InlineAccess::Loopback,
        throttlecrab: false,
        gate_off: false,
        hosts: HostNames::NONE,
    };

    pub(super) fn read(fields: &YamlFields<'_>, errors: &mut ErrorCollector) -> Option<Self> {
        let [trusted_proxies, inline, throttlecrab, gate, hosts] = NAMES.map(|name| fields.get(name));
        let trusted_proxies = trusted_proxies.map_or(Some(Vec::new()), |entry| read_networks(entry, errors));
        let inline = inline.map_or(Some(InlineAccess::default()), |entry| InlineAccess::read(entry, errors));
        let answers_throttlecrab = throttlecrab
            .map_or(Some(false), |entry| choice(entry, &[("true", true), ("false", false)], errors));
        let gate_off =
            gate.map_or(Some(false), |entry| choice(entry, &[("on", false), ("off", true)], errors));
        let hosts = hosts.map_or(Some(HostNames::NONE), |entry| HostNames::read(entry, errors));
        if let (Some(entry), Some(true), Some(InlineAccess::Deny)) =
            (throttlecrab, answers_throttlecrab, inline)
        {
            errors.add(
                entry.value.at,
                "throttlecrab: true lets clients bring the numbers of their limits, which inline: deny forbids; remove \
                 one of them",
            );
        }
        Some(Self {
            trusted_proxies: trusted_proxies?,
            inline: inline?,
            throttlecrab: answers_throttlecrab?,
            gate_off: gate_off?,
            hosts: hosts?,
        })
    }
}

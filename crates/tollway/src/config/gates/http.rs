//! Reads the settings of the HTTP gate.
//!
//! ```yaml
//! http: { listen: 10.0.0.5:8080, trusted_proxies: [10.0.0.0/8] }
//! ```

use tollway_core::Network;

use super::trusted_networks::read_networks;
use crate::config::errors::ErrorCollector;
use crate::config::fields::YamlFields;

pub(super) const TRUSTED_PROXIES: &str = "trusted_proxies";

/// The settings of the HTTP gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpSettings {
    /// The proxies whose headers tell `/v1/gate` about the original request. By default there are none: a header that
    /// anybody can send would let a client choose its id.
    pub trusted_proxies: Vec<Network>,
}

impl HttpSettings {
    /// Trusts no proxy.
    pub const DEFAULT: Self = Self { trusted_proxies: Vec::new() };

    pub(super) fn read(fields: &YamlFields<'_>, errors: &mut ErrorCollector) -> Option<Self> {
        let trusted_proxies =
            fields.get(TRUSTED_PROXIES).map_or(Some(Vec::new()), |entry| read_networks(entry, errors));
        Some(Self { trusted_proxies: trusted_proxies? })
    }
}

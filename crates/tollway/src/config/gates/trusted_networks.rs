//! Reads the networks whose clients are served, by a gate whose protocol cannot ask who they are.
//!
//! ```yaml
//! text: { listen: 10.0.0.5:2000, trusted_networks: [10.0.0.0/8, 'fd00::/8'] }
//! smockron: { accounting: 10.0.0.5:10004, trusted_networks: [10.0.0.0/8] }
//! ```

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use tollway_core::Network;

use crate::config::errors::ErrorCollector;
use crate::config::fields::{refuse, scalar_text};
use crate::config::yaml::{YamlEntry, YamlValue};

/// The name of the setting.
pub(super) const TRUSTED_NETWORKS: &str = "trusted_networks";

/// The networks whose clients are served. By default these are the loopback, private and link-local ranges.
///
/// The source of a datagram can be forged, and an answer may be much longer than its question: a gate that answers
/// everybody can be used to flood others. Over ZeroMQ, whoever can report can delay others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedNetworks(Option<Box<[Network]>>);

impl TrustedNetworks {
    /// Trusts the loopback, private and link-local ranges of IPv4 and IPv6.
    pub const LOCAL: Self = Self(None);

    /// Returns whether datagrams from this address are answered. Nobody can receive an answer at port 0.
    #[inline]
    pub fn contain(&self, sender: SocketAddr) -> bool {
        self.contain_address(sender.ip()) && sender.port() != 0
    }

    /// Returns whether clients at this address are served. An IPv4-mapped IPv6 address counts as the IPv4 address.
    #[inline]
    pub fn contain_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match &self.0 {
            None => is_local(address),
            Some(networks) => networks.iter().any(|network| network.contains(address)),
        }
    }

    /// Returns whether every address of IPv4, or of IPv6, is in one of the networks: `0.0.0.0/0`, or both halves of it.
    pub fn cover_all_addresses(&self) -> bool {
        let networks = self.0.as_deref().unwrap_or_default();
        let numbers = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        [(true, u128::from(u32::MAX)), (false, u128::MAX)].into_iter().any(|(is_ipv4, greatest)| {
            let of_kind = networks.iter().filter(|network| network.first().is_ipv4() == is_ipv4);
            let mut ranges: Vec<_> =
                of_kind.map(|network| (numbers(network.first()), numbers(network.last()))).collect();
            ranges.sort_unstable();
            let mut next = 0;
            for (first, last) in ranges {
                if first > next {
                    return false;
                }
                if last == greatest {
                    return true;
                }
                next = next.max(last + 1);
            }
            false
        })
    }

    pub(super) fn read(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Self> {
        read_networks(entry, errors).map(Self::from_iter)
    }
}

/// Reads a list of networks, each of which is an address and a prefix length, or one address.
pub(super) fn read_networks(entry: &YamlEntry, errors: &mut ErrorCollector) -> Option<Vec<Network>> {
    let must_be = "must be a list of networks, such as [10.0.0.0/8, 192.168.7.1]";
    let YamlValue::List(items) = &entry.value.value else { return refuse(entry, must_be, errors) };
    let mut networks = Vec::with_capacity(items.len());
    let mut valid = true;
    for item in items {
        match scalar_text(item).unwrap_or_default().parse() {
            Ok(network) => networks.push(network),
            Err(error) => {
                errors.add(item.at, format!("{}: {error}", entry.key.quoted()));
                valid = false;
            }
        }
    }
    valid.then_some(networks)
}

impl FromIterator<Network> for TrustedNetworks {
    fn from_iter<T: IntoIterator<Item = Network>>(networks: T) -> Self {
        Self(Some(networks.into_iter().collect()))
    }
}

/// Writes the networks, separated by spaces.
impl fmt::Display for TrustedNetworks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("loopback, private and link-local"),
            Some(networks) => {
                let networks: Vec<_> = networks.iter().map(Network::to_string).collect();
                f.write_str(if networks.is_empty() { "none" } else { "" })?;
                f.write_str(&networks.join(" "))
            }
        }
    }
}

const fn is_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_networks_are_trusted_by_default() {
        for (sender, expected) in [
            ("127.0.0.1:9", true),
            ("127.0.0.1:0", false),
            ("10.255.0.1:9", true),
            ("172.16.0.1:9", true),
            ("172.32.0.1:9", false),
            ("192.168.0.1:9", true),
            ("169.254.1.1:9", true),
            ("203.0.113.1:9", false),
            ("0.0.0.0:9", false),
            ("255.255.255.255:9", false),
            ("[::1]:9", true),
            ("[::1]:0", false),
            ("[fd00::1]:9", true),
            ("[fe80::1]:9", true),
            ("[fec0::1]:9", false),
            ("[2001:db8::1]:9", false),
            ("[::]:9", false),
            ("[::ffff:10.0.0.1]:9", true),
            ("[::ffff:203.0.113.1]:9", false),
        ] {
            assert_eq!(TrustedNetworks::LOCAL.contain(sender.parse().unwrap()), expected, "{sender}");
        }
    }

    #[test]
    fn a_list_that_has_every_address_trusts_everybody() {
        for (networks, expected) in [
            (&[][..], false),
            (&["10.0.0.0/8", "fd00::/8"], false),
            (&["0.0.0.0/0"], true),
            (&["10.0.0.0/8", "::/0"], true),
            (&["::ffff:0.0.0.0/96"], true),
            (&["128.0.0.0/1", "10.0.0.0/8", "0.0.0.0/1"], true),
            (&["0.0.0.0/1", "192.0.0.0/2"], false),
            (&["0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/2"], true),
            (&["0.0.0.0/1", "8000::/1"], false),
            (&["8000::/1", "::/1"], true),
        ] {
            let list: TrustedNetworks = networks.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(list.cover_all_addresses(), expected, "{networks:?}");
        }
        assert!(!TrustedNetworks::LOCAL.cover_all_addresses());
    }

    #[test]
    fn listed_networks_replace_the_default() {
        let networks: TrustedNetworks =
            ["203.0.113.0/24", "2001:db8::/32"].map(|text| text.parse().unwrap()).into_iter().collect();
        for (sender, expected) in [
            ("203.0.113.7:9", true),
            ("[::ffff:203.0.113.7]:9", true),
            ("203.0.113.7:0", false),
            ("[2001:db8::7]:9", true),
            ("127.0.0.1:9", false),
        ] {
            assert_eq!(networks.contain(sender.parse().unwrap()), expected, "{sender}");
        }
    }
}

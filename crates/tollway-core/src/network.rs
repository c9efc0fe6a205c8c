//! IP networks, written as an address and a prefix length.

use std::fmt;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

/// The number of bits that stand before the IPv4 address in an IPv4-mapped IPv6 address.
const MAPPED_PREFIX: u8 = 96;

/// A network of IP addresses, parsed from `10.0.0.0/8`, `2001:db8::/32` or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

/// The error that a text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseNetworkError {
    /// The text before the slash is not an IP address.
    #[error("network {text:?} must begin with an IP address, such as 10.0.0.0/8 or 2001:db8::/32")]
    Address {
        /// The text that was given.
        text: String,
        /// The reason why it is not an address.
        source: AddrParseError,
    },
    /// The text after the slash is not a prefix length.
    #[error("network {text:?} must have a number from 0 to {bits} after the slash")]
    Prefix {
        /// The text that was given.
        text: String,
        /// The number of bits that the address has.
        bits: u8,
    },
    /// The address has bits set after the prefix, so a digit may be missing.
    #[error("network {text:?} has bits set after its prefix (did you mean {network:?}?)")]
    HostBits {
        /// The text that was given.
        text: String,
        /// The network that the address is in.
        network: String,
    },
}

impl Network {
    /// Returns true if the network contains this address. An IPv4-mapped IPv6 address counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && mask(address, self.prefix) == self.first
    }

    /// Returns the first address of the network.
    pub const fn first(&self) -> IpAddr {
        self.first
    }

    /// Returns the last address of the network.
    pub fn last(&self) -> IpAddr {
        match self.first {
            IpAddr::V4(first) => {
                Ipv4Addr::from(first.to_bits() | u32::MAX.checked_shr(self.prefix.into()).unwrap_or(0)).into()
            }
            IpAddr::V6(first) => {
                Ipv6Addr::from(first.to_bits() | u128::MAX.checked_shr(self.prefix.into()).unwrap_or(0))
                    .into()
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Self, ParseNetworkError> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let written: IpAddr =
            address.parse().map_err(|source| ParseNetworkError::Address { text: text.to_owned(), source })?;
        let bits = bits(written);
        let bad_prefix = || ParseNetworkError::Prefix { text: text.to_owned(), bits };
        let plain = |prefix: &str| prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = match prefix {
            None => bits,
            Some(prefix) if plain(prefix) => prefix.parse().map_err(|_| bad_prefix())?,
            Some(_) => return Err(bad_prefix()),
        };
        if prefix > bits {
            return Err(bad_prefix());
        }
        let (first, prefix) = match written.to_canonical() {
            IpAddr::V4(mapped) if written.is_ipv6() && prefix >= MAPPED_PREFIX => {
                (IpAddr::V4(mapped), prefix - MAPPED_PREFIX)
            }
            _ => (written, prefix),
        };
        let network = mask(first, prefix);
        if network != first {
            let network = format!("{network}/{prefix}");
            return Err(ParseNetworkError::HostBits { text: text.to_owned(), network });
        }
        Ok(Self { first, prefix })
    }
}

/// Returns the address with all bits after the first `prefix` cleared.
pub fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let dropped = 32 - u32::from(prefix.min(32));
            Ipv4Addr::from(address.to_bits() & u32::MAX.checked_shl(dropped).unwrap_or(0)).into()
        }
        IpAddr::V6(address) => {
            let dropped = 128 - u32::from(prefix.min(128));
            Ipv6Addr::from(address.to_bits() & u128::MAX.checked_shl(dropped).unwrap_or(0)).into()
        }
    }
}

/// Returns the address of the client whose request came from `peer`, maybe through proxies.
///
/// Any client can send an `X-Forwarded-For` header of its own. So its lines, `forwarded_for`, are read only if the peer
/// is a trusted proxy, and then from the right: each proxy appends the address that connected to it, and the first
/// address that is not a trusted proxy is the client's. Entries to the left of it may be forged.
pub fn client_address<'a>(
    peer: IpAddr,
    trusted: &[Network],
    forwarded_for: impl DoubleEndedIterator<Item = &'a [u8]>,
) -> IpAddr {
    let is_proxy = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut client = peer.to_canonical();
    if !is_proxy(client) {
        return client;
    }
    for entry in forwarded_for.rev().flat_map(|line| line.rsplit(|byte| *byte == b',')) {
        // The entry is not an address: all clients of the proxy that wrote it count as one.
        let Some(address) = forwarded_address(entry) else { break };
        client = address;
        if !is_proxy(address) {
            break;
        }
    }
    client
}

/// Parses an address as proxies write it: alone, in brackets, or with a port.
fn forwarded_address(entry: &[u8]) -> Option<IpAddr> {
    let entry = std::str::from_utf8(entry).ok()?.trim_matches([' ', '\t']);
    let bare = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(entry);
    let address = bare.parse().ok().or_else(|| entry.parse().ok().map(|socket: SocketAddr| socket.ip()))?;
    Some(IpAddr::to_canonical(&address))
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_share_its_bits() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::10.1.2.3"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "11.1.2.3"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0/0", "203.0.113.1", "2001:db8::1"),
            ("::/0", "2001:db8::1", "203.0.113.1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::1", "::1", "::2"),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert_eq!(parsed.to_string().parse(), Ok(parsed), "{network}");
            assert!(parsed.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{network} {outside}");
        }
    }

    #[test]
    fn a_network_has_a_first_and_a_last_address() {
        for (network, first, last) in [
            ("10.0.0.0/8", "10.0.0.0", "10.255.255.255"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.7"),
            ("0.0.0.0/0", "0.0.0.0", "255.255.255.255"),
            ("2001:db8::/33", "2001:db8::", "2001:db8:7fff:ffff:ffff:ffff:ffff:ffff"),
            ("::1", "::1", "::1"),
        ] {
            let parsed: Network = network.parse().unwrap();
            let expected = [first, last].map(|address| address.parse::<IpAddr>().unwrap());
            assert_eq!([parsed.first(), parsed.last()], expected, "{network}");
        }
    }

    #[test]
    fn the_client_is_the_last_address_that_no_trusted_proxy_has() {
        let trusted = ["10.0.0.0/8", "::1"].map(|network| network.parse().unwrap());
        for (peer, lines, client) in [
            ("192.0.2.1", &["198.51.100.1"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("::ffff:10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["203.0.113.9, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["203.0.113.9", " 198.51.100.1 ,10.0.0.2"], "198.51.100.1"),
            ("10.0.0.1", &["10.0.0.9, 10.0.0.2"], "10.0.0.9"),
            ("10.0.0.1", &["[2001:db8::1]:443, ::1"], "2001:db8::1"),
            ("10.0.0.1", &["198.51.100.1:80"], "198.51.100.1"),
            ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1, unknown, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["198.51.100.1,"], "10.0.0.1"),
        ] {
            let found =
                client_address(peer.parse().unwrap(), &trusted, lines.iter().map(|line| line.as_bytes()));
            assert_eq!(found, client.parse::<IpAddr>().unwrap(), "{peer} {lines:?}");
        }
    }

    #[test]
    fn an_error_shows_what_a_network_looks_like() {
        for (text, expected) in [
            ("", "must begin with an IP address"),
            ("proxy.example", "must begin with an IP address"),
            ("10.0.0/8", "must begin with an IP address"),
            ("10.0.0.0/", "a number from 0 to 32"),
            ("10.0.0.0/33", "a number from 0 to 32"),
            ("10.0.0.0/+8", "a number from 0 to 32"),
            ("::/129", "a number from 0 to 128"),
            ("::/256", "a number from 0 to 128"),
            ("10.0.0.1/8", "did you mean \"10.0.0.0/8\"?"),
            ("::ffff:10.0.0.0/95", "did you mean \"::fffe:0:0/95\"?"),
            ("2001:db8::1/32", "did you mean \"2001:db8::/32\"?"),
        ] {
            let error = text.parse::<Network>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

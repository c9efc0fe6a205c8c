//! A network: an address, and how many of its bits matter.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// How much longer an IPv4 address is when it is written as an IPv6 one.
const MAPPED_PREFIX: u8 = 96;

/// `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

/// Why a text is no network.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseNetworkError {
    /// What stands before the slash is no address.
    #[error("`{text}` is no network: it begins with an address, as 10.0.0.0/8 or 2001:db8::/32 do")]
    Address {
        /// What was given.
        text: String,
    },
    /// What stands after the slash is no number of bits.
    #[error("`{text}` is no network: after the slash stands a number from 0 to {bits}")]
    Prefix {
        /// What was given.
        text: String,
        /// How many bits the address has.
        bits: u8,
    },
    /// Bits are set that do not matter: perhaps a digit is missing.
    #[error("`{text}` is no network: {network} is")]
    HostBits {
        /// What was given.
        text: String,
        /// The network that the address is in.
        network: String,
    },
}

impl Network {
    /// Is this address in it? An IPv4 address written as an IPv6 one is the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && mask(address, self.prefix) == self.first
    }
}

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Self, ParseNetworkError> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let written: IpAddr =
            address.parse().map_err(|_| ParseNetworkError::Address { text: text.to_owned() })?;
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

/// The address with all bits after the first `prefix` cleared.
pub(super) fn mask(address: IpAddr, prefix: u8) -> IpAddr {
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
            assert!(parsed.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{network} {outside}");
        }
    }

    #[test]
    fn what_is_no_network_says_what_would_be() {
        for (text, said) in [
            ("", "begins with an address"),
            ("proxy.example", "begins with an address"),
            ("10.0.0/8", "begins with an address"),
            ("10.0.0.0/", "a number from 0 to 32"),
            ("10.0.0.0/33", "a number from 0 to 32"),
            ("10.0.0.0/+8", "a number from 0 to 32"),
            ("::/129", "a number from 0 to 128"),
            ("::/256", "a number from 0 to 128"),
            ("10.0.0.1/8", "10.0.0.0/8 is"),
            ("2001:db8::1/32", "2001:db8::/32 is"),
        ] {
            let error = text.parse::<Network>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}

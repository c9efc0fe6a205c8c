//! Ids: each format has one canonical spelling.
//!
//! ```
//! use tollway_core::IdFormat;
//!
//! let id = IdFormat::IpAddress.canonical(b"2001:0DB8:0000::0001").unwrap();
//! assert_eq!(&*id, b"2001:db8::1");
//! let network = IdFormat::IP.canonical(b"2001:db8:1:2:3:4:5:6").unwrap();
//! assert_eq!(&*network, b"2001:db8:1:2::/64");
//! ```
//!
//! A client that can spell its id in two ways would have two buckets, and twice its limit.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// The longest domain name there is.
const DOMAIN_MAX: usize = 253;
/// The longest part of one between two dots.
const LABEL_MAX: usize = 63;
/// The prefix of the networks that [`IdFormat::Ipv6Range`] takes.
const RANGE_PREFIX: Ipv6Prefix = Ipv6Prefix(48);

/// The format that the ids of a limit have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IdFormat {
    /// Any bytes at all, but at least one.
    #[default]
    Any,
    /// A client by its address: an IPv4 address, or the IPv6 network of this prefix that has the address. One client
    /// of IPv6 has a whole network of addresses, and would otherwise have a bucket for each.
    Ip(Ipv6Prefix),
    /// An IPv4 or IPv6 address. An IPv4 address written as IPv6 (`::ffff:10.0.0.1`) is the IPv4 address.
    IpAddress,
    /// An IPv6 /48 network.
    Ipv6Range,
    /// A number, such as that of an account.
    RegId,
    /// A domain name.
    Domain,
    /// A set of domain names, `example.com,example.org`.
    FqdnSet,
    /// An account number and a domain name or an address, `123:example.com`.
    RegIdDomain,
    /// An account number and a set of domain names, `123:example.com,example.org`.
    RegIdFqdnSet,
}

/// The number of leading bits of an IPv6 address that identify a client, from 1 to 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6Prefix(u8);

/// The network that one client usually has, a /64.
impl Default for Ipv6Prefix {
    fn default() -> Self {
        Self(64)
    }
}

impl Ipv6Prefix {
    /// Returns a prefix of this many bits; `None` if that is not from 1 to 128.
    pub fn new(bits: u8) -> Option<Self> {
        (1..=128).contains(&bits).then_some(Self(bits))
    }

    /// Returns the number of bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the network that has this address.
    fn network(self, address: Ipv6Addr) -> Ipv6Addr {
        Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - u32::from(self.0))))
    }
}

/// An error for an id that does not have its format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IdError {
    /// Nothing, which would be one bucket for everybody whose id got lost.
    #[error("an id must not be empty")]
    Empty,
    /// Something else than the format asks for.
    #[error("id \"{id}\" is not {}", .format.description())]
    Format {
        /// The id that was given.
        id: String,
        /// The format that it should have.
        format: IdFormat,
    },
}

impl IdFormat {
    /// The address of a client, with IPv6 cut to its /64.
    pub const IP: Self = Self::Ip(Ipv6Prefix(64));

    /// Every format, in the order the documentation lists them.
    pub const ALL: [Self; 9] = [
        Self::IP,
        Self::IpAddress,
        Self::Ipv6Range,
        Self::RegId,
        Self::Domain,
        Self::FqdnSet,
        Self::RegIdDomain,
        Self::RegIdFqdnSet,
        Self::Any,
    ];

    /// Every name that configuration takes, with its format. Some formats have a second name.
    pub const NAMES: [(&'static str, Self); 11] = [
        ("ip", Self::IP),
        ("ipv6_prefix", Self::Ipv6Range),
        ("number", Self::RegId),
        ("domain", Self::Domain),
        ("fqdnSet", Self::FqdnSet),
        ("any", Self::Any),
        ("ipAddress", Self::IpAddress),
        ("ipv6RangeCIDR", Self::Ipv6Range),
        ("regId", Self::RegId),
        ("regId:domain", Self::RegIdDomain),
        ("regId:fqdnSet", Self::RegIdFqdnSet),
    ];

    /// The name that descriptions of a configuration use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Ip(_) => "ip",
            Self::IpAddress => "ipAddress",
            Self::Ipv6Range => "ipv6RangeCIDR",
            Self::RegId => "number",
            Self::Domain => "domain",
            Self::FqdnSet => "fqdnSet",
            Self::RegIdDomain => "regId:domain",
            Self::RegIdFqdnSet => "regId:fqdnSet",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Any => "an id",
            Self::Ip(_) | Self::IpAddress => "an IP address, such as 10.0.0.2 or 2001:db8::1",
            Self::Ipv6Range => "an IPv6 /48 network, such as 2001:db8:1::/48",
            Self::RegId => "a number, such as 12345678",
            Self::Domain => "a domain, such as example.com",
            Self::FqdnSet => "a set of domains, such as example.com,example.org",
            Self::RegIdDomain => "a number and a domain, such as 12345678:example.com",
            Self::RegIdFqdnSet => "a number and domains, such as 12345678:example.com,example.org",
        }
    }

    /// Returns the canonical spelling of `id`, borrowed if `id` has it already.
    #[inline]
    pub fn canonical<'a>(self, id: &'a [u8]) -> Result<Cow<'a, [u8]>, IdError> {
        match self {
            _ if id.is_empty() => Err(IdError::Empty),
            Self::Any => Ok(Cow::Borrowed(id)),
            _ => self.respell(id),
        }
    }

    /// Returns the canonical spelling of the id of an override. With the formats that begin with an account it may be
    /// the account alone: the override then holds for every id of the account.
    pub fn canonical_override<'a>(self, id: &'a [u8]) -> Result<Cow<'a, [u8]>, IdError> {
        let account_alone = self.has_account() && !id.contains(&b':');
        let canonical = if account_alone { Self::RegId.canonical(id) } else { self.canonical(id) };
        canonical.map_err(|error| match error {
            IdError::Format { id, .. } => IdError::Format { id, format: self },
            error => error,
        })
    }

    /// Returns whether an id begins with the number of an account and a colon.
    pub(crate) const fn has_account(self) -> bool {
        matches!(self, Self::RegIdDomain | Self::RegIdFqdnSet)
    }

    fn respell<'a>(self, id: &'a [u8]) -> Result<Cow<'a, [u8]>, IdError> {
        let spelled = std::str::from_utf8(id).ok().and_then(|text| self.spell(text));
        let Some(spelled) = spelled else {
            return Err(IdError::Format { id: id.escape_ascii().to_string(), format: self });
        };
        Ok(if spelled.as_bytes() == id {
            Cow::Borrowed(id)
        } else {
            Cow::Owned(spelled.into_owned().into_bytes())
        })
    }

    fn spell(self, text: &str) -> Option<Cow<'_, str>> {
        match self {
            Self::Any => Some(Cow::Borrowed(text)),
            Self::Ip(prefix) => client(text, prefix),
            Self::IpAddress => ip_address(text),
            Self::Ipv6Range => ipv6_network(text, RANGE_PREFIX).map(Cow::Owned),
            Self::RegId => reg_id(text).map(Cow::Borrowed),
            Self::Domain => domain(text).map(Cow::Owned),
            Self::FqdnSet => fqdn_set(text).map(Cow::Owned),
            Self::RegIdDomain => {
                let (account, name) = text.split_once(':')?;
                let name = ip_address(name).or_else(|| domain(name).map(Cow::Owned))?;
                Some(Cow::Owned(format!("{}:{name}", reg_id(account)?)))
            }
            Self::RegIdFqdnSet => {
                let (account, names) = text.split_once(':')?;
                Some(Cow::Owned(format!("{}:{}", reg_id(account)?, fqdn_set(names)?)))
            }
        }
    }
}

impl FromStr for IdFormat {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, format)| format).ok_or(())
    }
}

fn ip_address(text: &str) -> Option<Cow<'_, str>> {
    Some(match text.parse::<IpAddr>().ok()?.to_canonical() {
        // The parser takes an IPv4 address in its canonical spelling only.
        IpAddr::V4(_) if !text.contains(':') => Cow::Borrowed(text),
        address => Cow::Owned(address.to_string()),
    })
}

/// Returns the address, or the IPv6 network of it. A network is accepted as well, so that the id of a bucket is an id.
fn client(text: &str, prefix: Ipv6Prefix) -> Option<Cow<'_, str>> {
    if text.contains('/') {
        return ipv6_network(text, prefix).map(Cow::Owned);
    }
    let address = ip_address(text)?;
    match address.parse::<Ipv6Addr>() {
        Ok(address) if prefix.bits() < 128 => {
            Some(Cow::Owned(format!("{}/{}", prefix.network(address), prefix.bits())))
        }
        _ => Some(address),
    }
}

fn ipv6_network(text: &str, prefix: Ipv6Prefix) -> Option<String> {
    let (address, bits) = text.split_once('/')?;
    let network = prefix.network(address.parse().ok()?);
    (bits == prefix.bits().to_string()).then(|| format!("{network}/{bits}"))
}

/// Digits that fit in 64 bits, without the zeros in front.
fn reg_id(text: &str) -> Option<&str> {
    let all_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits || text.parse::<u64>().is_err() {
        return None;
    }
    let trimmed = text.trim_start_matches('0');
    Some(if trimmed.is_empty() { "0" } else { trimmed })
}

/// A domain name in lower case, without the dot that may end it.
fn domain(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let labels_fit = name.strip_prefix("*.").unwrap_or(name).split('.').all(is_label);
    (name.len() <= DOMAIN_MAX && labels_fit).then(|| name.to_ascii_lowercase())
}

fn is_label(label: &str) -> bool {
    (1..=LABEL_MAX).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

fn fqdn_set(text: &str) -> Option<String> {
    let mut names = text.split(',').map(domain).collect::<Option<Vec<_>>>()?;
    names.sort_unstable();
    names.dedup();
    Some(names.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: IdFormat, given: &str, expected: Option<&str>) {
        let canonical = format.canonical(given.as_bytes()).ok();
        assert_eq!(canonical.as_deref(), expected.map(str::as_bytes), "{format:?} {given}");
    }

    #[test]
    fn each_format_has_one_spelling() {
        use IdFormat::*;
        for (format, given, expected) in [
            (Any, " Any Thing: ", " Any Thing: "),
            (IdFormat::IP, "10.0.0.2", "10.0.0.2"),
            (IdFormat::IP, "::ffff:10.0.0.2", "10.0.0.2"),
            (IdFormat::IP, "::FFFF:0a00:0002", "10.0.0.2"),
            (IdFormat::IP, "2001:0DB8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            (IdFormat::IP, "2001:db8:1:2::", "2001:db8:1:2::/64"),
            (IdFormat::IP, "2001:db8:1:2:ffff::/64", "2001:db8:1:2::/64"),
            (IdFormat::IP, "::1", "::/64"),
            (Ip(Ipv6Prefix(128)), "2001:DB8::6", "2001:db8::6"),
            (Ip(Ipv6Prefix(1)), "ffff::1", "8000::/1"),
            (Ip(Ipv6Prefix(56)), "2001:db8:0:1ff::1", "2001:db8:0:100::/56"),
            (IpAddress, "10.0.0.2", "10.0.0.2"),
            (IpAddress, "2001:0db8:0000:0000:0000:ff00:0042:8329", "2001:db8::ff00:42:8329"),
            (IpAddress, "2001:DB8::FF00:42:8329", "2001:db8::ff00:42:8329"),
            (IpAddress, "::ffff:10.0.0.2", "10.0.0.2"),
            (Ipv6Range, "2001:0db8:0000::/48", "2001:db8::/48"),
            (Ipv6Range, "2001:db8:1:2:3:4:5:6/48", "2001:db8:1::/48"),
            (RegId, "12345678", "12345678"),
            (RegId, "007", "7"),
            (RegId, "000", "0"),
            (RegId, "18446744073709551615", "18446744073709551615"),
            (Domain, "Example.COM", "example.com"),
            (Domain, "*.example.com.", "*.example.com"),
            (Domain, "_dmarc.a-b.com", "_dmarc.a-b.com"),
            (FqdnSet, "b.org,A.com,a.com.", "a.com,b.org"),
            (RegIdDomain, "12345678:Example.COM", "12345678:example.com"),
            (RegIdDomain, "7:10.0.0.2", "7:10.0.0.2"),
            (RegIdDomain, "7:2001:0DB8::1", "7:2001:db8::1"),
            (RegIdDomain, "7:::ffff:10.0.0.2", "7:10.0.0.2"),
            (RegIdDomain, "1:*.example.com.", "1:*.example.com"),
            (RegIdFqdnSet, "1:b.org,A.com,a.com", "1:a.com,b.org"),
        ] {
            check(format, given, Some(expected));
        }
        assert_eq!(Any.canonical(b"\xff").as_deref(), Ok(&b"\xff"[..]), "any bytes are an id");
    }

    #[test]
    fn what_has_another_format_is_refused() {
        use IdFormat::*;
        for (format, given) in [
            (Any, ""),
            (IdFormat::IP, "10.0.0.0/24"),
            (IdFormat::IP, "2001:db8::/48"),
            (IdFormat::IP, "2001:db8::/064"),
            (IdFormat::IP, "fe80::1%eth0"),
            (IdFormat::IP, "example.com"),
            (Ip(Ipv6Prefix(128)), "2001:db8::/64"),
            (IpAddress, "10.0.0.256"),
            (IpAddress, "010.0.0.1"),
            (IpAddress, "10.0.0.1/32"),
            (IpAddress, "fe80::1%eth0"),
            (IpAddress, "lemmings"),
            (Ipv6Range, "2001:db8::1"),
            (Ipv6Range, "2001:db8::/64"),
            (Ipv6Range, "2001:db8::/048"),
            (Ipv6Range, "10.0.0.0/48"),
            (RegId, "+1"),
            (RegId, "-1"),
            (RegId, "1.0"),
            (RegId, "18446744073709551616"),
            (Domain, "a..b"),
            (Domain, "."),
            (Domain, "a b"),
            (Domain, "1:example.com"),
            (FqdnSet, "a.com,,b.com"),
            (FqdnSet, "1:a.com"),
            (RegIdDomain, "12345678"),
            (RegIdDomain, "x:example.com"),
            (RegIdDomain, "1:"),
            (RegIdDomain, "1:a..b"),
            (RegIdDomain, "1:a,b"),
            (RegIdFqdnSet, "1:a.com,"),
            (RegIdFqdnSet, "1:a.com, b.com"),
        ] {
            check(format, given, None);
        }
    }

    #[test]
    fn a_prefix_has_1_to_128_bits() {
        for (bits, valid) in [(0, false), (1, true), (64, true), (128, true), (129, false), (255, false)] {
            assert_eq!(Ipv6Prefix::new(bits).map(Ipv6Prefix::bits), valid.then_some(bits));
        }
        assert_eq!(IdFormat::IP, IdFormat::Ip(Ipv6Prefix::default()));
    }

    #[test]
    fn the_id_of_an_override_may_be_an_account_alone() {
        use IdFormat::*;
        for (format, given, expected) in [
            (RegIdDomain, "007", Some("7")),
            (RegIdFqdnSet, "7", Some("7")),
            (RegIdDomain, "7:A.com", Some("7:a.com")),
            (RegIdDomain, "a.com", None),
            (RegIdDomain, "7:", None),
            (Domain, "7", Some("7")),
            (IdFormat::IP, "7", None),
        ] {
            let canonical = format.canonical_override(given.as_bytes());
            assert_eq!(canonical.as_deref().ok(), expected.map(str::as_bytes), "{format:?} {given}");
        }
        let error = RegIdDomain.canonical_override(b"a.com").unwrap_err().to_string();
        assert!(error.ends_with("is not a number and a domain, such as 12345678:example.com"), "{error}");
    }

    #[test]
    fn every_name_is_read_and_every_format_has_one() {
        for (name, format) in IdFormat::NAMES {
            assert_eq!(name.parse(), Ok(format));
        }
        for format in IdFormat::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        assert_eq!("IP".parse::<IdFormat>(), Err(()));
    }

    #[test]
    fn a_canonical_id_is_its_own_canonical_id() {
        for format in IdFormat::ALL {
            for id in [
                "10.0.0.2",
                "2001:db8::7",
                "2001:db8::/48",
                "7",
                "A.com.",
                "7:example.com",
                "7:2001:DB8::7",
                "7:a.com,b.com",
            ] {
                if let Ok(once) = format.canonical(id.as_bytes()) {
                    assert_eq!(format.canonical(&once).as_deref(), Ok(&*once));
                }
            }
        }
    }
}

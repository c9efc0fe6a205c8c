//! The address of a server, as the user of a client writes it.

use std::fmt;

use crate::InvalidAddress;

/// The host and the port that an address consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostPort<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
}

impl<'a> HostPort<'a> {
    /// Parses `HOST` or `HOST:PORT`, with brackets around an IPv6 address. Returns `None` if it is neither.
    pub(crate) fn parse(text: &'a str, default_port: u16) -> Option<Self> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !text.ends_with(']') => (host, port.parse().ok()?),
            _ => (text, default_port),
        };
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let invalid = |c: char| c.is_whitespace() || c.is_control() || "/?#@*[]".contains(c);
        let bare = bracketed.unwrap_or(host);
        let has_colon = bare.contains(':');
        if bare.is_empty() || bare.contains(invalid) || has_colon != bracketed.is_some() || port == 0 {
            return None;
        }
        Some(Self { host, port })
    }
}

impl fmt::Display for HostPort<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Returns `HOST:PORT` for an address without a scheme.
#[cfg(any(feature = "text", feature = "throttr"))]
pub(crate) fn host_and_port(address: &str, default_port: u16) -> Result<String, InvalidAddress> {
    let found = HostPort::parse(address, default_port).ok_or_else(|| invalid(address, default_port))?;
    Ok(found.to_string())
}

/// Returns the error for an address that is not a host and a port.
pub(crate) fn invalid(address: &str, default_port: u16) -> InvalidAddress {
    InvalidAddress::HostPort { address: address.to_owned(), port: default_port }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for (text, expected) in [
            ("limiter:7", Some("limiter:7")),
            ("limiter", Some("limiter:9000")),
            ("10.0.0.1", Some("10.0.0.1:9000")),
            ("[::1]:7", Some("[::1]:7")),
            ("[::1]", Some("[::1]:9000")),
            ("::1", None),
            ("[limiter]", None),
            ("[]:7", None),
            ("limiter:", None),
            ("limiter:http", None),
            ("limiter:0", None),
            ("limiter:65536", None),
            ("*:7", None),
            (":7", None),
            ("", None),
            ("https://limiter", None),
            ("tcp://limiter:7", None),
            ("limiter/path", None),
            ("user@limiter", None),
            ("two words", None),
        ] {
            let found = HostPort::parse(text, 9000).map(|found| found.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}

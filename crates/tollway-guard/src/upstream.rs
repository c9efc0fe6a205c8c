//! The service behind the proxy, written as a URL: `http://app:3000`.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;
use hyper::http::uri::Authority;
use thiserror::Error;

/// The address of the service that the proxy protects, and the protocol that it uses there.
///
/// Parsed from `http://HOST:PORT`, `https://HOST:PORT`, or `h2c://HOST:PORT` for HTTP/2 without TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    pub(crate) protocol: Protocol,
    /// The host and the port.
    pub(crate) authority: Authority,
}

/// The protocol that an upstream uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Https,
    /// HTTP/2 without TLS and without an upgrade from HTTP/1.1.
    Http2,
}

/// The error that a text is not the URL of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseUpstreamError {
    /// The text is not a URL with a known scheme.
    #[error("must be http://HOST:PORT, https://HOST:PORT, or h2c://HOST:PORT")]
    Url,
    /// The URL has a path, a query or a user.
    #[error("must be an address without a path; paths are passed through")]
    Path,
    /// The port is not a number, or 0.
    #[error("the port must be a number from 1 to 65535")]
    Port,
}

impl Upstream {
    pub(crate) fn is_tls(&self) -> bool {
        self.protocol == Protocol::Https
    }

    /// Returns the name or the address that a certificate must have.
    pub(crate) fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }
}

impl FromStr for Upstream {
    type Err = ParseUpstreamError;

    fn from_str(text: &str) -> Result<Self, ParseUpstreamError> {
        let uri: Uri = text.parse().map_err(|_| ParseUpstreamError::Url)?;
        let (protocol, port) = match uri.scheme_str() {
            Some("http") => (Protocol::Http1, 80),
            Some("https") => (Protocol::Https, 443),
            Some("h2c") => (Protocol::Http2, 80),
            _ => return Err(ParseUpstreamError::Url),
        };
        let whole = uri.authority().ok_or(ParseUpstreamError::Url)?;
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || whole.as_str().contains('@') {
            return Err(ParseUpstreamError::Path);
        }
        // `Authority::port_u16` is `None` for an invalid port as well as for none.
        let port: u16 = match whole.as_str().strip_prefix(whole.host()) {
            Some("") => port,
            rest => rest
                .and_then(|rest| rest.strip_prefix(':')?.parse().ok())
                .filter(|port| *port > 0)
                .ok_or(ParseUpstreamError::Port)?,
        };
        let authority = format!("{}:{port}", whole.host()).parse().map_err(|_| ParseUpstreamError::Url)?;
        Ok(Self { protocol, authority })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Http1 => "http",
            Protocol::Https => "https",
            Protocol::Http2 => "h2c",
        };
        write!(f, "{scheme}://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_host_and_a_port() {
        for (text, expected) in [
            ("http://app:3000", Some("http://app:3000")),
            ("http://app:3000/", Some("http://app:3000")),
            ("http://app", Some("http://app:80")),
            ("http://[::1]:3000", Some("http://[::1]:3000")),
            ("https://app", Some("https://app:443")),
            ("h2c://app:50051", Some("h2c://app:50051")),
            ("http://app:0", None),
            ("http://app:65536", None),
            ("ftp://app", None),
            ("app:3000", None),
            ("http://", None),
            ("http://app/path", None),
            ("http://app?query", None),
            ("http://user@app", None),
            ("", None),
        ] {
            let upstream = text.parse::<Upstream>().ok().map(|upstream| upstream.to_string());
            assert_eq!(upstream.as_deref(), expected, "{text}");
        }
    }
}

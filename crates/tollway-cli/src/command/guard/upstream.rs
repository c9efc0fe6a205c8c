//! What is protected, as people write it: `http://app:3000`.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;
use hyper::http::uri::Authority;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Upstream {
    pub(super) speaks: Speaks,
    /// With the port.
    pub(super) authority: Authority,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    Http1,
    /// Without TLS, and without being asked first.
    Http2,
}

impl FromStr for Upstream {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const SHAPE: &str = "must be http://HOST:PORT, or h2c://HOST:PORT";
        let uri: Uri = text.parse().map_err(|_| SHAPE)?;
        let (speaks, port) = match uri.scheme_str() {
            Some("http") => (Speaks::Http1, 80),
            Some("h2c") => (Speaks::Http2, 80),
            Some("https") => return Err("TLS to the upstream is not supported; use http://"),
            _ => return Err(SHAPE),
        };
        let whole = uri.authority().ok_or(SHAPE)?;
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || whole.as_str().contains('@') {
            return Err("must be an address without a path; paths are passed through");
        }
        // A port that is none would else pass for the absence of one.
        let port: u16 = match whole.as_str().strip_prefix(whole.host()) {
            Some("") => port,
            rest => rest
                .and_then(|rest| rest.strip_prefix(':')?.parse().ok())
                .filter(|port| *port > 0)
                .ok_or("the port must be a number from 1 to 65535")?,
        };
        let authority = format!("{}:{port}", whole.host()).parse().map_err(|_| SHAPE)?;
        Ok(Self { speaks, authority })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.speaks {
            Speaks::Http1 => "http",
            Speaks::Http2 => "h2c",
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
            ("h2c://app:50051", Some("h2c://app:50051")),
            ("http://app:0", None),
            ("http://app:65536", None),
            ("https://app", None),
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

//! Whose request it is.

use std::str::FromStr;

use hyper::Request;
use hyper::header::HeaderName;
use tollway_tower::{ByAddress, ByHeader, ClientId, Identify, Network, RequestHead};

use super::bounds::IDENTIFIER_MAX;

/// Who is limited, as people write it.
#[derive(Clone, Debug)]
pub(super) enum Whom {
    Address,
    Header(HeaderName),
}

impl FromStr for Whom {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let header = text.strip_prefix("header:").and_then(|name| name.parse().ok());
        match header {
            Some(name) => Ok(Self::Header(name)),
            None if text == "address" => Ok(Self::Address),
            None => Err("must be address, or header:NAME".to_owned()),
        }
    }
}

/// Finds out who sent a request.
pub(super) struct Who {
    header: Option<ByHeader>,
    address: ByAddress,
}

impl Who {
    pub(super) fn new(whom: Whom, proxies: &[Network]) -> Self {
        let header = match whom {
            Whom::Address => None,
            Whom::Header(name) => Some(ByHeader::new(name)),
        };
        Self { header, address: ByAddress::peer().trust_proxies(proxies.iter().copied()) }
    }

    /// Without the header that should say it, the address says it: to leave it out must not be a way in, and neither must
    /// to send pages of it. The peer's address is an extension of the request.
    pub(super) fn identify<B>(&self, request: &Request<B>) -> Option<ClientId> {
        let head = RequestHead::new(request);
        let by_header = self.header.as_ref().and_then(|header| header.identify(head).ok());
        by_header
            .filter(|id| id.as_ref().len() <= IDENTIFIER_MAX)
            .or_else(|| self.address.identify(head).ok())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn who(whom: &str, peer: &str, headers: &[(&'static str, &str)]) -> String {
        let who = Who::new(whom.parse().unwrap(), &["10.0.0.0/8".parse().unwrap()]);
        let mut request = Request::new(());
        request.extensions_mut().insert(peer.parse::<SocketAddr>().unwrap());
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        String::from_utf8_lossy(who.identify(&request).unwrap().as_ref()).into_owned()
    }

    #[test]
    fn a_client_is_its_address_or_what_a_header_says() {
        let forwarded = [("x-forwarded-for", "192.0.2.9, 198.51.100.7")];
        assert_eq!(who("address", "192.0.2.1:5", &forwarded), "192.0.2.1", "anybody can write that");
        assert_eq!(who("address", "10.1.1.1:5", &forwarded), "198.51.100.7");
        assert_eq!(who("address", "[2001:db8:1:2:3::4]:5", &[]), "2001:db8:1:2::");
        assert_eq!(who("header:X-Api-Key", "192.0.2.1:5", &[("x-api-key", "k1")]), "k1");
        assert_eq!(who("header:X-Api-Key", "192.0.2.1:5", &[]), "192.0.2.1");
        let [fits, pages] = [IDENTIFIER_MAX, IDENTIFIER_MAX + 1].map(|len| "k".repeat(len));
        assert_eq!(who("header:X-Api-Key", "192.0.2.1:5", &[("x-api-key", &fits)]), fits);
        assert_eq!(who("header:X-Api-Key", "192.0.2.1:5", &[("x-api-key", &pages)]), "192.0.2.1");
    }

    #[test]
    fn nobody_else_can_be_meant() {
        for text in ["", "header:", "header:a b", "cookie:x"] {
            assert!(text.parse::<Whom>().is_err(), "{text}");
        }
    }
}

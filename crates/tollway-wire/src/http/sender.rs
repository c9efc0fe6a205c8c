//! Reads the headers that tell whether a web page has sent a request, and under which name it asks.
//!
//! Any page that a browser has open can send requests to the browser's own machine. The browser adds who sends them:
//!
//! ```text
//! Host: 127.0.0.1:8082                the address that the page asked for
//! Origin: https://evil.example        the site of the page
//! Sec-Fetch-Site: cross-site          how the two are related
//! ```
//!
//! A page can also let the name of its own site point to 127.0.0.1 (DNS rebinding). Then both are the same site, and
//! only the name in `Host` shows it. Nothing here allocates: the headers are read with those that frame a request.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::trace_parent::TraceParent;

/// The media type that bodies have.
const JSON: &[u8] = b"application/json";

/// The scheme of an `Authorization` header with a token, and the space behind it.
const BEARER: &[u8] = b"Bearer ";

/// The headers of a request that tell who sent it. The default is a request that has none of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct SenderHeaders<'a> {
    /// The value of the `Host` header. It is empty in a request of HTTP/1.0 without one.
    pub host: &'a [u8],
    origin: Option<&'a [u8]>,
    fetch_site: FetchSite,
    content_type: BodyType,
    authorization: Option<&'a [u8]>,
    trace_parent: Option<&'a [u8]>,
}

/// The relation between a page and the server that it asks, as the browser says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FetchSite {
    /// No browser has said anything, or a person has typed the address.
    #[default]
    NoPage,
    /// A page of this server asks.
    SameOrigin,
    /// A page of another server asks, or the value is not known.
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BodyType {
    #[default]
    Missing,
    Json,
    Other,
}

impl<'a> SenderHeaders<'a> {
    pub(super) fn add_origin(&mut self, value: &'a [u8]) {
        // Two origins are none that could be equal to that of the server.
        self.origin = Some(if self.origin.is_some() { b"" } else { value });
    }

    pub(super) fn add_authorization(&mut self, value: &'a [u8]) {
        // A proxy in front may look at the other one of two, so neither counts.
        self.authorization = Some(if self.authorization.is_some() { b"" } else { value });
    }

    pub(super) fn add_trace_parent(&mut self, value: &'a [u8]) {
        // Of two, neither counts.
        self.trace_parent = Some(if self.trace_parent.is_some() { b"" } else { value });
    }

    pub(super) fn add_fetch_site(&mut self, value: &[u8]) {
        match value {
            b"none" => {}
            b"same-origin" if self.fetch_site == FetchSite::NoPage => self.fetch_site = FetchSite::SameOrigin,
            b"same-origin" => {}
            _ => self.fetch_site = FetchSite::Other,
        }
    }

    pub(super) fn add_content_type(&mut self, value: &[u8]) {
        let is_json = self.content_type == BodyType::Missing && is_json(value);
        self.content_type = if is_json { BodyType::Json } else { BodyType::Other };
    }

    /// Returns the token that the client sends, as `Authorization: Bearer TOKEN`.
    #[inline]
    pub fn bearer_token(&self) -> Option<&'a [u8]> {
        bearer_token(self.authorization?)
    }

    /// Returns the span of the client that the request belongs to, if it says so.
    pub fn trace_parent(&self) -> Option<TraceParent> {
        TraceParent::parse(self.trace_parent?)
    }

    /// Returns whether the body is JSON by its `Content-Type`, which a page of another site cannot send unasked.
    pub fn has_json(&self) -> bool {
        self.content_type == BodyType::Json
    }

    /// Returns whether a web page has sent the request, or a browser for it.
    pub fn is_from_page(&self) -> bool {
        self.origin.is_some() || self.fetch_site != FetchSite::NoPage
    }

    /// Returns whether a page of another site has sent the request. `https` says that the client speaks to a proxy in
    /// front of the server by TLS.
    pub fn is_cross_site(&self, https: bool) -> bool {
        self.fetch_site == FetchSite::Other || self.origin.is_some_and(|origin| !self.is_own(origin, https))
    }

    /// Returns whether an origin is that of the server: its scheme, its host and its port.
    fn is_own(&self, origin: &[u8], https: bool) -> bool {
        let (scheme, port): (&[u8], u16) = if https { (b"https://", 443) } else { (b"http://", 80) };
        let Some(authority) = origin.strip_prefix(scheme) else { return false };
        match (HostHeader::parse(authority), HostHeader::parse(self.host)) {
            (Some(page), Some(server)) => {
                page.name.eq_ignore_ascii_case(server.name)
                    && page.port.unwrap_or(port) == server.port.unwrap_or(port)
            }
            _ => false,
        }
    }
}

/// Returns the token in the value of an `Authorization` header, whose scheme must be `Bearer`.
pub fn bearer_token(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(BEARER.len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(BEARER) && !token.is_empty()).then_some(token)
}

/// The host and the port that a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostHeader<'a> {
    /// A name or an address. One of IPv6 is in brackets.
    pub name: &'a str,
    /// The port, if there is one.
    pub port: Option<u16>,
}

impl<'a> HostHeader<'a> {
    /// Parses the value of a `Host` header. Returns `None` if it is not a host with a port or without one.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        // The colons of an IPv6 address stand before its bracket.
        let host_end = text.rfind(']').map_or(0, |bracket| bracket + 1);
        let (name, port) = match text[host_end..].split_once(':') {
            Some((rest, port)) => (&text[..host_end + rest.len()], Some(parse_port(port)?)),
            None => (text, None),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let valid = match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => !name.is_empty() && name.bytes().all(is_name),
        };
        valid.then_some(Self { name, port })
    }

    /// Returns whether nobody else can choose what the host stands for: an address, `localhost`, or a name below it.
    pub fn is_address_or_localhost(&self) -> bool {
        let is_localhost = || {
            let last = self.name.rsplit('.').next().unwrap_or_default();
            last.eq_ignore_ascii_case("localhost")
        };
        self.name.starts_with('[') || self.name.parse::<Ipv4Addr>().is_ok() || is_localhost()
    }
}

fn parse_port(text: &str) -> Option<u16> {
    // `parse` accepts a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Returns whether a content type is JSON, with any parameters.
fn is_json(value: &[u8]) -> bool {
    let (media_type, rest) = value.split_at(value.len().min(JSON.len()));
    media_type.eq_ignore_ascii_case(JSON) && matches!(rest.trim_ascii_start().first(), None | Some(b';'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sender<'a>(host: &'a str, origin: Option<&'a str>, sites: &[&str]) -> SenderHeaders<'a> {
        let mut sender = SenderHeaders { host: host.as_bytes(), ..SenderHeaders::default() };
        origin.into_iter().for_each(|origin| sender.add_origin(origin.as_bytes()));
        sites.iter().for_each(|site| sender.add_fetch_site(site.as_bytes()));
        sender
    }

    #[test]
    fn a_token_is_sent_once_by_the_scheme_bearer() {
        for (headers, token) in [
            (&[][..], None),
            (&["Bearer tw_1"], Some("tw_1")),
            (&["bearer   tw_1 "], Some("tw_1")),
            (&["BEARER a b"], Some("a b")),
            (&["Bearer"], None),
            (&["Bearer "], None),
            (&["Bearer\ttw_1"], None),
            (&["Basic dG9sbHdheQ=="], None),
            (&["tw_1"], None),
            (&["Bearer tw_1", "Bearer tw_1"], None),
            (&["Bearer tw_1", "Basic dG9sbHdheQ==", "Bearer tw_1"], None),
        ] {
            let mut sender = SenderHeaders::default();
            headers.iter().for_each(|header| sender.add_authorization(header.as_bytes()));
            assert_eq!(sender.bearer_token(), token.map(str::as_bytes), "{headers:?}");
        }
    }

    #[test]
    fn only_pages_of_the_same_origin_are_of_this_site() {
        for (host, origin, cross) in [
            ("127.0.0.1:8082", "http://127.0.0.1:8082", false),
            ("LocalHost:8082", "http://localhost:8082", false),
            ("[::1]:8082", "http://[::1]:8082", false),
            ("tollway", "http://tollway:80", false),
            ("tollway:80", "http://tollway", false),
            ("127.0.0.1:8082", "https://127.0.0.1:8082", true),
            ("127.0.0.1:8082", "http://127.0.0.1:8080", true),
            ("127.0.0.1:8082", "http://127.0.0.1", true),
            ("127.0.0.1:8082", "http://localhost:8082", true),
            ("127.0.0.1:8082", "http://evil.example", true),
            ("127.0.0.1:8082", "http://127.0.0.1:8082.evil.example", true),
            ("127.0.0.1:8082", "http://127.0.0.1:8082/", true),
            ("127.0.0.1:8082", "http://a@127.0.0.1:8082", true),
            ("127.0.0.1:8082", "HTTP://127.0.0.1:8082", true),
            ("127.0.0.1:8082", "null", true),
            ("127.0.0.1:8082", "", true),
            ("", "http://", true),
        ] {
            let sender = sender(host, Some(origin), &[]);
            assert_eq!(
                (sender.is_from_page(), sender.is_cross_site(false)),
                (true, cross),
                "{host} {origin}"
            );
        }
        let behind_tls = sender("tollway.internal", Some("https://tollway.internal"), &["same-origin"]);
        assert_eq!((behind_tls.is_cross_site(true), behind_tls.is_cross_site(false)), (false, true));
    }

    #[test]
    fn the_word_of_a_browser_counts_without_an_origin() {
        for (sites, from_page, cross) in [
            (&[][..], false, false),
            (&["none"], false, false),
            (&["same-origin"], true, false),
            (&["same-site"], true, true),
            (&["cross-site"], true, true),
            (&["Cross-Site"], true, true),
            (&[""], true, true),
            (&["cross-site", "same-origin"], true, true),
            (&["same-origin", "none"], true, false),
        ] {
            let sender = sender("127.0.0.1:8082", None, sites);
            assert_eq!((sender.is_from_page(), sender.is_cross_site(false)), (from_page, cross), "{sites:?}");
        }
        let mut doubled = sender("a", Some("http://a"), &[]);
        doubled.add_origin(b"http://a");
        assert!(doubled.is_cross_site(false));
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_a_port() {
        for (value, expected, fixed) in [
            ("127.0.0.1:8082", Some(("127.0.0.1", Some(8082))), true),
            ("127.0.0.1", Some(("127.0.0.1", None)), true),
            ("[::1]:8082", Some(("[::1]", Some(8082))), true),
            ("[::1]", Some(("[::1]", None)), true),
            ("localhost:1", Some(("localhost", Some(1))), true),
            ("a.LOCALHOST", Some(("a.LOCALHOST", None)), true),
            ("localhost.evil.example", Some(("localhost.evil.example", None)), false),
            ("notlocalhost", Some(("notlocalhost", None)), false),
            ("127.0.0.1.evil.example", Some(("127.0.0.1.evil.example", None)), false),
            ("0x7f.1", Some(("0x7f.1", None)), false),
            ("2130706433", Some(("2130706433", None)), false),
            ("evil.example:8082", Some(("evil.example", Some(8082))), false),
            ("evil.example:", None, false),
            ("evil.example:+1", None, false),
            ("evil.example:65536", None, false),
            ("", None, false),
            (":80", None, false),
            ("::1", None, false),
            ("[::1", None, false),
            ("[evil.example]", None, false),
            ("a b", None, false),
            ("a/b", None, false),
            ("a@b", None, false),
        ] {
            let host = HostHeader::parse(value.as_bytes());
            assert_eq!(host.map(|host| (host.name, host.port)), expected, "{value}");
            assert_eq!(host.is_some_and(|host| host.is_address_or_localhost()), fixed, "{value}");
        }
    }

    #[test]
    fn json_has_parameters_and_any_case() {
        for (values, json) in [
            (&[][..], false),
            (&["application/json"], true),
            (&["Application/JSON; charset=utf-8"], true),
            (&["application/json ;charset=utf-8"], true),
            (&["application/jsonp"], false),
            (&["application/json, text/plain"], false),
            (&["text/plain; application/json"], false),
            (&["application/x-www-form-urlencoded"], false),
            (&["application/json", "text/plain"], false),
            (&["text/plain", "application/json"], false),
        ] {
            let mut sender = SenderHeaders::default();
            values.iter().for_each(|value| sender.add_content_type(value.as_bytes()));
            assert_eq!(sender.has_json(), json, "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            host in proptest::collection::vec(any::<u8>(), 0..32),
            text in r"\PC{0,32}",
            origin in "(http://)?[\\[\\]:.a-z0-9/@-]{0,32}",
        ) {
            let _ = HostHeader::parse(text.as_bytes());
            let mut sender = SenderHeaders { host: &host, ..SenderHeaders::default() };
            sender.add_origin(origin.as_bytes());
            sender.add_fetch_site(&host);
            sender.add_content_type(&host);
            let _ = (sender.is_cross_site(true), sender.is_cross_site(false), sender.has_json());
            // What parses as a host is written back as it was.
            if let Some(parsed) = HostHeader::parse(origin.as_bytes()) {
                let port = parsed.port.map(|port| format!(":{port}")).unwrap_or_default();
                prop_assert!(origin.starts_with(parsed.name) && origin.len() >= parsed.name.len() + port.len());
            }
        }
    }
}

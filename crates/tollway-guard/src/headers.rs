//! Removes hop-by-hop headers, and sets those that tell the upstream who the client is.

use std::io::Write;
use std::net::IpAddr;

use hyper::Uri;
use hyper::body::{Bytes, SizeHint};
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap,
    HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::uri::Authority;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// The headers that are about one connection, whether `Connection` names them or not.
///
/// `Expect` is one of them, because the proxy itself tells the client to continue.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    EXPECT,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The headers that `Connection` cannot remove. A client that names them there wants the upstream to miss them.
const END_TO_END: [HeaderName; 10] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    CONTENT_LENGTH,
    COOKIE,
    FORWARDED,
    HOST,
    FORWARDED_FOR,
    FORWARDED_HOST,
    FORWARDED_PROTO,
    REAL_IP,
];

/// The headers in which only a trusted proxy may tell how the client reached it.
const FROM_PROXIES: [HeaderName; 8] = [
    FORWARDED,
    FORWARDED_HOST,
    FORWARDED_PROTO,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-scheme"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-forwarded-ssl"),
];

/// Returns the protocol that the peer wants to switch to. HTTP is not one: its requests would not be limited.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_requested = connection_options(headers).any(|name| name.eq_ignore_ascii_case("upgrade"));
    headers
        .get(UPGRADE)
        .filter(|protocols| is_requested && !protocols.as_bytes().split(|b| *b == b',').any(is_http))
        .cloned()
}

fn is_http(protocol: &[u8]) -> bool {
    let name = protocol.trim_ascii().split(|byte| *byte == b'/').next().unwrap_or_default();
    [&b"h2c"[..], b"h2", b"http", b"tls"].iter().any(|http| name.eq_ignore_ascii_case(http))
}

/// Removes the headers that are about one connection.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> =
            connection_options(headers).filter_map(|name| name.parse().ok()).collect();
        for name in named.iter().filter(|name| !END_TO_END.contains(name)) {
            headers.remove(name);
        }
    }
    // If both are present, the chunks count.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    // gRPC needs to know that trailers are understood from end to end.
    let trailers = headers.get(TE).is_some_and(|te| te == "trailers");
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Adds what every HTTP/1.1 request has: a host, and a way to find the end of its body.
pub(crate) fn complete_http1(headers: &mut HeaderMap, body: &SizeHint, upstream: &Authority) {
    if !headers.contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(upstream.as_str())
    {
        headers.insert(HOST, host);
    }
    if body.exact().is_none() {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Sets the headers of an upgrade, which were removed as hop-by-hop headers.
pub(crate) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Sets `Host` to the host of the URI, which counts if both are present. HTTP/2 has it only there.
pub(crate) fn set_host(headers: &mut HeaderMap, uri: &Uri) {
    if let Some(host) = uri.authority().and_then(|authority| authority.as_str().parse().ok()) {
        headers.insert(HOST, host);
    }
}

/// Tells the upstream who the client is, and removes what a client claims about itself.
///
/// `X-Forwarded-For` is a list, in which the peer's address follows whatever was sent. What stands before it was
/// written by the peer, and is worth as much as the peer is trusted.
pub(crate) fn set_forwarded(headers: &mut HeaderMap, peer: IpAddr, client: IpAddr, from_proxy: bool) {
    if !from_proxy {
        for name in &FROM_PROXIES {
            headers.remove(name);
        }
    }
    headers.entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
    let mut line = Vec::with_capacity(64);
    for before in headers.get_all(FORWARDED_FOR) {
        line.extend_from_slice(before.as_bytes());
        line.extend_from_slice(b", ");
    }
    let is_first = line.is_empty();
    // Writing to memory cannot fail.
    let _ = write!(line, "{peer}");
    let Some(forwarded_for) = header_value(line) else { return };
    let real_ip = match client == peer && is_first {
        true => Some(forwarded_for.clone()),
        false => header_value(client.to_string().into_bytes()),
    };
    headers.insert(FORWARDED_FOR, forwarded_for);
    if let Some(real_ip) = real_ip {
        headers.insert(REAL_IP, real_ip);
    }
}

/// Makes a value without copying. It is `None` for no input of this module: headers and addresses are valid bytes.
fn header_value(line: Vec<u8>) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(Bytes::from(line)).ok()
}

/// Returns the names in `Connection`.
fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut passed = headers(&[
            ("connection", "close, X-Mine, Host, content-length, x-forwarded-for"),
            ("host", "a"),
            ("expect", "100-continue"),
            ("connection", "x-other"),
            ("x-mine", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "secret"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
            ("accept", "*/*"),
            ("content-length", "5"),
        ]);
        remove_hop_by_hop(&mut passed);
        assert_eq!(passed, headers(&[("host", "a"), ("accept", "*/*"), ("content-length", "5")]));
        let mut twice = headers(&[("transfer-encoding", "chunked"), ("content-length", "5")]);
        remove_hop_by_hop(&mut twice);
        assert_eq!(twice, headers(&[]));
        let mut grpc = headers(&[("te", "trailers")]);
        remove_hop_by_hop(&mut grpc);
        assert_eq!(grpc, headers(&[("te", "trailers")]));
    }

    #[test]
    fn an_upgrade_is_requested_by_two_headers() {
        let is_upgrade = |lines: &[(&'static str, &'static str)]| upgrade(&headers(lines)).is_some();
        assert!(is_upgrade(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]));
        assert!(!is_upgrade(&[("upgrade", "websocket")]));
        assert!(!is_upgrade(&[("connection", "upgrade")]));
        for http in ["h2c", "websocket, H2C", "HTTP/2.0", "tls/1.0"] {
            assert!(!is_upgrade(&[("connection", "upgrade, http2-settings"), ("upgrade", http)]), "{http}");
        }
    }

    /// Sets the headers of a request from `peer` that claims these, and returns them in order.
    fn forwarded(
        claims: &[(&'static str, &'static str)],
        peer: &str,
        client: &str,
        from_proxy: bool,
    ) -> String {
        let mut passed = headers(claims);
        set_forwarded(&mut passed, peer.parse().unwrap(), client.parse().unwrap(), from_proxy);
        let lines = passed.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        let mut lines: Vec<_> = lines.collect();
        lines.sort();
        lines.join("; ")
    }

    #[test]
    fn a_client_cannot_claim_to_be_another_one() {
        let claims = [
            ("forwarded", "for=10.0.0.9;proto=https"),
            ("x-forwarded-for", "10.0.0.9"),
            ("x-forwarded-host", "bank.example"),
            ("x-forwarded-port", "443"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "10.0.0.9"),
        ];
        let expected = "x-forwarded-for: 10.0.0.9, 192.0.2.1; x-forwarded-proto: http; x-real-ip: 192.0.2.1";
        assert_eq!(forwarded(&claims, "192.0.2.1", "192.0.2.1", false), expected);
        assert_eq!(
            forwarded(&claims, "10.0.0.1", "10.0.0.9", true),
            "forwarded: for=10.0.0.9;proto=https; x-forwarded-for: 10.0.0.9, 10.0.0.1; \
             x-forwarded-host: bank.example; x-forwarded-port: 443; x-forwarded-proto: https; x-real-ip: 10.0.0.9"
        );
    }

    #[test]
    fn the_address_of_the_peer_ends_the_list() {
        let lines = [("x-forwarded-for", "a"), ("x-forwarded-for", "b")];
        let expected = "x-forwarded-for: a, b, ::1; x-forwarded-proto: http; x-real-ip: ::1";
        assert_eq!(forwarded(&lines, "::1", "::1", false), expected);
        let expected = "x-forwarded-for: 192.0.2.1; x-forwarded-proto: http; x-real-ip: 192.0.2.1";
        assert_eq!(forwarded(&[], "192.0.2.1", "192.0.2.1", false), expected);
    }

    #[test]
    fn the_host_of_the_uri_counts() {
        let mut passed = headers(&[("host", "ignored")]);
        set_host(&mut passed, &Uri::from_static("http://example.com:81/x"));
        assert_eq!(passed, headers(&[("host", "example.com:81")]));
    }
}

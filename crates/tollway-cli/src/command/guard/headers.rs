//! Removes hop-by-hop headers, and adds the `X-Forwarded` headers.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use hyper::Uri;
use hyper::body::{Bytes, SizeHint};
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap,
    HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};

use super::upstream::Upstream;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// About one connection, whether `Connection` says so or not. Who expects to be told to continue is told so here.
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

/// About the whole way, whatever `Connection` says: a client that names them there wants somebody else to miss them.
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

/// What the other side wants this connection to become, if anything. More HTTP is not to be had in this way: it would be
/// requests that nobody limits.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = named(headers).any(|name| name.eq_ignore_ascii_case("upgrade"));
    headers
        .get(UPGRADE)
        .filter(|protocols| asks && !protocols.as_bytes().split(|b| *b == b',').any(is_http))
        .cloned()
}

fn is_http(protocol: &[u8]) -> bool {
    let name = protocol.trim_ascii().split(|byte| *byte == b'/').next().unwrap_or_default();
    [&b"h2c"[..], b"h2", b"http", b"tls"].iter().any(|http| name.eq_ignore_ascii_case(http))
}

/// Takes out what is about one connection.
pub(super) fn end_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let also: Vec<HeaderName> = named(headers).filter_map(|name| name.parse().ok()).collect();
        for name in also.iter().filter(|name| !END_TO_END.contains(name)) {
            headers.remove(name);
        }
    }
    // Where both were said, only one was true.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    // Of HTTP/2, gRPC needs to know that trailers are understood from end to end.
    let trailers = headers.get(TE).is_some_and(|te| te == "trailers");
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Adds what a request of HTTP/1.1 must have, whatever it was before: a host, and the end of its body.
pub(super) fn complete(headers: &mut HeaderMap, body: &SizeHint, upstream: &Upstream) {
    if !headers.contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(upstream.authority.as_str())
    {
        headers.insert(HOST, host);
    }
    if body.exact().is_none() {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Puts back what an upgrade needs.
pub(super) fn ask_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Says who asked, after whatever was said before, and for which host.
pub(super) fn forward(headers: &mut HeaderMap, uri: &Uri, peer: SocketAddr) {
    append_forwarded_for(headers, peer.ip().to_canonical());
    headers.entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
    // HTTP/2 says it in the address of the request, and what stands there always counts.
    if let Some(host) = uri.authority().and_then(|authority| authority.as_str().parse().ok()) {
        headers.insert(HOST, host);
    }
}

fn append_forwarded_for(headers: &mut HeaderMap, peer: IpAddr) {
    let mut line = Vec::with_capacity(64);
    for before in headers.get_all(FORWARDED_FOR) {
        line.extend_from_slice(before.as_bytes());
        line.extend_from_slice(b", ");
    }
    // Writing to memory cannot fail, and neither can a header of what were headers and an address.
    let _ = write!(line, "{peer}");
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(line)) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// The names that `Connection` lists.
fn named(headers: &HeaderMap) -> impl Iterator<Item = &str> {
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
    fn what_is_about_one_connection_ends_here() {
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
        end_hop(&mut passed);
        assert_eq!(passed, headers(&[("host", "a"), ("accept", "*/*"), ("content-length", "5")]));
        let mut twice = headers(&[("transfer-encoding", "chunked"), ("content-length", "5")]);
        end_hop(&mut twice);
        assert_eq!(twice, headers(&[]));
        let mut grpc = headers(&[("te", "trailers")]);
        end_hop(&mut grpc);
        assert_eq!(grpc, headers(&[("te", "trailers")]));
    }

    #[test]
    fn an_upgrade_is_asked_for_by_two_headers() {
        let asks = |lines: &[(&'static str, &'static str)]| upgrade(&headers(lines)).is_some();
        assert!(asks(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]));
        assert!(!asks(&[("upgrade", "websocket")]));
        assert!(!asks(&[("connection", "upgrade")]));
        for http in ["h2c", "websocket, H2C", "HTTP/2.0", "tls/1.0"] {
            assert!(!asks(&[("connection", "upgrade, http2-settings"), ("upgrade", http)]), "{http}");
        }
    }

    #[test]
    fn who_asked_is_appended() {
        let forwarded = |before, peer: &str| {
            let mut passed = headers(before);
            forward(&mut passed, &Uri::from_static("/"), peer.parse().unwrap());
            passed.get(FORWARDED_FOR).unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(forwarded(&[], "192.0.2.1:5"), "192.0.2.1");
        assert_eq!(forwarded(&[("x-forwarded-for", "a, b")], "[::ffff:192.0.2.1]:5"), "a, b, 192.0.2.1");
        assert_eq!(forwarded(&[("x-forwarded-for", "a"), ("x-forwarded-for", "b")], "[::1]:5"), "a, b, ::1");
    }

    #[test]
    fn the_host_is_the_one_that_the_client_meant() {
        let mut passed = headers(&[("host", "ignored"), ("x-forwarded-proto", "https")]);
        forward(&mut passed, &Uri::from_static("http://example.com:81/x"), "192.0.2.1:5".parse().unwrap());
        assert_eq!(
            (&passed["host"], &passed["x-forwarded-proto"]),
            (&"example.com:81".parse().unwrap(), &"https".parse().unwrap())
        );
    }
}

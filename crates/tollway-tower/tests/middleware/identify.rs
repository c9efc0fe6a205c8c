//! Tests that clients are identified by address, behind proxies, by header and by closure.

use http::{HeaderName, HeaderValue, Request};
use tollway_tower::{ByAddress, ByHeader, ClientId, Identify, Network, RequestHead};

use crate::support::request;

fn by(identify: &impl Identify, request: &Request<()>) -> String {
    match identify.identify(RequestHead::new(request)) {
        Ok(id) => String::from_utf8(id.as_ref().to_vec()).unwrap(),
        Err(reason) => format!("({reason:?})"),
    }
}

fn behind(proxies: &str) -> ByAddress {
    ByAddress::peer()
        .trust_proxies(proxies.split_whitespace().map(|network| network.parse::<Network>().unwrap()))
}

#[test]
fn a_client_is_its_address_or_its_network() {
    for (peer, id) in [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.8", "192.0.2.8"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::"),
        ("2001:db8:1:3::", "2001:db8:1:3::"),
        ("::1", "::"),
        ("", "(NoPeerAddress)"),
    ] {
        assert_eq!(by(&ByAddress::peer(), &request("/", peer, &[])), id, "{peer}");
    }
    let narrow = ByAddress::peer().ipv6_prefix(128).ipv4_prefix(24);
    for (peer, id) in
        [("2001:db8::1", "2001:db8::1"), ("192.0.2.7", "192.0.2.0"), ("::ffff:192.0.2.7", "192.0.2.0")]
    {
        assert_eq!(by(&narrow, &request("/", peer, &[])), id, "{peer}");
    }
    assert_eq!(by(&ByAddress::peer().ipv6_prefix(48), &request("/", "2001:db8:1:2::", &[])), "2001:db8:1::");
    assert_eq!(by(&ByAddress::peer().ipv4_prefix(0), &request("/", "192.0.2.7", &[])), "0.0.0.0");
}

/// Proxies in 10.0.0.0/8 and one at 2001:db8:f::1 are declared.
#[test]
fn only_declared_proxies_are_believed_and_only_as_far_as_they_go() {
    let address = behind("10.0.0.0/8 2001:db8:f::1");
    for (peer, forwarded, id) in [
        // Nobody else is believed.
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
        ("203.0.113.9", "10.0.0.1", "203.0.113.9"),
        ("11.0.0.1", "198.51.100.1", "11.0.0.1"),
        // One proxy.
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("::ffff:10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("2001:db8:f::1", "198.51.100.1", "198.51.100.1"),
        // What the client invented stands further left.
        ("10.0.0.1", "1.1.1.1, 198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "10.0.0.9, 198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "garbage, , \u{1f480}, 198.51.100.1", "198.51.100.1"),
        // A chain of them.
        ("10.0.0.1", "198.51.100.1, 10.0.0.2", "198.51.100.1"),
        ("10.0.0.1", "1.1.1.1,198.51.100.1,10.0.0.3,2001:db8:f::1,10.0.0.2", "198.51.100.1"),
        // All of them are proxies: the farthest asks for itself.
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "", "10.0.0.1"),
        // Spellings.
        ("10.0.0.1", "  198.51.100.1\t", "198.51.100.1"),
        ("10.0.0.1", "198.51.100.1:4711", "198.51.100.1"),
        ("10.0.0.1", "::ffff:198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("10.0.0.1", "[2001:db8:1:2:3:4:5:6]", "2001:db8:1:2::"),
        ("10.0.0.1", "[2001:db8:1:2:3:4:5:6]:4711", "2001:db8:1:2::"),
        // What is no address is the proxy's to answer for that wrote it.
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1, unknown", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1, unknown, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "198.51.100.1,", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.256", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1 10.0.0.2", "10.0.0.1"),
        ("10.0.0.1", "fe80::1%eth0", "10.0.0.1"),
        ("10.0.0.1", "[198.51.100.1", "10.0.0.1"),
        ("10.0.0.1", ",,,,", "10.0.0.1"),
        ("", "198.51.100.1", "(NoPeerAddress)"),
    ] {
        let mut request = request("/", peer, &[]);
        let value = HeaderValue::from_bytes(forwarded.as_bytes()).unwrap();
        request.headers_mut().insert("x-forwarded-for", value);
        assert_eq!(by(&address, &request), id, "{peer} {forwarded}");
    }
}

#[test]
fn lines_of_one_header_are_one_list() {
    let lines = [("x-forwarded-for", "1.1.1.1, 198.51.100.1"), ("X-Forwarded-For", "10.0.0.3, 10.0.0.2")];
    assert_eq!(by(&behind("10.0.0.0/8"), &request("/", "10.0.0.1", &lines)), "198.51.100.1");
    let not_text = [("x-forwarded-for", "198.51.100.1")];
    let mut request = request("/", "10.0.0.1", &not_text);
    request.headers_mut().append("x-forwarded-for", HeaderValue::from_bytes(b"\xff\xfe").unwrap());
    assert_eq!(by(&behind("10.0.0.0/8"), &request), "10.0.0.1");
}

#[test]
fn without_declared_proxies_the_header_says_nothing() {
    let spoofed = request("/", "203.0.113.9", &[("x-forwarded-for", "10.0.0.1"), ("x-real-ip", "10.0.0.1")]);
    assert_eq!(by(&ByAddress::peer(), &spoofed), "203.0.113.9");
}

#[test]
fn a_header_is_an_identifier_if_it_says_something() {
    let by_key = ByHeader::new(HeaderName::from_static("x-api-key"));
    let (long, too_long) = ("k".repeat(1_024), "k".repeat(1_025));
    for (headers, id) in [
        (&[("x-api-key", "k1")][..], "k1"),
        (&[("X-API-Key", "k1"), ("x-api-key", "k2")], "(Ambiguous)"),
        (&[("x-api-key", long.as_str())], &long),
        (&[("x-api-key", too_long.as_str())], "(Invalid)"),
        (&[("x-api-key", "")], "(Missing)"),
        (&[("authorization", "k1")], "(Missing)"),
        (&[], "(Missing)"),
    ] {
        assert_eq!(by(&by_key, &request("/", "192.0.2.7", headers)), id, "{headers:?}");
    }
}

/// A client must not be able to name another client's address, or to leave the header out for a new bucket.
#[test]
fn the_value_of_a_header_is_never_the_id_of_an_address() {
    let key = ByHeader::new(HeaderName::from_static("x-api-key")).or_address(ByAddress::peer());
    for (headers, id) in [
        (&[("x-api-key", "10.0.0.9")][..], "header:x-api-key=10.0.0.9"),
        (&[("x-api-key", "header:x-api-key=10.0.0.9")], "header:x-api-key=header:x-api-key=10.0.0.9"),
        (&[("x-api-key", "")], "10.0.0.9"),
        (&[], "10.0.0.9"),
        (&[("x-api-key", "k1"), ("x-api-key", "k1")], "(Ambiguous)"),
        (&[("x-api-key", &"k".repeat(1_025))], "(Invalid)"),
    ] {
        assert_eq!(by(&key, &request("/", "10.0.0.9", headers)), id, "{headers:?}");
    }
    assert_eq!(by(&key, &request("/", "", &[])), "(NoPeerAddress)");
}

#[test]
fn a_closure_sees_all_but_the_body() {
    let identify = |head: RequestHead<'_>| head.uri.path().strip_prefix("/users/").and_then(ClientId::new);
    assert_eq!(by(&identify, &request("/users/7", "", &[])), "7");
    assert_eq!(by(&identify, &request("/users/", "", &[])), "(Missing)");
    assert_eq!(by(&identify, &request("/", "", &[])), "(Missing)");
}

#[test]
fn the_peer_may_be_in_an_extension_of_any_type() {
    #[derive(Clone)]
    struct Connection(Option<std::net::SocketAddr>);
    let address = ByAddress::from_extension(|connection: &Connection| connection.0);
    for (peer, id) in [(Some("192.0.2.7:1".parse().unwrap()), "192.0.2.7"), (None, "(NoPeerAddress)")] {
        let mut request = request("/", "203.0.113.9", &[]);
        request.extensions_mut().insert(Connection(peer));
        assert_eq!(by(&address, &request), id);
    }
}

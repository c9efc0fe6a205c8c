//! Tests what the HTTP gates read in the headers of a request: who sent it, and what a proxy says about it.

use tollway_core::{IdFormat, Network};
use tollway_wire::http::{
    DenyStatus, Framer, FramerEvent, GateQuery, HttpRequest, IdSource, LiveQuery, MalformedRequest,
    ProxiedRequest, RecordQuery, RecordedIds, RecordingProgress, RecordingStart,
};

const PEER: &str = "10.0.0.1";

/// Frames one request with these headers, and returns what `look` finds in it.
fn with_request<T>(target: &str, headers: &str, look: impl FnOnce(&HttpRequest<'_>) -> T) -> T {
    let request = format!("GET {target} HTTP/1.1\r\n{headers}\r\n");
    let mut framer = Framer::new(16 << 10, 1 << 10);
    match framer.next(request.as_bytes()) {
        Ok(FramerEvent::Request(request)) => look(&request),
        other => panic!("{request:?} is {other:?}"),
    }
}

/// Returns the id that `source` finds in a request with these headers, which came from a proxy that is trusted or not.
fn id(headers: &str, source: IdSource<'static>, is_trusted: bool) -> Result<String, MalformedRequest> {
    let trusted: [Network; 1] = [if is_trusted { "10.0.0.0/8" } else { "192.0.2.0/24" }.parse().unwrap()];
    with_request("/v1/gate", &format!("Host: gate\r\n{headers}"), |request| {
        let proxied = ProxiedRequest::new(request, None, PEER.parse().unwrap(), &trusted);
        proxied.id(source, IdFormat::Any).map(|id| String::from_utf8(id.into_owned()).unwrap())
    })
}

#[test]
fn ids_come_from_where_the_query_says() {
    for (headers, source, expected) in [
        ("X-Forwarded-For: 192.0.2.7\r\n", IdSource::ClientIp, "192.0.2.7"),
        ("X-Forwarded-For: 2001:db8:1:2:3::4\r\n", IdSource::ClientIp, "2001:db8:1:2::/64"),
        ("X-Api-Key: k1\r\n", IdSource::Header("x-api-key".into()), "k1"),
        ("X-Forwarded-Uri: /a/b?c=d\r\n", IdSource::Path, "/a/b"),
        ("X-Original-URI: /a#b\r\n", IdSource::Path, "/a"),
        ("X-Forwarded-Host: Shop.Example.:443\r\n", IdSource::Host, "shop.example"),
        ("X-Forwarded-Host: [2001:db8::1]\r\n", IdSource::Host, "[2001:db8::1]"),
        ("", IdSource::Host, "gate"),
        ("X-Original-Method: PUT\r\n", IdSource::Method, "PUT"),
        ("", IdSource::Method, "GET"),
        ("", IdSource::Given(b"alice"[..].into()), "alice"),
        ("", IdSource::Given(b""[..].into()), ""),
    ] {
        assert_eq!(id(headers, source.clone(), true).as_deref(), Ok(expected), "{headers} {source}");
    }
}

#[test]
fn only_a_trusted_proxy_describes_the_original_request() {
    let headers = "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Host: shop\r\nX-Forwarded-Method: PUT\r\nX-Forwarded-Uri: /a\r\n";
    assert_eq!(id(headers, IdSource::ClientIp, false).as_deref(), Ok(PEER));
    assert_eq!(id(headers, IdSource::Host, false).as_deref(), Ok("gate"));
    assert_eq!(id(headers, IdSource::Method, false).as_deref(), Ok("GET"));
    let error = id(headers, IdSource::Path, false).unwrap_err();
    assert!(error.detail.contains("10.0.0.1 is not one of the trusted_proxies"), "{}", error.detail);
}

#[test]
fn an_id_that_is_missing_or_not_clear_is_refused() {
    for (headers, source, words) in [
        ("", IdSource::Path, "does not tell the original (path)"),
        ("", IdSource::Header("X-User".into()), "no header X-User, or an empty one"),
        ("X-User:\r\n", IdSource::Header("X-User".into()), "no header X-User, or an empty one"),
        ("X-User: a\r\nX-User: b\r\n", IdSource::Header("X-User".into()), "the header X-User more than once"),
        ("X-Forwarded-Uri: /a\r\nX-Original-URI: /b\r\n", IdSource::Path, "do not agree"),
    ] {
        let error = id(headers, source, true).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("id_from"));
        assert!(error.detail.contains(words), "{}", error.detail);
    }
    let both = "X-Forwarded-Uri: /a\r\nX-Original-URI: /a\r\n";
    assert_eq!(id(both, IdSource::Path, true).as_deref(), Ok("/a"), "they agree");
}

#[test]
fn a_proxy_is_known_by_its_address_or_by_what_it_describes() {
    let trusted: [Network; 1] = ["192.0.2.0/24".parse().unwrap()];
    for (peer, header, expected) in [
        ("192.0.2.1", "", true),
        ("::ffff:192.0.2.1", "", true),
        (PEER, "", false),
        (PEER, "Accept: */*\r\n", false),
        (PEER, "X-Forwarded-Proto: https\r\n", true),
        (PEER, "x-original-uri: /\r\n", true),
        (PEER, "X-Real-IP: 192.0.2.7\r\n", true),
        (PEER, "Forwarded: for=192.0.2.7\r\n", true),
    ] {
        let found = with_request("/v1/gate", &format!("Host: gate\r\n{header}"), |request| {
            ProxiedRequest::new(request, None, peer.parse().unwrap(), &trusted).is_from_proxy()
        });
        assert_eq!(found, expected, "{peer} {header}");
    }
}

#[test]
fn the_parts_of_a_gate_query_become_requests() {
    let query = "limit=PerClient&id_from=client_ip&rule=upload&key_from=header:X-Key&user_from=header:X-User&apikey=k1";
    let query = GateQuery::from_query(query).unwrap();
    let headers = "Host: gate\r\nX-User: alice\r\nX-Key: k\r\n";
    with_request("/v1/gate", headers, |request| {
        let proxied = ProxiedRequest::new(request, None, PEER.parse().unwrap(), &[]);
        let charge = query.charges[0].clone().into_request(&proxied, IdFormat::Any).unwrap();
        assert_eq!((&*charge.limit, &*charge.id, charge.cost), ("PerClient", PEER.as_bytes(), 1));
        let rule = query.rules[0].clone().into_request(&proxied).unwrap();
        assert_eq!((rule.rule.text(), rule.key.as_deref()), ("upload", Some("k")));
        let selectors: Vec<_> = rule.selectors.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(selectors, [("user", &b"alice"[..]), ("apikey", b"k1")]);
    });
    for (status, code) in [("401", 401), ("403", 403), ("429", 429), ("503", 503)] {
        let text = format!("limit=A&id=x&deny_status={status}");
        let query = GateQuery::from_query(&text).unwrap();
        assert_eq!(query.deny_status.map(|status| status.status().code()), Some(code));
    }
    assert!(GateQuery::from_query("limit=A&id=x&deny_status=200").is_err());
    assert_eq!(DenyStatus::Forbidden.status().reason(), "Forbidden");
}

#[test]
fn a_sender_is_who_its_headers_say_once() {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let look = |headers: &str| {
        with_request("/", &format!("Host: gate\r\n{headers}"), |request| {
            let sender = &request.sender;
            let token = sender.bearer_token().map(|token| String::from_utf8_lossy(token).into_owned());
            (
                token,
                sender.trace_parent().map(|parent| parent.sampled),
                sender.has_json(),
                sender.is_from_page(),
            )
        })
    };
    assert_eq!(look(""), (None, None, false, false));
    let headers =
        format!("Authorization: Bearer abc\r\ntraceparent: {trace}\r\nContent-Type: application/json\r\n");
    assert_eq!(look(&headers), (Some("abc".to_owned()), Some(true), true, false));
    // Of two, a proxy in front may look at the other one: neither counts.
    let twice = headers.repeat(2);
    assert_eq!(look(&twice), (None, None, false, false));
    assert!(look("Origin: http://gate\r\n").3 && look("Sec-Fetch-Site: same-origin\r\n").3);
    assert!(!look("Sec-Fetch-Site: none\r\n").3, "somebody typed the address");
    let is_cross_site = |headers: &str, https| {
        with_request("/", &format!("Host: gate:8080\r\n{headers}"), |request| {
            request.sender.is_cross_site(https)
        })
    };
    for (headers, https, expected) in [
        ("", false, false),
        ("Origin: http://gate:8080\r\n", false, false),
        ("Origin: https://gate:8080\r\n", true, false),
        ("Origin: http://gate\r\n", false, true),
        ("Origin: http://gate:8080\r\nOrigin: http://gate:8080\r\n", false, true),
        ("Origin: null\r\n", false, true),
        ("Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n", false, true),
        ("Sec-Fetch-Site: same-site\r\n", false, true),
    ] {
        assert_eq!(is_cross_site(headers, https), expected, "{headers}");
    }
}

#[test]
fn a_target_may_have_an_origin_and_its_headers_close_the_connection() {
    for (target, path, query) in [
        ("/a?b=c", "/a", "b=c"),
        ("http://host:80/a/b?c", "/a/b", "c"),
        ("http://host", "/", ""),
        ("http://host?a=b", "", "a=b"),
        ("*", "*", ""),
    ] {
        let found = with_request(target, "Host: a\r\n", |request| {
            (request.path.to_owned(), request.query.to_owned())
        });
        assert_eq!(found, (path.to_owned(), query.to_owned()), "{target}");
    }
    for (headers, close) in
        [("", false), ("Connection: a, Close\r\n", true), ("Connection: keep-alive\r\n", false)]
    {
        let found = with_request("/", &format!("Host: a\r\n{headers}"), |request| request.close);
        assert_eq!(found, close, "{headers}");
    }
}

#[test]
fn a_recording_reads_as_it_was_written() {
    let query = RecordQuery { sample: 16, ids: RecordedIds::Hashed };
    assert_eq!(LiveQuery::from_query(&query.to_query()), Ok(LiveQuery::Record(query)));
    let start = RecordingStart {
        version: "0.1.0".to_owned(),
        sample: 16,
        ids: RecordedIds::Hashed,
        store: "memory".to_owned(),
        buckets: 0,
        has_policy: true,
    };
    let mut event = Vec::new();
    start.put_event(&mut event);
    let text = String::from_utf8(event).unwrap();
    let data = text.strip_prefix("event: recording\ndata: ").unwrap().trim_end();
    assert_eq!(RecordingStart::from_json(data).unwrap(), start);
    let progress = RecordingProgress { missed: 2, skipped: 3 };
    assert_eq!(RecordingProgress::from_json(r#"{"missed":2,"skipped":3}"#).unwrap(), progress);
}

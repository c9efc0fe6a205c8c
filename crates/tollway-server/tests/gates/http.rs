//! Every endpoint, asked by an ordinary client.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};
use tollway::core::{Limit, Nanos, Policy, Timestamp};
use tollway::engine::Engine;

use crate::support::{Harness, POLICY, read_all, start, start_limiter, start_with};

#[test]
fn a_burst_is_allowed_and_the_next_request_denied() {
    let gate = start();
    for remaining in (0..5).rev() {
        let reply = gate.post("/v1/spend", r#"{"limit":"Login","id":"alice"}"#);
        assert_eq!((reply.status, &reply.json()["remaining"]), (200, &json!(remaining)));
    }
    let reply = gate.post("/v1/spend", r#"{"limit":"Login","id":"alice"}"#);
    assert_eq!(reply.status, 429);
    let expected = json!({"allowed":false,"remaining":0,"retry_after":12,"reset_after":60,"limit":"Login"});
    assert_eq!(reply.json(), expected);
}

#[test]
fn seconds_are_exact_decimals() {
    let gate = start();
    let reply = gate.post("/v1/spend", r#"{"limit":"Fast","id":"a"}"#);
    let body = r#"{"allowed":true,"remaining":19,"retry_after":0,"reset_after":0.05,"limit":"Fast"}"#;
    assert_eq!(reply.body, body);
    gate.clock.set(Timestamp::from_nanos(1));
    let reply = gate.post("/v1/check", r#"{"limit":"Fast","id":"a","cost":20}"#);
    let body = r#"{"allowed":false,"remaining":19,"retry_after":0.049999999,"reset_after":0.049999999,"limit":"Fast"}"#;
    assert_eq!((reply.status, &*reply.body), (429, body));
}

#[test]
fn headers_say_what_is_left_and_when_to_come_back() {
    let gate = start();
    for (cost, status, expected) in [
        (
            4,
            200,
            [
                ("ratelimit-policy", Some(r#""Login";q=5;w=60"#)),
                ("ratelimit", Some(r#""Login";r=1;t=12"#)),
                ("x-ratelimit-limit", Some("5")),
                ("x-ratelimit-remaining", Some("1")),
                ("x-ratelimit-reset", Some("48")),
                ("retry-after", None),
                ("content-type", Some("application/json")),
            ],
        ),
        (
            2,
            429,
            [
                ("ratelimit-policy", Some(r#""Login";q=5;w=60"#)),
                ("ratelimit", Some(r#""Login";r=1;t=12"#)),
                ("x-ratelimit-limit", Some("5")),
                ("x-ratelimit-remaining", Some("1")),
                ("x-ratelimit-reset", Some("48")),
                ("retry-after", Some("12")),
                ("content-type", Some("application/json")),
            ],
        ),
    ] {
        let body = format!(r#"{{"limit":"Login","id":"a","cost":{cost}}}"#);
        let reply = gate.post("/v1/spend", &body);
        assert_eq!(reply.status, status);
        for (name, value) in expected {
            assert_eq!(reply.header(name), value, "{name}");
        }
        assert!(reply.header("date").is_some_and(|date| date.ends_with(" GMT")));
    }
}

#[test]
fn a_denial_never_says_to_come_back_at_once() {
    let gate = start();
    gate.post("/v1/spend", r#"{"limit":"Fast","id":"a","cost":20}"#);
    let reply = gate.post("/v1/spend", r#"{"limit":"Fast","id":"a"}"#);
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")));
    assert_eq!(reply.header("ratelimit"), Some(r#""Fast";r=0;t=1"#));
}

#[test]
fn a_bill_is_paid_whole_or_not_at_all() {
    let gate = start();
    gate.post("/v1/spend", r#"{"limit":"Report","id":"7","cost":3}"#);
    let bill = r#"{"charges":[{"limit":"Login","id":"a","cost":2},{"limit":"Report","id":"7"}]}"#;
    let reply = gate.post("/v1/spend", bill);
    let expected = json!({"allowed":false,"remaining":0,"retry_after":1,"reset_after":3,"limit":"Report"});
    assert_eq!((reply.status, reply.json()), (429, expected));
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""Login";q=5;w=60, "Report";q=3;w=3"#));
    assert_eq!(reply.header("ratelimit"), Some(r#""Report";r=0;t=1"#));
    assert_eq!(gate.post("/v1/check", r#"{"limit":"Login","id":"a","cost":0}"#).json()["remaining"], 5);
    let ids =
        r#"{"charges":[{"limit":"Login","id":"a"},{"limit":"Report","id":"8"},{"limit":"Login","id":"b"}]}"#;
    let reply = gate.post("/v1/spend", ids);
    let policies = reply.header("ratelimit-policy");
    assert_eq!(policies, Some(r#""Login";q=5;w=60, "Report";q=3;w=3"#), "each limit once");
}

#[test]
fn spend_only_never_denies_and_check_only_never_takes() {
    let gate = start();
    gate.post("/v1/spend", r#"{"limit":"Report","id":"7","cost":3}"#);
    let spend_only =
        r#"{"charges":[{"limit":"Login","id":"a"},{"limit":"Report","id":"7","kind":"spend_only"}]}"#;
    assert_eq!(gate.post("/v1/spend", spend_only).status, 200);
    let check_only = r#"{"charges":[{"limit":"Login","id":"a","cost":4,"kind":"check_only"}]}"#;
    for _ in 0..3 {
        assert_eq!(gate.post("/v1/spend", check_only).json()["allowed"], true);
    }
    assert_eq!(gate.post("/v1/check", r#"{"limit":"Login","id":"a","cost":0}"#).json()["remaining"], 4);
}

#[test]
fn a_check_without_a_cost_asks_about_one_more_request() {
    let gate = start();
    gate.post("/v1/spend", r#"{"limit":"Login","id":"a","cost":5}"#);
    let reply = gate.post("/v1/check", r#"{"limit":"Login","id":"a"}"#);
    assert_eq!((reply.status, reply.json()["allowed"].as_bool()), (429, Some(false)));
    let reply = gate.post("/v1/check", r#"{"limit":"Login","id":"a","cost":0}"#);
    assert_eq!((reply.status, reply.json()["remaining"].as_u64()), (200, Some(0)));
}

#[test]
fn refunds_give_back_and_resets_forget() {
    let gate = start();
    gate.post("/v1/spend", r#"{"limit":"Login","id":"a","cost":3}"#);
    let reply = gate.post("/v1/refund", r#"{"limit":"Login","id":"a"}"#);
    let expected = json!({"refunded":true,"remaining":3,"reset_after":24,"limit":"Login"});
    assert_eq!((reply.status, reply.json()), (200, expected));
    let reply = gate.post("/v1/refund", r#"{"limit":"Login","id":"nobody"}"#);
    let expected = json!({"refunded":false,"remaining":5,"reset_after":0,"limit":"Login"});
    assert_eq!((reply.status, reply.json()), (200, expected));
    let reply = gate.post("/v1/reset", r#"{"charges":[{"limit":"Login","id":"a"}]}"#);
    assert_eq!((reply.status, reply.json()), (200, json!({"reset":true})));
    assert_eq!(gate.post("/v1/check", r#"{"limit":"Login","id":"a","cost":0}"#).json()["remaining"], 5);
}

#[test]
fn an_id_without_a_limit_is_unlimited() {
    let policy = Policy::new(vec![Limit::new("Free").unwrap()]).unwrap();
    let gate = start_limiter(Engine::new(policy), |_| {});
    let reply = gate.post("/v1/spend", r#"{"limit":"Free","id":"a","cost":9}"#);
    let body = json!({"allowed":true,"remaining":null,"retry_after":0,"reset_after":0,"limit":"Free","unlimited":true});
    assert_eq!((reply.status, reply.json()), (200, body));
    assert_eq!((reply.header("ratelimit"), reply.header("x-ratelimit-limit")), (None, None));
    let reply = gate.post("/v1/refund", r#"{"limit":"Free","id":"a"}"#);
    let body = json!({"refunded":false,"remaining":null,"reset_after":0,"limit":"Free","unlimited":true});
    assert_eq!((reply.status, reply.json()), (200, body));
}

#[test]
fn a_full_store_says_so() {
    let policy = "
max_buckets: 1
limits:
  Strict: { burst: 5, count: 1, period: 1m }
  Open: { burst: 5, count: 1, period: 1m, on_full: allow }
";
    let gate = start_with(policy, |_| {});
    assert_eq!(gate.post("/v1/spend", r#"{"limit":"Strict","id":"first"}"#).status, 200);
    let reply = gate.post("/v1/spend", r#"{"limit":"Strict","id":"second"}"#);
    assert_eq!((reply.status, &reply.json()["reason"]), (429, &json!("full")));
    assert_eq!(reply.header("retry-after"), Some("1"));
    let reply = gate.post("/v1/spend", r#"{"limit":"Open","id":"second"}"#);
    assert_eq!((reply.status, &reply.json()["reason"]), (200, &json!("full")));
}

#[test]
fn a_proxy_gets_a_status_and_headers() {
    let gate = start();
    for (method, query, status) in [
        ("GET", "?limit=Login&id=10.0.0.1&cost=4", 200),
        ("HEAD", "?limit=Login&id=10.0.0.1", 200),
        ("GET", "?limit=Login&id=10.0.0.1", 429),
        ("HEAD", "?limit=Login&id=10.0.0.1&deny_status=403", 403),
        ("GET", "?limit=Login&id=10.0.0.1&deny_status=401", 401),
        ("GET", "?limit=Login&id=10.0.0.1&deny_status=503", 503),
        ("GET", "?limit=Login&id=10.0.0.1&deny_status=404", 400),
        ("GET", "?limit=Login&id=10.0.0.1&cost=0", 200),
        ("GET", "?limit=Login&id=10%2E0.0.1", 429),
        ("GET", "?limit=Login&id=%00%ff", 200),
        ("GET", "?limit=Nobody&id=a", 404),
        ("GET", "?limit=Login&id=", 422),
        ("GET", "?limit=Login&id=a&cost=6", 422),
        // Envoy keeps the method of the original request, and appends its target.
        ("POST", "?limit=Login&id=10.0.0.1", 429),
        ("DELETE", "/a/b?limit=Login&id=10.0.0.1", 429),
        ("PURGE", "?limit=Login&id=10.0.0.1&path=/a?cost=0", 429),
        ("GET", "/?limit=Login&id=10.0.0.1", 429),
        ("GET", "s?limit=Login&id=10.0.0.1", 404),
        // A bill is paid as a whole, or not at all.
        ("GET", "?limit=Fast&id=b&limit=Login&id=10.0.0.1", 429),
        ("GET", "?limit=Fast&id=b&cost=20", 200),
        ("GET", "?limit=Report&id=1&limit=Report&id=01", 422),
        // A rule with its selectors.
        ("GET", "?rule=upload&user=vova", 200),
        ("GET", "?rule=upload&user=vova", 429),
        ("GET", "?rule=upload&user=vova&deny_status=403", 403),
        ("GET", "?rule=upload&user=vova&key=cats", 200),
        ("GET", "?limit=Login&id=both&cost=4&rule=upload&user=both", 200),
        ("GET", "?limit=Login&id=both&rule=upload&user=both", 429),
        ("GET", "?limit=Login&id=both", 200),
        ("GET", "?limit=Login&id=both&rule=upload&user=other", 429),
        ("GET", "?rule=upload&user=other&rule=upload&user=another", 200),
        ("GET", "?rule=upload&user=another&limit=Login&id=anew", 429),
        ("GET", "?limit=Login&id=anew&cost=5", 200),
        ("GET", "?rule=upload&user=%ff", 200),
        ("GET", "?rule=upload", 400),
        ("GET", "?rule=nobody", 404),
    ] {
        let body = (method == "POST").then_some("");
        let reply = gate.request(method, &format!("/v1/gate{query}"), body);
        assert_eq!(reply.status, status, "{method} {query}");
        if query == "?limit=Login&id=10.0.0.1" && status == 429 {
            assert_eq!(reply.header("ratelimit"), Some(r#""Login";r=0;t=12"#));
            assert_eq!(reply.header("retry-after"), Some("12"));
            assert_eq!(reply.header("cache-control"), Some("no-store"));
            assert_eq!(reply.body, "");
        }
    }
    let denied = gate.get("/v1/gate?rule=upload&user=vova");
    assert_eq!((denied.status, denied.header("retry-after")), (429, Some("60")));
}

/// The id that a request was charged to is found by spending all of it, and asking for it by name.
#[test]
fn ids_come_from_headers_of_trusted_proxies_only() {
    let policy = "
        limits:
          Any: { burst: 1, count: 1, period: 1m }
          Ip: { burst: 1, count: 1, period: 1m, id: ip }
          Wide: { burst: 1, count: 1, period: 1m, id: ip, ipv6_prefix: 48 }
          Exact: { burst: 1, count: 1, period: 1m, id: ipAddress }
        gates: { http: { trusted_proxies: TRUSTED } }";
    let trusting = policy.replace("TRUSTED", "[127.0.0.0/8, 10.0.0.0/8]");
    let wary = policy.replace("TRUSTED", "[10.0.0.0/8]");
    for (policy, target, headers, expected) in [
        (&wary, "?limit=Any&id_from=client_ip", "X-Forwarded-For: 192.0.2.1", "Any 127.0.0.1"),
        (&trusting, "?limit=Any&id_from=client_ip", "X-Forwarded-For: 192.0.2.1", "Any 192.0.2.1"),
        (
            &trusting,
            "?limit=Ip&id_from=client_ip",
            "X-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.0.0.7",
            "Ip 192.0.2.1",
        ),
        (
            &trusting,
            "?limit=Ip&id_from=client_ip",
            "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.1",
            "Ip 192.0.2.1",
        ),
        (&trusting, "?limit=Ip&id_from=client_ip", "X-Forwarded-For: 192.0.2.1, \u{e9}", "Ip 127.0.0.1"),
        (
            &trusting,
            "?limit=Any&id_from=client_ip",
            "X-Forwarded-For: 2001:db8:1:2:3::4",
            "Any 2001:db8:1:2::/64",
        ),
        (
            &trusting,
            "?limit=Ip&id_from=client_ip",
            "X-Forwarded-For: [2001:db8:1:2:3::4]:5",
            "Ip 2001:db8:1:2::5",
        ),
        (
            &trusting,
            "?limit=Wide&id_from=client_ip",
            "X-Forwarded-For: 2001:db8:1:2:3::4",
            "Wide 2001:db8:1:9::1",
        ),
        (
            &trusting,
            "?limit=Exact&id_from=client_ip",
            "X-Forwarded-For: 2001:db8:1:2:3::4",
            "Exact 2001:db8:1:2:3::4",
        ),
        (&wary, "?limit=Any&id_from=header:x-api-key", "X-Api-Key: k1", "Any k1"),
        (&wary, "?limit=Any&id_from=header:x-api-key", "X-Other: k1", "400"),
        (&wary, "?limit=Any&id_from=header:x-api-key", "X-Api-Key:", "400"),
        (&wary, "?limit=Any&id_from=header:x-api-key&deny_status=403", "X-Other: k1", "403"),
        (&wary, "?limit=Any&id_from=header:x-api-key&deny_status=429", "X-Api-Key: a\r\nx-api-key: b", "429"),
        (&wary, "?limit=Ip&id_from=header:x-api-key&deny_status=403", "X-Api-Key: not an address", "403"),
        (&wary, "?limit=Nobody&id_from=header:x-api-key&deny_status=403", "X-Api-Key: a", "404"),
        (&wary, "?limit=Any&id_from=header:x-api-key", "X-Api-Key: k1\r\nx-api-key: k1", "400"),
        (&trusting, "?limit=Any&id_from=path", "X-Forwarded-Uri: /a/b?c=d", "Any /a/b"),
        (&trusting, "?limit=Any&id_from=path", "X-Original-URI: /a/b?c=d", "Any /a/b"),
        (&trusting, "?limit=Any&id_from=path", "X-Original-URI: /a\r\nX-Forwarded-Uri: /a", "Any /a"),
        (&trusting, "?limit=Any&id_from=path", "X-Original-URI: /a\r\nX-Forwarded-Uri: /b", "400"),
        (&trusting, "?limit=Any&id_from=path", "X-Original-URI: /a\r\nX-Original-URI: /a", "400"),
        (&wary, "?limit=Any&id_from=path", "X-Original-URI: /a", "400"),
        (&wary, "/a/b?limit=Any&id_from=path", "X-Original-URI: /c", "Any /a/b"),
        (&wary, "?limit=Any&id_from=path&path=/a/b?c=d&limit=e", "X-Original-URI: /c", "Any /a/b"),
        (&trusting, "?limit=Any&id_from=host", "X-Forwarded-Host: Shop.Example.:8443", "Any shop.example"),
        (&trusting, "?limit=Any&id_from=host", "X-Forwarded-Host: [2001:DB8::1]", "Any [2001:db8::1]"),
        (&trusting, "?limit=Any&id_from=host", "X-Other: x", "Any gate"),
        (&wary, "?limit=Any&id_from=host", "X-Forwarded-Host: shop.example", "Any gate"),
        (&trusting, "?limit=Any&id_from=method", "X-Forwarded-Method: PUT", "Any PUT"),
        (&trusting, "?limit=Any&id_from=method", "X-Original-Method: PUT", "Any PUT"),
        (&wary, "?limit=Any&id_from=method", "X-Original-Method: PUT", "Any PATCH"),
    ] {
        let gate = start_with(policy, |_| {});
        let request = format!(
            "PATCH /v1/gate{target} HTTP/1.1\r\nHost: Gate:80\r\n{headers}\r\nConnection: close\r\n\r\n"
        );
        let answer = gate.exchange(request.as_bytes());
        let status = &answer["HTTP/1.1 ".len()..][..3];
        let Some((limit, id)) = expected.split_once(' ') else {
            assert_eq!(status, expected, "{target} {headers}: {answer}");
            continue;
        };
        assert_eq!(status, "200", "{target} {headers}: {answer}");
        assert_eq!(gate.get(&format!("/v1/gate?limit={limit}&id={id}")).status, 429, "{target} {headers}");
    }
}

#[test]
fn a_request_may_bring_its_numbers() {
    let gate = start();
    let spend = |burst: u64, cost: u64| {
        let limit = format!(r#"{{"burst":{burst},"count":1,"period":"10s"}}"#);
        gate.post("/v1/spend", &format!(r#"{{"limit":{limit},"id":"a","cost":{cost}}}"#))
    };
    let body = r#"{"allowed":true,"remaining":1,"retry_after":0,"reset_after":10,"limit":"inline/throttle"}"#;
    let reply = spend(2, 1);
    assert_eq!((reply.status, &*reply.body), (200, body));
    assert_eq!(reply.header("ratelimit"), Some(r#""inline/throttle";r=1;t=10"#));
    assert_eq!(reply.header("ratelimit-policy"), Some(r#""inline/throttle";q=2;w=20"#));
    // The bucket is read under whatever numbers come.
    assert_eq!((spend(1, 1).status, spend(5, 4).status, spend(5, 1).status), (429, 200, 429));
    assert_eq!(gate.post("/v1/spend", r#"{"limit":"Login","id":"a","cost":5}"#).status, 200);
    // A bill has charges of both kinds, all or none.
    let bill = |id: &str| {
        let inline = r#"{"limit":{"count":9,"period":"1h"},"id":"b"}"#;
        gate.post("/v1/spend", &format!(r#"{{"charges":[{inline},{{"limit":"Login","id":"{id}"}}]}}"#))
    };
    assert_eq!((bill("a").json()["limit"].as_str(), bill("c").status), (Some("Login"), 200));
    let left = gate.post("/v1/check", r#"{"limit":{"count":9,"period":"1h"},"id":"b","cost":0}"#);
    assert_eq!(left.json()["remaining"], 8);
    let metrics = gate.get("/metrics").body;
    assert!(metrics.contains(r#"limit="inline/throttle""#), "{metrics}");
    // The empty key is a key, as over RESP.
    let empty = r#"{"limit":{"count":2,"period":"1h"},"id":""}"#;
    let spent = gate.post("/v1/spend", empty);
    assert_eq!((spent.status, spent.json()["remaining"].as_u64()), (200, Some(1)));
}

#[test]
fn the_bucket_of_a_key_is_inspected_and_reset_by_the_name_of_the_inline_limit() {
    let gate = start();
    let inspect = || gate.get("/v1/inspect?limit=inline/throttle&id=a").json();
    let report = |reset_after: u64, state: Value| {
        json!({
            "bucket": "inline/throttle:a", "algorithm": null, "remaining": null, "retry_after": null,
            "reset_after": reset_after, "state": state, "at": "1970-01-01T00:00:00Z",
        })
    };
    assert_eq!(inspect(), report(0, Value::Null));
    let spend = r#"{"limit":{"burst":5,"count":1,"period":"10s"},"id":"a","cost":3}"#;
    assert_eq!(gate.post("/v1/spend", spend).status, 200);
    assert_eq!(inspect(), report(30, json!({"full_at": "1970-01-01T00:00:30Z"})));
    let by_name = r#"{"limit":"inline/throttle","id":"a"}"#;
    for verb in ["spend", "check", "refund"] {
        let refused = gate.post(&format!("/v1/{verb}"), by_name);
        assert_eq!(refused.status, 422);
        assert!(
            refused.body.contains("has no numbers of its own; send them with the request"),
            "{}",
            refused.body
        );
    }
    assert_eq!(gate.post("/v1/reset", by_name).status, 200);
    assert_eq!(inspect(), report(0, Value::Null));
    assert_eq!(gate.get("/v1/inspect?limit=inline/nope&id=a").status, 404);
}

#[test]
fn numbers_are_taken_on_loopback_or_where_they_are_allowed() {
    let body = r#"{"limit":{"count":1,"period":1},"id":"a"}"#;
    for (listen, setting, expected) in [
        ("127.0.0.1:0", "", 200),
        ("127.0.0.1:0", "inline: deny", 403),
        ("0.0.0.0:0", "", 403),
        ("0.0.0.0:0", "inline: allow", 200),
    ] {
        let policy = format!("gates: {{ http: {{ {setting} }} }}\n{POLICY}");
        let gate = start_with(&policy, |settings| settings.gates.http = Some(listen.parse().unwrap()));
        let port = gate.server.http_addr().unwrap().port();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let length = body.len();
        write!(stream, "POST /v1/spend HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        let answer = read_all(&mut stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{listen} {setting}: {answer}");
        let says_how = answer.contains(r#"set \"inline: allow\" at gates.http"#);
        assert_eq!(says_how, expected == 403, "{answer}");
    }
}

#[test]
fn clients_of_throttlecrab_are_answered_in_their_words() {
    let gate = start_with(&format!("gates: {{ http: {{ throttlecrab: true }} }}\n{POLICY}"), |_| {});
    let ask = |numbers: &str| {
        let reply =
            gate.post("/throttle", &format!(r#"{{"key":"k","count_per_period":1,"period":10,{numbers}}}"#));
        assert_eq!(reply.header("content-type"), Some("application/json"));
        format!("{} {}", reply.status, reply.body)
    };
    for (numbers, expected) in [
        (
            r#""max_burst":3"#,
            r#"200 {"allowed":true,"limit":3,"remaining":2,"reset_after":10,"retry_after":0}"#,
        ),
        (
            r#""max_burst":3,"quantity":0"#,
            r#"200 {"allowed":true,"limit":3,"remaining":2,"reset_after":10,"retry_after":0}"#,
        ),
        (
            r#""max_burst":3,"quantity":2,"more":{}"#,
            r#"200 {"allowed":true,"limit":3,"remaining":0,"reset_after":30,"retry_after":20}"#,
        ),
        (
            r#""max_burst":3,"quantity":null"#,
            r#"200 {"allowed":false,"limit":3,"remaining":0,"reset_after":30,"retry_after":10}"#,
        ),
        (
            r#""max_burst":3,"quantity":4"#,
            r#"200 {"allowed":false,"limit":3,"remaining":0,"reset_after":30,"retry_after":40}"#,
        ),
        (r#""max_burst":3,"quantity":-1"#, r#"400 {"error":"\"quantity\" must not be below 0"}"#),
        (r#""max_burst":0"#, r#"400 {"error":"\"max_burst\" must be above zero"}"#),
        (r#""max_burst":9223372036854775808"#, "400 "),
        (r#""max_burst":9223372036854775807"#, "400 "),
        (r#""quantity":1"#, "400 "),
    ] {
        let answer = ask(numbers);
        assert!(answer.starts_with(expected), "{numbers}: {answer}");
    }
    let off = start().post("/throttle", "{}");
    assert_eq!(off.status, 404);
    assert!(off.body.contains("throttlecrab: true"), "{}", off.body);
}

#[test]
fn mistakes_get_problem_documents() {
    let gate = start();
    for (method, path, body, status, name, field) in [
        ("POST", "/v1/spend", r#"{"limit":"Logn","id":"a"}"#, 404, "unknown-limit", Some("limit")),
        ("POST", "/v1/spend", r#"{"limit":"Login","id":""}"#, 422, "bad-id", Some("id")),
        ("POST", "/v1/spend", r#"{"limit":"Report","id":"x"}"#, 422, "bad-id", Some("id")),
        ("POST", "/v1/spend", r#"{"limit":"Login","id":"a","cost":6}"#, 422, "cost-too-high", Some("cost")),
        ("POST", "/v1/spend", r#"{"limit":"Login","id":"a","cost":-1}"#, 400, "malformed", Some("cost")),
        ("POST", "/v1/refund", r#"{"limit":"Login"}"#, 400, "malformed", Some("id")),
        ("POST", "/v1/reset", "", 400, "malformed", None),
        // In a bill, the field says in which charge or rule.
        (
            "POST",
            "/v1/spend",
            r#"{"charges":[{"limit":"Login","id":"a"},{"limit":"Login","id":"b","cost":6}]}"#,
            422,
            "cost-too-high",
            Some("charges[1].cost"),
        ),
        (
            "POST",
            "/v1/check",
            r#"{"charges":[{"limit":"Login","id":"a"},{"limit":"Logn","id":"b"}]}"#,
            404,
            "unknown-limit",
            Some("charges[1].limit"),
        ),
        (
            "POST",
            "/v1/refund",
            r#"{"charges":[{"limit":"Report","id":"x"}]}"#,
            422,
            "bad-id",
            Some("charges[0].id"),
        ),
        (
            "POST",
            "/v1/spend",
            r#"{"limit":"Login","id":"a","rules":[{"rule":"uplod"}]}"#,
            404,
            "unknown-rule",
            Some("rules[0].rule"),
        ),
        (
            "POST",
            "/v1/spend",
            r#"{"charges":[{"limit":"Login","id":"a"},{"limit":"Login","id":"a"}]}"#,
            422,
            "bad-bill",
            Some("charges"),
        ),
        (
            "POST",
            "/v1/refund",
            r#"{"charges":[{"limit":"Report","id":"7"},{"limit":"Report","id":"07"}]}"#,
            422,
            "bad-bill",
            Some("charges"),
        ),
        ("GET", "/v1/spend", "", 405, "method-not-allowed", None),
        ("DELETE", "/metrics", "", 405, "method-not-allowed", None),
        ("GET", "/nowhere", "", 404, "not-found", None),
        ("GET", "/v1/spend/", "", 404, "not-found", None),
    ] {
        let reply = gate.request(method, path, (method == "POST").then_some(body));
        assert_eq!(reply.status, status, "{method} {path} {body}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        let problem = reply.json();
        assert_eq!(problem["type"], format!("urn:problem-type:tollway:{name}"), "{body}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem.get("field").and_then(|field| field.as_str()), field, "{body}");
        assert!(
            !problem["title"].as_str().unwrap().is_empty() && !problem["detail"].as_str().unwrap().is_empty()
        );
        let allow = (status == 405).then_some(if path == "/metrics" { "GET, HEAD" } else { "POST" });
        assert_eq!(reply.header("allow"), allow);
    }
}

#[test]
fn a_content_type_with_parameters_and_chunks_will_do() {
    let gate = start();
    let body = r#"{"limit":"Login","id":"a"}"#;
    let chunked = format!(
        "POST /v1/spend HTTP/1.1\r\nHost: x\r\nContent-Type: Application/JSON; charset=utf-8\r\n\
         Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        &body[..5],
        body.len() - 5,
        &body[5..]
    );
    assert!(gate.exchange(chunked.as_bytes()).starts_with("HTTP/1.1 200 OK\r\n"));
    let patient = "POST /v1/spend HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 26\r\n\r\n";
    assert!(gate.exchange(format!("{patient}{body}").as_bytes()).contains("\r\nConnection: close\r\n"));
}

#[test]
fn a_client_that_waits_to_be_told_is_told_to_go_on() {
    use std::io::{Read, Write};
    let gate = start();
    let mut stream = gate.connect();
    let head = "POST /v1/spend HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/json\r\n\
                Content-Length: 26\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut line = [0; 25];
    stream.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(br#"{"limit":"Login","id":"a"}"#).unwrap();
    assert!(read_all(&mut stream).starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn health_readiness_and_the_interface_are_there() {
    let gate = start();
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(gate.get(path).status, 200, "{path}");
        let head = gate.request("HEAD", path, None);
        assert_eq!((head.status, &*head.body), (200, ""), "{path}");
        assert!(head.header("content-length").is_some_and(|length| length != "0"), "{path}");
    }
}

fn metric(gate: &Harness, line: &str) -> Option<f64> {
    let page = gate.get("/metrics").body;
    page.lines().find_map(|sample| sample.strip_prefix(line)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn metrics_count_by_limit_and_never_by_id() {
    let gate = start();
    for _ in 0..7 {
        gate.post("/v1/spend", r#"{"limit":"Login","id":"mallory"}"#);
    }
    gate.post("/v1/check", r#"{"limit":"Login","id":"mallory","cost":0}"#);
    gate.post("/v1/refund", r#"{"limit":"Login","id":"mallory"}"#);
    gate.post("/v1/reset", r#"{"limit":"Login","id":"mallory"}"#);
    gate.post("/v1/spend", r#"{"limit":"NotOurs","id":"mallory"}"#);
    for (line, value) in [
        (r#"tollway_decisions_total{limit="Login",verb="spend",outcome="allow"}"#, 5.0),
        (r#"tollway_decisions_total{limit="Login",verb="spend",outcome="deny"}"#, 2.0),
        (r#"tollway_decisions_total{limit="Login",verb="check",outcome="allow"}"#, 1.0),
        (r#"tollway_refunds_total{limit="Login"}"#, 1.0),
        (r#"tollway_resets_total{limit="Login"}"#, 1.0),
        (r#"tollway_limit_units{limit="Login",algorithm="token_bucket"}"#, 5.0),
        (r#"tollway_limit_window_seconds{limit="Login",algorithm="token_bucket"}"#, 60.0),
        (r#"tollway_limit_overrides{limit="Login"}"#, 1.0),
        (r#"tollway_http_responses_total{status="4xx"}"#, 3.0),
        ("tollway_request_seconds_count", 10.0),
        (r#"tollway_request_seconds_bucket{le="+Inf"}"#, 10.0),
        ("tollway_buckets_max", 10_000_000.0),
        ("tollway_client_buckets", 0.0),
        ("tollway_client_buckets_max", 5_000_000.0),
        (r#"tollway_reloads_total{outcome="ok"}"#, 0.0),
    ] {
        assert_eq!(metric(&gate, line), Some(value), "{line}");
    }
    let page = gate.get("/metrics").body;
    assert!(!page.contains("mallory") && !page.contains("NotOurs"));
}

#[test]
fn an_idle_server_forgets_what_says_nothing_any_more() {
    let gate = start();
    for id in 0..100 {
        gate.post("/v1/spend", &format!(r#"{{"limit":"Login","id":"{id}"}}"#));
    }
    assert_eq!(metric(&gate, "tollway_buckets"), Some(100.0));
    gate.clock.set(gate.clock.now() + Nanos::from_secs(3_600));
    // Nobody asks for anything but this page, for some seconds at most.
    let looks = std::iter::repeat_with(|| metric(&gate, "tollway_buckets")).take(100_000);
    assert!(looks.into_iter().any(|buckets| buckets == Some(0.0)), "the buckets stay");
    assert!(metric(&gate, "tollway_sweeps_total") > Some(0.0));
    assert_eq!(metric(&gate, "tollway_buckets_swept_total"), Some(100.0));
}

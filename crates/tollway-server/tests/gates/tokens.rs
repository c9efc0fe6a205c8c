//! Tokens over real sockets: every path, command and call with no token, a wrong one, and one of each scope.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use prost::Message;
use serde_json::Value;
use tollway::store::{NodeHealth, NodeState};
use tollway_server::{OpenGatesError, Scope, Server, Settings};
use tollway_testbed::{TEST_TIMEOUT, eventually};
use tollway_wire::rls::SHOULD_RATE_LIMIT;
use tonic::Code;

use crate::support::config_file::WatchedFile;
use crate::support::http2::{DATA, END_STREAM, HEADERS, RawConnection};
use crate::support::rls::{RateLimitResponse, RlsClient, request};
use crate::support::tokens::Tokens;
use crate::support::{Harness, Reply, any_ports, read_all, start_limiter, start_with};

pub(crate) const POLICY: &str = "
limits:
  Login: { burst: 1000, count: 1000, period: 1m }
  Fast: { burst: 20, count: 20, period: 1s }
rules:
  upload: 1000000/h
gates: { http: { throttlecrab: true } }
domain: shop
descriptors:
- {key: account, rate_limit: {unit: hour, requests_per_unit: 1000}}
";

const LOGIN: &str = r#"{"limit":"Login","id":"a"}"#;
const WRONG: &str = "tw_0000000000000000000000000000000000000000000000000000000000000000";

fn start(tokens: &Tokens) -> Harness {
    start_with(POLICY, |settings| {
        let gates = &mut settings.gates;
        gates.admin = Some("127.0.0.1:0".parse().unwrap());
        for access in
            [&mut gates.http_access, &mut gates.admin_access, &mut gates.resp_access, &mut gates.rls_access]
        {
            *access = tokens.access();
        }
    })
}

/// The gate that is asked, the method, the target, the body, the scope that it needs (if any), and the status for a
/// client that has it.
type AskedPath = (&'static str, &'static str, &'static str, &'static str, Option<Scope>, u16);

/// Every path.
#[rustfmt::skip]
const PATHS: [AskedPath; 30] = [
    ("http", "POST", "/v1/spend", LOGIN, Some(Scope::Decide), 200),
    ("http", "POST", "/v1/check", LOGIN, Some(Scope::Decide), 200),
    ("http", "GET", "/v1/gate?limit=Login&id=a", "", Some(Scope::Decide), 200),
    ("http", "GET", "/v1/gate/below?limit=Login&id=a", "", Some(Scope::Decide), 200),
    ("http", "POST", "/v1/rules/{name}", "{}", Some(Scope::Decide), 200),
    ("http", "POST", "/json", r#"{"domain":"shop","descriptors":[{"entries":[{"key":"account","value":"a"}]}]}"#, Some(Scope::Decide), 200),
    ("http", "POST", "/throttle", r#"{"key":"k","max_burst":99,"count_per_period":99,"period":60}"#, Some(Scope::Decide), 200),
    ("http", "POST", "/v1/refund", LOGIN, Some(Scope::Refund), 200),
    ("http", "GET", "/openapi.json", "", Some(Scope::Read), 200),
    ("http", "GET", "/healthz", "", None, 200),
    ("http", "GET", "/readyz", "", None, 200),
    ("admin", "POST", "/v1/refund", LOGIN, Some(Scope::Refund), 200),
    ("admin", "POST", "/v1/reset", LOGIN, Some(Scope::Admin), 200),
    ("admin", "POST", "/v1/explain", r#"{"rule":"upload"}"#, Some(Scope::Read), 200),
    ("admin", "GET", "/v1/inspect?limit=Login&id=a", "", Some(Scope::Read), 200),
    ("admin", "GET", "/v1/keys", "", Some(Scope::Read), 501),
    ("admin", "GET", "/v1/buckets", "", Some(Scope::Admin), 200),
    ("admin", "POST", "/v1/buckets", r#"{"export":"AAAA"}"#, Some(Scope::Admin), 422),
    ("admin", "GET", "/v1/top", "", Some(Scope::Read), 200),
    // By GET the answer would not end.
    ("admin", "HEAD", "/v1/live", "", Some(Scope::Read), 200),
    ("admin", "HEAD", "/v1/live?all&sample=16", "", Some(Scope::Admin), 200),
    ("admin", "GET", "/metrics", "", Some(Scope::Read), 200),
    ("admin", "GET", "/openapi.json", "", Some(Scope::Read), 200),
    ("admin", "GET", "/healthz", "", None, 200),
    ("admin", "GET", "/readyz", "", None, 200),
    ("admin", "GET", "/", "", None, 200),
    ("admin", "GET", "/console.css", "", None, 200),
    ("admin", "GET", "/console.js", "", None, 200),
    ("admin", "GET", "/icon.svg", "", None, 200),
    // A path that is at no gate tells nothing about tokens.
    ("http", "GET", "/nowhere", "", None, 404),
];

#[test]
fn every_path_needs_its_scope_and_no_other() {
    let tokens = Tokens::new();
    let server = start(&tokens);
    let mut asked = BTreeSet::new();
    for (gate, method, target, body, needed, ok) in PATHS {
        let address = if gate == "http" { server.server.http_addr() } else { server.server.admin_addr() };
        let url = format!("http://{}{}", address.unwrap(), target.replace("{name}", "upload"));
        let ask = |token: Option<&str>| {
            Harness::request_with(&url, method, (method == "POST").then_some(body), token)
        };
        let no_token = needed.map_or((ok, ""), |_| (401, "no-token"));
        let wrong = needed.map_or((ok, ""), |_| (401, "unknown-token"));
        let callers = Scope::ALL.map(|scope| {
            let expected = match needed {
                Some(needed) if scope != needed && scope != Scope::Admin => (403, "missing-scope"),
                _ => (ok, ""),
            };
            (Some(tokens.of(scope.name())), expected)
        });
        let first_half = &tokens.of("admin")[..30];
        for (token, (status, problem)) in callers.into_iter().chain([
            (None, no_token),
            (Some(WRONG), wrong),
            (Some(first_half), wrong),
            (Some(&*"x".repeat(600)), wrong),
        ]) {
            let reply = ask(token);
            let what = format!("{gate} {method} {target} {token:?}");
            assert_eq!(reply.status, status, "{what}: {}", reply.body);
            if !problem.is_empty() && method != "HEAD" {
                assert_eq!(reply.json()["type"], format!("urn:problem-type:tollway:{problem}"), "{what}");
            }
            assert_eq!(reply.header("www-authenticate").is_some(), status == 401, "{what}");
            assert!(!tokens.secrets().any(|secret| reply.body.contains(secret)), "{what}");
        }
        asked.insert(target.split('?').next().unwrap().to_owned());
    }
    let http = server.url("/openapi.json");
    let document = Harness::request_with(&http, "GET", None, Some(tokens.of("read"))).json();
    let documented: BTreeSet<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(documented.difference(&asked).collect::<Vec<_>>(), [""; 0], "every documented path was asked");
}

/// Sends a request by hand, over a new connection.
fn send(address: SocketAddr, line: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}");
    write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
    read_all(&mut stream)
}

#[test]
fn only_one_header_with_the_scheme_bearer_has_a_token() {
    let tokens = Tokens::new();
    let server = start(&tokens);
    let (http, token) = (server.server.http_addr().unwrap(), tokens.of("decide"));
    for (headers, status) in [
        (format!("Authorization: Bearer {token}\r\n"), 200),
        (format!("authorization: bearer  {token} \r\n"), 200),
        (format!("Authorization: Bearer {token}\r\nAuthorization: Bearer {token}\r\n"), 401),
        (format!("Authorization: Bearer {token}\r\nAuthorization: Bearer {WRONG}\r\n"), 401),
        (format!("Authorization: {token}\r\n"), 401),
        (format!("Authorization: Basic {token}\r\n"), 401),
        (format!("Authorization: Bearer{token}\r\n"), 401),
        (format!("Authorization: Bearer {token} {token}\r\n"), 401),
        (format!("X-Authorization: Bearer {token}\r\n"), 401),
        (format!("Cookie: token={token}\r\n"), 401),
    ] {
        let answer = send(http, "POST /v1/check", &format!("Host: a\r\n{headers}"), LOGIN);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}: {answer}");
    }
    let target = format!("POST /v1/check?token={token}&access_token={token}");
    assert!(send(http, &target, "Host: a\r\n", LOGIN).starts_with("HTTP/1.1 401 "));
}

#[test]
fn a_request_that_is_refused_does_nothing() {
    let tokens = Tokens::new();
    let server = start(&tokens);
    let (http, admin) = (server.server.http_addr().unwrap(), server.server.admin_addr().unwrap());
    let ask = |address: SocketAddr, path: &str, token: Option<&str>| {
        let url = format!("http://{address}{path}");
        Harness::request_with(&url, "POST", Some(r#"{"limit":"Login","id":"a","cost":5}"#), token)
    };
    assert_eq!(ask(http, "/v1/spend", Some(tokens.of("decide"))).json()["remaining"], 995);
    for (address, path, scopes) in [
        (http, "/v1/spend", ["refund", "read"]),
        (http, "/v1/refund", ["decide", "read"]),
        (admin, "/v1/refund", ["decide", "read"]),
        (admin, "/v1/reset", ["decide", "refund"]),
    ] {
        let others = scopes.map(|scope| Some(tokens.of(scope)));
        for token in others.into_iter().chain([None, Some(WRONG)]) {
            let status = ask(address, path, token).status;
            assert!(status == 401 || status == 403, "{path} {status}");
        }
    }
    let check = r#"{"limit":"Login","id":"a","cost":0}"#;
    let left =
        Harness::request_with(&server.url("/v1/check"), "POST", Some(check), Some(tokens.of("decide")));
    assert_eq!(left.json()["remaining"], 995);
    let page =
        Harness::request_with(&format!("http://{admin}/metrics"), "GET", None, Some(tokens.of("read"))).body;
    for line in [
        "tollway_access_denied_total{reason=\"no_token\"} 4",
        "tollway_access_denied_total{reason=\"unknown_token\"} 4",
        "tollway_access_denied_total{reason=\"missing_scope\"} 8",
    ] {
        assert!(page.contains(line), "{line}");
    }
    assert!(!tokens.secrets().any(|secret| page.contains(secret)));
}

/// A browser adds no token by itself, and a token does not make a page of another site welcome.
#[test]
fn pages_of_other_sites_and_names_that_point_here_are_refused_with_a_token_as_well() {
    let tokens = Tokens::new();
    let server = start(&tokens);
    let (http, admin) = (server.server.http_addr().unwrap(), server.server.admin_addr().unwrap());
    let token = format!("Authorization: Bearer {}\r\n", tokens.of("admin"));
    for (address, line, body) in [(http, "POST /v1/spend", LOGIN), (admin, "POST /v1/reset", LOGIN)] {
        for (sender, without, with) in [
            (format!("Host: {address}\r\nOrigin: https://evil.example\r\n"), 403, 403),
            (format!("Host: {address}\r\nSec-Fetch-Site: cross-site\r\n"), 403, 403),
            ("Host: evil.example\r\nOrigin: http://evil.example\r\n".to_owned(), 421, 421),
            (format!("Host: {address}\r\nOrigin: http://{address}\r\n"), 401, 200),
        ] {
            for (headers, status) in [(sender.clone(), without), (sender + &token, with)] {
                let answer = send(address, line, &headers, body);
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line} {headers}: {answer}");
                assert!(!answer.to_lowercase().contains("access-control-"), "{answer}");
            }
        }
        // A browser asks for leave before it sends a token for a page of another site, and gets none.
        let preflight = format!(
            "Host: {address}\r\nOrigin: https://evil.example\r\nAccess-Control-Request-Headers: authorization\r\n"
        );
        let path = line.split(' ').nth(1).unwrap();
        let answer = send(address, &format!("OPTIONS {path}"), &preflight, "");
        assert!(answer.starts_with("HTTP/1.1 405 ") && !answer.to_lowercase().contains("access-control-"));
    }
    let rebound = format!("Host: evil.example\r\n{token}");
    for path in ["/metrics", "/v1/inspect?limit=Login&id=a", "/v1/top"] {
        let answer = send(admin, &format!("GET {path}"), &rebound, "");
        assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    }
}

#[test]
fn a_token_for_some_limits_is_good_for_no_others() {
    let mut tokens = Tokens::new();
    tokens.add("shop", Scope::Admin, Some("Log*,envoy/*"));
    tokens.add("rules", Scope::Admin, Some("upl?ad,inline/*"));
    let server = start(&tokens);
    let (http, admin) = (server.server.http_addr().unwrap(), server.server.admin_addr().unwrap());
    let both = r#"{"charges":[{"limit":"Login","id":"b"},{"limit":"Fast","id":"b"}]}"#;
    let with_rule = r#"{"limit":"Login","id":"b","rules":[{"rule":"upload"}]}"#;
    let fast = r#"{"limit":"Fast","id":"b"}"#;
    let inline = r#"{"limit":{"count":2,"period":60},"id":"a"}"#;
    let throttle = r#"{"key":"k","max_burst":99,"count_per_period":99,"period":60}"#;
    let account = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"account","value":"a"}]}]}"#;
    let give_back = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"account","value":"a"}],"isNegativeHits":true}]}"#;
    for (address, method, path, body, shop, rules) in [
        (http, "POST", "/v1/spend", LOGIN, 200, 403),
        (http, "POST", "/v1/spend", fast, 403, 403),
        (http, "POST", "/v1/spend", both, 403, 403),
        (http, "POST", "/v1/spend", with_rule, 403, 403),
        (http, "POST", "/v1/spend", r#"{"rules":[{"rule":"upload"}]}"#, 403, 200),
        (http, "POST", "/v1/spend", inline, 403, 200),
        (http, "POST", "/v1/check", fast, 403, 403),
        (http, "POST", "/v1/refund", LOGIN, 200, 403),
        (http, "POST", "/v1/refund", fast, 403, 403),
        (http, "POST", "/v1/rules/upload", "{}", 403, 200),
        (http, "POST", "/throttle", throttle, 403, 200),
        (http, "POST", "/json", account, 200, 403),
        (http, "POST", "/json", give_back, 200, 403),
        (http, "GET", "/v1/gate?limit=Login&id=b", "", 200, 403),
        (http, "GET", "/v1/gate?limit=Fast&id=b", "", 403, 403),
        (http, "GET", "/v1/gate?limit=Fast&id=b&deny_status=429", "", 429, 429),
        (admin, "POST", "/v1/reset", LOGIN, 200, 403),
        (admin, "POST", "/v1/reset", fast, 403, 403),
        (admin, "POST", "/v1/explain", r#"{"rule":"upload"}"#, 403, 200),
        (admin, "POST", "/v1/explain", r#"{"rule":"10/s"}"#, 403, 403),
        (admin, "GET", "/v1/inspect?limit=Login&id=b", "", 200, 403),
        (admin, "GET", "/v1/inspect?limit=Fast&id=b", "", 403, 403),
        (admin, "GET", "/v1/keys", "", 403, 403),
        (admin, "GET", "/v1/keys?limit=Login", "", 501, 403),
        (admin, "GET", "/v1/top", "", 403, 403),
        (admin, "GET", "/v1/top?limit=Login", "", 200, 403),
        (admin, "GET", "/v1/live", "", 403, 403),
        (admin, "GET", "/metrics", "", 403, 403),
        (admin, "GET", "/openapi.json", "", 200, 200),
    ] {
        for (name, status) in [("shop", shop), ("rules", rules)] {
            let url = format!("http://{address}{path}");
            let body = (method == "POST").then_some(body);
            let reply = Harness::request_with(&url, method, body, Some(tokens.of(name)));
            assert_eq!(reply.status, status, "{name} {method} {path} {body:?}: {}", reply.body);
        }
    }
    let denied = |body: &str, name: &str| {
        let reply =
            Harness::request_with(&server.url("/v1/spend"), "POST", Some(body), Some(tokens.of(name)));
        reply.json()["field"].as_str().map(str::to_owned)
    };
    assert_eq!(denied(both, "shop").as_deref(), Some("charges[1].limit"));
    assert_eq!(denied(both, "rules").as_deref(), Some("charges[0].limit"));
    assert_eq!(denied(with_rule, "shop").as_deref(), Some("rules[0].rule"));
    assert_eq!(denied(fast, "shop").as_deref(), Some("limit"));
    let left = Harness::request_with(&server.url("/v1/check"), "POST", Some(fast), Some(tokens.of("decide")));
    assert_eq!(left.json()["remaining"], 19, "what was refused took nothing");
}

/// Every command of Redis clients, the scope that it needs, and how the reply begins if the client has it.
const COMMANDS: [(&str, Option<Scope>, &str); 18] = [
    ("CL.THROTTLE k 99 99 60", Some(Scope::Decide), "*5 :0 "),
    ("CL.THROTTLE k 99 99 60 -1", Some(Scope::Refund), "*5 :0 "),
    ("THROTTLE k 99 99 60", Some(Scope::Decide), "*5 :1 "),
    ("TOLL SPEND Login a", Some(Scope::Decide), "*10 \"allowed\" :1 "),
    ("TOLL CHECK Login a", Some(Scope::Decide), "*10 \"allowed\" :1 "),
    ("TOLL SPEND Login a 1 Fast a 1", Some(Scope::Decide), "*10 \"allowed\" :1 "),
    ("TOLL REFUND Login a", Some(Scope::Refund), "*8 \"refunded\" "),
    ("TOLL RESET Login a", Some(Scope::Admin), "*2 \"reset\" :1"),
    ("TTL k", Some(Scope::Read), ":1"),
    ("PTTL k", Some(Scope::Read), ":1213"),
    ("DEL k", Some(Scope::Admin), ":1"),
    ("PING", None, "+PONG"),
    ("ECHO hi", None, "\"hi\""),
    ("SELECT 0", None, "+OK"),
    ("CLIENT GETNAME", None, "$-1"),
    ("COMMAND COUNT", None, ":20"),
    ("INFO", None, "\"# Server"),
    ("CONFIG GET save", None, "*0"),
];

#[test]
fn every_command_needs_its_scope_and_no_other() {
    let tokens = Tokens::new();
    let server = start(&tokens);
    for (command, needed, ok) in COMMANDS {
        assert_eq!(server.redis().ask(command), "-NOAUTH Authentication required.", "{command}");
        let mut client = server.redis();
        let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
        for login in [format!("AUTH {WRONG}"), format!("AUTH default {WRONG}"), format!("AUTH ops {WRONG}")] {
            assert_eq!(client.ask(&login), wrong);
        }
        assert_eq!(client.ask(command), "-NOAUTH Authentication required.", "{command}");
        for scope in Scope::ALL {
            let mut client = server.redis();
            assert_eq!(client.ask(&format!("AUTH {}", tokens.of(scope.name()))), "+OK");
            let reply = client.ask(command);
            match needed {
                Some(needed) if scope != needed && scope != Scope::Admin => {
                    let expected = format!("-NOPERM the token lacks the scope \"{}\"", needed.name());
                    assert_eq!(reply, expected, "{command} {scope:?}");
                }
                _ => {
                    assert!(
                        reply.starts_with(ok) && !reply.starts_with("-NO"),
                        "{command} {scope:?}: {reply}"
                    )
                }
            }
        }
    }
}

/// Numbers that a worker has parsed are not parsed again, but every connection is checked.
#[test]
fn numbers_that_another_redis_client_sent_are_no_login() {
    let mut tokens = Tokens::new();
    tokens.add("shop", Scope::Decide, Some("Login"));
    let server = start_with(POLICY, |settings| {
        settings.workers = 1;
        settings.gates.resp_access = tokens.access();
    });
    let (command, mut client) = ("CL.THROTTLE k 9 1 60", server.redis());
    assert_eq!(client.ask(&format!("AUTH {}", tokens.of("decide"))), "+OK");
    assert_eq!(client.ask(command), "*5 :0 :10 :9 :-1 :60");
    assert!(server.redis().ask(command).starts_with("-NOAUTH "));
    let mut shop = server.redis();
    assert_eq!(shop.ask(&format!("AUTH {}", tokens.of("shop"))), "+OK");
    assert!(shop.ask(command).starts_with("-NOPERM "));
    assert!(shop.ask(command).starts_with("-NOPERM "));
    assert_eq!(client.ask(command), "*5 :0 :10 :8 :-1 :120");
}

#[test]
fn a_redis_client_logs_in_by_a_token_and_its_name() {
    let mut tokens = Tokens::new();
    tokens.add("shop", Scope::Admin, Some("Login"));
    let server = start(&tokens);
    let token = tokens.of("decide");
    let mut client = server.redis();
    let no_auth = client.ask("HELLO 3");
    assert!(
        no_auth.starts_with("-NOAUTH HELLO must be called with the client already authenticated"),
        "{no_auth}"
    );
    assert!(client.ask(&format!("HELLO 3 AUTH refund {token}")).starts_with("-WRONGPASS "));
    assert!(client.ask(&format!("HELLO 3 AUTH decide {token}")).contains("proto"));
    assert_eq!(client.ask("PING"), "+PONG");
    // A wrong password does not end a session, and RESET does.
    assert!(client.ask(&format!("AUTH {WRONG}")).starts_with("-WRONGPASS "));
    assert_eq!(client.ask("PING"), "+PONG");
    assert_eq!(client.ask("RESET"), "+RESET");
    assert!(client.ask("PING").starts_with("-NOAUTH "));
    for login in [format!("AUTH default {token}"), format!("AUTH decide {token}")] {
        assert_eq!(server.redis().ask(&login), "+OK");
    }
    assert_eq!(server.redis().ask("QUIT"), "+OK");

    let mut shop = server.redis();
    assert_eq!(shop.ask(&format!("AUTH shop {}", tokens.of("shop"))), "+OK");
    assert!(shop.ask("TOLL SPEND Login a").starts_with("*10 \"allowed\" :1 "));
    let other = "-NOPERM the token is for other limits and rules than";
    for (command, name) in [
        ("TOLL SPEND Fast a", "Fast"),
        ("TOLL SPEND Login a 1 Fast a 1", "Fast"),
        ("TOLL RESET Fast a", "Fast"),
        ("CL.THROTTLE k 1 1 60", "inline/throttle"),
        ("DEL k", "inline/throttle"),
    ] {
        assert_eq!(shop.ask(command), format!("{other} \"{name}\""), "{command}");
    }
    // What a transaction may not do is refused when it is queued, and nothing of it is done.
    assert_eq!(shop.ask("MULTI"), "+OK");
    assert_eq!(shop.ask("TOLL SPEND Login m"), "+QUEUED");
    assert!(shop.ask("CL.THROTTLE k 1 1 60").starts_with("-NOPERM "));
    assert!(shop.ask("EXEC").starts_with("-EXECABORT "));
    assert!(shop.ask("TOLL CHECK Login m 0").contains("\"remaining\" :1000"));
}

#[test]
fn every_call_needs_its_scope() {
    let tokens = Tokens::new();
    let server = start(&tokens);
    let address = server.server.rls_addr().unwrap();
    let ask = |authorization: Option<&str>| {
        let mut client = RlsClient::new(address);
        authorization.into_iter().for_each(|text| client.authorize(text));
        client.call::<_, RateLimitResponse>(SHOULD_RATE_LIMIT, request("shop", &[("account", "a")]))
    };
    let code = |authorization: Option<&str>| ask(authorization).map_err(|status| status.code()).err();
    assert_eq!(code(None), Some(Code::Unauthenticated));
    for wrong in [format!("Bearer {WRONG}"), format!("Basic {}", tokens.of("admin")), "Bearer".to_owned()] {
        assert_eq!(code(Some(&wrong)), Some(Code::Unauthenticated), "{wrong}");
    }
    for scope in Scope::ALL {
        let expected = match scope {
            Scope::Decide | Scope::Admin => None,
            Scope::Refund | Scope::Read => Some(Code::PermissionDenied),
        };
        assert_eq!(code(Some(&format!("Bearer {}", tokens.of(scope.name())))), expected, "{scope:?}");
    }
    let mut give_back = request("shop", &[("account", "a")]);
    give_back.descriptors[0].is_negative_hits = true;
    for (scope, expected) in [("decide", Some(Code::PermissionDenied)), ("admin", None)] {
        let mut client = RlsClient::new(address);
        client.authorize(&format!("Bearer {}", tokens.of(scope)));
        let answered = client.ask(give_back.clone());
        assert_eq!(answered.map_err(|status| status.code()).err(), expected, "{scope}");
    }
    // Health needs no token, and the descriptions of messages need one that reads.
    let empty: &[&[u8]] = &[&[0; 5]];
    let status = |path| RlsClient::new(address).send(path, empty).map(|status| status.code());
    assert_eq!(status("/grpc.health.v1.Health/Check"), None);
    assert_eq!(
        status("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
        Some(Code::Unauthenticated)
    );
}

/// The token is sent on a connection that stays open, and removed from the file meanwhile.
#[test]
fn a_token_that_is_removed_stops_to_work_on_open_connections() {
    let tokens = Tokens::new();
    let server = start(&tokens);
    let mut redis = server.redis();
    assert_eq!(redis.ask(&format!("AUTH {}", tokens.of("decide"))), "+OK");
    let mut rls = RlsClient::new(server.server.rls_addr().unwrap());
    rls.authorize(&format!("Bearer {}", tokens.of("decide")));
    let mut stream = server.connect();
    let mut http = || {
        let token = tokens.of("decide");
        write!(
            stream,
            "POST /v1/check HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{LOGIN}",
            LOGIN.len()
        )
        .unwrap();
        let mut answer = [0; 4096];
        let read = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..read])[9..12].to_owned()
    };
    assert_eq!((http(), &*redis.ask("PING")), ("200".to_owned(), "+PONG"));
    assert!(rls.ask(request("shop", &[("account", "a")])).is_ok());

    // A file that is wrong changes nothing.
    let good = fs::read_to_string(tokens.path()).unwrap();
    fs::write(tokens.path(), "decide tw_in-the-wrong-place decide\n").unwrap();
    server.server.reload();
    let reads = |outcome: &str| {
        let url = format!("http://{}/metrics", server.server.admin_addr().unwrap());
        let page = Harness::request_with(&url, "GET", None, Some(tokens.of("read"))).body;
        let counter = format!("tollway_reloads_total{{outcome=\"{outcome}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&counter)).unwrap().parse::<u64>().unwrap()
    };
    eventually("a reload that fails", || reads("failed") > 0);
    assert_eq!((http(), &*redis.ask("PING")), ("200".to_owned(), "+PONG"));

    fs::write(tokens.path(), good).unwrap();
    tokens.remove("decide");
    server.server.reload();
    eventually("a reload", || reads("ok") > 0);
    assert_eq!(http(), "401");
    assert!(redis.ask("PING").starts_with("-NOAUTH "));
    let refused = rls.ask(request("shop", &[("account", "a")])).unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

/// The headers of the call arrive before that, and its message after it.
#[test]
fn a_call_whose_token_is_removed_while_it_arrives_is_not_decided() {
    for (removed, is_decided) in [("decide", false), ("read", true)] {
        let tokens = Tokens::new();
        let server = start(&tokens);
        let mut connection = RawConnection::new(server.server.rls_addr().unwrap());
        let authorization = |name: &str| format!("Bearer {}", tokens.of(name));
        connection.begin(1, SHOULD_RATE_LIMIT, &[("authorization", &authorization("decide"))]);
        connection.ping();
        let removed_token = authorization(removed);
        tokens.remove(removed);
        server.server.reload();
        let is_reloaded = || {
            let mut rls = RlsClient::new(server.server.rls_addr().unwrap());
            rls.authorize(&removed_token);
            let asked = rls.ask(request("shop", &[("account", "a")]));
            asked.is_err_and(|refused| refused.code() == Code::Unauthenticated)
        };
        eventually("a reload", is_reloaded);
        let message = request("shop", &[("account", "a")]).encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        connection.write(DATA, END_STREAM, 1, &[&[0], &length[..], &message].concat());
        let mut frames = std::iter::from_fn(|| connection.read());
        let (kind, flags, _) = frames.find(|(kind, ..)| matches!(*kind, DATA | HEADERS)).unwrap();
        // An error is headers that end the stream, and no answer.
        assert_eq!((kind, flags & END_STREAM == 0), (HEADERS, is_decided), "{removed}");
    }
}

/// The answers do not end by themselves: one is figures, the other decisions.
#[test]
fn a_token_that_is_removed_does_not_watch_any_longer() {
    let tokens = Tokens::new();
    let server = start(&tokens);
    let watch = |(path, name): (&str, &str)| {
        let mut stream = TcpStream::connect(server.server.admin_addr().unwrap()).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let token = tokens.of(name);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n")
            .unwrap();
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        stream
    };
    let watching = [("/v1/live", "read"), ("/v1/live?all", "admin")].map(watch);
    tokens.remove("read");
    // It may still read, which is not enough to record.
    let text = fs::read_to_string(tokens.path()).unwrap();
    let lines = text.lines().map(|line| {
        let line = if line.starts_with("admin ") { line.replace(" admin", " read") } else { line.to_owned() };
        line + "\n"
    });
    fs::write(tokens.path(), lines.collect::<String>()).unwrap();
    server.server.reload();
    for mut stream in watching {
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
}

#[test]
fn only_those_who_may_read_see_where_the_store_is() {
    let policy = "{ store: 'redis://127.0.0.1:1', limits: {} }";
    let config = tollway::Config::parse(policy, "policy.yaml").unwrap();
    let open = || {
        let engine = tollway::engine::Engine::open(config.clone(), tollway::Clock::monotonic()).unwrap();
        // Opening does not wait for the first attempt for longer than half a second.
        let connects = |node: &NodeHealth| matches!(node.state, NodeState::Opening);
        eventually("the end of the first attempt", || !engine.health().unwrap().nodes.iter().any(connects));
        engine
    };
    let tokens = Tokens::new();
    let with = start_limiter(open(), |settings| settings.gates.http_access = tokens.access());
    let without = start_limiter(open(), |_| {});
    let ask = |server: &Harness, token: Option<&str>| {
        let reply = Harness::request_with(&server.url("/readyz"), "GET", None, token);
        assert_eq!(reply.status, 200);
        reply.body
    };
    for name in ["read", "admin"] {
        let body = ask(&with, Some(tokens.of(name)));
        assert!(body.starts_with("ok\nstore 127.0.0.1:1 unreachable for "), "{body}");
    }
    for token in [None, Some(WRONG), Some(tokens.of("decide")), Some(tokens.of("refund"))] {
        let body = ask(&with, token);
        assert!(
            body.starts_with("ok\nstore node-1 unreachable for ") && !body.contains("127.0.0.1"),
            "{body}"
        );
    }
    let body = ask(&without, None);
    assert!(body.starts_with("ok\nstore 127.0.0.1:1 unreachable for "), "{body}");
}

#[test]
fn a_server_does_not_start_with_a_token_file_that_is_wrong_or_missing() {
    let tokens = Tokens::new();
    let start = || {
        let gates = tollway::config::Gates { http_access: tokens.access(), ..any_ports() };
        Server::start(Settings { gates, ..settings() }).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(start(), Ok(()));
    fs::write(tokens.path(), "web tw_in-the-wrong-place decide\n").unwrap();
    let error = start().unwrap_err();
    assert!(error.contains("tokens.txt:1:5: a digest is sha256: and 64 hexadecimal digits"), "{error}");
    assert!(!error.contains("wrong-place"), "{error}");
    fs::remove_file(tokens.path()).unwrap();
    assert!(start().unwrap_err().ends_with("tokens.txt cannot be read"));
}

fn settings() -> Settings {
    let config = tollway::Config::parse("limits: {}", "policy.yaml").unwrap();
    let engine = tollway::engine::Engine::open(config, tollway::Clock::monotonic()).unwrap();
    Settings { workers: 1, ..Settings::new(std::sync::Arc::new(engine)) }
}

#[test]
fn a_server_that_requires_authentication_does_not_start_with_an_open_gate() {
    let open =
        tollway::config::Gates { http: Some("0.0.0.0:0".parse().unwrap()), ..tollway::config::Gates::OFF };
    let tokens = Tokens::new();
    let closed = tollway::config::Gates { http_access: tokens.access(), ..open.clone() };
    let error = Server::start(Settings { gates: open, require_auth: true, ..settings() }).unwrap_err();
    let OpenGatesError(gates) = error.get_ref().unwrap().downcast_ref().unwrap();
    assert_eq!(gates.iter().map(|open| open.gate).collect::<Vec<_>>(), ["http"]);
    Server::start(Settings { gates: closed, require_auth: true, ..settings() }).unwrap().stop();
    Server::start(Settings { gates: any_ports(), require_auth: true, ..settings() }).unwrap().stop();
}

#[test]
fn the_audit_log_says_who_changed_what_and_from_where() {
    let tokens = Tokens::new();
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.log");
    let file = WatchedFile::new(POLICY);
    let server = start_with(POLICY, |settings| {
        settings.gates.admin = Some("127.0.0.1:0".parse().unwrap());
        settings.gates.admin_access = tokens.access();
        settings.gates.resp_access = tokens.access();
        settings.audit = Some(audit.clone());
        settings.config = Some(file.watched());
    });
    let admin = server.server.admin_addr().unwrap();
    let post = |url: &str, body: &str, token: Option<&str>| -> Reply {
        Harness::request_with(url, "POST", Some(body), token)
    };
    let refund = r#"{"limit":"Login","id":"a","cost":2}"#;
    assert_eq!(
        post(&server.url("/v1/spend"), refund, None).status,
        200,
        "a spend is no change of an operator"
    );
    assert_eq!(post(&server.url("/v1/refund"), refund, None).status, 200);
    let reset = format!("http://{admin}/v1/reset");
    assert_eq!(post(&reset, LOGIN, Some(tokens.of("read"))).status, 403, "what is refused is no change");
    assert_eq!(post(&reset, LOGIN, Some(tokens.of("admin"))).status, 200);
    let mut redis = server.redis();
    redis.ask(&format!("AUTH {}", tokens.of("admin")));
    redis.ask("TOLL RESET Fast b");
    redis.ask("CL.THROTTLE k 9 9 60 -3");
    redis.ask("DEL k");
    let has = |text: &str| fs::read_to_string(&audit).unwrap().contains(text);
    server.server.reload();
    eventually("a reload on request", || has("tokens.txt\",\"outcome\":\"done\""));
    file.replace(&format!("{POLICY}\noverrides: {{ Login:vip: {{ rate: 9/s }} }}"));
    eventually("a reload of the changed file", || has("\"override\""));
    drop(server);
    let text = fs::read_to_string(&audit).unwrap();
    assert!(!tokens.secrets().any(|secret| text.contains(secret)), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let field =
        |line: &Value, name: &str| line[name].as_str().map_or_else(|| line[name].to_string(), Into::into);
    let shown: Vec<_> = lines
        .iter()
        .filter(|line| line["file"].as_str().is_none_or(|file| file.ends_with("policy.yaml")))
        .map(|line| {
            let names = ["who", "what", "gate", "from", "limit", "id", "cost", "outcome"];
            names.map(|name| field(line, name)).join(" ")
        })
        .collect();
    let expected = [
        "anyone refund http 127.0.0.1 Login a 2 null",
        "admin reset admin 127.0.0.1 Login a null null",
        "admin reset resp 127.0.0.1 Fast b null null",
        "admin refund resp 127.0.0.1 inline/throttle k 3 null",
        "admin reset resp 127.0.0.1 inline/throttle k null null",
        "signal reload null null null null null done",
        "file reload null null null null null done",
        "file override null null Login vip null added",
    ];
    assert_eq!(shown, expected, "{text}");
}

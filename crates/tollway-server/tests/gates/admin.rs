//! Tests the gate that serves each path: with an admin gate, without one, and on an address that others reach.

use std::net::SocketAddr;

use serde_json::json;

use crate::support::{Harness, Reply, start_with};

const POLICY: &str = "
limits: { Login: { burst: 5, count: 5, period: 1m } }
rules: { upload: 10/s }
gates: { http: { throttlecrab: true } }
";

const LOGIN: &str = r#"{"limit":"Login","id":"a"}"#;
const THROTTLE: &str = r#"{"key":"k","max_burst":2,"count_per_period":2,"period":60}"#;
const DESCRIPTORS: &str = r#"{"domain":"web","descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}"#;

/// The gates that serve a path while there is an admin gate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Http,
    Admin,
    Both,
}

/// Every path, with a body if it takes one, and the status of its answer where it is served.
const PATHS: [(&str, Option<&str>, u16, At); 21] = [
    ("/v1/spend", Some(LOGIN), 200, At::Http),
    ("/v1/check", Some(LOGIN), 200, At::Http),
    ("/v1/gate?limit=Login&id=b", None, 200, At::Http),
    ("/v1/rules/upload", Some("{}"), 200, At::Http),
    ("/json", Some(DESCRIPTORS), 200, At::Http),
    ("/throttle", Some(THROTTLE), 200, At::Http),
    ("/v1/refund", Some(LOGIN), 200, At::Both),
    ("/healthz", None, 200, At::Both),
    ("/readyz", None, 200, At::Both),
    ("/openapi.json", None, 200, At::Both),
    ("/v1/reset", Some(LOGIN), 200, At::Admin),
    ("/v1/explain", Some(r#"{"rule":"upload"}"#), 200, At::Admin),
    ("/v1/inspect?limit=Login&id=a", None, 200, At::Admin),
    ("/v1/keys", None, 501, At::Admin),
    ("/v1/buckets", None, 200, At::Admin),
    ("/v1/top?by=spent", None, 200, At::Admin),
    ("/metrics", None, 200, At::Admin),
    ("/", None, 200, At::Admin),
    ("/console.css", None, 200, At::Admin),
    ("/console.js", None, 200, At::Admin),
    ("/icon.svg", None, 200, At::Admin),
];

fn ask(address: SocketAddr, path: &str, body: Option<&str>) -> Reply {
    let method = if body.is_some() { "POST" } else { "GET" };
    Harness::request_at(&format!("http://127.0.0.1:{}{path}", address.port()), method, body)
}

/// Asserts that a path is not served, and that the answer says where it is.
fn assert_elsewhere(reply: &Reply, place: &str) {
    assert_eq!(reply.status, 404, "{reply:?}");
    let problem = reply.json();
    assert_eq!(problem["type"], "urn:problem-type:tollway:other-gate", "{reply:?}");
    assert!(problem["detail"].as_str().unwrap().contains(place), "{reply:?}");
}

fn start_gates(http: Option<&str>, admin: Option<&str>) -> Harness {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    start_with(POLICY, |settings| {
        settings.gates.http = http.map(address);
        settings.gates.admin = admin.map(address);
    })
}

#[test]
fn with_an_admin_gate_each_path_is_where_it_belongs() {
    // An address that others reach changes nothing while there is an admin gate.
    for http in ["127.0.0.1:0", "0.0.0.0:0"] {
        let gate = start_gates(Some(http), Some("127.0.0.1:0"));
        let (http, admin) = (gate.server.http_addr().unwrap(), gate.server.admin_addr().unwrap());
        for (path, body, status, at) in PATHS {
            let reply = ask(http, path, body);
            match at {
                At::Admin => assert_elsewhere(&reply, &format!("at the admin gate: http://{admin}")),
                At::Http | At::Both => assert_eq!(reply.status, status, "http {path}: {reply:?}"),
            }
            let reply = ask(admin, path, body);
            match at {
                At::Http => assert_elsewhere(&reply, &format!("at the http gate: http://{http}")),
                At::Admin | At::Both => assert_eq!(reply.status, status, "admin {path}: {reply:?}"),
            }
        }
    }
}

#[test]
fn without_an_admin_gate_operators_are_served_on_loopback_only() {
    let gate = start_gates(Some("127.0.0.1:0"), None);
    for (path, body, status, _) in PATHS {
        let reply = ask(gate.server.http_addr().unwrap(), path, body);
        assert_eq!(reply.status, status, "{path}: {reply:?}");
    }
    let gate = start_gates(Some("0.0.0.0:0"), None);
    for (path, body, status, at) in PATHS {
        let reply = ask(gate.server.http_addr().unwrap(), path, body);
        if at == At::Admin {
            assert_elsewhere(
                &reply,
                "at the admin gate, which is off; turn it on with \"admin: 127.0.0.1:8082\"",
            );
        } else {
            assert_eq!(reply.status, status, "{path}: {reply:?}");
        }
    }
}

#[test]
fn an_admin_gate_alone_says_that_the_other_is_off() {
    let gate = start_gates(None, Some("127.0.0.1:0"));
    for (path, body, status, at) in PATHS {
        let reply = ask(gate.server.admin_addr().unwrap(), path, body);
        if at == At::Http {
            assert_elsewhere(
                &reply,
                "at the http gate, which is off; turn it on with \"http: 127.0.0.1:8080\"",
            );
        } else {
            assert_eq!(reply.status, status, "{path}: {reply:?}");
        }
    }
}

#[test]
fn both_gates_are_one_server() {
    let gate = start_gates(Some("127.0.0.1:0"), Some("127.0.0.1:0"));
    let (http, admin) = (gate.server.http_addr().unwrap(), gate.server.admin_addr().unwrap());
    assert_eq!(ask(http, "/v1/spend", Some(r#"{"limit":"Login","id":"a","cost":5}"#)).status, 200);
    assert_eq!(ask(http, "/v1/spend", Some(LOGIN)).status, 429);
    assert_eq!(ask(admin, "/v1/inspect?limit=Login&id=a", None).json()["remaining"], 0);
    assert_eq!(ask(admin, "/v1/reset", Some(LOGIN)).json(), json!({"reset": true}));
    assert_eq!(ask(http, "/v1/spend", Some(LOGIN)).status, 200);
    // Numbers that come with a request name a bucket, also where the gate `http` takes none.
    let inline = r#"{"limit":{"burst":2,"count":2,"period":"1m"},"id":"a"}"#;
    assert_eq!(ask(admin, "/v1/reset", Some(inline)).status, 200);
    let page = ask(admin, "/metrics", None).body;
    for gate in ["http", "admin"] {
        assert!(page.contains(&format!("tollway_connections_max{{gate=\"{gate}\"}}")), "{page}");
    }
}

#[test]
fn the_path_for_proxies_can_be_off() {
    let gate = start_with("gates: { http: { gate: off } }\nlimits: { L: { rate: 5/m } }", |_| {});
    for path in ["/v1/gate?limit=L&id=a", "/v1/gate/below?limit=L&id=a"] {
        let reply = gate.get(path);
        assert_eq!((reply.status, reply.body.contains("gate: off")), (404, true), "{reply:?}");
    }
    assert_eq!(gate.post("/v1/check", r#"{"limit":"L","id":"a","cost":0}"#).json()["remaining"], 5);
}

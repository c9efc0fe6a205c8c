//! Tests what the audit log says of changes that may have been made, and what clients do not learn: the address of the
//! store, and the names of limits that their token is not for.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tollway::core::Nanos;
use tollway::export::{ExportReader, ExportWriter};
use tollway_server::{Scope, Settings};
use tollway_testbed::TEST_TIMEOUT;
use tollway_wire::http::BucketsPage;

use crate::support::rls::{RlsClient, request};
use crate::support::tokens::Tokens;
use crate::support::{Harness, Reply, read_all, start_with};
use crate::tokens::POLICY;

const NOWHERE: &str = "store: redis://127.0.0.1:1";
const LOGIN: &str = r#"{"limit":"Login","id":"a","cost":2}"#;

/// Sets the tokens of all gates that take some, but not those of the HTTP gate, and the audit log.
fn with_tokens<'a>(tokens: &'a Tokens, audit: &'a Path) -> impl FnOnce(&mut Settings) + use<'a> {
    move |settings| {
        let gates = &mut settings.gates;
        gates.admin = Some("127.0.0.1:0".parse().unwrap());
        for access in [&mut gates.admin_access, &mut gates.resp_access, &mut gates.rls_access] {
            *access = tokens.access();
        }
        settings.audit = Some(audit.to_owned());
    }
}

fn ask_admin(server: &Harness, method: &str, target: &str, body: &str, token: &str) -> Reply {
    let url = format!("http://{}{target}", server.server.admin_addr().unwrap());
    Harness::request_with(&url, method, (method == "POST").then_some(body), Some(token))
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

/// Sends a request with this host, as a page would whose own name points here.
fn rebound(address: SocketAddr, line: &str, body: &str) -> String {
    let mut stream = connect(address);
    let length = body.len();
    let head = format!(
        "{line} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\nContent-Type: application/json"
    );
    write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    read_all(&mut stream)
}

/// Returns some fields of each line, with `-` in the place of one that is not there.
fn lines(audit: &Path, fields: &[&str]) -> Vec<String> {
    let text = fs::read_to_string(audit).unwrap();
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let field = |name: &&str| match &line[*name] {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        fields.iter().map(field).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect()
}

/// Nobody knows whether the store has done it: it gave no answer.
#[test]
fn what_may_have_happened_is_in_the_audit_log_and_only_readers_learn_where_the_store_is() {
    let (tokens, directory) = (Tokens::new(), tempfile::tempdir().unwrap());
    let audit = directory.path().join("audit.log");
    let server = start_with(&format!("{NOWHERE}\n{POLICY}"), with_tokens(&tokens, &audit));
    let http = server.server.http_addr().unwrap();
    let (fixed, address) = ("the store gave no answer; it may have done what was asked", "127.0.0.1:1");
    let refused = |answer: &str, sees: bool, what: &str| {
        assert_eq!((answer.contains(address), answer.contains(fixed)), (sees, !sees), "{what}: {answer}");
    };
    // Without tokens, those on the same machine may know it, if it is they who ask.
    refused(&server.post("/v1/refund", LOGIN).body, true, "refund");
    refused(&rebound(http, "POST /v1/refund", LOGIN), false, "refund of a page");
    for (name, sees) in [("refund", false), ("admin", true)] {
        let reply = ask_admin(&server, "POST", "/v1/refund", LOGIN, tokens.of(name));
        assert_eq!(reply.status, 503);
        refused(&reply.body, sees, name);
        let mut redis = server.redis();
        assert_eq!(redis.ask(&format!("AUTH {}", tokens.of(name))), "+OK");
        refused(&redis.ask("TOLL REFUND Login r"), sees, name);
        refused(&redis.ask("CL.THROTTLE k 9 9 60 -3"), sees, name);
    }
    let reset = r#"{"limit":"Login","id":"a"}"#;
    refused(&ask_admin(&server, "POST", "/v1/reset", reset, tokens.of("admin")).body, true, "reset");
    let mut give_back = request("shop", &[("account", "e")]);
    give_back.descriptors[0].is_negative_hits = true;
    let mut client = RlsClient::new(server.server.rls_addr().unwrap());
    client.authorize(&format!("Bearer {}", tokens.of("admin")));
    client.ask(give_back).unwrap();
    let body = ask_admin(&server, "GET", "/metrics", "", tokens.of("read")).body;
    assert!(!body.contains("tollway_refunds_total{"), "what may not have happened is not counted");
    drop(server);
    let expected = [
        "anyone refund Login a 2 unknown",
        "anyone refund Login a 2 unknown",
        "refund refund Login a 2 unknown",
        "refund refund Login r 1 unknown",
        "refund refund inline/throttle k 3 unknown",
        "admin refund Login a 2 unknown",
        "admin refund Login r 1 unknown",
        "admin refund inline/throttle k 3 unknown",
        "admin reset Login a - unknown",
        "admin refund envoy/shop/account e 1 unknown",
    ];
    assert_eq!(lines(&audit, &["who", "what", "limit", "id", "cost", "outcome"]), expected);
}

/// From a page whose own name points to this machine, a request comes from loopback as well.
#[test]
fn a_name_that_points_here_does_not_learn_where_the_store_is() {
    let server = start_with(&format!("{NOWHERE}\nlimits: {{}}"), |_| {});
    let http = server.server.http_addr().unwrap();
    assert!(server.get("/readyz").body.contains("store 127.0.0.1:1 "));
    let answer = rebound(http, "GET /readyz", "");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("store node-1 "), "{answer}");
    assert!(!answer.contains("127.0.0.1"), "{answer}");
}

#[test]
fn every_page_of_an_export_and_every_id_as_a_whole_is_in_the_audit_log() {
    let (tokens, directory) = (Tokens::new(), tempfile::tempdir().unwrap());
    let audit = directory.path().join("audit.log");
    let server = start_with(POLICY, with_tokens(&tokens, &audit));
    for target in ["/v1/buckets", "/v1/buckets?from=1", "/v1/buckets?from=0"] {
        assert_eq!(ask_admin(&server, "GET", target, "", tokens.of("admin")).status, 200);
    }
    let start = "x".repeat(200);
    for end in ["1", "2"] {
        let reset = format!(r#"{{"limit":"Login","id":"{start}{end}"}}"#);
        assert_eq!(ask_admin(&server, "POST", "/v1/reset", &reset, tokens.of("admin")).status, 200);
    }
    drop(server);
    let expected = [
        "admin export 0 -".to_owned(),
        "admin export 1 -".to_owned(),
        "admin export 0 -".to_owned(),
        format!("admin reset - {start}1"),
        format!("admin reset - {start}2"),
    ];
    assert_eq!(lines(&audit, &["who", "what", "page", "id"]), expected);
}

#[test]
fn the_audit_log_says_whether_an_import_that_was_refused_took_buckets() {
    let (tokens, directory) = (Tokens::new(), tempfile::tempdir().unwrap());
    let audit = directory.path().join("audit.log");
    let server = start_with(POLICY, with_tokens(&tokens, &audit));
    assert_eq!(server.post("/v1/spend", LOGIN).status, 200);
    let exported = ask_admin(&server, "GET", "/v1/buckets", "", tokens.of("admin")).body;
    let BucketsPage(exported) = BucketsPage::from_json(200, exported.as_bytes()).unwrap();
    let mut reader = ExportReader::open(&*exported).unwrap();
    let header = *reader.header();
    let batch = reader.next_batch().unwrap().unwrap();
    // The clock of its source differs too much.
    let mut late = batch.clone();
    late.restate(header.created() + Nanos::from_secs(3_600));
    for (batches, status) in [(&[&batch][..], 200), (&[&batch, &late], 422), (&[&late], 422)] {
        let mut writer = ExportWriter::new(Vec::new(), &header).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        let mut page = Vec::new();
        BucketsPage(writer.finish().unwrap().1).put_json(&mut page);
        let page = String::from_utf8(page).unwrap();
        let answer = ask_admin(&server, "POST", "/v1/buckets", &page, tokens.of("admin"));
        assert_eq!(answer.status, status, "{}", answer.body);
    }
    drop(server);
    let expected = ["export -", "import -", "import partial", "import failed"];
    assert_eq!(lines(&audit, &["what", "outcome"]), expected);
}

#[test]
fn what_envoy_gives_back_is_counted() {
    let server = start_with(POLICY, |_| {});
    let mut give_back = request("shop", &[("account", "a")]);
    give_back.descriptors[0].is_negative_hits = true;
    RlsClient::new(server.server.rls_addr().unwrap()).ask(give_back).unwrap();
    let page = server.get("/metrics").body;
    assert!(page.contains("tollway_refunds_total{limit=\"envoy/shop/account\"} 1\n"), "{page}");
}

#[test]
fn a_token_for_some_limits_learns_the_names_of_no_others() {
    let (mut tokens, directory) = (Tokens::new(), tempfile::tempdir().unwrap());
    tokens.add("shop", Scope::Admin, Some("Logim,nothing-like-it,uploat,Fast*"));
    let server = start_with(POLICY, with_tokens(&tokens, &directory.path().join("audit.log")));
    let mut redis = server.redis();
    for (name, sees) in [("shop", false), ("admin", true)] {
        assert_eq!(redis.ask(&format!("AUTH {}", tokens.of(name))), "+OK");
        for limit in ["Logim", "nothing-like-it"] {
            let body = format!(r#"{{"limit":"{limit}","id":"a"}}"#);
            let answers = [
                ask_admin(&server, "POST", "/v1/reset", &body, tokens.of(name)),
                ask_admin(&server, "GET", &format!("/v1/inspect?limit={limit}&id=a"), "", tokens.of(name)),
            ];
            for answer in answers {
                assert_eq!(answer.status, 404, "{}", answer.body);
                assert_eq!(answer.body.contains("Login"), sees, "{name} {limit}: {}", answer.body);
            }
        }
        for command in ["TOLL SPEND Logim a", "TOLL CHECK Logim a"] {
            let reply = redis.ask(command);
            assert!(reply.starts_with("-ERR limit \"Logim\" does not exist"), "{reply}");
            assert_eq!(reply.contains("did you mean \"Login\"?"), sees, "{name}: {reply}");
        }
        let reply = ask_admin(&server, "POST", "/v1/explain", r#"{"rule":"uploat"}"#, tokens.of(name));
        assert_eq!(reply.status, 404, "{}", reply.body);
        assert_eq!(reply.body.contains("upload"), sees, "{}", reply.body);
        // The names that it may use are still suggested.
        let fast = ask_admin(&server, "GET", "/v1/inspect?limit=Fastt&id=a", "", tokens.of(name)).body;
        assert!(fast.contains("Fast\\\""), "{fast}");
        let top = ask_admin(&server, "GET", "/v1/top?limit=Fast", "", tokens.of(name)).json();
        assert_eq!((top["total"].is_null(), top["exact"].is_null()), (!sees, !sees), "{top}");
    }
}

#[test]
fn a_redis_client_that_has_not_logged_in_can_send_little() {
    let tokens = Tokens::new();
    let server = start_with(POLICY, |settings| settings.gates.resp_access = tokens.access());
    let mut stranger = connect(server.server.resp_addr().unwrap());
    write!(stranger, "*2\r\n$4\r\nECHO\r\n$100000\r\n{}", "x".repeat(20_000)).unwrap();
    let end = read_all(&mut stranger);
    assert_eq!(end, "-ERR Protocol error: a command is longer than 16 KiB; send AUTH before it\r\n");
    let mut client = server.redis();
    assert_eq!(client.ask(&format!("AUTH {}", tokens.of("decide"))), "+OK");
    let echo = "x".repeat(100_000);
    assert_eq!(client.ask(&format!("ECHO {echo}")), format!("\"{echo}\""));
}

#[test]
fn a_redis_client_that_does_not_log_in_does_not_stay() {
    let tokens = Tokens::new();
    let server = start_with(POLICY, |settings| {
        settings.gates.resp_access = tokens.access();
        settings.bounds.idle = Duration::from_millis(50);
    });
    assert_eq!(read_all(&mut connect(server.server.resp_addr().unwrap())), "");
    let page = server.get("/metrics").body;
    assert!(page.contains("tollway_connections_cut_total{when=\"idle\"} 1\n"), "{page}");
}

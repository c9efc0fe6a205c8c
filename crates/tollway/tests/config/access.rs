//! Tests the settings of who may use a gate: `tokens`, `tls` and `audit`.

use std::fs;
use std::path::{Path, PathBuf};

use tollway::config::{Config, GateAccess, Gates, TlsSettings, describe};

fn read(text: &str) -> Config {
    Config::parse(text, "policy.yaml").unwrap()
}

fn tokens(gates: &Gates) -> [Option<&Path>; 5] {
    let Gates { http_access, admin_access, resp_access, rls_access, throttr_access, .. } = gates;
    [http_access, admin_access, resp_access, rls_access, throttr_access]
        .map(|access| access.tokens.as_deref())
}

#[test]
fn tokens_at_the_top_are_for_every_gate_that_can_ask_for_one() {
    let (all, own) = (Some(Path::new("tokens.txt")), Some(Path::new("own.txt")));
    for (text, expected) in [
        ("limits: {}", [None; 5]),
        ("limits: {}\ntokens: off", [None; 5]),
        ("limits: {}\ntokens: tokens.txt", [all, all, all, all, None]),
        (
            "limits: {}\ntokens: tokens.txt\ngates: { http: 127.0.0.1:80, admin: { tokens: own.txt }, resp: { tokens: off } }",
            [all, own, None, all, None],
        ),
        (
            "limits: {}\ngates: { rls: { tokens: own.txt }, throttr: { tokens: off } }",
            [None, None, None, own, None],
        ),
    ] {
        assert_eq!(tokens(&read(text).gates), expected, "{text}");
    }
    assert!(!GateAccess::OPEN.requires_authentication());
}

#[test]
fn a_gate_names_its_certificate_and_the_authority_of_its_clients() {
    let text = "limits: {}\ngates:\n  http: { tls: { cert: a.pem, key: a.key } }\n  \
                throttr: { tls: { cert: a.pem, key: a.key, client_ca: ca.pem } }";
    let gates = read(text).gates;
    let own = TlsSettings { cert: "a.pem".into(), key: "a.key".into(), client_ca: None };
    assert_eq!(gates.http_access, GateAccess { tls: Some(own.clone()), tokens: None });
    assert!(!gates.http_access.requires_authentication());
    let clients = TlsSettings { client_ca: Some("ca.pem".into()), ..own };
    assert_eq!(gates.throttr_access, GateAccess { tls: Some(clients), tokens: None });
    assert!(gates.throttr_access.requires_authentication());
}

#[test]
fn paths_are_relative_to_the_file_and_shown_and_the_files_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tollway.yaml");
    let text = "limits: {}\ntokens: tokens.txt\naudit: /var/log/audit.log\n\
                gates: { http: { listen: 127.0.0.1:80, tls: { cert: a.pem, key: a.key, client_ca: ca.pem } } }";
    fs::write(&file, text).unwrap();
    let config = Config::from_file(&file).unwrap();
    assert_eq!(config.gates.http_access.tokens, Some(directory.path().join("tokens.txt")));
    assert_eq!(config.audit, Some(PathBuf::from("/var/log/audit.log")));
    let shown = describe(&read(text)).to_string();
    let expected =
        "gates   http 127.0.0.1:80 (tls a.pem) (client_ca ca.pem) (tokens tokens.txt), admin off, ";
    assert!(shown.contains(expected), "{shown}");
    assert!(shown.contains("\naudit   /var/log/audit.log\n"), "{shown}");
}

#[test]
fn what_is_wrong_is_named() {
    for (text, expected) in [
        ("tokens: [a]", "2:9: tokens must be the path of a file, not a list"),
        ("tokens:", "2:1: tokens must be the path of a file, but has no value"),
        ("audit: {}", "2:8: audit must be the path of a file, not a mapping"),
        (
            "gates: { throttr: { tokens: a } }",
            "2:21: throttr cannot take tokens, because its protocol has no place for one; use tls with client_ca",
        ),
        (
            "gates: { http: { tls: a.pem } }",
            "2:23: tls must be a mapping, such as {cert: server.pem, key: server.key}, not \"a.pem\"",
        ),
        ("gates: { http: { tls: { cert: a } } }", "2:18: tls has no \"key\", such as key: server.key"),
        ("gates: { http: { tls: { key: a } } }", "2:18: tls has no \"cert\", such as cert: server.cert"),
        (
            "gates: { http: { tls: { cert: a, key: b, ca: c } } }",
            "2:42: unknown field \"ca\"; tls has cert, key and client_ca",
        ),
        (
            "gates: { text: { tokens: a } }",
            "2:18: unknown field \"tokens\"; text has listen, trusted_networks and hmac",
        ),
    ] {
        let errors = Config::parse(&format!("limits: {{}}\n{text}"), "policy.yaml").unwrap_err();
        assert_eq!(errors.to_string(), format!("policy.yaml:{expected}"), "{text}");
    }
    let long = format!("limits: {{}}\ntokens: {}", "a".repeat(4097));
    let errors = Config::parse(&long, "policy.yaml").unwrap_err();
    assert_eq!(errors.to_string(), "policy.yaml:2:9: tokens must be a path of at most 4096 bytes");
}

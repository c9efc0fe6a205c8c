//! A person uses the console in a real browser.
//!
//! The browser is installed by `cargo xtask setup`; what drives it is in the folder that `cargo xtask test` names in
//! `TOLLWAY_BROWSER`. With `TOLLWAY_SCREENSHOTS`, pictures of the page are written to that folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, iter};

use serde_json::{Value, json};
use tollway::engine::Engine;
use tollway::{Clock, Config};

use crate::support::tokens::Tokens;
use crate::support::{Harness, start_limiter, start_with};

const POLICY: &str = "
limits:
  Login: { burst: 5, count: 1, period: 1m }
  RequestsPerIPAddress: { burst: 100, count: 20, period: 1s, id: ip }
rules:
  upload: Or('10/s', 'user:1/m')
";

/// Runs a script in the browser, and returns what it saw.
fn run(script: &str, arguments: &[String]) -> Value {
    let browser = env::var_os("TOLLWAY_BROWSER").map(PathBuf::from);
    let browser =
        browser.unwrap_or_else(|| panic!("TOLLWAY_BROWSER names no folder; run `cargo xtask test`"));
    let mut command = Command::new(browser.join("bin/node"));
    command.env("NODE_PATH", browser.join("node_modules"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gates/console").join(script));
    command.args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_person_sees_explains_and_resets_in_a_browser() {
    let limiter = Engine::open(Config::parse(POLICY, "policy.yaml").unwrap(), Clock::monotonic()).unwrap();
    let server = start_limiter(limiter, |settings| settings.gates.admin = settings.gates.http);
    let (admin, http) = (server.server.admin_addr().unwrap(), server.server.http_addr().unwrap());
    let screenshots = env::var("TOLLWAY_SCREENSHOTS").ok();
    let arguments: Vec<_> = [admin.to_string(), http.to_string()].into_iter().chain(screenshots).collect();
    let expected = json!({
        "messages": [],
        "violations": [],
        "other_durations": [],
        "denied": "mallory",
        "limits": 3,
        "allowed_twice": false,
        "is_in_next_snapshot": true,
        "markup": 0,
        "explained": true,
        "allowed_after_cancel": false,
        "allowed_after_reset": true,
        "allowed_after_reset_of_escaped": true,
        "buttons_of_cut": 0,
        "wider_than_phone": false,
        "off_screen": [],
        "on_phone": ["limit", "id", "denied", "why", "free again in", "explain", "reset"],
        "cut_on_phone": [40, 97],
        "whole_on_phone": 97,
    });
    assert_eq!(run("console.js", &arguments), expected);
}

#[test]
fn a_person_with_a_token_may_do_what_its_scope_says() {
    let tokens = Tokens::new();
    let server = start_with(POLICY, |settings| {
        settings.gates.admin = settings.gates.http;
        settings.gates.admin_access = tokens.access();
    });
    let spend = || server.post("/v1/spend", r#"{"limit":"Login","id":"alice","cost":5}"#).status;
    assert_eq!((spend(), spend()), (200, 429));
    let admin = server.server.admin_addr().unwrap().to_string();
    let secrets = ["decide", "read", "admin"].map(|scope| tokens.of(scope).to_owned());
    let arguments: Vec<_> = iter::once(admin).chain(secrets).collect();
    let expected = json!({
        "messages": [],
        "keeps_token": true,
        "kept_without_token": null,
        "explained": true,
        "refused": "Not reset: this request needs a token with the scope \"admin\"",
    });
    assert_eq!(run("tokens.js", &arguments), expected);
    assert_eq!(spend(), 200);
}

#[test]
fn a_browser_may_load_nothing_from_elsewhere() {
    let server = start_with(POLICY, |settings| settings.gates.admin = settings.gates.http);
    let admin = server.server.admin_addr().unwrap();
    for path in ["/", "/console.css", "/console.js", "/icon.svg"] {
        let reply = Harness::request_at(&format!("http://{admin}{path}"), "GET", None);
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!reply.body.contains("https://"), "{path} has a link to elsewhere");
    }
}

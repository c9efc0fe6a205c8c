//! A person uses the console in a real browser.
//!
//! The browser is installed by `cargo xtask setup`; what drives it is in the folder that `cargo xtask test` names in
//! `TOLLWAY_BROWSER`. With `TOLLWAY_SCREENSHOTS`, pictures of the page are written to that folder.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tollway::engine::Engine;
use tollway::{Clock, Config};

use crate::support::{Harness, start_limiter, start_with};

const POLICY: &str = "
limits:
  Login: { burst: 5, count: 1, period: 1m }
  RequestsPerIPAddress: { burst: 100, count: 20, period: 1s, id: ip }
rules:
  upload: Or('10/s', 'user:1/m')
";

#[test]
fn a_person_sees_explains_and_resets_in_a_browser() {
    let browser = env::var_os("TOLLWAY_BROWSER").map(PathBuf::from);
    let browser =
        browser.unwrap_or_else(|| panic!("TOLLWAY_BROWSER names no folder; run `cargo xtask test`"));
    let limiter = Engine::open(Config::parse(POLICY, "policy.yaml").unwrap(), Clock::monotonic()).unwrap();
    let server = start_limiter(limiter, |settings| settings.gates.admin = settings.gates.http);
    let mut command = Command::new(browser.join("bin/node"));
    command.env("NODE_PATH", browser.join("node_modules"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gates/console/console.js"));
    command.arg(server.server.admin_addr().unwrap().to_string());
    command.arg(server.server.http_addr().unwrap().to_string());
    command.args(env::var_os("TOLLWAY_SCREENSHOTS"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Only for reading: how long it takes depends on the machine.
    println!("a denied id was listed after {} ms", seen["millis_until_listed"]);
    seen.as_object_mut().unwrap().remove("millis_until_listed");
    let expected = json!({
        "messages": [],
        "violations": [],
        "denied": "mallory",
        "limits": 3,
        "markup": 0,
        "explained": true,
        "allowed_after_cancel": false,
        "allowed_after_reset": true,
        "allowed_after_reset_of_escaped": true,
        "buttons_of_cut": 0,
        "wider_than_phone": false,
    });
    assert_eq!(seen, expected);
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

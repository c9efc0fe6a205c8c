//! Asks a server with clients of Redis, in both versions of the protocol.
//!
//! redis-cli and redis-benchmark are installed by `cargo xtask setup`. The others are in the folder that `cargo xtask
//! test` names in `TOLLWAY_REDIS_CLIENTS`; without it, their tests fail.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Harness, start};

#[test]
fn redis_py_asks_in_both_versions() {
    ask_with("redis_py.py", "python");
}

#[test]
fn ioredis_asks_in_both_versions() {
    ask_with("ioredis.js", "node");
}

#[test]
fn node_redis_asks_in_both_versions() {
    ask_with("node_redis.js", "node");
}

/// Runs a script, which sends single commands, a pipeline, a transaction and a command with an error.
fn ask_with(script: &str, language: &str) {
    let clients = env::var_os("TOLLWAY_REDIS_CLIENTS").map(PathBuf::from);
    let clients =
        clients.unwrap_or_else(|| panic!("TOLLWAY_REDIS_CLIENTS names no folder; run `cargo xtask test`"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gates/redis_clients").join(script);
    let as_array =
        json!(["allowed", 1, "remaining", 4, "retry_after", "0", "reset_after", "12", "limit", "Login"]);
    let as_map =
        json!({"allowed": true, "remaining": 4, "retry_after": 0, "reset_after": 12, "limit": "Login"});
    let denied_array = json!(["allowed", 0, "retry_after", null, "rule", "closed"]);
    let denied_map = json!({"allowed": false, "retry_after": null, "rule": "closed"});
    for (version, toll, by_rule) in [("2", as_array, denied_array), ("3", as_map, denied_map)] {
        let server = start();
        let mut command = Command::new(clients.join("bin").join(language));
        command.env("NODE_PATH", clients.join("node_modules")).arg(&script).arg(port(&server)).arg(version);
        // Python prints whole seconds with a fraction.
        let printed = output(&mut command, "").replace(".0,", ",").replace(".0}", "}");
        let replies: Value = serde_json::from_str(&printed).unwrap();
        let expected = json!([
            [0, 16, 15, -1, 2],
            [1, 15, 14, 2, 0],
            toll,
            by_rule,
            [[0, 16, 14, -1, 4], [1, 15, 13, 4, 0]],
            [[0, 16, 13, -1, 6], [1, 15, 12, 6, 0]],
            "max_burst must be an integer of 64 bits, not 'x'",
            "done",
        ]);
        assert_eq!(replies, expected, "version {version}");
    }
}

#[test]
fn redis_cli_asks_in_both_versions() {
    for version in ["-2", "-3"] {
        let server = start();
        let ask = |arguments: &[&str], input: &str| {
            let mut command = Command::new("redis-cli");
            output(command.args([version, "-p", &port(&server)]).args(arguments), input)
        };
        assert_eq!(ask(&["CL.THROTTLE", "key", "15", "30", "60"], ""), "0\n16\n15\n-1\n2\n");
        assert_eq!(ask(&["THROTTLE", "other", "15", "30", "60"], ""), "1\n15\n14\n2\n0\n");
        let toll = ask(&["TOLL", "SPEND", "Login", "alice"], "");
        let allowed = if version == "-3" { "(true)" } else { "1" };
        let words: Vec<_> = toll.split_whitespace().collect();
        assert_eq!(words[..4], ["allowed", allowed, "remaining", "4"], "{toll}");
        let lines = "MULTI\nCL.THROTTLE key 15 30 60\nPING\nEXEC\n";
        assert_eq!(ask(&[], lines), "OK\nQUEUED\nQUEUED\n0\n16\n14\n-1\n4\nPONG\n");
        let piped = ask(&["--pipe"], "CL.THROTTLE key 15 30 60\r\nPING\r\n");
        assert!(piped.ends_with("errors: 0, replies: 2\n"), "{piped}");
    }
}

#[test]
fn redis_benchmark_measures_pipelines_in_both_versions() {
    for version in [&[][..], &["-3"]] {
        let server = start();
        let mut command = Command::new("redis-benchmark");
        command.args(version).args(["-p", &port(&server), "-n", "1000", "-c", "4", "-P", "10", "--csv"]);
        let measured = output(command.args(["CL.THROTTLE", "key", "99", "1", "60"]), "");
        assert!(measured.contains("\"CL.THROTTLE key 99 1 60\""), "{measured}");
        let page = server.get("/metrics").body;
        for (outcome, count) in [("allow", 100), ("deny", 900)] {
            let labels = format!("limit=\"inline/throttle\",verb=\"spend\",outcome=\"{outcome}\"");
            let line = format!("tollway_decisions_total{{{labels}}} {count}\n");
            assert!(page.contains(&line), "{line}: {page}");
        }
    }
}

fn port(server: &Harness) -> String {
    server.server.resp_addr().unwrap().port().to_string()
}

/// Runs a program that must succeed, and returns what it prints.
fn output(command: &mut Command, input: &str) -> String {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap_or_else(|error| {
        panic!("this test needs {:?}; `cargo xtask setup` installs it: {error}", command.get_program())
    });
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

//! Tests the proxy between a WebSocket client and server that are not ours. They need a Python that has them, which
//! `cargo xtask test` names in `TOLLWAY_PYZMQ`; without one the test says so and tests nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use crate::guard_process::GuardProcess;

const SCRIPT: &str = "tests/binary/guard/websocket.py";

#[test]
fn websockets_pass_through() {
    let Some(python) = std::env::var_os("TOLLWAY_PYZMQ") else {
        eprintln!("skipped: TOLLWAY_PYZMQ names no Python; `cargo xtask test` has one");
        return;
    };
    let mut script =
        Command::new(python).arg(SCRIPT).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(script.stdout.take().unwrap());
    let mut port = String::new();
    output.read_line(&mut port).unwrap();
    let guard = GuardProcess::start(&format!("http://127.0.0.1:{}", port.trim()), &[]);
    writeln!(script.stdin.take().unwrap(), "{}", guard.address).unwrap();
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    assert!(script.wait().unwrap().success());
    let expected = [
        "subprotocol echo.v1",
        "extensions ['permessage-deflate']",
        "echoed",
        "pong",
        "in order",
        "closed 4001 as you say",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
}

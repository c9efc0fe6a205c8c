//! Runs the gatekeeper against libzmq. The tests need a Python with it, which `cargo xtask test` names in
//! `TOLLWAY_PYZMQ`; without one they say so and test nothing.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tollway_client::gatekeeper::{Admission, AdmissionDecision, Gatekeeper};
use tollway_testbed::eventually;

use super::{decide, now, wait};

const SCRIPT: &str = "tests/clients/gatekeeper/master.py";

/// A master that is another process.
struct Master {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    ports: Vec<String>,
}

impl Master {
    fn start(ports: &[String]) -> Option<Self> {
        let Some(python) = std::env::var_os("TOLLWAY_PYZMQ") else {
            eprintln!("skipped: TOLLWAY_PYZMQ names no Python; `cargo xtask test` has one");
            return None;
        };
        let mut process = Command::new(python)
            .arg(SCRIPT)
            .args(ports)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut master = Self { process, input, output, ports: Vec::new() };
        master.ports = master.message();
        Some(master)
    }

    fn gatekeeper(&self, domain: &str) -> Gatekeeper {
        let [accounting, control] = [0, 1].map(|index| format!("127.0.0.1:{}", self.ports[index]));
        Gatekeeper::builder(&accounting, domain).control_address(&control).build().unwrap()
    }

    fn message(&mut self) -> Vec<String> {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim()
            .trim_matches(['[', ']'])
            .split(", ")
            .map(|frame| frame.trim_matches('"').to_owned())
            .collect()
    }

    fn publish(&mut self, frames: &[&str]) {
        let frames: Vec<_> = frames.iter().map(|frame| format!("\"{frame}\"")).collect();
        writeln!(self.input, "[{}]", frames.join(",")).unwrap();
    }

    /// As `kill -9` does.
    fn kill(mut self) -> Vec<String> {
        self.end();
        std::mem::take(&mut self.ports)
    }

    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.end();
    }
}

fn any_ports() -> [String; 2] {
    ["0".to_owned(), "0".to_owned()]
}

#[tokio::test]
async fn a_master_by_libzmq_hears_and_is_heard() {
    let Some(mut master) = Master::start(&any_ports()) else { return };
    let gatekeeper = master.gatekeeper("api");
    assert_eq!(master.message(), ["subscribed", r"\u0001api\u0000"]);
    eventually("the master", || gatekeeper.stats().connected);
    let _ = gatekeeper.admit_with(b"\xff", &[b'i'; 300]).await;
    let accepted = master.message();
    assert_eq!(accepted[..3], [r"api\u0000", "ACCEPTED", r"\u00ff"]);
    assert_eq!(accepted[4..], [String::new(), "i".repeat(300)]);
    let until = (now() + 4_000).to_string();
    for frames in [
        &[""][..],
        &["", "", "", ""],
        &[r"api\u0000"],
        &[r"api\u0000", "DELAY_UNTIL", "a"],
        &[r"api\u0000", "DELAY_UNTIL", "a", ""],
        &[r"api\u0000", "DELAY_UNTIL", "a", "NaN"],
        &[r"api\u0000", "DELAY_UNTIL", "a", "-5"],
        &[r"api\u0000", "DELAY_UNTIL", "a", r"\u00ff"],
        &[r"api\u0000", r"\u00ff", "a", &until],
        &[r"api\u0000", "DELAY_UNTIL", &"x".repeat(10_000), "1"],
        &[r"apis\u0000", "DELAY_UNTIL", "a", &until],
        &[r"api\u0000", "DELAY_UNTIL", r"\u00ff", &until, "and", "more"],
    ] {
        master.publish(frames);
    }
    eventually("what the master said", || gatekeeper.stats().known_delays == 1);
    assert_eq!(gatekeeper.admit("a").await, Admission::Passed);
    assert_eq!(master.message()[2], "a");
    let _waiting = wait(gatekeeper.decide(b"\xff", b""));
    let delayed = master.message();
    assert_eq!((&*delayed[1], &delayed[4]), ("DELAYED", &until));
}

#[tokio::test]
async fn a_message_that_is_too_long_is_not_kept_and_what_follows_is_heard() {
    let Some(mut master) = Master::start(&any_ports()) else { return };
    let gatekeeper = master.gatekeeper("api");
    master.message();
    eventually("the master", || gatekeeper.stats().connected);
    master.publish(&[r"api\u0000", "DELAY_UNTIL", &"x".repeat(1 << 20), "1"]);
    let until = (now() + 4_000).to_string();
    // It hangs up and comes back, and libzmq drops what it publishes meanwhile.
    eventually("what the master said", || {
        master.publish(&[r"api\u0000", "DELAY_UNTIL", "a", &until]);
        gatekeeper.stats().known_delays == 1
    });
    assert!(matches!(decide(&gatekeeper, "a"), AdmissionDecision::Wait(_)));
}

#[tokio::test]
async fn a_master_that_is_killed_delays_nobody_and_is_obeyed_again_when_it_is_back() {
    let Some(mut master) = Master::start(&any_ports()) else { return };
    let gatekeeper = master.gatekeeper("api");
    master.message();
    eventually("the master", || gatekeeper.stats().connected);
    let ports = master.kill();
    eventually("the end of the connection", || !gatekeeper.stats().connected);
    for _ in 0..100 {
        assert_eq!(gatekeeper.admit("a").await, Admission::Passed);
    }
    let mut master = Master::start(&ports).unwrap();
    master.message();
    eventually("the master", || gatekeeper.stats().connected);
    master.publish(&[r"api\u0000", "DELAY_UNTIL", "a", &(now() + 4_000).to_string()]);
    eventually("what the master said", || gatekeeper.stats().known_delays == 1);
    assert!(matches!(decide(&gatekeeper, "a"), AdmissionDecision::Wait(_)));
    assert_eq!(master.message()[1], "DELAYED");
}

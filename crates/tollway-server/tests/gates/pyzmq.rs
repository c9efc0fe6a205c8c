//! Tests the Smockron gate with gatekeepers that use libzmq. The tests need a Python with it, which `cargo xtask test`
//! names in `TOLLWAY_PYZMQ`; without one they fail.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tollway::config::SmockronGate;

use crate::support::zeromq::total;
use crate::support::{Harness, start_with};

const POLICY: &str = "domains: { web: { rules: [{ rate: 1/s, burst: 1 }] } }";

/// Starts gatekeepers that talk to this master.
fn gatekeepers(gate: &Harness, scenario: &str) -> Child {
    let python = std::env::var_os("TOLLWAY_PYZMQ");
    let python = python.unwrap_or_else(|| panic!("TOLLWAY_PYZMQ names no Python; run `cargo xtask test`"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gates/pyzmq/gatekeeper.py");
    let address = |address| format!("tcp://{address}");
    let mut command = Command::new(python);
    command.arg(script);
    command.arg(address(gate.server.smockron_addr().unwrap()));
    command.arg(address(gate.server.smockron_control_addr().unwrap()));
    let command = command.arg(scenario).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn goes_well(scenario: &str) -> Harness {
    let gate = start_with(POLICY, |_| {});
    assert!(gatekeepers(&gate, scenario).wait().unwrap().success());
    gate
}

#[test]
fn libzmq_says_and_hears() {
    goes_well("says_and_hears");
}

#[test]
fn libzmq_sends_odd_frames_and_is_heard_again() {
    let gate = goes_well("odd_frames");
    let page = gate.get("/metrics").body;
    for (reason, count) in [("frames", 3), ("domain", 1), ("status", 2), ("time", 5)] {
        let name = format!("tollway_smockron_malformed_total{{reason=\"{reason}\"}}");
        assert_eq!(total(&page, &name), count, "{page}");
    }
    assert_eq!(total(&page, "tollway_smockron_broken_total"), 1);
}

#[test]
fn libzmq_that_stops_reading_holds_up_nobody() {
    goes_well("stops_reading");
}

#[test]
fn libzmq_that_comes_late_hears_what_holds() {
    goes_well("comes_late");
}

#[test]
fn libzmq_comes_back_to_a_master_that_does() {
    let gate = start_with(POLICY, |_| {});
    let mut gatekeepers = gatekeepers(&gate, "comes_back");
    let mut said = String::new();
    BufReader::new(gatekeepers.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "met\n");
    let accounting = gate.server.smockron_addr().unwrap();
    let control = gate.server.smockron_control_addr();
    let Harness { server, .. } = gate;
    server.stop();
    let _again = start_with(POLICY, |settings| {
        settings.gates.smockron = Some(SmockronGate { control, ..SmockronGate::at(accounting) });
    });
    gatekeepers.stdin.take().unwrap().write_all(b"restarted\n").unwrap();
    assert!(gatekeepers.wait().unwrap().success());
}

//! Checks what a package has besides the binary: its configuration serves, and its unit starts what is in the package.

use std::fs;

use crate::run::{root, run};
use crate::serving::Serving;

#[test]
fn the_configuration_of_the_package_is_valid_and_serves() {
    let config = root().join("packaging/tollway.yaml");
    let config = config.to_str().unwrap();
    let ran = run(&["validate", config]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let data = tempfile::tempdir().unwrap();
    let data = data.path().join("data");
    let arguments = ["--config", config, "--data", data.to_str().unwrap(), "--http", "127.0.0.1:0"];
    let serving = Serving::start(&arguments, &[]);
    assert_eq!(serving.ask(&["spend", "demo:alice", "--cost", "5"]).0, 0);
    assert_eq!(serving.ask(&["spend", "demo:alice"]).0, 1);
}

/// The unit starts the server with a journal, as no user that can do anything else.
#[test]
fn the_unit_has_a_journal_and_is_hardened() {
    let unit = fs::read_to_string(root().join("packaging/systemd/tollway.service")).unwrap();
    for line in [
        "ExecStart=/usr/bin/tollway serve --config /etc/tollway/tollway.yaml --data /var/lib/tollway",
        "StateDirectory=tollway",
        "DynamicUser=yes",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "CapabilityBoundingSet=",
        "SystemCallFilter=@system-service",
    ] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
}

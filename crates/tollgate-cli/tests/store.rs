//! Which store is used is said by a flag, the environment or a file, and its password by none of what is printed.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod run;

use std::fs;
use std::path::Path;

use run::{run, tollgate};

const PASSWORD: &str = "hunter2";

#[test]
fn a_password_is_in_no_help_no_error_and_no_description() {
    let config = Path::new(env!("CARGO_TARGET_TMPDIR")).join("password.yaml");
    let config = config.to_str().unwrap();
    fs::write(
        config,
        "store: redis://app:hunter2@127.0.0.1:1/0\nlimits: { A: { burst: 1, count: 1, period: 1s } }",
    )
    .unwrap();
    let wrong = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong.yaml");
    let wrong = wrong.to_str().unwrap();
    fs::write(wrong, "store: redis://app:hunter2@my cache\n").unwrap();
    for (arguments, code, says) in [
        (&["serve", "--help"][..], 0, "TOLLGATE_STORE_PASSWORD"),
        (
            &["serve", "--store", "rdis://:hunter2@cache"],
            2,
            "--store must be a URL such as redis://cache:6379",
        ),
        (&["serve", "--store", "redis://app:hunter2"], 2, "--store has a port that is no whole number"),
        (&["replay", "--store", "redis://:pa/hunter2@cache"], 2, "--store has an `@` too late"),
        (&["replay", "--store", "disk"], 2, "--store must be `memory`, or a URL"),
        (&["validate", config], 0, "store   redis://app:***@127.0.0.1:1, namespace tollgate, deadline 15ms"),
        (&["validate", wrong], 1, "wrong.yaml:1:8: store has the host my cache"),
        (&["serve", "--config", wrong], 2, "wrong.yaml:1:8: store has the host my cache"),
    ] {
        let output = tollgate(arguments)
            .env("TOLLGATE_STORE", "rdis://app:hunter2@cache")
            .env("TOLLGATE_STORE_PASSWORD", PASSWORD)
            .output()
            .unwrap();
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
        assert!(printed.contains(says), "{arguments:?}: {printed}");
        assert!(!printed.contains(PASSWORD), "{arguments:?}: {printed}");
    }
}

#[test]
fn memory_needs_no_password() {
    let ran = run(&["replay", "--store", "memory"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

//! The commands that need neither a server nor a trace, and the help of all of them.

use std::fs;
use std::net::UdpSocket;
use std::process::Stdio;

use crate::run::{Ran, file, root, run, tollway};

fn validate(name: &str, text: &[u8]) -> Ran {
    run(&["validate", &file(name, text)])
}

#[test]
fn a_right_file_is_printed_as_it_was_understood() {
    let ran = validate("right.yaml", b"limits: { Orders: { burst: 300, count: 300, period: 180m } }");
    assert_eq!((ran.code, &*ran.stderr), (0, ""));
    assert!(
        ran.stdout.contains("Orders  token_bucket") && ran.stdout.contains("one per 36s"),
        "{}",
        ran.stdout
    );
}

#[test]
fn what_has_no_effect_is_warned_about() {
    let ran = validate("third.yaml", b"rules:\n  upload: \"Or('10/s', 'apikey:5/s:0.1')\"\n");
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.ends_with("\nupload  Or('10/s', 'apikey:5/s')\n  logs :upload, :upload:apikey:VALUE, on_full deny, on_store_failure allow\n"), "{}", ran.stdout);
    let warning =
        "third.yaml:2:11: warning: rule \"upload\": the third field of \"apikey:5/s\" has no effect\n";
    assert!(ran.stderr.ends_with(warning), "{}", ran.stderr);
}

#[test]
fn a_warning_names_the_file_that_it_is_about() {
    let shop = "domain: shop\ndescriptors:\n- {key: a, rate_limit: {unit: day}}\n";
    let shop = file("shop.yaml", shop);
    let ran = validate("tollway.yaml", b"envoy: [shop.yaml]\n");
    let expected = format!("{shop}:3:12: warning: rate_limit has no requests_per_unit");
    assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
}

#[test]
fn every_configuration_of_the_traces_is_right() {
    for file in fs::read_dir(root().join("traces")).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_some_and(|is| is == "yaml") {
            let ran = run(&["validate", file.to_str().unwrap()]);
            assert_eq!((ran.code, &*ran.stderr), (0, ""));
        }
    }
}

#[test]
fn a_wrong_file_gets_all_its_errors_and_exit_1() {
    let ran = validate("wrong.yaml", b"limits:\n  A: { burst: 0, count: 1, period: 1s }\n  B: 7\n");
    assert_eq!((ran.code, &*ran.stdout), (1, ""));
    let lines: Vec<_> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ran.stderr);
    assert!(lines[0].contains("wrong.yaml:2:15: ") && lines[1].contains("wrong.yaml:3:"), "{}", ran.stderr);
    assert_eq!(validate("binary.yaml", b"limits: {}\n\xff\xfe").code, 1);
}

#[test]
fn a_file_that_cannot_be_read_is_exit_2() {
    let ran = run(&["validate", "no-such.yaml"]);
    assert!(ran.stderr.starts_with("tollway: no-such.yaml: cannot be read: "), "{}", ran.stderr);
    assert_eq!((ran.code, &*ran.stdout), (2, ""));
}

#[test]
fn every_command_has_help_with_examples() {
    let overview = run(&["--help"]);
    assert_eq!(overview.code, 0);
    let listed = overview
        .stdout
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let names: Vec<_> = listed
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(names.contains(&"replay") && names.contains(&"validate"), "{names:?}");
    for name in names.into_iter().filter(|name| *name != "help") {
        let help = run(&["help", name]);
        let examples = help.stdout.split("\nExamples:\n").nth(1).unwrap_or_default();
        assert!(examples.contains(&format!("tollway {name}")), "{}", help.stdout);
        assert_eq!(help.code, 0);
    }
}

#[test]
fn usage_errors_are_exit_2() {
    for arguments in [&[][..], &["frobnicate"], &["validate"], &["completions", "cmd.exe"]] {
        let ran = run(arguments);
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{arguments:?}");
        assert!(ran.stderr.contains("Usage: tollway") || ran.stderr.contains("--help"), "{}", ran.stderr);
    }
}

#[test]
fn the_version_is_the_package_s() {
    let ran = run(&["--version"]);
    assert_eq!(ran.stdout, concat!("tollway ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = run(&["completions", shell]);
        assert_eq!((ran.code, &*ran.stderr), (0, ""));
        assert!(ran.stdout.contains("replay") && ran.stdout.contains("quiet"), "{shell}");
    }
}

#[test]
fn nobody_listening_is_no_panic() {
    for arguments in
        [&["completions", "zsh"][..], &["validate", "traces/costs.yaml"], &["replay", "traces/costs.trace"]]
    {
        let mut child = tollway(arguments)
            .current_dir(root())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
        assert_ne!(output.status.code(), Some(101));
    }
}

#[test]
fn a_missing_server_is_reported_alike_by_every_command() {
    // Taken and released: nothing listens there, over TCP or UDP.
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for command in [
        "spend demo:a",
        "check demo:a",
        "refund demo:a",
        "reset demo:a",
        "inspect demo:a",
        "explain upload",
        "explain 10/s",
        "keys",
        "top --once",
        "top --json",
        "record x.trace",
        "text ping --timeout 20s",
        "throttr query alice api",
        "bench http",
        "bench throttr",
        "bench text",
    ] {
        let arguments: Vec<_> = command.split(' ').chain(["--addr", &address]).collect();
        let ran = run(&arguments);
        let expected = format!("no server at {address}; start one with \"tollway serve\"");
        assert!(ran.code == 2 && ran.stderr.contains(&expected), "{command}: {} {}", ran.code, ran.stderr);
    }
}

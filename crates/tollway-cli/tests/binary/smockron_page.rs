//! Checks that the sessions of `docs/smockron.md` happen as shown.

use std::env;
use std::process::Command;

use crate::page::Page;
use crate::run::{file, run};
use crate::serving::Serving;

const PAGE: &str = "docs/smockron.md";

/// The page's configuration, in a file of its own.
fn configuration(page: &Page, name: &str) -> String {
    // One that has a limit as well announces how to try it, which is what a start waits for.
    let limit = "limits: { demo: { burst: 5, count: 5, period: 10s } }\n";
    file(name, [page.block("yaml"), limit].concat())
}

#[test]
fn the_trace_on_the_page_is_as_expected() {
    let page = Page::read(PAGE);
    let config = configuration(&page, "smockron_page.yaml");
    let trace = file("smockron_page.trace", page.block("trace"));
    let ran = run(&["replay", "--config", &config, &trace]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("# smockron: 5 requests, 3 without a reply"), "{}", ran.stdout);
}

#[test]
fn the_gatekeeper_on_the_page_hears_what_is_shown() {
    let Some(python) = env::var_os("TOLLWAY_PYZMQ") else {
        eprintln!("skipped: TOLLWAY_PYZMQ names no Python; `cargo xtask test` has one");
        return;
    };
    let page = Page::read(PAGE);
    let config = configuration(&page, "smockron_page_served.yaml");
    let serving = Serving::start(&["--config", &config, "--http", "127.0.0.1:0"], &[]);
    let announced = serving.printed.split_once("zmq ").unwrap().1.lines().next().unwrap();
    let (accounting, control) = announced.split_once(", control ").unwrap();
    let output = Command::new(python)
        .args(["-c", page.block("python")])
        .env("ACCOUNTING", accounting)
        .env("CONTROL", control)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), page.block("text"));
}

//! What `docs/smockron.md` shows happens as shown.

use std::process::Command;
use std::{env, fs};

use crate::run::{file, root, run};
use crate::serving::Serving;

fn page() -> String {
    fs::read_to_string(root().join("docs/smockron.md")).unwrap()
}

/// The first fenced block in this language.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, from) = page.split_once(&format!("```{language}\n")).unwrap();
    from.split_once("```").unwrap().0
}

/// The page's configuration, in a file of its own.
fn configuration(page: &str, name: &str) -> String {
    // One that has a limit as well announces how to try it, which is what a start waits for.
    let limit = "limits: { demo: { burst: 5, count: 5, period: 10s } }\n";
    file(name, [block(page, "yaml"), limit].concat())
}

#[test]
fn the_trace_on_the_page_is_as_expected() {
    let page = page();
    let config = configuration(&page, "smockron_page.yaml");
    let trace = file("smockron_page.trace", block(&page, "trace"));
    let ran = run(&["replay", "--config", &config, &trace]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("# smockron: 5 requests, 3 without a reply"), "{}", ran.stdout);
}

#[test]
fn the_gatekeeper_on_the_page_hears_what_is_shown() {
    let Some(python) = env::var_os("TOLLGATE_PYZMQ") else {
        eprintln!("skipped: TOLLGATE_PYZMQ names no Python; `cargo xtask test` has one");
        return;
    };
    let page = page();
    let config = configuration(&page, "smockron_page_served.yaml");
    let serving = Serving::start(&["--config", &config, "--http", "127.0.0.1:0"], &[]);
    let announced = serving.printed.split_once("zmq ").unwrap().1.lines().next().unwrap();
    let (accounting, control) = announced.split_once(", control ").unwrap();
    let output = Command::new(python)
        .args(["-c", block(&page, "python")])
        .env("ACCOUNTING", accounting)
        .env("CONTROL", control)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let shown = block(page.split_once("```python").unwrap().1, "text");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), shown);
}

//! The pages show sessions that happen as shown.

use std::path::Path;

use crate::page::{Page, printed, shell};
use crate::run::{fed, file, root, run, run_in};

#[test]
fn the_session_on_the_page_about_traces_happens_as_shown() {
    let page = Page::read("docs/traces.md");
    let policy = file("orders.yaml", page.block("yaml"));
    file("orders.trace", page.block("trace"));
    let session = page.block("console");
    assert_eq!(replayed(session, Path::new(&policy).parent().unwrap()), session);
}

#[test]
fn the_import_on_its_page_happens_as_shown() {
    let page = Page::read("docs/import.md");
    let nginx = file("nginx.conf", page.block("nginx"));
    let ran = run_in(Path::new(&nginx).parent().unwrap(), &["import", "nginx", "nginx.conf"]);
    assert_eq!((ran.code, &*ran.stdout), (0, page.block("yaml")));
    let left_out = ran.stdout.lines().filter(|line| line.starts_with("# - line ")).count();
    assert_eq!(ran.stderr.lines().count(), left_out);
    let first = "nginx.conf:2:5: not carried over: the size of zones login and api: ";
    assert!(ran.stderr.starts_with(first), "{}", ran.stderr);
    assert_eq!(run(&["validate", &file("tollway.yaml", ran.stdout)]).code, 0);
}

#[test]
fn the_limits_of_envoy_s_example_are_imported() {
    let ran = run_in(&root(), &["import", "envoy", "examples/envoy/ratelimit.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("\n  web.user: { algorithm: fixed_window, count: 10, period: 1m }\n"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stderr.starts_with("examples/envoy/ratelimit.yaml:8:5: not carried over: which descriptor"),
        "{}",
        ran.stderr
    );
    assert_eq!(run(&["validate", &file("imported.yaml", ran.stdout)]).code, 0);
}

#[test]
fn a_file_that_cannot_be_imported_is_refused_with_a_place() {
    let wrong = file("wrong.conf", "http {\n  limit_req_zone $a zone=a:1m rate=fast;\n}\n");
    let ran = run(&["import", "nginx", &wrong]);
    assert_eq!((ran.code, &*ran.stdout), (1, ""));
    assert!(ran.stderr.ends_with("wrong.conf:2:31: \"fast\" is not a rate; write it as 10r/s or 30r/m\n"));
    let ran = run(&["import", "nginx", "no-such.conf"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.starts_with("tollway: no-such.conf cannot be read: "), "{}", ran.stderr);
    let ran = fed(&["import", "nginx", "-"], "limit_req_zone $a zone=a:1m rate=fast;\n");
    assert_eq!(ran.stderr, "(stdin):1:29: \"fast\" is not a rate; write it as 10r/s or 30r/m\n");
    let ran = fed(&["import", "nginx", "-"], "http { server { limit_req zone=a; } }\n");
    assert_eq!((ran.code, &*ran.stdout), (1, ""));
    assert!(ran.stderr.contains("(stdin):1:27: not carried over: limit_req zone=a: no limit_req_zone"));
    let unlimited = "domain: a\ndescriptors: [{ key: k, rate_limit: { unlimited: true } }]\n";
    let ran = fed(&["import", "envoy", "-"], unlimited);
    assert_eq!((ran.code, &*ran.stdout), (1, ""));
    assert!(ran.stderr.contains("(stdin):2:15: not carried over: domain a: k: unlimited"), "{}", ran.stderr);
    let long = file("long.conf", vec![b'#'; (4 << 20) + 1]);
    assert!(run(&["import", "nginx", &long]).stderr.contains("more than 4194304 bytes"));
}

/// Returns what a shell in `folder` shows after the commands of a session, the lines that start with `$ `.
fn replayed(session: &str, folder: &Path) -> String {
    let commands = session.lines().filter_map(|line| line.strip_prefix("$ "));
    // Standing between the commands, `echo` would change the `$?` of the next.
    let script: String =
        commands.map(|command| format!("s=$?; echo '$ {command}'; (exit $s); {command}\n")).collect();
    printed(shell(&script).current_dir(folder))
}

//! The pages show sessions that happen as shown.

use std::path::Path;

use crate::page::{Page, printed, shell};
use crate::run::file;

#[test]
fn the_session_on_the_page_about_traces_happens_as_shown() {
    let page = Page::read("docs/traces.md");
    let policy = file("orders.yaml", page.block("yaml"));
    file("orders.trace", page.block("trace"));
    let session = page.block("console");
    assert_eq!(replayed(session, Path::new(&policy).parent().unwrap()), session);
}

/// Returns what a shell in `folder` shows after the commands of a session, the lines that start with `$ `.
fn replayed(session: &str, folder: &Path) -> String {
    let commands = session.lines().filter_map(|line| line.strip_prefix("$ "));
    // Standing between the commands, `echo` would change the `$?` of the next.
    let script: String =
        commands.map(|command| format!("s=$?; echo '$ {command}'; (exit $s); {command}\n")).collect();
    printed(shell(&script).current_dir(folder))
}

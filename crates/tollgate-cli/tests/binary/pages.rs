//! The pages show sessions that happen as shown.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::run::root;

#[test]
fn the_session_on_the_page_about_traces_happens_as_shown() {
    let page = fs::read_to_string(root().join("docs/traces.md")).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("orders.yaml"), block(&page, "yaml")).unwrap();
    fs::write(folder.join("orders.trace"), block(&page, "trace")).unwrap();
    let session = block(&page, "console");
    assert_eq!(replayed(session, &folder), session);
}

/// The first fenced block in this language.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, from) = page.split_once(&format!("```{language}\n")).unwrap();
    from.split_once("```").unwrap().0
}

/// What a shell in `folder` has on its screen after the commands of a session, the lines that start with `$ `.
fn replayed(session: &str, folder: &Path) -> String {
    let commands = session.lines().filter_map(|line| line.strip_prefix("$ "));
    // Standing between the commands, `echo` would change the `$?` of the next.
    let script: String =
        commands.map(|command| format!("s=$?; echo '$ {command}'; (exit $s); {command}\n")).collect();
    let binaries = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    let path = env::join_paths(
        [binaries.to_owned()].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap())),
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder)
        .env("PATH", path.unwrap())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    String::from_utf8(output.stdout).unwrap()
}

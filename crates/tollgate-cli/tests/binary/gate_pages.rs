//! The sessions of `docs/text.md` and `docs/throttr.md` happen as shown.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::run::root;
use crate::serving::Serving;

#[test]
fn the_sessions_on_the_page_about_text_happen_as_shown() {
    happen_as_shown("docs/text.md");
}

#[test]
fn the_sessions_on_the_page_about_throttr_happen_as_shown() {
    happen_as_shown("docs/throttr.md");
}

fn happen_as_shown(page: &str) {
    let page = fs::read_to_string(root().join(page)).unwrap();
    let serving = Serving::start(&["--http", "127.0.0.1:0"], &[]);
    let sessions: Vec<_> =
        page.split("```console\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    assert!(sessions.len() > 1);
    for (command, shown) in sessions.into_iter().flat_map(examples) {
        assert_eq!(timeless(&printed(&command, &serving)), timeless(&shown), "{command}");
    }
}

/// Each command of a session, and what is shown below it.
fn examples(session: &str) -> impl Iterator<Item = (String, String)> {
    session.split("$ ").skip(1).map(|example| {
        let (command, shown) = example.split_once('\n').unwrap();
        (command.to_owned(), shown.to_owned())
    })
}

/// What a shell prints in which `tollgate` asks this server.
fn printed(command: &str, serving: &Serving) -> String {
    let binaries = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    let path = env::split_paths(&env::var_os("PATH").unwrap()).collect::<Vec<_>>();
    let output = Command::new("sh")
        .args(["-c", command])
        .env("PATH", env::join_paths([binaries.to_owned()].into_iter().chain(path)).unwrap())
        .env("TOLLGATE_TEXT_ADDR", gate(serving, "udp "))
        .env("TOLLGATE_THROTTR_ADDR", gate(serving, "tcp "))
        // As long as it takes: what is shown is what is answered, not how fast.
        .env("TOLLGATE_TEXT_TIMEOUT", "20s")
        .env("TOLLGATE_THROTTR_TIMEOUT", "20s")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

/// Where the gate listens that is announced in this way.
fn gate<'a>(serving: &'a Serving, announced: &str) -> &'a str {
    serving.printed.split(announced).nth(1).unwrap().lines().next().unwrap()
}

/// Without how long a quota has still to live: how much time the page takes is not for it to know.
fn timeless(text: &str) -> String {
    let mut parts = text.split("ttl");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| {
        let number = part.trim_start_matches(['=', '"', ':']);
        text + "ttl " + number.trim_start_matches(|digit: char| digit.is_ascii_digit())
    })
}

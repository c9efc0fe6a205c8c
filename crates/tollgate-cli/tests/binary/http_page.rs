//! The examples of `docs/http.md` happen as shown.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::run::root;
use crate::serving::Serving;

/// Where the page has the server.
const ON_THE_PAGE: &str = "127.0.0.1:8080";

#[test]
fn the_examples_on_the_page_about_http_happen_as_shown() {
    let page = fs::read_to_string(root().join("docs/http.md")).unwrap();
    let serving = Serving::start(&["--http", "127.0.0.1:0"], &[]);
    let sessions = page.split("```console\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let mut ran = 0;
    for (command, shown) in sessions.flat_map(examples) {
        let script = command.replace(ON_THE_PAGE, &serving.addr);
        let output = Command::new("sh")
            .args(["-c", &script])
            .env("PATH", path())
            .env("TOLLGATE_ADDR", &serving.addr)
            .output()
            .unwrap();
        let printed =
            String::from_utf8([output.stdout, output.stderr].concat()).unwrap().replace("\r\n", "\n");
        assert_eq!(timeless(&printed), timeless(&shown), "{command}");
        ran += 1;
    }
    assert!(ran > 10, "only {ran} examples were found");
}

/// Where `tollgate` is, and then whatever else.
fn path() -> OsString {
    let binaries = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    let others = env::var_os("PATH").unwrap();
    env::join_paths([binaries.to_owned()].into_iter().chain(env::split_paths(&others))).unwrap()
}

/// Each command of a session, and what is shown below it.
fn examples(session: &str) -> impl Iterator<Item = (String, String)> {
    session.split("$ ").skip(1).map(|example| {
        let (command, shown) = example.split_once('\n').unwrap();
        (command.to_owned(), shown.to_owned())
    })
}

/// Without what depends on when it is run: dates, decimals, and the length that depends on how many of them there are.
fn timeless(text: &str) -> String {
    let lines = text
        .trim_end()
        .lines()
        .filter(|line| !line.starts_with("Date: ") && !line.starts_with("Content-Length: "));
    let words = lines.flat_map(|line| {
        line.split(',').map(|word| {
            let number = word.rsplit([':', ' ']).next().unwrap().trim_end_matches(['}', ']']);
            let seconds = number.strip_suffix('s').unwrap_or(number);
            let decimal = seconds.contains('.') && seconds.parse::<f64>().is_ok();
            let date = word.find("20").filter(|_| word.contains('T') && word.contains('Z'));
            match date {
                Some(start) => word[..start].to_owned() + "a date",
                None if decimal => word.replace(number, "a moment"),
                None => word.to_owned(),
            }
        })
    });
    words.collect::<Vec<_>>().join("\n")
}

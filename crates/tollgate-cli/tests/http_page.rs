//! The examples of `docs/http.md` happen as shown.
#![allow(clippy::unwrap_used, reason = "what the helpers of tests find missing is a failed test")]

mod run;
mod serving;

use std::fs;
use std::process::Command;

use run::root;
use serving::Serving;

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
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
        assert_eq!(timeless(&printed), timeless(&shown), "{command}");
        ran += 1;
    }
    assert!(ran > 10, "only {ran} examples were found");
}

/// Each command of a session, and what is shown below it.
fn examples(session: &str) -> impl Iterator<Item = (String, String)> {
    session.split("$ ").skip(1).map(|example| {
        let (command, shown) = example.split_once('\n').unwrap();
        (command.to_owned(), shown.to_owned())
    })
}

/// Without what depends on when it is run: the date, decimals, and the length that depends on how many of them there are.
fn timeless(text: &str) -> String {
    let lines = text
        .trim_end()
        .lines()
        .filter(|line| !line.starts_with("Date: ") && !line.starts_with("Content-Length: "));
    let words = lines.flat_map(|line| {
        line.split(',').map(|word| {
            let number = word.rsplit(':').next().unwrap();
            let decimal = number.contains('.') && number.parse::<f64>().is_ok();
            if decimal { word.replace(number, "a moment") } else { word.to_owned() }
        })
    });
    words.collect::<Vec<_>>().join("\n")
}

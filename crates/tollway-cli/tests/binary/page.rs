//! A page of the documentation, and a shell to try in what it shows.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::run::root;

pub(crate) struct Page(String);

impl Page {
    /// Reads a file of the project.
    pub(crate) fn read(path: &str) -> Self {
        Self(fs::read_to_string(root().join(path)).unwrap())
    }

    /// Returns the blocks of code in this language.
    pub(crate) fn blocks(&self, language: &str) -> Vec<&str> {
        let fence = format!("```{language}\n");
        self.0.split(&fence).skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
    }

    /// Returns the first block of code in this language.
    pub(crate) fn block(&self, language: &str) -> &str {
        self.blocks(language)[0]
    }

    /// Each command of its sessions, and what is shown below it.
    pub(crate) fn examples(&self) -> Vec<(&str, &str)> {
        self.blocks("console").into_iter().flat_map(examples_of).collect()
    }
}

/// Each command of a session, and what is shown below it.
pub(crate) fn examples_of(session: &str) -> Vec<(&str, &str)> {
    session.split("$ ").skip(1).map(|example| example.split_once('\n').unwrap()).collect()
}

/// A shell that finds `tollway`, and then whatever else.
pub(crate) fn shell(script: &str) -> Command {
    let binaries = Path::new(env!("CARGO_BIN_EXE_tollway")).parent().unwrap();
    let others = env::var_os("PATH").unwrap();
    let path = env::join_paths([binaries.to_owned()].into_iter().chain(env::split_paths(&others)));
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).env("PATH", path.unwrap());
    shell
}

/// All that it prints.
pub(crate) fn printed(shell: &mut Command) -> String {
    let output = shell.output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// Returns the text without what depends on when it is run: dates, times in seconds, and the length of the body.
pub(crate) fn timeless(text: &str) -> String {
    let lines = text
        .trim_end()
        .lines()
        .filter(|line| !["Date: ", "Content-Length: "].iter().any(|name| line.starts_with(name)))
        .map(|line| match line.split_once(": ") {
            Some((name @ ("Retry-After" | "X-RateLimit-Reset"), _)) => name,
            Some(("RateLimit", _)) => line.split_once(";t=").map_or(line, |(before, _)| before),
            _ => line,
        });
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

//! Checks the project's own English: doc summaries, the width of lines, and names.
//!
//! ```text
//! cargo xtask words                     every crate
//! cargo xtask words crates/tollway-core one folder or file
//! ```
//!
//! Nothing here parses Rust or English. Doc comments are found line by line, which works because rustfmt gives every
//! comment and every item a line of its own. Whether a summary has a verb is decided by word lists; [`verb`] says how.

pub mod names;
pub mod summary;
pub mod verb;
pub mod width;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A part of the workspace that has a rate of its own.
#[derive(Debug)]
pub struct Part {
    /// The name that reports and ceilings use.
    pub name: &'static str,
    /// The folder, counted from the root of the workspace.
    pub folder: &'static str,
    /// A folder inside it that is a part of its own.
    pub without: Option<&'static str>,
}

/// Every part of the workspace.
pub const PARTS: &[Part] = &[
    part("core", "crates/tollway-core"),
    part("wire", "crates/tollway-wire"),
    Part { name: "tollway", folder: "crates/tollway", without: Some("crates/tollway/src/store/redis") },
    part("macros", "crates/tollway-macros"),
    part("client", "crates/tollway-client"),
    part("tower", "crates/tollway-tower"),
    part("guard", "crates/tollway-guard"),
    part("load", "crates/tollway-load"),
    part("top", "crates/tollway-top"),
    part("python", "crates/tollway-python"),
    part("xtask", "xtask"),
    part("simulator", "simulator"),
    part("testbed", "testbed"),
    Part { name: "bench", folder: "bench", without: Some("bench/peers") },
    part("peers", "bench/peers"),
    part("instructions", "bench/instructions"),
    part("examples", "examples"),
    part("fuzz", "fuzz"),
    part("store/redis", "crates/tollway/src/store/redis"),
    part("server", "crates/tollway-server"),
    part("cli", "crates/tollway-cli"),
];

const fn part(name: &'static str, folder: &'static str) -> Part {
    Part { name, folder, without: None }
}

impl Part {
    /// Lists the Rust files of this part, sorted.
    pub fn files(&self, root: &Path) -> io::Result<Vec<PathBuf>> {
        let mut files = files_in(&root.join(self.folder), "rs")?;
        if let Some(without) = self.without {
            let (folder, module) = (root.join(without), root.join(without).with_extension("rs"));
            files.retain(|file| !file.starts_with(&folder) && *file != module);
        } else if self.folder.contains("/src/") {
            // The file of a module lies beside its folder.
            files.push(root.join(self.folder).with_extension("rs"));
        }
        Ok(files)
    }
}

/// A place in a file, and what is wrong there.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The file, as it was given.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The rule that is broken, and the text that breaks it.
    pub text: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}:{}: {}", self.file.display(), self.line, self.text)
    }
}

/// The doc summaries of some files, counted.
#[derive(Debug, Default)]
pub struct Count {
    /// The number of summaries.
    pub summaries: usize,
    /// Those that break a rule.
    pub offenders: Vec<Finding>,
}

impl Count {
    /// Counts the summaries of these files.
    pub fn of(files: &[PathBuf]) -> io::Result<Self> {
        let mut count = Self::default();
        for file in files {
            count.add(file)?;
        }
        Ok(count)
    }

    /// Returns the share of offenders in percent.
    pub fn rate(&self) -> f64 {
        let percent = |part: usize, whole: usize| part as f64 * 100.0 / whole as f64;
        if self.summaries == 0 { 0.0 } else { percent(self.offenders.len(), self.summaries) }
    }

    fn add(&mut self, file: &Path) -> io::Result<()> {
        for summary in summary::all(&fs::read_to_string(file)?) {
            self.summaries += 1;
            if let Some(problem) = summary.problem() {
                let text = format!("{problem}: {}", summary.text);
                self.offenders.push(Finding { file: file.to_owned(), line: summary.line, text });
            }
        }
        Ok(())
    }
}

/// Lists the files with this extension in a folder and all folders below it, sorted; or the file itself.
pub fn files_in(path: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                files.extend(files_in(&path, extension)?);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

//! Measures how much of the codecs their own tests run, line by line.
//!
//! Lines of test modules do not count: they would always be covered. So the file of each line is read here, and what
//! follows its `#[cfg(test)]` is left out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::step::{Steps, host, target};
use crate::tools::plugin;

/// The version that is installed where there is none. Building it takes about 40 seconds, once.
const VERSION: &str = "0.9.1";

/// The share of lines that the tests must run, in percent.
const COVERED_MIN: f64 = 95.0;

pub(crate) const AFTER_HELP: &str = "\
Examples:
  cargo xtask coverage             measure, and list the ten files with the least
  cargo xtask coverage --least 70  list every file

The tests are those of the crate tollway-wire itself: what a gate or a client runs by accident does not count, and no
line of a test module does. A line that is not covered wants a test of the behaviour that it has, or it can go.
Exits with 0 at 95 % of the lines or more, and with 1 below.";

/// The lines of one file that can run.
#[derive(Debug, PartialEq)]
struct FileLines {
    file: PathBuf,
    lines: usize,
    /// The numbers of those that no test runs.
    missed: Vec<usize>,
}

impl FileLines {
    fn percent(&self) -> f64 {
        percent(self.lines, self.missed.len())
    }
}

/// Runs the tests of the codecs, and prints the `least` covered files. Exits with 1 below [`COVERED_MIN`].
pub(crate) fn run(steps: &mut Steps, least: usize) -> Result<ExitCode> {
    add_llvm_tools(steps)?;
    let lcov = target()?.join("coverage.lcov");
    let mut coverage = plugin(steps, "cargo-llvm-cov", VERSION)?;
    coverage.args("llvm-cov --package tollway-wire --all-features --locked --lcov --output-path".split(' '));
    steps.run("coverage", coverage.arg(&lcov))?;
    let text = fs::read_to_string(&lcov).with_context(|| format!("cannot read {}", lcov.display()))?;
    let files = read_lcov(&text, lines_before_tests)?;
    if files.is_empty() {
        bail!("{} names no file of tollway-wire", lcov.display());
    }
    Ok(report(files, least))
}

/// Installs the programs of LLVM that read what an instrumented test writes, if they are missing.
fn add_llvm_tools(steps: &mut Steps) -> Result<()> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().context("cannot start rustc")?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if sysroot.join("lib/rustlib").join(host()?).join("bin/llvm-profdata").is_file() {
        return Ok(());
    }
    let added = steps.run("llvm-tools", Command::new("rustup").args(["component", "add", "llvm-tools"]));
    added.context("llvm-tools are missing; install them with `rustup component add llvm-tools`")
}

/// Returns the number of lines of a file before its tests.
fn lines_before_tests(file: &Path) -> Result<usize> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text.lines().take_while(|line| *line != "#[cfg(test)]").count())
}

/// Reads the lines of each file in `lcov`, up to the one that `last_line` returns for the file.
fn read_lcov(lcov: &str, last_line: impl Fn(&Path) -> Result<usize>) -> Result<Vec<FileLines>> {
    let mut files = Vec::new();
    for record in lcov.split("end_of_record") {
        let Some(file) = record.lines().find_map(|line| line.strip_prefix("SF:")) else { continue };
        let file = PathBuf::from(file);
        let last = last_line(&file)?;
        let mut found = FileLines { file, lines: 0, missed: Vec::new() };
        for data in record.lines().filter_map(|line| line.strip_prefix("DA:")) {
            let (line, count) = data.split_once(',').context("a DA record has a line and a count")?;
            let line: usize = line.parse().with_context(|| format!("`DA:{data}` has no line"))?;
            if line <= last {
                found.lines += 1;
                found.missed.extend((count == "0").then_some(line));
            }
        }
        files.extend((found.lines > 0).then_some(found));
    }
    Ok(files)
}

/// Prints the files with the least covered lines and the sum, and returns the exit code.
fn report(mut files: Vec<FileLines>, least: usize) -> ExitCode {
    files.sort_by(|one, other| one.percent().total_cmp(&other.percent()));
    println!("the files with the least covered lines, and the lines that no test runs:");
    for file in files.iter().take(least) {
        let name = file.file.strip_prefix(std::env::current_dir().unwrap_or_default()).unwrap_or(&file.file);
        println!("{:>6.1} %  {}  {}", file.percent(), name.display(), ranges(&file.missed));
    }
    let lines = files.iter().map(|file| file.lines).sum();
    let missed = files.iter().map(|file| file.missed.len()).sum();
    let covered = percent(lines, missed);
    println!("{covered:>6.1} %  of {lines} lines in {} files; at least {COVERED_MIN} % must be", files.len());
    if covered < COVERED_MIN { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[allow(clippy::cast_precision_loss, reason = "the lines of a crate are a small number")]
fn percent(lines: usize, missed: usize) -> f64 {
    100.0 * (lines - missed) as f64 / lines.max(1) as f64
}

/// Formats sorted line numbers, those in a row as a range.
fn ranges(lines: &[usize]) -> String {
    let rows = lines.chunk_by(|one, next| one + 1 == *next);
    let shown = rows.map(|row| match row {
        [first, .., last] => format!("{first}-{last}"),
        _ => row[0].to_string(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tests_do_not_count() {
        let lcov = "SF:/src/a.rs\nFN:1,f\nDA:1,7\nDA:2,0\nDA:3,0\nDA:9,1\nend_of_record\nSF:/src/tests.rs\nDA:1,1\n\
                    end_of_record\n";
        let last_line = |file: &Path| Ok(if file.ends_with("a.rs") { 5 } else { 0 });
        let files = read_lcov(lcov, last_line).unwrap();
        assert_eq!(files, [FileLines { file: "/src/a.rs".into(), lines: 3, missed: vec![2, 3] }]);
        assert_eq!(format!("{:.1}", files[0].percent()), "33.3");
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error() {
        assert!(read_lcov("SF:a.rs\nDA:x,1\nend_of_record", |_| Ok(1)).is_err());
    }

    #[test]
    fn rows_of_lines_are_ranges() {
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), "1-3 7 9-10");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn too_few_covered_lines_fail() {
        let file =
            |missed: usize| FileLines { file: "a.rs".into(), lines: 100, missed: (0..missed).collect() };
        assert_eq!(format!("{:?}", report(vec![file(5)], 1)), format!("{:?}", ExitCode::SUCCESS));
        assert_eq!(format!("{:?}", report(vec![file(6)], 1)), format!("{:?}", ExitCode::FAILURE));
    }
}

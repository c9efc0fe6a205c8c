//! Changes one operator or return value at a time, and expects the tests to fail each time, with cargo-mutants.
//!
//! A mutant that no test notices survives. Some survivors are no hole: `xtask/mutants.txt` lists these with the reason.
//! A survivor that is not listed fails, and so does a listed one that is caught by now, or that no longer exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::step::{Steps, target};
use crate::tools::plugin;

/// The version that is installed where there is none. Building it takes about a minute, once.
const VERSION: &str = "27.1.0";

/// The list of survivors that are accepted.
const ACCEPTED: &str = "xtask/mutants.txt";

/// The number of decisions that a comparison with a naive implementation makes for each mutant, in place of a million:
/// a mutant that differs does so soon.
const DECISIONS: &str = "20000";

/// The exit codes of cargo-mutants after it has tested all mutants: all were caught, some survived, some hung.
const TESTED: [i32; 3] = [0, 2, 3];

pub(crate) const AFTER_HELP: &str = "\
Examples:
  cargo xtask mutants core --shard 0/20             the first twentieth of the mutants of the core
  cargo xtask mutants core --file '**/algorithm/*'  the algorithms alone
  cargo xtask mutants memory                        the whole memory store

A mutant is the code with one change: `<` for `<=`, 0 for a result. The tests of its crate must fail for it. Each takes
some seconds, and the core has about 1,800: a shard K/N is the K-th of N parts, counted from 0, that can run one after
another or on several machines. A survivor wants a test that fails for it. If no test can, because the change makes no
difference, or if the tests of another crate notice it, write it with the reason into xtask/mutants.txt.
Exits with 0 if all survivors of the run are listed there, with 1 if one is not, or if one that is listed is caught.";

/// A part of the code whose mutants are tested, by the tests that matter for it.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Part {
    /// The crate that decides: tollway-core
    Core,
    /// The store of buckets in memory: crates/tollway/src/store/memory
    Memory,
}

impl Part {
    /// Returns the arguments that choose its package, and its files unless some `files` are chosen.
    fn chosen(self, files: &[String]) -> Vec<String> {
        let (package, default) = match self {
            Self::Core => ("tollway-core", None),
            Self::Memory => ("tollway", Some("crates/tollway/src/store/memory{.rs,/**}")),
        };
        let default = default.filter(|_| files.is_empty());
        let files = files.iter().map(String::as_str).chain(default).map(|glob| format!("--file={glob}"));
        [format!("--package={package}")].into_iter().chain(files).collect()
    }

    /// Returns the arguments of `cargo test`. Documentation is not tested, because it takes longest and shows most of
    /// what the other tests check.
    const fn tests(self) -> &'static [&'static str] {
        match self {
            Self::Core => &["--lib", "--tests"],
            Self::Memory => &["--lib", "--test=memory", "--test=bills", "--test=keys_and_pairs"],
        }
    }
}

/// The result of a run: how often a mutant of each name survived, and how often it was tested at all.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    survived: BTreeMap<String, usize>,
    tested: BTreeMap<String, usize>,
}

/// Tests the mutants of a part, or of one shard of it, and compares the survivors with the list.
pub(crate) fn run(steps: &mut Steps, part: Part, shard: Option<&str>, files: &[String]) -> Result<ExitCode> {
    let list = fs::read_to_string(ACCEPTED).with_context(|| format!("cannot read {ACCEPTED}"))?;
    let accepted = read_accepted(&list)?;
    let existing = existing(steps, part)?;
    let folder = target()?.join("mutants");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    test(steps, part, shard, files, &folder)?;
    let outcome = read_outcome(&folder.join("mutants.out"))?;
    Ok(report(&accepted, &existing, &outcome))
}

/// Returns how many mutants of each name the part has.
fn existing(steps: &mut Steps, part: Part) -> Result<BTreeMap<String, usize>> {
    let mut list = plugin(steps, "cargo-mutants", VERSION)?;
    let output = list.args(["mutants", "--list"]).args(part.chosen(&[])).output();
    let output = output.context("cannot start cargo-mutants")?;
    if !output.status.success() {
        bail!("the mutants cannot be listed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(count(String::from_utf8_lossy(&output.stdout).lines()))
}

fn test(
    steps: &mut Steps,
    part: Part,
    shard: Option<&str>,
    files: &[String],
    folder: &PathBuf,
) -> Result<()> {
    let mut mutants = plugin(steps, "cargo-mutants", VERSION)?;
    mutants.args(["mutants", "--no-times", "--colors=never", "--output"]).arg(folder);
    mutants.args(shard.map(|shard| format!("--shard={shard}")));
    mutants.args(part.chosen(files)).arg("--").args(part.tests());
    // What the copies of the tree depend on is built once. Nobody reads a backtrace of a mutant.
    mutants.env("CARGO_TARGET_DIR", folder.join("build")).env("CARGO_PROFILE_DEV_DEBUG", "0");
    mutants.env("TOLLWAY_DECISIONS", DECISIONS);
    test_all(steps, &mut mutants)
}

/// Runs cargo-mutants, for which a survivor is an error, while here the list decides.
fn test_all(steps: &mut Steps, mutants: &mut Command) -> Result<()> {
    let shown = crate::step::shown(mutants);
    steps.take("mutants", &shown, || {
        let status = mutants.status().context("cannot start cargo-mutants")?;
        match status.code() {
            Some(code) if TESTED.contains(&code) => Ok(()),
            _ => bail!("the mutants could not be tested: {status}"),
        }
    })
}

/// Reads the files in which cargo-mutants writes the names of mutants.
fn read_outcome(folder: &std::path::Path) -> Result<Outcome> {
    let read = |name: &str| {
        let file = folder.join(name);
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    };
    let missed = read("missed.txt")?;
    let all = [missed.clone(), read("caught.txt")?, read("timeout.txt")?, read("unviable.txt")?].concat();
    Ok(Outcome { survived: count(missed.lines()), tested: count(all.lines()) })
}

/// Counts the mutants of each name. A name has no line numbers, which every change above would move.
fn count<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in lines.filter(|line| !line.trim().is_empty()) {
        *counts.entry(without_position(line)).or_default() += 1;
    }
    counts
}

/// Returns `file: change` for `file:line:column: change`.
fn without_position(mutant: &str) -> String {
    let (file, rest) = mutant.split_once(':').unwrap_or((mutant, ""));
    let change = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == ':');
    format!("{file}:{change}")
}

/// Reads the list of accepted survivors: a reason as a comment, and below it the mutants that it is about.
fn read_accepted(list: &str) -> Result<BTreeMap<String, usize>> {
    let (mut accepted, mut has_reason) = (BTreeMap::new(), false);
    for (index, line) in list.lines().enumerate() {
        if line.trim().is_empty() {
            has_reason = false;
        } else if line.starts_with('#') {
            has_reason = true;
        } else if has_reason {
            *accepted.entry(line.to_owned()).or_default() += 1;
        } else {
            bail!("{ACCEPTED}:{}: {line:?} has no reason; write one as a comment above it", index + 1);
        }
    }
    Ok(accepted)
}

/// Prints which survivors are not accepted and which accepted ones are none, and returns the exit code.
fn report(
    accepted: &BTreeMap<String, usize>,
    existing: &BTreeMap<String, usize>,
    outcome: &Outcome,
) -> ExitCode {
    let number = |counts: &BTreeMap<String, usize>, name: &str| counts.get(name).copied().unwrap_or(0);
    let mut failed = false;
    for (name, survived) in &outcome.survived {
        if *survived > number(accepted, name) {
            println!(
                "SURVIVED {name}\n  write a test that fails for it, or list it in {ACCEPTED} with the reason"
            );
            failed = true;
        }
    }
    let of_this_part = |name: &str| existing.keys().any(|mutant| crate_of(mutant) == crate_of(name));
    for (name, listed) in accepted.iter().filter(|(name, _)| of_this_part(name)) {
        let all_tested = number(&outcome.tested, name) == number(existing, name);
        if number(existing, name) < *listed {
            println!("GONE {name}\n  there is no such mutant any more: remove it from {ACCEPTED}");
            failed = true;
        } else if all_tested && number(&outcome.survived, name) < *listed {
            println!("CAUGHT {name}\n  a test fails for it by now: remove it from {ACCEPTED}");
            failed = true;
        }
    }
    let [tested, survived] =
        [&outcome.tested, &outcome.survived].map(|counts| counts.values().sum::<usize>());
    println!("{tested} of {} mutants tested, {survived} survived", existing.values().sum::<usize>());
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Returns the folder of the crate of a mutant: `crates/tollway-core`.
fn crate_of(mutant: &str) -> Option<&str> {
    Some(mutant.split_once("/src/")?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADD: &str = "crates/core/src/a.rs: replace + with - in add";
    const LESS: &str = "crates/core/src/a.rs: replace < with <= in less";

    fn counts(names: &[&str]) -> BTreeMap<String, usize> {
        count(names.iter().copied())
    }

    fn is_success(accepted: &[&str], existing: &[&str], survived: &[&str], tested: &[&str]) -> bool {
        let outcome = Outcome { survived: counts(survived), tested: counts(tested) };
        let code = report(&counts(accepted), &counts(existing), &outcome);
        format!("{code:?}") == format!("{:?}", ExitCode::SUCCESS)
    }

    #[test]
    fn files_that_are_chosen_replace_those_of_the_part() {
        let all = "--file=crates/tollway/src/store/memory{.rs,/**}";
        assert_eq!(Part::Memory.chosen(&[]), ["--package=tollway", all]);
        assert_eq!(Part::Memory.chosen(&["a.rs".to_owned()]), ["--package=tollway", "--file=a.rs"]);
        assert_eq!(Part::Core.chosen(&[]), ["--package=tollway-core"]);
    }

    #[test]
    fn the_name_of_a_mutant_has_no_position() {
        assert_eq!(without_position("crates/core/src/a.rs:45:9: replace + with - in add"), ADD);
        assert_eq!(without_position(ADD), ADD);
    }

    #[test]
    fn an_accepted_survivor_has_a_reason() {
        let list = format!("# Nobody can see it.\n{ADD}\n{ADD}\n\n# Nor this.\n{LESS}\n");
        assert_eq!(read_accepted(&list).unwrap(), counts(&[ADD, ADD, LESS]));
        let error =
            read_accepted(&format!("# Nobody can see it.\n{ADD}\n\n{LESS}\n")).unwrap_err().to_string();
        assert!(error.starts_with("xtask/mutants.txt:4:") && error.contains("has no reason"), "{error}");
    }

    #[test]
    fn a_survivor_must_be_listed_as_often_as_it_survives() {
        let all = [ADD, ADD, LESS];
        assert!(is_success(&[], &all, &[], &all));
        assert!(is_success(&[ADD], &all, &[ADD], &all));
        assert!(!is_success(&[], &all, &[ADD], &all));
        assert!(!is_success(&[ADD], &all, &[ADD, ADD], &all));
    }

    #[test]
    fn a_listed_mutant_that_is_caught_or_gone_fails() {
        let all = [ADD, ADD, LESS];
        assert!(!is_success(&[ADD], &all, &[], &all), "caught");
        assert!(!is_success(&[ADD, ADD], &all, &[ADD], &all), "one of two is caught");
        assert!(!is_success(&[ADD], &[LESS], &[], &[LESS]), "gone");
        assert!(is_success(&[ADD], &all, &[], &[ADD, LESS]), "the other may survive in another shard");
        let elsewhere = "crates/tollway/src/b.rs: replace * with / in mul";
        assert!(is_success(&[elsewhere], &all, &[], &all), "another part");
    }
}

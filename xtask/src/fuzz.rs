//! Runs the fuzz targets, each for its share of the minutes, and counts what they tried.
//!
//! ```text
//! fuzz/fuzz_targets/NAME.rs      the target
//! fuzz/dictionaries/NAME.dict    words of its input, if it has any
//! fuzz/corpus/NAME/seed-*        a few inputs that show what it reads; committed
//! target/fuzz/corpus/NAME/       inputs that reached new code; every run goes on from them
//! target/fuzz/findings/NAME/     inputs that broke it; every run tries these first
//! ```
//!
//! No sanitizer is used: the crates under test forbid `unsafe`, so a finding is a panic, an overflow, an assertion, a
//! hang or memory without a bound, and each input takes half the time.
//!
//! cargo builds the targets without cargo-fuzz, which would give every crate the flags of [`COVERAGE`]. libFuzzer reads
//! the counters of all code that has them after each input; here, only crates of the project do.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::step::{Steps, cargo, host, target};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  cargo xtask fuzz                          all targets for ten minutes
  cargo xtask fuzz --minutes 5 text resp    two targets for five minutes
  cargo xtask fuzz --minutes 480 --inputs 100000000
                                            all targets for a night, and each until it has tried 10^8 inputs

Each target gets the same time, and ends earlier if it has tried as many inputs as were asked for. The line about it
has the number of inputs that it tried, and how much of the code they reached. Inputs that reached new code stay in
target/fuzz/corpus, and the next run goes on from them. An input that broke a target stays in target/fuzz/findings, and
the next run tries it first: delete it when it is a test.
Exits with 0 if nothing was found, and with 1 if something was.";

/// The flags of the crates whose branches an input should reach: each has a counter, and libFuzzer keeps an input that
/// reaches a new one. Comparisons are not reported: in loops over bytes, that took up to 40 % of the time.
const COVERAGE: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
];

/// The options of libFuzzer's search. A branch counts once, however often an input takes it, and inputs that are kept
/// are changed equally often: the defaults keep more inputs, and spent up to half of the time on that. Inputs grow
/// slowly, because the short ones are the quick ones. The corpus is read once: nothing else adds to it.
const SEARCH: [&str; 4] = ["-use_counters=0", "-entropic=0", "-len_control=10000", "-reload=0"];

/// The longest time that one input may take. Every codec takes microseconds.
const INPUT_SECONDS: u32 = 5;

/// The longest input, in bytes. It is above every bound that can be reached in one message of a codec, except for those
/// of 64 KiB and more, which have tests; longer inputs repeat what shorter ones do, and take longer.
const INPUT_MAX: u32 = 1024;

/// The memory that a target may use. Most of it holds the corpus.
const MEMORY_MB: u32 = 1024;

/// The result of one target.
#[derive(Debug, PartialEq)]
struct Outcome {
    inputs: u64,
    took: Duration,
    /// The branches that some input reached.
    coverage: u64,
    finding: Option<Finding>,
}

/// An input that broke a target.
#[derive(Debug, PartialEq)]
struct Finding {
    input: PathBuf,
    /// The message of the target, if it panicked.
    message: String,
}

/// The bounds of one target in a run.
#[derive(Clone, Copy)]
struct Share {
    time: Duration,
    inputs: Option<u64>,
}

/// Builds the targets and runs them, `jobs` at a time, so that all of them take `minutes` at most, and each of them at
/// most so many `inputs`. Exits with 1 if any input broke one.
pub(crate) fn run(
    steps: &mut Steps,
    minutes: u16,
    inputs: Option<u64>,
    jobs: usize,
    wanted: &[String],
) -> Result<ExitCode> {
    let manifest = fs::read_to_string("fuzz/Cargo.toml").context("cannot read fuzz/Cargo.toml")?;
    let targets = choose(&targets(&manifest), wanted)?;
    let programs = build(steps, &targets)?;
    let share = Share { time: share(minutes, jobs, targets.len()), inputs };
    let shown = format!("{} targets, {jobs} at a time, {} s each", targets.len(), share.time.as_secs());
    let mut outcomes = Vec::new();
    steps.take("fuzz", &shown, || {
        outcomes = run_all(&programs, &targets, jobs, share)?;
        Ok(())
    })?;
    Ok(report(&programs, &outcomes))
}

/// Returns the names of the targets in a manifest.
fn targets(manifest: &str) -> Vec<String> {
    let in_targets = manifest.split("[[bin]]").skip(1);
    let names = in_targets.filter_map(|bin| bin.split_once("name = \"")?.1.split_once('"'));
    let names: BTreeSet<_> = names.map(|(name, _)| name.to_owned()).collect();
    names.into_iter().collect()
}

/// Returns the targets to run: those that are named, or all of them.
fn choose(targets: &[String], wanted: &[String]) -> Result<Vec<String>> {
    if let Some(unknown) = wanted.iter().find(|name| !targets.contains(name)) {
        bail!("there is no fuzz target {unknown:?}; choose some of {}", targets.join(" "));
    }
    Ok(if wanted.is_empty() { targets } else { wanted }.to_vec())
}

/// Returns the time of each target, in whole seconds, at least one.
fn share(minutes: u16, jobs: usize, targets: usize) -> Duration {
    let rounds = targets.div_ceil(jobs.max(1)).max(1);
    Duration::from_secs((u64::from(minutes) * 60 / rounds as u64).max(1))
}

/// Builds the targets, and returns the folder of their programs.
fn build(steps: &mut Steps, targets: &[String]) -> Result<PathBuf> {
    let lock = fs::read_to_string("fuzz/Cargo.lock").context("cannot read fuzz/Cargo.lock")?;
    let (folder, host) = (target()?.join("fuzz/build"), host()?);
    let mut build = cargo("build --manifest-path fuzz/Cargo.toml --locked --release -Z profile-rustflags");
    build.args(["--target", &host, "--target-dir"]).arg(&folder);
    for name in own_crates(&lock) {
        build.arg("--config").arg(format!("profile.release.package.{name}.rustflags={COVERAGE:?}"));
    }
    if let [only] = targets {
        build.args(["--bin", only]);
    }
    // The stable cargo keeps flags for one crate to itself.
    steps.run("build the targets", build.env("RUSTC_BOOTSTRAP", "1"))?;
    Ok(folder.join(host).join("release"))
}

/// Returns the names of the crates of the project in a `Cargo.lock`: those that come from no registry.
fn own_crates(lock: &str) -> impl Iterator<Item = &str> {
    let crates = lock.split("[[package]]").skip(1).filter(|package| !package.contains("\nsource = "));
    crates.filter_map(|package| Some(package.split_once("name = \"")?.1.split_once('"')?.0))
}

/// Runs every target, and prints a line about each when it has ended. The targets are returned in their order.
fn run_all(programs: &Path, targets: &[String], jobs: usize, share: Share) -> Result<Vec<(String, Outcome)>> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || -> Result<Vec<(usize, Outcome)>> {
        let mut outcomes = Vec::new();
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(name) = targets.get(index)
        {
            let outcome = run_one(programs, name, share)?;
            let ended = done.fetch_add(1, Ordering::Relaxed) + 1;
            println!("[{ended:>2}/{}] {}", targets.len(), line(name, &outcome));
            outcomes.push((index, outcome));
        }
        Ok(outcomes)
    };
    let mut outcomes = thread::scope(|scope| -> Result<Vec<_>> {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|worker| worker.join().expect("a worker does not panic"));
        Ok(ended.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    })?;
    outcomes.sort_by_key(|(index, _)| *index);
    Ok(outcomes.into_iter().map(|(index, outcome)| (targets[index].clone(), outcome)).collect())
}

/// Runs one target for its share, or until an input breaks it.
fn run_one(programs: &Path, name: &str, share: Share) -> Result<Outcome> {
    let kept = target()?.join("fuzz");
    let [corpus, findings] = ["corpus", "findings"].map(|folder| kept.join(folder).join(name));
    for folder in [&corpus, &findings] {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let log = kept.join(format!("{name}.log"));
    let mut command = Command::new(programs.join(name));
    command.arg(format!("-max_total_time={}", share.time.as_secs())).arg("-print_final_stats=1");
    command.args(share.inputs.map(|inputs| format!("-runs={inputs}")));
    command.args(SEARCH).arg(format!("-max_len={INPUT_MAX}"));
    command.arg(format!("-timeout={INPUT_SECONDS}")).arg(format!("-rss_limit_mb={MEMORY_MB}"));
    command.arg(format!("-artifact_prefix={}/", findings.display()));
    let dictionary = PathBuf::from(format!("fuzz/dictionaries/{name}.dict"));
    if dictionary.is_file() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    let seeds = PathBuf::from("fuzz/corpus").join(name);
    command.arg(&corpus).arg(&findings).args(seeds.is_dir().then_some(&seeds));
    let began = Instant::now();
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let status = command.stderr(output).status().with_context(|| format!("cannot start {command:?}"))?;
    let text = fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
    read_log(&String::from_utf8_lossy(&text), status, began.elapsed())
        .with_context(|| format!("{name} failed, and no input did it; see {}", log.display()))
}

/// Reads what a target printed. Returns `None` if it failed without naming an input.
fn read_log(log: &str, status: ExitStatus, took: Duration) -> Option<Outcome> {
    let number = |text: &str| text.split_whitespace().next().and_then(|digits| digits.parse().ok());
    let last = |mark| log.rsplit_once(mark).and_then(|(_, rest)| number(rest)).unwrap_or(0);
    let finding = || {
        let input = log.lines().find_map(|line| line.split_once("Test unit written to "))?.1;
        let panic = log.lines().skip_while(|line| !line.contains(" panicked at "));
        Some(Finding { input: input.into(), message: panic.take(2).collect::<Vec<_>>().join(" ") })
    };
    let finding = if status.success() { None } else { Some(finding()?) };
    Some(Outcome { inputs: last("stat::number_of_executed_units:"), took, coverage: last(" cov: "), finding })
}

fn line(name: &str, outcome: &Outcome) -> String {
    let Outcome { inputs, took, coverage, finding } = outcome;
    let per_second = inputs.checked_div(took.as_secs()).unwrap_or(*inputs);
    let found = finding.as_ref().map_or("nothing found", |_| "FOUND an input that breaks it");
    let (inputs, per_second) = (grouped(*inputs), grouped(per_second));
    format!("{name:<14} {inputs:>15} inputs {per_second:>9}/s  coverage {coverage:>5}  {found}")
}

/// Prints the sum and how to repeat each finding, and returns the exit code.
fn report(programs: &Path, outcomes: &[(String, Outcome)]) -> ExitCode {
    let inputs = outcomes.iter().map(|(_, outcome)| outcome.inputs).sum();
    println!("{} inputs for {} targets", grouped(inputs), outcomes.len());
    let mut code = ExitCode::SUCCESS;
    for (name, outcome) in outcomes {
        if let Some(Finding { input, message }) = &outcome.finding {
            println!("\n{name}: {message}");
            println!("  repeat it:    {} {}", programs.join(name).display(), input.display());
            println!(
                "  then mend it, write a test, and try it again first: cargo xtask fuzz --minutes 1 {name}"
            );
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Formats a number with a comma before every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn names(names: &str) -> Vec<String> {
        names.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn targets_are_those_of_the_manifest() {
        let manifest =
            "[package]\nname = \"fuzz\"\n[[bin]]\nname = \"text\"\npath = \"x\"\n[[bin]]\nname = \"resp\"\n";
        assert_eq!(targets(manifest), names("resp text"));
    }

    #[test]
    fn crates_without_a_source_are_the_projects() {
        let lock = "version = 4\n\n[[package]]\nname = \"tokio\"\nsource = \"registry\"\n\n\
                    [[package]]\nname = \"tollway-core\"\ndependencies = [\n \"thiserror\",\n]\n";
        assert_eq!(own_crates(lock).collect::<Vec<_>>(), ["tollway-core"]);
    }

    #[test]
    fn an_unknown_target_is_refused_with_the_known_ones() {
        let all = names("resp text");
        assert_eq!(choose(&all, &[]).unwrap(), all);
        assert_eq!(choose(&all, &names("text")).unwrap(), names("text"));
        let error = choose(&all, &names("text rsep")).unwrap_err().to_string();
        assert_eq!(error, "there is no fuzz target \"rsep\"; choose some of resp text");
    }

    #[test]
    fn the_minutes_are_shared_among_rounds_of_targets() {
        for (minutes, jobs, targets, seconds) in
            [(10, 2, 20, 60), (1, 2, 3, 30), (1, 4, 1, 60), (1, 1, 100, 1)]
        {
            assert_eq!(share(minutes, jobs, targets).as_secs(), seconds, "{minutes} {jobs} {targets}");
        }
    }

    #[test]
    fn a_log_has_the_inputs_and_the_last_coverage() {
        let log = "#2\tINITED cov: 12 ft: 13\n#100\tNEW    cov: 45 ft: 60 corp: 3\nDone 1000 runs in 2 second(s)\n\
                   stat::number_of_executed_units: 1000\n";
        let took = Duration::from_secs(2);
        let expected = Outcome { inputs: 1_000, took, coverage: 45, finding: None };
        assert_eq!(read_log(log, ExitStatus::from_raw(0), took), Some(expected));
    }

    #[test]
    fn a_finding_has_its_input_and_what_was_said() {
        let log = "#100\tNEW    cov: 45 ft: 60\n\nthread '<unnamed>' panicked at a.rs:1:2:\nan assertion\nSUMMARY\n\
                   Test unit written to target/fuzz/findings/text/crash-0a\nstat::number_of_executed_units: 7\n";
        let failed = ExitStatus::from_raw(77 << 8);
        let outcome = read_log(log, failed, Duration::ZERO).unwrap();
        let message = "thread '<unnamed>' panicked at a.rs:1:2: an assertion".to_owned();
        let input = "target/fuzz/findings/text/crash-0a".into();
        assert_eq!((outcome.inputs, outcome.finding), (7, Some(Finding { input, message })));
        assert_eq!(read_log("no such dictionary", failed, Duration::ZERO), None);
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 123_456_789].map(grouped), ["0", "999", "1,000", "123,456,789"]);
    }
}

//! Counts the instructions of the hot paths, and compares them with those in `bench/instructions/baseline.txt`.
//!
//! Each path runs once under callgrind, which counts what the processor executes: unlike a time, it is the same on a
//! busy machine, and hardly changes from run to run. Only the busiest thread beside the main one is counted, because
//! the main one prepares the path and is the client of the gates.
//!
//! The numbers depend on the compiler, so with another one than that of the baseline they are printed and not judged.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::setup::{self, Program};
use crate::step::{Steps, cargo, target};

const PROGRAMS: &[Program] = &[("valgrind", "valgrind")];
const BASELINE: &str = "bench/instructions/baseline.txt";
/// The rise of a path, as a share, that fails. From run to run a count differs by less than a tenth of it, because the
/// store hashes with random keys.
const RISE_MAX: f64 = 0.03;
/// Paths that are printed and not judged: a timer of the server sweeps its store meanwhile, so the counts depend on how
/// long the run takes.
const UNSTEADY: &[&str] = &["text", "throttr", "resp-cl-throttle", "http-spend"];
/// The functions of a path that the baseline names: those that take at least this share of it.
const NAMED_SHARE: f64 = 0.02;

/// Counts all paths. With `bless` the counts become the baseline, and otherwise a path that rose too much is an error.
pub(crate) fn run(steps: &mut Steps, bless: bool) -> Result<()> {
    setup::install(steps, PROGRAMS)?;
    steps.run("build", &mut cargo("build --locked --release --package tollway-instructions"))?;
    let counted = Counts { compiler: compiler()?, paths: count_all(steps)? };
    if bless {
        fs::write(BASELINE, counted.to_string()).with_context(|| format!("cannot write {BASELINE}"))?;
        eprintln!("{BASELINE} has the new counts");
        return Ok(());
    }
    let Ok(text) = fs::read_to_string(BASELINE) else {
        print!("{counted}");
        eprintln!("not judged: there is no {BASELINE}; make one with `cargo xtask instructions --bless`");
        return Ok(());
    };
    let baseline = Counts::parse(&text).with_context(|| format!("{BASELINE} is not as it was written"))?;
    compare(&baseline, &counted)
}

/// The instructions of one request on a path.
#[derive(Debug, PartialEq)]
struct PathCount {
    name: String,
    total: f64,
    functions: BTreeMap<String, f64>,
}

/// The counts of all paths, made with one compiler.
#[derive(Debug, PartialEq)]
struct Counts {
    compiler: String,
    paths: Vec<PathCount>,
}

/// Prints the counts beside the baseline. Fails if a path rose too much, unless the compilers differ.
fn compare(baseline: &Counts, counted: &Counts) -> Result<()> {
    let mut risen = Vec::new();
    for path in &counted.paths {
        let Some(before) = baseline.paths.iter().find(|before| before.name == path.name) else {
            println!("{:>20} {:>8.0}  not in the baseline", path.name, path.total);
            risen.push(format!("{} is not in the baseline", path.name));
            continue;
        };
        let rise = path.total / before.total - 1.0;
        println!("{:>20} {:>8.0}  {:+.2} %", path.name, path.total, rise * 100.0);
        if rise > RISE_MAX && !UNSTEADY.contains(&path.name.as_str()) {
            let (function, more) = path.largest_rise(before);
            risen.push(format!(
                "{}: {:.0} instructions a request instead of {:.0} ({:+.1} %), most of it in {function} ({more:+.0})",
                path.name,
                path.total,
                before.total,
                rise * 100.0
            ));
        }
    }
    if baseline.compiler != counted.compiler {
        eprintln!(
            "not judged: the baseline was made with {}, this is {}; make a new one with `cargo xtask instructions --bless`",
            baseline.compiler, counted.compiler
        );
        return Ok(());
    }
    if risen.is_empty() {
        return Ok(());
    }
    bail!(
        "{}\nif it is worth that, `cargo xtask instructions --bless` makes it the baseline",
        risen.join("\n")
    )
}

impl PathCount {
    /// Returns the function that takes the most instructions more than before, and how many.
    fn largest_rise(&self, before: &Self) -> (&str, f64) {
        let more = |(name, now): (&String, &f64)| now - before.functions.get(name).unwrap_or(&0.0);
        let largest = self.functions.iter().max_by(|a, b| more(*a).total_cmp(&more(*b)));
        largest.map_or(("no function", 0.0), |function| (function.0, more(function)))
    }
}

impl Counts {
    fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let compiler = lines.next().and_then(|line| line.strip_prefix("compiler "));
        let compiler = compiler.context("the first line does not name the compiler")?.to_owned();
        let mut paths: Vec<PathCount> = Vec::new();
        for line in lines {
            let (count, name) =
                line.trim().split_once(' ').with_context(|| format!("`{line}` has no name"))?;
            let (count, name) = (count.parse()?, name.to_owned());
            if line.starts_with(' ') {
                let path = paths.last_mut().context("a function comes before every path")?;
                path.functions.insert(name, count);
            } else {
                paths.push(PathCount { name, total: count, functions: BTreeMap::new() });
            }
        }
        Ok(Self { compiler, paths })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# Instructions of one request on each hot path, and in its largest functions.")?;
        writeln!(f, "# Written by `cargo xtask instructions --bless`.")?;
        writeln!(f, "compiler {}", self.compiler)?;
        for path in &self.paths {
            writeln!(f, "{:.1} {}", path.total, path.name)?;
            let mut functions: Vec<_> = path.functions.iter().collect();
            functions.sort_by(|(_, a), (_, b)| b.total_cmp(a));
            for (name, count) in
                functions.into_iter().filter(|(_, count)| **count >= path.total * NAMED_SHARE)
            {
                writeln!(f, "    {count:.1} {name}")?;
            }
        }
        Ok(())
    }
}

/// Returns the version of the compiler and its platform.
fn compiler() -> Result<String> {
    let version = output(Command::new("rustc").arg("--version"))?;
    let host = output(Command::new("rustc").args(["--print", "host-tuple"]))?;
    Ok(format!("{} {}", version.trim(), host.trim()))
}

/// Runs every path that the program lists under callgrind.
fn count_all(steps: &mut Steps) -> Result<Vec<PathCount>> {
    let program = target()?.join("release/tollway-instructions");
    let folder = target()?.join("instructions");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let list = output(&mut Command::new(&program))?;
    let mut paths = Vec::new();
    for line in list.lines() {
        let (name, requests) = line.split_once(' ').with_context(|| format!("`{line}` is no path"))?;
        let mut callgrind = Command::new("valgrind");
        callgrind.args(["--tool=callgrind", "--quiet", "--separate-threads=yes"]);
        callgrind.arg(format!("--callgrind-out-file={}", folder.join(name).display()));
        steps.run(name, callgrind.arg(&program).arg(name))?;
        let (total, functions) = busiest_thread(&folder, name)?;
        let requests: f64 = requests.parse()?;
        let functions = functions.into_iter().map(|(name, count)| (name, count / requests)).collect();
        paths.push(PathCount { name: name.to_owned(), total: total / requests, functions });
    }
    Ok(paths)
}

/// The instructions of a thread, and of each of its functions without those that they call.
type ThreadCount = (f64, BTreeMap<String, f64>);

/// Reads what callgrind has written, a file for each thread, and returns the one with the most instructions beside the
/// main thread.
fn busiest_thread(folder: &Path, name: &str) -> Result<ThreadCount> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        let number = file
            .file_name()
            .and_then(|file| file.to_str()?.strip_prefix(name)?.strip_prefix('-')?.parse::<u32>().ok());
        if number.is_some_and(|number| number > 1) {
            threads.push(read_profile(&fs::read_to_string(&file)?));
        }
    }
    let busiest = threads.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    busiest.with_context(|| format!("callgrind wrote nothing about a second thread of {name}"))
}

/// Reads the profile of one thread, in the format of callgrind.
fn read_profile(text: &str) -> ThreadCount {
    let (mut names, mut functions) = (BTreeMap::new(), BTreeMap::new());
    let (mut current, mut total) = (String::new(), 0.0);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(function) = line.strip_prefix("fn=") {
            current = function_name(function, &mut names);
        } else if let Some(function) = line.strip_prefix("cfn=") {
            function_name(function, &mut names);
        } else if line.starts_with("calls=") {
            // The cost of the call comes next; it is also among the callee's own.
            lines.next();
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            // A position, and the instructions there.
            let count = line.split(' ').nth(1).and_then(|count| count.parse::<f64>().ok()).unwrap_or(0.0);
            *functions.entry(current.clone()).or_insert(0.0) += count;
            total += count;
        }
    }
    (total, functions)
}

/// Returns the name of a function. It is written once, as `(7) name`, and then as `(7)`.
fn function_name(text: &str, names: &mut BTreeMap<String, String>) -> String {
    let (number, name) = text.split_once(' ').unwrap_or((text, ""));
    if !name.is_empty() {
        names.insert(number.to_owned(), without_hash(name));
    }
    names.get(number).cloned().unwrap_or_else(|| without_hash(text))
}

/// Returns the name without what differs from build to build: the hash at its end, and the mark of a recursion.
fn without_hash(name: &str) -> String {
    let name = name.split_once('\'').map_or(name, |(name, _)| name);
    match name.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            name.to_owned()
        }
        _ => name.to_owned(),
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "events: Ir\nfn=(1) store::charge::h0123456789abcdef\n0 100\ncfn=(2) clock::now\n\
                           calls=1 0\n0 40\n0 60\nfn=(2)\n0 40\n\ntotals: 200\n";

    fn counts(compiler: &str, charge: f64) -> Counts {
        let functions = BTreeMap::from([("charge".to_owned(), charge), ("now".to_owned(), 40.0)]);
        let paths = vec![PathCount { name: "spend-hot".to_owned(), total: charge + 40.0, functions }];
        Counts { compiler: compiler.to_owned(), paths }
    }

    #[test]
    fn calls_are_counted_once() {
        let (total, functions) = read_profile(PROFILE);
        assert_eq!(total, 200.0);
        assert_eq!(
            functions,
            BTreeMap::from([("store::charge".to_owned(), 160.0), ("clock::now".to_owned(), 40.0)])
        );
    }

    #[test]
    fn a_baseline_reads_as_it_was_written() {
        let written = counts("rustc 1.95.0", 160.0);
        assert_eq!(Counts::parse(&written.to_string()).unwrap(), written);
        assert!(Counts::parse("160 spend-hot").is_err());
    }

    #[test]
    fn a_rise_fails_and_names_the_function() {
        let before = counts("rustc 1.95.0", 160.0);
        assert!(compare(&before, &counts("rustc 1.95.0", 165.0)).is_ok());
        assert!(compare(&before, &counts("rustc 1.95.0", 100.0)).is_ok());
        let error = compare(&before, &counts("rustc 1.95.0", 180.0)).unwrap_err().to_string();
        assert!(
            error.starts_with("spend-hot: 220 instructions a request instead of 200 (+10.0 %)"),
            "{error}"
        );
        assert!(error.contains("most of it in charge (+20)"), "{error}");
        assert!(compare(&before, &counts("rustc 1.96.0", 180.0)).is_ok(), "another compiler is not judged");
    }
}

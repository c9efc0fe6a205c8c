//! Runs the project's own tasks: tests, checks and benchmarks.
//!
//! ```text
//! cargo xtask test          install what the tests need, then run all of them
//! cargo xtask ci            everything that must hold before a change lands
//! cargo xtask advisories    licences, sources and known vulnerabilities of what is depended on
//! cargo xtask words         doc summaries, lines and names that break the rules of plain words
//! cargo xtask bench core    one benchmark, beside its peers
//! cargo xtask instructions  the instructions of the hot paths, beside those of the last change
//! cargo xtask simulate      many seeds of the simulator, which tries to break what the limits promise
//! cargo xtask soak          a fleet of real processes under load, for a minute
//! cargo xtask fuzz          arbitrary bytes for everything that reads some
//! cargo xtask coverage      the lines of the codecs that their tests run
//! cargo xtask mutants       code that is broken on purpose, which a test must notice
//! cargo xtask miri          the tests around the unsafe code, interpreted
//! cargo xtask deb           a Debian package with a systemd service, which is checked
//! cargo xtask faults        a full disk, a cut network and the like, under real servers
//! cargo xtask kill          kill -9 of a server under load, a hundred times
//! ```
//!
//! A task is a list of steps, and a step is a command that anybody could type: each is printed before it runs, so the
//! one that failed can be repeated alone.

mod advisories;
mod bench;
mod build_cost;
mod ci;
mod coverage;
mod deb;
mod faults;
mod features;
mod fuzz;
mod instructions;
mod kill;
mod macos;
mod miri;
mod mutants;
mod python;
mod report;
mod setup;
mod simulate;
mod soak;
mod step;
mod test;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::step::Steps;

const ABOUT: &str = "Runs the project's own tasks: tests, checks and benchmarks";

const AFTER_HELP: &str = "\
Examples:
  cargo xtask test                    run all tests
  cargo xtask test burst              run the tests with `burst` in their names
  cargo xtask words crates/tollway    list what breaks the rules of plain words in one crate
  cargo xtask bench core              compare the decisions of the library with governor's
  cargo xtask bench build 5           compare the build cost with governor's, in five rounds
  cargo xtask simulate --seeds 100    simulate a hundred worlds, and judge every decision

Every step is printed as the command that it is. If one fails, copy it and run it alone.";

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = ABOUT, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install the programs that the tests start: curl, HAProxy, nginx, Prometheus, Python, Redis
    Setup,
    /// Install what is missing, then run all tests, documentation and examples included
    Test {
        /// Arguments for `cargo test`, such as part of a test's name
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Install what is missing, then run the tests of the Python package
    Python {
        /// Arguments for pytest
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run every check that must pass before a change lands (about 25 minutes from a fresh clone)
    Ci,
    /// Check every feature of the crates that have any, one at a time
    Features,
    /// Check licences, sources and known vulnerabilities of the dependencies; exits 3 without a database of these
    Advisories,
    /// Check that everything but the benchmarks and the simulator compiles for macOS
    Macos,
    /// List doc summaries that are questions or have no verb, lines wider than 120 columns, and names used twice
    Words {
        /// Folders or files to look at, of any project (default: the whole workspace)
        paths: Vec<PathBuf>,
    },
    /// Run one benchmark, beside its peers
    Bench {
        /// The name of the benchmark
        #[arg(value_parser = bench::NAMES)]
        name: String,
        /// Arguments for the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Count the instructions of the hot paths; fails if one rose by more than 3 % (installs valgrind if it is missing)
    Instructions {
        /// Write the counts as the new baseline instead
        #[arg(long)]
        bless: bool,
    },
    /// Compare the bounds of the sketch of who is busy with exact counts, in random streams
    Sketch {
        /// The number of streams; a million take some minutes
        #[arg(long, default_value_t = 1_000_000)]
        streams: u64,
        /// The seed of the streams; those of another seed are other ones
        #[arg(long, default_value_t = 6)]
        seed: u64,
    },
    /// Try to break what the limits promise, in a simulated world; exits 1 if a seed does
    Simulate {
        /// Arguments for the simulator: `--seeds`, `--seconds`, `--seed`, `--plant`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Feed arbitrary bytes to everything that reads some; exits 1 with the command that repeats a finding
    #[command(after_help = fuzz::AFTER_HELP)]
    Fuzz {
        /// The time that all targets take together, without building them
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
        minutes: u16,
        /// The number of inputs after which a target ends, even if it has time left
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        inputs: Option<u64>,
        /// The number of targets that run at a time (default: one for each core)
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
        jobs: Option<u16>,
        /// The targets to run (default: all of them)
        targets: Vec<String>,
    },
    /// Measure how many lines of the codecs their tests run; exits 1 below 95 %
    #[command(after_help = coverage::AFTER_HELP)]
    Coverage {
        /// The number of files to list, those with the least covered lines first
        #[arg(long, default_value_t = 10)]
        least: usize,
    },
    /// Break the code in one place at a time, and check that a test notices; exits 1 if none does
    #[command(after_help = mutants::AFTER_HELP)]
    Mutants {
        /// The part whose code is changed
        part: mutants::Part,
        /// The part of the mutants to test, such as `0/20`: the first of twenty
        #[arg(long, value_name = "K/N")]
        shard: Option<String>,
        /// The files to change, by a pattern such as `**/algorithm/*` (default: all of the part)
        #[arg(long = "file", value_name = "GLOB")]
        files: Vec<String>,
    },
    /// Run the tests around the `unsafe` code under Miri; exits 3 where Miri cannot be installed
    #[command(after_help = miri::AFTER_HELP)]
    Miri,
    /// Build a Debian package with a systemd service, and check it: its files, its unit, and that it serves
    Deb {
        /// The binary to package (default: a release build)
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
    },
    /// Kill a server with a journal under load, again and again, and print how much it has lost
    Kill {
        /// The number of kills
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
        kills: u16,
    },
    /// Break the machine and the network under real servers, and check what they still promise (as root)
    Faults {
        /// The faults (default: all of them)
        #[arg(value_parser = faults::NAMES)]
        names: Vec<String>,
    },
    /// Run a master and four gatekeepers under load, and print the results; or random faults for hours
    Soak {
        /// The length of each run in seconds
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(4..))]
        seconds: u16,
        /// Run random faults for so many hours instead, with a report each minute (as root)
        #[arg(long, conflicts_with = "seconds")]
        hours: Option<f64>,
    },
}

fn main() -> ExitCode {
    let task = Arguments::parse().task;
    match run(task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<ExitCode> {
    let mut steps = Steps::at_root()?;
    let mut code = ExitCode::SUCCESS;
    match task {
        Task::Setup => setup::run(&mut steps)?,
        Task::Test { arguments } => test::run(&mut steps, &arguments)?,
        Task::Python { arguments } => {
            setup::run(&mut steps)?;
            python::test(&mut steps, &arguments)?;
        }
        Task::Ci => ci::run(&mut steps)?,
        Task::Features => features::check_each(&mut steps)?,
        Task::Macos => macos::run(&mut steps)?,
        Task::Advisories => code = advisories::run(&mut steps)?,
        Task::Words { paths } => return report::run(&paths).map(|()| ExitCode::SUCCESS),
        Task::Bench { name, arguments } => bench::run(&mut steps, &name, &arguments)?,
        Task::Instructions { bless } => instructions::run(&mut steps, bless)?,
        Task::Sketch { streams, seed } => {
            let test = "test --locked --release --package tollway-server --lib bounds_hold_for_many_short_streams \
                        -- --nocapture";
            let mut test = step::cargo(test);
            test.env("TOLLWAY_STREAMS", streams.to_string()).env("TOLLWAY_SEED", seed.to_string());
            steps.run("sketch", &mut test)?;
        }
        Task::Simulate { arguments } => simulate::run(&mut steps, &arguments)?,
        Task::Fuzz { minutes, inputs, jobs, targets } => {
            let jobs = jobs.map_or_else(step::cores, usize::from);
            code = fuzz::run(&mut steps, minutes, inputs, jobs, &targets)?;
        }
        Task::Coverage { least } => code = coverage::run(&mut steps, least)?,
        Task::Mutants { part, shard, files } => {
            code = mutants::run(&mut steps, part, shard.as_deref(), &files)?;
        }
        Task::Miri => code = miri::run(&mut steps)?,
        Task::Deb { binary } => deb::run(&mut steps, binary)?,
        Task::Kill { kills } => kill::run(&mut steps, kills)?,
        Task::Faults { names } => faults::run(&mut steps, &names)?,
        Task::Soak { hours: Some(hours), .. } => soak::run_faults(&mut steps, hours)?,
        Task::Soak { seconds, hours: None } => soak::run(&mut steps, seconds)?,
    }
    steps.summarize();
    Ok(code)
}

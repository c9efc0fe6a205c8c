//! The project's own chores.
//!
//! ```text
//! cargo xtask test          install what the tests need, then run all of them
//! cargo xtask ci            everything that must hold before a change lands
//! cargo xtask words         doc summaries, lines and names that break the rules of plain words
//! cargo xtask bench core    one benchmark, beside its peers
//! cargo xtask soak          a fleet of real processes under load, for a minute
//! ```
//!
//! A chore is a list of steps, and a step is a command that anybody could type: each is printed before it runs, so
//! the one that failed can be repeated alone.

mod bench;
mod build_cost;
mod ci;
mod features;
mod macos;
mod python;
mod report;
mod setup;
mod soak;
mod step;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::step::Steps;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", about = "The project's own chores")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Install the programs that the tests talk to, if they are missing
    Setup,
    /// Set up, then run every test of the workspace, documentation and examples included
    Test {
        /// Handed to `cargo test` as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Set up, then run the tests of the Python package alone
    Python {
        /// Handed to pytest as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Check everything that must hold before a change lands
    Ci,
    /// Check every feature of the crates that have any, one at a time
    Features,
    /// Check that everything but the benchmarks compiles for macOS
    Macos,
    /// List doc summaries that are questions or have no verb, lines wider than 120 columns, and names used twice
    Words {
        /// Folders or files to look at, of any project (default: the whole workspace)
        paths: Vec<PathBuf>,
    },
    /// Run one benchmark
    Bench {
        /// Which one
        #[arg(value_parser = bench::NAMES)]
        name: String,
        /// Handed to the benchmark as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run a master and four gatekeepers under load, and print what came of it
    Soak {
        /// How long each run is
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(4..))]
        seconds: u16,
    },
}

fn main() -> ExitCode {
    let chore = Arguments::parse().chore;
    match run(chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> anyhow::Result<()> {
    let mut steps = Steps::at_the_root()?;
    match chore {
        Chore::Setup => setup::run(&mut steps)?,
        Chore::Test { arguments } => test::run(&mut steps, &arguments)?,
        Chore::Python { arguments } => {
            setup::run(&mut steps)?;
            python::test(&mut steps, &arguments)?;
        }
        Chore::Ci => ci::run(&mut steps)?,
        Chore::Features => features::run(&mut steps)?,
        Chore::Macos => macos::run(&mut steps)?,
        Chore::Words { paths } => return report::run(&paths),
        Chore::Bench { name, arguments } => bench::run(&mut steps, &name, &arguments)?,
        Chore::Soak { seconds } => soak::run(&mut steps, seconds)?,
    }
    steps.summarize();
    Ok(())
}

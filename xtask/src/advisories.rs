//! Checks what is depended on, with cargo-deny: licences, bans, sources, and known vulnerabilities.
//!
//! The first three need no network. Vulnerabilities need the database of RustSec, a git repository that cargo-deny
//! clones. Where it can neither be fetched nor is there from an earlier run, nothing is known about vulnerabilities:
//! the task says so and ends with [`NO_DATABASE`], never with success.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use crate::step::Steps;
use crate::tools::plugin;

/// The version that is installed where there is none. Building it takes some minutes, once.
const VERSION: &str = "0.20.2";

/// The exit code of a run that could not look for vulnerabilities. A check that failed has 1, as in every task.
const NO_DATABASE: u8 = 3;

/// Checks the dependencies of the workspace. Those of the fuzzers and of the benchmarks' peers are never shipped.
pub(crate) fn run(steps: &mut Steps) -> Result<ExitCode> {
    deny(steps, "licences, bans, sources", "check --hide-inclusion-graph licenses bans sources")?;
    if let Err(error) = deny(steps, "fetch the database", "fetch db") {
        eprintln!("the database of vulnerabilities cannot be fetched: {error:#}");
        let folder = database_folder();
        if !has_database(&folder) {
            eprintln!(
                "\nNOT CHECKED: known vulnerabilities. The database cannot be fetched, and there is none in {}.\n\
                 Run this again where https://github.com/RustSec/advisory-db can be reached.",
                folder.display()
            );
            return Ok(ExitCode::from(NO_DATABASE));
        }
        eprintln!("the database of an earlier run is used; one that is older than 90 days is an error");
    }
    deny(steps, "vulnerabilities", "--offline check --hide-inclusion-graph advisories")?;
    Ok(ExitCode::SUCCESS)
}

/// Runs cargo-deny as a step of this name.
fn deny(steps: &mut Steps, name: &str, arguments: &str) -> Result<()> {
    let mut command = plugin(steps, "cargo-deny", VERSION)?;
    steps.run(name, command.arg("--locked").args(arguments.split_whitespace()))
}

/// Returns whether there is a database from an earlier run. A failed fetch may leave an empty folder for one.
fn has_database(folder: &Path) -> bool {
    let Ok(databases) = folder.read_dir() else { return false };
    databases.flatten().any(|database| database.path().join("crates").is_dir())
}

/// Returns the folder in which cargo-deny keeps its databases.
fn database_folder() -> PathBuf {
    let home = env::home_dir().unwrap_or_default();
    let cargo_home = env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    cargo_home.join("advisory-dbs")
}

//! Checks everything that must hold before a change lands.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step::{Steps, cargo, target};
use crate::{features, instructions, test};

/// Runs all checks, the cheapest first, so that a mistake is found early.
pub(crate) fn run(steps: &mut Steps) -> Result<()> {
    let before = changes()?;
    steps.run("format", &mut cargo("fmt --all --check"))?;
    steps.run("format fuzz", &mut cargo("fmt --manifest-path fuzz/Cargo.toml --check"))?;
    steps.run("format peers", &mut cargo("fmt --manifest-path bench/peers/Cargo.toml --check"))?;
    steps.run("lint", &mut cargo("clippy --workspace --all-targets --locked -- -D warnings"))?;
    // In the same target folder: most of what it depends on has just been checked.
    let mut fuzz = cargo("clippy --manifest-path fuzz/Cargo.toml --locked --target-dir");
    steps.run("lint fuzz", fuzz.arg(target()?).args(["--", "-D", "warnings"]))?;
    features::check_none(steps)?;
    test::run(steps, &[])?;
    let simulate = "run --quiet --locked --package tollway-simulator -- --seeds 20 --seconds 20000";
    steps.run("simulate", &mut cargo(simulate))?;
    instructions::run(steps, false)?;
    let mut doc = cargo("doc --workspace --no-deps --locked");
    steps.run("document", doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    steps.take("leave no trace", "git status, as it was before", || match changes()? {
        after if after == before => Ok(()),
        after => bail!("the steps changed what git sees:\n{after}"),
    })
}

/// Returns the state of the working tree: the names of changed files, and their differences.
fn changes() -> Result<String> {
    Ok(git(&["status", "--porcelain"])? + &git(&["diff", "HEAD"])?)
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).output().context("cannot start git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

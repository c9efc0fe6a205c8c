//! Finds the plugins of cargo that a task needs, and installs those that are missing under `target/`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::setup::find;
use crate::step::{Steps, cargo, target};

/// Returns a command for the plugin `name`: the one under `target/`, the one on the path, or a new one of `version`
/// under `target/`.
pub(crate) fn plugin(steps: &mut Steps, name: &str, version: &str) -> Result<Command> {
    let mut command = Command::new(installed(steps, name, version)?);
    // Called by its path, it does not learn from cargo which cargo to use.
    command.env("CARGO", cargo("").get_program());
    Ok(command)
}

fn installed(steps: &mut Steps, name: &str, version: &str) -> Result<PathBuf> {
    let tools = target()?.join("tools");
    let ours = tools.join("bin").join(name);
    if ours.is_file() {
        return Ok(ours);
    }
    if let Some(found) = find(name) {
        return Ok(found);
    }
    let mut install = cargo(&format!("install --quiet --locked {name}@{version} --root"));
    steps.run(name, install.arg(&tools))?;
    Ok(ours)
}

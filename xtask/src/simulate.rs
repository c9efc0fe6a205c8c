//! Runs the simulator, which tries to break what the limits promise.

use anyhow::Result;

use crate::step::{Steps, cargo};

/// Builds the simulator for release, and runs it with these arguments.
pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<()> {
    let mut simulate = cargo("run --locked --release --package tollway-simulator --");
    steps.run("simulate", simulate.args(arguments))
}

//! Runs the tests of a fleet for a minute or longer; `cargo xtask test` gives them a few seconds.

use anyhow::Result;

use crate::setup;
use crate::step::{Steps, cargo};

/// Builds everything for release, and runs one test after the other, so that each has the machine for itself.
pub(crate) fn run(steps: &mut Steps, seconds: u16) -> Result<()> {
    setup::run(steps)?;
    let mut test = cargo("test --locked --release --package tollway-cli --test binary");
    test.args(["--", "fleet::", "--test-threads=1", "--nocapture", "--quiet"]);
    steps.run("soak", test.env("TOLLWAY_SOAK_SECS", seconds.to_string()))
}

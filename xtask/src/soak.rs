//! The tests of a fleet, which have a few seconds in the ordinary run, for as long as they take to be believed.

use anyhow::Result;

use crate::setup;
use crate::step::{Steps, cargo};

/// Builds everything for release, and runs one test after the other: they have the machine for themselves.
pub(crate) fn run(steps: &mut Steps, seconds: u16) -> Result<()> {
    setup::run(steps)?;
    let mut test = cargo("test --locked --release --package tollway-cli --test binary");
    test.args(["--", "fleet::", "--test-threads=1", "--nocapture", "--quiet"]);
    steps.run("soak", test.env("TOLLWAY_SOAK_SECS", seconds.to_string()))
}

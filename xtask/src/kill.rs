//! Kills a server under load, again and again, and measures what it has lost; `cargo xtask test` kills it three times.

use anyhow::Result;

use crate::step::{Steps, cargo};

/// Builds everything for release, and runs the test of the journal that kills a server.
pub(crate) fn run(steps: &mut Steps, kills: u16) -> Result<()> {
    let mut test = cargo("test --locked --release --package tollway-cli --test binary");
    test.args(["--", "journal::a_server_that_is_killed", "--test-threads=1", "--nocapture", "--quiet"]);
    steps.run("kill", test.env("TOLLWAY_KILLS", kills.to_string()))
}

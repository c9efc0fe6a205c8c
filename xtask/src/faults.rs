//! Runs faults of the machine and of the network against real processes under load: `tests/binary/faults.rs` of the
//! command line has them.
//!
//! Each runs in a network and with mounts of its own, so that packets are dropped and disks are filled for nobody else.

use std::process::Command;

use anyhow::Result;

use crate::setup;
use crate::step::{Steps, cargo};

/// The names of the faults.
pub(crate) const NAMES: [&str; 5] = ["disk", "loss", "partition", "sentinel", "stop"];

/// Every program that a fault needs, with its package.
const PROGRAMS: &[setup::Program] = &[
    ("curl", "curl"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("redis-cli", "redis-tools"),
    ("redis-server", "redis-server"),
    ("unshare", "util-linux"),
];

/// Runs these faults, or all of them.
pub(crate) fn run(steps: &mut Steps, names: &[String]) -> Result<()> {
    prepare(steps)?;
    let all = NAMES.map(str::to_owned);
    for name in if names.is_empty() { &all } else { names } {
        steps.run(name, &mut command(name))?;
    }
    Ok(())
}

/// Installs what is missing, and builds.
pub(crate) fn prepare(steps: &mut Steps) -> Result<()> {
    setup::install(steps, PROGRAMS)?;
    steps.run("build", &mut cargo("test --locked --package tollway-cli --test binary --no-run"))
}

/// Returns the command that runs one fault, in a network of its own.
pub(crate) fn command(name: &str) -> Command {
    let test = cargo("test --locked --offline --quiet --package tollway-cli --test binary --");
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "sh", "-c", "ip link set lo up && exec \"$@\"", "faults"]);
    command.arg(test.get_program()).args(test.get_args());
    command.args(["--ignored", "--exact", &format!("faults::{name}"), "--nocapture"]);
    command
}

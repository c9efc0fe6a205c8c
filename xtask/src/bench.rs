//! Benchmarks: each is a bench target of the crate in `bench/`, which puts Tollgate beside its peers.

use anyhow::Result;

use crate::step::{Steps, cargo};

/// Every benchmark there is.
pub(crate) const NAMES: [&str; 2] = ["core", "http"];

/// Builds one benchmark for release and runs it.
pub(crate) fn run(steps: &mut Steps, name: &str, arguments: &[String]) -> Result<()> {
    let mut bench = cargo(&format!("bench --locked --package tollgate-bench --bench {name} --"));
    steps.run("bench", bench.args(arguments))
}

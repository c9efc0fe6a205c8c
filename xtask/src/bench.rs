//! Benchmarks: each is a bench target of the crate that it measures.

use anyhow::{Context, Result};

use crate::step::{Steps, cargo};

/// Every benchmark: its name, and the crate whose `benches/` it lies in.
const BENCHES: &[(&str, &str)] = &[("core", "tollgate"), ("http", "tollgate-server")];

/// What there is to run.
pub(crate) fn names() -> Vec<&'static str> {
    BENCHES.iter().map(|(name, _)| *name).collect()
}

/// Builds one benchmark for release and runs it.
pub(crate) fn run(steps: &mut Steps, name: &str, arguments: &[String]) -> Result<()> {
    let (_, package) =
        BENCHES.iter().find(|(known, _)| *known == name).context("clap let an unknown one pass")?;
    let mut bench = cargo(&format!("bench --locked --package {package} --bench {name} --"));
    steps.run("bench", bench.args(arguments))
}

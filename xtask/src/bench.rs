//! Benchmarks: each is a bench target of the crate in `bench/`, which puts Tollgate beside its peers.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::setup::{self, Program};
use crate::step::{Steps, cargo};

/// Every benchmark there is.
pub(crate) const NAMES: [&str; 2] = ["core", "http"];

/// What the HTTP benchmark runs beside Tollgate, asks with, and needs to build a peer.
const HTTP_PROGRAMS: &[Program] =
    &[("nginx", "nginx"), ("wrk", "wrk"), ("taskset", "util-linux"), ("protoc", "protobuf-compiler")];

/// The peer of the HTTP gate: a crate with a binary.
const THROTTLECRAB: &str = "throttlecrab-server@0.4.40";

/// Builds one benchmark for release and runs it.
pub(crate) fn run(steps: &mut Steps, name: &str, arguments: &[String]) -> Result<()> {
    let mut bench = cargo(&format!("bench --locked --package tollgate-bench --bench {name} --"));
    if name == "http" {
        bench.args(http_servers(steps)?);
    }
    steps.run("bench", bench.args(arguments))
}

/// Builds Tollgate and its peer, and says where they are.
fn http_servers(steps: &mut Steps) -> Result<[PathBuf; 2]> {
    setup::install(steps, HTTP_PROGRAMS)?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let target = env::current_dir().context("the root is there")?.join(target);
    let peers = target.join("peers");
    steps.run("tollgate", &mut cargo("build --locked --release --package tollgate-cli"))?;
    let mut install = cargo(&format!("install --quiet --locked {THROTTLECRAB} --root"));
    steps.run("throttlecrab", install.arg(&peers))?;
    Ok([target.join("release/tollgate"), peers.join("bin/throttlecrab-server")])
}

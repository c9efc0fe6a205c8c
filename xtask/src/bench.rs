//! Runs one benchmark: Tollway beside its peers, alternately in one run.
//!
//! Most are bench targets of the crate in `bench/`. That of the Python package is a program in Python, and `build` is
//! in [`build_cost`].

use std::path::PathBuf;

use anyhow::Result;

use crate::build_cost;
use crate::python;
use crate::setup::{self, Program};
use crate::step::{Steps, cargo, target};

/// The names of all benchmarks, as the command line takes them.
pub(crate) const NAMES: [&str; 10] =
    ["core", "http", "gates", "smockron", "rls", "guard", "redis", "tower", "python", "build"];

/// The programs that the HTTP benchmark needs: a peer, a load generator, and what another peer is built with.
const HTTP_PROGRAMS: &[Program] =
    &[("nginx", "nginx"), ("wrk", "wrk"), ("taskset", "util-linux"), ("protoc", "protobuf-compiler")];

/// The programs that the benchmarks of the gates and of Redis need.
const GATES_PROGRAMS: &[Program] = &[("redis-server", "redis-server"), ("taskset", "util-linux")];

/// The programs that build a crowd of libzmq clients; the library comes with a Python package.
const SMOCKRON_PROGRAMS: &[Program] =
    &[("cc", "gcc"), ("taskset", "util-linux"), (setup::PYTHON, "python3-venv")];

/// The programs that the benchmark of the gate for Envoy needs: a load generator for HTTP/2, and what a peer is built
/// with.
const RLS_PROGRAMS: &[Program] =
    &[("h2load", "nghttp2-client"), ("taskset", "util-linux"), ("protoc", "protobuf-compiler")];

/// The programs that the proxy is compared with, and the load generator.
const GUARD_PROGRAMS: &[Program] = &[("nginx", "nginx"), ("wrk", "wrk"), ("taskset", "util-linux")];

/// The programs that the benchmark of the Python package needs.
const PYTHON_PROGRAMS: &[Program] = &[(setup::PYTHON, "python3-venv"), ("redis-server", "redis-server")];

/// The peer that the HTTP gate and the gate for Envoy are compared with, installed from its crate.
const THROTTLECRAB: &str = "throttlecrab-server@0.4.40";

/// Builds one benchmark for release and runs it.
pub(crate) fn run(steps: &mut Steps, name: &str, arguments: &[String]) -> Result<()> {
    if name == "python" {
        setup::install(steps, PYTHON_PROGRAMS)?;
        return python::bench(steps, arguments);
    }
    if name == "build" {
        return build_cost::run(steps, arguments);
    }
    let mut bench = cargo(&format!("bench --locked --package tollway-bench --bench {name} --"));
    match name {
        "http" => bench.args(http_servers(steps)?),
        "gates" => bench.arg(gates_server(steps)?),
        "smockron" => {
            setup::install(steps, SMOCKRON_PROGRAMS)?;
            bench.arg(tollway(steps)?).arg(python::with_zmq(steps)?)
        }
        "rls" => {
            setup::install(steps, RLS_PROGRAMS)?;
            bench.arg(tollway(steps)?).arg(rls_peers(steps)?).arg(throttlecrab(steps)?)
        }
        "guard" => {
            setup::install(steps, GUARD_PROGRAMS)?;
            bench.arg(tollway(steps)?)
        }
        "redis" => {
            setup::install(steps, GATES_PROGRAMS)?;
            &mut bench
        }
        _ => &mut bench,
    };
    steps.run("bench", bench.args(arguments))
}

/// Builds Tollway and its peer, and returns their paths.
fn http_servers(steps: &mut Steps) -> Result<[PathBuf; 2]> {
    setup::install(steps, HTTP_PROGRAMS)?;
    Ok([tollway(steps)?, throttlecrab(steps)?])
}

/// Installs throttlecrab, and returns its path.
fn throttlecrab(steps: &mut Steps) -> Result<PathBuf> {
    let peers = target()?.join("peers");
    let mut install = cargo(&format!("install --quiet --locked {THROTTLECRAB} --root"));
    steps.run("throttlecrab", install.arg(&peers))?;
    Ok(peers.join("bin/throttlecrab-server"))
}

/// Builds the peers of the gate for Envoy, with the profile of Tollway, and returns their path.
fn rls_peers(steps: &mut Steps) -> Result<PathBuf> {
    let peers = target()?.join("peers");
    let mut build = cargo("build --locked --release --manifest-path bench/peers/Cargo.toml --target-dir");
    steps.run("peers", build.arg(&peers))?;
    Ok(peers.join("release/tollway-peers"))
}

/// Installs the peer of the gates, builds Tollway, and returns its path.
fn gates_server(steps: &mut Steps) -> Result<PathBuf> {
    setup::install(steps, GATES_PROGRAMS)?;
    tollway(steps)
}

fn tollway(steps: &mut Steps) -> Result<PathBuf> {
    steps.run("tollway", &mut cargo("build --locked --release --package tollway-cli"))?;
    Ok(target()?.join("release/tollway"))
}

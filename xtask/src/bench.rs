//! Benchmarks: each is a bench target of the crate in `bench/`, which puts Tollway beside its peers; or, of the Python
//! package, a program in Python.

use std::path::PathBuf;

use anyhow::Result;

use crate::build_cost;
use crate::python;
use crate::setup::{self, Program};
use crate::step::{Steps, cargo, target};

/// Every benchmark there is.
pub(crate) const NAMES: [&str; 9] =
    ["core", "http", "gates", "smockron", "guard", "redis", "tower", "python", "build"];

/// What the HTTP benchmark runs beside Tollway, asks with, and needs to build a peer.
const HTTP_PROGRAMS: &[Program] =
    &[("nginx", "nginx"), ("wrk", "wrk"), ("taskset", "util-linux"), ("protoc", "protobuf-compiler")];

/// What the gates are measured beside.
const GATES_PROGRAMS: &[Program] = &[("redis-server", "redis-server"), ("taskset", "util-linux")];

/// What a crowd of libzmq's is built with, and where the library comes from.
const SMOCKRON_PROGRAMS: &[Program] =
    &[("cc", "gcc"), ("taskset", "util-linux"), (setup::PYTHON, "python3-venv")];

/// What the proxy is measured beside, and asked with.
const GUARD_PROGRAMS: &[Program] = &[("nginx", "nginx"), ("wrk", "wrk"), ("taskset", "util-linux")];

/// What measures the Python package, and what it is measured over.
const PYTHON_PROGRAMS: &[Program] = &[(setup::PYTHON, "python3-venv"), ("redis-server", "redis-server")];

/// The peer of the HTTP gate: a crate with a binary.
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

/// Builds Tollway and its peer, and says where they are.
fn http_servers(steps: &mut Steps) -> Result<[PathBuf; 2]> {
    setup::install(steps, HTTP_PROGRAMS)?;
    let tollway = tollway(steps)?;
    let peers = target()?.join("peers");
    let mut install = cargo(&format!("install --quiet --locked {THROTTLECRAB} --root"));
    steps.run("throttlecrab", install.arg(&peers))?;
    Ok([tollway, peers.join("bin/throttlecrab-server")])
}

/// Installs the peer of the gates, builds Tollway, and says where it is.
fn gates_server(steps: &mut Steps) -> Result<PathBuf> {
    setup::install(steps, GATES_PROGRAMS)?;
    tollway(steps)
}

fn tollway(steps: &mut Steps) -> Result<PathBuf> {
    steps.run("tollway", &mut cargo("build --locked --release --package tollway-cli"))?;
    Ok(target()?.join("release/tollway"))
}

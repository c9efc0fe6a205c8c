//! Runs one benchmark: Tollway beside its peers, alternately in one run.
//!
//! Most are bench targets of the crate in `bench/`. That of the Python package is a program in Python, and `build` is
//! in [`build_cost`].

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use crate::build_cost;
use crate::python;
use crate::setup::{self, Program};
use crate::step::{Steps, cargo, target};

/// The names of all benchmarks, as the command line takes them.
pub(crate) const NAMES: [&str; 14] = [
    "core", "http", "tls", "gates", "resp", "smockron", "rls", "guard", "redis", "tower", "watch", "journal",
    "python", "build",
];

/// The programs that the HTTP benchmark needs: a peer, a load generator, and what another peer is built with.
const HTTP_PROGRAMS: &[Program] =
    &[("nginx", "nginx"), ("wrk", "wrk"), ("taskset", "util-linux"), ("protoc", "protobuf-compiler")];

/// The programs that the benchmarks of the gates and of Redis need.
const GATES_PROGRAMS: &[Program] = &[("redis-server", "redis-server"), ("taskset", "util-linux")];

/// The programs that the benchmark of the RESP gate needs: peers, a load generator, and what the peers are built with.
const RESP_PROGRAMS: &[Program] = &[
    ("redis-server", "redis-server"),
    ("redis-benchmark", "redis-tools"),
    ("cc", "gcc"),
    ("taskset", "util-linux"),
    ("protoc", "protobuf-compiler"),
];

/// The programs that build a crowd of libzmq clients; the library comes with a Python package.
const SMOCKRON_PROGRAMS: &[Program] =
    &[("cc", "gcc"), ("taskset", "util-linux"), (setup::PYTHON, "python3-venv")];

/// The programs that the benchmark of the gate for Envoy needs: a load generator for HTTP/2, and what a peer is built
/// with.
const RLS_PROGRAMS: &[Program] =
    &[("h2load", "nghttp2-client"), ("taskset", "util-linux"), ("protoc", "protobuf-compiler")];

/// The programs that the proxy and TLS are compared with, and the load generator.
const GUARD_PROGRAMS: &[Program] = &[("nginx", "nginx"), ("wrk", "wrk"), ("taskset", "util-linux")];

/// The programs that the benchmark of the Python package needs.
const PYTHON_PROGRAMS: &[Program] = &[(setup::PYTHON, "python3-venv"), ("redis-server", "redis-server")];

/// The peer that the gates for HTTP, RESP and Envoy are compared with, installed from its crate.
const THROTTLECRAB: &str = "throttlecrab-server@0.4.40";

/// A package that only depends on redis-cell. The module itself is a library, which `cargo install` does not build.
const REDIS_CELL: &str = r#"[package]
name = "redis-cell-peer"
version = "0.0.0"
edition = "2021"

[lib]
path = "lib.rs"

[dependencies]
redis-cell = "=0.2.2"

[workspace]
"#;

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
        "resp" => bench.args(resp_servers(steps)?),
        "smockron" => {
            setup::install(steps, SMOCKRON_PROGRAMS)?;
            bench.arg(tollway(steps)?).arg(python::with_zmq(steps)?)
        }
        "rls" => {
            setup::install(steps, RLS_PROGRAMS)?;
            bench.arg(tollway(steps)?).arg(rls_peers(steps)?).arg(throttlecrab(steps)?)
        }
        "watch" | "journal" => bench.arg(gates_server(steps)?),
        "guard" | "tls" => {
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

/// Builds Tollway and the peers of the RESP gate, and returns their paths.
fn resp_servers(steps: &mut Steps) -> Result<[PathBuf; 3]> {
    setup::install(steps, RESP_PROGRAMS)?;
    Ok([tollway(steps)?, redis_cell(steps)?, throttlecrab(steps)?])
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

/// Builds the module redis-cell and returns the path of its library.
fn redis_cell(steps: &mut Steps) -> Result<PathBuf> {
    let place = target()?.join("peers/redis-cell");
    steps.take("redis-cell's package", "write its manifest", || {
        fs::create_dir_all(&place)?;
        fs::write(place.join("Cargo.toml"), REDIS_CELL)?;
        Ok(fs::write(place.join("lib.rs"), "")?)
    })?;
    let mut build = cargo("build --quiet --release --package redis-cell --manifest-path");
    steps.run(
        "redis-cell",
        build.arg(place.join("Cargo.toml")).arg("--target-dir").arg(place.join("target")),
    )?;
    Ok(place.join("target/release/libredis_cell.so"))
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

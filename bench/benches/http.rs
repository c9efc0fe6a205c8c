//! Benchmarks the HTTP gate against a constant answer of the same server, and against throttlecrab and nginx.
//!
//! `cargo xtask bench http`, which passes the paths of the programs: Tollway's and throttlecrab's.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tollway_bench::rounds::{Contestant, alternate};
use tollway_bench::servers::{BenchServer, ScratchDirectory, free_address, nginx};
use tollway_bench::wrk::WrkLoad;

const ROUNDS: usize = 7;
const SECONDS: u32 = 2;

fn main() -> io::Result<()> {
    let programs: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [tollway, throttlecrab] = programs.as_slice() else {
        return Err(io::Error::other("pass the paths of tollway and of throttlecrab-server"));
    };
    let scratch = ScratchDirectory::new()?;
    let ours = start_tollway(tollway, scratch.path())?;
    let crab = start_throttlecrab(throttlecrab)?;
    let nginx = start_nginx(scratch.path())?;
    let loads = [
        ("throttlecrab, POST /throttle", load(crab.address, "/throttle", Some(CRAB_BODY))),
        ("nginx, GET, limit_req", load(nginx.address, "/", None)),
        ("tollway, constant", load(ours.address, "/healthz", None)),
        ("tollway, GET /v1/gate", load(ours.address, "/v1/gate?limit=PerUser&id=alice", None)),
        ("tollway, POST /v1/spend", load(ours.address, "/v1/spend", Some(OUR_BODY))),
    ];
    let mut contestants: Vec<_> = loads
        .iter()
        .map(|(name, load)| Contestant {
            name,
            work: Box::new(|| 1e9 / load.run(scratch.path(), SECONDS).expect("wrk answers as it did before")),
        })
        .collect();
    println!(
        "50 kept connections, server on one core, wrk on the other: thousands of requests a second, and the"
    );
    println!(
        "ratio to throttlecrab; median (lowest to highest) of {ROUNDS} turns of {SECONDS} s, taken alternately"
    );
    for standing in alternate(ROUNDS, &mut contestants) {
        println!("  {:30} {:>8.1}k   {:.2}x", standing.name, 1e6 / standing.nanos.median, standing.ratio);
    }
    Ok(())
}

const OUR_BODY: &str = r#"{"limit":"PerUser","id":"alice","cost":1}"#;
const CRAB_BODY: &str =
    r#"{"key":"alice","max_burst":1000000000,"count_per_period":1000000000,"period":1,"quantity":1}"#;

fn load(address: SocketAddr, path: &str, body: Option<&'static str>) -> WrkLoad {
    WrkLoad { url: format!("http://{address}{path}"), body }
}

fn start_tollway(program: &str, scratch: &Path) -> io::Result<BenchServer> {
    let (address, config) = (free_address()?, scratch.join("tollway.yaml"));
    fs::write(&config, "limits: { PerUser: { burst: 1000000000, count: 1000, period: 1s } }")?;
    let mut command = Command::new(program);
    command
        .args([
            "serve",
            "--workers",
            "1",
            "--admin",
            "off",
            "--smockron",
            "off",
            "--rls",
            "off",
            "--resp",
            "off",
            "--http",
        ])
        .arg(address.to_string())
        .arg("--config")
        .arg(config);
    BenchServer::start(command, address)
}

fn start_throttlecrab(program: &str) -> io::Result<BenchServer> {
    let address = free_address()?;
    let mut command = Command::new(program);
    command.args(["--http", "--http-host", "127.0.0.1", "--http-port"]).arg(address.port().to_string());
    BenchServer::start(command, address)
}

fn start_nginx(scratch: &Path) -> io::Result<BenchServer> {
    let address = free_address()?;
    let command = nginx(
        scratch,
        "limiter",
        &format!(
            "limit_req_zone $arg_id zone=per_user:10m rate=1000000r/s;
             server {{ listen {address}; location / {{ limit_req zone=per_user burst=1000000 nodelay; return 204; }} }}"
        ),
    )?;
    BenchServer::start(command, address)
}

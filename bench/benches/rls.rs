//! Benchmarks the gate for Envoy's rate limit service against the same gate with a constant answer.
//!
//! Run it with `cargo xtask bench rls`. The results of five turns or more are written into docs/benchmarks.md.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::{env, fs, io};

use tollway_bench::page::write_section;
use tollway_bench::rounds::{Contestant, Spread, alternate};
use tollway_bench::servers::{BenchServer, ScratchDirectory, free_address, on_client_core};

/// The turns whose results are written into the page.
const TURNS: usize = 7;
/// The requests of one turn: they take about a second.
const REQUESTS: usize = 60_000;

/// A limit that refuses nobody, so that every request takes the longest way.
const POLICY: &str = "domain: web\ndescriptors:\n\
    - {key: user, rate_limit: {unit: hour, requests_per_unit: 4000000000}}\n";

/// The message of a call: no compression, the length, and `{domain: web, descriptors: [[user: alice]]}`.
const CALL: &[u8] = b"\0\0\0\0\x16\x0a\x03web\x12\x0f\x0a\x0d\x0a\x04user\x12\x05alice";

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1).filter(|argument| argument != "--bench");
    let program = arguments.next().ok_or_else(|| io::Error::other("pass the path of tollway"))?;
    let turns = arguments.next().and_then(|turns| turns.parse().ok()).unwrap_or(TURNS);
    let scratch = ScratchDirectory::new()?;
    let load = H2Load::new(scratch.path())?;
    let (constant, ours) = (start_constant(&program)?, start_ours(&program, scratch.path())?);
    let mut late = [Vec::new(), Vec::new()];
    let [late_constant, late_ours] = &mut late;
    let mut contestants = [
        contestant("constant", &load, &constant, late_constant),
        contestant("tollway", &load, &ours, late_ours),
    ];
    let results = alternate(turns, &mut contestants);
    drop(contestants);
    let rate = |index: usize| 1e9 / results[index].nanos.median;
    let [late_constant, late_ours] = late.map(|late| Spread::of(late[1..].to_vec()));
    let part = format!(
        "50 connections with 16 calls in flight each, from `h2load` on the other core; {turns} turns of {REQUESTS} calls,\n\
         alternating: median (lowest to highest), and ratios turn by turn.\n\n\
         | calls a second | constant | tollway | of constant | p99, constant | p99, tollway |\n|---|---|---|---|---|---|\n\
         | one descriptor | {:.0} | {:.0} | {:.2} | {late_constant:.1} ms | {late_ours:.1} ms |\n",
        rate(0),
        rate(1),
        results[1].ratio,
    );
    println!("{part}");
    if turns >= TURNS {
        write_section(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks.md"), "rls", &part)?;
    }
    Ok(())
}

fn contestant<'a>(
    name: &'static str,
    load: &H2Load,
    server: &BenchServer,
    late: &'a mut Vec<f64>,
) -> Contestant<'a> {
    let (load, address) = (load.clone(), server.address);
    Contestant { name, work: Box::new(move || load.run(address, late).expect("h2load answers")) }
}

fn start_ours(program: &str, scratch: &Path) -> io::Result<BenchServer> {
    let (address, config) = (free_address()?, scratch.join("ratelimit.yaml"));
    fs::write(&config, format!("{POLICY}gates: {{ rls: {address} }}\n"))?;
    let mut command = Command::new(program);
    command.args(["serve", "--workers", "1", "--config"]).arg(config);
    BenchServer::start(command, address)
}

fn start_constant(program: &str) -> io::Result<BenchServer> {
    let address = free_address()?;
    let mut command = Command::new(program);
    command.args(["bench", "echo", "--workers", "1", "--throttr", "off", "--text", "off", "--rls"]);
    command.arg(address.to_string());
    BenchServer::start(command, address)
}

/// Runs `h2load`, which loads a server with one call and logs the time of each answer.
#[derive(Clone)]
struct H2Load {
    call: std::path::PathBuf,
    log: std::path::PathBuf,
}

impl H2Load {
    fn new(scratch: &Path) -> io::Result<Self> {
        let call = scratch.join("call");
        fs::write(&call, CALL)?;
        Ok(Self { call, log: scratch.join("h2load.log") })
    }

    /// Returns the nanoseconds that a call took on average, and appends the 99th percentile in milliseconds.
    fn run(&self, address: SocketAddr, late: &mut Vec<f64>) -> io::Result<f64> {
        let _ = fs::remove_file(&self.log);
        let mut h2load = Command::new("h2load");
        h2load.args(["--threads", "1", "--clients", "50", "--max-concurrent-streams", "16", "--requests"]);
        h2load.arg(REQUESTS.to_string()).arg("--data").arg(&self.call).arg("--log-file").arg(&self.log);
        h2load.args(["--header", "content-type: application/grpc", "--header", "te: trailers"]);
        h2load.arg(format!("http://{address}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"));
        let output = on_client_core(&h2load).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let rate = text
            .lines()
            .find_map(|line| line.split(", ").nth(1)?.strip_suffix(" req/s")?.parse::<f64>().ok());
        let succeeded = text.contains(&format!("{REQUESTS} succeeded, 0 failed"));
        let rate =
            rate.filter(|_| succeeded).ok_or_else(|| io::Error::other(format!("h2load said: {text}")))?;
        let log = fs::read_to_string(&self.log)?;
        let mut times: Vec<u64> =
            log.lines().filter_map(|line| line.split('\t').nth(2)?.parse().ok()).collect();
        times.sort_unstable();
        late.push(times.get(times.len() * 99 / 100).map_or(0.0, |micros| *micros as f64 / 1_000.0));
        Ok(1e9 / rate)
    }
}

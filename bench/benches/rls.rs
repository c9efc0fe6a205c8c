//! Benchmarks the gate for Envoy's rate limit service against a tonic server with a constant answer, and against peers.
//!
//! Run it with `cargo xtask bench rls`, which passes the paths of the programs: Tollway's, that of the peers in
//! `bench/peers`, and throttlecrab's. The results of five turns or more are written into docs/benchmarks.md.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use tollway_bench::options::OptionSpec;
use tollway_bench::page::publish;
use tollway_bench::rounds::{Contestant, Spread, alternate};
use tollway_bench::servers::{BenchServer, ScratchDirectory, free_address, on_client_core};

/// The requests of one turn: they take about a second.
const REQUESTS: usize = 60_000;

/// A limit that refuses nobody, so that every request takes the longest way.
const POLICY: &str = "domain: web\ndescriptors:\n\
    - {key: user, rate_limit: {unit: hour, requests_per_unit: 4000000000}}\n";

const RATE_LIMIT_SERVICE: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// The message of a call: no compression, the length, and `{domain: web, descriptors: [[user: alice]]}`.
const CALL: &[u8] = b"\0\0\0\0\x16\x0a\x03web\x12\x0f\x0a\x0d\x0a\x04user\x12\x05alice";

const THROTTLECRAB_SERVICE: &str = "/throttlecrab.RateLimiter/Throttle";
/// The message of a call to throttlecrab: `{key: alice, max_burst: 1000000000, count_per_period: 1000000000, period: 1,
/// quantity: 1}`.
const THROTTLECRAB_CALL: &[u8] =
    b"\0\0\0\0\x17\x0a\x05alice\x10\x80\x94\xeb\xdc\x03\x18\x80\x94\xeb\xdc\x03\x20\x01\x28\x01";

/// A server under load, and its results beside the rate: one for each run.
struct Row {
    name: &'static str,
    _server: BenchServer,
    load: H2Load,
    /// The 99th percentile of the times of the calls, in milliseconds.
    late: Vec<f64>,
    /// The bytes of the messages of one answer, with its frame of gRPC.
    bytes: f64,
}

fn main() -> io::Result<()> {
    let programs = ["tollway", "tollway-peers", "throttlecrab-server"];
    let options = OptionSpec { programs: &programs, turns: 11, ..OptionSpec::NONE }.read()?;
    let [tollway, peers, throttlecrab] = options.programs.as_slice() else {
        unreachable!("three were asked for")
    };
    let turns = options.turns;
    let scratch = ScratchDirectory::new()?;
    let row = |name, server: BenchServer, path, call| -> io::Result<Row> {
        let load = H2Load::new(scratch.path(), name, server.address, path, call)?;
        Ok(Row { name, _server: server, load, late: Vec::new(), bytes: 0.0 })
    };
    let mut rows = [
        row("tonic, a constant answer", start_peer(peers, "constant")?, RATE_LIMIT_SERVICE, CALL)?,
        row("tollway", start_ours(tollway, scratch.path())?, RATE_LIMIT_SERVICE, CALL)?,
        row("tollway, a constant answer", start_constant(tollway)?, RATE_LIMIT_SERVICE, CALL)?,
        row(
            "limitador 0.14, its library behind tonic",
            start_peer(peers, "limitador")?,
            RATE_LIMIT_SERVICE,
            CALL,
        )?,
        row(
            "throttlecrab-server 0.4.40, its own messages",
            start_throttlecrab(throttlecrab)?,
            THROTTLECRAB_SERVICE,
            THROTTLECRAB_CALL,
        )?,
    ];
    let mut contestants: Vec<_> = rows
        .iter_mut()
        .map(|Row { name, load, late, bytes, .. }| Contestant {
            name,
            work: Box::new(|| {
                let run = load.run().expect("h2load answers");
                late.push(run.late);
                *bytes = run.bytes;
                run.nanos
            }),
        })
        .collect();
    let results = alternate(turns, &mut contestants);
    drop(contestants);
    let mut part = format!(
        "50 connections with 16 calls in flight each, from `h2load` on the other core; {turns} turns of {REQUESTS} calls,\n\
         alternating: median (lowest to highest), and ratios turn by turn.\n\n\
         | | calls a second | ratio to tonic | p99 in ms | ratio to tonic | bytes an answer | tollway is faster by |\n\
         |---|---|---|---|---|---|---|\n",
    );
    // The first run of each was to warm up.
    let late: Vec<Vec<f64>> = rows.iter().map(|row| row.late[1..].to_vec()).collect();
    for ((row, result), own) in rows.iter().zip(&results).zip(&late) {
        let late_ratio = Spread::of(own.iter().zip(&late[0]).map(|(own, constant)| own / constant).collect());
        part += &format!(
            "| {} | {:.0} | {:.2} | {:.1} | {:.2} | {:.0} | {:.2} |\n",
            row.name,
            1e9 / result.nanos.median,
            result.ratio,
            Spread::of(own.clone()),
            late_ratio,
            row.bytes,
            results[1].ratio_to(result),
        );
    }
    publish(&options, "cargo xtask bench rls", "rls", &part)
}

fn start_ours(program: &str, scratch: &Path) -> io::Result<BenchServer> {
    let (address, config) = (free_address()?, scratch.join("ratelimit.yaml"));
    fs::write(
        &config,
        format!(
            "{POLICY}gates: {{ http: off, text: off, throttr: off, resp: off, smockron: off, rls: {address} }}\n"
        ),
    )?;
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

fn start_peer(program: &str, peer: &str) -> io::Result<BenchServer> {
    let address = free_address()?;
    let mut command = Command::new(program);
    command.arg(peer).arg(address.to_string());
    BenchServer::start(command, address)
}

fn start_throttlecrab(program: &str) -> io::Result<BenchServer> {
    let address = free_address()?;
    let mut command = Command::new(program);
    command.args(["--grpc", "--grpc-host", "127.0.0.1", "--grpc-port"]).arg(address.port().to_string());
    BenchServer::start(command, address)
}

/// Runs `h2load`, which loads a server with one call and logs the time of each answer.
struct H2Load {
    url: String,
    call: PathBuf,
    log: PathBuf,
}

/// The results of one run.
struct LoadRun {
    /// The nanoseconds that a call took on average.
    nanos: f64,
    /// The 99th percentile of the times of the calls, in milliseconds.
    late: f64,
    /// The bytes of the messages of one answer.
    bytes: f64,
}

impl H2Load {
    fn new(scratch: &Path, name: &str, address: SocketAddr, path: &str, message: &[u8]) -> io::Result<Self> {
        let call = scratch.join(name);
        fs::write(&call, message)?;
        Ok(Self { url: format!("http://{address}{path}"), call, log: scratch.join("h2load.log") })
    }

    fn run(&self) -> io::Result<LoadRun> {
        let _ = fs::remove_file(&self.log);
        let mut h2load = Command::new("h2load");
        h2load.args(["--threads", "1", "--clients", "50", "--max-concurrent-streams", "16", "--requests"]);
        h2load.arg(REQUESTS.to_string()).arg("--data").arg(&self.call).arg("--log-file").arg(&self.log);
        h2load.args(["--header", "content-type: application/grpc", "--header", "te: trailers"]);
        h2load.arg(&self.url);
        let output = on_client_core(&h2load).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (rate, bytes) =
            read_output(&text).ok_or_else(|| io::Error::other(format!("h2load said: {text}")))?;
        let log = fs::read_to_string(&self.log)?;
        let mut times: Vec<u64> =
            log.lines().filter_map(|line| line.split('\t').nth(2)?.parse().ok()).collect();
        times.sort_unstable();
        let late = times.get(times.len() * 99 / 100).map_or(0.0, |micros| *micros as f64 / 1_000.0);
        Ok(LoadRun { nanos: 1e9 / rate, late, bytes: bytes / REQUESTS as f64 })
    }
}

/// Returns the calls a second and the bytes of all messages, if all calls had a message as their answer.
fn read_output(text: &str) -> Option<(f64, f64)> {
    if !text.contains(&format!("{REQUESTS} succeeded, 0 failed")) {
        return None;
    }
    let rate = text.lines().find_map(|line| line.split(", ").nth(1)?.strip_suffix(" req/s")?.parse().ok())?;
    // `traffic: 9.1MB (9540360) total, 1.2MB (1260000) headers (space savings 90.1%), 7.3MB (7680000) data`
    let traffic = text.lines().find(|line| line.starts_with("traffic: "))?;
    let data = traffic.rsplit_once('(')?.1.strip_suffix(") data")?.parse().ok()?;
    Some((rate, data)).filter(|(_, data)| *data > 0.0)
}

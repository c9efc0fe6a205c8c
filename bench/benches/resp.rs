//! Benchmarks the RESP gate against an echo server with the same I/O, redis-cell, `INCR` of Redis, and throttlecrab.
//!
//! Run it with `cargo xtask bench resp`, which passes the paths of the programs. The results of five turns or more are
//! written into docs/benchmarks.md; `cargo xtask bench resp --turns 2 --seconds 0.3` is a quick try.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tollway_bench::load_contest::{KEYS, LoadContest, LoadTarget, millions};
use tollway_bench::rounds::{Contestant, alternate};
use tollway_bench::servers::{BenchServer, ScratchDirectory, free_address, on_client_core, start_redis};

/// The numbers of every request. No run uses a bucket up, and no bucket is full again before the end of a run: keys
/// that expire at once would spare Redis the work of keeping them.
const NUMBERS: &str = "--max-burst 1000 --count 1000 --period 3600";
/// The requests that every server gets before it is measured, so that most keys exist.
const FILL: &str = "--pipeline 16 --requests 1000000";
/// The numbers of requests that one run of `redis-benchmark` sends, to Tollway and to redis-cell: both take about as
/// long.
const FOREIGN_REQUESTS: [u32; 2] = [3_000_000, 400_000];

fn main() -> io::Result<()> {
    let bench = RespBench::prepare()?;
    let mut part = bench.contest.heading();
    bench.rates(&mut part);
    bench.foreign(&mut part);
    bench.contest.publish("resp", &part)
}

/// The servers and settings that take part in the benchmark.
struct RespBench {
    contest: LoadContest,
    servers: [RespServer; 5],
    /// The directory of the servers, which is removed after them.
    _scratch: ScratchDirectory,
}

/// A server, and the command that it gets.
struct RespServer {
    name: &'static str,
    server: BenchServer,
    protocol: &'static str,
    flags: String,
}

impl RespBench {
    /// The place of our server in the list; the echo server is before it.
    const OURS: usize = 1;
    const REDIS_CELL: usize = 2;

    /// Starts all servers and makes most keys known to them.
    fn prepare() -> io::Result<Self> {
        let (contest, [tollway, redis_cell, throttlecrab]) =
            LoadContest::from_arguments(["tollway", "redis-cell", "throttlecrab-server"])?;
        let scratch = ScratchDirectory::new()?;
        let throttle = |name, server, more: &str| RespServer {
            name,
            server,
            protocol: "resp",
            flags: format!("{KEYS} {NUMBERS} {more}"),
        };
        let redis = start_redis(scratch.path(), &[])?;
        let servers = [
            throttle("echo", start_echo(&tollway)?, "--echo"),
            throttle("tollway `CL.THROTTLE`", start_tollway(&tollway, scratch.path())?, ""),
            throttle(
                "redis-cell 0.2.2 `CL.THROTTLE`",
                start_redis(scratch.path(), &["--loadmodule", &redis_cell])?,
                "",
            ),
            RespServer {
                name: "redis-server `INCR`",
                server: redis,
                protocol: "redis",
                flags: KEYS.to_owned(),
            },
            throttle(
                "throttlecrab-server 0.4.40 `THROTTLE`",
                start_throttlecrab(&throttlecrab)?,
                "--command throttle",
            ),
        ];
        for RespServer { name, server, protocol, flags } in &servers {
            eprintln!("fill {name}");
            contest.generator.run(protocol, server.address, &format!("{flags} {FILL}"))?;
        }
        Ok(Self { contest, servers, _scratch: scratch })
    }

    /// Measures requests a second with 64, 16 and one in flight.
    fn rates(&self, part: &mut String) {
        *part +=
            "| at once | server | requests a second | tollway / this | by CPU |\n|---|---|---|---|---|\n";
        for pipeline in [64, 16, 1] {
            let targets = self.servers.each_ref().map(|server| LoadTarget {
                name: server.name,
                server: &server.server,
                protocol: server.protocol,
                address: server.server.address,
                flags: format!("{} --pipeline {pipeline}", server.flags),
            });
            let rates = self.contest.rates(&targets);
            let ours = &rates.standings[Self::OURS];
            for (index, standing) in rates.standings.iter().enumerate() {
                let (ratio, by_cpu) = (ours.ratio_to(standing), rates.by_cpu(Self::OURS, index));
                let ratios = match index {
                    Self::OURS => "| ".to_owned(),
                    _ => format!("{ratio:.2} | {by_cpu:.2}"),
                };
                *part += &format!("| {pipeline} | {} | {} | {ratios} |\n", standing.name, millions(standing));
            }
        }
        part.push('\n');
    }

    /// Measures our server and redis-cell with `redis-benchmark`, 64 at once.
    fn foreign(&self, part: &mut String) {
        let [ours, cell] = [Self::OURS, Self::REDIS_CELL].map(|index| &self.servers[index]);
        let mut contestants = [(cell, FOREIGN_REQUESTS[1]), (ours, FOREIGN_REQUESTS[0])].map(
            |(RespServer { name, server, .. }, requests)| Contestant {
                name,
                work: Box::new(move || {
                    eprintln!("redis-benchmark {name}");
                    let rate = redis_benchmark(server.address, requests);
                    1e9 / rate.unwrap_or_else(|error| panic!("{error}"))
                }),
            },
        );
        let standings = alternate(self.contest.turns, &mut contestants);
        *part += "| `redis-benchmark`, 64 at once | requests a second | tollway / this |\n|---|---|---|\n";
        for (index, standing) in standings.iter().enumerate() {
            let ratio = if index == 0 { format!("{:.2}", standings[1].ratio) } else { String::new() };
            *part += &format!("| {} | {} | {ratio} |\n", standing.name, millions(standing));
        }
    }
}

/// Runs `redis-benchmark` on the client core, and returns the requests a second.
fn redis_benchmark(address: SocketAddr, requests: u32) -> io::Result<f64> {
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", "127.0.0.1", "-p"]).arg(address.port().to_string());
    command.args(["-c", "50", "-P", "64", "-r", "1000000", "-n"]).arg(requests.to_string());
    command.args(["--csv", "CL.THROTTLE", "key:__rand_int__", "1000", "1000", "3600"]);
    let output = on_client_core(&command).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // A heading, and then a line of one test: its name, requests a second, latencies.
    let rate = text.lines().nth(1).and_then(|line| line.split("\",\"").nth(1)?.parse().ok());
    rate.ok_or_else(|| {
        io::Error::other(format!("redis-benchmark said: {text}{}", String::from_utf8_lossy(&output.stderr)))
    })
}

fn start_tollway(program: &str, scratch: &Path) -> io::Result<BenchServer> {
    let (address, config) = (free_address()?, scratch.join("tollway.yaml"));
    fs::write(&config, format!("limits: {{}}\ngates: {{ resp: '{address}' }}\n"))?;
    let mut command = Command::new(program);
    command.args(["serve", "--workers", "1", "--config"]).arg(config);
    BenchServer::start(command, address)
}

fn start_echo(program: &str) -> io::Result<BenchServer> {
    let address = free_address()?;
    let mut command = Command::new(program);
    command.args(["bench", "echo", "--throttr", "off", "--text", "off", "--resp", &address.to_string()]);
    BenchServer::start(command, address)
}

fn start_throttlecrab(program: &str) -> io::Result<BenchServer> {
    let address = free_address()?;
    let mut command = Command::new(program);
    command.args(["--redis", "--redis-host", "127.0.0.1", "--redis-port"]).arg(address.port().to_string());
    BenchServer::start(command, address)
}

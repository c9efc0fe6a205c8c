//! Benchmarks what watching costs: the gates with and without `watch`, with two open consoles and without any. It also
//! measures how long a scrape of `/metrics` takes with many limits.
//!
//! Run it with `cargo xtask bench watch`. The results of five turns or more are written into docs/benchmarks.md; `cargo
//! xtask bench watch --turns 2 --seconds 0.3` is a quick try.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use tollway_bench::http_client::HttpConnection;
use tollway_bench::load_contest::{KEYS, LoadContest, LoadTarget, millions};
use tollway_bench::rounds::Spread;
use tollway_bench::servers::{
    BenchServer, ScratchDirectory, free_address, free_udp_address, pin_this_thread,
};

/// The number of open consoles.
const CONSOLES: usize = 2;

/// The number of limits of the server whose `/metrics` is scraped.
const SCRAPED_LIMITS: usize = 500;
/// The number of scrapes for each turn of the loads.
const SCRAPES: usize = 20;

/// The loads: a name, the protocol of the generator, and its flags.
const LOADS: [(&str, &str, &str); 6] = [
    ("HTTP, 50 connections", "http", "--limit Allowed"),
    ("HTTP, 50 connections, nearly all denied", "http", "--limit Denied"),
    ("RESP, 64 at once", "resp", "--pipeline 64"),
    ("RESP, 64 at once, nearly all denied", "resp", "--pipeline 64 --max-burst 0 --count 1 --period 3600"),
    ("RESP, 64 at once, Zipf 0.99", "resp", "--pipeline 64 --zipf 0.99"),
    ("text, 64 at once", "text", "--pipeline 64"),
];

fn main() -> io::Result<()> {
    let (contest, [program]) = LoadContest::from_arguments(["tollway"])?;
    let scratch = ScratchDirectory::new()?;
    let [off, on] = [false, true].map(|watch| WatchedServer::start(&program, scratch.path(), watch));
    let (off, on) = (off?, on?);
    for _ in 0..CONSOLES {
        open_console(on.admin)?;
    }
    let mut part = contest.heading();
    part += &format!(
        "| requests a second | `watch: off` | on, {CONSOLES} open consoles | on / off | by CPU |\n|---|---|---|---|---|\n"
    );
    for (name, protocol, flags) in LOADS {
        let flags = format!("{KEYS} {flags}");
        let rates = contest.rates(&[off.target("off", protocol, &flags), on.target("on", protocol, &flags)]);
        let [without, with] = rates.standings.as_slice() else { unreachable!("two targets") };
        let (ratio, cpu) = (with.ratio_to(without), rates.by_cpu(1, 0));
        part += &format!("| {name} | {} | {} | {ratio:.2} | {cpu:.2} |\n", millions(without), millions(with));
    }
    part += &scrapes(&contest, &program, scratch.path())?;
    contest.publish("watch", &part)
}

/// A server with the gates that count ids.
struct WatchedServer {
    process: BenchServer,
    admin: SocketAddr,
    resp: SocketAddr,
    text: SocketAddr,
}

impl WatchedServer {
    fn start(program: &str, scratch: &Path, watch: bool) -> io::Result<Self> {
        let [http, admin, resp] = [free_address()?, free_address()?, free_address()?];
        let text = free_udp_address()?;
        let name = if watch { "on" } else { "off" };
        let config = scratch.join(format!("watch-{name}.yaml"));
        let yaml = format!(
            "limits:
  Allowed: {{ burst: 1000000000, count: 1000000000, period: 1s }}
  Denied: {{ burst: 1, count: 1, period: 1h }}
keys: [{{ match: '^ws ip=', limit: 22, period: 20s, strict: true }}]
watch: {name}
gates: {{ http: '{http}', admin: '{admin}', resp: '{resp}', text: '{text}' }}
"
        );
        fs::write(&config, yaml)?;
        let mut command = Command::new(program);
        command.args(["serve", "--workers", "1", "--config"]).arg(config);
        Ok(Self { process: BenchServer::start(command, http)?, admin, resp, text })
    }

    fn target(&self, name: &'static str, protocol: &'static str, flags: &str) -> LoadTarget<'_> {
        let address = match protocol {
            "resp" => self.resp,
            "text" => self.text,
            _ => self.process.address,
        };
        LoadTarget { name, server: &self.process, protocol, address, flags: flags.to_owned() }
    }
}

/// Measures how long a scrape of `/metrics` takes when each of many limits has decided something, from the connection
/// to the last byte.
fn scrapes(contest: &LoadContest, program: &str, scratch: &Path) -> io::Result<String> {
    let address = free_address()?;
    let config = scratch.join("scrapes.yaml");
    let limit = |index| format!("  Limit{index}: {{ burst: 10, count: 10, period: 1m }}\n");
    let limits: String = (0..SCRAPED_LIMITS).map(limit).collect();
    fs::write(&config, format!("limits:\n{limits}gates: {{ http: '{address}' }}\n"))?;
    let mut command = Command::new(program);
    command.args(["serve", "--workers", "1", "--config"]).arg(config);
    let _server = BenchServer::start(command, address)?;
    let spend = |index| {
        let body = format!(r#"{{"limit":"Limit{index}","id":"a"}}"#);
        let head = "POST /v1/spend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
        format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    let mut connection = HttpConnection::open(address)?;
    for index in 0..SCRAPED_LIMITS {
        let statuses = connection.ask(&[spend(index)])?;
        assert_eq!(statuses, [200], "of Limit{index}");
    }
    let mut page = Vec::new();
    let mut millis = Vec::new();
    for _ in 0..contest.turns * SCRAPES {
        let began = Instant::now();
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        page.clear();
        stream.read_to_end(&mut page)?;
        millis.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let times = Spread::of(millis);
    Ok(format!(
        "\nA scrape of `/metrics` with {SCRAPED_LIMITS} limits, of {:.0} KiB, takes {times:.2} ms.\n",
        page.len() as f64 / 1024.0
    ))
}

/// Reads what a console gets, until the server ends.
fn open_console(admin: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(admin)?;
    stream.write_all(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut head = [0; 15];
    stream.read_exact(&mut head)?;
    if &head != b"HTTP/1.1 200 OK" {
        return Err(io::Error::other("the server does not let us watch"));
    }
    thread::spawn(move || {
        pin_this_thread(1);
        io::copy(&mut stream, &mut io::sink())
    });
    Ok(())
}

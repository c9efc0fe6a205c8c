//! Benchmarks what a journal costs: the gates with a journal and without one, the slowest answers while snapshots are
//! written, the bytes on the disk, and the time of a start.
//!
//! Run it with `cargo xtask bench journal`. The results of five turns or more are written into docs/benchmarks.md;
//! `cargo xtask bench journal --turns 2 --seconds 0.3` is a quick try.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use tollway_bench::http_client::HttpConnection;
use tollway_bench::load_contest::{KEYS, LoadContest, LoadTarget, millions};
use tollway_bench::rounds::Spread;
use tollway_bench::servers::{BenchServer, ScratchDirectory, free_address};

/// The loads: a name, the protocol of the generator, and its flags.
const LOADS: [(&str, &str, &str); 3] = [
    ("RESP, 64 at once", "resp", "--pipeline 64"),
    ("RESP, 64 at once, Zipf 0.99", "resp", "--pipeline 64 --zipf 0.99"),
    ("Throttr, 64 at once", "throttr", "--pipeline 64 --no-insert"),
];

/// The buckets that a start reads.
const STORED: usize = 5_000_000;
/// The flags that make them. They live for an hour. Keys are drawn at random: after six requests for each, nearly all
/// were used.
const STORED_LOAD: &str = "--connections 50 --pipeline 64 --keys 5000000 --requests 30000000 --max-burst 10 --count 1 --period 3600";
/// The time within which a server must have written what it was asked to keep.
const KEPT_WITHIN: Duration = Duration::from_secs(30);

fn main() -> io::Result<()> {
    let (contest, [program]) = LoadContest::from_arguments(["tollway"])?;
    let scratch = ScratchDirectory::new()?;
    let mut part = contest.heading();
    let [off, on] = ["off", "on"].map(|name| JournaledServer::start(&program, scratch.path(), name));
    let (off, on) = (off?, on?);
    let highest = rates(&contest, &off, &on, &mut part)?;
    latency(&contest, &off, &on, highest, &mut part)?;
    drop((off, on));
    start(&contest, &program, scratch.path(), &mut part)?;
    contest.publish("journal", &part)
}

/// Measures requests a second with the journal and without. Returns the rate of the first load without it.
fn rates(
    contest: &LoadContest,
    off: &JournaledServer,
    on: &JournaledServer,
    part: &mut String,
) -> io::Result<f64> {
    *part += "| requests a second | no journal | journal | journal / none | by CPU | bytes on the disk for a changed id |\n\
              |---|---|---|---|---|---|\n";
    // Throttr answers about pairs that exist.
    for server in [off, on] {
        contest.generator.run("throttr", server.throttr, &format!("{KEYS} --requests 1"))?;
    }
    let mut highest = 0.0;
    for (name, protocol, flags) in LOADS {
        let flags = format!("{KEYS} {flags}");
        let before = on.written()?;
        let rates = contest.rates(&[off.target("off", protocol, &flags), on.target("on", protocol, &flags)]);
        let [without, with] = rates.standings.as_slice() else { unreachable!("two targets") };
        let (ratio, cpu) = (with.ratio_to(without), rates.by_cpu(1, 0));
        highest = f64::max(highest, if highest == 0.0 { 1e9 / without.nanos.median } else { 0.0 });
        let after = on.written()?;
        let buckets = after.buckets - before.buckets;
        let bytes = (after.bytes - before.bytes) / buckets;
        *part += &format!(
            "| {name} | {} | {} | {ratio:.2} | {cpu:.2} | {bytes:.1} |\n",
            millions(without),
            millions(with)
        );
    }
    part.push('\n');
    Ok(highest)
}

/// Measures the slowest answers at half of the highest load. The journal writes a snapshot again and again meanwhile.
fn latency(
    contest: &LoadContest,
    off: &JournaledServer,
    on: &JournaledServer,
    highest: f64,
    part: &mut String,
) -> io::Result<()> {
    let rate = highest / 2.0;
    *part += &format!(
        "| RESP, 64 at once, open loop, {:.2}M a second, in µs | no journal | journal, snapshots | times as long |\n|---|---|---|---|\n",
        rate / 1e6
    );
    let flags = format!("{KEYS} --pipeline 64 --rate {rate:.0}");
    let targets = [off.target("off", "resp", &flags), on.target("on", "resp", &flags)];
    let before = on.written()?.snapshots;
    let mut rows = Vec::new();
    for (name, figure) in [("p99.9", 0), ("slowest", 1)] {
        let standings = contest.figures(&targets, |_, measured, _| [measured.p999, measured.max][figure]);
        let [without, with] = standings.as_slice() else { unreachable!("two targets") };
        let micros = |nanos: Spread| nanos.scaled(1e-3);
        rows.push(format!(
            "| {name} | {:.0} | {:.0} | {:.2} |\n",
            micros(without.nanos),
            micros(with.nanos),
            without.ratio_to(with)
        ));
    }
    let snapshots = on.written()?.snapshots - before;
    *part += &rows.concat();
    *part += &format!("\nSnapshots that were completed in this time: {snapshots}.\n\n");
    Ok(())
}

/// Measures the time from the start of a process until `/readyz` is 200, with many live buckets on the disk.
fn start(contest: &LoadContest, program: &str, scratch: &Path, part: &mut String) -> io::Result<()> {
    eprintln!("start: filling {STORED} buckets");
    let server = JournaledServer::start_unpinned(program, scratch, "start")?;
    contest.generator.run("resp", server.resp, STORED_LOAD)?;
    server.wait_until_kept()?;
    let stored = server.written()?;
    let JournaledServer { process, config, .. } = server;
    // Without a warning: what it has written last is in a log.
    drop(process);
    let mut turns = Vec::new();
    let mut buckets = 0.0;
    for turn in 0..=contest.turns {
        let started = Instant::now();
        let server = JournaledServer::run(program, &config, false)?;
        let ready = started.elapsed();
        buckets = server.metric("tollway_buckets")?;
        eprintln!("start, turn {turn}: {ready:.2?} with {buckets} buckets");
        turns.push(ready.as_secs_f64() * 1e3);
    }
    let millis = Spread::of(turns[1..].to_vec());
    *part += &format!(
        "| start of the process until `/readyz` is 200, after `kill -9` | |\n|---|---|\n\
         | {:.2} million live buckets, files of {:.0} MB in the page cache, 2 cores | {millis:.0} ms |\n",
        buckets / 1e6,
        (stored.log_bytes + stored.snapshot_bytes) / 1e6,
    );
    Ok(())
}

/// A server that may have a journal.
struct JournaledServer {
    process: BenchServer,
    config: PathBuf,
    resp: SocketAddr,
    throttr: SocketAddr,
}

/// What a journal has written so far.
struct Written {
    buckets: f64,
    bytes: f64,
    snapshots: f64,
    log_bytes: f64,
    snapshot_bytes: f64,
}

impl JournaledServer {
    /// Starts a server on the servers' core. It has a journal unless its name is `off`.
    fn start(program: &str, scratch: &Path, name: &str) -> io::Result<Self> {
        Self::run(program, &Self::configure(scratch, name)?, true)
    }

    /// Starts a server on all cores.
    fn start_unpinned(program: &str, scratch: &Path, name: &str) -> io::Result<Self> {
        Self::run(program, &Self::configure(scratch, name)?, false)
    }

    fn configure(scratch: &Path, name: &str) -> io::Result<PathBuf> {
        let [http, resp, throttr] = [free_address()?, free_address()?, free_address()?];
        let data = scratch.join(format!("journal-{name}"));
        let store = match name {
            "off" => String::new(),
            _ => {
                format!("store: {{ memory: {{ dir: '{}' }} }}\nmax_client_buckets: 8000000\n", data.display())
            }
        };
        let config = scratch.join(format!("journal-{name}.yaml"));
        fs::write(
            &config,
            format!(
                "limits: {{}}\n{store}gates: {{ http: '{http}', resp: '{resp}', throttr: '{throttr}' }}\n"
            ),
        )?;
        Ok(config)
    }

    fn run(program: &str, config: &Path, is_pinned: bool) -> io::Result<Self> {
        let text = fs::read_to_string(config)?;
        let address = |gate: &str| {
            let quoted = text.split_once(&format!("{gate}: '")).and_then(|(_, rest)| rest.split_once('\''));
            quoted.and_then(|(address, _)| address.parse().ok()).ok_or(io::ErrorKind::InvalidData)
        };
        let (http, resp, throttr) = (address("http")?, address("resp")?, address("throttr")?);
        let mut command = Command::new(program);
        command.args(["serve", "--workers", "1", "--config"]).arg(config);
        let process = match is_pinned {
            true => BenchServer::start(command, http)?,
            false => BenchServer::start_on_all_cores(command, http)?,
        };
        let ready = "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned();
        match HttpConnection::open(http)?.ask(&[ready])?.as_slice() {
            [200] => Ok(Self { process, config: config.to_owned(), resp, throttr }),
            status => Err(io::Error::other(format!("/readyz answers {status:?}"))),
        }
    }

    fn target(&self, name: &'static str, protocol: &'static str, flags: &str) -> LoadTarget<'_> {
        let address = if protocol == "resp" { self.resp } else { self.throttr };
        LoadTarget { name, server: &self.process, protocol, address, flags: flags.to_owned() }
    }

    fn written(&self) -> io::Result<Written> {
        Ok(Written {
            buckets: self.metric("tollway_journal_buckets_total")?,
            bytes: self.metric("tollway_journal_bytes_total")?,
            snapshots: self.metric("tollway_journal_snapshots_total")?,
            log_bytes: self.metric("tollway_journal_log_bytes")?,
            snapshot_bytes: self.metric("tollway_journal_snapshot_bytes")?,
        })
    }

    /// Waits until all changes are in the files.
    fn wait_until_kept(&self) -> io::Result<()> {
        let began = Instant::now();
        let mut before = -1.0;
        loop {
            let (now, is_rising) = (self.metric("tollway_journal_buckets_total")?, before);
            if now == is_rising {
                return Ok(());
            }
            if began.elapsed() > KEPT_WITHIN {
                return Err(io::Error::other("the journal does not get to an end"));
            }
            before = now;
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// Returns the value of a metric.
    fn metric(&self, name: &str) -> io::Result<f64> {
        let mut stream = TcpStream::connect(self.process.address)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).ok_or_else(|| io::Error::other(format!("no metric {name}")))
    }
}

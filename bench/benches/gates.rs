//! Benchmarks the text and the Throttr gate against an echo server with the same I/O, and against `redis-server`.
//!
//! Run it with `cargo xtask bench gates`. The results of five turns or more are written into docs/benchmarks.md;
//! `cargo xtask bench gates --turns 2 --seconds 0.3` is a quick try.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tollway_bench::connections::OpenConnections;
use tollway_bench::load_contest::{KEYS, LoadContest, LoadTarget, RateResults, millions};
use tollway_bench::rounds::Spread;
use tollway_bench::servers::{BenchServer, ScratchDirectory, free_address, free_udp_address, start_redis};

const IDLE: usize = 10_000;
/// The connections before the growth is measured.
const FIRST: usize = 10;
const HALF_FRAMES: usize = 1_000;
/// The time within which the server must close connections with unfinished frames.
const CLOSED_WITHIN: Duration = Duration::from_secs(60);
/// A Throttr query: `02`, the number of the request, the sizes of two ids, and the ids. The pair does not exist.
const QUERY: &[u8] = b"\x02\x01\0\0\0\x01\x01cr";
/// The length of the answer to it.
const QUERY_ANSWER: usize = 5;
const SPEND: &[u8] = b"POST /v1/spend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
    Content-Length: 37\r\n\r\n{\"limit\":\"PerUser\",\"id\":\"a\",\"cost\":1}";
/// The length of the first words of an answer to it.
const SPEND_ANSWER: usize = b"HTTP/1.1 200".len();

fn main() -> io::Result<()> {
    let bench = GateBench::prepare()?;
    let mut part = bench.contest.heading();
    let throttr = bench.throttr(&mut part);
    let text = bench.text(&mut part);
    bench.latency(throttr, text, &mut part);
    bench.crowds(&mut part)?;
    bench.contest.publish("gates", &part)
}

/// The servers and settings that take part in the benchmark.
struct GateBench {
    contest: LoadContest,
    program: String,
    scratch: ScratchDirectory,
    ours: GatePair,
    echo: GatePair,
    redis: BenchServer,
}

/// A server that has a Throttr gate over TCP and a text gate over UDP.
struct GatePair {
    throttr: BenchServer,
    text: SocketAddr,
}

impl GateBench {
    /// Starts all servers and gives every key a quota.
    fn prepare() -> io::Result<Self> {
        let (contest, [program]) = LoadContest::from_arguments(["tollway"])?;
        let scratch = ScratchDirectory::new()?;
        let ours = start_tollway(&program, scratch.path())?;
        let (echo, redis) = (start_echo(&program)?, start_redis(scratch.path(), &[])?);
        contest.generator.run("throttr", ours.throttr.address, &format!("{KEYS} --requests 1"))?;
        Ok(Self { contest, program, scratch, ours, echo, redis })
    }

    /// Measures requests a second over Throttr. Returns the highest load of ours with 64, 16 and one in flight.
    fn throttr(&self, part: &mut String) -> [f64; 3] {
        *part += "| Throttr, requests a second | echo | tollway | of echo | by CPU | redis `INCR` | of `INCR` |\n|---|---|---|---|---|---|---|\n";
        let highest = [64, 16, 1].map(|pipeline| {
            let flags = format!("{KEYS} --pipeline {pipeline}");
            let redis = entry("redis", &self.redis, ("redis", self.redis.address), &flags);
            let entries = self.throttr_entries(&flags).into_iter().chain((pipeline == 64).then_some(redis));
            let rates = self.contest.rates(&entries.collect::<Vec<_>>());
            let ours = &rates.standings[1];
            let redis = rates.standings.get(2).map_or("| ".to_owned(), |redis| {
                format!("{} | {:.2}", millions(redis), ours.ratio_to(redis))
            });
            *part += &format!("| {pipeline} at once | {} | {redis} |\n", beside_echo(&rates));
            1e9 / ours.nanos.median
        });
        part.push('\n');
        highest
    }

    /// Measures requests a second over UDP. Returns the highest load of ours.
    fn text(&self, part: &mut String) -> f64 {
        *part += "| text, requests a second, 64 at once | echo | tollway | of echo | by CPU |\n|---|---|---|---|---|\n";
        let ways = [("batches (GSO, GRO)", ""), ("single datagrams (`sendmmsg`)", "--no-gso")];
        let highest = ways.map(|(way, flag)| {
            let rates = self.contest.rates(&self.text_entries(&format!("{KEYS} --pipeline 64 {flag}")));
            *part += &format!("| {way} | {} |\n", beside_echo(&rates));
            1e9 / rates.standings[1].nanos.median
        });
        part.push('\n');
        highest[0].max(highest[1])
    }

    /// Measures the 99.9th percentile of the latency at half of our highest load.
    fn latency(&self, throttr: [f64; 3], text: f64, part: &mut String) {
        *part += "| p99.9 in µs, open loop, at half of tollway's highest load | echo | tollway | ratio |\n|---|---|---|---|\n";
        let half =
            |pipeline: u32, highest: f64| format!("{KEYS} --pipeline {pipeline} --rate {:.0}", highest / 2.0);
        let [all, _, single] = throttr;
        self.slowest("Throttr, 64 at once", all, &self.throttr_entries(&half(64, all)), part);
        self.slowest("Throttr, one at once", single, &self.throttr_entries(&half(1, single)), part);
        self.slowest("text, 64 at once", text, &self.text_entries(&half(64, text)), part);
        part.push('\n');
    }

    fn slowest(&self, name: &str, highest: f64, entries: &[LoadTarget<'_>; 2], part: &mut String) {
        let standings = self.contest.figures(entries, |_, measured, _| measured.p999);
        let ratio = standings[0].ratio_to(&standings[1]);
        let [echo, ours] = [0, 1].map(|index| micros(standings[index].nanos));
        let millions = highest / 2e6;
        *part += &format!("| {name}, {millions:.3}M a second | {echo:.0} | {ours:.0} | {ratio:.2} |\n");
    }

    /// Returns the echo server and ours as targets.
    fn throttr_entries(&self, flags: &str) -> [LoadTarget<'_>; 2] {
        let [echo, ours] = [&self.echo, &self.ours].map(|gates| ("throttr", gates.throttr.address));
        [
            entry("echo", &self.echo.throttr, echo, &format!("{flags} --echo")),
            entry("tollway", &self.ours.throttr, ours, &format!("{flags} --no-insert")),
        ]
    }

    fn text_entries(&self, flags: &str) -> [LoadTarget<'_>; 2] {
        let [echo, ours] = [&self.echo, &self.ours].map(|gates| ("text", gates.text));
        [
            entry("echo", &self.echo.throttr, echo, &format!("{flags} --echo")),
            entry("tollway", &self.ours.throttr, ours, flags),
        ]
    }

    /// Measures what idle connections and unfinished requests cost.
    fn crowds(&self, part: &mut String) -> io::Result<()> {
        *part += &format!(
            "| resident memory of a connection, of {IDLE} | store: memory | store: Redis |\n|---|---|---|\n"
        );
        let half_head = &SPEND[..SPEND.len() / 3];
        for (title, gate, sent, is_answered) in [
            ("Throttr, answered once and idle", Gate::Throttr, QUERY, true),
            ("Throttr, half a frame", Gate::Throttr, &QUERY[..QUERY.len() / 2], false),
            ("HTTP, answered once and idle", Gate::Http, SPEND, true),
            ("HTTP, the first 70 bytes of a head", Gate::Http, half_head, false),
        ] {
            let [memory, redis] = [None, Some(&self.redis)]
                .map(|store| self.resident_per_connection(gate, store, sent, is_answered));
            *part += &format!("| {title} | {} bytes | {} bytes |\n", memory?, redis?);
        }
        *part += "\n| crowds at the Throttr gate | |\n|---|---|\n";
        let server = start_tollway(&self.program, self.scratch.path())?;
        let live = || {
            // An open loop: in a closed one, a single client would mostly measure the generator's own sleeping and
            // waking.
            let flags = format!("--connections 1 --keys 1 --rate 5000 --duration {}s", self.contest.seconds);
            self.contest.generator.run("throttr", server.throttr.address, &flags).map(|measured| measured.p99)
        };
        let (mut alone, mut crowded, mut ratios, mut gone) = (Vec::new(), Vec::new(), Vec::new(), None);
        live()?;
        for turn in 1..=self.contest.turns {
            eprintln!("half frames, turn {turn}");
            let p99 = live()?;
            let mut crowd =
                OpenConnections::open(server.throttr.address, HALF_FRAMES, &QUERY[..QUERY.len() / 2])?;
            let with_them = live()?;
            alone.push(p99);
            crowded.push(with_them);
            ratios.push(with_them / p99);
            if turn == self.contest.turns {
                gone = Some(crowd.wait_until_closed(CLOSED_WITHIN)?);
            }
        }
        let [alone, crowded, ratio] = [alone, crowded, ratios].map(Spread::of);
        *part += &format!("| p99 of one live client, alone | {:.1} µs |\n", micros(alone));
        *part += &format!(
            "| beside {HALF_FRAMES} clients that sent half a frame | {:.1} µs, ratio {ratio:.2} |\n",
            micros(crowded)
        );
        if let Some(gone) = gone {
            *part += &format!("| all of those are gone after | {:.1} s |\n", gone.as_secs_f64());
        }
        Ok(())
    }

    /// Returns by how many bytes the resident memory of a server grows with each connection that has sent these bytes.
    /// The memory of its sockets is the kernel's and not counted. All requests are in flight together, and what an
    /// allocator keeps after the peak is counted, as it is by whoever looks at the process.
    fn resident_per_connection(
        &self,
        gate: Gate,
        redis: Option<&BenchServer>,
        sent: &[u8],
        is_answered: bool,
    ) -> io::Result<u64> {
        eprintln!("connections: {gate:?}, Redis: {}, {} bytes each", redis.is_some(), sent.len());
        let (request, answer) = match gate {
            Gate::Throttr => (QUERY, QUERY_ANSWER),
            Gate::Http => (SPEND, SPEND_ANSWER),
        };
        let server = start_one_gate(&self.program, self.scratch.path(), gate, redis)?;
        let open = |size| -> io::Result<OpenConnections> {
            let mut crowd = OpenConnections::open(server.address, size, sent)?;
            if is_answered {
                crowd.read_replies(answer)?;
            }
            // The one worker reads in the order of arrival: when this is answered, it has read what the crowd sent.
            OpenConnections::open(server.address, 1, request)?.read_replies(answer)?;
            Ok(crowd)
        };
        // The first connections allocate what is needed only once.
        let _first = open(FIRST)?;
        let before = server.resident()?;
        let _crowd = open(IDLE - FIRST)?;
        Ok(server.resident()?.saturating_sub(before) / (IDLE - FIRST) as u64)
    }
}

/// A gate whose connections are counted.
#[derive(Clone, Copy, Debug)]
enum Gate {
    Throttr,
    Http,
}

fn entry<'a>(
    name: &'static str,
    server: &'a BenchServer,
    (protocol, address): (&'static str, SocketAddr),
    flags: &str,
) -> LoadTarget<'a> {
    LoadTarget { name, server, protocol, address, flags: flags.to_owned() }
}

/// Returns the rates of echo and ours, and their ratios, as cells of a table.
fn beside_echo(rates: &RateResults) -> String {
    let [echo, ours, ..] = rates.standings.as_slice() else { return String::new() };
    format!("{} | {} | {:.2} | {:.2}", millions(echo), millions(ours), ours.ratio, rates.by_cpu(1, 0))
}

fn micros(nanos: Spread) -> Spread {
    nanos.scaled(1e-3)
}

fn start_tollway(program: &str, scratch: &Path) -> io::Result<GatePair> {
    let (throttr, text) = (free_address()?, free_udp_address()?);
    let config = scratch.join(format!("tollway-{}.yaml", throttr.port()));
    fs::write(
        &config,
        format!(
            "keys:
  - {{ match: '^ws global$', limit: 2500, period: 10s, stats: true }}
  - {{ match: '^ws ip=', limit: 22, period: 20s, strict: true }}
  - {{ match: '.*', answer: never }}
gates: {{ throttr: '{throttr}', text: '{text}' }}
"
        ),
    )?;
    let mut command = Command::new(program);
    command.args(["serve", "--workers", "1", "--config"]).arg(config);
    Ok(GatePair { throttr: BenchServer::start(command, throttr)?, text })
}

/// Starts Tollway with one gate, over memory or Redis.
fn start_one_gate(
    program: &str,
    scratch: &Path,
    gate: Gate,
    redis: Option<&BenchServer>,
) -> io::Result<BenchServer> {
    let address = free_address()?;
    let config = scratch.join(format!("connections-{}.yaml", address.port()));
    let gate = if matches!(gate, Gate::Throttr) { "throttr" } else { "http" };
    let store = redis.map_or_else(String::new, |redis| format!("store: redis://{}\n", redis.address));
    let limits = "limits: { PerUser: { burst: 1000000000, count: 1000, period: 1s } }";
    fs::write(
        &config,
        format!("{limits}\n{store}gates: {{ {gate}: {{ listen: '{address}', max_connections: 20000 }} }}\n"),
    )?;
    let mut command = Command::new(program);
    command.args(["serve", "--workers", "1", "--config"]).arg(config);
    BenchServer::start(command, address)
}

fn start_echo(program: &str) -> io::Result<GatePair> {
    let (throttr, text) = (free_address()?, free_udp_address()?);
    let mut command = Command::new(program);
    command.args(["bench", "echo", "--throttr", &throttr.to_string(), "--text", &text.to_string()]);
    Ok(GatePair { throttr: BenchServer::start(command, throttr)?, text })
}

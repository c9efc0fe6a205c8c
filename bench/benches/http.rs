//! Benchmarks the HTTP gate against nginx with `limit_req`, a constant answer of the same server, and throttlecrab.
//!
//! `cargo xtask bench http`, which passes the paths of the programs: Tollway's and throttlecrab's. The results of five
//! turns or more are written into docs/benchmarks.md; `cargo xtask bench http --turns 2` is a quick try, and
//! `--only many-429` measures one of the tables.
//!
//! Before anything is measured, every server has seen every id, and has proved that it limits: a request that must be
//! refused is, and one that must pass does.

use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use tollway_bench::http_client::HttpConnection;
use tollway_bench::options::{OptionSpec, Options};
use tollway_bench::page::publish;
use tollway_bench::rounds::{ContestResult, Contestant, Spread, alternate};
use tollway_bench::servers::{BenchServer, ScratchDirectory, free_address, nginx};
use tollway_bench::wrk::{IDS, WrkLoad};

/// The tables: a name for `--only`, a title, whether there are many ids, and whether requests are refused.
const CASES: [(&str, &str, bool, bool); 4] = [
    ("one-allowed", "one id, all allowed", false, false),
    ("many-allowed", "a million ids, all allowed", true, false),
    ("one-429", "one id, all refused with 429", false, true),
    ("many-429", "a million ids, all refused with 429", true, true),
];

/// The requests that are sent together while a server is filled.
const FILL_BATCH: u32 = 64;

/// Limits that allow everything, and one request an hour.
const LIMITS: &str = "limits:
  Large: { burst: 1000000000, count: 1000, period: 1s }
  Small: { burst: 1, count: 1, period: 1h }
";

fn main() -> io::Result<()> {
    let programs = ["tollway", "throttlecrab-server"];
    let rows = CASES.map(|(name, ..)| name);
    let options = OptionSpec { programs: &programs, rows: &rows, ..OptionSpec::NONE }.read()?;
    let scratch = ScratchDirectory::new()?;
    let servers = Servers::start(&options, scratch.path())?;
    let mut part = format!(
        "50 keep-alive connections, the server on one core and `wrk` on the other; {} turns of {} s each, alternating: \
         median\n(lowest to highest), and ratios turn by turn. *Speed by CPU* is the CPU time of nginx for a request, \
         divided by that of\nthe row.\n",
        options.turns,
        options.seconds.ceil()
    );
    for (name, title, many_ids, is_refused) in CASES {
        if options.wants(name) {
            let loads = servers.loads(many_ids, is_refused);
            part += &format!("\n{}", measure(title, is_refused, &loads, &options, scratch.path())?);
        }
    }
    publish(&options, "cargo xtask bench http", "http", &part)
}

/// A server that gets one kind of load.
struct Row<'a> {
    name: &'static str,
    server: &'a BenchServer,
    load: WrkLoad,
    /// True if a refusal of the server has a status of its own.
    has_status: bool,
}

/// Fills the servers with the ids of a case, checks that they limit, measures them, and returns the table. All rows are
/// compared with the first.
fn measure(
    title: &str,
    is_refused: bool,
    rows: &[Row<'_>],
    options: &Options,
    scratch: &Path,
) -> io::Result<String> {
    for row in rows {
        eprintln!("{title}: filling {}", row.name);
        fill(row, is_refused)?;
    }
    let rates = RefCell::new(vec![Vec::new(); rows.len()]);
    let turn = |index: usize, row: &Row<'_>| {
        eprintln!("{title}: {}", row.name);
        let run = row.load.run(row.server, scratch, options.seconds).expect("wrk answers as it did before");
        rates.borrow_mut()[index].push(1e9 / run.rate);
        let expected = if is_refused && row.has_status { 1.0 } else { 0.0 };
        assert!(
            (run.refused - expected).abs() < 0.001,
            "{}: {} of the answers were refusals",
            row.name,
            run.refused
        );
        run.cpu_nanos
    };
    let turn = &turn;
    let contestants = rows
        .iter()
        .enumerate()
        .map(|(index, row)| Contestant { name: row.name, work: Box::new(move || turn(index, row)) });
    let standings = alternate(options.turns, &mut contestants.collect::<Vec<_>>());
    Ok(table(title, &standings, &rates.borrow()))
}

fn table(title: &str, by_cpu: &[ContestResult], rates: &[Vec<f64>]) -> String {
    let mut table = format!(
        "| {title} | requests a second | CPU time a request | speed by CPU | speed |\n|---|---|---|---|---|\n"
    );
    for (standing, nanos) in by_cpu.iter().zip(rates) {
        // The first turn is the warm-up.
        let per_turn = nanos.iter().zip(&rates[0]).skip(1);
        let rate = Spread::of(nanos[1..].iter().map(|nanos| 1e9 / nanos).collect());
        let speed = Spread::of(per_turn.map(|(own, first)| first / own).collect());
        let micros = standing.nanos.scaled(1e-3);
        table += &format!(
            "| {} | {rate:.0} | {micros:.1} µs | {} | {} |\n",
            standing.name,
            standing.ratio.as_ratio(),
            speed.as_ratio()
        );
    }
    table
}

/// Sends a request with every id, and then checks that another one gets the answer that the case is about.
fn fill(row: &Row<'_>, is_refused: bool) -> io::Result<()> {
    let mut connection = HttpConnection::open(row.server.address)?;
    let ids = if row.load.many_ids { IDS } else { 1 };
    for first in (0..ids).step_by(FILL_BATCH as usize) {
        let requests: Vec<_> = (first..ids.min(first + FILL_BATCH)).map(|id| row.load.request(id)).collect();
        connection.ask(&requests)?;
    }
    let answered = connection.ask(&[row.load.request(0), row.load.request(ids - 1)])?;
    let expected: &[u16] = if is_refused && row.has_status { &[429] } else { &[200, 204] };
    if answered.iter().all(|status| expected.contains(status)) {
        return Ok(());
    }
    Err(io::Error::other(format!("{} answered {answered:?} instead of {expected:?}", row.name)))
}

/// The servers that take part.
struct Servers {
    nginx: BenchServer,
    ours: BenchServer,
    throttlecrab: BenchServer,
}

impl Servers {
    fn start(options: &Options, scratch: &Path) -> io::Result<Self> {
        let nginx = start_nginx(scratch)?;
        let ours = start_tollway(&options.programs[0], scratch)?;
        Ok(Self { nginx, ours, throttlecrab: start_throttlecrab(&options.programs[1])? })
    }

    /// Returns the rows of one table, nginx first.
    fn loads(&self, many_ids: bool, is_refused: bool) -> Vec<Row<'_>> {
        let row = |name, server, path: String, body: Option<String>| Row {
            name,
            server,
            load: WrkLoad { path, body, many_ids },
            has_status: true,
        };
        let limit = if is_refused { "Small" } else { "Large" };
        let spend = format!(r#"{{"limit":"{limit}","id":"{{id}}","cost":1}}"#);
        let (burst, count, period) =
            if is_refused { (1, 1, 3_600) } else { (1_000_000_000, 1_000_000_000, 1) };
        let numbers =
            format!(r#""max_burst":{burst},"count_per_period":{count},"period":{period},"quantity":1"#);
        // It spends buckets of its own: the other rows have used up those of the same key.
        let throttle = format!(r#"{{"key":"{limit}-{{id}}",{numbers}}}"#);
        let mut rows = vec![
            row("nginx 1.22, `limit_req`, `GET`", &self.nginx, format!("/{limit}?id={{id}}"), None),
            row("tollway, `GET /v1/gate`", &self.ours, format!("/v1/gate?limit={limit}&id={{id}}"), None),
            row("tollway, `POST /v1/spend`", &self.ours, "/v1/spend".to_owned(), Some(spend)),
            Row {
                // A refusal is a 200 with `"allowed":false`.
                has_status: false,
                ..row(
                    "throttlecrab-server 0.4.40, `POST /throttle`",
                    &self.throttlecrab,
                    "/throttle".to_owned(),
                    Some(throttle),
                )
            },
        ];
        if !many_ids && !is_refused {
            let healthz = "/healthz".to_owned();
            rows.push(row("tollway, `GET /healthz`: a constant answer", &self.ours, healthz, None));
        }
        rows
    }
}

/// Starts nginx with two limits that differ only in their numbers. The pixel is the content of the location: a `return`
/// would answer before the phase in which `limit_req` counts. A zone has room for all ids, at 128 bytes each.
fn start_nginx(scratch: &Path) -> io::Result<BenchServer> {
    let address = free_address()?;
    let http = format!(
        "limit_req_zone $arg_id zone=large:256m rate=1000000r/s;
         limit_req_zone $arg_id zone=small:256m rate=1r/m;
         limit_req_status 429;
         server {{
             listen {address};
             location /Large {{ limit_req zone=large burst=1000000 nodelay; empty_gif; }}
             location /Small {{ limit_req zone=small; empty_gif; }}
         }}"
    );
    BenchServer::start(nginx(scratch, "limiter", &http)?, address)
}

fn start_tollway(program: &str, scratch: &Path) -> io::Result<BenchServer> {
    let (address, config) = (free_address()?, scratch.join("tollway.yaml"));
    fs::write(&config, LIMITS)?;
    let mut command = Command::new(program);
    command.args(["serve", "--workers", "1", "--config"]).arg(config);
    for gate in ["--admin", "--smockron", "--rls", "--resp"] {
        command.args([gate, "off"]);
    }
    command.arg("--http").arg(address.to_string());
    BenchServer::start(command, address)
}

fn start_throttlecrab(program: &str) -> io::Result<BenchServer> {
    let address = free_address()?;
    let mut command = Command::new(program);
    command.args(["--http", "--http-host", "127.0.0.1", "--http-port"]).arg(address.port().to_string());
    BenchServer::start(command, address)
}

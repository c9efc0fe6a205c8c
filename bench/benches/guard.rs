//! Benchmarks `tollway guard` against nginx, both as a proxy in front of the same service.
//!
//! `cargo xtask bench guard`, which passes the path of the program.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tollway_bench::rounds::{Contestant, Spread, alternate};
use tollway_bench::servers::{BenchServer, ScratchDirectory, free_address, nginx};
use tollway_bench::wrk::WrkLoad;

const ROUNDS: usize = 7;
const SECONDS: u32 = 2;

fn main() -> io::Result<()> {
    let mut programs = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let tollway = programs.next().ok_or_else(|| io::Error::other("pass the path of tollway"))?;
    let scratch = ScratchDirectory::new()?;
    let service = start_service(scratch.path())?;
    let master = start_master(&tollway, scratch.path())?;
    let nginx = start_nginx(scratch.path(), service.address)?;
    let guard = start_guard(&tollway, service.address, Some(master.address))?;
    let alone = start_guard(&tollway, service.address, None)?;
    let proxies =
        [("nginx, proxy_pass", &nginx), ("tollway guard", &guard), ("tollway guard, no master", &alone)];
    let rates: Vec<_> = proxies.iter().map(|_| RefCell::new(Vec::new())).collect();
    let mut contestants: Vec<_> = proxies
        .iter()
        .zip(&rates)
        .map(|((name, proxy), rates)| Contestant {
            name,
            work: Box::new(|| {
                let (rate, nanos) = measure(proxy, scratch.path()).expect("wrk answers as it did before");
                rates.borrow_mut().push(rate / 1e3);
                nanos
            }),
        })
        .collect();
    println!(
        "50 kept connections, the proxy on one core, wrk, the service and the master on the other: thousands of"
    );
    println!(
        "requests a second, microseconds of the core for each, and as many times as many for as much of it as nginx;"
    );
    println!("median (lowest to highest) of {ROUNDS} turns of {SECONDS} s, taken alternately");
    for (standing, rates) in alternate(ROUNDS, &mut contestants).iter().zip(&rates) {
        // The first turn is the warm-up.
        let rate = Spread::of(rates.borrow()[1..].to_vec());
        println!(
            "  {:28} {rate:.1}k  {:.1} us  {:.2}x",
            standing.name,
            standing.nanos.median / 1e3,
            standing.ratio
        );
    }
    Ok(())
}

/// Returns the requests a second, and the proxy's CPU time for each in nanoseconds, which is reliable on a busy
/// machine.
fn measure(proxy: &BenchServer, scratch: &Path) -> io::Result<(f64, f64)> {
    let before = proxy.cpu_time()?;
    let rate = load(proxy.address).run(scratch, SECONDS)?;
    let busy = proxy.cpu_time()? - before;
    Ok((rate, busy.as_nanos() as f64 / (rate * f64::from(SECONDS))))
}

fn load(address: SocketAddr) -> WrkLoad {
    WrkLoad { url: format!("http://{address}/"), body: None }
}

/// Starts the service behind the proxies: an nginx with a constant answer.
fn start_service(scratch: &Path) -> io::Result<BenchServer> {
    let address = free_address()?;
    let location = "return 200 'hello, whoever you are\\n';";
    BenchServer::start_on_client_core(
        nginx(scratch, "service", &format!("server {{ listen {address}; {location} }}"))?,
        address,
    )
}

fn start_nginx(scratch: &Path, service: SocketAddr) -> io::Result<BenchServer> {
    let address = free_address()?;
    let server = format!(
        "upstream service {{ server {service}; keepalive 64; keepalive_requests 1000000000; }}
         server {{
             listen {address};
             location / {{
                 proxy_pass http://service;
                 proxy_http_version 1.1;
                 proxy_set_header Connection '';
                 proxy_set_header Host $host;
                 proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
             }}
         }}"
    );
    BenchServer::start(nginx(scratch, "proxy", &server)?, address)
}

/// Starts a master that delays nobody, so that every request passes and is reported.
fn start_master(tollway: &str, scratch: &Path) -> io::Result<BenchServer> {
    let (address, config) = (free_address()?, scratch.join("master.yaml"));
    let rule = "{ rate: 1000000/s, burst: 60000 }";
    let gate = format!("{{ accounting: {address}, control: {} }}", free_address()?);
    fs::write(
        &config,
        format!("domains: {{ api: {{ rules: [{rule}], logic: gcra }} }}\ngates: {{ smockron: {gate} }}\n"),
    )?;
    let mut command = Command::new(tollway);
    command.args(["serve", "--workers", "1", "--config"]).arg(config);
    BenchServer::start_on_client_core(command, address)
}

fn start_guard(tollway: &str, service: SocketAddr, master: Option<SocketAddr>) -> io::Result<BenchServer> {
    let address = free_address()?;
    let master = master.map_or_else(free_address, Ok)?;
    let mut command = Command::new(tollway);
    command.args(["guard", "--workers", "1", "--domain", "api", "--listen"]).arg(address.to_string());
    command.arg("--upstream").arg(format!("http://{service}")).arg("--master").arg(master.to_string());
    BenchServer::start(command, address)
}

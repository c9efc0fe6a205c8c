//! Benchmarks `tollway guard` against nginx, both as a proxy in front of the same service.
//!
//! `cargo xtask bench guard`, which passes the path of the program.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tollway_bench::options::OptionSpec;
use tollway_bench::page::publish;
use tollway_bench::rounds::{Contestant, Spread, alternate};
use tollway_bench::servers::{BenchServer, ScratchDirectory, free_address, nginx};
use tollway_bench::wrk::WrkLoad;

fn main() -> io::Result<()> {
    let options = OptionSpec { programs: &["tollway"], turns: 7, seconds: 2.0, ..OptionSpec::NONE }.read()?;
    let tollway = &options.programs[0];
    let scratch = ScratchDirectory::new()?;
    let service = start_service(scratch.path())?;
    let master = start_master(tollway, scratch.path())?;
    let nginx = start_nginx(scratch.path(), service.address)?;
    let guard = start_guard(tollway, service.address, Some(master.address))?;
    let alone = start_guard(tollway, service.address, None)?;
    let proxies = [
        ("nginx, `proxy_pass`, keep-alive", &nginx),
        ("`tollway guard`, everything reported to a master", &guard),
        ("`tollway guard`, without a master", &alone),
    ];
    let load = WrkLoad { path: "/".to_owned(), body: None, many_ids: false };
    let rates: Vec<_> = proxies.iter().map(|_| RefCell::new(Vec::new())).collect();
    let mut contestants: Vec<_> = proxies
        .iter()
        .zip(&rates)
        .map(|((name, proxy), rates)| Contestant {
            name,
            work: Box::new(|| {
                let run =
                    load.run(proxy, scratch.path(), options.seconds).expect("wrk answers as it did before");
                rates.borrow_mut().push(run.rate);
                // CPU time, which is reliable on a busy machine.
                run.cpu_nanos
            }),
        })
        .collect();
    let mut table = format!(
        "50 keep-alive connections to a proxy on one core; `wrk`, the service behind it and the master on the other; {} \
         turns of\n{} s each, alternating: median (lowest to highest), and ratios turn by turn of the answers for the same \
         CPU time.\n\n| | requests a second | CPU time of the proxy a request | ratio to nginx |\n|---|---|---|---|\n",
        options.turns, options.seconds
    );
    for (standing, rates) in alternate(options.turns, &mut contestants).iter().zip(&rates) {
        // The first turn is the warm-up.
        let rate = Spread::of(rates.borrow()[1..].to_vec());
        let micros = standing.nanos.scaled(1e-3);
        table += &format!("| {} | {rate:.0} | {micros:.1} µs | {:.2} |\n", standing.name, standing.ratio);
    }
    publish(&options, "cargo xtask bench guard", "guard", &table)
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

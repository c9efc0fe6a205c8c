//! Two web services and the master that both listen to, each a process of its own, and two clients who ask them:
//!
//! ```console
//! $ cargo run --release -p tollway-tower --example fleet
//! ```
//!
//! One client asks for five times as much as it may, the other for less. `README.md` beside this file shows the output.
//! With `-- --stay` no client asks, and the services stay for you to try.

mod clients;
mod master;
mod process;
mod service;
mod timeline;

use std::env;
use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

use process::Process;
use timeline::Timeline;

/// The domain that allows each client eight requests at once, and four a second.
const DOMAIN: &str = "domains: { web: { rules: [{ rate: 4/s, burst: 8 }] } }";

/// The two services.
const SERVICES: [&str; 2] = ["A", "B"];

const USAGE: &str = "usage: fleet [--seconds N | --stay]";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => show(10),
        ["--seconds", seconds] => show(seconds.parse().map_err(|_| USAGE)?),
        ["--stay"] => stay(),
        ["master"] => master::run(),
        ["service", name, accounting, control] => service::run(name, accounting, control),
        _ => Err(USAGE.into()),
    }
}

/// Lets both clients ask for so long, and shows what becomes of it.
fn show(seconds: u32) -> Result<(), Box<dyn Error>> {
    let fleet = Fleet::start()?;
    fleet.introduce();
    let asking = clients::ask_for(seconds, &fleet.addresses);
    let mut timeline = Timeline::start();
    // Who waits when the last request is sent waits for a second at most.
    timeline.follow(&fleet.reports, Duration::from_secs(u64::from(seconds)) + service::MAX_DELAY);
    asking.join().map_err(|_| "the clients gave up")?;
    timeline.explain(seconds);
    Ok(())
}

/// Leaves the services to whoever likes to ask them, until Ctrl-C.
fn stay() -> Result<(), Box<dyn Error>> {
    let fleet = Fleet::start()?;
    fleet.introduce();
    println!("Ask them, quickly or slowly, under any name, and stop all of it with Ctrl-C:");
    for address in &fleet.addresses {
        println!("  for i in $(seq 20); do curl -s -H 'x-client: me' http://{address}/ & done; wait");
    }
    println!();
    for report in &fleet.reports {
        println!("  {} at {}: {}", report.client, SERVICES[report.service], report.outcome);
    }
    Err("the services are gone".into())
}

/// Three processes, and what the services say.
struct Fleet {
    master: Process,
    services: Vec<Process>,
    addresses: Vec<String>,
    reports: mpsc::Receiver<timeline::OutcomeReport>,
}

impl Fleet {
    fn start() -> Result<Self, Box<dyn Error>> {
        let mut master = Process::start(&["master"])?;
        let announced = master.says()?;
        let (accounting, control) = announced.split_once(' ').ok_or("the master is where?")?;
        let (report, reports) = mpsc::channel();
        let (mut services, mut addresses) = (Vec::new(), Vec::new());
        for (index, name) in SERVICES.iter().enumerate() {
            let mut service = Process::start(&["service", name, accounting, control])?;
            addresses.push(service.says()?);
            service.read_reports(index, report.clone());
            services.push(service);
        }
        Ok(Self { master, services, addresses, reports })
    }

    fn introduce(&self) {
        println!("{DOMAIN}\n");
        println!("  process {:<8} the master", self.master.id());
        for ((service, name), address) in self.services.iter().zip(SERVICES).zip(&self.addresses) {
            println!("  process {:<8} service {name}, http://{address}/", service.id());
        }
        println!();
    }
}

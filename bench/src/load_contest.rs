//! Loads several servers in turn with `tollway bench`, and compares their rates and their CPU time.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;

use crate::generator::{LoadGenerator, LoadResult};
use crate::options::{OptionSpec, Options};
use crate::page::publish;
use crate::rounds::{ContestResult, Contestant, Spread, alternate};
use crate::servers::BenchServer;

/// The flags that every run of the load generator has.
pub const KEYS: &str = "--keys 1000000 --connections 50";

/// A contest of servers under the same load generator.
pub struct LoadContest {
    /// The program that generates the load.
    pub generator: LoadGenerator,
    /// The number of turns that each server gets, after one to warm up.
    pub turns: usize,
    /// The length of a turn.
    pub seconds: f64,
    options: Options,
}

/// A server that gets load, with the protocol and flags of the load generator.
pub struct LoadTarget<'a> {
    /// The name that is printed.
    pub name: &'static str,
    /// The process whose CPU time counts.
    pub server: &'a BenchServer,
    /// The protocol of the load generator.
    pub protocol: &'static str,
    /// The address that gets the load.
    pub address: SocketAddr,
    /// The flags of the load generator, but for the length of a turn.
    pub flags: String,
}

/// The rates that the servers reached, and their CPU time for each request, in the order of the targets.
pub struct RateResults {
    /// The nanoseconds that a request took, and the ratios to the first server.
    pub standings: Vec<ContestResult>,
    busy: Vec<Vec<f64>>,
}

impl LoadContest {
    /// Reads the arguments of the process: the paths of these programs, of which the first generates the load, and
    /// perhaps `--turns N` and `--seconds S`. Returns the paths too.
    pub fn from_arguments<const N: usize>(programs: [&str; N]) -> io::Result<(Self, [String; N])> {
        let options =
            OptionSpec { programs: &programs, turns: 7, seconds: 1.5, ..OptionSpec::NONE }.read()?;
        let paths: [String; N] = options.programs.clone().try_into().expect("a path for each program");
        let generator = LoadGenerator(options.programs[0].clone());
        Ok((Self { generator, turns: options.turns, seconds: options.seconds, options }, paths))
    }

    /// Returns the lines that are above the results of contests with [`KEYS`].
    pub fn heading(&self) -> String {
        format!(
            "50 connections and 1,000,000 keys; {} turns of {} s each, alternating: median (lowest to highest),\n\
             and ratios turn by turn.\n\n",
            self.turns, self.seconds
        )
    }

    /// Prints the results of this benchmark, and writes them into its section of the page if there were enough turns.
    pub fn publish(&self, name: &str, results: &str) -> io::Result<()> {
        publish(&self.options, &format!("cargo xtask bench {name}"), name, results)
    }

    /// Measures the requests a second of each server.
    pub fn rates(&self, targets: &[LoadTarget<'_>]) -> RateResults {
        let busy = RefCell::new(vec![Vec::new(); targets.len()]);
        let standings = self.figures(targets, |index, measured, server_time| {
            busy.borrow_mut()[index].push(server_time / measured.requests);
            1e9 / measured.rate
        });
        // The first turn is the warm-up.
        let busy = busy.into_inner().into_iter().map(|turns| turns[1..].to_vec()).collect();
        RateResults { standings, busy }
    }

    /// Runs all targets in turn. `figure` gets the index of the target, the result, and the server's CPU time in
    /// nanoseconds.
    pub fn figures(
        &self,
        targets: &[LoadTarget<'_>],
        figure: impl Fn(usize, &LoadResult, f64) -> f64,
    ) -> Vec<ContestResult> {
        let work = |index: usize, target: &LoadTarget<'_>| {
            eprintln!("{} {}: {}", target.protocol, target.name, target.flags);
            let (measured, server_time) = self.turn(target).unwrap_or_else(|error| panic!("{error}"));
            let LoadResult { denied, unanswered, .. } = measured;
            if denied + unanswered > 0 {
                eprintln!("  {denied} denied, {unanswered} unanswered");
            }
            figure(index, &measured, server_time)
        };
        let work = &work;
        let contestants = targets.iter().enumerate().map(|(index, target)| Contestant {
            name: target.name,
            work: Box::new(move || work(index, target)),
        });
        alternate(self.turns, &mut contestants.collect::<Vec<_>>())
    }

    fn turn(&self, target: &LoadTarget<'_>) -> io::Result<(LoadResult, f64)> {
        let before = target.server.cpu_time()?;
        let flags = format!("{} --duration {}s", target.flags, self.seconds);
        let measured = self.generator.run(target.protocol, target.address, &flags)?;
        Ok((measured, (target.server.cpu_time()? - before).as_nanos() as f64))
    }
}

impl RateResults {
    /// Returns how many times the CPU time of server `index` server `other` takes for a request, computed turn by turn.
    pub fn by_cpu(&self, index: usize, other: usize) -> Spread {
        Spread::of(self.busy[other].iter().zip(&self.busy[index]).map(|(other, own)| other / own).collect())
    }
}

/// Returns millions of requests a second as text.
pub fn millions(standing: &ContestResult) -> String {
    let Spread { median, low, high } = standing.nanos;
    let [median, low, high] = [median, high, low].map(|nanos| 1e3 / nanos);
    format!("{median:.3}M ({low:.3} to {high:.3})")
}

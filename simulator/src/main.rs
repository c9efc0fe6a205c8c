//! Simulates many seeds, and prints what was found.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use tollway_simulator::{History, Plant, simulate};

/// The time between two lines about the progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// The number of violations that are printed with everything that is known about them.
const SHOWN_MAX: usize = 3;

/// The number of seeds if neither a number nor a seed is given.
const USUAL_SEEDS: u64 = 20;

#[derive(Parser)]
#[command(
    bin_name = "cargo xtask simulate",
    about = "Tries to break what the limits promise, seed by seed",
    after_help = "Examples:
  cargo xtask simulate                                   20 seeds, a day each, on all cores
  cargo xtask simulate --seeds 1000 --seconds 1000000    many seeds, twelve days each
  cargo xtask simulate --seed 100 --seeds 20             seeds 100 to 119
  cargo xtask simulate --seed 7 --seconds 100000         one seed again: the same seed, the same history
  cargo xtask simulate --plant refunds-twice             a bug on purpose: some seed must find it

A violation is printed as soon as it is found. The exit code is 1 if there was one. See docs/simulator.md."
)]
struct Arguments {
    /// The number of seeds; by default 20, or 1 if --seed is given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The simulated seconds of each seed
    #[arg(long, value_name = "S", default_value_t = 100_000)]
    seconds: u64,
    /// The first seed; by default 0
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// The number of seeds that are simulated at once, each in one thread; by default one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// A bug to plant, to see that it is found
    #[arg(long, value_name = "BUG", value_parser = Plant::ALL.map(Plant::name))]
    plant: Option<String>,
}

impl Arguments {
    /// Returns the seeds, from the first to the last one.
    fn seeds(&self) -> Result<RangeInclusive<u64>, String> {
        let first = self.seed.unwrap_or_default();
        let seeds = self.seeds.unwrap_or(if self.seed.is_some() { 1 } else { USUAL_SEEDS });
        match first.checked_add(seeds - 1) {
            Some(last) => Ok(first..=last),
            None => Err(format!("there are no {seeds} seeds from {first} on; the last one is {}", u64::MAX)),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = arguments.seeds().unwrap_or_else(|error| {
        Arguments::command().error(ErrorKind::ValueValidation, error).exit();
    });
    let plant = Plant::ALL.into_iter().find(|plant| Some(plant.name()) == arguments.plant.as_deref());
    let jobs =
        arguments.jobs.map(usize::from).or_else(|| thread::available_parallelism().ok().map(usize::from));
    let progress = Progress::new(&seeds, arguments.seconds);
    let (queue, results) = (Mutex::new(seeds), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..jobs.unwrap_or(1) {
            scope.spawn(|| {
                loop {
                    let Some(seed) = queue.lock().expect("no thread panics here").next() else { return };
                    let history = simulate(seed, arguments.seconds, plant);
                    let mut results = results.lock().expect("no thread panics here");
                    progress.print(seed, &history, results.len() + 1);
                    results.insert(seed, history);
                }
            });
        }
    });
    let results = results.into_inner().expect("no thread panicked");
    summarize(&results, &arguments, progress.started.elapsed())
}

/// Prints how far the simulation is, now and then.
struct Progress {
    seeds: f64,
    seconds: f64,
    started: Instant,
    printed: Mutex<Instant>,
}

impl Progress {
    fn new(seeds: &RangeInclusive<u64>, seconds: u64) -> Self {
        let (count, now) = ((seeds.end() - seeds.start()) as f64 + 1.0, Instant::now());
        Self { seeds: count, seconds: seconds as f64, started: now, printed: Mutex::new(now) }
    }

    /// Prints that a seed is done, if the last line is old or the seed broke a promise.
    fn print(&self, seed: u64, history: &History, done: usize) {
        let mut printed = self.printed.lock().expect("no thread panics here");
        if let Some(violation) = history.violations().first() {
            eprintln!("seed {seed} broke a promise after {:.3} s: {}", violation.at, violation.what);
        }
        if printed.elapsed() >= PROGRESS_EVERY {
            *printed = Instant::now();
            let (done, took) = (done as f64, self.started.elapsed().as_secs_f64());
            let (rate, left) = (done * self.seconds / took, took * (self.seeds - done) / done);
            eprintln!(
                "{done:.0} of {:.0} seeds, {rate:.0} simulated seconds a second, about {left:.0} s left",
                self.seeds
            );
        }
    }
}

fn summarize(results: &BTreeMap<u64, History>, arguments: &Arguments, took: Duration) -> ExitCode {
    let seconds = arguments.seconds;
    let planted = arguments.plant.as_ref().map(|plant| format!(" --plant {plant}")).unwrap_or_default();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut hash = 0_u64;
    for history in results.values() {
        hash = hash.rotate_left(5) ^ history.hash();
        history.counts().iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
    }
    let simulated = seconds * results.len() as u64;
    let rate = simulated as f64 / took.as_secs_f64();
    println!(
        "{} seeds, {simulated} simulated seconds, in {:.1} s: {rate:.0} a second",
        results.len(),
        took.as_secs_f64()
    );
    counts.iter().for_each(|(what, count)| println!("  {what:<24} {count:>12}"));
    println!("hash of all decisions: {hash:016x}");
    let broken: Vec<_> = results.iter().filter(|(_, history)| !history.violations().is_empty()).collect();
    for (seed, history) in broken.iter().take(SHOWN_MAX) {
        let violation = &history.violations()[0];
        println!("\nVIOLATION with seed {seed} after {:.9} s: {}", violation.at, violation.what);
        violation.before.iter().for_each(|event| println!("    {event}"));
        println!("  repeat it with: cargo xtask simulate --seed {seed} --seconds {seconds}{planted}");
    }
    println!("\n{} of {} seeds broke a promise", broken.len(), results.len());
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds(arguments: &str) -> Option<RangeInclusive<u64>> {
        let parsed =
            Arguments::try_parse_from(std::iter::once("simulate").chain(arguments.split_whitespace()));
        parsed.ok()?.seeds().ok()
    }

    #[test]
    fn a_first_seed_and_a_number_of_seeds_are_taken_together() {
        assert_eq!(seeds(""), Some(0..=19));
        assert_eq!(seeds("--seed 100"), Some(100..=100));
        assert_eq!(seeds("--seed 100 --seeds 20"), Some(100..=119));
        assert_eq!(seeds("--seeds 3"), Some(0..=2));
    }

    #[test]
    fn seeds_that_do_not_exist_are_refused() {
        assert_eq!(seeds("--seeds 0"), None);
        assert_eq!(seeds("--seed 18446744073709551615 --seeds 2"), None);
        assert_eq!(seeds("--seed 18446744073709551615"), Some(u64::MAX..=u64::MAX));
        assert_eq!(seeds("--jobs 0"), None);
    }
}

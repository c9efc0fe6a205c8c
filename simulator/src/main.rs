//! Simulates many seeds, and prints what was found.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use tollway_simulator::{History, Plant, simulate};

/// The time between two lines about the progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// The number of violations that are printed with everything that is known about them.
const SHOWN_MAX: usize = 3;

#[derive(Parser)]
#[command(bin_name = "cargo xtask simulate", about = "Tries to break what the limits promise, seed by seed")]
struct Arguments {
    /// The number of seeds
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The simulated seconds of each seed
    #[arg(long, default_value_t = 100_000)]
    seconds: u64,
    /// The first seed, or the only one if `--seeds` is not given
    #[arg(long)]
    seed: Option<u64>,
    /// A bug to plant, to see that it is found
    #[arg(long, value_parser = Plant::ALL.map(Plant::name))]
    plant: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let first = arguments.seed.unwrap_or_default();
    let seeds = if arguments.seed.is_some() && arguments.seeds == 20 { 1 } else { arguments.seeds };
    let plant = Plant::ALL.into_iter().find(|plant| Some(plant.name()) == arguments.plant.as_deref());
    let started = Instant::now();
    let (next, results) = (AtomicU64::new(0), Mutex::new(BTreeMap::new()));
    let printed = Mutex::new(started);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= seeds {
                        return;
                    }
                    let seed = first + index;
                    let history = simulate(seed, arguments.seconds, plant);
                    let mut results = results.lock().expect("no thread panics here");
                    results.insert(seed, history);
                    progress(&printed, results.len(), seeds);
                }
            });
        }
    });
    let results = results.into_inner().expect("no thread panicked");
    summarize(&results, arguments.seconds, started.elapsed())
}

fn progress(printed: &Mutex<Instant>, done: usize, seeds: u64) {
    let mut printed = printed.lock().expect("no thread panics here");
    if printed.elapsed() >= PROGRESS_EVERY {
        *printed = Instant::now();
        eprintln!("{done} of {seeds} seeds");
    }
}

fn summarize(results: &BTreeMap<u64, History>, seconds: u64, took: Duration) -> ExitCode {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut hash = 0_u64;
    for history in results.values() {
        hash = hash.rotate_left(5) ^ history.hash();
        history.counts().iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
    }
    let simulated = seconds * results.len() as u64;
    println!("{} seeds, {simulated} simulated seconds, in {:.1} s", results.len(), took.as_secs_f64());
    counts.iter().for_each(|(what, count)| println!("  {what:<24} {count:>12}"));
    println!("hash of all decisions: {hash:016x}");
    let broken: Vec<_> = results.iter().filter(|(_, history)| !history.violations().is_empty()).collect();
    for (seed, history) in broken.iter().take(SHOWN_MAX) {
        let violation = &history.violations()[0];
        println!("\nVIOLATION with seed {seed} after {:.9} s: {}", violation.at, violation.what);
        violation.before.iter().for_each(|event| println!("    {event}"));
        println!("  repeat it with: cargo xtask simulate --seed {seed} --seconds {seconds}");
    }
    println!("\n{} of {} seeds broke a promise", broken.len(), results.len());
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

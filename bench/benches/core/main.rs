//! Benchmarks decisions in process against the `governor` crate, bills against single spends, the algorithms against
//! each other, and the memory of buckets.
//!
//! `cargo xtask bench core`, or `cargo xtask bench core --turns 3 --only uniform-1m` for a quick look at one row.
//!
//! Every turn has a new stream of ids, the same for all contestants; the buckets of all ids exist before the first
//! turn. Threads are pinned, and begin together. The decisions are counted, so a row that says *denied* was denied.

mod algorithms;
mod bills;
mod governors;
mod memory;
mod work;

use std::io;

use tollway_bench::id_stream::Popularity;
use tollway_bench::options::OptionSpec;
use tollway_bench::page::publish;

use self::work::Outcome;

const MILLION: u32 = 1_000_000;
const COMMAND: &str = "cargo xtask bench core";

/// The rows of the comparison with governor: a name for `--only`, a title, and what is asked.
const ROWS: [governors::Row; 6] = [
    governors::Row::new("uniform-1m", "uniform, 1M ids", Popularity::Uniform, MILLION, Outcome::Allowed),
    governors::Row::new(
        "uniform-10m",
        "uniform, 10M ids",
        Popularity::Uniform,
        10 * MILLION,
        Outcome::Allowed,
    ),
    governors::Row::new("zipf", "Zipf 0.99, 1M ids", Popularity::Zipf(0.99), MILLION, Outcome::Allowed),
    governors::Row::new("one-id", "one id", Popularity::One, 1, Outcome::Allowed),
    governors::Row::new(
        "uniform-1m-denied",
        "uniform, 1M ids",
        Popularity::Uniform,
        MILLION,
        Outcome::Denied,
    ),
    governors::Row::new("one-id-denied", "one id", Popularity::One, 1, Outcome::Denied),
];

fn main() -> io::Result<()> {
    if let Some(filled) = memory::filled_by_arguments() {
        println!("{filled}");
        return Ok(());
    }
    let names: Vec<_> = ROWS.iter().map(|row| row.name).chain(["bills", "algorithms", "memory"]).collect();
    let options = OptionSpec { rows: &names, extra: Some("--fill-50m"), ..OptionSpec::NONE }.read()?;
    let wanted: Vec<_> = ROWS.iter().filter(|row| options.wants(row.name)).collect();
    if !wanted.is_empty() {
        publish(&options, COMMAND, "core", &governors::compare(&wanted, options.turns))?;
    }
    if options.wants("bills") {
        publish(&options, COMMAND, "bills", &bills::compare(options.turns))?;
    }
    if options.wants("algorithms") {
        publish(&options, COMMAND, "windows", &algorithms::compare(options.turns))?;
    }
    if options.wants("memory") {
        let command = if options.extra { "cargo xtask bench core --fill-50m" } else { COMMAND };
        publish(&options, command, "memory", &memory::measure(options.extra)?)?;
    }
    Ok(())
}

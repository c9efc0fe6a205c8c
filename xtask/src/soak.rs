//! Runs the tests of a fleet for a minute or longer, or faults for hours; `cargo xtask test` gives them a few seconds.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::faults;
use crate::setup;
use crate::step::{Steps, cargo};

/// The time between two reports of a soak with faults.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// The most lines of a failed fault that are printed.
const FAILURE_LINES: usize = 40;

/// Builds everything for release, and runs one test after the other, so that each has the machine for itself.
pub(crate) fn run(steps: &mut Steps, seconds: u16) -> Result<()> {
    setup::run(steps)?;
    let mut test = cargo("test --locked --release --package tollway-cli --test binary");
    test.args(["--", "fleet::", "--test-threads=1", "--nocapture", "--quiet"]);
    steps.run("soak", test.env("TOLLWAY_SOAK_SECS", seconds.to_string()))
}

/// The runs of one fault.
#[derive(Clone, Copy, Default)]
struct Runs {
    passed: u32,
    failed: u32,
    /// The most that an id got above `burst + rate * d`; far below zero if nobody got as much.
    worst_excess: Option<f64>,
}

/// Runs faults in a random order for so many hours, with a report each minute.
pub(crate) fn run_faults(steps: &mut Steps, hours: f64) -> Result<()> {
    faults::prepare(steps)?;
    let until =
        Duration::try_from_secs_f64(hours * 3600.0).context("write a number of hours, such as 0.5")?;
    let mut runs = [Runs::default(); faults::NAMES.len()];
    let shown = format!("random faults for {hours} hours");
    steps.take("soak", &shown, || {
        let (began, random) = (Instant::now(), RandomState::new());
        let mut reported = began;
        for number in 0_u64.. {
            if began.elapsed() >= until {
                break;
            }
            let index = usize::try_from(random.hash_one(number) % faults::NAMES.len() as u64).unwrap_or(0);
            run_once(faults::NAMES[index], &mut runs[index])?;
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                report(began.elapsed(), &runs);
            }
        }
        report(began.elapsed(), &runs);
        Ok(())
    })?;
    let failed: u32 = runs.iter().map(|runs| runs.failed).sum();
    ensure!(failed == 0, "{failed} faults broke the promise or did not end");
    Ok(())
}

fn run_once(name: &str, runs: &mut Runs) -> Result<()> {
    let output = faults::command(name).output().with_context(|| format!("cannot run {name}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let excess =
        text.lines().filter_map(|line| line.split("excess ").nth(1)?.split(' ').next()?.parse().ok());
    runs.worst_excess = excess.chain(runs.worst_excess).reduce(f64::max);
    if output.status.success() {
        runs.passed += 1;
        return Ok(());
    }
    runs.failed += 1;
    eprintln!("{name} failed:");
    let said = String::from_utf8_lossy(&output.stderr);
    text.lines().chain(said.lines()).take(FAILURE_LINES).for_each(|line| eprintln!("  {line}"));
    Ok(())
}

/// Prints one line: how often each fault was run, and the worst that was seen.
fn report(elapsed: Duration, runs: &[Runs]) {
    let shown: Vec<_> = faults::NAMES
        .iter()
        .zip(runs)
        .map(|(name, Runs { passed, failed, worst_excess })| {
            let worst = worst_excess.map_or(String::new(), |worst| format!(", worst excess {worst:.1}"));
            format!("{name} {passed} passed, {failed} failed{worst}")
        })
        .collect();
    println!("{:>5} s: {}", elapsed.as_secs(), shown.join("; "));
}

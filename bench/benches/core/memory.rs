//! Measures the memory of a bucket, and the slowest decision while a store grows.
//!
//! Each store is filled in a process of its own: memory that another one has freed would be used again, and not be
//! counted.

use std::env;
use std::fmt;
use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use tollway::Handle;
use tollway::core::algorithm::{Algorithm, FixedWindow, SlidingLog, SlidingWindow, WINDOW_COUNT_MAX};
use tollway_bench::id_stream::{IdBuffer, IdDraw, Popularity};

use crate::MILLION;
use crate::work::{LIMIT, Outcome, limiter};

const FILL: &str = "--fill";
const HOUR: Duration = Duration::from_secs(3_600);
const ALGORITHMS: [&str; 4] = ["token bucket", "fixed window", "sliding window", "sliding log"];

/// Fills stores, and returns the table. With `fifty` a store of 50M ids is among them.
pub(crate) fn measure(fifty: bool) -> io::Result<String> {
    let mut table = "One process for each row, and one decision for each new id. *A bare loop* only reads the clock, \
                     for as long in the same\nprocess: what the machine does to anybody. *Asked again* is the mean of a \
                     million decisions after that, one at a time,\non ids that are drawn at random.\n\n\
                     | | bytes a bucket, by resident memory | median | 99.9 % | 99.999 % | slowest | a bare loop \
                     | asked again |\n|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    let many = if fifty { &[10, 50][..] } else { &[10] };
    let rows = ALGORITHMS.iter().map(|name| (*name, 5));
    let rows =
        [(ALGORITHMS[0], 1)].into_iter().chain(rows).chain(many.iter().map(|ids| (ALGORITHMS[0], *ids)));
    for (name, millions) in rows {
        eprintln!("memory: {name}, {millions}M ids");
        let output = Command::new(env::current_exe()?).args([FILL, name, &millions.to_string()]).output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        table +=
            &format!("| {name}, {millions}M ids | {} |\n", String::from_utf8_lossy(&output.stdout).trim());
    }
    Ok(table)
}

/// Fills the store that the arguments of this process name, or returns `None` if they name none.
pub(crate) fn filled_by_arguments() -> Option<Filled> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [flag, name, millions] = arguments.as_slice() else { return None };
    let ids = millions.parse::<u32>().ok()? * MILLION;
    (flag == FILL).then(|| fill(algorithm(name), ids))
}

fn algorithm(name: &str) -> Algorithm {
    let [token_bucket, fixed_window, sliding_window, sliding_log] = ALGORITHMS;
    match name {
        _ if name == token_bucket => Outcome::Denied.token_bucket().into(),
        _ if name == fixed_window => {
            FixedWindow::new(1_000, HOUR, Duration::ZERO).expect("numbers in range").into()
        }
        _ if name == sliding_window => {
            SlidingWindow::new(WINDOW_COUNT_MAX, HOUR).expect("numbers in range").into()
        }
        _ if name == sliding_log => SlidingLog::new(1_000, HOUR).expect("numbers in range").into(),
        _ => panic!("no algorithm is called {name}"),
    }
}

/// The cost of filling one store.
pub(crate) struct Filled {
    bytes_per_bucket: f64,
    /// The time of every decision in nanoseconds, the slowest last.
    took: Vec<u32>,
    slowest_pause: u64,
    /// The mean nanoseconds of a decision on an id that has a bucket.
    again: f64,
}

/// Fills a store with new ids one decision at a time.
///
/// Not pinned to a core: the thread that prepares large pages would inherit that, and have the core for 4 ms at a time.
fn fill(algorithm: Algorithm, ids: u32) -> Filled {
    let limiter = limiter(&[LIMIT], algorithm, ids);
    let handle = limiter.handle(LIMIT).expect("it is configured");
    let clock = quanta::Clock::new();
    let mut arrivals = IdBuffer::new();
    let mut took: Vec<u32> = vec![1; ids as usize]; // Not 0, which would not be in memory yet.
    let (before, began, mut numbers) = (resident(), clock.raw(), 0..);
    for took in took.chunks_mut(IdBuffer::SIZE) {
        let numbers: Vec<u32> = numbers.by_ref().take(took.len()).collect();
        for (id, took) in arrivals.fill(&numbers).iter().zip(took) {
            let started = clock.raw();
            let decision = handle.spend(id, 1);
            *took = clock.delta_as_nanos(started, clock.raw()).try_into().unwrap_or(u32::MAX);
            assert!(decision.is_ok_and(|decision| decision.allowed()), "a new id has something left");
        }
    }
    let bytes_per_bucket = (resident() - before) as f64 / f64::from(ids);
    let slowest_pause = slowest_pause(&clock, clock.delta_as_nanos(began, clock.raw()));
    took.sort_unstable();
    Filled { bytes_per_bucket, took, slowest_pause, again: ask_again(&handle, &mut arrivals, ids) }
}

/// Returns the mean nanoseconds of a decision on ids in no order, which all have buckets.
fn ask_again(handle: &Handle, arrivals: &mut IdBuffer, ids: u32) -> f64 {
    let mut took = Duration::ZERO;
    for numbers in IdDraw::new(Popularity::Uniform, ids, 1).stream(MILLION as usize).chunks(IdBuffer::SIZE) {
        let ids = arrivals.fill(numbers);
        let started = Instant::now();
        let decided = ids.iter().filter(|id| handle.spend(id, 1).is_ok()).count();
        took += started.elapsed();
        assert_eq!(decided, ids.len(), "an id is no error");
    }
    took.as_secs_f64() * 1e9 / f64::from(MILLION)
}

impl fmt::Display for Filled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = &self.took;
        let all_but = |one_in: usize| f64::from(took[took.len() - 1 - took.len() / one_in]) / 1e3;
        let slowest = [f64::from(took[took.len() - 1]), self.slowest_pause as f64].map(|nanos| nanos / 1e3);
        write!(f, "{:.1} | {:.2} µs | ", self.bytes_per_bucket, all_but(2))?;
        write!(f, "{:.1} µs | {:.1} µs | ", all_but(1_000), all_but(100_000))?;
        write!(f, "{:.0} µs | {:.0} µs | {:.0} ns", slowest[0], slowest[1], self.again)
    }
}

/// Returns the longest time between two readings of the clock in as many nanoseconds.
fn slowest_pause(clock: &quanta::Clock, nanos: u64) -> u64 {
    let (began, mut last, mut slowest) = (clock.raw(), clock.raw(), 0);
    while clock.delta_as_nanos(began, last) < nanos {
        let now = clock.raw();
        slowest = slowest.max(clock.delta_as_nanos(last, now));
        last = now;
    }
    slowest
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<usize> = status.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or_default() * rustix::param::page_size()
}

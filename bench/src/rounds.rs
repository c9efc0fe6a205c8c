//! Runs several contestants in turn, and compares each with the first in the same turn.

use std::fmt;
use std::sync::Barrier;
use std::time::Duration;

use crate::servers::pin_this_thread;

/// A summary that has the median of some figures, the lowest and the highest.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The figure that half of the others are below.
    pub median: f64,
    /// The lowest figure that was measured.
    pub low: f64,
    /// The highest figure that was measured.
    pub high: f64,
}

impl Spread {
    /// Computes the spread of at least one figure.
    pub fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let (low, high) = (figures[0], figures[figures.len() - 1]);
        Self { median: figures[figures.len() / 2], low, high }
    }
}

impl Spread {
    /// Returns the spread of the same figures in another unit.
    pub fn scaled(&self, factor: f64) -> Self {
        Self { median: self.median * factor, low: self.low * factor, high: self.high * factor }
    }

    /// Returns a ratio of speeds as text that says so if the contestant was the slower one.
    pub fn as_ratio(&self) -> String {
        if self.median < 1.0 { format!("{self:.2}, **slower**") } else { format!("{self:.2}") }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        write!(f, "{:.digits$} ({:.digits$} to {:.digits$})", self.median, self.low, self.high)
    }
}

/// A contestant that does a fixed amount of work in each turn.
pub struct Contestant<'a> {
    /// The name that the table shows.
    pub name: &'a str,
    /// A function that does the work, and returns the nanoseconds that one unit of it took.
    pub work: Box<dyn FnMut() -> f64 + 'a>,
}

/// The figures that one contestant reached.
pub struct ContestResult {
    /// The name of the contestant.
    pub name: String,
    /// The nanoseconds that a unit of work took.
    pub nanos: Spread,
    /// The speed relative to the first contestant, computed turn by turn.
    pub ratio: Spread,
    turns: Vec<f64>,
}

impl ContestResult {
    /// Returns the speed relative to another contestant, computed turn by turn.
    pub fn ratio_to(&self, other: &Self) -> Spread {
        Spread::of(other.turns.iter().zip(&self.turns).map(|(other, ours)| other / ours).collect())
    }

    /// Returns the nanoseconds a unit beyond those of another contestant, computed turn by turn.
    pub fn nanos_over(&self, other: &Self) -> Spread {
        Spread::of(other.turns.iter().zip(&self.turns).map(|(other, ours)| ours - other).collect())
    }
}

/// Runs every contestant once to warm up, and then `rounds` times in turn.
pub fn alternate(rounds: usize, contestants: &mut [Contestant<'_>]) -> Vec<ContestResult> {
    alternate_prepared(rounds, || {}, contestants)
}

/// Alternates as [`alternate`] does, and calls `prepare` before the first contestant of each turn. It is for work that
/// is new in each turn and the same for all contestants.
pub fn alternate_prepared(
    rounds: usize,
    mut prepare: impl FnMut(),
    contestants: &mut [Contestant<'_>],
) -> Vec<ContestResult> {
    let mut turn = || {
        prepare();
        contestants.iter_mut().map(|contestant| (contestant.work)()).collect::<Vec<f64>>()
    };
    turn();
    let turns: Vec<Vec<f64>> = (0..rounds).map(|_| turn()).collect();
    let standing = |(index, contestant): (usize, &Contestant<'_>)| ContestResult {
        name: contestant.name.to_owned(),
        nanos: Spread::of(turns.iter().map(|turn| turn[index]).collect()),
        ratio: Spread::of(turns.iter().map(|turn| turn[0] / turn[index]).collect()),
        turns: turns.iter().map(|turn| turn[index]).collect(),
    };
    contestants.iter().enumerate().map(standing).collect()
}

/// Runs `work` on several threads, each pinned to a core of its own, and returns the mean nanoseconds a unit. `work`
/// gets the index of its thread and a function that returns when all threads are ready; it returns the time that it
/// took and the number of units that it did.
pub fn time_threads(threads: usize, work: impl Fn(usize, &dyn Fn()) -> (Duration, usize) + Sync) -> f64 {
    let (barrier, work) = (Barrier::new(threads), &work);
    let run = |thread: usize| {
        // The first core also handles most interrupts: a single thread stays away from it.
        pin_this_thread(if threads == 1 { 1 } else { thread });
        let (took, units) = work(thread, &|| {
            barrier.wait();
        });
        took.as_nanos() as f64 / units as f64
    };
    std::thread::scope(|scope| {
        let run = &run;
        let started: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        let times = started.into_iter().map(|thread| thread.join().expect("no contestant panics"));
        times.sum::<f64>() / threads as f64
    })
}

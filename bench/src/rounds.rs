//! Several contestants take turns, and each is compared with the first in the same turn.

use std::fmt;
use std::time::Duration;

/// The middle of some figures, and how far they spread.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Half are below.
    pub median: f64,
    /// None is below.
    pub low: f64,
    /// None is above.
    pub high: f64,
}

impl Spread {
    /// Of at least one figure.
    pub fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let (low, high) = (figures[0], figures[figures.len() - 1]);
        Self { median: figures[figures.len() / 2], low, high }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        write!(f, "{:.digits$} ({:.digits$} to {:.digits$})", self.median, self.low, self.high)
    }
}

/// Somebody who does a fixed amount of work.
pub struct Contestant<'a> {
    /// What to call it in the table.
    pub name: &'a str,
    /// Does the work, and says how many nanoseconds one piece of it took.
    pub work: Box<dyn FnMut() -> f64 + 'a>,
}

/// What one contestant came to.
pub struct ContestResult {
    /// Who.
    pub name: String,
    /// Nanoseconds a piece of work.
    pub nanos: Spread,
    /// How many times as fast as the first contestant, turn by turn.
    pub ratio: Spread,
    turns: Vec<f64>,
}

impl ContestResult {
    /// How many times as fast as another contestant, turn by turn.
    pub fn ratio_to(&self, other: &Self) -> Spread {
        Spread::of(other.turns.iter().zip(&self.turns).map(|(other, ours)| other / ours).collect())
    }

    /// How many nanoseconds a piece more than another contestant, turn by turn.
    pub fn nanos_over(&self, other: &Self) -> Spread {
        Spread::of(other.turns.iter().zip(&self.turns).map(|(other, ours)| ours - other).collect())
    }
}

/// Lets everybody work once to warm up, and then `rounds` times in turn.
pub fn alternate(rounds: usize, contestants: &mut [Contestant<'_>]) -> Vec<ContestResult> {
    for contestant in contestants.iter_mut() {
        (contestant.work)();
    }
    let turns: Vec<Vec<f64>> =
        (0..rounds).map(|_| contestants.iter_mut().map(|contestant| (contestant.work)()).collect()).collect();
    let standing = |(index, contestant): (usize, &Contestant<'_>)| ContestResult {
        name: contestant.name.to_owned(),
        nanos: Spread::of(turns.iter().map(|turn| turn[index]).collect()),
        ratio: Spread::of(turns.iter().map(|turn| turn[0] / turn[index]).collect()),
        turns: turns.iter().map(|turn| turn[index]).collect(),
    };
    contestants.iter().enumerate().map(standing).collect()
}

/// Nanoseconds a piece, by the threads' own watches, with `work` done by each of `threads` at the same time. `work` is
/// told which thread it is, and says how long it took and how many pieces it did.
pub fn time_threads(threads: usize, work: impl Fn(usize) -> (Duration, usize) + Sync) -> f64 {
    let per_piece = |(took, pieces): (Duration, usize)| took.as_nanos() as f64 / pieces as f64;
    if threads == 1 {
        return per_piece(work(0));
    }
    std::thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let times = started.into_iter().filter_map(|thread| thread.join().ok()).map(per_piece);
        times.sum::<f64>() / threads as f64
    })
}

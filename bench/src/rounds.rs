//! Several contestants take turns, and each is compared with the first in the same turn.

use std::fmt;
use std::time::Instant;

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
pub struct Result {
    /// Who.
    pub name: String,
    /// Nanoseconds a piece of work.
    pub nanos: Spread,
    /// How many times as fast as the first contestant, turn by turn.
    pub ratio: Spread,
}

/// Lets everybody work once to warm up, and then `rounds` times in turn.
pub fn alternate(rounds: usize, contestants: &mut [Contestant<'_>]) -> Vec<Result> {
    for contestant in contestants.iter_mut() {
        (contestant.work)();
    }
    let turns: Vec<Vec<f64>> =
        (0..rounds).map(|_| contestants.iter_mut().map(|contestant| (contestant.work)()).collect()).collect();
    let result = |(index, contestant): (usize, &Contestant<'_>)| Result {
        name: contestant.name.to_owned(),
        nanos: Spread::of(turns.iter().map(|turn| turn[index]).collect()),
        ratio: Spread::of(turns.iter().map(|turn| turn[0] / turn[index]).collect()),
    };
    contestants.iter().enumerate().map(result).collect()
}

/// Nanoseconds a piece, with `pieces` done by each of `threads` at the same time. Each is told its number.
pub fn time_threads(threads: usize, pieces: usize, work: impl Fn(usize) + Sync) -> f64 {
    let started = Instant::now();
    if threads == 1 {
        work(0);
    } else {
        std::thread::scope(|scope| {
            for number in 0..threads {
                let work = &work;
                scope.spawn(move || work(number));
            }
        });
    }
    started.elapsed().as_nanos() as f64 / pieces as f64
}
